// What blixis's servers have in common. Packages are handed in: each server has its own.

// Tokens of /authenticated. The secret is published: it guards nothing.
const secret = new TextEncoder().encode("published with the benchmark: it guards nothing");
const claims = { algorithms: ["HS256"], issuer: "tracer", audience: "tracer" };

// The rate limit of /middleware: by default every request is counted, and none refused.
export const limit = { requests: Number(process.env.RATE_LIMIT ?? 1_000_000_000), windowMs: 60_000 };

// The subject of a request's bearer token; undefined without a sound one.
export function subjectOf({ jwtVerify }) {
  return async (authorization = "") => {
    const [scheme, token] = authorization.split(" ", 2);
    if (scheme.toLowerCase() !== "bearer" || !token) return undefined;
    try {
      return (await jwtVerify(token, secret, claims)).payload.sub;
    } catch {
      return undefined;
    }
  };
}

// Of /validated, what comes in and what goes out; of POST /items, what comes in.
export function schemas(z) {
  const name = z.string().min(1).max(80);
  const email = z.email();
  return {
    person: z.object({ name, email, age: z.number().int().min(0), tags: z.array(z.string()).max(10) }),
    member: z.object({ id: z.number().int(), name, email, tags: z.array(z.string()) }),
    item: z.object({ name }),
  };
}

const prepare = `
  CREATE SCHEMA IF NOT EXISTS tracer_bench;
  CREATE TABLE IF NOT EXISTS tracer_bench.items (id integer PRIMARY KEY, name text NOT NULL, quantity integer NOT NULL);
  INSERT INTO tracer_bench.items SELECT n, 'item ' || n, n % 100 FROM generate_series(1, 10000) AS n
    WHERE NOT EXISTS (SELECT FROM tracer_bench.items);
  CREATE TABLE IF NOT EXISTS tracer_bench.writes (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text NOT NULL);
  TRUNCATE tracer_bench.writes RESTART IDENTITY`;

// The tables in DATABASE_URL's PostgreSQL, through POOL connections; undefined without a DATABASE_URL.
// The package is loaded only then: a start without a database does not pay for it.
export async function openItems(loadPg) {
  if (!process.env.DATABASE_URL) return undefined;
  const { Pool } = (await loadPg()).default;
  const pool = new Pool({ connectionString: process.env.DATABASE_URL, max: Number(process.env.POOL ?? 10) });
  await pool.query(prepare);
  return {
    async read(id) {
      if (!/^\d{1,9}$/.test(id)) return undefined;
      const { rows } = await pool.query("SELECT id, name, quantity FROM tracer_bench.items WHERE id = $1", [id]);
      return rows[0];
    },
    async write(name) {
      const { rows } = await pool.query("INSERT INTO tracer_bench.writes (name) VALUES ($1) RETURNING id, name", [name]);
      return rows[0];
    },
  };
}

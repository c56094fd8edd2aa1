// Asks PostgreSQL through pg's pool: /one once, /two twice in turn, /sleep once for 5 ms, / not at all.
import http from "node:http";
import pg from "pg";

const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL, max: Number(process.env.POOL) });
const number = () => pool.query("SELECT $1::int AS number", [1]);

const routes = {
  "/": async () => {},
  "/one": number,
  "/two": async () => {
    await number();
    await number();
  },
  "/sleep": () => pool.query("SELECT pg_sleep(0.005)"),
};

http
  .createServer(async (request, response) => {
    await routes[request.url.split("?")[0]]();
    response.end("ok");
  })
  .listen(Number(process.env.PORT), "127.0.0.1");

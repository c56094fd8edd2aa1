// On Bun by Bun's own server, on Node through the adapter as it comes.
import { Hono } from "hono";
import { select } from "../users.mjs";

const app = new Hono();

app.get("/", (c) => c.json({ message: "hello" }));

app.get("/users/:id", (c) => c.json(select(c.req.param("id"), c.req.query("fields"))));

app.post("/echo", async (c) => c.json(await c.req.json()));

app.onError((error, c) =>
  error instanceof SyntaxError ? c.json({ error: "bad request" }, 400) : c.json({ error: error.message }, 500),
);

const serve = globalThis.Bun?.serve ?? (await import("@hono/node-server")).serve;
serve({ fetch: app.fetch, port: Number(process.env.PORT), hostname: "127.0.0.1" });

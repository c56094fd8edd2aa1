// On Node's own Request and Response with UNPATCHED=1; else as the adapter comes, with its own in their place.
import { serve } from "@hono/node-server";
import { Hono } from "hono";
import { heap } from "../heap.mjs";
import { table } from "../table.mjs";

const app = new Hono();

app.get("/", (c) => c.json({ message: "hello" }));

app.get("/users/:id", (c) => c.json({ id: c.req.param("id"), name: "ada" }));

app.post("/echo", async (c) => {
  const body = await c.req.arrayBuffer();
  return c.body(body, 200, { "content-type": c.req.header("content-type") ?? "application/octet-stream" });
});

for (const number of [1, 2, 3, 4, 5]) {
  app.use("/mw", async (c, next) => {
    await next();
    const started = number === 3 ? performance.now() : 0;
    c.header(`x-mw-${number}`, c.req.header("x-test") ?? "");
    if (number === 3) c.set("elapsedMs", performance.now() - started);
  });
}

app.get("/mw", (c) => c.json({ message: "hello" }));

app.get("/gc", async (c) => c.json(await heap()));

for (const path of table) app.get(path, (c) => c.json({ message: "hello" }));

app.notFound((c) => c.json({ error: "not found" }, 404));

serve({
  fetch: app.fetch,
  port: Number(process.env.PORT),
  hostname: "127.0.0.1",
  overrideGlobalObjects: process.env.UNPATCHED !== "1",
});

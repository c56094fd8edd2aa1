import express from "express";
import { heap } from "../heap.mjs";
import { table } from "../table.mjs";

const app = express();
// Work that the other servers do not do.
app.disable("etag").disable("x-powered-by");

app.get("/", (request, response) => {
  response.json({ message: "hello" });
});

app.get("/users/:id", (request, response) => {
  response.json({ id: request.params.id, name: "ada" });
});

app.post("/echo", express.raw({ type: () => true }), (request, response) => {
  response.type(request.headers["content-type"] ?? "application/octet-stream").send(request.body);
});

for (const number of [1, 2, 3, 4, 5]) {
  app.use("/mw", (request, response, next) => {
    const started = number === 3 ? performance.now() : 0;
    response.set(`x-mw-${number}`, request.get("x-test") ?? "");
    if (number === 3) response.locals.elapsedMs = performance.now() - started;
    next();
  });
}

app.get("/mw", (request, response) => {
  response.json({ message: "hello" });
});

app.get("/gc", async (request, response) => {
  response.json(await heap());
});

for (const path of table) {
  app.get(path, (request, response) => {
    response.json({ message: "hello" });
  });
}

app.use((request, response) => {
  response.status(404).json({ error: "not found" });
});

app.listen(Number(process.env.PORT), "127.0.0.1");

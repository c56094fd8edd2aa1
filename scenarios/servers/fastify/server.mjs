import Fastify from "fastify";
import { heap } from "../heap.mjs";
import { table } from "../table.mjs";

const app = Fastify();

app.get("/", async () => ({ message: "hello" }));

app.get("/users/:id", async (request) => ({ id: request.params.id, name: "ada" }));

// Bodies as they came, JSON included: /echo sends them back unchanged.
app.removeAllContentTypeParsers();
app.addContentTypeParser("*", { parseAs: "buffer" }, async (request, body) => body);
app.post("/echo", async (request, reply) => {
  reply.type(request.headers["content-type"] ?? "application/octet-stream");
  return request.body ?? "";
});

app.decorateRequest("elapsedMs", 0);
app.register(async (scope) => {
  for (const number of [1, 2, 3, 4, 5]) {
    scope.addHook("onRequest", async (request, reply) => {
      const started = number === 3 ? performance.now() : 0;
      reply.header(`x-mw-${number}`, request.headers["x-test"] ?? "");
      if (number === 3) request.elapsedMs = performance.now() - started;
    });
  }
  scope.get("/mw", async () => ({ message: "hello" }));
});

app.get("/gc", async () => heap());

for (const path of table) app.get(path, async () => ({ message: "hello" }));

app.setNotFoundHandler(async (request, reply) => {
  reply.code(404);
  return { error: "not found" };
});

await app.listen({ port: Number(process.env.PORT), host: "127.0.0.1" });

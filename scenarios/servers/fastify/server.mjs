import Fastify from "fastify";

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

await app.listen({ port: Number(process.env.PORT), host: "127.0.0.1" });

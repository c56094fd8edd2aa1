import cors from "@fastify/cors";
import helmet from "@fastify/helmet";
import rateLimit from "@fastify/rate-limit";
import Fastify from "fastify";
import * as jose from "jose";
import { z } from "zod";
import { limit, openItems, schemas, subjectOf } from "../blixis.mjs";
import { heap } from "../heap.mjs";

const { person, member, item } = schemas(z);
const subject = subjectOf(jose);
const items = await openItems(() => import("pg"));

const app = Fastify();

// Schemas of routes are Zod's.
app.setValidatorCompiler(({ schema }) => (value) => {
  const read = schema.safeParse(value);
  return read.success ? { value: read.data } : { error: read.error };
});
app.setSerializerCompiler(({ schema }) => (value) => JSON.stringify(schema.parse(value)));

app.get("/ping", async () => ({ message: "pong" }));

app.register(async (scope) => {
  await scope.register(cors);
  await scope.register(helmet);
  await scope.register(rateLimit, { max: limit.requests, timeWindow: limit.windowMs });
  scope.get("/middleware", async () => ({ message: "pong" }));
});

app.post("/validated", { schema: { body: person, response: { 200: member } } }, async (request) => {
  const { name, email, tags } = request.body;
  return { id: 42, name, email, tags };
});

app.decorateRequest("subject", "");
app.route({
  method: ["GET", "POST"],
  url: "/authenticated",
  // Before the body is parsed.
  onRequest: async (request, reply) => {
    request.subject = await subject(request.headers.authorization);
    if (request.subject) return;
    reply.code(401).header("www-authenticate", "Bearer");
    return reply.send({ error: "unauthorized" });
  },
  handler: async (request) => ({ ...request.body, subject: request.subject }),
});

app.get("/gc", async () => heap());

if (items) {
  app.get("/items/:id", async (request, reply) => {
    const found = await items.read(request.params.id);
    if (found) return found;
    reply.code(404);
    return { error: "not found" };
  });

  app.post("/items", { schema: { body: item } }, async (request, reply) => {
    reply.code(201);
    return items.write(request.body.name);
  });
}

app.setNotFoundHandler(async (request, reply) => {
  reply.code(404);
  return { error: "not found" };
});

await app.listen({ port: Number(process.env.PORT), host: "127.0.0.1" });

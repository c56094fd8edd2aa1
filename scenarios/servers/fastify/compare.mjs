// With SCHEMA=1 every route has a response schema, which Fastify compiles to a serializer.
import Fastify from "fastify";
import { select } from "../users.mjs";

const text = { type: "string" };
const object = (properties) => ({ type: "object", properties });

const user = object({ id: text, name: text, email: text, role: text });
const order = object({
  order: text,
  customer: object({ id: { type: "integer" }, name: text, email: text, company: { type: ["string", "null"] } }),
  express: { type: "boolean" },
  items: {
    type: "array",
    items: object({ sku: text, title: text, quantity: { type: "integer" }, price: { type: "number" } }),
  },
  notes: { type: "array", items: text },
  address: object({ street: text, city: text, zip: text, country: text }),
});

const answers = (schema) => (process.env.SCHEMA === "1" ? { schema: { response: { 200: schema } } } : {});

const app = Fastify();

app.get("/", answers(object({ message: text })), async () => ({ message: "hello" }));

app.get("/users/:id", answers(user), async (request) => select(request.params.id, request.query.fields));

app.post("/echo", answers(order), async (request) => request.body);

await app.listen({ port: Number(process.env.PORT), host: "127.0.0.1" });

import cors from "cors";
import express from "express";
import { rateLimit } from "express-rate-limit";
import helmet from "helmet";
import * as jose from "jose";
import { z } from "zod";
import { limit, openItems, schemas, subjectOf } from "../blixis.mjs";
import { heap } from "../heap.mjs";

const { person, member, item } = schemas(z);
const subject = subjectOf(jose);
const items = await openItems(() => import("pg"));

const app = express();
// Work that the other servers do not do.
app.disable("etag").disable("x-powered-by");

function valid(schema) {
  return (request, response, next) => {
    const read = schema.safeParse(request.body);
    if (!read.success) return response.status(400).json({ error: "not as the schema says" });
    request.body = read.data;
    next();
  };
}

async function authenticate(request, response, next) {
  response.locals.subject = await subject(request.get("authorization"));
  if (!response.locals.subject) {
    return response.status(401).set("www-authenticate", "Bearer").json({ error: "unauthorized" });
  }
  next();
}

app.get("/ping", (request, response) => {
  response.json({ message: "pong" });
});

const countRequests = rateLimit({ limit: limit.requests, windowMs: limit.windowMs });
app.get("/middleware", cors(), helmet(), countRequests, (request, response) => {
  response.json({ message: "pong" });
});

app.post("/validated", express.json(), valid(person), (request, response) => {
  const { name, email, tags } = request.body;
  response.json(member.parse({ id: 42, name, email, tags }));
});

app.all("/authenticated", authenticate, express.json(), (request, response) => {
  response.json({ ...request.body, subject: response.locals.subject });
});

app.get("/gc", async (request, response) => {
  response.json(await heap());
});

if (items) {
  app.get("/items/:id", async (request, response) => {
    const found = await items.read(request.params.id);
    if (found) response.json(found);
    else response.status(404).json({ error: "not found" });
  });

  app.post("/items", express.json(), valid(item), async (request, response) => {
    response.status(201).json(await items.write(request.body.name));
  });
}

app.use((request, response) => {
  response.status(404).json({ error: "not found" });
});

app.use((error, request, response, next) => {
  response.status(error.status ?? 500).json({ error: error.message });
});

app.listen(Number(process.env.PORT), "127.0.0.1");

// Plain node:http, routed by hand.
import cors from "cors";
import helmet from "helmet";
import * as jose from "jose";
import { createServer } from "node:http";
import { z } from "zod";
import { limit, openItems, schemas, subjectOf } from "../blixis.mjs";
import { heap } from "../heap.mjs";

const { person, member, item } = schemas(z);
const subject = subjectOf(jose);
const items = await openItems(() => import("pg"));

class BadRequest extends Error {}

function json(response, value, status = 200) {
  const body = JSON.stringify(value);
  response.writeHead(status, { "content-type": "application/json", "content-length": Buffer.byteLength(body) });
  response.end(body);
}

async function readJson(request) {
  const body = Buffer.concat(await request.toArray());
  try {
    return JSON.parse(body);
  } catch {
    throw new BadRequest("no JSON");
  }
}

async function readValid(request, schema) {
  const read = schema.safeParse(await readJson(request));
  if (!read.success) throw new BadRequest("not as the schema says");
  return read.data;
}

const windows = new Map();

function countRequest(request, response) {
  const now = Date.now();
  let window = windows.get(request.socket.remoteAddress);
  if (!window || window.endsMs <= now) {
    window = { requests: 0, endsMs: now + limit.windowMs };
    windows.set(request.socket.remoteAddress, window);
  }
  window.requests += 1;
  response.setHeader("x-ratelimit-limit", limit.requests);
  response.setHeader("x-ratelimit-remaining", Math.max(limit.requests - window.requests, 0));
  response.setHeader("x-ratelimit-reset", Math.ceil((window.endsMs - now) / 1000));
  return window.requests <= limit.requests;
}

const allowOrigins = cors();
const secure = helmet();

function guarded(request, response) {
  allowOrigins(request, response, () =>
    secure(request, response, () => {
      if (!countRequest(request, response)) return json(response, { error: "too many requests" }, 429);
      json(response, { message: "pong" });
    }),
  );
}

async function validated(request, response) {
  const { name, email, tags } = await readValid(request, person);
  json(response, member.parse({ id: 42, name, email, tags }));
}

async function authenticated(request, response) {
  const sub = await subject(request.headers.authorization);
  if (!sub) {
    response.setHeader("www-authenticate", "Bearer");
    return json(response, { error: "unauthorized" }, 401);
  }
  const body = request.method === "POST" ? await readJson(request) : {};
  json(response, { ...body, subject: sub });
}

async function readItem(request, response, id) {
  const found = await items.read(id);
  if (found) json(response, found);
  else json(response, { error: "not found" }, 404);
}

async function writeItem(request, response) {
  const { name } = await readValid(request, item);
  json(response, await items.write(name), 201);
}

async function route(request, response) {
  const { method, url } = request;
  if (method === "GET" && url === "/ping") return json(response, { message: "pong" });
  if (method === "GET" && url === "/middleware") return guarded(request, response);
  if (method === "POST" && url === "/validated") return validated(request, response);
  if (url === "/authenticated") return authenticated(request, response);
  if (method === "GET" && url === "/gc") return json(response, await heap());
  if (items && method === "GET" && url.startsWith("/items/")) return readItem(request, response, url.slice(7));
  if (items && method === "POST" && url === "/items") return writeItem(request, response);
  json(response, { error: "not found" }, 404);
}

createServer((request, response) => {
  route(request, response).catch((error) =>
    json(response, { error: error.message }, error instanceof BadRequest ? 400 : 500),
  );
}).listen(Number(process.env.PORT), "127.0.0.1");

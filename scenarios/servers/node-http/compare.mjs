// Plain node:http, routed by hand.
import { createServer } from "node:http";
import { select } from "../users.mjs";

const users = /^\/users\/([^/]+)$/;

function json(response, value, status = 200) {
  const body = JSON.stringify(value);
  response.writeHead(status, { "content-type": "application/json", "content-length": Buffer.byteLength(body) });
  response.end(body);
}

async function echo(request, response) {
  const chunks = await request.toArray();
  let value;
  try {
    value = JSON.parse(Buffer.concat(chunks));
  } catch {
    return json(response, { error: "bad request" }, 400);
  }
  json(response, value);
}

createServer((request, response) => {
  const [path, query] = request.url.split("?", 2);
  if (request.method === "POST" && path === "/echo") return echo(request, response);
  if (path === "/") return json(response, { message: "hello" });
  const id = users.exec(path)?.[1];
  if (id) return json(response, select(id, new URLSearchParams(query).get("fields")));
  json(response, { error: "not found" }, 404);
}).listen(Number(process.env.PORT), "127.0.0.1");

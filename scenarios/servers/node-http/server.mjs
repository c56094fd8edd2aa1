// Plain node:http, routed by hand.
import { createServer } from "node:http";
import { heap } from "../heap.mjs";
import { table } from "../table.mjs";

const user = /^\/users\/([^/]+)$/;

function json(response, value, status = 200) {
  const body = JSON.stringify(value);
  response.writeHead(status, { "content-type": "application/json", "content-length": Buffer.byteLength(body) });
  response.end(body);
}

async function echo(request, response) {
  const chunks = await request.toArray();
  const body = Buffer.concat(chunks);
  response.writeHead(200, {
    "content-type": request.headers["content-type"] ?? "application/octet-stream",
    "content-length": body.length,
  });
  response.end(body);
}

function link(number) {
  return (request, response) => {
    const started = number === 3 ? performance.now() : 0;
    response.setHeader(`x-mw-${number}`, request.headers["x-test"] ?? "");
    if (number === 3) request.elapsedMs = performance.now() - started;
  };
}

const chain = [1, 2, 3, 4, 5].map(link);

// The table's routes by their fixed segment: a router by hand looks it up.
const fixed = new Set(table.map((path) => path.split("/").pop()));

function inTable(path) {
  const segments = path.slice(1).split("/");
  return segments.length === 3 ? fixed.has(":c") : fixed.has(segments.at(-1));
}

createServer((request, response) => {
  const path = request.url;
  if (request.method === "POST" && path === "/echo") return echo(request, response);
  if (path === "/") return json(response, { message: "hello" });
  const id = user.exec(path)?.[1];
  if (id) return json(response, { id, name: "ada" });
  if (path === "/mw") {
    for (const link of chain) link(request, response);
    return json(response, { message: "hello" });
  }
  if (path === "/gc") return heap().then((report) => json(response, report));
  if (table.length > 0 && inTable(path)) return json(response, { message: "hello" });
  json(response, { error: "not found" }, 404);
}).listen(Number(process.env.PORT), "127.0.0.1");

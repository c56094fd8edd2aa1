// Plain node:http, routed by hand.
import { createServer } from "node:http";

const user = /^\/users\/([^/]+)$/;

function json(response, value) {
  const body = JSON.stringify(value);
  response.writeHead(200, { "content-type": "application/json", "content-length": Buffer.byteLength(body) });
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

createServer((request, response) => {
  if (request.method === "POST" && request.url === "/echo") return echo(request, response);
  if (request.url === "/") return json(response, { message: "hello" });
  const id = user.exec(request.url)?.[1];
  if (id) return json(response, { id, name: "ada" });
  response.writeHead(404).end();
}).listen(Number(process.env.PORT), "127.0.0.1");

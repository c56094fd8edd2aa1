import { node } from "@elysiajs/node";
import { Elysia } from "elysia";
import { heap } from "../heap.mjs";
import { table } from "../table.mjs";

function link(number) {
  return (context) => {
    const started = number === 3 ? performance.now() : 0;
    context.set.headers[`x-mw-${number}`] = context.headers["x-test"] ?? "";
    if (number === 3) context.elapsedMs = performance.now() - started;
  };
}

const app = new Elysia({ adapter: node() });

app.get("/", () => ({ message: "hello" }));

app.get("/users/:id", ({ params }) => ({ id: params.id, name: "ada" }));

app.post("/echo", ({ body, headers, set }) => {
  set.headers["content-type"] = headers["content-type"] ?? "application/octet-stream";
  return body;
}, { parse: "arrayBuffer" });

// Hooks before routing hold for a whole instance; after it they can be limited to a route.
app.guard({ beforeHandle: [1, 2, 3, 4, 5].map(link) }, (scope) => scope.get("/mw", () => ({ message: "hello" })));

app.get("/gc", () => heap());

for (const path of table) app.get(path, () => ({ message: "hello" }));

app.onError(({ code, status }) => {
  if (code === "NOT_FOUND") return status(404, { error: "not found" });
});

app.listen({ port: Number(process.env.PORT), hostname: "127.0.0.1" });

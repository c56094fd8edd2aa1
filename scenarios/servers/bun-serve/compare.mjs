// Bun's own server and router.
import { select } from "../users.mjs";

Bun.serve({
  port: Number(process.env.PORT),
  hostname: "127.0.0.1",
  routes: {
    "/": () => Response.json({ message: "hello" }),
    "/users/:id": (request) =>
      Response.json(select(request.params.id, new URL(request.url).searchParams.get("fields"))),
    "/echo": { POST: async (request) => Response.json(await request.json()) },
  },
  error: (error) =>
    error instanceof SyntaxError
      ? Response.json({ error: "bad request" }, { status: 400 })
      : Response.json({ error: error.message }, { status: 500 }),
});

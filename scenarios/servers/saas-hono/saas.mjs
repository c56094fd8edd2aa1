import { serve } from "@hono/node-server";
import { Hono } from "hono";
import { getCookie, setCookie } from "hono/cookie";
import { routes, sessionCookie, userOfKey, userOfSession } from "../saas.mjs";

const app = new Hono();

function admit(userOf) {
  return async (c, next) => {
    const user = userOf(c);
    if (!user) return c.json({ error: "unauthorized" }, 401);
    c.set("user", user);
    await next();
  };
}

const tiers = {
  open: [],
  key: [admit((c) => userOfKey(c.req.header("authorization")))],
  session: [admit((c) => userOfSession(getCookie(c, "session")))],
};

// Read where a route asks for it.
class Input {
  constructor(c, body) {
    this.c = c;
    this.body = body;
  }

  get params() {
    return this.c.req.param();
  }

  get query() {
    return this.c.req.query();
  }

  get user() {
    return this.c.get("user");
  }
}

for (const { method, path, tier, reads, status, cacheControl, session, answer } of routes) {
  const respond = (c, body) => {
    const value = answer(new Input(c, body));
    if (value === undefined) return c.json({ error: "unauthorized" }, 401);
    if (cacheControl) c.header("cache-control", cacheControl);
    if (session) setCookie(c, "session", session, sessionCookie);
    return c.json(value, status);
  };
  const handler = reads ? async (c) => respond(c, await c.req.json()) : respond;
  app.on(method, path.replace("*rest", ":rest{.+}"), ...tiers[tier], (c) => handler(c));
}

app.notFound((c) => c.json({ error: "not found" }, 404));

app.onError((error, c) =>
  error instanceof SyntaxError ? c.json({ error: "bad request" }, 400) : c.json({ error: error.message }, 500),
);

serve({ fetch: app.fetch, port: Number(process.env.PORT), hostname: "127.0.0.1" });

import cookie from "@fastify/cookie";
import Fastify from "fastify";
import { routes, sessionCookie, userOfKey, userOfSession } from "../saas.mjs";

const app = Fastify();
app.decorateRequest("user", null);

function admit(userOf) {
  return (request, reply, done) => {
    request.user = userOf(request);
    if (request.user) return done();
    reply.code(401).send({ error: "unauthorized" });
  };
}

const tiers = {
  open: [],
  key: [admit((request) => userOfKey(request.headers.authorization))],
  session: [admit((request) => userOfSession(request.cookies.session))],
};

const add = (scope, { method, path, tier, status, cacheControl, session, answer }) => {
  const handler = (request, reply) => {
    const value = answer(request);
    if (value === undefined) return reply.code(401).send({ error: "unauthorized" });
    if (cacheControl) reply.header("cache-control", cacheControl);
    if (session) reply.setCookie("session", session, sessionCookie);
    reply.code(status).send(value);
  };
  scope.route({ method, url: path.replace("*rest", "*"), onRequest: tiers[tier], handler });
};

// Cookies are read where they are wanted, and nowhere else.
app.register(async (scope) => {
  await scope.register(cookie);
  for (const route of routes) if (route.tier === "session" || route.session) add(scope, route);
});
for (const route of routes) if (route.tier !== "session" && !route.session) add(app, route);

app.setNotFoundHandler((request, reply) => {
  reply.code(404).send({ error: "not found" });
});

await app.listen({ port: Number(process.env.PORT), host: "127.0.0.1" });

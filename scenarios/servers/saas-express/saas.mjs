import cookieParser from "cookie-parser";
import express from "express";
import { routes, sessionCookie, userOfKey, userOfSession } from "../saas.mjs";

const app = express();
// Work that the other servers do not do.
app.disable("etag").disable("x-powered-by");

function admit(userOf) {
  return (request, response, next) => {
    request.user = userOf(request);
    if (request.user) return next();
    response.status(401).json({ error: "unauthorized" });
  };
}

const tiers = {
  open: [],
  key: [admit((request) => userOfKey(request.get("authorization")))],
  session: [cookieParser(), admit((request) => userOfSession(request.cookies.session))],
};

for (const { method, path, tier, reads, status, cacheControl, session, answer } of routes) {
  app[method.toLowerCase()](path, tiers[tier], reads ? express.json() : [], (request, response) => {
    const value = answer(request);
    if (value === undefined) return response.status(401).json({ error: "unauthorized" });
    if (cacheControl) response.set("cache-control", cacheControl);
    if (session) response.cookie("session", session, sessionCookie);
    response.status(status).json(value);
  });
}

app.use((request, response) => {
  response.status(404).json({ error: "not found" });
});

app.use((error, request, response, next) => {
  response.status(error.status ?? 500).json({ error: error.message });
});

app.listen(Number(process.env.PORT), "127.0.0.1");

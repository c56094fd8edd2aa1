import { H3, getCookie, getQuery, getRouterParams, readBody, serve, setCookie } from "h3";
import { routes, sessionCookie, userOfKey, userOfSession } from "../saas.mjs";

const app = new H3();

const tiers = {
  open: () => null,
  key: (event) => userOfKey(event.req.headers.get("authorization") ?? undefined),
  session: (event) => userOfSession(getCookie(event, "session")),
};

function refuse(event) {
  event.res.status = 401;
  return { error: "unauthorized" };
}

// Read where a route asks for it.
class Input {
  constructor(event, user, body) {
    this.event = event;
    this.user = user;
    this.body = body;
  }

  get params() {
    return getRouterParams(this.event);
  }

  get query() {
    return getQuery(this.event);
  }
}

for (const { method, path, tier, reads, status, cacheControl, session, answer } of routes) {
  const respond = (event, user, body) => {
    const value = answer(new Input(event, user, body));
    if (value === undefined) return refuse(event);
    event.res.status = status;
    if (cacheControl) event.res.headers.set("cache-control", cacheControl);
    if (session) setCookie(event, "session", session, sessionCookie);
    return value;
  };
  app.on(method, path.replace("*rest", "**:rest"), (event) => {
    const user = tiers[tier](event);
    if (user === undefined) return refuse(event);
    return reads ? readBody(event).then((body) => respond(event, user, body)) : respond(event, user);
  });
}

app.all("/**", (event) => {
  event.res.status = 404;
  return { error: "not found" };
});

serve(app, { port: Number(process.env.PORT), hostname: "127.0.0.1", silent: true });

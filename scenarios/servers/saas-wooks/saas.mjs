import { createHttpApp, useCookies, useHeaders, useResponse, useRouteParams, useUrlParams } from "@wooksjs/event-http";
import { useBody } from "@wooksjs/http-body";
import { routes, sessionCookie, userOfKey, userOfSession } from "../saas.mjs";

const app = createHttpApp({
  onNotFound: () => {
    useResponse().setStatus(404);
    return { error: "not found" };
  },
});

const tiers = {
  open: () => null,
  key: () => userOfKey(useHeaders().authorization),
  session: () => userOfSession(useCookies().getCookie("session") ?? undefined),
};

function refuse() {
  useResponse().setStatus(401);
  return { error: "unauthorized" };
}

// Read where a route asks for it.
class Input {
  constructor(user, body) {
    this.user = user;
    this.body = body;
  }

  get params() {
    return useRouteParams().params;
  }

  get query() {
    return useUrlParams().toJson();
  }
}

for (const { method, path, tier, reads, status, cacheControl, session, answer } of routes) {
  const respond = (response, user, body) => {
    const value = answer(new Input(user, body));
    if (value === undefined) return refuse();
    response.setStatus(status);
    if (cacheControl) response.setHeader("cache-control", cacheControl);
    if (session) response.setCookie("session", session, sessionCookie);
    return value;
  };
  app.on(method, path.replace("*rest", "*"), () => {
    const user = tiers[tier]();
    if (user === undefined) return refuse();
    const response = useResponse();
    if (!reads) return respond(response, user);
    return useBody()
      .parseBody()
      .then((body) => respond(response, user, body));
  });
}

app.listen(Number(process.env.PORT), "127.0.0.1");

// The routes of saas's servers, what they answer, and who may ask. `*rest` stands for the rest of a path.
const ada = { id: 42, name: "Ada Lovelace", email: "ada@example.org" };
const keys = new Map([["key-of-ada", ada]]);
const sessions = new Map([["session-of-ada", ada]]);

// Whom an API key in `authorization` belongs to; undefined for none.
export function userOfKey(authorization = "") {
  return authorization.startsWith("Bearer ") ? keys.get(authorization.slice(7)) : undefined;
}

// Whom the cookie `session` belongs to; undefined for none.
export function userOfSession(session) {
  return sessions.get(session);
}

export const sessionCookie = { path: "/", httpOnly: true, sameSite: "Lax" };

const project = (id) => ({ id, name: `Project ${id}`, archived: false });
const task = (id, more) => ({ id, title: `Task ${id}`, done: false, ...more });
const tasks = (of) => ({ project: of, tasks: ["1", "2", "3"].map((id) => task(id)) });
const rest = (params) => [params.rest ?? params["*"]].flat().join("/");

const get = (path, answer, more) => ({ method: "GET", path, answer, ...more });
// A route that reads a JSON body.
const reads = (method, path, answer, more) => ({ method, path, answer, reads: true, ...more });

const open = [
  get("/", () => ({ service: "saas" })),
  get("/status", () => ({ status: "up" })),
  get("/api/v1/meta/health/live", () => ({ live: true })),
  get("/assets/*rest", ({ params }) => ({ asset: rest(params) }), { cacheControl: "public, max-age=3600" }),
  get("/docs/:version/pages/*rest", ({ params }) => ({ version: params.version, page: rest(params) })),
  // Answers with nothing where the password is wrong; else it sets the cookie `session`.
  reads("POST", "/login", ({ body }) => (body.password === "analytical" ? { user: ada } : undefined), {
    session: "session-of-ada",
  }),
];

const ofClients = [
  get("/api/v1/projects", () => ({ projects: ["1", "2", "3"].map(project) })),
  get("/api/v1/projects/:project", ({ params }) => project(params.project)),
  get("/api/v1/projects/:project/tasks", ({ params }) => tasks(params.project)),
  get("/api/v1/projects/:project/tasks/:task", ({ params }) => task(params.task, { project: params.project })),
  reads("POST", "/api/v1/projects/:project/tasks", ({ params, body }) => task("4", { project: params.project, ...body }), {
    status: 201,
  }),
  reads("PUT", "/api/v1/projects/:project/tasks/:task", ({ params, body }) => task(params.task, body)),
  get("/api/v1/users/:user/projects", ({ params }) => ({ user: params.user, projects: ["1", "2"].map(project) })),
];

const ofBrowsers = [
  get("/app/me", ({ user }) => user),
  get("/app/projects", () => ({ projects: ["1", "2", "3"].map(project) })),
  get("/app/projects/:project", ({ params, user }) => ({ ...project(params.project), owner: user.name })),
  get("/app/projects/:project/tasks/:task", ({ params }) => task(params.task, { project: params.project })),
  get("/app/search", ({ query }) => ({ query: query.q ?? "", found: [task("1")] })),
  reads("POST", "/app/projects/:project/tasks", ({ params, body }) => task("4", { project: params.project, ...body }), {
    status: 201,
  }),
  reads("PUT", "/app/projects/:project/tasks/:task", ({ params, body }) => task(params.task, body)),
  reads("POST", "/app/projects/:project/import", ({ params, body }) => ({
    project: params.project,
    imported: body.tasks.length,
  })),
  reads("PUT", "/app/settings", ({ body }) => ({ settings: body })),
];

const of = (tier) => (route) => ({ status: 200, tier, ...route });

// Tiers: `open` to all, `key` wants an API key, `session` wants the cookie.
export const routes = [...open.map(of("open")), ...ofClients.map(of("key")), ...ofBrowsers.map(of("session"))];

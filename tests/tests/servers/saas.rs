//! saas: 22 routes in three tiers of authentication.

use tracer::scenario::{Request, Server};
use tracer_tests::running::{Running, request};

use crate::{assert_alike, bearing, on_node, post_json, wants};

fn servers() -> Vec<Server> {
    let server = |name: &&str| on_node(name, &format!("saas-{name}/saas.mjs"), &[]);
    ["wooks", "fastify", "h3", "hono", "express"].iter().map(server).collect()
}

/// A request to a server of saas: with an API key or without, with a jar of twenty cookies or without.
fn asked(method: &str, path: &str, admitted: bool, body: &[u8]) -> Request {
    let mut made = request(method, path);
    if path.starts_with("/api/v1/projects") || path.starts_with("/api/v1/users") {
        let key = if admitted { "key-of-ada" } else { "key-of-eve" };
        made = bearing(key, made);
    } else if path.starts_with("/app/") {
        let session = if admitted { "session-of-ada" } else { "session-of-eve" };
        let jar = (0..20).map(|n| match n {
            11 => format!("session={session}"),
            _ => format!("cookie{n}=value-{n}-of-a-jar"),
        });
        made.headers.push(("cookie".into(), jar.collect::<Vec<_>>().join("; ")));
    }
    if !body.is_empty() {
        made.headers.push(("content-type".into(), "application/json".into()));
        made.body = body.to_vec();
    }
    made.same_headers = vec!["set-cookie".into()];
    made
}

/// The projects there are.
const PROJECTS: &str = concat!(
    r#"{"projects":[{"id":"1","name":"Project 1","archived":false},"#,
    r#"{"id":"2","name":"Project 2","archived":false},"#,
    r#"{"id":"3","name":"Project 3","archived":false}]}"#,
);

/// The routes of saas: method, path, body, and the status and the answer of those who may ask.
const ROUTES: [(&str, &str, &str, u16, &str); 21] = [
    ("GET", "/", "", 200, r#"{"service":"saas"}"#),
    ("GET", "/status", "", 200, r#"{"status":"up"}"#),
    ("GET", "/api/v1/meta/health/live", "", 200, r#"{"live":true}"#),
    ("GET", "/assets/css/a/b.css", "", 200, r#"{"asset":"css/a/b.css"}"#),
    ("GET", "/docs/v2/pages/intro/start", "", 200, r#"{"version":"v2","page":"intro/start"}"#),
    (
        "POST",
        "/login",
        r#"{"password":"analytical"}"#,
        200,
        r#"{"user":{"id":42,"name":"Ada Lovelace","email":"ada@example.org"}}"#,
    ),
    ("GET", "/api/v1/projects", "", 200, PROJECTS),
    ("GET", "/api/v1/projects/7", "", 200, r#"{"id":"7","name":"Project 7","archived":false}"#),
    (
        "GET",
        "/api/v1/projects/7/tasks",
        "",
        200,
        concat!(
            r#"{"project":"7","tasks":[{"id":"1","title":"Task 1","done":false},"#,
            r#"{"id":"2","title":"Task 2","done":false},"#,
            r#"{"id":"3","title":"Task 3","done":false}]}"#,
        ),
    ),
    (
        "GET",
        "/api/v1/projects/7/tasks/9",
        "",
        200,
        r#"{"id":"9","title":"Task 9","done":false,"project":"7"}"#,
    ),
    (
        "POST",
        "/api/v1/projects/7/tasks",
        r#"{"title":"new"}"#,
        201,
        r#"{"id":"4","title":"new","done":false,"project":"7"}"#,
    ),
    (
        "PUT",
        "/api/v1/projects/7/tasks/9",
        r#"{"done":true}"#,
        200,
        r#"{"id":"9","title":"Task 9","done":true}"#,
    ),
    (
        "GET",
        "/api/v1/users/5/projects",
        "",
        200,
        concat!(
            r#"{"user":"5","projects":[{"id":"1","name":"Project 1","archived":false},"#,
            r#"{"id":"2","name":"Project 2","archived":false}]}"#,
        ),
    ),
    ("GET", "/app/me", "", 200, r#"{"id":42,"name":"Ada Lovelace","email":"ada@example.org"}"#),
    ("GET", "/app/projects", "", 200, PROJECTS),
    (
        "GET",
        "/app/projects/7",
        "",
        200,
        r#"{"id":"7","name":"Project 7","archived":false,"owner":"Ada Lovelace"}"#,
    ),
    ("GET", "/app/projects/7/tasks/9", "", 200, r#"{"id":"9","title":"Task 9","done":false,"project":"7"}"#),
    (
        "GET",
        "/app/search?q=a%20b",
        "",
        200,
        r#"{"query":"a b","found":[{"id":"1","title":"Task 1","done":false}]}"#,
    ),
    (
        "POST",
        "/app/projects/7/tasks",
        r#"{"title":"new"}"#,
        201,
        r#"{"id":"4","title":"new","done":false,"project":"7"}"#,
    ),
    ("PUT", "/app/projects/7/tasks/9", r#"{"done":true}"#, 200, r#"{"id":"9","title":"Task 9","done":true}"#),
    ("PUT", "/app/settings", r#"{"theme":"dark"}"#, 200, r#"{"settings":{"theme":"dark"}}"#),
];

/// The 22nd reads a large body: tasks, 25 KB of them.
fn import() -> Vec<u8> {
    let task = r#"{"title":"A task of the old tracker","notes":"As it was written there, with what belongs to it."}"#;
    format!(r#"{{"tasks":[{}]}}"#, vec![task; 256].join(",")).into_bytes()
}

#[test]
fn servers_answer_every_route_alike() {
    let answer = |(method, path, body, status, answer): &(&str, &str, &str, u16, &str)| {
        wants(*status, answer.as_bytes(), asked(method, path, true, body.as_bytes()))
    };
    let mut requests: Vec<_> = ROUTES.iter().map(answer).collect();
    let large = import();
    assert!((25_000..26_000).contains(&large.len()), "{}", large.len());
    let imported = br#"{"project":"7","imported":256}"#;
    requests.push(wants(200, imported, asked("POST", "/app/projects/7/import", true, &large)));
    for path in ["/nothing", "/api/v1/nothing", "/app/nothing", "/wp-login.php"] {
        requests.push(wants(404, br#"{"error":"not found"}"#, request("GET", path)));
    }
    assert_alike(&servers(), &requests);
}

#[test]
fn servers_refuse_alike_before_they_parse() {
    let refused = br#"{"error":"unauthorized"}"#;
    let guarded = |path: &str| path.starts_with("/app/") || path.starts_with("/api/v1/projects");
    let mut requests: Vec<_> = ROUTES
        .iter()
        .filter(|route| guarded(route.1))
        .map(|(method, path, body, ..)| {
            // No JSON: it would be a 400, were it parsed.
            let broken = body.replace('}', "");
            wants(401, refused, asked(method, path, false, broken.as_bytes()))
        })
        .collect();
    requests.push(wants(401, refused, asked("POST", "/app/projects/7/import", false, &import())));
    requests.push(wants(401, refused, request("GET", "/app/me")));
    requests.push(wants(401, refused, request("GET", "/api/v1/projects")));
    requests.push(wants(401, refused, post_json("/login", br#"{"password":"difference"}"#)));
    assert_alike(&servers(), &requests);
    for server in &servers() {
        let running = Running::start(server, &[]);
        println!("{}", server.name);
        let login = running.ask(&post_json("/login", br#"{"password":"analytical"}"#));
        let cookie = login.header("set-cookie").unwrap_or_default().to_ascii_lowercase();
        assert_eq!(cookie, "session=session-of-ada; path=/; httponly; samesite=lax");
        assert_eq!(
            running.get("/assets/a.css").header("cache-control").as_deref(),
            Some("public, max-age=3600")
        );
        let broken = asked("POST", "/app/projects/7/tasks", true, br#"{"title":"#);
        assert_eq!(running.ask(&broken).status, 400);
    }
}

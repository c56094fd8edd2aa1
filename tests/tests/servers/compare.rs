//! compare: JSON, a filtered user and a parsed body.

use std::fs;

use tracer::scenario::Server;
use tracer_tests::running::{Running, assert_json, request};

use crate::{BUN, NODE_24, NODE_26, assert_alike, on, post_json, scenarios, wants};

const RUNTIMES: [&str; 3] = [NODE_24, NODE_26, BUN];

fn servers(runtime: &str) -> Vec<Server> {
    let mut servers: Vec<_> = ["node-http", "hono", "express", "fastify", "nest-express", "nest-fastify"]
        .iter()
        .map(|folder| on(runtime, folder, &format!("{folder}/compare.mjs"), &[]))
        .collect();
    servers.push(on(runtime, "fastify-schema", "fastify/compare.mjs", &[("SCHEMA", "1")]));
    if runtime == BUN {
        servers.push(on(runtime, "bun-serve", "bun-serve/compare.mjs", &[]));
    }
    servers
}

#[test]
fn servers_answer_every_workload_alike() {
    let order = fs::read(scenarios().join("servers/order.json")).expect("the body of the workload is there");
    assert_eq!(order.len(), 907);
    let requests = [
        wants(200, br#"{"message":"hello"}"#, request("GET", "/")),
        wants(200, br#"{"id":"42","name":"ada"}"#, request("GET", "/users/42?fields=name")),
        wants(200, &order, post_json("/echo", &order)),
    ];
    for runtime in RUNTIMES {
        println!("{runtime}");
        assert_alike(&servers(runtime), &requests);
    }
}

#[test]
fn routes_read_what_they_are_sent() {
    for runtime in RUNTIMES {
        for server in &servers(runtime) {
            let running = Running::start(server, &[]);
            println!("{} on {runtime}", server.name);
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
            assert_json(
                &running.ask(&post_json("/echo", br#" { "order" : "1" } "#)),
                200,
                r#"{"order":"1"}"#,
            );
            assert_eq!(running.ask(&post_json("/echo", br#"{"order":"#)).status, 400);
            assert_eq!(running.get("/nothing").status, 404);
        }
    }
}

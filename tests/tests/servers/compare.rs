//! compare: JSON, a filtered user and a parsed body.

use std::fs;

use tracer::scenario::Server;
use tracer_tests::running::{Running, assert_json, request};

use crate::{assert_alike, on_node, post_json, scenarios, wants};

fn servers() -> Vec<Server> {
    let mut servers: Vec<_> = ["node-http", "hono", "express", "fastify", "nest-express", "nest-fastify"]
        .iter()
        .map(|folder| on_node(folder, &format!("{folder}/compare.mjs"), &[]))
        .collect();
    servers.push(on_node("fastify-schema", "fastify/compare.mjs", &[("SCHEMA", "1")]));
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
    assert_alike(&servers(), &requests);
}

#[test]
fn routes_read_what_they_are_sent() {
    for server in &servers() {
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

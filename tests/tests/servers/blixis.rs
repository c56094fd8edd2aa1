//! blixis: middleware, validation, tokens and rows of a database.

use std::process::Command;

use tracer::{
    equal_work::Answer,
    scenario::{Request, Server},
};
use tracer_tests::{
    postgres::Postgres,
    running::{Running, assert_json, request},
};

use crate::{assert_alike, bearing, on_node, post_json, wants};

/// Signed with the secret in `blixis.mjs`, for the subject `ada`, until the year 2100.
const TOKEN: &str = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhZGEiLCJpc3MiOiJ0cmFjZXIiLCJhdWQiOiJ0cmFjZXIiLCJleHAiOjQxMDI0\
                     NDQ4MDB9.ry1N30UQdo5TMoTQOypHMNu0N3eEOlrIiKv040W2xqA";
/// The same, each with one fault.
const BAD_TOKENS: [(&str, &str); 4] = [
    (
        "expired in 2023",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhZGEiLCJpc3MiOiJ0cmFjZXIiLCJhdWQiOiJ0cmFjZXIiLCJleHAiOjE3MDAwMDAwMDB9.FK9oF5\
         HTbqzcr_SWJ_9cFDjPjlZWODoe2tD4OU3Yawo",
    ),
    (
        "for another audience",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhZGEiLCJpc3MiOiJ0cmFjZXIiLCJhdWQiOiJvdGhlciIsImV4cCI6NDEwMjQ0NDgwMH0.72zARGt\
         Bg3tHekdzU88AGP-mDEjf1KPefPhqojfiHIo",
    ),
    (
        "signed with another secret",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhZGEiLCJpc3MiOiJ0cmFjZXIiLCJhdWQiOiJ0cmFjZXIiLCJleHAiOjQxMDI0NDQ4MDB9.U10Wg\
         cAdyMVhwcuC-jf0mILMH_jMjBVfHCg1pG2AtZw",
    ),
    ("no token", "ada"),
];
/// What the middleware of `/middleware` sets. Of the rate limit, what is the same at every first request.
const MIDDLEWARE_HEADERS: [&str; 15] = [
    "access-control-allow-origin",
    "content-security-policy",
    "cross-origin-opener-policy",
    "cross-origin-resource-policy",
    "origin-agent-cluster",
    "referrer-policy",
    "strict-transport-security",
    "x-content-type-options",
    "x-dns-prefetch-control",
    "x-download-options",
    "x-frame-options",
    "x-permitted-cross-domain-policies",
    "x-xss-protection",
    "x-ratelimit-limit",
    "x-ratelimit-remaining",
];

const PERSON: &[u8] = br#"{"name":"Ada","email":"ada@example.org","age":36,"tags":["maths"],"unknown":1}"#;

fn servers() -> Vec<Server> {
    // No database, whatever the environment of the tests has.
    let server = |name: &&str| {
        let mut server = on_node(name, &format!("blixis-{name}/blixis.mjs"), &[("DATABASE_URL", "")]);
        server.ready = "/ping".into();
        server
    };
    ["node-http", "express", "fastify", "nest-fastify"].iter().map(server).collect()
}

#[test]
fn servers_answer_every_workload_alike() {
    let mut middleware = wants(200, br#"{"message":"pong"}"#, request("GET", "/middleware"));
    middleware.same_headers = MIDDLEWARE_HEADERS.map(str::to_owned).to_vec();
    let member = br#"{"id":42,"name":"Ada","email":"ada@example.org","tags":["maths"]}"#;
    let refused = br#"{"error":"unauthorized"}"#;
    let post = post_json("/authenticated", br#"{"message":"hi","subject":"eve"}"#);
    let requests = [
        wants(200, br#"{"message":"pong"}"#, request("GET", "/ping")),
        middleware,
        wants(200, member, post_json("/validated", PERSON)),
        wants(200, br#"{"subject":"ada"}"#, bearing(TOKEN, request("GET", "/authenticated"))),
        wants(200, br#"{"message":"hi","subject":"ada"}"#, bearing(TOKEN, post.clone())),
        wants(401, refused, post),
        wants(401, refused, request("GET", "/authenticated")),
    ];
    assert_alike(&servers(), &requests);
}

#[test]
fn routes_refuse_what_they_should() {
    for server in &servers() {
        let running = Running::start(server, &[]);
        println!("{}", server.name);
        let status = |request: &Request| running.ask(request).status;
        for wrong in [
            &br#"{"name":"Ada","email":"nobody","age":36,"tags":[]}"#[..],
            br#"{"name":"Ada","email":"ada@example.org","age":36}"#,
            br#"{"name":"#,
        ] {
            assert_eq!(status(&post_json("/validated", wrong)), 400, "{}", String::from_utf8_lossy(wrong));
        }
        // Who may not come in is told so before the body is parsed: it is no JSON.
        let broken = post_json("/authenticated", br#"{"message":"#);
        assert_eq!(status(&broken), 401);
        assert_eq!(status(&bearing(TOKEN, broken)), 400);
        for (fault, token) in BAD_TOKENS {
            let answer = running.ask(&bearing(token, request("GET", "/authenticated")));
            assert_json(&answer, 401, r#"{"error":"unauthorized"}"#);
            assert_eq!(answer.header("www-authenticate").as_deref(), Some("Bearer"), "{fault}");
        }
        // There is no database.
        assert_eq!(status(&request("GET", "/items/42")), 404);
        assert_eq!(status(&post_json("/items", br#"{"name":"pen"}"#)), 404);
        assert_eq!(status(&request("GET", "/nothing")), 404);
    }
}

#[test]
fn middleware_is_on_its_route_alone_and_limits() {
    for server in &servers() {
        let running = Running::start(server, &[("RATE_LIMIT", "2")]);
        println!("{}", server.name);
        let remaining = |answer: &Answer| answer.header("x-ratelimit-remaining");
        let asked = ["/middleware", "/middleware", "/ping", "/middleware"].map(|path| running.get(path));
        assert_eq!(asked.each_ref().map(|answer| answer.status), [200, 200, 200, 429]);
        assert_eq!((remaining(&asked[0]), remaining(&asked[1])), (Some("1".into()), Some("0".into())));
        for header in MIDDLEWARE_HEADERS {
            assert!(asked[0].header(header).is_some(), "{header}");
            assert_eq!(asked[2].header(header), None, "{header} on /ping");
        }
        assert!(running.get("/gc").body.starts_with(b"{\"heap_bytes\":"));
    }
}

#[test]
fn items_are_rows_of_the_database() {
    let database = Postgres::start().unwrap_or_else(|error| panic!("{error:#}"));
    let rows = || {
        let mut count = Command::new("psql");
        count.args(["-qAt", &database.url(), "-c", "SELECT count(*) FROM tracer_bench.writes"]);
        let said = count.output().expect("psql comes with PostgreSQL");
        String::from_utf8_lossy(&said.stdout).trim().to_owned()
    };
    for server in &servers() {
        println!("{}", server.name);
        // Twice: what is there is taken as it is, but for what was written before.
        for _ in 0..2 {
            let running = Running::start(server, &[("DATABASE_URL", &database.url())]);
            for id in [1, 42, 10_000] {
                let item = format!(r#"{{"id":{id},"name":"item {id}","quantity":{}}}"#, id % 100);
                assert_json(&running.get(&format!("/items/{id}")), 200, &item);
            }
            for none in ["/items/10001", "/items/0", "/items/ada", "/items/99999999999"] {
                assert_json(&running.get(none), 404, r#"{"error":"not found"}"#);
            }
            assert_eq!(rows(), "0");
            let quoted = br#"{"name":"'); DROP TABLE tracer_bench.writes; --"}"#;
            let written = r#"{"id":1,"name":"'); DROP TABLE tracer_bench.writes; --"}"#;
            assert_json(&running.ask(&post_json("/items", quoted)), 201, written);
            assert_eq!(rows(), "1");
            for wrong in [&br#"{"name":""}"#[..], br#"{}"#, br#"{"name":"#] {
                assert_eq!(running.ask(&post_json("/items", wrong)).status, 400);
            }
            assert_eq!(rows(), "1");
        }
    }
    let requests = [
        wants(200, br#"{"id":42,"name":"item 42","quantity":42}"#, request("GET", "/items/42")),
        wants(404, br#"{"error":"not found"}"#, request("GET", "/items/10001")),
    ];
    let mut servers = servers();
    for server in &mut servers {
        server.env.push(("DATABASE_URL".into(), database.url()));
    }
    assert_alike(&servers, &requests);
}

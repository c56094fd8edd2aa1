//! What a bench runs: servers, requests and the load, from a TOML file or built in.
//!
//! [`file`] reads and checks the TOML; every error there names file, line and fix. This module holds the checked model
//! and must not touch a process.

mod file;
mod programs;
mod source;
mod suite;
mod suite_file;
mod values;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail};
use rustix::process::Signal;

pub use suite::{Claim, ClaimMeaning, Leak, Memory, Router, RowName, Start, Suite};
pub use values::parse_duration;

/// Connections when nothing is said.
pub const DEFAULT_CONNECTIONS: u32 = 32;
/// Requests per round when nothing is said.
pub const DEFAULT_REQUESTS: u64 = 30_000;
/// Rounds when nothing is said.
pub const DEFAULT_ROUNDS: u32 = 3;
/// Warm-up requests when nothing is said.
pub const DEFAULT_WARM_UP_REQUESTS: u64 = 2_000;
/// Wait for one response when nothing is said.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);
/// Wait for a server to answer when nothing is said.
pub const DEFAULT_READY_TIMEOUT: Duration = Duration::from_secs(10);

/// Servers × requests under one load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scenario {
    /// Its name in tables.
    pub name: String,
    /// Keep-alive connections held open.
    pub connections: u32,
    /// How long one round is.
    pub length: Length,
    /// Pairs of an untraced and a traced round.
    pub rounds: u32,
    /// Longest wait for one response.
    pub timeout: Duration,
    /// The workloads, in the file's order; at least one.
    pub requests: Vec<Request>,
    /// The servers, in the file's order; at least one.
    pub servers: Vec<Server>,
    /// What makes it a suite.
    pub suite: Option<Suite>,
}

/// The length of one round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// So many requests.
    Requests(u64),
    /// So long.
    Duration(Duration),
}

/// One workload: the same request again and again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Its name in tables.
    pub name: String,
    /// Method, upper case.
    pub method: String,
    /// Path with query, beginning with `/`.
    pub path: String,
    /// Headers beside those the driver writes itself (host, content-length, connection).
    pub headers: Vec<(String, String)>,
    /// Body; empty for none.
    pub body: Vec<u8>,
    /// What the answer must be.
    pub expect: Expect,
    /// Headers, beside those always compared, that a suite's servers must answer alike.
    pub same_headers: Vec<String>,
}

/// What an answer must be, or the run fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expect {
    /// Status.
    pub status: u16,
    /// Whole body; `None`: any.
    pub body: Option<Vec<u8>>,
}

/// How to start, await and stop one server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// Its name in tables.
    pub name: String,
    /// What it runs on: a suite ranks only servers that have it in common; empty: not said.
    pub runtime: String,
    /// Program and arguments, run in `cwd`; `{port}` stands for the port.
    pub command: Vec<String>,
    /// Folder it starts in.
    pub cwd: PathBuf,
    /// Environment beside `tracer`'s own, `PORT` and `TRACER_TMP`.
    pub env: Vec<(String, String)>,
    /// Path polled until it answers with a status below 500.
    pub ready: String,
    /// Longest wait for that.
    pub ready_timeout: Duration,
    /// Requests before the first round.
    pub warm_up_requests: u64,
    /// What to run when something it needs is missing.
    pub setup: Option<String>,
    /// Signal that ends it.
    pub stop: Signal,
    /// Its port; zero: a free one is picked.
    pub port: u16,
    /// Files, folders, or programs (no slash, found in `PATH`) it needs beside its program.
    pub requires: Vec<PathBuf>,
    /// The scenario file's folder, which `requires` starts from.
    pub folder: PathBuf,
    /// Where it was declared, as `FILE:LINE`; empty when built in.
    pub declared_at: String,
}

impl Server {
    /// A server started by `command` in the current folder, all else by default.
    pub fn from_command(name: &str, command: Vec<String>) -> Self {
        Self {
            name: name.to_owned(),
            runtime: String::new(),
            command,
            cwd: PathBuf::from("."),
            env: Vec::new(),
            ready: "/".to_owned(),
            ready_timeout: DEFAULT_READY_TIMEOUT,
            warm_up_requests: DEFAULT_WARM_UP_REQUESTS,
            setup: None,
            stop: Signal::TERM,
            port: 0,
            requires: Vec::new(),
            folder: PathBuf::from("."),
            declared_at: String::new(),
        }
    }
}

impl Scenario {
    /// Reads and checks a scenario file. Whether its servers are installed is [`Server::check_installed`]'s matter.
    pub fn load(path: &Path) -> Result<Self> {
        file::load(path)
    }

    /// Adds the servers of a file that holds nothing but `[[server]]` tables.
    pub fn add_servers(&mut self, path: &Path) -> Result<()> {
        let first_path = self.requests.first().map_or("/", |request| request.path.as_str());
        for server in file::load_servers(path, first_path)? {
            if self.servers.iter().any(|known| known.name == server.name) {
                let (place, name) = (&server.declared_at, &server.name);
                bail!("{place}: the scenario `{}` has a server `{name}` already; rename this one", self.name);
            }
            self.servers.push(server);
        }
        Ok(())
    }

    /// The scenario of the built-in server, run from `exe` (this very binary).
    pub fn builtin(exe: &Path) -> Self {
        let command = [&exe.to_string_lossy(), "serve", "--port", "{port}"].map(str::to_owned);
        Self {
            name: "builtin".to_owned(),
            connections: DEFAULT_CONNECTIONS,
            length: Length::Requests(DEFAULT_REQUESTS),
            rounds: DEFAULT_ROUNDS,
            timeout: DEFAULT_TIMEOUT,
            requests: vec![Request {
                name: "hello".to_owned(),
                method: "GET".to_owned(),
                path: "/".to_owned(),
                headers: Vec::new(),
                body: Vec::new(),
                expect: Expect { status: 200, body: Some(br#"{"message":"hello"}"#.to_vec()) },
                same_headers: Vec::new(),
            }],
            servers: vec![Server::from_command("builtin", command.to_vec())],
            suite: None,
        }
    }

    /// Keeps the servers and requests named; a kind of which none is named stays whole.
    pub fn only<N: AsRef<str>>(mut self, names: &[N]) -> Result<Self> {
        let named = |name: &str| names.iter().any(|wanted| wanted.as_ref() == name);
        let server_names: Vec<_> = self.servers.iter().map(|server| server.name.as_str()).collect();
        let request_names: Vec<_> = self.requests.iter().map(|request| request.name.as_str()).collect();
        for name in names.iter().map(AsRef::as_ref) {
            if !server_names.contains(&name) && !request_names.contains(&name) {
                bail!(
                    "the scenario `{}` has no server or request `{name}`; its servers are: {}; its requests are: {}",
                    self.name,
                    server_names.join(", "),
                    request_names.join(", ")
                );
            }
        }
        if server_names.iter().any(|name| named(name)) {
            self.servers.retain(|server| named(&server.name));
        }
        if self.requests.iter().any(|request| named(&request.name)) {
            self.requests.retain(|request| named(&request.name));
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests;

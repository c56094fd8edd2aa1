//! The TOML file: its shape, and the step from it to the checked model.

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use rustix::process::Signal;
use serde::Deserialize;
use toml::Spanned;

use super::source::Source;
use super::suite_file::SuiteTable;
use super::values::{check_header, check_method, check_path, check_variable, parse_duration, parse_signal};
use super::{Expect, Length, Request, Scenario, Server};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ScenarioFile {
    name: String,
    connections: Option<Spanned<u32>>,
    requests: Option<Spanned<u64>>,
    duration: Option<Spanned<String>>,
    rounds: Option<Spanned<u32>>,
    timeout: Option<Spanned<String>>,
    #[serde(default)]
    request: Vec<RequestTable>,
    #[serde(default)]
    server: Vec<ServerTable>,
    suite: Option<SuiteTable>,
}

/// A file that adds servers to a scenario.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ServersFile {
    #[serde(default)]
    server: Vec<ServerTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RequestTable {
    name: Spanned<String>,
    method: Option<Spanned<String>>,
    path: Spanned<String>,
    #[serde(default)]
    headers: BTreeMap<String, Spanned<String>>,
    body: Option<String>,
    body_file: Option<Spanned<PathBuf>>,
    #[serde(default)]
    expect: ExpectTable,
    #[serde(default)]
    same_headers: Vec<String>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExpectTable {
    status: Option<Spanned<u16>>,
    body: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ServerTable {
    name: Spanned<String>,
    #[serde(default)]
    runtime: String,
    command: Spanned<Vec<String>>,
    cwd: Option<PathBuf>,
    #[serde(default)]
    env: BTreeMap<String, Spanned<String>>,
    ready: Option<Spanned<String>>,
    ready_timeout: Option<Spanned<String>>,
    warm_up: Option<u64>,
    setup: Option<String>,
    stop: Option<Spanned<String>>,
    #[serde(default)]
    port: u16,
    #[serde(default)]
    requires: Vec<PathBuf>,
}

/// Reads and checks a scenario file.
pub fn load(path: &Path) -> Result<Scenario> {
    let source = Source::read(path)?;
    let file: ScenarioFile = source.parse()?;
    source.scenario(file)
}

/// Reads and checks a file of servers. Those that name no ready path are ready when `first_path` is answered.
pub fn load_servers(path: &Path, first_path: &str) -> Result<Vec<Server>> {
    let source = Source::read(path)?;
    let file: ServersFile = source.parse()?;
    if file.server.is_empty() {
        return Err(source.error(&START, NO_SERVER));
    }
    source.check_names("server", file.server.iter().map(|server| &server.name))?;
    file.server.into_iter().map(|table| source.server(table, first_path)).collect()
}

const NO_SERVER: &str = "no server is given; add a [[server]] table with a name and a command";

/// Where errors about the file as a whole point.
const START: Range<usize> = 0..0;

impl Source {
    fn scenario(&self, file: ScenarioFile) -> Result<Scenario> {
        let Some(first) = file.request.first() else {
            return Err(
                self.error(&START, "no request is given; add a [[request]] table with a name and a path")
            );
        };
        if file.server.is_empty() {
            return Err(self.error(&START, NO_SERVER));
        }
        let first_path = first.path.get_ref().clone();
        self.check_names("request", file.request.iter().map(|request| &request.name))?;
        self.check_names("server", file.server.iter().map(|server| &server.name))?;
        let requests: Vec<_> =
            file.request.into_iter().map(|table| self.request(table)).collect::<Result<_>>()?;
        let servers: Vec<_> =
            file.server.into_iter().map(|table| self.server(table, &first_path)).collect::<Result<_>>()?;
        let suite = file.suite.map(|table| table.checked(self, &requests, &servers)).transpose()?;
        Ok(Scenario {
            name: file.name,
            connections: self.above_zero("connections", file.connections, super::DEFAULT_CONNECTIONS)?,
            length: self.length(file.requests, file.duration)?,
            rounds: self.above_zero("rounds", file.rounds, super::DEFAULT_ROUNDS)?,
            timeout: self.duration(file.timeout, super::DEFAULT_TIMEOUT)?,
            requests,
            servers,
            suite,
        })
    }

    fn request(&self, table: RequestTable) -> Result<Request> {
        if let (Some(_), Some(body_file)) = (&table.body, &table.body_file) {
            return Err(
                self.error(&body_file.span(), "both `body` and `body_file` are given; keep one of them")
            );
        }
        let body = match (table.body, table.body_file) {
            (_, Some(body_file)) => {
                std::fs::read(self.folder().join(body_file.get_ref())).map_err(|error| {
                    let name = body_file.get_ref().display();
                    self.error(
                        &body_file.span(),
                        format_args!("cannot read the body file {name} ({error}); correct its path"),
                    )
                })?
            }
            (body, None) => body.unwrap_or_default().into_bytes(),
        };
        for (name, value) in &table.headers {
            self.checked(value, |value| check_header(name, value))?;
        }
        let method = self.text(table.method, "GET", check_method)?;
        self.checked(&table.path, |path| check_path(path))?;
        Ok(Request {
            name: table.name.into_inner(),
            method,
            path: table.path.into_inner(),
            headers: table.headers.into_iter().map(|(name, value)| (name, value.into_inner())).collect(),
            body,
            expect: Expect {
                status: self.status(table.expect.status)?,
                body: table.expect.body.map(String::into_bytes),
            },
            same_headers: table.same_headers,
        })
    }

    fn server(&self, table: ServerTable, first_path: &str) -> Result<Server> {
        let declared_at = self.place(&table.name.span());
        if table.command.get_ref().first().is_none_or(String::is_empty) {
            let fix = "write the program and its arguments, as in [\"node\", \"server.mjs\"]";
            return Err(self.error(&table.command.span(), format_args!("the command is empty; {fix}")));
        }
        for (name, value) in &table.env {
            self.checked(value, |_| check_variable(name))?;
        }
        let folder = self.folder().to_owned();
        Ok(Server {
            name: table.name.into_inner(),
            runtime: table.runtime,
            command: table.command.into_inner(),
            cwd: table.cwd.map_or_else(|| folder.clone(), |cwd| folder.join(cwd)),
            env: table.env.into_iter().map(|(name, value)| (name, value.into_inner())).collect(),
            ready: self.text(table.ready, first_path, check_path)?,
            ready_timeout: self.duration(table.ready_timeout, super::DEFAULT_READY_TIMEOUT)?,
            warm_up_requests: table.warm_up.unwrap_or(super::DEFAULT_WARM_UP_REQUESTS),
            setup: table.setup,
            stop: table
                .stop
                .map_or(Ok(Signal::TERM), |stop| self.checked(&stop, |stop| parse_signal(stop)))?,
            port: table.port,
            requires: table.requires,
            folder,
            declared_at,
        })
    }

    fn length(&self, requests: Option<Spanned<u64>>, duration: Option<Spanned<String>>) -> Result<Length> {
        match (requests, duration) {
            (Some(_), Some(duration)) => {
                Err(self
                    .error(&duration.span(), "both `requests` and `duration` are given; keep one of them"))
            }
            (None, Some(duration)) => {
                self.checked(&duration, |text| parse_duration(text)).map(Length::Duration)
            }
            (requests, None) => {
                self.above_zero("requests", requests, super::DEFAULT_REQUESTS).map(Length::Requests)
            }
        }
    }

    fn check_names<'f>(&self, kind: &str, names: impl Iterator<Item = &'f Spanned<String>>) -> Result<()> {
        let mut seen = HashSet::new();
        for name in names {
            self.checked(name, |text| match text.trim() {
                "" => Err(format!("the {kind} has no name; give it one")),
                _ if !seen.insert(text.as_str()) => {
                    Err(format!("the {kind} `{text}` is there twice; rename one of them"))
                }
                _ => Ok(()),
            })?;
        }
        Ok(())
    }

    fn above_zero<N: PartialEq + Default>(
        &self,
        key: &str,
        value: Option<Spanned<N>>,
        default: N,
    ) -> Result<N> {
        match value {
            Some(value) if *value.get_ref() == N::default() => {
                Err(self.error(&value.span(), format_args!("`{key}` is zero; give at least 1")))
            }
            value => Ok(value.map_or(default, Spanned::into_inner)),
        }
    }

    fn duration(&self, text: Option<Spanned<String>>, default: Duration) -> Result<Duration> {
        text.map_or(Ok(default), |text| self.checked(&text, |text| parse_duration(text)))
    }

    fn status(&self, status: Option<Spanned<u16>>) -> Result<u16> {
        let Some(status) = status else { return Ok(200) };
        self.checked(&status, |code| match code {
            200..=599 => Ok(*code),
            _ => Err(format!("{code} is not the status of an answer; give one from 200 to 599")),
        })
    }

    fn text(
        &self,
        text: Option<Spanned<String>>,
        default: &str,
        check: fn(&str) -> Result<(), String>,
    ) -> Result<String> {
        let Some(text) = text else { return Ok(default.to_owned()) };
        self.checked(&text, |text| check(text))?;
        Ok(text.into_inner())
    }

    /// What `check` makes of the value; its sentence becomes an error at the value's place.
    fn checked<'v, V, T>(
        &self,
        value: &'v Spanned<V>,
        check: impl FnOnce(&'v V) -> Result<T, String>,
    ) -> Result<T> {
        check(value.get_ref()).map_err(|sentence| self.error(&value.span(), sentence))
    }
}

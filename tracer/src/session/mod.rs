//! Whole runs, top to bottom: `bench` starts servers and drives load, `record` attaches to what runs.

pub mod bench;
pub mod diff;
pub mod interrupt;
pub mod launch;
pub mod progress;
pub mod record;
pub mod suite;

use std::{
    net::SocketAddr,
    time::{SystemTime, UNIX_EPOCH},
};

use anyhow::Result;

use crate::{
    check::Checker,
    load::Plan,
    recording::{Request, Run, SCHEMA_VERSION, TARGET_EXITED, disk::Writer},
    scenario,
    stats::Summary,
    target::environment::fingerprint,
    window::{Sink, Traced},
};

/// Where every request of a run goes: into the summary, and where asked for to disk and past the promises.
#[derive(Default)]
pub struct Gather {
    /// Sums and distributions.
    pub summary: Summary,
    /// The recording being written.
    pub writer: Option<Writer>,
    /// Promises being watched.
    pub checker: Option<Checker>,
}

impl Sink for Gather {
    fn take(&mut self, request: Request) -> Result<()> {
        self.summary.add(&request);
        if let Some(checker) = &mut self.checker {
            checker.observe(&request);
        }
        match &mut self.writer {
            Some(writer) => writer.write(request),
            None => Ok(()),
        }
    }
}

/// A run with nothing but where and when.
fn new_run(name: &str, workload: &str, keeps_query: bool) -> Run {
    let command = std::env::args().map(|word| if keeps_query { word } else { without_query(&word) });
    Run {
        keeps_query,
        schema_version: SCHEMA_VERSION,
        tracer_version: env!("CARGO_PKG_VERSION").to_owned(),
        name: name.to_owned(),
        workload: workload.to_owned(),
        started_unix_s: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
        command: command.collect(),
        environment: fingerprint(),
        ..Run::default()
    }
}

/// Puts what the traced windows saw into the run.
fn put_traced(run: &mut Run, traced: Traced) {
    run.window_ns = traced.window_ns;
    run.connections = traced.tally.connections;
    run.accepted = traced.tally.accepted;
    run.accept_wait_ns = traced.tally.accept_wait_ns;
    run.syscalls = traced.syscalls;
    run.holders = traced.holders;
    run.ledger = traced.tally.ledger;
    run.conservation = traced.conservation;
    run.throttled_ns = traced.throttled_ns;
    run.reader_cpu_ns = traced.reader_cpu_ns;
    run.map_bytes = traced.map_bytes;
}

/// The target exited in mid-run. For a run that has its ledger and its load.
fn target_exited(run: &mut Run) {
    run.ended_early = TARGET_EXITED.into();
    run.ledger.target_exited(run.load.as_ref().map_or(0, |load| load.connections.into()));
}

/// The driver's plan for a workload of a scenario.
fn plan(
    request: &scenario::Request,
    address: SocketAddr,
    connections: u32,
    scenario: &scenario::Scenario,
    core: Option<usize>,
) -> Plan {
    Plan {
        connections: connections as usize,
        timeout: scenario.timeout,
        cores: core.into_iter().collect(),
        ..Plan::new(address, vec![request.into()])
    }
}

/// A URL of the command line without its query string, which may hold secrets; any other word as it is.
fn without_query(word: &str) -> String {
    match word.split_once('?') {
        Some((url, _)) if url.contains("://") => url.to_owned(),
        _ => word.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_urls_lose_their_query() {
        assert_eq!(without_query("http://127.0.0.1:1/a?token=x"), "http://127.0.0.1:1/a");
        assert_eq!(without_query("--url=http://127.0.0.1:1/?x"), "--url=http://127.0.0.1:1/");
        assert_eq!(without_query("what?"), "what?");
    }
}

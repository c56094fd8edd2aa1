//! Real servers, watched by strace and `tracer` at the same time: equal calls, by name.

use std::collections::BTreeMap;

use anyhow::{Result, bail, ensure};
use tracer::load::Stop;

use super::{Case, Checks};
use crate::truth::{SETTLED, STILL, Served, Strace, calls_since};

pub(super) const CASES: &[Case] = &[
    Case::new("strace-builtin", |checks| equal_calls(checks, "builtin")),
    Case::new("strace-node-http", |checks| equal_calls(checks, "node-http")),
    Case::new("strace-express", |checks| equal_calls(checks, "express")),
    Case::new("strace-fastify", |checks| equal_calls(checks, "fastify")),
    Case::new("strace-nginx", |checks| equal_calls(checks, "nginx-sendfile-on")),
    Case::new("strace-nginx-without-sendfile", |checks| equal_calls(checks, "nginx-sendfile-off")),
    Case::new("strace-node24", |checks| equal_calls(checks, "s200/node-http")).full(),
    Case::new("strace-node24-express", |checks| equal_calls(checks, "s200/express")).full(),
    Case::new("strace-node24-fastify", |checks| equal_calls(checks, "s200/fastify")).full(),
    Case::new("strace-node24-hono", |checks| equal_calls(checks, "s200/hono")).full(),
    Case::new("strace-node24-hono-patched", |checks| equal_calls(checks, "s200/hono-patched")).full(),
    Case::new("strace-node24-elysia", |checks| equal_calls(checks, "s200/elysia")).full(),
];

const REQUESTS: u64 = 1_000;

/// Times a server is given to be quiet while a window opens and closes.
const ATTEMPTS: u32 = 8;

/// The same 1,000 keep-alive requests, seen by both.
fn equal_calls(checks: &mut Checks, server: &str) -> Result<()> {
    let served = Served::start(server);
    let mut driver = served.driver(8);
    let strace = Strace::attach(&served.target.family());
    // A timer of the server may fire while the window opens or closes; then neither count is at fault, and once more.
    for _ in 0..ATTEMPTS {
        // Also a fresh start for the server's keep-alive timers (5 s in Node).
        let warm_up = driver.run(Stop::Count(REQUESTS))?;
        ensure!(warm_up.totals.errors == 0, "the load failed: {:?}", warm_up.totals.first_error);
        let before = strace.calls_when_quiet_for(SETTLED);
        let window = served.open(false);
        let opened = strace.calls_when_quiet_for(STILL);
        let load = driver.run(Stop::Count(REQUESTS))?;
        ensure!(load.totals.errors == 0, "the load failed: {:?}", load.totals.first_error);
        let after = strace.calls_when_quiet_for(SETTLED);
        let (traced, requests) = window.close(Some(load.sent()))?;
        let closed = strace.calls_when_quiet_for(STILL);
        if (&before, &after) != (&opened, &closed) {
            continue;
        }
        let ours = traced.syscalls.into_iter().map(|call| (call.name, call.calls)).collect();
        let theirs = calls_since(&before, &after);
        checks.equal("calls in all", theirs.values().sum(), BTreeMap::values(&ours).sum::<u64>());
        checks.equal("calls by name", in_words(&theirs), in_words(&ours));
        checks.equal("requests", REQUESTS, requests.0.len() as u64);
        return Ok(());
    }
    bail!("the server was never quiet while a window opened and closed")
}

fn in_words(calls: &BTreeMap<String, u64>) -> String {
    calls.iter().map(|(name, count)| format!("{count} {name}")).collect::<Vec<_>>().join(", ")
}

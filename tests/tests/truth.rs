//! Our numbers against outside witnesses: strace, /proc, the server's own stamps and the client's.
//!
//! As root, one after the other: `cargo test -p tracer-tests --test truth -- --test-threads=1`.

use std::collections::BTreeMap;

use tracer::load::Stop;
use tracer_tests::truth::{SETTLED, STILL, Served, Strace, alone, calls_since};

const REQUESTS: u64 = 1_000;

/// strace and `tracer` watch the same 1,000 keep-alive requests: every syscall's count is equal, exactly.
fn counts_what_strace_counts(server: &str) {
    let _alone = alone();
    let served = Served::start(server);
    let mut driver = served.driver(8);
    let warm_up = driver.run(Stop::Count(REQUESTS)).expect("the driver runs");
    assert_eq!(warm_up.totals.errors, 0, "{:?}", warm_up.totals.first_error);
    let strace = Strace::attach(&served.target.family());

    // A timer of the server may fire while the window opens or closes; then neither count is at fault, and once more.
    let mut told = Vec::new();
    for _ in 0..5 {
        let before = strace.calls_when_quiet_for(SETTLED);
        let window = served.open(false);
        let opened = strace.calls_when_quiet_for(STILL);
        let load = driver.run(Stop::Count(REQUESTS)).expect("the driver runs");
        assert_eq!(
            (load.totals.requests, load.totals.errors),
            (REQUESTS, 0),
            "{:?}",
            load.totals.first_error
        );
        let after = strace.calls_when_quiet_for(SETTLED);
        let (traced, requests) = window.close(Some(load.sent())).expect("the window closes");
        let closed = strace.calls_when_quiet_for(STILL);
        if (&before, &after) != (&opened, &closed) {
            told.push((calls_since(&before, &opened), calls_since(&after, &closed)));
            continue;
        }
        let ours: BTreeMap<String, u64> =
            traced.syscalls.into_iter().map(|call| (call.name, call.calls)).collect();
        let theirs = calls_since(&before, &after);
        println!("{server}: {ours:?}");
        assert_eq!(ours, theirs, "tracer (left) and strace (right) disagree; {:?}", traced.tally.ledger);
        assert_eq!(requests.0.len() as u64, REQUESTS);
        return;
    }
    panic!("{server} was never quiet while a window opened and closed: {told:?}");
}

/// Syscall counts equal strace's on the built-in server.
#[test]
fn strace_agrees_on_builtin() {
    counts_what_strace_counts("builtin");
}

/// Syscall counts equal strace's on Node's own server.
#[test]
fn strace_agrees_on_node_http() {
    counts_what_strace_counts("node-http");
}

/// Syscall counts equal strace's on Express.
#[test]
fn strace_agrees_on_express() {
    counts_what_strace_counts("express");
}

/// Syscall counts equal strace's on Fastify.
#[test]
fn strace_agrees_on_fastify() {
    counts_what_strace_counts("fastify");
}

/// Syscall counts equal strace's on nginx, sendfile on: a master and a worker.
#[test]
fn strace_agrees_on_nginx() {
    counts_what_strace_counts("nginx-sendfile-on");
}

/// Syscall counts equal strace's on nginx, sendfile off.
#[test]
fn strace_agrees_on_nginx_without_sendfile() {
    counts_what_strace_counts("nginx-sendfile-off");
}

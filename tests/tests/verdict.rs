//! `tracer diff` on real launches: identical builds, an added second write, a spin. The five longer comparisons are run
//! by `cargo xtask bench verdict`.
//!
//! As root, one after the other: `cargo test -p tracer-tests --test verdict -- --test-threads=1`.

use std::{process::Command, time::Duration};

use rustix::process::Signal;
use serde_json::Value;
use tracer_tests::cli::{Said, begin, binary, descendants, lives, run, start, tracer, until};

/// Longest a comparison may take: eight short launches, on a machine that is busy with something else.
const PATIENCE: Duration = Duration::from_secs(400);
const URL: &str = "http://127.0.0.1:{port}/";

fn server(knobs: &str) -> String {
    format!("{} serve --port {{port}} --knobs '{knobs}'", binary().display())
}

fn diff(knobs_of_b: &str, more: &[&str]) -> Command {
    let (a, b) = (server(""), server(knobs_of_b));
    let mut command =
        tracer(["diff", &a, &b, "--url", URL, "--slice", "100ms", "--warm-up", "300ms", "--format", "json"]);
    command.args(more);
    command
}

/// A comparison to its first look, whatever it says there.
fn first_look(knobs_of_b: &str) -> (Said, Value) {
    // The threshold is far below what is planted and far above what eight short launches cannot resolve.
    let said = start(&mut diff(knobs_of_b, &["--threshold", "10%"])).said_within(PATIENCE);
    let judgement = said.json();
    (said, judgement)
}

fn verdict(judgement: &Value) -> &str {
    judgement["verdict"]["kind"].as_str().expect("a verdict has a kind")
}

/// Identical builds are called neither worse nor better.
#[test]
fn identical_builds_are_not_called() {
    let _alone = begin();
    let (said, judgement) = first_look("");
    assert!(["same", "inconclusive", "withheld"].contains(&verdict(&judgement)), "{}", judgement["answer"]);
    assert_eq!(said.code, if verdict(&judgement) == "same" { 0 } else { 3 });
    let route = &judgement["routes"][0];
    assert_eq!(route["kinds"].as_array().map(Vec::len), Some(0), "{}", route["kinds"]);
}

/// The answer of a planted change: it is a regression, unless this very session was shown to be unfit.
#[track_caller]
fn assert_regression(said: &Said, judgement: &Value) {
    if verdict(judgement) == "withheld" {
        let reasons = judgement["verdict"]["reasons"].to_string();
        assert!(reasons.contains("control failed") || reasons.contains("were not sound"), "{reasons}");
        assert_eq!(said.code, 3);
        return;
    }
    assert_eq!((said.code, verdict(judgement)), (1, "regression"), "{}", judgement["answer"]);
}

/// A second write is a regression, named with its bytes, and both ledgers add up.
#[test]
fn a_second_write_is_named_first() {
    let _alone = begin();
    let (said, judgement) = first_look("split=1");
    assert_regression(&said, &judgement);
    let answer = judgement["answer"].as_str().unwrap_or_default();
    assert!(answer.contains("us in write (2 writes instead of 1: writev 108 B, writev 19 B)"), "{answer}");
    let route = &judgement["routes"][0];
    for ledger in ["cpu_ledger", "latency_ledger"] {
        let ledger = &route[ledger];
        let lines = ledger["lines"].as_array().expect("lines");
        let sum: f64 =
            lines.iter().map(|line| line["difference"]["estimate"].as_f64().expect("a number")).sum();
        let rest = ledger["unexplained"]["estimate"].as_f64().expect("the rest is told");
        let total = ledger["total"]["estimate"].as_f64().expect("a total");
        assert!((sum + rest - total).abs() < 1.0, "{sum} + {rest} is not {total}");
    }
}

/// A spin in the handler is a regression in the user code of `app`; the writes are ruled out.
#[test]
fn a_spin_is_user_cpu_in_app() {
    let _alone = begin();
    let (said, judgement) = first_look("spin_us=60");
    assert_regression(&said, &judgement);
    let answer = judgement["answer"].as_str().unwrap_or_default();
    assert!(answer.contains("us in app: user"), "{answer}");
    let ruled_out = judgement["routes"][0]["ruled_out"].to_string();
    assert!(ruled_out.contains("writes 1.00 -> 1.00"), "{ruled_out}");
}

/// Ctrl-C: what is done so far, no verdict, and no server is left running.
#[test]
fn an_interrupted_comparison_gives_no_verdict_and_leaves_nothing_running() {
    let _alone = begin();
    let folder = tempfile::tempdir().expect("a folder");
    let stored = folder.path().join("comparison");
    let mut command = diff("", &["-o", &stored.display().to_string()]);
    let running = start(&mut command);
    // Three servers with a guardian each, or more: it is in the middle of a launch.
    let mut servers = Vec::new();
    until("three servers are started", || {
        servers = descendants(running.pid());
        servers.len() >= 6
    });
    running.signal(Signal::INT);
    let said = running.said();
    assert_eq!(said.code, 3, "{said:?}");
    let judgement = said.json();
    assert_eq!(verdict(&judgement), "withheld");
    assert!(judgement["answer"].as_str().is_some_and(|answer| answer.contains("interrupted")), "{said:?}");
    for server in servers {
        until("every server is gone", || !lives(server));
    }
}

/// What cannot be compared is refused with the reason.
#[test]
fn mistakes_are_refused_by_name() {
    let _alone = begin();
    let refused = |arguments: &[&str], parts: &[&str]| run(arguments).assert_refused(parts);
    refused(&["diff", "a", "b"], &["--url"]);
    refused(&["diff", "a", "b", "--url", "http://127.0.0.1:80/"], &["write {port}"]);
    refused(&["diff", "no-such-program", "b", "--url", URL], &["no-such-program"]);
    refused(&["diff", "one"], &["what shall one be compared with"]);
}

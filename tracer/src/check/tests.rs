use super::*;
use crate::recording::{Ledger, WriteCall};
use crate::report::fixture::{self, WRITE, WRITEV, leave_in};

const ONE_WRITE: Promise = Promise::WritesPerResponse { max: 1, call: None };

fn one_writev() -> Promise {
    Promise::WritesPerResponse { max: 1, call: Some("writev".into()) }
}

fn request(writes: &[(u16, i64, u32)]) -> Request {
    let mut request = fixture::request(1);
    let calls: Vec<_> =
        writes.iter().map(|&(call, result, iovecs)| WriteCall { call, result, iovecs }).collect();
    leave_in(&mut request, &calls);
    request
}

/// 2,000 requests, of which the first are these.
fn verdict_on(run: &Run, promise: Promise, first: &[Request]) -> Verdict {
    let mut checker = Checker::new([promise]);
    let rest = (first.len() as u64..fixture::REQUESTS).map(fixture::request);
    first.iter().cloned().chain(rest).for_each(|request| checker.observe(&request));
    checker.verdict(run)
}

fn verdict(promise: Promise, first: &[Request]) -> Verdict {
    verdict_on(&fixture::run(), promise, first)
}

#[test]
fn kept_promises_exit_0() {
    let kept =
        [ONE_WRITE, one_writev(), Promise::MaxSyscallsPerRequest(2.2), Promise::MaxCpuUsPerRequest(43.0)];
    let verdicts = kept.map(|promise| verdict(promise, &[]));
    assert!(verdicts.iter().all(|verdict| verdict.exit_code() == 0));
    insta::assert_snapshot!(verdicts.each_ref().map(text).concat(), @"
        held: writes per response <= 1: all of 2,000 responses
        held: writes per response <= 1, each by writev: all of 2,000 responses
        held: syscalls per request <= 2.2: 2.141 syscalls per request over 2,000 requests
        held: CPU us per request <= 43: 42.4 us of server CPU per request (untraced, 3 rounds)
        ");
}

#[test]
fn head_and_body_apart_break_it_with_a_sample() {
    let apart = request(&[(WRITEV, 118, 1), (WRITE, 47, 1)]);
    let verdict = verdict(ONE_WRITE, &[apart.clone(), apart]);
    assert_eq!(verdict.exit_code(), 1);
    insta::assert_snapshot!(text(&verdict), @"
        BROKEN: writes per response <= 1: 2 of 2,000 responses (0.10 %) broke it
          for example GET / -> 200, connection 1 request 0: 165 bytes in 2 writes
            writev: 118 bytes, 1 iovec
            write: 47 bytes, 1 iovec
            no EAGAIN among them: nothing says that the send buffer was full
        ");
}

#[test]
fn a_full_send_buffer_is_named() {
    let full = request(&[(WRITEV, 60_000, 2), (WRITE, -11, 1), (WRITE, 5_000, 1)]);
    insta::assert_snapshot!(text(&verdict(ONE_WRITE, &[full])), @"
        BROKEN: writes per response <= 1: 1 of 2,000 responses (0.05 %) broke it
          for example GET / -> 200, connection 1 request 0: 165 bytes in 2 writes
            writev: 60,000 bytes, 2 iovecs
            write: EAGAIN, 1 iovec
            write: 5,000 bytes, 1 iovec; EAGAIN before it: the send buffer was full
        ");
}

#[test]
fn a_refused_call_is_not_a_write() {
    let refused = request(&[(WRITEV, -11, 2), (WRITEV, 165, 2)]);
    assert!(verdict(one_writev(), &[refused]).held);
}

#[test]
fn another_call_breaks_the_literal_promise_only() {
    let by_write = [request(&[(WRITE, 165, 1)])];
    assert!(verdict(ONE_WRITE, &by_write).held);
    let verdict = verdict(one_writev(), &by_write);
    assert_eq!(verdict.findings[0].offending, Some(1));
    assert_eq!(verdict.exit_code(), 1);
}

#[test]
fn more_writes_than_are_kept_are_told() {
    let mut many = request(&[(WRITE, 10, 1); 8]);
    many.writes = 11;
    let verdict = verdict(Promise::WritesPerResponse { max: 8, call: None }, &[many]);
    assert!(text(&verdict).contains("3 later writes not kept"), "{}", text(&verdict));
}

#[test]
fn figures_above_their_limit_break_it() {
    let broken = [Promise::MaxSyscallsPerRequest(2.1), Promise::MaxCpuUsPerRequest(42.0)];
    let verdicts = broken.map(|promise| verdict(promise, &[]));
    assert!(verdicts.iter().all(|verdict| verdict.exit_code() == 1));
    insta::assert_snapshot!(verdicts.each_ref().map(text).concat(), @"
        BROKEN: syscalls per request <= 2.1: 2.141 syscalls per request over 2,000 requests
        BROKEN: CPU us per request <= 42: 42.4 us of server CPU per request (untraced, 3 rounds)
        ");
}

#[test]
fn cpu_from_the_traced_window_says_so() {
    let run = Run { rounds: Vec::new(), ..fixture::run() };
    let verdict = verdict_on(&run, Promise::MaxCpuUsPerRequest(20.0), &[]);
    insta::assert_snapshot!(text(&verdict), @"
        held: CPU us per request <= 20: 16.8 us of server CPU per request (while traced, which costs CPU of
            its own)
        ");
}

#[test]
fn without_sound_evidence_there_is_no_verdict() {
    let no_verdict = |run: Run, first: &[Request]| {
        let verdict = verdict_on(&run, ONE_WRITE, first);
        assert_eq!(verdict.exit_code(), 3);
        verdict.no_verdict.unwrap()
    };
    let run = fixture::run;
    let ledger = |lost| Ledger { sent: Some(2_000 + lost), lost_ring_full: lost, ..run().ledger };
    assert!(verdict_on(&Run { ledger: ledger(2), ..run() }, ONE_WRITE, &[]).no_verdict.is_none());
    let mut unsound = fixture::request(0);
    unsound.end_ns += 1;
    let early = Run { ended_early: "interrupted".into(), ..run() };
    let reasons = [
        no_verdict(Run { ledger: ledger(3), ..run() }, &[]),
        no_verdict(early, &[]),
        no_verdict(run(), &[unsound]),
        Checker::new([ONE_WRITE]).verdict(&run()).no_verdict.unwrap(),
    ];
    insta::assert_snapshot!(reasons.join("\n"), @"
        0.15 % of the requests were lost, more than 0.10 %: use less load
        the run ended early (interrupted): run it again
        the measurement itself is not sound: closure: requests that do not add up: 1 (connection 0 request 0: its phases add up to 914800 ns, its wall time is 914801 ns)
        no request was traced: send some (--url), or attach for longer
        ");
}

#[test]
fn failed_responses_exit_1() {
    let mut run = fixture::run();
    run.rounds[0].load.errors = 3;
    run.rounds[0].load.first_error = Some("status 500 instead of 200".into());
    let verdict = verdict_on(&run, ONE_WRITE, &[]);
    assert_eq!(verdict.exit_code(), 1);
    assert!(text(&verdict).contains("3 responses failed: status 500 instead of 200"));
}

#[test]
fn the_json_holds_the_sample() {
    let apart = request(&[(WRITEV, 118, 1), (WRITE, 47, 1)]);
    let value: serde_json::Value = serde_json::from_str(&json(&verdict(ONE_WRITE, &[apart]))).unwrap();
    assert_eq!(value["schema"], 1);
    assert_eq!(value["held"], false);
    assert_eq!(value["findings"][0]["sample"]["calls"][1]["call"], "write");
}

fn budgeted(toml: &str, first: &[Request]) -> Verdict {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("budget.toml");
    std::fs::write(&path, toml).unwrap();
    let baseline = fixture::run();
    let mut checker = Checker::new([]).with_budget(Budget::load(&path).unwrap(), Some(&baseline));
    let rest = (first.len() as u64..fixture::REQUESTS).map(fixture::request);
    first.iter().cloned().chain(rest).for_each(|request| checker.observe(&request));
    checker.verdict(&fixture::run())
}

#[test]
fn a_budget_that_is_kept_holds_line_by_line() {
    let verdict = budgeted(
        r#"
        [overall]
        writes_per_response = 1
        eagain_per_request = 0.0
        p99_us = 100000
        blocked_us = 100000
        cpu_us = 43
        cpu_of_baseline = 1.05
        downstream_round_trips = 0
        syscalls = { all = 3, writev = 1.01 }

        [[route]]
        route = "GET /*"
        writes_per_response = 1
        cpu_us = 1000
        "#,
        &[],
    );
    assert_eq!((verdict.exit_code(), verdict.findings.len()), (0, 11), "{}", text(&verdict));
}

#[test]
fn each_limit_of_a_budget_breaks() {
    let broken = |toml: &str, first: &[Request]| {
        let verdict = budgeted(toml, first);
        assert_eq!(verdict.exit_code(), 1, "{toml}: {}", text(&verdict));
        text(&verdict)
    };
    for limit in [
        "p99_us = 0.001",
        "cpu_us = 1",
        "cpu_of_baseline = 0.5",
        "syscalls = { all = 0.1 }",
        "syscalls = { writev = 0.1 }",
    ] {
        broken(&format!("[overall]\n{limit}"), &[]);
    }
    let apart = request(&[(WRITEV, 118, 1), (WRITE, 47, 1)]);
    let routed = broken("[[route]]\nroute = \"GET /\"\nwrites_per_response = 1", &[apart]);
    assert!(routed.starts_with("BROKEN: GET /: writes per response <= 1: 1 of"), "{routed}");
    let unseen = broken("[[route]]\nroute = \"GET /none\"\nwrites_per_response = 1", &[]);
    assert!(unseen.contains("no such request was seen"), "{unseen}");
}

#[test]
fn mistakes_in_a_budget_are_named() {
    let refused = |toml: &str| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("budget.toml");
        std::fs::write(&path, toml).unwrap();
        format!("{:#}", Budget::load(&path).unwrap_err())
    };
    assert!(refused("").contains("limits nothing"));
    assert!(refused("[overall]\nwrites = 1").contains("unknown field `writes`"));
    assert!(refused("[overall]\nsyscalls = { no_such = 1 }").contains("`no_such`, which is no syscall"));
}

#[test]
fn a_shape_is_kept_until_it_drifts() {
    let shape_of = |first: &[Request]| {
        let mut checker = Checker::new([]);
        let rest = (first.len() as u64..fixture::REQUESTS).map(fixture::request);
        first.iter().cloned().chain(rest).for_each(|request| checker.observe(&request));
        checker.shape(&fixture::run())
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shape.toml");
    shape_of(&[]).save(&path).unwrap();
    let golden = Shape::load(&path).unwrap();
    assert_eq!(golden.drift(&shape_of(&[])), Vec::<String>::new());
    let apart = vec![request(&[(WRITEV, 118, 1), (WRITE, 47, 1)]); 1000];
    let drift = golden.drift(&shape_of(&apart));
    assert!(drift.contains(&"+ GET /: read writev write: 0.00 % -> 50.0 %".to_owned()), "{drift:?}");
    let mut checker = Checker::new([]).with_shape(golden);
    apart.iter().for_each(|request| checker.observe(request));
    let verdict = checker.verdict(&fixture::run());
    assert!(verdict.findings.iter().any(|finding| finding.promise == "golden shape" && !finding.held));
}

//! Each rule with a planted case and its clean twin, and once with too little evidence.

use super::{
    event_loop::HeldLoop, per_request_calls::PerRequestCalls, reads_eagain::ReadsEagain, run_queue::RunQueue,
    split_writes::SplitWrites, *,
};
use crate::recording::{
    ClientTimes, Conservation, HolderTotals, Inference, Ledger, Phase, RequestCpu, SyscallTotals, WriteCall,
    syscall_number,
};

const REQUESTS: u64 = 1000;

fn call(name: &str, calls: u64, eagain: u64) -> SyscallTotals {
    SyscallTotals { name: name.to_owned(), calls, eagain, wall_ns: calls * 500, cpu_ns: calls * 500 }
}

fn run(syscalls: Vec<SyscallTotals>) -> Run {
    Run {
        syscalls,
        connections: 8,
        ledger: Ledger { sent: Some(REQUESTS), traced: REQUESTS, ..Ledger::default() },
        ..Run::default()
    }
}

fn request(writes: &[i64]) -> Request {
    let mut request = Request {
        method: "GET".into(),
        path: "/".into(),
        writes: writes.len() as u32,
        write_calls_len: writes.len() as u8,
        cpu: RequestCpu { write_ns: 2000 * writes.len() as u64, ..RequestCpu::default() },
        ..Request::default()
    };
    for (slot, &result) in request.write_calls.iter_mut().zip(writes) {
        *slot = WriteCall { call: 1, result, iovecs: 1 };
    }
    request
}

fn answer(mut rule: impl Rule, run: &Run, request: &Request) -> Answer {
    (0..REQUESTS).for_each(|_| rule.observe(request));
    rule.answer(run, REQUESTS)
}

#[track_caller]
fn found(answer: Answer) -> (String, f64, Option<f64>) {
    match answer {
        Answer::Found { evidence, share, cost_ns, .. } => (evidence, share, cost_ns),
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn not_found(answer: Answer) {
    assert!(matches!(answer, Answer::NotFound { .. }), "{answer:?}");
}

#[track_caller]
fn not_enough(answer: Answer) {
    assert!(matches!(answer, Answer::NotEnough { .. }), "{answer:?}");
}

#[test]
fn head_and_body_apart() {
    let (evidence, share, cost_ns) =
        found(answer(SplitWrites::default(), &run(vec![]), &request(&[154, 19])));
    assert_eq!((share, cost_ns), (1.0, Some(2000.0)));
    assert!(evidence.contains("none of them"), "{evidence}");
    let mut drained = request(&[154, 19]);
    drained.phases_ns[Phase::Drain as usize] = 39_000_000;
    let unseen = Request {
        inference: Some(Inference::DrainUnseen),
        client: Some(ClientTimes { done_ns: 39_000_000, ..ClientTimes::default() }),
        ..request(&[154, 19])
    };
    for stalled in [drained, unseen] {
        let (evidence, ..) = found(answer(SplitWrites::default(), &run(vec![]), &stalled));
        assert!(evidence.contains("1000 of them stalled for about 40 ms"), "{evidence}");
    }
    // A server that was off its core between its writes did not wait for an acknowledgement.
    let interrupted = Request { write_gap_ns: 40_000_000, ..request(&[154, 19]) };
    let (evidence, ..) = found(answer(SplitWrites::default(), &run(vec![]), &interrupted));
    assert!(evidence.contains("none of them"), "{evidence}");
    not_found(answer(SplitWrites::default(), &run(vec![]), &request(&[173])));
    // The socket was full: the rest has to go in another call.
    let full = Request { writes: 2, writes_eagain: 1, ..request(&[100_000, -11, 50_000]) };
    not_found(answer(SplitWrites::default(), &run(vec![]), &full));
}

#[test]
fn reads_until_eagain() {
    let planted = run(vec![call("read", 2 * REQUESTS, REQUESTS)]);
    let (_, share, cost_ns) = found(answer(ReadsEagain, &planted, &request(&[1])));
    assert_eq!((share, cost_ns), (1.0, Some(500.0)));
    not_found(answer(ReadsEagain, &run(vec![call("read", REQUESTS, 3)]), &request(&[1])));
    not_enough(answer(ReadsEagain, &run(vec![call("epoll_wait", 1, 0)]), &request(&[1])));
}

#[test]
fn set_up_per_request() {
    let planted = run(vec![call("epoll_ctl", 2 * REQUESTS, 0), call("read", REQUESTS, 0)]);
    let (evidence, ..) = found(answer(PerRequestCalls, &planted, &request(&[1])));
    assert!(evidence.starts_with("epoll_ctl 1.97 times per request"), "{evidence}");
    let clean = run(vec![call("epoll_ctl", 24, 0), call("setsockopt", 8, 0)]);
    not_found(answer(PerRequestCalls, &clean, &request(&[1])));
    not_enough(answer(PerRequestCalls, &Run { connections: 900, ..clean }, &request(&[1])));
}

fn in_app(own_cpu_ns: u64, blocked_ns: u64, blocked_in: Option<&str>) -> Request {
    let mut request = request(&[1]);
    let states = &mut request.states[Phase::App as usize];
    (states.own_cpu_ns, states.blocked_ns) = (own_cpu_ns, blocked_ns);
    request.blocked_call_plus_one = blocked_in.map_or(0, |name| syscall_number(name).unwrap() + 1);
    request
}

#[test]
fn event_loop_held() {
    let rule = || HeldLoop::new(10_000_000);
    let clean = run(vec![]);
    let (evidence, share, _) = found(answer(rule(), &clean, &in_app(12_000_000, 0, None)));
    assert!(share == 1.0 && evidence.contains("12,000.0 us on average"), "{evidence}");
    // Blocked in a call that serves nobody else meanwhile.
    found(answer(rule(), &clean, &in_app(1000, 20_000_000, Some("nanosleep"))));
    not_found(answer(rule(), &clean, &in_app(1000, 20_000_000, Some("epoll_wait"))));
    not_found(answer(rule(), &clean, &in_app(1_000_000, 0, None)));
    let mut moved = in_app(1000, 0, None);
    moved.states[Phase::App as usize].unknown_ns = 20_000_000;
    not_enough(answer(rule(), &clean, &moved));
}

fn waiting(run_queue_ns: u64) -> Request {
    let mut request = request(&[1]);
    request.phases_ns[Phase::Queue as usize] = 100_000;
    request.states[Phase::Queue as usize].run_queue_ns = run_queue_ns;
    request
}

fn held(is_tracer: bool, held_ns: u64, throttled_ns: Option<u64>) -> Run {
    let holder = HolderTotals { tid: 7, process_id: 7, name: "load".into(), held_ns, is_tracer };
    let conservation = Conservation { traced_run_queue_ns: 50_000_000, ..Conservation::default() };
    Run { holders: vec![holder], conservation, throttled_ns, ..run(vec![]) }
}

#[test]
fn core_taken_away() {
    let rule = RunQueue::default;
    let (evidence, ..) = found(answer(rule(), &held(true, 40_000_000, Some(0)), &waiting(50_000)));
    assert!(evidence.contains("80.0 % of that wait the load driver"), "{evidence}");
    let (evidence, ..) = found(answer(rule(), &held(false, 0, Some(45_000_000)), &waiting(50_000)));
    assert!(evidence.contains("throttled for 45,000.0 us"), "{evidence}");
    not_found(answer(rule(), &held(false, 50_000_000, Some(0)), &waiting(50_000)));
    not_found(answer(rule(), &held(true, 40_000_000, Some(0)), &waiting(100)));
    not_enough(answer(rule(), &held(false, 0, None), &waiting(50_000)));
}

#[test]
fn few_requests_are_not_enough_for_any_rule() {
    let mut linter = Linter::new(1);
    linter.observe(&request(&[154, 19]));
    let report = linter.report(&run(vec![]));
    assert_eq!(report.findings.len(), 5);
    report.findings.iter().for_each(|finding| not_enough(finding.answer.clone()));
    assert_eq!(report.exit_code(), 3);
}

#[test]
fn every_answer_has_words() {
    let mut linter = Linter::new(10_000_000);
    (0..REQUESTS).for_each(|_| linter.observe(&request(&[154, 19])));
    let report = linter.report(&run(vec![call("read", 2 * REQUESTS, REQUESTS), call("epoll_ctl", 24, 0)]));
    assert_eq!(report.exit_code(), 1);
    insta::assert_snapshot!(text(&report));
}

use proptest::prelude::*;

use super::*;
use crate::recording::{ClientTimes, Conservation, Ledger, Run, WriteCall};
use crate::stats::CallTotals;
use crate::stats::invariants::{accounts_disagree, disagree_beyond_steal};

const WRITEV: u16 = 20;
const WRITE: u16 = 1;

/// A request that adds up: `app` on its own CPU, everything else blocked.
fn request(path: &str, phases_ns: [u64; 7], writes: &[WriteCall]) -> Request {
    let mut request = Request { first_byte_ns: 1_000, phases_ns, path: path.into(), ..Request::default() };
    request.end_ns = request.first_byte_ns + request.wall_ns();
    for phase in Phase::ALL {
        let ns = phases_ns[phase as usize];
        let states = &mut request.states[phase as usize];
        *if phase == Phase::App { &mut states.own_cpu_ns } else { &mut states.blocked_ns } = ns;
    }
    request.write_calls[..writes.len()].copy_from_slice(writes);
    request.write_calls_len = writes.len() as u8;
    request.writes = writes.iter().filter(|write| write.result > 0).count() as u32;
    request.writes_eagain = writes.iter().filter(|write| write.is_eagain()).count() as u32;
    request
}

fn write(call: u16, result: i64, iovecs: u32) -> WriteCall {
    WriteCall { call, result, iovecs }
}

fn summary(requests: &[Request]) -> Summary {
    let mut summary = Summary::new();
    requests.iter().for_each(|request| summary.add(request));
    summary
}

#[test]
fn phases_and_states_are_summed() {
    let one = request("/", [0, 0, 100, 20, 300, 40, 0], &[]);
    let two = request("/", [0, 0, 200, 20, 500, 40, 0], &[]);
    let summary = summary(&[one, two]);
    assert_eq!(summary.requests(), 2);
    assert_eq!(summary.wall.sum_ns(), 1220);
    assert_eq!(summary.phase(Phase::App).wall.mean_ns(), 400.0);
    assert_eq!((summary.states().own_cpu_ns, summary.states().blocked_ns), (800, 420));
    assert_eq!((summary.invariants.requests, summary.invariants.defects), (2, 0));
}

#[test]
fn writes_are_counted_by_number_and_call() {
    let summary = summary(&[
        request("/", [0; 7], &[write(WRITEV, 165, 2)]),
        request("/", [0; 7], &[write(WRITEV, -11, 3), write(WRITEV, 165, 3)]),
        request("/", [0; 7], &[write(WRITEV, 118, 1), write(WRITE, 47, 1)]),
    ]);
    let writes = &summary.writes;
    assert_eq!(writes.per_response[..3], [0, 2, 1]);
    assert_eq!(writes.by_call[&WRITEV], CallTotals { calls: 3, bytes: 448, eagain: 1 });
    assert_eq!(writes.by_call[&WRITE], CallTotals { calls: 1, bytes: 47, eagain: 0 });
    let one = &writes.one_write;
    assert_eq!((one.responses, one.fewest_iovecs, one.most_iovecs), (2, Some(2), Some(3)));
    assert_eq!(one.by_call, BTreeMap::from([(WRITEV, 2)]));
}

#[test]
fn routes_are_bounded_and_none_is_lost() {
    let requests: Vec<_> = (0..200).map(|n| request(&format!("/{n}"), [0; 7], &[])).collect();
    let mut merged = summary(&requests[..100]);
    merged.merge(&summary(&requests[100..]));
    assert_eq!(merged.routes.len(), ROUTES_KEPT + 1);
    assert_eq!(merged.routes.values().sum::<u64>(), 200);
}

#[test]
fn a_request_that_does_not_add_up_is_a_defect_with_an_example() {
    let whole = request("/", [0, 0, 1, 2, 3, 4, 0], &[]);
    let gap = Request { end_ns: whole.end_ns + 5, index: 7, ..whole.clone() };
    let mut states = whole.clone();
    states.states[Phase::App as usize].own_cpu_ns += 1;
    let backwards = Request { end_ns: 999, ..whole.clone() };
    let early = Request {
        client: Some(ClientTimes { send_ns: 1_001, done_ns: 9_999, ..ClientTimes::default() }),
        ..whole.clone()
    };
    let late = Request {
        client: Some(ClientTimes { send_ns: 900, done_ns: 1_009, ..ClientTimes::default() }),
        write_tail_ns: 1,
        ..whole.clone()
    };
    let all = summary(&[whole, gap, states, backwards, early, late]);
    assert_eq!(all.invariants.defects, 5);
    insta::assert_snapshot!(all.invariants.example.as_ref().unwrap(), @"connection 0 request 7: its phases add up to 10 ns, its wall time is 15 ns");
    assert_eq!(all.before_arrival, ClientTerm { count: 2, sum_ns: 100, negative: 1 });
    assert_eq!(all.after_delivery.negative, 1);
}

#[test]
fn a_client_may_have_a_response_whose_delivery_was_not_seen_before_its_write_returns() {
    // Its write phase is 1,006..1,010, and nobody saw when in it the bytes were delivered.
    let unseen = request("/", [0, 0, 1, 2, 3, 4, 0], &[]);
    let done_at = |done_ns| Request {
        client: Some(ClientTimes { send_ns: 900, done_ns, ..ClientTimes::default() }),
        ..unseen.clone()
    };
    let within = summary(&[done_at(1_006), done_at(1_009), done_at(1_011)]);
    assert_eq!(within.invariants.defects, 0);
    assert_eq!(within.after_delivery, ClientTerm { count: 3, sum_ns: 1, negative: 0 });
    let before = summary(&[done_at(1_005)]);
    assert_eq!((before.invariants.defects, before.after_delivery.negative), (1, 1));
}

#[test]
fn violated_promises_of_a_run_are_told() {
    let run = |ledger, conservation| Run { ledger, conservation, ..Run::default() };
    let violated = |run: Run| Invariants::default().violated(&run).join("\n");

    let slack =
        Conservation { traced_cpu_ns: 12_000_000, schedstat_cpu_ns: 10_000_000, ..Conservation::default() };
    assert_eq!(violated(run(Ledger::default(), slack)), "", "2 ms are always allowed");
    let share = Conservation {
        traced_run_queue_ns: 1_004_000_000,
        schedstat_run_delay_ns: 1_000_000_000,
        ..Conservation::default()
    };
    assert_eq!(violated(run(Ledger::default(), share)), "", "0.5 % are always allowed");
    let ledger = Ledger {
        sent: Some(10),
        traced: 7,
        lost_ring_full: 1,
        defects: 2,
        defect_example: Some("queue -3 ns".into()),
        ..Ledger::default()
    };
    let conservation = Conservation {
        traced_cpu_ns: 1_006_000_000,
        schedstat_cpu_ns: 1_000_000_000,
        traced_run_queue_ns: 6_000_000,
        schedstat_run_delay_ns: 3_000_000,
        charged_cpu_ns: 2_000_000_000,
        ..Conservation::default()
    };
    insta::assert_snapshot!(violated(run(ledger, conservation)), @"
        ledger: 7 requests were traced, 0 recorded
        negative differences: 2 (queue -3 ns)
        ledger: requests that are unexplained: 2
        conservation: sched_switch saw 1006.000 ms of CPU, schedstat 1000.000 ms
        conservation: the hooks saw 6.000 ms of run queue, run_delay is 3.000 ms
        conservation: 2000.000 ms of CPU were charged to requests, the server used 1006.000 ms
        ");
}

#[test]
fn what_a_target_that_exited_did_not_read_was_on_its_way() {
    let ledger = |sent, traced| Ledger { sent: Some(sent), traced, ..Ledger::default() };
    let after = |mut ledger: Ledger, on_their_way| {
        ledger.target_exited(on_their_way);
        (ledger.mid_flight, ledger.unexplained())
    };
    assert_eq!(after(ledger(10, 8), 4), (2, Some(0)));
    assert_eq!(after(ledger(10, 2), 4), (4, Some(4)), "more than the connections can hold is a loss");
    assert_eq!(after(ledger(8, 10), 4), (0, Some(-2)));
}

#[test]
fn requests_of_other_clients_are_not_unexplained() {
    let ledger = |others, traced, lost_ring_full| Ledger {
        sent: Some(10),
        joined: 9,
        other_clients: others,
        traced,
        lost_ring_full,
        ..Ledger::default()
    };
    let unexplained =
        |others, traced, lost| ledger(others, traced, lost).unexplained().expect("there is a driver");
    assert_eq!((unexplained(0, 12, 0), unexplained(2, 12, 0), unexplained(2, 11, 0)), (-2, 0, 1));
    assert_eq!((unexplained(2, 11, 1), unexplained(2, 10, 1)), (0, 1));
    // Whose the three lost ones were is not known; that there are more than those is not explained.
    assert_eq!((unexplained(2, 12, 3), unexplained(0, 10, 3), unexplained(2, 16, 3)), (0, -3, -4));
    assert_eq!(ledger(2, 12, 0).joined_share(), Some(0.9));
}

proptest! {
    #[test]
    fn merged_is_as_added_together(
        phases in prop::collection::vec(prop::array::uniform7(0u64..10_000_000), 0..30),
        cut in any::<prop::sample::Index>(),
    ) {
        let requests: Vec<_> = phases.iter().map(|&p| request("/", p, &[write(WRITEV, 5, 2)])).collect();
        let (left, right) = requests.split_at(cut.index(requests.len() + 1));
        let mut merged = summary(left);
        merged.merge(&summary(right));
        prop_assert_eq!(merged, summary(&requests));
    }
}

#[test]
fn stolen_time_explains_as_much_as_was_stolen() {
    let theirs_ns = 1_000_000_000;
    assert!(!disagree_beyond_steal(1_004_000_000, theirs_ns, 0));
    assert!(disagree_beyond_steal(1_012_000_000, theirs_ns, 0));
    assert!(!disagree_beyond_steal(1_012_000_000, theirs_ns, 10_000_000));
    assert!(disagree_beyond_steal(1_050_000_000, theirs_ns, 10_000_000));
    assert!(disagree_beyond_steal(930_000_000, theirs_ns, 40_000_000));
}

#[test]
fn a_clock_the_kernel_skips_moves_time_between_its_accounts_and_keeps_their_sum() {
    let accounts = |traced_cpu_ns, traced_run_queue_ns| Conservation {
        traced_cpu_ns,
        schedstat_cpu_ns: 372_500_000,
        traced_run_queue_ns,
        schedstat_run_delay_ns: 464_700_000,
        ..Conservation::default()
    };
    assert_eq!(accounts_disagree(&accounts(379_200_000, 458_400_000)), (false, false));
    assert_eq!(accounts_disagree(&accounts(342_500_000, 494_700_000)), (true, true));
    assert_eq!(accounts_disagree(&accounts(379_200_000, 464_700_000)), (true, false));
    // As much as was waited after wake-ups may have become CPU time.
    let woken = Conservation { run_queue_after_wakeup_ns: 30_000_000, ..accounts(342_500_000, 494_700_000) };
    assert_eq!(accounts_disagree(&woken), (false, false));
    let woken = Conservation { run_queue_after_wakeup_ns: 29_000_000, ..woken };
    assert_eq!(accounts_disagree(&woken), (true, true));
    // On the way through the scheduler two microseconds a switch are nobody's for the kernel.
    let switched = Conservation { switches: 5_000, ..accounts(386_500_000, 464_700_000) };
    assert_eq!(accounts_disagree(&switched), (false, false));
    let switched = Conservation { switches: 2_000, ..switched };
    assert_eq!(accounts_disagree(&switched), (true, false));
    // Of a process that exited, the kernel has no account any more.
    let exited = Conservation { exited_processes: 1, ..accounts(379_200_000, 464_700_000) };
    assert_eq!(accounts_disagree(&exited), (false, false));
}

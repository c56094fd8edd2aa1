use super::text;
use crate::recording::{ClientTimes, Phase, Run, WriteCall};
use crate::report::fixture::{self, WRITE, WRITEV, leave_in, loaded, run, single, summary};
use crate::report::{LimitedBy, Report, Row, json, row};

fn report(rows: Vec<Row>) -> String {
    text(&Report::new(rows))
}

#[test]
fn a_run_that_held_everything() {
    insta::assert_snapshot!(report(vec![row(&run(), &loaded(), Some(&single()))]), @"
        node-http hello: 23,419 requests/s · 42.4 us CPU per request · largest phase app (parse+handler)
            63 % of own CPU · one write per response: held, writev

          requests/s       23,419 (23,256 .. 23,529, 3 untraced rounds)
          server CPU       us per request: 42.4 (42.2 .. 42.8, 3 untraced rounds)
          client latency   us: p50 1,340.0 · p90 1,600.0 · p99 2,450.0 · p99.9 too few · max 9,876.5 (32
                           connections, untraced)
                           us, mean, traced: before arrival 1.20 + phases 1,015.7 + after delivery 4.00
          tracing ratio    1.030 (server CPU per request, traced / untraced) · server core 99.4 % busy
                           untraced, 98.9 % traced
          limit            server · server core 99.4 % busy · client core 70.0 % busy · Little's law off by
                           0.47 % · 0 reconnects

          server CPU per request by phase (traced)
                                          us    share
            read                        2.00   11.9 %
            app (parse+handler)         9.50   56.7 %
            - user                      8.00   47.8 %
            - syscalls                  1.50    9.0 %
            write, until delivery       2.90   17.3 %
            write tail, after delivery  0.70    4.2 %
            between requests            1.65    9.9 %
            total                       16.8  100.0 %

          latency by phase, us: 32 connections, traced; alone: at one connection
                                    mean      p50      p99  alone: mean   p50      p99
            queue                1,000.0    999.9  1,098.8         6.00  6.00  too few
            read                    2.00     2.00     2.00         2.00  2.00  too few
            app (parse+handler)     10.8     10.8     11.8         10.0  10.1  too few
            write                   3.00     3.00     3.00         3.00  3.00  too few
            whole request        1,015.7  1,015.8  1,115.1         21.0  21.1  too few
            of these, mean us: wake-up in queue 1.50 · after delivery, outside the sum: write tail 0.70
            32 connections waited 21.0 us for accept, mean
            at saturation the wall time is mostly queue (98.4 %): it says how many connections there were,
                not what the server costs

          latency by what the thread did, mean us per request
                                 own CPU  other CPU  run queue  blocked  unknown
            queue                   0.00      999.0       1.00     0.00     0.00
            read                    2.00       0.00       0.00     0.00     0.00
            app (parse+handler)     10.8       0.00       0.00     0.00     0.00
            write                   2.90       0.00       0.10     0.00     0.00
            whole request           15.7      999.0       1.10     0.00     0.00

          who held the core while the server waited for it
                                    thread    ms   share
            ksoftirqd/0                 12  1.50  75.0 %
            tracer (tracer itself)      77  0.50  25.0 %

          syscalls per request: 2.141
                        calls  EAGAIN  wall us  CPU us
            read        1.016   0.000     1.93    1.83
            writev      1.000   0.000     1.90    1.80
            epoll_wait  0.125   0.000     0.24    0.23

          writes per response: 1.000
            1 write: 2,000 responses
            writev: 2,000 calls, 165.0 bytes each, 0 EAGAIN
            in one write: 2,000 responses, 100.0 %, by writev 2,000; buffers 2.00 (2 .. 2)

          responses        2,000 × 200 (118 bytes in, 165 bytes out per request)
          ledger           2,000 sent = 2,000 traced + 0 mid-flight + 0 ring full + 0 connections full + 0
                           unexplained: held
                           lost 0.00 % · 0 unmatched edges · 0 inferred · 0 negative differences: held
                           2,000 of 2,000 joined with the driver's own times (100.0 %)
          conservation     CPU: sched_switch, schedstat: 33.50 and 33.55 ms, -0.15 %: held
          conservation     run queue: hooks, run_delay: 2.00 and 2.01 ms, -0.50 %: held
          counters         records 2,040

        kernel 6.18.0 · CPU Example CPU · CPUs 2 · memory 8 GiB · congestion control bbr · clock tsc
        ");
}

#[test]
fn a_run_of_other_peoples_traffic_that_broke_everything() {
    let mut run = Run { load: None, rounds: Vec::new(), server_cpus: Vec::new(), ..run() };
    run.name = "42 (node)".into();
    run.workload.clear();
    run.ended_early = "interrupted".into();
    run.ledger.sent = None;
    run.ledger.lost_ring_full = 30;
    run.ledger.traced = 3;
    run.conservation.schedstat_cpu_ns = 20_000_000;
    let mut two_writes = fixture::request(1);
    let calls = [
        WriteCall { call: WRITEV, result: 118, iovecs: 1 },
        WriteCall { call: WRITE, result: -11, iovecs: 1 },
        WriteCall { call: WRITE, result: 47, iovecs: 1 },
    ];
    leave_in(&mut two_writes, &calls);
    two_writes.client = None;
    two_writes.blocked_call_plus_one = 203;
    two_writes.path = "/users/42".into();
    let mut broken = fixture::request(2);
    broken.states[Phase::App as usize].own_cpu_ns += 1;
    broken.client = Some(ClientTimes { send_ns: 0, done_ns: u64::MAX / 2, ..ClientTimes::default() });
    let summary = summary([fixture::request(3), two_writes, broken]);
    insta::assert_snapshot!(report(vec![row(&run, &summary, None)]), @"
        42 (node): 34 requests/s · 6,666.7 us CPU per request · largest phase app (parse+handler) 63 % of
            own CPU · one write per response: broken by 1 of 3 · UNRELIABLE, 90.9 % of the requests were
            lost · DEFECT, see below

          requests/s       34 (traced, one window)
          server CPU       us per request: 6,666.7 (traced, one window)
          limit            not known: the load was not ours

          server CPU per request by phase (traced)
                                               us    share
            read                             2.00   0.02 %
            app (parse+handler)              9.50   0.09 %
            - user                           8.00   0.07 %
            - syscalls                       1.50   0.01 %
            write, until delivery            2.90   0.03 %
            write tail, after delivery       0.70  <0.01 %
            requests not traced in full  10,051.6   90.0 %
            between requests              1,100.0    9.9 %
            total                        11,166.7  100.0 %

          latency by phase, us: traced
                                  mean    p50      p99
            queue                900.2  900.6  too few
            read                  2.00   2.00  too few
            app (parse+handler)   9.80   9.81  too few
            write                 3.00   3.00  too few
            whole request        915.0  915.5  too few
            of these, mean us: wake-up in queue 1.50 · after delivery, outside the sum: write tail 0.70
            32 connections waited 21.0 us for accept, mean
            at saturation the wall time is mostly queue (98.4 %): it says how many connections there were,
                not what the server costs

          latency by what the thread did, mean us per request
                                 own CPU  other CPU  run queue  blocked  unknown
            queue                   0.00      899.2       1.00     0.00     0.00
            read                    2.00       0.00       0.00     0.00     0.00
            app (parse+handler)     9.80       0.00       0.00     0.00     0.00
            write                   2.90       0.00       0.10     0.00     0.00
            whole request           14.7      899.2       1.10     0.00     0.00
            app blocked in futex 1 (requests)

          who held the core while the server waited for it
                                    thread    ms   share
            ksoftirqd/0                 12  1.50  75.0 %
            tracer (tracer itself)      77  0.50  25.0 %

          syscalls per request: 1,427.333
                          calls  EAGAIN  wall us   CPU us
            read        677.333   0.000  1,286.9  1,219.2
            writev      666.667   0.000  1,266.7  1,200.0
            epoll_wait   83.333   0.000    158.3    150.0

          writes per response: 1.333
            1 write: 2 responses · 2 writes: 1 response
            writev: 3 calls, 149.3 bytes each, 0 EAGAIN
            write: 1 call, 47.0 bytes each, 1 EAGAIN
            in one write: 2 responses, 66.7 %, by writev 2; buffers 2.00 (2 .. 2)

          responses        3 × 200 (118 bytes in, 165 bytes out per request)
          routes           GET / 2 · GET /users/42 1
          ledger           3 traced + 0 mid-flight + 30 ring full + 0 connections full (not our load: what
                           was sent is not known)
                           lost 90.9 % · 0 unmatched edges · 0 inferred · 0 negative differences: held
          UNRELIABLE       more than 0.10 % of the requests were lost: no verdict
          conservation     CPU: sched_switch, schedstat: 33.50 and 20.00 ms, 67.5 %: DEFECT
          conservation     run queue: hooks, run_delay: 2.00 and 2.01 ms, -0.50 %: held
          counters         records 2,040
          note             ended early: interrupted
          DEFECT           closure: requests that do not add up: 1 (connection 2 request 0: its thread
                           states in app add up to 9803 ns, the phase is 9802 ns)
          DEFECT           conservation: sched_switch saw 33.500 ms of CPU, schedstat 20.000 ms

        kernel 6.18.0 · CPU Example CPU · CPUs 2 · memory 8 GiB · congestion control bbr · clock tsc
        ");
}

#[test]
fn several_servers_are_compared_and_the_client_bound_has_no_rank() {
    let named = |name: &str| Run { name: name.into(), ..run() };
    let mut client_bound = named("builtin");
    for round in &mut client_bound.rounds {
        round.server_cpu_ns = round.load.elapsed_ns / 2;
        round.load.client_cpu_ns = round.load.elapsed_ns;
        round.load.requests *= 3;
    }
    let mut slower = named("express");
    slower.rounds.iter_mut().for_each(|round| round.load.requests /= 2);
    let mut failed = named("fastify");
    failed.rounds[0].load.errors = 12;
    failed.rounds[0].load.first_error = Some("status 404 instead of 200".into());
    let rows: Vec<_> = [&client_bound, &slower, &run(), &failed].map(|run| row(run, &loaded(), None)).into();
    assert_eq!(rows[0].limit.by, LimitedBy::Client);
    assert!(rows[0].answer.starts_with("builtin hello: "));
    let text = report(rows);
    let comparison = &text[text.find("  comparison").unwrap()..];
    insta::assert_snapshot!(comparison, @"
          comparison hello
            server     rank   req/s  CPU us   p50 us   p99 us  calls  writes   in one  ratio   limit
            node-http     1  23,419    42.4  1,340.0  2,450.0   2.14    1.00  100.0 %   1.03  server
            express       2  11,710    84.8  1,340.0  2,450.0   2.14    1.00  100.0 %   1.03  server
            builtin       -  70,258    7.12  1,340.0  2,450.0   2.14    1.00  100.0 %   1.04  client
            fastify       -       -    42.4  1,340.0  2,450.0   2.14    1.00  100.0 %   1.03  server
            CPU, calls, writes: per request; in one: responses in one write; ratio: traced / untraced CPU

        kernel 6.18.0 · CPU Example CPU · CPUs 2 · memory 8 GiB · congestion control bbr · clock tsc
        ");
    assert!(text.contains("INVALID, 12 responses failed: status 404 instead of 200"));
}

#[test]
fn no_line_is_longer_than_100_columns() {
    let long = "a-very-long-name-of-a-server-with-no-blank-in-it-".repeat(5);
    let mut run = Run { name: long.clone(), workload: format!("GET /{long}"), ..run() };
    run.notes = vec![format!("{long} {long}")];
    run.syscalls[0].name.clone_from(&long);
    run.holders[0].name.clone_from(&long);
    run.conservation.traced_cpu_ns = u64::MAX / 4;
    run.ledger.defects = u64::MAX;
    run.ledger.defect_example = Some(long.clone());
    run.environment.cpu_model.clone_from(&long);
    for load in run.rounds.iter_mut().map(|round| &mut round.load).chain(&mut run.load) {
        load.latency.max_ns = u64::MAX;
        load.latency.p50_ns = u64::MAX;
        load.connections = u32::MAX;
    }
    let mut request = fixture::request(1);
    request.path = format!("/{long}").into();
    let summary = summary([request, fixture::request(2)]);
    let text = report(vec![row(&run, &summary, Some(&summary)), row(&run, &summary, None)]);
    for line in text.lines() {
        assert!(line.chars().count() <= 100, "{} columns: {line}", line.chars().count());
        assert_eq!(line, line.trim_end());
    }
}

#[test]
fn a_run_without_requests_says_so() {
    let text = report(vec![row(&Run { name: "idle".into(), ..Run::default() }, &summary([]), None)]);
    assert!(text.starts_with("idle: no request was seen\n"), "{text}");
}

#[test]
fn the_json_is_the_model() {
    let report = Report::new(vec![row(&run(), &loaded(), Some(&single()))]);
    let value: serde_json::Value = serde_json::from_str(&json(&report)).unwrap();
    assert_eq!(value["schema"], 1);
    let row = &value["rows"][0];
    assert_eq!(row["ledger"]["unexplained"], 0);
    assert_eq!(row["limit"]["by"], "server");
    assert_eq!(row["latency"][4]["phase"], "app");
    assert_eq!(row["cpu"]["read_ns"], 2000.0);
    assert_eq!(row["writes"]["one_write"]["share"], 1.0);
    assert_eq!(row["defects"], serde_json::json!([]));
}

#[test]
fn the_cpu_ledger_adds_up() {
    let cpu = row(&run(), &loaded(), None).cpu;
    let sum = cpu.own_ns() + cpu.unfinished_ns + cpu.between_requests_ns;
    assert!((sum - cpu.total_ns).abs() < 1e-6, "{sum} {}", cpu.total_ns);
}

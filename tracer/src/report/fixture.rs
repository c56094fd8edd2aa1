//! A hand-made run for tests: node-http under 32 connections, everything held.

use crate::recording::*;
use crate::stats::Summary;

pub(crate) const REQUESTS: u64 = 2_000;
pub(crate) const WRITEV: u16 = 20;
pub(crate) const WRITE: u16 = 1;

/// Request number `n`, which leaves in one writev.
pub(crate) fn request(n: u64) -> Request {
    let queue_ns = 900_000 + n * 100;
    let phases_ns = [0, 0, queue_ns, 2_000, 9_800 + n, 3_000, 0];
    let first_byte_ns = 1_000_000 * n;
    let mut request = Request {
        connection_id: n % 32,
        index: (n / 32) as u32,
        method: "GET".into(),
        path: "/".into(),
        status: 200,
        first_byte_ns,
        end_ns: first_byte_ns + phases_ns.iter().sum::<u64>(),
        phases_ns,
        write_tail_ns: 700,
        wakeup_ns: 1_500,
        cpu: RequestCpu {
            read_ns: 2_000,
            app_user_ns: 8_000,
            app_syscall_ns: 1_500,
            write_ns: 2_900,
            write_tail_ns: 700,
        },
        reads: 1,
        bytes_in: 118,
        bytes_out: 165,
        ..Request::default()
    };
    request.client = Some(ClientTimes {
        send_ns: first_byte_ns.saturating_sub(1_200),
        done_ns: request.end_ns + 4_000,
        ..ClientTimes::default()
    });
    let state = |phase: Phase| phase as usize;
    request.states[state(Phase::Queue)].other_cpu_ns = queue_ns - 1_000;
    request.states[state(Phase::Queue)].run_queue_ns = 1_000;
    request.states[state(Phase::Read)].own_cpu_ns = 2_000;
    request.states[state(Phase::App)].own_cpu_ns = 9_800 + n;
    request.states[state(Phase::Write)].own_cpu_ns = 2_900;
    request.states[state(Phase::Write)].run_queue_ns = 100;
    leave_in(&mut request, &[WriteCall { call: WRITEV, result: 165, iovecs: 2 }]);
    request
}

/// Sets the write calls of a response.
pub(crate) fn leave_in(request: &mut Request, writes: &[WriteCall]) {
    request.write_calls = [WriteCall::default(); WRITES_KEPT];
    request.write_calls[..writes.len()].copy_from_slice(writes);
    request.write_calls_len = writes.len() as u8;
    request.writes = writes.iter().filter(|write| write.result > 0).count() as u32;
    request.writes_eagain = writes.iter().filter(|write| write.is_eagain()).count() as u32;
}

pub(crate) fn summary(requests: impl IntoIterator<Item = Request>) -> Summary {
    let mut summary = Summary::new();
    requests.into_iter().for_each(|request| summary.add(&request));
    summary
}

pub(crate) fn loaded() -> Summary {
    summary((0..REQUESTS).map(request))
}

/// The same at one connection: hardly any queue.
pub(crate) fn single() -> Summary {
    summary((0..500).map(|n| {
        let mut request = request(n);
        let queue = Phase::Queue as usize;
        request.phases_ns[queue] = 6_000;
        request.states[queue] = ThreadStates { blocked_ns: 6_000, ..ThreadStates::default() };
        request.end_ns = request.first_byte_ns + request.wall_ns();
        request.client = None;
        request
    }))
}

fn load(requests: u64, elapsed_ns: u64) -> LoadTotals {
    LoadTotals {
        connections: 32,
        kept_in_flight: Some(32),
        requests,
        elapsed_ns,
        client_cpu_ns: elapsed_ns / 10 * 7,
        latency: Percentiles {
            count: requests,
            mean_ns: 1_360_000.0,
            p50_ns: 1_340_000,
            p90_ns: 1_600_000,
            p99_ns: Some(2_450_000),
            p999_ns: None,
            max_ns: 9_876_543,
        },
        ..LoadTotals::default()
    }
}

fn round(traced: bool, elapsed_ns: u64, server_cpu_ns: u64) -> Round {
    Round { traced, load: load(REQUESTS, elapsed_ns), server_cpu_ns, ..Round::default() }
}

fn syscall(name: &str, calls: u64, eagain: u64) -> SyscallTotals {
    SyscallTotals { name: name.into(), calls, eagain, wall_ns: calls * 1_900, cpu_ns: calls * 1_800 }
}

fn holder(tid: u32, name: &str, held_ns: u64, is_tracer: bool) -> HolderTotals {
    HolderTotals { tid, process_id: tid, name: name.into(), held_ns, is_tracer }
}

pub(crate) fn run() -> Run {
    Run {
        schema_version: SCHEMA_VERSION,
        tracer_version: "0.1.0".into(),
        name: "node-http".into(),
        workload: "hello".into(),
        environment: Environment {
            kernel: "6.18.0".into(),
            cpu_model: "Example CPU".into(),
            cpus: 2,
            memory_bytes: 8 << 30,
            governor: String::new(),
            congestion_control: "bbr".into(),
            clock_source: "tsc".into(),
        },
        window_ns: 88_000_000,
        connections: 32,
        accepted: 32,
        accept_wait_ns: 32 * 21_000,
        syscalls: vec![syscall("read", 2_032, 0), syscall("writev", 2_000, 0), syscall("epoll_wait", 250, 0)],
        holders: vec![holder(12, "ksoftirqd/0", 1_500_000, false), holder(77, "tracer", 500_000, true)],
        ledger: Ledger {
            sent: Some(REQUESTS),
            joined: REQUESTS,
            traced: REQUESTS,
            kernel_counters: vec![("records".into(), 2_040), ("ring_full".into(), 0)],
            ..Ledger::default()
        },
        conservation: Conservation {
            traced_cpu_ns: 33_500_000,
            schedstat_cpu_ns: 33_550_000,
            traced_run_queue_ns: 2_000_000,
            run_queue_after_wakeup_ns: 500_000,
            switches: 10,
            schedstat_run_delay_ns: 2_010_000,
            charged_cpu_ns: REQUESTS * 15_100,
            stolen_ns: 0,
            exited_processes: 0,
        },
        load: Some(load(REQUESTS, 88_000_000)),
        rounds: vec![
            round(false, 85_000_000, 32_000_000 + 52_500_000),
            round(true, 88_000_000, 87_000_000),
            round(false, 86_000_000, 85_500_000),
            round(false, 85_400_000, 84_800_000),
        ],
        server_cpus: vec![0],
        client_cpus: vec![1],
        ..Run::default()
    }
}

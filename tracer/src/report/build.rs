//! From a run and its summary to a row of the report.

use std::collections::BTreeMap;

use super::limit::Limit;
use super::model::*;
use super::{counted, percent, thousands, us};
use crate::recording::{Percentiles, Phase, Run, TARGET_EXITED, ThreadStates, syscall_name};
use crate::stats::{
    self, Distribution, Spread, Summary, Writes, accounts_disagree, answered_requests, rounds,
};

/// Below this share of the requests due the rate asked for was not reached.
const RATE_REACHED: f64 = 0.99;

/// The row of a run; `single` is the same server at one connection.
pub fn row(run: &Run, loaded: &Summary, single: Option<&Summary>) -> Row {
    let (failed_responses, first_failure) = stats::failed_responses(run);
    let cpu_per_request = stats::cpu_per_request_ns(run);
    let mean = |sum: u64| sum as f64 / loaded.requests().max(1) as f64;
    let mut row = Row {
        server: run.name.clone(),
        workload: run.workload.clone(),
        answer: String::new(),
        requests: loaded.requests(),
        connections: run.load.as_ref().map(|load| load.connections),
        requests_per_s: rate(run, loaded).filter(|_| failed_responses == 0),
        tracing: tracing_ratio(run),
        cpu_per_request,
        client: client(run, loaded),
        limit: Limit::of(run),
        ended_early: run.ended_early.clone(),
        failed_responses,
        first_failure: first_failure.map(str::to_owned),
        cpu: cpu(run, loaded),
        latency: Phase::ALL.map(|phase| phase_latency(phase, loaded, single)).into(),
        wall: PhaseLatency {
            phase: None,
            loaded: latency(&loaded.wall),
            single: single.map(|summary| latency(&summary.wall)),
            states: states(loaded.states(), loaded.requests()),
        },
        parts: PhaseParts {
            wakeup_ns: mean(loaded.wakeup_ns),
            body_read_ns: mean(loaded.body_read_ns),
            body_wait_ns: mean(loaded.body_wait_ns),
            write_gap_ns: mean(loaded.write_gap_ns),
            write_tail_ns: mean(loaded.write_tail_ns),
            acked_after_ns: loaded.acked_after.mean_ns(),
        },
        queue_share: share(loaded.phase(Phase::Queue).wall.sum_ns(), loaded.wall.sum_ns()),
        inferred_requests: loaded.inferred,
        blocked_calls: most_first(
            loaded.blocked_calls.iter().map(|(call, count)| (syscall_name(*call), *count)),
        ),
        holders: run.holders.clone(),
        syscalls: syscalls(run),
        syscalls_per_request: stats::syscalls_per_request(run),
        writes: writes(&loaded.writes, loaded.requests()),
        downstream: downstream(loaded),
        before_downstream: (loaded.before_downstream.count() > 0).then(|| latency(&loaded.before_downstream)),
        statuses: loaded.statuses.clone(),
        routes: most_first(loaded.routes.iter().map(|((method, path), n)| (format!("{method} {path}"), *n))),
        bytes_in_per_request: mean(loaded.bytes_in),
        bytes_out_per_request: mean(loaded.bytes_out),
        accept_wait: (run.accepted > 0).then(|| AcceptWait {
            connections: run.accepted,
            mean_ns: run.accept_wait_ns as f64 / run.accepted as f64,
        }),
        ledger: LedgerReport {
            counts: run.ledger.clone(),
            unexplained: run.ledger.unexplained(),
            loss_share: run.ledger.loss_share(),
            joined_share: run.ledger.joined_share(),
        },
        conservation: conservation(run),
        environment: run.environment.clone(),
        notes: notes(run),
        defects: defects(run, loaded, single),
        unreliable: run.ledger.loss_share() > LOSS_LIMIT,
    };
    row.answer = answer(&row);
    row
}

fn answer(row: &Row) -> String {
    let name = format!("{} {}", row.server, row.workload);
    let mut parts = Vec::new();
    match row.requests_per_s {
        Some(rate) => parts.push(format!("{} requests/s", thousands(rate.per_s.median.round() as u64))),
        None if row.ended_early == TARGET_EXITED => {
            parts.push(format!("INVALID, {TARGET_EXITED} in mid-run"))
        }
        None if row.failed_responses > 0 => parts.push(format!(
            "INVALID, {} failed: {}",
            counted(row.failed_responses, "response"),
            row.first_failure.as_deref().unwrap_or("no reason was kept")
        )),
        None => parts.push("no request was seen".to_owned()),
    }
    if let Some(cpu) = row.cpu_per_request {
        parts.push(format!("{} us CPU per request", us(cpu.ns.median)));
    }
    if let Some((phase, share)) = row.cpu.largest() {
        parts.push(format!("largest phase {} {:.0} % of own CPU", phase.label(), share * 100.0));
    }
    if row.requests > 0 {
        parts.push(format!("one write per response: {}", one_write(&row.writes.one_write, row.requests)));
    }
    if row.ended_early == TARGET_EXITED && row.requests_per_s.is_some() {
        parts.push(format!("{TARGET_EXITED} in mid-run"));
    }
    if row.unreliable {
        parts.push(format!("UNRELIABLE, {} of the requests were lost", percent(row.ledger.loss_share)));
    }
    if !row.defects.is_empty() {
        parts.push("DEFECT, see below".to_owned());
    }
    format!("{}: {}", name.trim(), parts.join(" · "))
}

fn one_write(one: &OneWriteReport, requests: u64) -> String {
    if one.responses < requests {
        let others = requests - one.responses;
        return format!("broken by {} of {}", thousands(others), thousands(requests));
    }
    match one.calls.as_slice() {
        [only] => format!("held, {}", only.name),
        calls => {
            let shares = calls.iter().map(|c| format!("{} {}", c.name, percent(share(c.count, requests))));
            format!("held, {}", shares.collect::<Vec<_>>().join(", "))
        }
    }
}

fn rate(run: &Run, loaded: &Summary) -> Option<Rate> {
    if let Some(per_s) = Spread::of(rounds(run, false).map(|round| round.load.rate())) {
        return Some(Rate { per_s, traced: false });
    }
    let window = match &run.load {
        Some(load) => load.rate(),
        None if run.window_ns == 0 => 0.0,
        None => loaded.requests() as f64 * 1e9 / run.window_ns as f64,
    };
    Spread::of([window]).filter(|rate| rate.median > 0.0).map(|per_s| Rate { per_s, traced: true })
}

/// Rounds come in pairs, the untraced one first: neighbours in time share the machine's mood.
fn tracing_ratio(run: &Run) -> Option<TracingRatio> {
    let pairs =
        || rounds(run, false).zip(rounds(run, true)).filter(|(untraced, _)| untraced.server_cpu_ns > 0);
    let ratio = Spread::of(pairs().map(|(untraced, traced)| {
        traced.server_cpu_per_request_ns() / untraced.server_cpu_per_request_ns()
    }))?;
    let cpus = run.server_cpus.len();
    let busy = |traced| {
        let shares =
            rounds(run, traced).map(|round| round.server_cpu_ns as f64 / round.load.elapsed_ns as f64);
        Spread::of(shares).filter(|_| cpus > 0).map(|spread| spread.median / cpus as f64)
    };
    Some(TracingRatio { ratio, server_busy_untraced: busy(false), server_busy_traced: busy(true) })
}

fn client(run: &Run, loaded: &Summary) -> Option<ClientLatency> {
    let mut untraced: Vec<_> = rounds(run, false).map(|round| &round.load).collect();
    untraced.sort_by(|a, b| a.rate().total_cmp(&b.rate()));
    let middle = untraced.get(untraced.len().saturating_sub(1) / 2).copied();
    let load = middle.or(run.load.as_ref()).filter(|load| load.requests > 0)?;
    Some(ClientLatency {
        percentiles: load.latency,
        traced: middle.is_none(),
        before_arrival_ns: loaded.before_arrival.mean_ns(),
        after_delivery_ns: loaded.after_delivery.mean_ns(),
    })
}

fn cpu(run: &Run, loaded: &Summary) -> CpuByPhase {
    let mean = |ns: u64| ns as f64 / loaded.requests().max(1) as f64;
    let own_ns = loaded.cpu.total_ns();
    let charged_ns = run.conservation.charged_cpu_ns.max(own_ns);
    let total_ns = run.conservation.traced_cpu_ns.max(charged_ns);
    CpuByPhase {
        read_ns: mean(loaded.cpu.read_ns),
        app_user_ns: mean(loaded.cpu.app_user_ns),
        app_syscall_ns: mean(loaded.cpu.app_syscall_ns),
        write_ns: mean(loaded.cpu.write_ns),
        write_tail_ns: mean(loaded.cpu.write_tail_ns),
        unfinished_ns: mean(charged_ns - own_ns),
        between_requests_ns: mean(total_ns - charged_ns),
        total_ns: mean(total_ns),
    }
}

fn phase_latency(phase: Phase, loaded: &Summary, single: Option<&Summary>) -> PhaseLatency {
    let summary = loaded.phase(phase);
    PhaseLatency {
        phase: Some(phase),
        loaded: latency(&summary.wall),
        single: single.map(|single| latency(&single.phase(phase).wall)),
        states: states(summary.states, loaded.requests()),
    }
}

fn latency(distribution: &Distribution) -> Latency {
    let Percentiles { mean_ns, p50_ns, p99_ns, .. } = distribution.percentiles();
    Latency { mean_ns, p50_ns, p99_ns }
}

fn states(sums: ThreadStates, requests: u64) -> StateMeans {
    let mean = |ns: u64| ns as f64 / requests.max(1) as f64;
    StateMeans {
        own_cpu_ns: mean(sums.own_cpu_ns),
        other_cpu_ns: mean(sums.other_cpu_ns),
        run_queue_ns: mean(sums.run_queue_ns),
        blocked_ns: mean(sums.blocked_ns),
        unknown_ns: mean(sums.unknown_ns),
    }
}

fn syscalls(run: &Run) -> Vec<SyscallPerRequest> {
    let requests = answered_requests(run).max(1) as f64;
    run.syscalls
        .iter()
        .map(|syscall| SyscallPerRequest {
            name: syscall.name.clone(),
            calls: syscall.calls,
            calls_per_request: syscall.calls as f64 / requests,
            eagain_per_request: syscall.eagain as f64 / requests,
            wall_ns_per_request: syscall.wall_ns as f64 / requests,
            cpu_ns_per_request: syscall.cpu_ns as f64 / requests,
        })
        .collect()
}

fn writes(writes: &Writes, requests: u64) -> WritesReport {
    let names = (0..=stats::MOST_WRITES_COUNTED).map(|n| n.to_string()).chain(["more".to_owned()]);
    let per_response = names.zip(writes.per_response);
    let kept: u64 = writes.by_call.values().map(|totals| totals.calls).sum();
    let mut calls: Vec<_> = writes
        .by_call
        .iter()
        .map(|(call, totals)| WriteCallReport {
            name: syscall_name((*call).into()).into_owned(),
            calls: totals.calls,
            mean_bytes: totals.bytes as f64 / totals.calls.max(1) as f64,
            eagain: totals.eagain,
        })
        .collect();
    calls.sort_by_key(|call| std::cmp::Reverse(call.calls));
    let one = &writes.one_write;
    WritesReport {
        mean: writes.total as f64 / requests.max(1) as f64,
        per_response: per_response.map(|(name, count)| NamedCount { name, count }).collect(),
        calls,
        not_kept: writes.total.saturating_sub(kept),
        eagain: writes.eagain,
        one_write: OneWriteReport {
            responses: one.responses,
            share: share(one.responses, requests),
            calls: named_calls(&one.by_call),
            mean_iovecs: one.iovecs as f64 / one.responses.max(1) as f64,
            fewest_iovecs: one.fewest_iovecs,
            most_iovecs: one.most_iovecs,
        },
    }
}

fn downstream(summary: &Summary) -> Vec<DownstreamReport> {
    let mut peers: Vec<_> = summary
        .downstream
        .iter()
        .map(|(peer, downstream)| {
            let requests = downstream.wait.count();
            let mean = |sum: u64| sum as f64 / requests.max(1) as f64;
            DownstreamReport {
                peer: peer.to_string(),
                requests,
                round_trips_per_request: mean(downstream.round_trips),
                inferred_share: share(downstream.inferred, downstream.round_trips),
                wait: latency(&downstream.wait),
                bytes_out_per_request: mean(downstream.bytes_out),
                bytes_in_per_request: mean(downstream.bytes_in),
            }
        })
        .collect();
    let waited_ns = |peer: &DownstreamReport| peer.wait.mean_ns * peer.requests as f64;
    peers.sort_by(|a, b| waited_ns(b).total_cmp(&waited_ns(a)));
    peers
}

fn named_calls(counts: &BTreeMap<u16, u64>) -> Vec<NamedCount> {
    most_first(counts.iter().map(|(call, count)| (syscall_name((*call).into()), *count)))
}

fn most_first(counts: impl Iterator<Item = (impl Into<String>, u64)>) -> Vec<NamedCount> {
    let mut named: Vec<_> = counts.map(|(name, count)| NamedCount { name: name.into(), count }).collect();
    named.sort_by_key(|named| std::cmp::Reverse(named.count));
    named
}

fn conservation(run: &Run) -> Vec<ConservationLine> {
    let accounts = &run.conservation;
    let (cpu_disagrees, run_queue_disagrees) = accounts_disagree(accounts);
    let line = |what, traced_ns: u64, kernel_ns: u64, disagrees: bool| ConservationLine {
        what,
        traced_ns,
        kernel_ns,
        stolen_ns: accounts.stolen_ns,
        exited_processes: accounts.exited_processes,
        difference: (kernel_ns > 0 && accounts.exited_processes == 0)
            .then(|| (traced_ns as f64 - kernel_ns as f64) / kernel_ns as f64),
        held: !disagrees,
    };
    let (cpu, run_queue) = ("CPU: sched_switch, schedstat", "run queue: hooks, run_delay");
    vec![
        line(cpu, accounts.traced_cpu_ns, accounts.schedstat_cpu_ns, cpu_disagrees),
        line(run_queue, accounts.traced_run_queue_ns, accounts.schedstat_run_delay_ns, run_queue_disagrees),
    ]
}

fn notes(run: &Run) -> Vec<String> {
    let early = (!run.ended_early.is_empty()).then(|| format!("ended early: {}", run.ended_early));
    let others = (run.ledger.other_clients > 0).then(|| {
        format!(
            "other clients used the server too: {}, which are in every figure but the rate and the client's latency",
            counted(run.ledger.other_clients, "request")
        )
    });
    let (asked, answered) = run
        .load
        .iter()
        .filter_map(|load| Some((load.asked?, load.requests + load.errors)))
        .fold((0, 0), |sum, load| (sum.0 + load.0, sum.1 + load.1));
    let missed = ((answered as f64) < RATE_REACHED * asked as f64).then(|| {
        format!(
            "the rate asked for was not reached: {} of {} requests that were due were answered",
            thousands(answered),
            thousands(asked)
        )
    });
    early.into_iter().chain(missed).chain(others).chain(run.notes.iter().cloned()).collect()
}

fn defects(run: &Run, loaded: &Summary, single: Option<&Summary>) -> Vec<String> {
    let mut defects = loaded.invariants.violated(run);
    // The run's own accounts are about the load; of the single connection only its requests are known.
    let alone = single.and_then(|single| single.invariants.of_requests());
    defects.extend(alone.map(|defect| format!("at one connection: {defect}")));
    defects
}

fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

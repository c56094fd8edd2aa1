//! The tables of one server: CPU and latency by phase, thread states, holders, syscalls, writes.

use super::{LISTED, listed};
use crate::recording::Phase;
use crate::report::{
    Latency, Page, PhaseLatency, Row, StateMeans, SyscallPerRequest, counted, decimals, percent, thousands,
    us,
};

/// Rows of a table before the rest is summed up.
const TABLE_ROWS: usize = 12;
/// Above this share of the wall time, `queue` says how many connections there were.
const QUEUE_SPEAKS_OF_CONNECTIONS: f64 = 0.5;

pub(super) fn cpu(page: &mut Page, row: &Row) {
    let cpu = &row.cpu;
    let line = |name: &str, ns: f64| {
        let share = if cpu.total_ns > 0.0 { ns / cpu.total_ns } else { 0.0 };
        vec![name.to_owned(), us(ns), percent(share)]
    };
    let mut rows = vec![
        line("read", cpu.read_ns),
        line(Phase::App.label(), cpu.app_ns()),
        line("- user", cpu.app_user_ns),
        line("- syscalls", cpu.app_syscall_ns),
        line("write, until delivery", cpu.write_ns),
        line("write tail, after delivery", cpu.write_tail_ns),
        line("between requests", cpu.between_requests_ns),
        line("total", cpu.total_ns),
    ];
    if cpu.unfinished_ns > 0.0 {
        rows.insert(6, line("requests not traced in full", cpu.unfinished_ns));
    }
    page.table("server CPU per request by phase (traced)", &["", "us", "share"], rows);
}

pub(super) fn latency(page: &mut Page, row: &Row) {
    let cells = |latency: &Latency| {
        let p99 = latency.p99_ns.map_or("too few".to_owned(), |ns| us(ns as f64));
        [us(latency.mean_ns), us(latency.p50_ns as f64), p99]
    };
    let line = |phase: &PhaseLatency| {
        let mut line = vec![phase_name(phase)];
        line.extend(cells(&phase.loaded));
        line.extend(phase.single.iter().flat_map(cells));
        line
    };
    let mut header = vec!["", "mean", "p50", "p99"];
    let mut title = match row.connections {
        Some(count) => {
            let connections = counted(count.into(), "connection");
            format!("latency by phase, us: {connections}, traced")
        }
        None => "latency by phase, us: traced".to_owned(),
    };
    if row.wall.single.is_some() {
        header.extend(["alone: mean", "p50", "p99"]);
        title.push_str("; alone: at one connection");
    }
    if row.inferred_requests > 0 {
        let inferred = thousands(row.inferred_requests);
        title.push_str(&format!("; {inferred} of {} with an inferred edge", thousands(row.requests)));
    }
    let rows = seen_phases(row).map(line).collect();
    page.table(&title, &header, rows);
    let parts = [
        ("wake-up in queue", row.parts.wakeup_ns),
        ("body read in app", row.parts.body_read_ns),
        ("body wait in app", row.parts.body_wait_ns),
        ("gaps in write", row.parts.write_gap_ns),
        ("after delivery, outside the sum: write tail", row.parts.write_tail_ns),
        ("acknowledged after the end", row.parts.acked_after_ns.unwrap_or_default()),
    ];
    let parts = parts.iter().filter(|part| part.1 > 0.0);
    let parts: Vec<_> = parts.map(|(name, ns)| format!("{name} {}", us(*ns))).collect();
    if !parts.is_empty() {
        page.line(4, &format!("of these, mean us: {}", parts.join(" · ")));
    }
    if let Some(accept) = row.accept_wait {
        let connections = counted(accept.connections, "connection");
        let mean = us(accept.mean_ns);
        page.line(4, &format!("{connections} waited {mean} us for accept, mean"));
    }
    if row.queue_share > QUEUE_SPEAKS_OF_CONNECTIONS {
        page.line(
            4,
            &format!(
                "at saturation the wall time is mostly queue ({}): it says how many connections there were, \
                 not what the server costs",
                percent(row.queue_share)
            ),
        );
    }
}

/// The phases that took any time, and the whole.
fn seen_phases(row: &Row) -> impl Iterator<Item = &PhaseLatency> {
    let took_time = |phase: &&PhaseLatency| {
        phase.loaded.mean_ns > 0.0 || phase.single.is_some_and(|single| single.mean_ns > 0.0)
    };
    row.latency.iter().filter(took_time).chain([&row.wall])
}

fn phase_name(phase: &PhaseLatency) -> String {
    phase.phase.map_or("whole request", Phase::label).to_owned()
}

pub(super) fn thread_states(page: &mut Page, row: &Row) {
    let line = |phase: &PhaseLatency| {
        let StateMeans { own_cpu_ns, other_cpu_ns, run_queue_ns, blocked_ns, unknown_ns } = phase.states;
        let states = [own_cpu_ns, other_cpu_ns, run_queue_ns, blocked_ns, unknown_ns];
        [phase_name(phase)].into_iter().chain(states.map(us)).collect()
    };
    page.table(
        "latency by what the thread did, mean us per request",
        &["", "own CPU", "other CPU", "run queue", "blocked", "unknown"],
        seen_phases(row).map(line).collect(),
    );
    if !row.blocked_calls.is_empty() {
        page.line(4, &format!("app blocked in {} (requests)", listed(&row.blocked_calls)));
    }
}

pub(super) fn downstream(page: &mut Page, row: &Row) {
    if row.downstream.is_empty() {
        return;
    }
    let rows = row.downstream.iter().map(|peer| {
        vec![
            peer.peer.clone(),
            thousands(peer.requests),
            decimals(peer.round_trips_per_request, 2),
            us(peer.wait.mean_ns),
            us(peer.wait.p50_ns as f64),
            peer.wait.p99_ns.map_or("too few".to_owned(), |ns| us(ns as f64)),
            decimals(peer.bytes_out_per_request, 0),
            decimals(peer.bytes_in_per_request, 0),
            percent(peer.inferred_share),
        ]
    });
    page.table(
        "downstream, per request that asked: round trips, wait in us, bytes",
        &["", "requests", "trips", "mean", "p50", "p99", "out", "in", "inferred"],
        rows.take(TABLE_ROWS).collect(),
    );
    if let Some(more @ 1..) = row.downstream.len().checked_sub(TABLE_ROWS) {
        page.line(4, &format!("{more} more peers"));
    }
    if let Some(before) = row.before_downstream {
        let (mean, p50) = (us(before.mean_ns), us(before.p50_ns as f64));
        page.line(4, &format!("waiting to send downstream, from the head on: mean {mean} us, p50 {p50} us"));
    }
}

pub(super) fn holders(page: &mut Page, row: &Row) {
    let all_ns: u64 = row.holders.iter().map(|holder| holder.held_ns).sum();
    if all_ns == 0 {
        return;
    }
    let rows = row.holders.iter().take(LISTED).map(|holder| {
        let own = if holder.is_tracer { " (tracer itself)" } else { "" };
        vec![
            format!("{}{own}", holder.name),
            holder.tid.to_string(),
            decimals(holder.held_ns as f64 / 1e6, 2),
            percent(holder.held_ns as f64 / all_ns as f64),
        ]
    });
    let header = ["", "thread", "ms", "share"];
    page.table("who held the core while the server waited for it", &header, rows.collect());
}

pub(super) fn syscalls(page: &mut Page, row: &Row) {
    let Some(all) = row.syscalls_per_request.filter(|all| *all > 0.0) else {
        return;
    };
    let line = |name: &str, shown: &[SyscallPerRequest]| {
        let sum = |of: fn(&SyscallPerRequest) -> f64| shown.iter().map(of).sum::<f64>();
        vec![
            name.to_owned(),
            decimals(sum(|s| s.calls_per_request), 3),
            decimals(sum(|s| s.eagain_per_request), 3),
            us(sum(|s| s.wall_ns_per_request)),
            us(sum(|s| s.cpu_ns_per_request)),
        ]
    };
    let (shown, rest) = row.syscalls.split_at(row.syscalls.len().min(TABLE_ROWS));
    let mut rows: Vec<_> = shown.iter().map(|s| line(&s.name, std::slice::from_ref(s))).collect();
    if !rest.is_empty() {
        rows.push(line(&format!("{} others", rest.len()), rest));
    }
    page.table(
        &format!("syscalls per request: {}", decimals(all, 3)),
        &["", "calls", "EAGAIN", "wall us", "CPU us"],
        rows,
    );
}

pub(super) fn writes(page: &mut Page, row: &Row) {
    let writes = &row.writes;
    page.blank();
    page.line(2, &format!("writes per response: {}", decimals(writes.mean, 3)));
    let met: Vec<_> = writes.per_response.iter().filter(|responses| responses.count > 0).collect();
    let responses = met.iter().map(|met| {
        if met.name == "0" {
            return format!("in the write of an earlier one: {}", counted(met.count, "response"));
        }
        let plural = if met.name == "1" { "" } else { "s" };
        format!("{} write{plural}: {}", met.name, counted(met.count, "response"))
    });
    page.line(4, &responses.collect::<Vec<_>>().join(" · "));
    for call in &writes.calls {
        page.line(
            4,
            &format!(
                "{}: {}, {} bytes each, {} EAGAIN",
                call.name,
                counted(call.calls, "call"),
                decimals(call.mean_bytes, 1),
                thousands(call.eagain)
            ),
        );
    }
    if writes.not_kept > 0 {
        page.line(4, &format!("{}: call not kept", counted(writes.not_kept, "later write")));
    }
    let one = &writes.one_write;
    if let (Some(fewest), Some(most)) = (one.fewest_iovecs, one.most_iovecs) {
        page.line(
            4,
            &format!(
                "in one write: {}, {}, by {}; buffers {} ({fewest} .. {most})",
                counted(one.responses, "response"),
                percent(one.share),
                listed(&one.calls),
                decimals(one.mean_iovecs, 2)
            ),
        );
    }
}

//! Tables of memory, cold starts, router growth and the leak check.

use super::signed_us;
use crate::report::{Page, decimals, thousands, us};
use crate::stats::Spread;
use crate::suite::{Findings, Leak, RouterGrowth};

/// Calls on files that are told.
const FILE_CALLS: usize = 3;

/// All tables for which something was measured.
pub(super) fn parts(page: &mut Page, findings: &Findings) {
    router(page, findings);
    starts(page, findings);
    memory(page, findings);
    leaks(page, findings);
}

fn router(page: &mut Page, findings: &Findings) {
    if findings.router.is_empty() {
        return;
    }
    let lines = findings.router.iter().map(|row| {
        vec![
            row.server.clone(),
            row.target.clone(),
            thousands(row.routes.into()),
            added(row),
            resolution(row),
        ]
    });
    page.table(
        "router growth: added CPU per request over the first route, within a process",
        &["server", "route", "routes", "added us, 95 %", "resolution us"],
        lines.collect(),
    );
    page.line(
        4,
        "last, miss: of a table of fixed paths; tenant: the last of /:tenant/itemN; params: /:a/:b/:c alone",
    );
    if let Some(control) = &findings.router_control {
        let grows =
            findings.router.iter().any(|row| row.server == *control && row.target == "last" && row.grows());
        let said = if grows {
            "its last route is seen to cost more than its first: growth would be seen"
        } else {
            "NOT SEEN: its last route must cost more than its first, so `not resolved` says nothing here"
        };
        page.entry("router control", &format!("{control}: {said}"));
    }
}

fn added(row: &RouterGrowth) -> String {
    match row.added_ns {
        _ if row.failed > 0 => format!("{} failed", thousands(row.failed)),
        None => "too few starts".to_owned(),
        Some(added) if !added.excludes_zero() => "not resolved".to_owned(),
        Some(added) => {
            format!("{} ({} .. {})", signed_us(added.estimate), signed_us(added.low), signed_us(added.high))
        }
    }
}

/// Half of the interval: a smaller difference could not be seen.
fn resolution(row: &RouterGrowth) -> String {
    row.added_ns.filter(|_| row.failed == 0).map_or("-".to_owned(), |added| us(added.half_width()))
}

fn starts(page: &mut Page, findings: &Findings) {
    if findings.starts.is_empty() {
        return;
    }
    let ms = |spread: &Option<Spread>| shown(spread, 1e6, 0);
    let median = |spread: &Option<Spread>| spread.map_or("-".to_owned(), |s| decimals(s.median, 0));
    let lines = findings.starts.iter().map(|start| {
        vec![
            start.server.clone(),
            ms(&start.listen_ns),
            ms(&start.answer_ns),
            ms(&start.cpu_ns),
            ms(&start.run_queue_ns),
            median(&start.minor_faults),
            median(&start.major_faults),
        ]
    });
    page.table(
        "cold start, from exec: ms, median and extremes of the starts",
        &["server", "listens", "first answer", "CPU", "run queue", "faults", "major"],
        lines.collect(),
    );
    let lines = findings.starts.iter().map(|start| {
        let at = |index: usize| start.curve_ns.get(index).map_or("-".to_owned(), |ns| us(*ns));
        let flat = start.flat_after().map_or_else(
            || format!("not within {}", thousands(start.slice_requests * start.curve_ns.len() as u64)),
            |requests| format!("after {}", thousands(requests)),
        );
        let calls = start.file_calls.iter().take(FILE_CALLS);
        let calls: Vec<_> = calls.map(|(name, calls)| format!("{name} {}", thousands(*calls))).collect();
        vec![start.server.clone(), at(0), at(1), at(4), at(9), flat, calls.join(" ")]
    });
    page.table(
        "first requests: CPU us per request in the 1st, 2nd, 5th and last of ten slices of 100",
        &["server", "1st", "2nd", "5th", "10th", "flat", "calls on files until the first answer"],
        lines.collect(),
    );
}

fn memory(page: &mut Page, findings: &Findings) {
    let Some(first) = findings.memory.first() else { return };
    let title = format!(
        "memory: resident MB, median and extremes; loaded: after {} requests over {} connections",
        thousands(first.requests),
        first.connections
    );
    let mb = |spread: &Option<Spread>| shown(spread, 1e6, 1);
    let lines = findings.memory.iter().map(|memory| {
        let route = match &memory.route_bytes {
            None => "N/A".to_owned(),
            bytes => shown(bytes, 1.0, 0),
        };
        let server = memory.server.clone();
        vec![server, mb(&memory.idle_bytes), mb(&memory.loaded_bytes), mb(&memory.peak_bytes), route]
    });
    page.table(&title, &["server", "idle", "loaded", "peak", "heap bytes per route"], lines.collect());
}

fn leaks(page: &mut Page, findings: &Findings) {
    if findings.leaks.is_empty() {
        return;
    }
    let per_phase = |values: Vec<Option<u64>>, unit: f64| {
        let shown = values.iter().map(|value| value.map_or("-".to_owned(), |v| decimals(v as f64 / unit, 1)));
        shown.collect::<Vec<_>>().join(" ")
    };
    let lines = findings.leaks.iter().map(|check| {
        let phases = &check.phases;
        let requests: u64 = phases.iter().map(|phase| phase.requests).sum();
        vec![
            check.server.clone(),
            thousands(requests),
            per_phase(phases.iter().map(|phase| phase.heap_bytes).collect(), 1e6),
            per_phase(phases.iter().map(|phase| Some(phase.rss_bytes)).collect(), 1e6),
            match check.verdict() {
                Leak::Plateau { resolution_bytes } => {
                    format!("plateau: below {} B/request", decimals(resolution_bytes, 0))
                }
                Leak::Growth(bytes) => format!("GROWTH: {} B/request", decimals(bytes, 0)),
                Leak::Handles(handles) => format!("GROWTH: {} handles/request", decimals(handles, 3)),
                Leak::NotEnoughEvidence(why) => format!("not enough evidence: {why}"),
            },
        ]
    });
    page.table(
        "leak check: four phases of load, MB after each; heap after a forced collection",
        &["server", "requests", "heap", "resident", "verdict"],
        lines.collect(),
    );
}

/// Median and extremes over a unit.
fn shown(spread: &Option<Spread>, unit: f64, places: usize) -> String {
    let figure = |value: f64| decimals(value / unit, places);
    match spread {
        None => "-".to_owned(),
        Some(spread) if spread.rounds == 1 => figure(spread.median),
        Some(spread) => format!("{} ({}..{})", figure(spread.median), figure(spread.min), figure(spread.max)),
    }
}

//! Several servers side by side.

use crate::report::{Page, Row, decimals, percent, thousands, us};

const HEADER: [&str; 11] =
    ["server", "rank", "req/s", "CPU us", "p50 us", "p99 us", "calls", "writes", "in one", "ratio", "limit"];

/// One line per server, ranked within its workload; who was held back by the client has no rank.
pub(super) fn comparison(page: &mut Page, rows: &[Row]) {
    let mut workloads: Vec<&str> = Vec::new();
    for row in rows {
        if !workloads.contains(&row.workload.as_str()) {
            workloads.push(&row.workload);
        }
    }
    for workload in workloads {
        let rate = |row: &Row| row.requests_per_s.map_or(0.0, |rate| rate.per_s.median);
        let mut same: Vec<&Row> = rows.iter().filter(|row| row.workload == workload).collect();
        same.sort_by(|a, b| b.ranked().cmp(&a.ranked()).then(rate(b).total_cmp(&rate(a))));
        let lines = same.iter().enumerate().map(|(rank, row)| compared(row, rank + 1)).collect();
        page.table(format!("comparison {workload}").trim_end(), &HEADER, lines);
    }
    page.line(
        4,
        "CPU, calls, writes: per request; in one: responses in one write; ratio: traced / untraced CPU",
    );
}

fn compared(row: &Row, rank: usize) -> Vec<String> {
    let dash = || "-".to_owned();
    let latency = |ns: Option<u64>| ns.map_or_else(dash, |ns| us(ns as f64));
    let client = row.client.map(|client| client.percentiles);
    vec![
        row.server.clone(),
        if row.ranked() { rank.to_string() } else { dash() },
        row.requests_per_s.map_or_else(dash, |rate| thousands(rate.per_s.median.round() as u64)),
        row.cpu_per_request.map_or_else(dash, |cpu| us(cpu.ns.median)),
        latency(client.map(|p| p.p50_ns)),
        latency(client.and_then(|p| p.p99_ns)),
        row.syscalls_per_request.map_or_else(dash, |calls| decimals(calls, 2)),
        decimals(row.writes.mean, 2),
        percent(row.writes.one_write.share),
        row.tracing.map_or_else(dash, |tracing| decimals(tracing.ratio.median, 2)),
        row.limit.by.word().to_owned(),
    ]
}

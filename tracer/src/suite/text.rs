//! The findings as text of at most 100 columns.

mod parts;

use super::{Findings, Rank, Row, ranks};
use crate::report::{CpuByPhase, Page, counted, decimals, percent, thousands, us};

const ROW_HEADER: [&str; 11] = [
    "server", "rank", "req/s", "CPU us", "min..max", "p50 ms", "p99 ms", "calls", "writes", "ratio", "limit",
];
const PHASE_HEADER: [&str; 7] = ["server", "read", "app", "write", "tail", "between", "total"];

/// The findings as text.
pub fn text(findings: &Findings) -> String {
    let mut page = Page::default();
    page.line(0, &answer(findings));
    equal_work(&mut page, findings);
    by_workload(&mut page, findings);
    for workload in findings.workloads() {
        let rows: Vec<&Row> = findings.rows.iter().filter(|row| row.workload == workload).collect();
        compared(&mut page, findings, workload, &rows);
        phases(&mut page, workload, &rows);
        ladder(&mut page, findings, workload, &rows);
    }
    if !findings.rows.is_empty() {
        page.blank();
        page.line(
            4,
            "CPU, calls, writes: per request; requests/s, CPU and latency without probes, one round per",
        );
        page.line(
            4,
            "fresh start; calls, writes and phases traced; ratio: traced / untraced CPU; rank: by CPU,",
        );
        page.line(4, "within a runtime, shared by rows that lie inside each other's rounds");
    }
    parts::parts(&mut page, findings);
    page.blank();
    control(&mut page, findings);
    said(&mut page, findings);
    page.blank();
    environment(&mut page, findings);
    page.into_text()
}

fn answer(findings: &Findings) -> String {
    let mut parts = vec![format!("suite {}", findings.suite), counted(findings.rows.len() as u64, "row")];
    let failed = findings.rows.iter().filter(|row| row.failed > 0).count() as u64;
    if failed > 0 {
        parts.push(format!("FAILED {}", counted(failed, "row")));
    }
    if !findings.differences.is_empty() {
        parts.push("UNEQUAL WORK, see below: those rows are not ranked".to_owned());
    }
    let unsound = findings.rows.iter().filter(|row| !row.is_sound()).count() as u64;
    if unsound > 0 {
        parts.push(format!("DEFECT in {}", counted(unsound, "row")));
    }
    if findings.quick {
        parts.push("a quick run: nothing is ranked".to_owned());
    }
    if !findings.ended_early.is_empty() {
        parts.push(format!("ended early: {}", findings.ended_early));
    }
    parts.push(format!("seed {}", findings.seed));
    parts.join(" · ")
}

fn equal_work(page: &mut Page, findings: &Findings) {
    if findings.differences.is_empty() {
        page.blank();
        page.entry("equal work", "status, body and the headers that matter agree on every server");
        return;
    }
    let lines = findings.differences.iter().map(|difference| {
        let d = difference.clone();
        vec![d.server, d.workload, d.what, d.wanted, d.got]
    });
    page.table(
        "UNEQUAL WORK: these answers are not the others'",
        &["server", "workload", "what", "wanted", "got"],
        lines.collect(),
    );
}

/// Requests per second as the write-ups show them: a column per workload, and what the later ones lose.
fn by_workload(page: &mut Page, findings: &Findings) {
    let workloads = findings.workloads();
    let [first, later @ ..] = workloads.as_slice() else { return };
    if later.is_empty() {
        return;
    }
    let header: Vec<String> = [String::from("server"), (*first).to_owned()]
        .into_iter()
        .chain(later.iter().flat_map(|workload| [(*workload).to_owned(), format!("vs {first}")]))
        .collect();
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    let rate = |server: &str, workload: &str| {
        findings.row(server, workload).and_then(Row::requests_per_s).map(|spread| spread.median)
    };
    let mut servers: Vec<&str> = Vec::new();
    for row in &findings.rows {
        if !servers.contains(&row.server.as_str()) {
            servers.push(&row.server);
        }
    }
    let shown = |rate: Option<f64>| rate.map_or("-".to_owned(), |rate| thousands(rate.round() as u64));
    let lines = servers.iter().map(|server| {
        let over = rate(server, first);
        let mut line = vec![(*server).to_owned(), shown(over)];
        for workload in later {
            let this = rate(server, workload);
            let change = this.zip(over).map(|(this, over)| signed_percent(this / over - 1.0));
            line.extend([shown(this), change.unwrap_or_else(|| "-".to_owned())]);
        }
        line
    });
    page.table("requests/s by workload", &header, lines.collect());
}

fn compared(page: &mut Page, findings: &Findings, workload: &str, rows: &[&Row]) {
    let ranks = ranks(findings, rows);
    let mut order: Vec<usize> = (0..rows.len()).collect();
    let cpu = |index: &usize| rows[*index].cpu_ns().map_or(f64::INFINITY, |cpu| cpu.median);
    order.sort_by(|a, b| rows[*a].runtime.cmp(&rows[*b].runtime).then(cpu(a).total_cmp(&cpu(b))));
    let lines = order.iter().map(|&index| compared_row(rows[index], &ranks[index])).collect();
    page.table(workload, &ROW_HEADER, lines);
    unranked(page, &order.iter().map(|&index| (rows[index], &ranks[index])).collect::<Vec<_>>());
}

/// Who has no rank, reason by reason.
fn unranked(page: &mut Page, rows: &[(&Row, &Rank)]) {
    let mut reasons: Vec<(&str, Vec<String>)> = Vec::new();
    for (row, rank) in rows {
        let Rank::None(reason) = rank else { continue };
        let who = format!("{}{}", row.server, failure(row));
        match reasons.iter_mut().find(|(known, _)| known == reason) {
            Some((_, servers)) => servers.push(who),
            None => reasons.push((reason, vec![who])),
        }
    }
    for (reason, servers) in reasons {
        page.line(4, &format!("no rank, {reason}: {}", servers.join(", ")));
    }
}

fn failure(row: &Row) -> String {
    match &row.first_failure {
        Some(first) => format!(" ({} failed, the first: {first})", thousands(row.failed)),
        None => String::new(),
    }
}

fn compared_row(row: &Row, rank: &Rank) -> Vec<String> {
    let dash = || "-".to_owned();
    let latency = |ns: Option<u64>| ns.map_or_else(dash, |ns| decimals(ns as f64 / 1e6, 2));
    vec![
        row.server.clone(),
        match rank {
            Rank::Place(place) => place.to_string(),
            Rank::None(_) => dash(),
        },
        row.requests_per_s().map_or_else(dash, |rate| thousands(rate.median.round() as u64)),
        row.cpu_ns().map_or_else(dash, |cpu| us(cpu.median)),
        row.cpu_ns().map_or_else(dash, |cpu| format!("{}..{}", us(cpu.min), us(cpu.max))),
        latency(row.p50_ns),
        latency(row.p99_ns),
        row.syscalls_per_request.map_or_else(dash, |calls| decimals(calls, 2)),
        decimals(row.writes_per_response, 2),
        row.tracing_ratio.map_or_else(dash, |ratio| decimals(ratio, 2)),
        row.limit.word().to_owned(),
    ]
}

fn by_phase(cpu: &CpuByPhase) -> [f64; 6] {
    let between_ns = cpu.between_requests_ns + cpu.unfinished_ns;
    [cpu.read_ns, cpu.app_ns(), cpu.write_ns, cpu.write_tail_ns, between_ns, cpu.total_ns]
}

fn phases(page: &mut Page, workload: &str, rows: &[&Row]) {
    let traced = rows.iter().filter(|row| row.traced_requests > 0);
    let lines: Vec<Vec<String>> = traced
        .map(|row| std::iter::once(row.server.clone()).chain(by_phase(&row.cpu).map(us)).collect())
        .collect();
    if !lines.is_empty() {
        page.table(&format!("{workload}: own CPU by phase, us per request, traced"), &PHASE_HEADER, lines);
    }
}

/// What each framework adds to the bare server.
fn ladder(page: &mut Page, findings: &Findings, workload: &str, rows: &[&Row]) {
    let Some(base) = rows.iter().find(|row| row.server == findings.base && row.traced_requests > 0) else {
        return;
    };
    let others = rows.iter().filter(|row| row.server != findings.base && row.traced_requests > 0);
    let lines: Vec<Vec<String>> = others
        .map(|row| {
            let added =
                by_phase(&row.cpu).into_iter().zip(by_phase(&base.cpu)).map(|(a, b)| signed_us(a - b));
            // The total is told without probes, which cost each phase something.
            let total = row.cpu_over(base).map_or("-".to_owned(), |over| {
                format!("{} ({} .. {})", signed_us(over.median), signed_us(over.min), signed_us(over.max))
            });
            std::iter::once(row.server.clone()).chain(added.take(5)).chain([total]).collect()
        })
        .collect();
    if !lines.is_empty() {
        let header = PHASE_HEADER.map(|name| if name == "total" { "in all, without probes" } else { name });
        let title = format!("{workload}: ladder over {}, added CPU us per request", base.server);
        page.table(&title, &header, lines);
    }
}

fn signed_us(ns: f64) -> String {
    format!("{}{}", if ns > 0.0 { "+" } else { "" }, us(ns))
}

fn signed_percent(share: f64) -> String {
    format!("{}{} %", if share > 0.0 { "+" } else { "" }, decimals(share * 100.0, 1))
}

fn control(page: &mut Page, findings: &Findings) {
    let Some(control) = &findings.control else { return };
    let moved = &control.moved;
    page.entry(
        "control",
        &format!(
            "{} measured twice: the second took {} CPU per request ({} .. {}, {}); smaller differences than {} mean nothing here",
            control.name,
            signed_percent(moved.median),
            signed_percent(moved.min),
            signed_percent(moved.max),
            counted(moved.rounds as u64, "round"),
            percent(control.resolution()),
        ),
    );
}

/// Claims, and everything that is said in words.
fn said(page: &mut Page, findings: &Findings) {
    for claim in &findings.claims {
        page.entry("claim", &format!("{}: {}", claim.says, claim.held.label()));
        page.entry("", &claim.seen);
    }
    for row in &findings.rows {
        let name = format!("{} {}", row.server, row.workload);
        for note in &row.notes {
            page.entry("note", &format!("{name}: {note}"));
        }
        for defect in &row.defects {
            page.entry("DEFECT", &format!("{name}: {defect}"));
        }
    }
    for note in &findings.notes {
        page.entry("note", note);
    }
    for what in &findings.left_out {
        page.entry("left out", what);
    }
}

fn environment(page: &mut Page, findings: &Findings) {
    let runtimes = findings.runtimes.iter().map(|(name, version)| format!("{name} {version}"));
    let runtimes: Vec<_> = runtimes.collect();
    if !runtimes.is_empty() {
        page.line(0, &format!("runtimes: {}", runtimes.join(" · ")));
    }
    crate::report::environment(page, &findings.environment);
}

//! The report as text of at most 100 columns. The first line of a server is the answer.

mod accounts;
mod comparison;
mod tables;

use super::{LimitedBy, NamedCount, Page, Rate, Report, Row, TracingRatio, counted, percent, thousands, us};
use crate::recording::Environment;
use crate::stats::Spread;

/// Names listed in one line.
const LISTED: usize = 5;
/// A server that waited less than this for its core had it to itself.
const WORTH_SAYING: f64 = 0.01;
/// A core that is busy from here on is saturated.
const SATURATED: f64 = 0.98;

/// The report as text.
pub fn text(report: &Report) -> String {
    let mut page = Page::default();
    for row in &report.rows {
        server(&mut page, row);
        page.blank();
    }
    if report.rows.len() > 1 {
        comparison::comparison(&mut page, &report.rows);
        page.blank();
    }
    if let Some(row) = report.rows.first() {
        environment(&mut page, &row.environment);
    }
    for note in &report.notes {
        page.line(0, &format!("note: {note}"));
    }
    page.into_text()
}

fn server(page: &mut Page, row: &Row) {
    page.line(0, &row.answer);
    page.blank();
    headline(page, row);
    if row.requests > 0 {
        tables::cpu(page, row);
        tables::latency(page, row);
        tables::thread_states(page, row);
        tables::downstream(page, row);
    }
    tables::holders(page, row);
    tables::syscalls(page, row);
    if row.requests > 0 {
        tables::writes(page, row);
    }
    page.blank();
    accounts::accounts(page, row);
    for note in &row.notes {
        page.entry("note", note);
    }
    for defect in &row.defects {
        page.entry("DEFECT", defect);
    }
}

fn headline(page: &mut Page, row: &Row) {
    if let Some(Rate { per_s, traced }) = row.requests_per_s {
        let whole = |number: f64| thousands(number.round() as u64);
        page.entry("requests/s", &spread(&per_s, traced, whole));
    }
    if let Some(cpu) = row.cpu_per_request {
        page.entry("server CPU", &format!("us per request: {}", spread(&cpu.ns, cpu.traced, us)));
    }
    if let Some(client) = &row.client {
        let p = &client.percentiles;
        let told = |ns: Option<u64>| ns.map_or("too few".to_owned(), |ns| us(ns as f64));
        page.entry(
            "client latency",
            &format!(
                "us: p50 {} · p90 {} · p99 {} · p99.9 {} · max {} ({}{})",
                us(p.p50_ns as f64),
                us(p.p90_ns as f64),
                told(p.p99_ns),
                told(p.p999_ns),
                us(p.max_ns as f64),
                row.connections.map(|n| counted(n.into(), "connection") + ", ").unwrap_or_default(),
                if client.traced { "traced" } else { "untraced" },
            ),
        );
        if let (Some(before), Some(after)) = (client.before_arrival_ns, client.after_delivery_ns) {
            page.entry(
                "",
                &format!(
                    "us, mean, traced: before arrival {} + phases {} + after delivery {}",
                    us(before),
                    us(row.wall.loaded.mean_ns),
                    us(after)
                ),
            );
        }
    }
    if let Some(tracing) = &row.tracing {
        page.entry("tracing ratio", &tracing_ratio(tracing));
    }
    page.entry("limit", &limit(row));
    if row.failed_responses > 0 {
        let first = row.first_failure.as_deref().unwrap_or("no reason was kept");
        page.entry("FAILED", &format!("{}: {first}", counted(row.failed_responses, "response")));
    }
}

fn spread(spread: &Spread, traced: bool, show: impl Fn(f64) -> String) -> String {
    let how = if traced { "traced" } else { "untraced" };
    match spread.rounds {
        1 => format!("{} ({how}, one window)", show(spread.median)),
        rounds => format!(
            "{} ({} .. {}, {rounds} {how} rounds)",
            show(spread.median),
            show(spread.min),
            show(spread.max)
        ),
    }
}

fn tracing_ratio(tracing: &TracingRatio) -> String {
    let ratio = &tracing.ratio;
    let range = match ratio.rounds {
        1 => String::new(),
        pairs => format!("{:.2} .. {:.2} in {pairs} pairs of rounds; ", ratio.min, ratio.max),
    };
    let mut said = format!("{:.3} ({range}server CPU per request, traced / untraced)", ratio.median);
    if let (Some(untraced), Some(traced)) = (tracing.server_busy_untraced, tracing.server_busy_traced) {
        said += &format!(" · server core {} busy untraced, {} traced", percent(untraced), percent(traced));
        if traced < SATURATED && traced < untraced {
            said += ": with less to do at once, a request costs it more than the probes add";
        }
    }
    said
}

fn limit(row: &Row) -> String {
    let limit = &row.limit;
    let verdict = match limit.by {
        LimitedBy::Server => "server",
        LimitedBy::Client => "client: no rank; use more client cores or fewer connections",
        LimitedBy::Neither => "neither: the server waited",
        LimitedBy::Unknown if limit.client_busy.is_none() => "not known: the load was not ours",
        LimitedBy::Unknown => "not known: server and client had no cores of their own",
    };
    let mut stamps = vec![verdict.to_owned()];
    if let Some(busy) = limit.server_busy {
        stamps.push(format!("server core {} busy", percent(busy)));
    }
    if let Some(waited) = limit.server_waited.filter(|waited| *waited >= WORTH_SAYING) {
        stamps.push(format!("{} of the time it had work but its core was taken", percent(waited)));
    }
    if let Some(busy) = limit.client_busy {
        stamps.push(format!("client core {} busy", percent(busy)));
    }
    if let Some(error) = limit.littles_law_error {
        stamps.push(format!("Little's law off by {}", percent(error)));
    }
    if let Some(reconnects) = limit.reconnects {
        stamps.push(counted(reconnects, "reconnect"));
    }
    stamps.join(" · ")
}

/// Machine and kernel, in one line.
pub(crate) fn environment(page: &mut Page, environment: &Environment) {
    let gib = environment.memory_bytes as f64 / f64::from(1 << 30);
    let named = [
        ("kernel", environment.kernel.clone()),
        ("CPU", environment.cpu_model.clone()),
        ("CPUs", environment.cpus.to_string()),
        ("memory", format!("{gib:.0} GiB")),
        ("governor", environment.governor.clone()),
        ("congestion control", environment.congestion_control.clone()),
        ("clock", environment.clock_source.clone()),
    ];
    let told = named.iter().filter(|(_, value)| !value.is_empty());
    let told: Vec<_> = told.map(|(name, value)| format!("{name} {value}")).collect();
    page.line(0, &told.join(" · "));
}

/// The first few names with their counts.
fn listed(counts: &[NamedCount]) -> String {
    let shown = counts.iter().take(LISTED);
    let mut shown: Vec<_> = shown.map(|c| format!("{} {}", c.name, thousands(c.count))).collect();
    if let Some(more @ 1..) = counts.len().checked_sub(LISTED) {
        shown.push(format!("{more} more"));
    }
    shown.join(" · ")
}

#[cfg(test)]
#[path = "text/tests.rs"]
mod tests;

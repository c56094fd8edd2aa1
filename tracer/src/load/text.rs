//! The load's report as text of at most 100 columns. The first line is the answer.

use super::report::{Latency, LoadReport};
use crate::report::{LimitedBy, Page, counted, decimals, percent, thousands, us};

/// The report as text.
pub fn text(report: &LoadReport) -> String {
    let mut page = Page::default();
    page.line(0, &answer(report));
    page.blank();
    page.entry("requests", &requests(report));
    errors(&mut page, report);
    latencies(&mut page, report);
    page.entry("connections", &connections(report));
    page.entry("transfer", &transfer(report));
    page.entry("limit", &limit(report));
    routes(&mut page, report);
    if !report.notes.is_empty() {
        page.blank();
    }
    for note in &report.notes {
        page.entry("note", note);
    }
    page.into_text()
}

fn answer(report: &LoadReport) -> String {
    let mut parts = vec![report.url.clone()];
    match report.requests_per_s {
        _ if report.errors > 0 => {
            let classes = report
                .error_classes
                .iter()
                .map(|(class, error)| format!("{} {class}", thousands(error.count)));
            parts.push(format!("FAILED: {}", classes.collect::<Vec<_>>().join(", ")));
            parts.push("no rate".to_owned());
        }
        Some(rate) => {
            parts.push(format!("{} requests/s", per_second(rate)));
            parts.push(format!("p50 {} us", told(report.latency.p50_ns)));
            parts.push(format!("p99 {} us", told(report.latency.p99_ns)));
            if report.stamps.limited_by == LimitedBy::Client {
                parts.push("LIMITED BY THE CLIENT".to_owned());
            }
        }
        None => parts.push("too few requests for a rate".to_owned()),
    }
    if !report.ended_early.is_empty() {
        parts.push(format!("{}, result so far", report.ended_early));
    }
    parts.join(" · ")
}

fn requests(report: &LoadReport) -> String {
    let seconds = decimals(report.elapsed_ns as f64 / 1e9, 2);
    let mut text =
        format!("{} as expected, {} sent in {seconds} s", thousands(report.requests), thousands(report.sent));
    for (count, what) in
        [(report.aborted, "aborted as asked"), (report.abandoned, "unanswered at the interruption")]
    {
        if count > 0 {
            text.push_str(&format!(", {} {what}", thousands(count)));
        }
    }
    text.push_str(match &report.rate {
        Some(_) => " at a constant rate",
        None => ", closed loop",
    });
    text
}

fn errors(page: &mut Page, report: &LoadReport) {
    if report.error_classes.is_empty() {
        page.entry("errors", "none");
    }
    for (class, error) in &report.error_classes {
        let after = decimals(error.first_after_ns as f64 / 1e9, 3);
        page.entry(
            "errors",
            &format!("{} {class}; the first after {after} s: {}", thousands(error.count), error.first),
        );
    }
}

fn latencies(page: &mut Page, report: &LoadReport) {
    match (&report.rate, &report.service_time) {
        (Some(rate), Some(service)) => {
            page.entry(
                "response time",
                &format!("{} (from when a request was due)", distribution(&report.latency)),
            );
            page.entry("service time", &format!("{} (from when it was sent)", distribution(service)));
            let asked = format!(
                "{} of {} due sent ({} of {}/s)",
                thousands(report.sent),
                thousands(rate.asked),
                percent(rate.achieved),
                per_second(rate.asked_per_s)
            );
            page.entry("rate", &format!("{asked} · {} found no free connection", thousands(rate.delayed)));
            let lag = &rate.send_lag;
            page.entry(
                "send lag",
                &format!(
                    "us: p50 {} · p99 {} · max {}",
                    told(lag.p50_ns),
                    told(lag.p99_ns),
                    us(lag.max_ns as f64)
                ),
            );
        }
        _ => page.entry("latency", &distribution(&report.latency)),
    }
}

fn distribution(latency: &Latency) -> String {
    if latency.count == 0 {
        return "none".to_owned();
    }
    format!(
        "us: mean {} · p50 {} · p90 {} · p99 {} · p99.9 {} · p99.99 {} · max {}",
        us(latency.mean_ns),
        told(latency.p50_ns),
        told(latency.p90_ns),
        told(latency.p99_ns),
        told(latency.p999_ns),
        told(latency.p9999_ns),
        us(latency.max_ns as f64)
    )
}

fn told(ns: Option<u64>) -> String {
    ns.map_or_else(|| "too few".to_owned(), |ns| us(ns as f64))
}

/// Whole numbers, but for small rates.
fn per_second(rate: f64) -> String {
    if rate < 100.0 { decimals(rate, 1) } else { thousands(rate.round() as u64) }
}

fn connections(report: &LoadReport) -> String {
    let mut parts = vec![format!(
        "{} on {}",
        thousands(report.connections.into()),
        counted(report.threads as u64, "thread")
    )];
    if report.pipeline > 1 {
        parts.push(format!("{} pipelined", report.pipeline));
    }
    if let Some(reuse) = report.stamps.connection_reuse {
        parts.push(format!("reuse {}", percent(reuse)));
    }
    if report.stamps.reconnects > 0 {
        parts.push(format!("{} opened again", thousands(report.stamps.reconnects)));
    }
    if report.connect.count > 0 {
        parts.push(format!(
            "connect us: p50 {} · max {}",
            told(report.connect.p50_ns),
            us(report.connect.max_ns as f64)
        ));
    }
    parts.join(" · ")
}

fn transfer(report: &LoadReport) -> String {
    let rate = |bytes: u64| decimals(bytes as f64 * 1e3 / report.elapsed_ns.max(1) as f64, 2);
    let (sent, read) = (report.stamps.bytes_out, report.stamps.bytes_in);
    format!(
        "{} bytes sent ({} MB/s) · {} bytes read ({} MB/s)",
        thousands(sent),
        rate(sent),
        thousands(read),
        rate(read)
    )
}

fn limit(report: &LoadReport) -> String {
    let stamps = &report.stamps;
    let mut parts = vec![
        match stamps.limited_by {
            LimitedBy::Server => "the server",
            LimitedBy::Client => "the client: this says nothing about the server",
            LimitedBy::Neither => "neither: waits, the connections or the rate",
            LimitedBy::Unknown => "unknown",
        }
        .to_owned(),
    ];
    match (&stamps.server, stamps.server_busy) {
        (Some(server), Some(busy)) => parts.push(format!("server {server} {} busy", percent(busy))),
        _ => parts.push("the server's CPU cannot be seen".to_owned()),
    }
    if let Some(cpu) = stamps.server_cpu_per_request_ns {
        parts.push(format!("{} us CPU per request", us(cpu)));
    }
    let waited = if stamps.client_waited >= 0.005 {
        format!(", waited {}", percent(stamps.client_waited))
    } else {
        String::new()
    };
    parts.push(format!("client {} busy{waited}", percent(stamps.client_busy)));
    if let Some(cpu) = stamps.client_cpu_per_request_ns {
        parts.push(format!("{} us CPU per request", us(cpu)));
    }
    if let Some(error) = stamps.littles_law_error {
        parts.push(format!("Little's law off by {}", percent(error)));
    }
    parts.join(" · ")
}

fn routes(page: &mut Page, report: &LoadReport) {
    if report.routes.is_empty() {
        return;
    }
    let rows = report.routes.iter().map(|route| {
        vec![
            route.route.clone(),
            thousands(route.weight.into()),
            thousands(route.requests),
            thousands(route.errors),
            told(route.latency.p50_ns),
            told(route.latency.p99_ns),
            us(route.latency.max_ns as f64),
        ]
    });
    let header = ["", "weight", "requests", "errors", "p50 us", "p99 us", "max us"];
    page.table("by route", &header, rows.collect());
}

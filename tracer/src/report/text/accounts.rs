//! Where every request went, and our accounts beside those of the kernel.

use super::listed;
use crate::recording::Ledger;
use crate::report::{LOSS_LIMIT, LedgerReport, Page, Row, counted, decimals, percent, thousands};

pub(super) fn accounts(page: &mut Page, row: &Row) {
    page.entry("responses", &statuses(row));
    if row.routes.len() > 1 {
        page.entry("routes", &listed(&row.routes));
    }
    let LedgerReport { counts, unexplained, loss_share, joined_share } = &row.ledger;
    let causes = [
        ("traced", counts.traced),
        ("mid-flight", counts.mid_flight),
        ("ring full", counts.lost_ring_full),
        ("connections full", counts.lost_connections_full),
    ];
    let causes = causes.map(|(cause, count)| format!("{} {cause}", thousands(count))).join(" + ");
    let ledger = match (counts.sent, unexplained) {
        (Some(sent), Some(unexplained)) => {
            let verdict = held(*unexplained == 0);
            let others = match counts.other_clients {
                0 => String::new(),
                others => format!(" + {} of other clients", thousands(others)),
            };
            format!("{} sent{others} = {causes} + {unexplained} unexplained: {verdict}", thousands(sent))
        }
        _ => format!("{causes} (not our load: what was sent is not known)"),
    };
    page.entry("ledger", &ledger);
    page.entry(
        "",
        &format!(
            "lost {} · {} unmatched edges · {} inferred · {} negative differences: {}",
            percent(*loss_share),
            thousands(counts.unmatched_edges),
            thousands(counts.inferred),
            thousands(counts.defects),
            held(counts.defects == 0)
        ),
    );
    if let (Some(sent), Some(share)) = (counts.sent, joined_share) {
        let (joined, sent) = (thousands(counts.joined), thousands(sent));
        page.entry(
            "",
            &format!("{joined} of {sent} joined with the driver's own times ({})", percent(*share)),
        );
    }
    not_framed(page, counts);
    if counts.downstream_unowned > 0 {
        let (unowned, all) = (thousands(counts.downstream_unowned), thousands(counts.downstream_calls));
        page.entry("downstream", &format!("{unowned} of {all} reads and writes belonged to no open request"));
    }
    if row.unreliable {
        let limit = percent(LOSS_LIMIT);
        page.entry("UNRELIABLE", &format!("more than {limit} of the requests were lost: no verdict"));
    }
    for line in &row.conservation {
        let ms = |ns: u64| decimals(ns as f64 / 1e6, 2);
        let sign = line.difference.filter(|d| *d < 0.0).map_or("", |_| "-");
        let difference = line
            .difference
            .map_or("not to be compared".to_owned(), |d| format!("{sign}{}", percent(d.abs())));
        let verdict = match line.exited_processes {
            0 => held(line.held).to_owned(),
            exited => format!("{exited} of its processes exited and took the kernel's account along"),
        };
        let stolen = match line.stolen_ns {
            0 => String::new(),
            stolen_ns => format!(" ({} ms were stolen by the hypervisor)", ms(stolen_ns)),
        };
        page.entry(
            "conservation",
            &format!(
                "{}: {} and {} ms, {difference}{stolen}: {verdict}",
                line.what,
                ms(line.traced_ns),
                ms(line.kernel_ns),
            ),
        );
    }
    let counters = counts.kernel_counters.iter().filter(|counter| counter.1 > 0);
    let counters: Vec<_> = counters.map(|(name, n)| format!("{name} {}", thousands(*n))).collect();
    if !counters.is_empty() {
        page.entry("counters", &counters.join(" · "));
    }
}

/// What bytes did not tell, by cause, and what was no HTTP/1 request.
fn not_framed(page: &mut Page, ledger: &Ledger) {
    let inferred = ledger.inferred_by.iter();
    let inferred: Vec<_> = inferred.map(|(why, n)| format!("{} {}", thousands(*n), why.label())).collect();
    if !inferred.is_empty() {
        page.entry("inferred", &inferred.join(" · "));
    }
    let connections = |count, what: &str| {
        let which = counted(count, "connection");
        (count > 0).then(|| format!("{which} {what}"))
    };
    let lines = [
        connections(ledger.http2_connections, "with HTTP/2, which is not covered: in no figure here"),
        connections(ledger.upgraded_connections, "switched protocols: what came after is in no figure here"),
        connections(ledger.opaque_connections, "not HTTP/1 as far as seen: requests by turn-taking"),
        (ledger.malformed_requests > 0)
            .then(|| format!("{} where bytes began no request", counted(ledger.malformed_requests, "time"))),
        (ledger.reads_cut_short > 0).then(|| {
            let reads = counted(ledger.reads_cut_short, "read");
            format!("{reads} may hold pipelined requests behind the bytes kept: only answers tell of those")
        }),
    ];
    for line in lines.into_iter().flatten() {
        page.entry("bytes", &line);
    }
}

fn statuses(row: &Row) -> String {
    let name = |status: u16| {
        if status == 0 { "not seen".to_owned() } else { status.to_string() }
    };
    let counts = row.statuses.iter().map(|(status, n)| format!("{} × {}", thousands(*n), name(*status)));
    let counts = counts.collect::<Vec<_>>().join(" · ");
    let bytes = [row.bytes_in_per_request, row.bytes_out_per_request].map(|bytes| decimals(bytes, 0));
    format!("{counts} ({} bytes in, {} bytes out per request)", bytes[0], bytes[1])
}

fn held(held: bool) -> &'static str {
    if held { "held" } else { "DEFECT" }
}

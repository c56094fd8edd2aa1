//! Ranks: by server CPU per request, within a runtime, between rows of equal work whose server was the limit.

use super::{Findings, Row};
use crate::report::LimitedBy;
use crate::stats::Spread;

/// A row's place, or why it has none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rank {
    /// Its place, from 1; rows that cannot be told apart share one.
    Place(usize),
    /// It has none, for this reason.
    None(&'static str),
}

/// The ranks of the rows of a workload, in their order.
pub fn ranks(findings: &Findings, rows: &[&Row]) -> Vec<Rank> {
    let mut ranks: Vec<_> = rows.iter().map(|row| Rank::None(bar(findings, row).unwrap_or(""))).collect();
    let control = findings.control.as_ref().map_or(0.0, |control| control.resolution());
    let mut runtimes: Vec<&str> = rows.iter().map(|row| row.runtime.as_str()).collect();
    runtimes.sort_unstable();
    runtimes.dedup();
    for runtime in runtimes {
        let may = |row: &Row| row.runtime == runtime && bar(findings, row).is_none();
        let mut ranked: Vec<(usize, Spread)> = rows
            .iter()
            .enumerate()
            .filter(|(_, row)| may(row))
            .filter_map(|(index, row)| Some((index, row.cpu_ns()?)))
            .collect();
        ranked.sort_by(|a, b| a.1.median.total_cmp(&b.1.median));
        let mut first_of_place: Option<(usize, Spread)> = None;
        for (position, (index, cpu)) in ranked.into_iter().enumerate() {
            let (place, first) = match first_of_place {
                Some((place, first)) if alike(first, cpu, control) => (place, first),
                _ => (position + 1, cpu),
            };
            ranks[index] = Rank::Place(place);
            first_of_place = Some((place, first));
        }
    }
    ranks
}

/// One lies inside the other's interval, or they differ by no more than the control did from itself.
fn alike(a: Spread, b: Spread, control: f64) -> bool {
    let inside = |inner: Spread, outer: Spread| (outer.min..=outer.max).contains(&inner.median);
    inside(a, b) || inside(b, a) || (a.median - b.median).abs() <= control * a.median
}

/// Why a row may have no rank.
fn bar(findings: &Findings, row: &Row) -> Option<&'static str> {
    let bars = [
        (findings.quick, "a quick run ranks nothing"),
        (row.failed > 0, "requests failed"),
        (!findings.is_equal_work(&row.server, &row.workload), "unequal work"),
        (!row.is_sound(), "the measurement has a defect"),
        (row.rounds.len() < 3, "too few rounds"),
        (row.limit == LimitedBy::Client, "the client was the limit"),
        (row.limit != LimitedBy::Server, "the server was not the limit"),
    ];
    bars.into_iter().find_map(|(holds, reason)| holds.then_some(reason))
}

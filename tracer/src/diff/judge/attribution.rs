//! Where a difference comes from: lines that add up, counts that changed, and what is ruled out.

use std::collections::{BTreeMap, BTreeSet};

use super::super::{Difference, Figures, Ledger, Line, Metric, RouteLaunch, Side};
use super::Judge;
use crate::{report::decimals, stats::paired::median};

/// A count changed when its interval lies beyond this much per request (bytes: one byte).
const COUNT_CHANGED: f64 = 0.01;
/// Counts always told when they did not change.
const RULED_OUT: [&str; 7] = [
    "writes",
    "reads",
    "syscalls",
    "writes with EAGAIN",
    "response bytes",
    "downstream round trips",
    PAGE_FAULTS,
];
const PAGE_FAULTS: &str = "page faults";

/// What was found.
#[derive(Default)]
pub struct Ledgers {
    pub cpu: Ledger,
    pub latency: Ledger,
    pub slowest: Ledger,
    pub counts_changed: Vec<Line>,
    pub ruled_out: Vec<String>,
}

type Lines = BTreeMap<String, f64>;

/// The ledgers of one route; `cpu` and `latency` are the untraced differences that they explain.
pub fn ledgers(judge: &Judge, route: usize, cpu: Option<Difference>, latency: Option<Difference>) -> Ledgers {
    let traced: Vec<&[Figures; 2]> = judge
        .launches()
        .iter()
        .filter_map(|launch| launch.routes.get(route)?.traced.as_ref())
        .filter(|pair| pair.iter().all(|figures| figures.requests > 0))
        .collect();
    if traced.is_empty() {
        return Ledgers::default();
    }
    let lines = |part: fn(&Figures) -> &Lines| lines(judge, &traced, part);
    let totals = |part: fn(&Figures) -> &Lines| -> Vec<f64> {
        traced.iter().map(|[a, b]| total(part(b)) - total(part(a))).collect()
    };
    // What is left over in each launch: the untraced difference less the traced one.
    let rest = |metric: Metric, part: fn(&Figures) -> &Lines| {
        let launches = judge.launches().iter();
        let left = launches.filter_map(|launch| {
            let [a, b] = launch.routes.get(route)?.traced.as_ref()?;
            let both = a.requests > 0 && b.requests > 0;
            let traced = both.then(|| total(part(b)) - total(part(a)))?;
            Some(metric.difference(launch, route)? - traced)
        });
        judge.difference(&left.collect::<Vec<_>>())
    };
    let slowest_total = judge.difference(&totals(|figures| &figures.slowest_ns));
    let counts = lines(|figures| &figures.counts).into_iter().chain(page_faults(judge, route));
    let (changed, unchanged): (Vec<Line>, Vec<Line>) = counts.partition(count_changed);
    Ledgers {
        cpu: ledger(cpu, lines(|f| &f.cpu_ns), rest(Metric::Cpu, |f| &f.cpu_ns)),
        latency: ledger(latency, lines(|f| &f.latency_ns), rest(Metric::Mean, |f| &f.latency_ns)),
        slowest: ledger(slowest_total, lines(|f| &f.slowest_ns), None),
        ruled_out: unchanged.iter().filter_map(ruled_out).collect(),
        counts_changed: changed,
    }
}

/// Page faults per request, of the untraced slices; `None` where none were met.
fn page_faults(judge: &Judge, route: usize) -> Option<Line> {
    let of_side = |launch: &RouteLaunch, side: Side| {
        let slices = launch.slices.iter().filter(|slice| slice.side == side && slice.requests > 0);
        median(&slices.map(|slice| slice.page_faults as f64 / slice.requests as f64).collect::<Vec<_>>())
    };
    let routes = judge.launches().iter().filter_map(|launch| launch.routes.get(route));
    let pairs: Vec<(f64, f64)> =
        routes.filter_map(|launch| of_side(launch, Side::A).zip(of_side(launch, Side::B))).collect();
    let differences: Vec<f64> = pairs.iter().map(|(a, b)| b - a).collect();
    let mean = |values: Vec<f64>| values.iter().sum::<f64>() / pairs.len().max(1) as f64;
    let line = Line {
        name: PAGE_FAULTS.to_owned(),
        a: mean(pairs.iter().map(|pair| pair.0).collect()),
        b: mean(pairs.iter().map(|pair| pair.1).collect()),
        difference: judge.difference(&differences)?,
    };
    (line.a > 0.0 || line.b > 0.0).then_some(line)
}

fn total(lines: &Lines) -> f64 {
    lines.values().sum()
}

/// Every line that one of the builds has, largest difference first.
fn lines(judge: &Judge, traced: &[&[Figures; 2]], part: fn(&Figures) -> &Lines) -> Vec<Line> {
    let names: BTreeSet<&String> =
        traced.iter().flat_map(|pair| pair.iter()).flat_map(|f| part(f).keys()).collect();
    let value = |figures: &Figures, name: &String| part(figures).get(name).copied().unwrap_or(0.0);
    let launches = traced.len() as f64;
    let mut lines: Vec<Line> = names
        .into_iter()
        .filter_map(|name| {
            let differences: Vec<f64> = traced.iter().map(|[a, b]| value(b, name) - value(a, name)).collect();
            Some(Line {
                name: name.clone(),
                a: traced.iter().map(|[a, _]| value(a, name)).sum::<f64>() / launches,
                b: traced.iter().map(|[_, b]| value(b, name)).sum::<f64>() / launches,
                difference: judge.difference(&differences)?,
            })
        })
        .collect();
    lines.sort_by(|x, y| y.difference.estimate.abs().total_cmp(&x.difference.estimate.abs()));
    lines
}

/// The lines with what they leave over of the total, so that all of it adds up; `rest` gives the interval of that.
fn ledger(total: Option<Difference>, lines: Vec<Line>, rest: Option<Difference>) -> Ledger {
    let explained: f64 = lines.iter().map(|line| line.difference.estimate).sum();
    let interval = rest.and_then(|rest| rest.interval);
    let unexplained = total.map(|total| Difference { estimate: total.estimate - explained, interval });
    Ledger { total, lines, unexplained }
}

fn count_changed(line: &Line) -> bool {
    let least = if line.name.ends_with("bytes") { 1.0 } else { COUNT_CHANGED };
    match line.difference.interval {
        Some([low, high]) => low > least || high < -least,
        None => line.difference.estimate.abs() > least,
    }
}

fn ruled_out(line: &Line) -> Option<String> {
    let least = if line.name.ends_with("bytes") { 1.0 } else { COUNT_CHANGED };
    let small = match line.difference.interval {
        Some([low, high]) => low.abs().max(high.abs()) <= least,
        None => line.difference.estimate.abs() <= least,
    };
    let told = RULED_OUT.contains(&line.name.as_str()) || line.name.ends_with("EAGAIN");
    (small && told).then(|| format!("{} {} -> {}", line.name, decimals(line.a, 2), decimals(line.b, 2)))
}

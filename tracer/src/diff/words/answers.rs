//! The answer in one sentence.

use super::{
    super::{Compared, Judgement, Ledger, Metric, RouteJudgement, judge::steps_words},
    change_words, percent_points, signed, with_interval,
};
use crate::{
    report::{counted, us},
    stats::paired::{Rule, Verdict},
};

/// A part is named when it is at least this share of the difference.
const NAMED_SHARE: f64 = 0.2;
/// Parts named at most.
const NAMED: usize = 3;
/// Latency is told when it changed by this much more than twice the change in CPU.
const LATENCY_TOLD: f64 = 0.05;

/// Of one route.
pub fn of_route(route: &RouteJudgement, rule: Rule) -> String {
    let costs = cpu_words(&route.cpu);
    let cpu = format!("B costs {costs}");
    let mut answer = match &route.verdict {
        Verdict::Regression | Verdict::Improved => format!("{cpu}{}", parts_words(route, &route.cpu_ledger)),
        Verdict::Same => format!("B costs the same as A within {} %: {costs}", trimmed(rule.threshold)),
        Verdict::Inconclusive { more_launches } => {
            let advice = match more_launches {
                Some(1) => "about 1 more launch would decide".to_owned(),
                Some(more) => format!("about {more} more launches would decide"),
                None => "no reasonable number of launches would decide".to_owned(),
            };
            format!("{cpu}{}; {advice}", parts_words(route, &route.cpu_ledger))
        }
        Verdict::Withheld { reasons } => {
            format!("{}; measured: {cpu}{}", reasons.join("; "), parts_words(route, &route.cpu_ledger))
        }
    };
    answer.push_str(&latency_words(route));
    for gate in route.beside.iter().filter(|compared| compared.verdict == Some(Verdict::Regression)) {
        let change = gate.change.map(change_words).unwrap_or_default();
        answer.push_str(&format!("; {} {change}", gate.metric.label()));
    }
    answer
}

/// Of all routes together.
pub fn of_all(judgement: &Judgement) -> String {
    let word = verdict_word(&judgement.verdict);
    if let [only] = judgement.routes.as_slice() {
        return format!("{word}: {}", only.answer);
    }
    let same_kind = |route: &&RouteJudgement| verdict_word(&route.verdict) == word;
    let like: Vec<&RouteJudgement> = judgement.routes.iter().filter(same_kind).collect();
    let size = |route: &RouteJudgement| route.cpu.change.map_or(0.0, |change| change.estimate.abs());
    let Some(first) = like.iter().max_by(|a, b| size(a).total_cmp(&size(b))) else {
        return format!("{word}, over {} routes", judgement.routes.len());
    };
    format!(
        "{word} in {} of {} routes; most in {}: {}",
        like.len(),
        judgement.routes.len(),
        first.route,
        first.answer
    )
}

/// One word, as it begins the answer.
pub fn verdict_word(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Regression => "REGRESSION",
        Verdict::Improved => "improved",
        Verdict::Same => "same",
        Verdict::Inconclusive { .. } => "inconclusive",
        Verdict::Withheld { .. } => "withheld",
    }
}

/// `2` for 0.02, `2.5` for 0.025.
pub fn trimmed(share: f64) -> String {
    let percent = percent_points(share);
    percent.strip_suffix(".0").unwrap_or(&percent).to_owned()
}

fn cpu_words(cpu: &Compared) -> String {
    let Some(difference) = cpu.difference else { return "CPU that was not measured".to_owned() };
    let change = cpu.change.map(|change| format!(" ({})", change_words(change))).unwrap_or_default();
    let shown = with_interval(difference, us);
    match shown.split_once(' ') {
        Some((estimate, interval)) => format!("{estimate} us CPU per request {interval}{change}"),
        None => format!("{shown} us CPU per request{change}"),
    }
}

/// `: +1.60 us in write (2 writes instead of 1: write 154 B, write 19 B), +0.20 us in epoll_wait`.
fn parts_words(route: &RouteJudgement, ledger: &Ledger) -> String {
    let mut named: Vec<String> = Vec::new();
    for (name, ns) in parts(ledger) {
        let mut part = format!("{} us in {name}", signed(us(ns)));
        let [a, b] = &route.writes;
        if name == "write" && a.len() != b.len() {
            part.push_str(&format!(
                " ({} instead of {}: {})",
                counted(b.len() as u64, "write"),
                a.len(),
                steps_words(b)
            ));
        }
        named.push(part);
    }
    if named.is_empty() { String::new() } else { format!(": {}", named.join(", ")) }
}

/// The parts that go the way of the total and are a good share of it, largest first. Lines of one phase that differ
/// only in the syscall are one part: a build may do the same by another call.
fn parts(ledger: &Ledger) -> Vec<(String, f64)> {
    let Some(total) = ledger.total else { return Vec::new() };
    let mut sums: Vec<(String, f64, bool)> = Vec::new();
    for line in &ledger.lines {
        let part = part_of(&line.name);
        let (ns, sure) = (line.difference.estimate, line.difference.is_sure());
        match sums.iter_mut().find(|(name, ..)| *name == part) {
            Some((_, sum, any_sure)) => {
                *sum += ns;
                *any_sure |= sure;
            }
            None => sums.push((part, ns, sure)),
        }
    }
    let least = total.estimate.abs() * NAMED_SHARE;
    sums.retain(|(_, ns, sure)| *sure && ns.abs() >= least && ns.signum() == total.estimate.signum());
    sums.sort_by(|a, b| b.1.abs().total_cmp(&a.1.abs()));
    sums.into_iter().take(NAMED).map(|(name, ns, _)| (name, ns)).collect()
}

fn part_of(line: &str) -> String {
    match line.split_once(": ") {
        Some((phase @ ("read" | "write"), state)) if !STATES.contains(&state) => phase.to_owned(),
        Some(("elsewhere", call)) => call.to_owned(),
        _ => line.to_owned(),
    }
}

/// Names of thread states, which lines of the latency ledger end in.
const STATES: [&str; 5] = ["own CPU", "other CPU", "run queue", "blocked", "unknown"];

/// What latency did beyond what CPU explains, and where.
fn latency_words(route: &RouteJudgement) -> String {
    let mean = route.beside.iter().find(|compared| compared.metric == Metric::Mean);
    let Some((difference, change)) = mean.and_then(|mean| mean.difference.zip(mean.change)) else {
        return String::new();
    };
    let cpu = route.cpu.change.map_or(0.0, |change| change.estimate.abs());
    if !change.is_sure() || change.estimate.abs() < 2.0 * cpu + LATENCY_TOLD {
        return String::new();
    }
    let named: Vec<String> = parts(&route.latency_ledger)
        .iter()
        .map(|(name, ns)| format!("{} us in {name}", signed(us(*ns))))
        .collect();
    let parts = if named.is_empty() { String::new() } else { format!(": {}", named.join(", ")) };
    format!("; a request takes {} us ({}){parts}", signed(us(difference.estimate)), change_words(change))
}

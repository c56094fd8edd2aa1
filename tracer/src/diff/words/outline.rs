//! What is told, in order; how it looks is for the formats.

use super::{
    super::{Compared, Judgement, Ledger, Line, RouteJudgement},
    answers::trimmed,
    change_words, launches_words, percent_points, signed, with_interval,
};
use crate::{
    report::{decimals, percent, us},
    stats::paired::LOOKS,
};

/// Lines of a ledger told one by one; the others are told together.
const LINES_TOLD: usize = 8;

/// A piece of the page.
pub enum Block {
    /// The answer.
    Answer(String),
    /// A name and a sentence.
    Entry(&'static str, String),
    /// A heading.
    Heading(String),
    /// A table under a title.
    Table { title: String, header: Vec<&'static str>, rows: Vec<Vec<String>> },
}

/// The whole page.
pub fn outline(judgement: &Judgement) -> Vec<Block> {
    let mut page = vec![Block::Answer(judgement.answer.clone())];
    let [a, b] = &judgement.names;
    page.push(Block::Entry("A, B", format!("A: {a} · B: {b}")));
    page.push(Block::Entry("verdict by", verdict_by(judgement)));
    for route in &judgement.routes {
        if judgement.routes.len() > 1 {
            page.push(Block::Heading(format!("{}: {}", route.route, route.answer)));
        }
        page.extend(of_route(route));
    }
    let processes: Vec<Vec<String>> = judgement.processes.iter().filter_map(compared).collect();
    if !processes.is_empty() {
        page.push(figures("the processes".to_owned(), processes));
    }
    page.extend(judgement.notes.iter().map(|note| Block::Entry("note", note.clone())));
    page
}

fn verdict_by(judgement: &Judgement) -> String {
    let launches = judgement.launches;
    let rule = format!(
        "threshold {} %{}",
        trimmed(judgement.rule.threshold),
        if judgement.rule.strict { ", strict" } else { "" }
    );
    let launches = launches_words(launches);
    match judgement.level {
        Some(level) => format!(
            "{launches} (look {} of {}), {} % intervals, {rule}",
            judgement.looks.max(1),
            LOOKS.len(),
            trimmed(1.0 - 2.0 * level)
        ),
        None => format!("{launches}: too few for intervals, which need {}", LOOKS[0].launches),
    }
}

fn of_route(route: &RouteJudgement) -> Vec<Block> {
    let mut blocks = Vec::new();
    if let Some(control) = &route.control {
        let smallest = control
            .smallest_change
            .map(|share| format!("; smallest change this session could see: {} %", percent_points(share)));
        blocks.push(Block::Entry(
            "control, A/A",
            format!(
                "{}: {}{}",
                change_words(control.change),
                if control.held { "held" } else { "FAILED" },
                smallest.unwrap_or_default()
            ),
        ));
    }
    blocks.extend(route.kinds.iter().map(|kind| Block::Entry("changed in kind", kind.clone())));
    if !route.ruled_out.is_empty() {
        blocks.push(Block::Entry("ruled out", route.ruled_out.join(" · ")));
    }
    blocks.push(Block::Entry("around it", surroundings(route)));
    let rows = [&route.cpu].into_iter().chain(&route.beside).filter_map(compared).collect();
    blocks.push(figures(format!("{}, untraced", route.route), rows));
    blocks.extend(ledger("server CPU per request, us", &route.cpu_ledger, "total, untraced"));
    blocks.extend(ledger(
        "latency per request by what the thread did, us",
        &route.latency_ledger,
        "client's mean, untraced",
    ));
    blocks.extend(ledger("the slowest hundredth, us", &route.slowest_ledger, "total"));
    if !route.counts.is_empty() {
        blocks.push(lines(
            "counts per request that changed",
            &route.counts,
            |value| decimals(value, 2),
            Vec::new(),
        ));
    }
    blocks
}

fn surroundings(route: &RouteJudgement) -> String {
    let around = &route.surroundings;
    let pair = |[a, b]: [f64; 2], shown: fn(f64) -> String| format!("{}, {}", shown(a), shown(b));
    let mut told = vec![
        format!("server core {} busy", pair(around.server_busy, percent)),
        format!("driver {} busy", percent(around.client_busy)),
        format!("waits for a CPU {} of CPU used", pair(around.run_delay, percent)),
        format!("stolen {} ms", decimals(around.stolen_ns as f64 / 1e6, 0)),
    ];
    if let Some(reached) = around.rate_reached {
        told.push(format!("answered {} of the requests due", pair(reached, percent)));
    }
    if let Some(ratio) = around.tracing_ratio {
        told.push(format!("traced / untraced {}", pair(ratio, |ratio| decimals(ratio, 3))));
    }
    let [used, left_out] = around.traced_slices;
    if left_out > 0 {
        told.push(format!("{left_out} of {} traced slices left out, not sound", used + left_out));
    }
    told.join(" · ")
}

fn figures(title: String, rows: Vec<Vec<String>>) -> Block {
    Block::Table { title, header: vec!["", "A", "B", "B - A", "change"], rows }
}

fn compared(compared: &Compared) -> Option<Vec<String>> {
    let metric = compared.metric;
    let shown = |value: f64| metric.shown(value);
    Some(vec![
        format!("{}, {}", metric.label(), metric.unit()),
        shown(compared.a?),
        shown(compared.b?),
        compared.difference.map_or_else(|| "-".to_owned(), |difference| with_interval(difference, shown)),
        compared.change.map_or_else(|| "-".to_owned(), change_words),
    ])
}

fn ledger(title: &str, ledger: &Ledger, total_name: &str) -> Option<Block> {
    if ledger.lines.is_empty() {
        return None;
    }
    let row = |name: &str, difference| {
        vec![name.to_owned(), String::new(), String::new(), with_interval(difference, us)]
    };
    let mut ends = Vec::new();
    ends.extend(ledger.unexplained.map(|rest| row("unexplained", rest)));
    ends.extend(ledger.total.map(|total| row(total_name, total)));
    Some(lines(title, &ledger.lines, us, ends))
}

/// The largest lines one by one, the others together, so that the column adds up.
fn lines(title: &str, lines: &[Line], shown: fn(f64) -> String, ends: Vec<Vec<String>>) -> Block {
    let told = if lines.len() > LINES_TOLD + 1 { LINES_TOLD } else { lines.len() };
    let (largest, others) = lines.split_at(told);
    let mut rows: Vec<Vec<String>> = largest
        .iter()
        .map(|line| {
            vec![line.name.clone(), shown(line.a), shown(line.b), with_interval(line.difference, shown)]
        })
        .collect();
    // Only lines that add up have an end; counts of different things are not summed.
    if !others.is_empty() && !ends.is_empty() {
        let sum = |part: fn(&Line) -> f64| others.iter().map(part).sum::<f64>();
        rows.push(vec![
            format!("{} smaller lines", others.len()),
            shown(sum(|line| line.a)),
            shown(sum(|line| line.b)),
            signed(shown(sum(|line| line.difference.estimate))),
        ]);
    } else {
        let each = |line: &Line| {
            vec![line.name.clone(), shown(line.a), shown(line.b), with_interval(line.difference, shown)]
        };
        rows.extend(others.iter().map(each));
    }
    rows.extend(ends);
    Block::Table { title: title.to_owned(), header: vec!["", "A", "B", "B - A"], rows }
}

//! Cases, their rows, and the verdict on each.

use std::{
    any::Any,
    fmt::{self, Display},
    ops::RangeInclusive,
    panic::{AssertUnwindSafe, catch_unwind},
};

use anyhow::Result;
use comfy_table::{ContentArrangement, Table as Grid, presets::NOTHING};

/// A time may differ by this share of the truth ...
const TOLERANCE: f64 = 0.02;
/// ... or by so much, whichever is more.
const TOLERANCE_NS: u64 = 20_000;
/// Share of the requests that must lie within the tolerance. Between a stamp and the kernel's edge beside it a thread
/// may lose its CPU; then the stamp is not the truth.
const SHARE: f64 = 0.95;

/// Times a case is tried whose times are off, and nothing else.
const ATTEMPTS: u32 = 3;

/// Columns of the printed table.
const WIDTH: u16 = 150;

/// Something that is done to a server and that `tracer` watches.
#[derive(Debug)]
pub struct Case {
    /// What it is called on the command line.
    pub name: &'static str,
    /// It takes long, or needs more than Debian has: only with `--full`.
    pub full: bool,
    /// Why its rows are known not to hold yet.
    pub open: Option<&'static str>,
    /// Does it.
    pub run: fn(&mut Checks) -> Result<()>,
}

impl Case {
    /// A case that must hold.
    pub const fn new(name: &'static str, run: fn(&mut Checks) -> Result<()>) -> Self {
        Self { name, full: false, open: None, run }
    }

    /// The same, only with `--full`.
    pub const fn full(self) -> Self {
        Self { full: true, ..self }
    }

    /// The same, known not to hold for this reason.
    pub const fn open(self, reason: &'static str) -> Self {
        Self { open: Some(reason), ..self }
    }
}

/// How a row came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Pass,
    Fail,
    /// It fails, for a reason that is known.
    Open,
}

impl Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pass => "pass",
            Self::Fail => "FAIL",
            Self::Open => "open",
        })
    }
}

#[derive(Debug)]
struct Row {
    what: String,
    truth: String,
    said: String,
    difference: String,
    held: bool,
    /// It is of times, which others on this machine can disturb.
    timed: bool,
}

/// What one case compares.
#[derive(Debug, Default)]
pub struct Checks {
    rows: Vec<Row>,
}

impl Checks {
    /// Only times failed.
    fn may_be_disturbed(&self) -> bool {
        let mut failed = self.rows.iter().filter(|row| !row.held).peekable();
        failed.peek().is_some() && failed.all(|row| row.timed)
    }

    /// Times of many requests, each with the range the truth lies in and what was said, nanoseconds. The row shows
    /// medians, and the difference that 95 % of the requests do not exceed.
    pub fn times(&mut self, what: &str, pairs: impl IntoIterator<Item = (RangeInclusive<u64>, u64)>) {
        let pairs: Vec<_> = pairs.into_iter().collect();
        let median = |values: Vec<u64>| quantile(values, 0.5);
        let truth = pairs.iter().map(|(truth, _)| truth.start().midpoint(*truth.end())).collect();
        let said = pairs.iter().map(|(_, said)| *said).collect();
        let off = |(truth, said): &(RangeInclusive<u64>, u64)| {
            truth.start().saturating_sub(*said).max(said.saturating_sub(*truth.end()))
        };
        let allowed = |(truth, _): &(RangeInclusive<u64>, u64)| {
            ((*truth.end() as f64 * TOLERANCE) as u64).max(TOLERANCE_NS)
        };
        let within = pairs.iter().filter(|pair| off(pair) <= allowed(pair)).count();
        self.rows.push(Row {
            what: format!("{what}, us"),
            truth: microseconds(median(truth)),
            said: microseconds(median(said)),
            difference: format!(
                "{} ({within} of {})",
                microseconds(quantile(pairs.iter().map(off).collect(), SHARE)),
                pairs.len()
            ),
            held: !pairs.is_empty() && within as f64 >= pairs.len() as f64 * SHARE,
            timed: true,
        });
    }

    /// Something that is the same or is wrong.
    pub fn equal<T: PartialEq + Display>(&mut self, what: &str, truth: T, said: T) {
        let held = truth == said;
        let (truth, said) = shortened(&truth.to_string(), &said.to_string());
        self.rows.push(Row {
            what: what.to_owned(),
            truth,
            said,
            difference: if held { "0" } else { "differs" }.to_owned(),
            held,
            timed: false,
        });
    }

    /// The same thing of many requests: equal for each. The row shows the first that differs.
    pub fn each<T: PartialEq + Display>(&mut self, what: &str, pairs: impl IntoIterator<Item = (T, T)>) {
        let pairs: Vec<_> = pairs.into_iter().collect();
        let wrong = pairs.iter().filter(|(truth, said)| truth != said).count();
        let shown = pairs.iter().find(|(truth, said)| truth != said).or(pairs.first());
        let (truth, said) = match shown {
            Some((truth, said)) => shortened(&truth.to_string(), &said.to_string()),
            None => ("something".to_owned(), "nothing".to_owned()),
        };
        self.rows.push(Row {
            what: what.to_owned(),
            truth,
            said,
            difference: format!("{wrong} of {}", pairs.len()),
            held: wrong == 0 && !pairs.is_empty(),
            timed: false,
        });
    }

    /// Anything else.
    pub fn holds(&mut self, what: &str, truth: impl Display, said: impl Display, held: bool) {
        let (truth, said) = (truth.to_string(), said.to_string());
        let difference = if held { "0" } else { "differs" }.to_owned();
        self.rows.push(Row { what: what.to_owned(), truth, said, difference, held, timed: false });
    }
}

/// The rows of every case that ran.
#[derive(Debug, Default)]
pub struct Table {
    cases: Vec<(&'static Case, Vec<Row>)>,
}

impl Table {
    /// Runs a case, a few times when only times fail: others may have disturbed it. Says so on stderr.
    pub fn run(&mut self, case: &'static Case) {
        let mut checks = once(case);
        for attempt in 2..=ATTEMPTS {
            if case.open.is_some() || !checks.may_be_disturbed() {
                break;
            }
            eprintln!("{}: times are off, attempt {attempt} of {ATTEMPTS}", case.name);
            checks = once(case);
        }
        self.cases.push((case, checks.rows));
    }

    /// Rows that failed, known ones only when `strict`.
    pub fn failed(&self, strict: bool) -> usize {
        let verdicts = self.verdicts();
        verdicts.filter(|verdict| *verdict == Verdict::Fail || strict && *verdict == Verdict::Open).count()
    }

    fn verdicts(&self) -> impl Iterator<Item = Verdict> {
        self.cases.iter().flat_map(|(case, rows)| rows.iter().map(|row| verdict(case, row)))
    }
}

/// One attempt. A case that could not be carried out has failed.
fn once(case: &Case) -> Checks {
    let mut checks = Checks::default();
    let ran = catch_unwind(AssertUnwindSafe(|| (case.run)(&mut checks)));
    let error = match ran {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(format!("{error:#}")),
        Err(panic) => Some(panic_message(&*panic)),
    };
    if let Some(error) = error {
        checks.holds("was carried out", "yes", error, false);
    }
    checks
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("it panicked");
    // A backtrace would follow.
    text.lines().next().unwrap_or_default().to_owned()
}

fn verdict(case: &Case, row: &Row) -> Verdict {
    match (row.held, case.open) {
        (true, _) => Verdict::Pass,
        (false, None) => Verdict::Fail,
        (false, Some(_)) => Verdict::Open,
    }
}

impl Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut grid = Grid::new();
        grid.load_style(NOTHING).set_content_arrangement(ContentArrangement::Dynamic).set_width(WIDTH);
        grid.set_header(["case", "", "true", "tracer said", "difference", ""]);
        for (case, rows) in &self.cases {
            for (index, row) in rows.iter().enumerate() {
                let name = if index == 0 { case.name } else { "" };
                let verdict = verdict(case, row).to_string();
                grid.add_row([name, &row.what, &row.truth, &row.said, &row.difference, &verdict]);
            }
        }
        writeln!(f, "{grid}\n")?;
        for (case, rows) in &self.cases {
            if let Some(reason) = case.open {
                let failing = rows.iter().filter(|row| !row.held).count();
                let state = if failing == 0 {
                    "holds now, no longer open".to_owned()
                } else {
                    format!("{failing} open")
                };
                writeln!(f, "{}: {state}: {reason}", case.name)?;
            }
        }
        let count = |wanted: Verdict| self.verdicts().filter(|verdict| *verdict == wanted).count();
        let (pass, fail, open) = (count(Verdict::Pass), count(Verdict::Fail), count(Verdict::Open));
        write!(f, "{} cases: {pass} rows hold, {fail} fail, {open} open", self.cases.len())
    }
}

/// Both texts, cut to what a row has room for: their beginning, or where they begin to differ.
fn shortened(truth: &str, said: &str) -> (String, String) {
    const CONTEXT: usize = 10;
    const ROOM: usize = 60;
    let same = truth.chars().zip(said.chars()).take_while(|(a, b)| a == b).count();
    let from = if truth == said || same < ROOM { 0 } else { same - CONTEXT };
    let cut = |text: &str| {
        let mut cut: String = text.chars().skip(from).take(ROOM).collect();
        if from > 0 {
            cut.insert(0, '…');
        }
        if text.chars().count() > from + ROOM {
            cut.push('…');
        }
        cut
    };
    (cut(truth), cut(said))
}

/// The value that a share of the values does not exceed.
fn quantile(mut values: Vec<u64>, share: f64) -> u64 {
    values.sort_unstable();
    let index = (values.len() as f64 * share).ceil() as usize;
    values.get(index.saturating_sub(1)).copied().unwrap_or_default()
}

fn microseconds(ns: u64) -> String {
    format!("{:.1}", ns as f64 / 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(pairs: &[(u64, u64)]) -> bool {
        let mut checks = Checks::default();
        checks.times("it", pairs.iter().map(|&(truth, said)| (truth..=truth, said)));
        checks.rows[0].held
    }

    #[test]
    fn two_percent_or_twenty_microseconds_are_allowed() {
        assert!(held(&[(5_000_000, 5_100_000)]));
        assert!(!held(&[(5_000_000, 5_100_001)]));
        assert!(held(&[(0, 20_000)]));
        assert!(!held(&[(0, 20_001)]));
        assert!(!held(&[]), "nothing compared is nothing proven");
    }

    #[test]
    fn one_request_in_twenty_may_be_off() {
        let mut pairs = [(1_000_000, 1_000_000); 40];
        pairs[0].1 = 0;
        pairs[1].1 = 0;
        assert!(held(&pairs));
        pairs[2].1 = 0;
        assert!(!held(&pairs));
    }

    #[test]
    fn a_long_text_is_shown_where_it_differs() {
        let long = "x".repeat(100);
        assert_eq!(shortened("a", "b"), ("a".into(), "b".into()));
        assert_eq!(shortened(&long, &long).0, format!("{}…", &long[..60]));
        let (truth, said) = shortened(&format!("{long}a"), &format!("{long}b"));
        assert!(truth.ends_with("xa") && said.ends_with("xb"), "{truth} {said}");
    }

    #[test]
    fn a_known_failure_counts_only_when_strict() {
        static FAILING: Case = Case::new("failing", |checks| {
            checks.equal("count", 1, 2);
            Ok(())
        });
        static OPEN: Case = Case::new("open", |_| anyhow::bail!("not there yet")).open("a reason");
        let mut table = Table::default();
        table.run(&OPEN);
        assert_eq!((table.failed(false), table.failed(true)), (0, 1));
        table.run(&FAILING);
        assert_eq!((table.failed(false), table.failed(true)), (1, 2));
        let text = table.to_string();
        assert!(text.contains("not there yet") && text.contains("open: 1 open: a reason"), "{text}");
    }
}

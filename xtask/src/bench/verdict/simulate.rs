//! Why the verdict is made the way it is: other ways to judge the same launches cry wolf too often.
//!
//! A launch of a build has luck of its own (memory layout, where its threads meet), which all its slices share; a slice
//! adds noise. Now and then a launch is far off. The deviations below are chosen; `bench verdict` measures real ones.

use fastrand::Rng;
use tracer::stats::paired::{Interval, LOOKS, Rule, Verdict as Judged, judge_at_looks, median};

use crate::Verdict;

/// Standard deviation of a build's luck in one launch.
const LAUNCH_SD: f64 = 0.010;
/// One launch of a build in so many is far off ...
const FAR_OFF_IN: usize = 20;
/// ... by so many times as much.
const FAR_OFF: f64 = 4.0;
/// Standard deviation of one slice.
const SLICE_SD: f64 = 0.009;
/// Pairs of slices in a launch.
const PAIRS: usize = 7;
/// Level on each side of a judgement at 5 %.
const LEVEL: f64 = 0.025;
/// Resamples of a bootstrap.
const RESAMPLES: usize = 400;
/// z of a two-sided test at 5 %.
const Z: f64 = 1.96;

/// Prints the table; the same sessions every time.
pub fn simulate(sessions: usize) -> Verdict {
    println!(
        "simulated, {sessions} sessions each: launch luck {:.1} % (one in {FAR_OFF_IN} x{FAR_OFF}),",
        LAUNCH_SD * 100.0
    );
    println!(
        "slices {:.1} %, {PAIRS} pairs of slices per launch; nominal false alarms 5 %\n",
        SLICE_SD * 100.0
    );
    println!("{:<46} {:>12} {:>13}", "one judgement, two-sided", "false alarms", "expected");
    let alarms = |launches: usize, significant: &dyn Fn(&mut Rng, &[Launch]) -> bool| {
        share(sessions, |rng| {
            let launches = session(rng, launches, 0.0);
            significant(rng, &launches)
        })
    };
    row("slices as replicates, 6 launches", alarms(6, &|_, launches| slices_as_replicates(launches)), "49 %");
    for launches in [6, 8] {
        let alarms = alarms(launches, &|rng, launches| bootstrap_of_the_mean(rng, &values(launches)));
        row(&format!("bootstrap of the mean, {launches} launches"), alarms, "12-15 %");
    }
    row(
        "signed rank after each launch, 6 to 20",
        alarms(20, &|_, launches| until_significant(launches)),
        "17 %",
    );
    let mut held = true;
    for launches in [6, 8, 12, 20] {
        let alarms = alarms(launches, &|_, launches| signed_rank(&values(launches)));
        row(&format!("signed rank interval, {launches} launches"), alarms, "3-6 %");
        held &= alarms < 0.065;
    }
    println!();
    let looks: Vec<String> = LOOKS.iter().map(|look| look.launches.to_string()).collect();
    println!("looks at {} launches, threshold 2 %:", looks.join(", "));
    println!(
        "{:<10} {:>10} {:>10} {:>10} {:>13} {:>10} {:>11}",
        "change", "regression", "improved", "same", "inconclusive", "at 1st", "launches"
    );
    for change in [0.0, 0.01, 0.03, 0.05, 0.08, 0.20] {
        let outcome = Outcomes::of(sessions, change);
        println!("{:<10} {outcome}", format!("{:+.0} %", change * 100.0));
        held &= match change {
            0.0 => outcome.regression + outcome.improved < 0.03,
            0.20 => outcome.first > 0.99,
            _ => true,
        };
    }
    Verdict::of_all([held])
}

fn row(what: &str, alarms: f64, expected: &str) {
    println!("{what:<46} {:>10.1} % {expected:>13}", alarms * 100.0);
}

/// ln(B/A) of each pair of slices in one launch.
type Launch = Vec<f64>;

fn session(rng: &mut Rng, launches: usize, change: f64) -> Vec<Launch> {
    (0..launches)
        .map(|_| {
            let difference = (change.ln_1p()) + luck(rng) - luck(rng);
            (0..PAIRS).map(|_| difference + SLICE_SD * (normal(rng) - normal(rng))).collect()
        })
        .collect()
}

fn luck(rng: &mut Rng) -> f64 {
    let far = if rng.usize(..FAR_OFF_IN) == 0 { FAR_OFF } else { 1.0 };
    LAUNCH_SD * far * normal(rng)
}

/// Of mean 0 and deviation 1 (Box and Muller).
fn normal(rng: &mut Rng) -> f64 {
    let radius = (-2.0 * (1.0 - rng.f64()).ln()).sqrt();
    radius * (std::f64::consts::TAU * rng.f64()).cos()
}

/// The share of sessions of which it is true; each has its own seed.
fn share(sessions: usize, mut is_so: impl FnMut(&mut Rng) -> bool) -> f64 {
    let hits = (0..sessions).filter(|session| is_so(&mut Rng::with_seed(*session as u64))).count();
    hits as f64 / sessions as f64
}

fn values(launches: &[Launch]) -> Vec<f64> {
    launches.iter().filter_map(|launch| median(launch)).collect()
}

fn signed_rank(values: &[f64]) -> bool {
    Interval::of(values, LEVEL).is_some_and(|interval| interval.excludes_zero())
}

fn until_significant(launches: &[Launch]) -> bool {
    let values = values(launches);
    (6..=values.len()).any(|count| signed_rank(&values[..count]))
}

/// Mean over its standard error, as if every pair of slices were a launch.
fn slices_as_replicates(launches: &[Launch]) -> bool {
    let pairs: Vec<f64> = launches.iter().flatten().copied().collect();
    let count = pairs.len() as f64;
    let mean = pairs.iter().sum::<f64>() / count;
    let variance = pairs.iter().map(|pair| (pair - mean).powi(2)).sum::<f64>() / (count - 1.0);
    mean.abs() > Z * (variance / count).sqrt()
}

fn bootstrap_of_the_mean(rng: &mut Rng, values: &[f64]) -> bool {
    let resampled_mean = |rng: &mut Rng| {
        (0..values.len()).map(|_| values[rng.usize(..values.len())]).sum::<f64>() / values.len() as f64
    };
    let mut means: Vec<f64> = (0..RESAMPLES).map(|_| resampled_mean(rng)).collect();
    means.sort_by(f64::total_cmp);
    let tail = (RESAMPLES as f64 * LEVEL) as usize;
    means[tail] > 0.0 || means[RESAMPLES - 1 - tail] < 0.0
}

/// Shares of sessions by verdict.
#[derive(Default)]
struct Outcomes {
    regression: f64,
    improved: f64,
    same: f64,
    inconclusive: f64,
    /// Decided at the first look.
    first: f64,
    /// Mean number.
    launches: f64,
}

impl Outcomes {
    fn of(sessions: usize, change: f64) -> Self {
        let mut outcomes = Self::default();
        let one = 1.0 / sessions as f64;
        for session_number in 0..sessions {
            let mut rng = Rng::with_seed(session_number as u64);
            let values = values(&session(&mut rng, LOOKS[LOOKS.len() - 1].launches, change));
            let Some((verdict, launches)) = judge_at_looks(&values, Rule::default()) else { continue };
            let decided = match verdict {
                Judged::Regression => &mut outcomes.regression,
                Judged::Improved => &mut outcomes.improved,
                Judged::Same => &mut outcomes.same,
                Judged::Inconclusive { .. } | Judged::Withheld { .. } => &mut outcomes.inconclusive,
            };
            *decided += one;
            outcomes.launches += launches as f64 * one;
            if launches == LOOKS[0].launches {
                outcomes.first += one;
            }
        }
        outcomes
    }
}

impl std::fmt::Display for Outcomes {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        let percent = |share: f64| format!("{:.1} %", share * 100.0);
        write!(
            f,
            "{:>10} {:>10} {:>10} {:>13} {:>10} {:>11.1}",
            percent(self.regression),
            percent(self.improved),
            percent(self.same),
            percent(self.inconclusive),
            percent(self.first),
            self.launches
        )
    }
}

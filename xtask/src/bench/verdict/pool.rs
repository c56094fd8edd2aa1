//! Rates from real launches: a pool of launches with a planted change of known size, resampled into sessions.

use std::path::PathBuf;

use anyhow::{Context, Result, anyhow, bail};
use fastrand::Rng;
use tracer::{
    diff::{self, Comparison, Design, Metric, Origin, Side},
    session::{
        diff::{Contenders, begin, gather},
        interrupt,
        progress::Progress,
    },
    stats::paired::{LOOKS, Rule, Verdict as Judged, judge_at_looks, median},
};

use super::super::{goal, tracer_binary};
use crate::command::target_dir;

/// Planted changes, of the CPU per request.
const CHANGES: [f64; 3] = [0.03, 0.05, 0.08];
/// Launches that measure the CPU per request to plant shares of.
const CALIBRATION: usize = 2;
/// Bounds are one-sided at 97.5 %.
const Z: f64 = 1.96;

const DESIGN: Design = Design {
    connections: 32,
    rate_per_s: None,
    slice_ns: 250_000_000,
    slices: 8,
    traced_slices: 0,
    warm_up_ns: 500_000_000,
};

/// Measures what is missing of the pools, then prints the rates.
pub fn run(launches: usize, sessions: usize) -> Result<bool> {
    interrupt::install()?;
    let mut identical = Vec::new();
    let mut changed = Vec::new();
    for change in CHANGES {
        let pool = pool(change, launches)?;
        identical.extend(logs(&pool, Side::Control));
        changed.push((change, logs(&pool, Side::B)));
    }
    println!("pools of {launches} launches of the built-in server, {sessions} sessions resampled from each:");
    println!(
        "{:<12} {:>8} {:>11} {:>11} {:>9} {:>13} {:>8}",
        "planted", "median", "regression", "improved", "same", "inconclusive", "at 1st"
    );
    let (none, false_calls) = rates(&identical, sessions, Labels::Kept);
    print_row("nothing", &identical, &none);
    // Beside it: what the rule does when the luck of these launches, which is no property of it, is taken out.
    print_row("- relabelled", &identical, &rates(&identical, sessions, Labels::Drawn).0);
    let false_bound = upper_bound(false_calls, sessions);
    let mut power_bound = 0.0;
    for (change, logs) in &changed {
        let (shares, _) = rates(logs, sessions, Labels::Kept);
        print_row(&format!("{:+.0} %", change * 100.0), logs, &shares);
        if *change == 0.05 {
            power_bound = lower_bound((shares[0] * sessions as f64).round() as usize, sessions);
        }
    }
    let (few, found) = (false_bound < 0.03, power_bound > 0.85);
    println!("  false calls below {:.1} %: {}", false_bound * 100.0, goal("below 3 %", few));
    println!("  5 % found in more than {:.1} %: {}", power_bound * 100.0, goal("above 85 %", found));
    Ok(few && found)
}

/// The stored pool of a planted change, with launches added where there are too few.
fn pool(change: f64, launches: usize) -> Result<Comparison> {
    let folder = folder(&format!("{:.0}", change * 100.0));
    let mut comparison = match diff::load(&folder) {
        Ok(stored) => stored,
        Err(_) => {
            let spin_ns = (cpu_per_request_ns()? * change).round() as u64;
            let origin = origin("spin_ns=0", &format!("spin_ns={spin_ns}"));
            begin(origin.clone(), DESIGN, &Contenders::of(&origin)?)
        }
    };
    let contenders = Contenders::of(&comparison.origin)?;
    while comparison.launches.len() < launches {
        let next = comparison.launches.len() + 1;
        eprintln!("planted {:+.0} %: launch {next} of {launches}", change * 100.0);
        gather_apart(&mut comparison, &contenders, next)?;
        if !comparison.ended_early.is_empty() {
            bail!("{} with {} launches stored; the next run goes on there", comparison.ended_early, next - 1);
        }
        diff::save(&comparison, &folder)?;
    }
    Ok(comparison)
}

/// In a thread of its own: measuring pins its thread to the driver's CPU, and the next one needs all of them again.
fn gather_apart(comparison: &mut Comparison, contenders: &Contenders, launches: usize) -> Result<()> {
    std::thread::scope(|scope| {
        let gathering = scope.spawn(|| gather(comparison, contenders, launches, &Progress::new()));
        gathering.join().map_err(|_| anyhow!("the measuring thread panicked"))?
    })
}

fn folder(name: &str) -> PathBuf {
    target_dir().join("verdict-pool").join(name)
}

/// Both sides have the knob, so that looking at the clock costs both the same.
fn origin(a: &str, b: &str) -> Origin {
    let tracer = tracer_binary().display().to_string();
    let command = |knobs: &str| format!("'{tracer}' serve --port {{port}} --knobs {knobs}");
    Origin::Commands { commands: [command(a), command(b)], urls: vec!["http://127.0.0.1:{port}/".to_owned()] }
}

fn cpu_per_request_ns() -> Result<f64> {
    let origin = origin("spin_ns=0", "spin_ns=0");
    let contenders = Contenders::of(&origin)?;
    let mut comparison = begin(origin, DESIGN, &contenders);
    gather_apart(&mut comparison, &contenders, CALIBRATION)?;
    let values = comparison.launches.iter().filter_map(|launch| Metric::Cpu.value(launch, 0, Side::A));
    median(&values.collect::<Vec<_>>()).context("nothing was measured to calibrate by")
}

/// ln(side / A) of every launch.
fn logs(pool: &Comparison, side: Side) -> Vec<f64> {
    pool.launches.iter().filter_map(|launch| Metric::Cpu.log_ratio(launch, 0, side)).collect()
}

/// Which of two builds is called A.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Labels {
    /// As in the launch.
    Kept,
    /// Drawn too: of identical builds it means nothing.
    Drawn,
}

/// Shares of regression, improved, same, inconclusive and decided at the first look; and the number of calls.
fn rates(logs: &[f64], sessions: usize, labels: Labels) -> ([f64; 5], usize) {
    let mut counts = [0usize; 5];
    for session in 0..sessions {
        let mut rng = Rng::with_seed(session as u64);
        let launches: Vec<f64> = (0..LOOKS[LOOKS.len() - 1].launches)
            .map(|_| {
                let log = logs[rng.usize(..logs.len())];
                if labels == Labels::Drawn && rng.bool() { -log } else { log }
            })
            .collect();
        let Some((verdict, used)) = judge_at_looks(&launches, Rule::default()) else { continue };
        let place = match verdict {
            Judged::Regression => 0,
            Judged::Improved => 1,
            Judged::Same => 2,
            Judged::Inconclusive { .. } | Judged::Withheld { .. } => 3,
        };
        counts[place] += 1;
        counts[4] += usize::from(used == LOOKS[0].launches);
    }
    (counts.map(|count| count as f64 / sessions as f64), counts[0] + counts[1])
}

fn print_row(what: &str, logs: &[f64], shares: &[f64; 5]) {
    let percent = |share: f64| format!("{:.1} %", share * 100.0);
    println!(
        "{what:<12} {:>8} {:>11} {:>11} {:>9} {:>13} {:>8}",
        percent(median(logs).unwrap_or_default().exp_m1()),
        percent(shares[0]),
        percent(shares[1]),
        percent(shares[2]),
        percent(shares[3]),
        percent(shares[4])
    );
}

/// Wilson's upper bound of a share.
fn upper_bound(hits: usize, of: usize) -> f64 {
    wilson(hits, of, 1.0)
}

/// Wilson's lower bound of a share.
fn lower_bound(hits: usize, of: usize) -> f64 {
    wilson(hits, of, -1.0)
}

fn wilson(hits: usize, of: usize, side: f64) -> f64 {
    let (n, share) = (of as f64, hits as f64 / of as f64);
    let middle = share + Z * Z / (2.0 * n);
    let half = Z * (share * (1.0 - share) / n + Z * Z / (4.0 * n * n)).sqrt();
    (middle + side * half) / (1.0 + Z * Z / n)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_wilsons() {
        // 0 of 100: 3.7 %; 95 of 100: 88.8 % to 97.8 %.
        assert!((upper_bound(0, 100) - 0.0370).abs() < 5e-4);
        assert!((lower_bound(95, 100) - 0.8882).abs() < 5e-4);
        assert!((upper_bound(95, 100) - 0.9785).abs() < 5e-4);
    }
}

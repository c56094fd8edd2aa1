//! `diff`: A, B and the control in fresh processes, launch after launch, until a planned look decides.

mod contenders;
mod launch;
mod slices;

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail, ensure};

pub use contenders::Contenders;

use self::launch::Bed;
use super::{interrupt, progress::Progress};
use crate::{
    diff::{COMPARISON_SCHEMA, Comparison, Design, Metric, Origin, Route, judge, launches_words},
    probe,
    recording::Environment,
    stats::paired::{Rule, Verdict, next_look},
    target::{cores::allowed, environment::fingerprint},
};

/// How it is judged, and how long it may take.
pub struct Options<'a> {
    /// Programs and map sizes.
    pub probes: probe::Options,
    /// Threshold and strictness.
    pub rule: Rule,
    /// Metrics that decide beside CPU.
    pub gates: &'a [Metric],
    /// No launch begins that would probably end later.
    pub max_time: Option<Duration>,
}

/// A comparison in which nothing has been measured yet.
pub fn begin(origin: Origin, design: Design, contenders: &Contenders) -> Comparison {
    Comparison {
        schema_version: COMPARISON_SCHEMA,
        tracer_version: env!("CARGO_PKG_VERSION").to_owned(),
        started_unix_s: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
        environment: fingerprint(),
        names: contenders.names(),
        routes: contenders
            .workloads
            .iter()
            .map(|workload| Route { name: workload.name.clone(), unequal_work: String::new() })
            .collect(),
        origin,
        design,
        launches: Vec::new(),
        looks: Vec::new(),
        ended_early: String::new(),
        notes: Vec::new(),
    }
}

/// Adds launches until a look decides, the looks or the time are spent, or Ctrl-C.
pub fn extend(
    comparison: &mut Comparison,
    contenders: &Contenders,
    options: &Options,
    progress: &Progress,
) -> Result<()> {
    check_environment(&comparison.environment, &fingerprint())?;
    let Some(first_look) = next_look(comparison.looks.len()) else {
        bail!(
            "its looks are spent ({:?} launches), and another would find what is not there: start a new comparison",
            comparison.looks
        );
    };
    let allowed = allowed()?;
    ensure!(
        allowed.len() > 1,
        "server and driver would share the only CPU allowed: a comparison needs two; see `taskset -p $$`"
    );
    contenders.check_installed()?;
    comparison.ended_early.clear();
    let bed =
        Bed { contenders, design: comparison.design, probes: &options.probes, cpus: &allowed, progress };
    let started = Instant::now();
    let before = comparison.launches.len();
    let mut look = first_look;
    loop {
        while comparison.launches.len() < look.launches {
            let done = (comparison.launches.len() - before) as u32;
            let next_takes = started.elapsed() / done.max(1);
            if options.max_time.is_some_and(|most| done > 0 && started.elapsed() + next_takes > most) {
                end_for_time(comparison, options);
                return Ok(());
            }
            progress.say(format!("launch {} of {}", comparison.launches.len() + 1, look.launches));
            if let Err(error) = add_launch(comparison, &bed) {
                if comparison.launches.is_empty() {
                    return Err(error);
                }
                comparison.ended_early = format!("{error:#}");
            }
            if !comparison.ended_early.is_empty() {
                return Ok(());
            }
        }
        comparison.looks.push(comparison.launches.len());
        let verdict = judge(comparison, options.rule, options.gates).verdict;
        match next_look(comparison.looks.len()) {
            Some(next) if matches!(verdict, Verdict::Inconclusive { .. }) => look = next,
            _ => return Ok(()),
        }
    }
}

/// Adds so many launches without a look: a pool to draw from, not a comparison. Stops at Ctrl-C.
pub fn gather(
    comparison: &mut Comparison,
    contenders: &Contenders,
    launches: usize,
    progress: &Progress,
) -> Result<()> {
    let cpus = allowed()?;
    ensure!(cpus.len() > 1, "server and driver would share the only CPU allowed: a comparison needs two");
    let probes = probe::Options::default();
    let bed = Bed { contenders, design: comparison.design, probes: &probes, cpus: &cpus, progress };
    while comparison.launches.len() < launches && comparison.ended_early.is_empty() {
        add_launch(comparison, &bed)?;
    }
    Ok(())
}

/// One launch more, or why it did not come to its end.
fn add_launch(comparison: &mut Comparison, bed: &Bed) -> Result<()> {
    let number = comparison.launches.len();
    if number == 0 {
        bed.progress.say("asking both once");
        for (route, unequal) in comparison.routes.iter_mut().zip(bed.unequal_work()?) {
            route.unequal_work = unequal;
        }
    }
    match bed.launch(number)? {
        Some(launch) if !interrupt::requested() => comparison.launches.push(launch),
        _ => comparison.ended_early = "interrupted".to_owned(),
    }
    Ok(())
}

/// When the time is spent, the planned look is taken early, at its own level: the time was not chosen by the result.
fn end_for_time(comparison: &mut Comparison, options: &Options) {
    let launches = comparison.launches.len();
    let enough = launches >= crate::stats::paired::LOOKS[0].launches;
    if enough && comparison.looks.last() != Some(&launches) {
        comparison.looks.push(launches);
    }
    let most = options.max_time.unwrap_or_default();
    comparison.notes.push(format!("--max-time {most:?} was over after {}", launches_words(launches)));
}

/// Launches of unlike machines are not launches of one comparison.
fn check_environment(stored: &Environment, now: &Environment) -> Result<()> {
    let differences = stored.differences(now);
    ensure!(
        differences.is_empty(),
        "it was measured in another environment ({}); start a new comparison",
        differences.join(", ")
    );
    Ok(())
}

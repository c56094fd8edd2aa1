//! A suite: equal work first, then servers under workloads, each round of each row in a fresh process, in an order
//! drawn anew for every round.

mod equal_work;
mod rows;
mod runtimes;

use std::collections::BTreeSet;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};

use super::{interrupt, launch::Tracing, progress::Progress};
use crate::{
    scenario::{RowName, Scenario, Suite},
    suite::{Findings, SUITE_SCHEMA},
    target::{
        cores::{Placement, pin_current_thread, placement},
        environment::fingerprint,
    },
};

/// What a suite measures, by the names `--only` takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// Whether the servers do equal work.
    EqualWork,
    /// Servers under workloads.
    Load,
}

impl Part {
    /// Every part, in the order they run.
    pub const ALL: [Self; 2] = [Self::EqualWork, Self::Load];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::EqualWork => "equal-work",
            Self::Load => "load",
        }
    }

    /// The part of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|part| part.name() == name)
    }

    /// The suite has it.
    pub fn is_in(self, _suite: &Suite) -> bool {
        match self {
            Self::EqualWork | Self::Load => true,
        }
    }

    /// It attaches probes, or needs root otherwise.
    pub fn needs_root(self) -> bool {
        self != Self::EqualWork
    }
}

/// What a suite is run with.
pub struct Options {
    /// How rounds are traced.
    pub tracing: Tracing,
    /// What the order is drawn from.
    pub seed: u64,
    /// Only the rows that stand for the suite, one round each.
    pub quick: bool,
    /// What is measured.
    pub parts: BTreeSet<Part>,
}

/// What every part works with.
struct Session<'a> {
    scenario: &'a Scenario,
    suite: &'a Suite,
    options: &'a Options,
    placement: &'a Placement,
    progress: &'a Progress,
}

/// Runs a suite.
pub fn run(scenario: &Scenario, options: &Options, progress: &Progress) -> Result<Findings> {
    let Some(suite) = &scenario.suite else {
        bail!(
            "the scenario `{}` is no suite: it has no [suite] table; bench it without --suite",
            scenario.name
        );
    };
    for server in &scenario.servers {
        server.check_installed()?;
    }
    let placement = placement()?;
    // Reader and everything else of ours share the driver's CPU: the server has its own for itself.
    if let Some(&core) = placement.client.first() {
        pin_current_thread(core)?;
    }
    let context = Session { scenario, suite, options, placement: &placement, progress };
    let mut findings = Findings {
        suite_schema: SUITE_SCHEMA,
        tracer_version: env!("CARGO_PKG_VERSION").to_owned(),
        suite: scenario.name.clone(),
        started_unix_s: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
        seed: options.seed,
        quick: options.quick,
        base: suite.base.clone(),
        environment: fingerprint(),
        runtimes: runtimes::versions(&scenario.servers),
        notes: placement.note().into_iter().collect(),
        ..Findings::default()
    };
    let wanted = context.wanted();
    findings.left_out = context.left_out(&wanted);
    // Always: rows may be ranked only when their servers do the same.
    findings.differences =
        equal_work::differences(&context).context("the comparison of the servers' work failed")?;
    if options.parts.contains(&Part::Load) {
        rows::measure(&context, &wanted, &mut findings)?;
    }
    if interrupt::requested() {
        findings.ended_early = "interrupted".to_owned();
    }
    findings.judge(suite);
    Ok(findings)
}

impl Session<'_> {
    /// The rows to measure: all, or those of a quick run.
    fn wanted(&self) -> Vec<RowName> {
        let all = self.scenario.servers.iter().flat_map(|server| {
            let row = |workload: &str| RowName { server: server.name.clone(), workload: workload.to_owned() };
            self.scenario.requests.iter().map(move |request| row(&request.name))
        });
        all.filter(|row| !self.options.quick || self.suite.quick.contains(row)).collect()
    }

    /// What a quick run does not measure.
    fn left_out(&self, wanted: &[RowName]) -> Vec<String> {
        if !self.options.quick {
            return Vec::new();
        }
        let servers = self.scenario.servers.iter();
        let rows = servers.flat_map(|server| {
            let left = self
                .scenario
                .requests
                .iter()
                .filter(|request| !wanted.iter().any(|row| row.is(&server.name, &request.name)));
            let left: Vec<_> = left.map(|request| request.name.as_str()).collect();
            (!left.is_empty()).then(|| format!("{}: {}", server.name, left.join(", ")))
        });
        rows.collect()
    }

    fn say(&self, what: impl std::fmt::Display) {
        self.progress.say(format!("{}: {what}", self.scenario.name));
    }
}

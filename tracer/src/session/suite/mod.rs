//! A suite: equal work first, then servers under workloads, each round of each row in a fresh process, in an order
//! drawn anew for every round.

mod contract;
mod equal_work;
mod leak;
mod memory;
mod router;
mod rows;
mod runtimes;
mod stamps;
mod start;

use std::collections::BTreeSet;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};

use super::{interrupt, launch::Tracing, progress::Progress};
use crate::{
    scenario::{RowName, Scenario, Server, Suite},
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
    /// How routers grow.
    Router,
    /// Cold starts.
    Start,
    /// Resident memory, and heap per route.
    Memory,
    /// Whether memory grows with requests.
    Leak,
}

impl Part {
    /// Every part, in the order they run.
    pub const ALL: [Self; 6] =
        [Self::EqualWork, Self::Load, Self::Router, Self::Start, Self::Memory, Self::Leak];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::EqualWork => "equal-work",
            Self::Load => "load",
            Self::Router => "router",
            Self::Start => "start",
            Self::Memory => "memory",
            Self::Leak => "leak",
        }
    }

    /// The part of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|part| part.name() == name)
    }

    /// The suite has it.
    pub fn is_in(self, suite: &Suite) -> bool {
        match self {
            Self::EqualWork | Self::Load => true,
            Self::Router => suite.router.is_some(),
            Self::Start => suite.start.is_some(),
            Self::Memory => suite.memory.is_some(),
            Self::Leak => suite.leak.is_some(),
        }
    }

    /// It attaches probes, or reads the kernel's trace.
    pub fn needs_root(self) -> bool {
        matches!(self, Self::Load | Self::Start)
    }

    /// A quick run leaves it out.
    fn is_slow(self) -> bool {
        matches!(self, Self::Router | Self::Leak)
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
    for part in context.parts() {
        context.measure(part, &wanted, &mut findings).with_context(|| format!("part {}", part.name()))?;
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
        let loads = self.options.parts.contains(&Part::Load);
        let servers = self.scenario.servers.iter().filter(|_| loads);
        let rows = servers.flat_map(|server| {
            let left = self
                .scenario
                .requests
                .iter()
                .filter(|request| !wanted.iter().any(|row| row.is(&server.name, &request.name)));
            let left: Vec<_> = left.map(|request| request.name.as_str()).collect();
            (!left.is_empty()).then(|| format!("{}: {}", server.name, left.join(", ")))
        });
        let parts = self.options.parts.iter().filter(|part| part.is_slow());
        rows.chain(parts.map(|part| format!("part {}", part.name()))).collect()
    }

    /// What is measured now: all that was asked for, less what is too slow for a quick run.
    fn parts(&self) -> Vec<Part> {
        let parts = self.options.parts.iter().copied();
        parts.filter(|part| !(self.options.quick && part.is_slow())).collect()
    }

    /// The servers, in a quick run those of its rows.
    fn servers(&self) -> impl Iterator<Item = &Server> {
        let is_wanted = |server: &&Server| {
            !self.options.quick || self.suite.quick.iter().any(|row| row.server == server.name)
        };
        self.scenario.servers.iter().filter(is_wanted)
    }

    fn measure(&self, part: Part, wanted: &[RowName], findings: &mut Findings) -> Result<()> {
        match part {
            Part::EqualWork => {}
            Part::Load => rows::measure(self, wanted, findings)?,
            Part::Router => {
                if let Some(settings) = &self.suite.router {
                    findings.router = router::measure(self, settings)?;
                    findings.router_control = Some(settings.control.clone());
                }
            }
            Part::Start => {
                if let Some(settings) = self.suite.start {
                    findings.starts = start::measure(self, settings)?;
                }
            }
            Part::Memory => {
                if let Some(settings) = self.suite.memory {
                    findings.memory = memory::measure(self, settings)?;
                }
            }
            Part::Leak => {
                if let Some(settings) = self.suite.leak {
                    findings.leaks = leak::measure(self, settings.phase)?;
                }
            }
        }
        Ok(())
    }

    fn say(&self, what: impl std::fmt::Display) {
        self.progress.say(format!("{}: {what}", self.scenario.name));
    }
}

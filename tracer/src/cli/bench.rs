//! `tracer bench`

use std::{path::PathBuf, time::Duration};

use anyhow::{Context, Result, bail};
use clap::Args;

use super::{
    Format, Status, TraceArguments, print, sending::PacingArguments, status_of, suite, told_of_exit, worst,
};
use crate::{
    preflight::elevate,
    report::{self, Report},
    scenario::{Length, Scenario, parse_duration},
    session::{bench, progress::Progress},
};

/// Options of `bench`.
#[derive(Args)]
pub struct Arguments {
    /// Scenario files; without one, the built-in server
    #[arg(value_name = "SCENARIO.toml")]
    scenarios: Vec<PathBuf>,
    /// Only these servers and workloads, of a suite also parts, by their names in --list
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub(super) only: Vec<String>,
    /// List servers and workloads, and run nothing
    #[arg(long)]
    pub(super) list: bool,
    #[command(flatten)]
    pub(super) suite: suite::SuiteArguments,
    #[command(flatten)]
    pub(super) size: SizeArguments,
    #[command(flatten)]
    pub(super) pacing: PacingArguments,
    /// How results are printed
    #[arg(long, value_enum, default_value_t)]
    pub(super) format: Format,
    #[command(flatten)]
    pub(super) trace: TraceArguments,
}

/// Options that override a scenario's load.
#[derive(Args, Default)]
pub struct SizeArguments {
    /// Keep-alive connections
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_535))]
    pub connections: Option<u32>,
    /// Length of one round as a time, such as 2s or 500ms
    #[arg(long, value_name = "TIME", value_parser = parse_duration, conflicts_with = "requests")]
    pub duration: Option<Duration>,
    /// Length of one round as a number of requests
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub requests: Option<u64>,
    /// Pairs of an untraced and a traced round
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub rounds: Option<u32>,
}

impl SizeArguments {
    /// Applies what was given on the command line.
    pub fn apply(&self, scenario: &mut Scenario) {
        if let Some(connections) = self.connections {
            scenario.connections = connections;
        }
        if let Some(duration) = self.duration {
            scenario.length = Length::Duration(duration);
        }
        if let Some(requests) = self.requests {
            scenario.length = Length::Requests(requests);
        }
        if let Some(rounds) = self.rounds {
            scenario.rounds = rounds;
        }
    }
}

/// The scenarios of a command line, the built-in one when none is named.
pub fn scenarios(paths: &[PathBuf], only: &[String], size: &SizeArguments) -> Result<Vec<Scenario>> {
    let all = if paths.is_empty() {
        let exe = std::env::current_exe().context("cannot find tracer's own program file")?;
        vec![Scenario::builtin(&exe)]
    } else {
        paths.iter().map(|path| Scenario::load(path)).collect::<Result<_>>()?
    };
    all.into_iter()
        .map(|scenario| {
            let mut scenario = if only.is_empty() { scenario } else { scenario.only(only)? };
            size.apply(&mut scenario);
            Ok(scenario)
        })
        .collect()
}

/// Runs `bench`.
pub fn run(arguments: &Arguments) -> Result<Status> {
    if let Some(name) = &arguments.suite.suite {
        if !arguments.pacing.is_usual() {
            bail!(
                "a suite compares servers under one kind of load; leave out --rate, --pipeline and --requests-per-connection, or bench its scenario without --suite"
            );
        }
        return suite::run(name, arguments);
    }
    let scenarios = scenarios(&arguments.scenarios, &arguments.only, &arguments.size)?;
    if arguments.list {
        return list(&scenarios);
    }
    elevate::ensure()?;
    let options = bench::Options {
        tracing: arguments.trace.tracing(),
        pacing: arguments.pacing.pacing(),
        output: None,
        checker: None,
    };
    let progress = Progress::new();
    let mut outcomes = Vec::new();
    let ran =
        scenarios.iter().try_for_each(|scenario| bench::bench(scenario, &options, &progress, &mut outcomes));
    drop(progress);
    if outcomes.is_empty() && ran.is_err() {
        return ran.map(|()| Status::Held);
    }
    let status =
        outcomes.iter().map(|outcome| status_of(&outcome.run, &outcome.row)).fold(Status::Held, worst);
    let exits: Vec<_> = outcomes.iter().filter_map(|outcome| told_of_exit(&outcome.run)).collect();
    let report = Report::new(outcomes.into_iter().map(|outcome| outcome.row).collect());
    print(&match arguments.format {
        Format::Text => report::text(&report),
        Format::Json => report::json(&report),
    })?;
    for exit in exits {
        eprintln!("tracer: {exit}");
    }
    // The servers before the one that could not be measured have their rows all the same.
    ran?;
    Ok(status)
}

fn list(scenarios: &[Scenario]) -> Result<Status> {
    let mut lines = Vec::new();
    for scenario in scenarios {
        lines.push(format!("scenario {}", scenario.name));
        lines.extend(scenario.servers.iter().map(|server| format!("  server {}", server.name)));
        lines.extend(
            scenario
                .requests
                .iter()
                .map(|request| format!("  workload {}: {} {}", request.name, request.method, request.path)),
        );
    }
    print(&lines.join("\n"))?;
    Ok(Status::Held)
}

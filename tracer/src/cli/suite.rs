//! `tracer bench --suite`

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, Result, bail};
use clap::Args;

use super::{Format, Status, bench, print, worst};
use crate::{
    preflight::elevate,
    scenario::Scenario,
    session::{
        progress::Progress,
        suite::{self, Part},
    },
    suite::{Findings, text},
    target::user::give_to_user,
};

/// Options of `bench --suite`.
#[derive(Args)]
pub struct SuiteArguments {
    /// Run a suite: the name of a file in scenarios/, or the path of a scenario with a [suite] table
    #[arg(long, value_name = "NAME", conflicts_with = "scenarios")]
    pub suite: Option<PathBuf>,
    /// Add the servers of this file to the suite: [[server]] tables and nothing else
    #[arg(long, value_name = "FILE.toml", requires = "suite")]
    server: Vec<PathBuf>,
    /// Only the rows that stand for the suite, one round each; nothing is ranked
    #[arg(long, requires = "suite")]
    quick: bool,
    /// Draw the order of the rows from this number, as an earlier run printed it
    #[arg(long, value_name = "N", requires = "suite")]
    seed: Option<u64>,
    /// Keep the result in this file; `tracer report FILE` prints it again
    #[arg(short, long, value_name = "FILE.json", requires = "suite")]
    output: Option<PathBuf>,
}

/// Runs a suite, or lists what is in it.
pub fn run(name: &Path, arguments: &bench::Arguments) -> Result<Status> {
    let bench::Arguments { suite: arguments, only, list, size, format, trace, .. } = arguments;
    let mut scenario = Scenario::load(&file(name)?)?;
    for path in &arguments.server {
        scenario.add_servers(path)?;
    }
    let (parts, names): (Vec<_>, Vec<_>) = only.iter().partition(|name| Part::named(name).is_some());
    let parts: BTreeSet<Part> = parts.into_iter().filter_map(|name| Part::named(name)).collect();
    let has = |part: &Part| scenario.suite.as_ref().is_some_and(|suite| part.is_in(suite));
    let parts = if parts.is_empty() { Part::ALL.into_iter().filter(has).collect() } else { parts };
    if !names.is_empty() {
        scenario = scenario.only(&names)?;
    }
    size.apply(&mut scenario);
    if *list {
        return listed(&scenario, &parts);
    }
    if parts.iter().any(|part| part.needs_root()) {
        elevate::ensure()?;
    }
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let options = suite::Options {
        tracing: trace.tracing(),
        seed: arguments.seed.unwrap_or(since_epoch.as_secs()),
        quick: arguments.quick,
        parts,
    };
    let progress = Progress::new();
    let findings = suite::run(&scenario, &options, &progress)?;
    drop(progress);
    if let Some(path) = &arguments.output {
        store(path, &findings)?;
    }
    print_findings(&findings, *format)?;
    Ok(status(&findings))
}

/// Prints findings, fresh or stored.
pub fn print_findings(findings: &Findings, format: Format) -> Result<()> {
    match format {
        Format::Text => print(&text(findings)),
        Format::Json => print(&serde_json::to_string_pretty(findings)?),
    }
}

/// The status findings deserve: broken promises first, then whether they can be relied on.
pub fn status(findings: &Findings) -> Status {
    let broken = if findings.is_broken() { Status::Broken } else { Status::Held };
    let evidence = if findings.lacks_evidence() { Status::NoVerdict } else { Status::Held };
    worst(broken, evidence)
}

fn store(path: &Path, findings: &Findings) -> Result<()> {
    let json = serde_json::to_vec_pretty(findings)?;
    std::fs::write(path, json).with_context(|| {
        format!("cannot write {}; give a file in a folder that may be written", path.display())
    })?;
    give_to_user(path)
}

/// The scenario file of a suite: a path as it is, a name in the nearest `scenarios` folder above the current folder or
/// above this program.
fn file(name: &Path) -> Result<PathBuf> {
    if name.components().count() > 1 || name.extension().is_some() {
        return Ok(name.to_owned());
    }
    let file = Path::new("scenarios").join(name).with_extension("toml");
    let starts = [std::env::current_dir(), std::env::current_exe()];
    let starts: Vec<PathBuf> = starts.into_iter().flatten().collect();
    let mut candidates = starts.iter().flat_map(|start| start.ancestors()).map(|folder| folder.join(&file));
    match candidates.find(|candidate| candidate.is_file()) {
        Some(found) => Ok(found),
        None => bail!(
            "there is no suite `{}`: no {} in the current folder or one above it; run tracer from its repository, or give the path of a scenario file",
            name.display(),
            file.display()
        ),
    }
}

fn listed(scenario: &Scenario, parts: &BTreeSet<Part>) -> Result<Status> {
    let mut lines = vec![format!("suite {}", scenario.name)];
    lines.extend(scenario.servers.iter().map(|server| match server.runtime.as_str() {
        "" => format!("  server {}", server.name),
        runtime => format!("  server {} ({runtime})", server.name),
    }));
    let requests = scenario.requests.iter();
    lines.extend(
        requests.map(|request| format!("  workload {}: {} {}", request.name, request.method, request.path)),
    );
    lines.extend(parts.iter().map(|part| format!("  part {}", part.name())));
    print(&lines.join("\n"))?;
    Ok(Status::Held)
}

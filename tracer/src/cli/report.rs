//! `tracer report`

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap::Args;

use super::{Format, Status, print, status_of, suite};
use crate::{
    recording::disk,
    report::{self, Report},
    stats::Summary,
    suite::{Findings, SUITE_SCHEMA},
};

/// Options of `report`.
#[derive(Args)]
pub struct Arguments {
    /// Recording folders, or one stored result of a suite
    #[arg(value_name = "RECORDING", required = true)]
    recordings: Vec<PathBuf>,
    /// How results are printed
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// Runs `report`: no root, no kernel.
pub fn run(arguments: &Arguments) -> Result<Status> {
    if let [path] = arguments.recordings.as_slice()
        && path.is_file()
    {
        return stored_suite(path, arguments.format);
    }
    let mut rows = Vec::new();
    let mut status = Status::Held;
    for path in &arguments.recordings {
        let recording = disk::open(path)?;
        let mut summary = Summary::new();
        for request in recording.requests {
            summary.add(&request?);
        }
        let row = report::row(&recording.run, &summary, None);
        status = super::worst(status, status_of(&recording.run, &row));
        rows.push(row);
    }
    let report = Report::new(rows);
    print(&match arguments.format {
        Format::Text => report::text(&report),
        Format::Json => report::json(&report),
    })?;
    Ok(status)
}

/// The result of a suite, as `bench --suite NAME -o FILE` stored it.
fn stored_suite(path: &Path, format: Format) -> Result<Status> {
    let json = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let findings: Findings = serde_json::from_slice(&json).with_context(|| {
        format!(
            "{} is no stored result of a suite; give the FILE of `bench --suite NAME -o FILE`",
            path.display()
        )
    })?;
    ensure!(
        findings.suite_schema == SUITE_SCHEMA,
        "{} has the schema {} of suites, and this tracer reads {SUITE_SCHEMA}; use tracer {}",
        path.display(),
        findings.suite_schema,
        findings.tracer_version
    );
    suite::print_findings(&findings, format)?;
    Ok(suite::status(&findings))
}

//! `tracer report`

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;

use super::{Format, Status, print, status_of};
use crate::{
    recording::disk,
    report::{self, Report},
    stats::Summary,
};

/// Options of `report`.
#[derive(Args)]
pub struct Arguments {
    /// Recording folders
    #[arg(value_name = "RECORDING", required = true)]
    recordings: Vec<PathBuf>,
    /// How results are printed
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// Runs `report`: no root, no kernel.
pub fn run(arguments: &Arguments) -> Result<Status> {
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

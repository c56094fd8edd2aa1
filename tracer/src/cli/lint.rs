//! `tracer lint`

use std::{path::PathBuf, time::Duration};

use anyhow::Result;
use clap::Args;

use super::{Format, Status, print};
use crate::{
    lint::{self, Linter},
    recording::disk::{self, Recording},
    scenario::parse_duration,
};

/// Options of `lint`.
#[derive(Args)]
pub struct Arguments {
    /// Recording folder
    #[arg(value_name = "RECORDING")]
    recording: PathBuf,
    /// How long a request may hold its event loop
    #[arg(long, value_name = "TIME", default_value = "10ms", value_parser = parse_duration)]
    held: Duration,
    /// How results are printed
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// Runs `lint`: no root, no kernel.
pub fn run(arguments: &Arguments) -> Result<Status> {
    let Recording { run, requests } = disk::open(&arguments.recording)?;
    let mut linter = Linter::new(arguments.held.as_nanos() as u64);
    for request in requests {
        linter.observe(&request?);
    }
    let report = linter.report(&run);
    print(&match arguments.format {
        Format::Text => lint::text(&report),
        Format::Json => lint::json(&report),
    })?;
    Ok(match report.exit_code() {
        0 => Status::Held,
        1 => Status::Broken,
        _ => Status::NoVerdict,
    })
}

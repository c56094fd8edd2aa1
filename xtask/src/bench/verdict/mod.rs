//! `cargo xtask bench verdict`: how often the verdict of `tracer diff` is right.

mod simulate;

use anyhow::{Result, bail};

pub use simulate::simulate;

use crate::Verdict;

#[derive(clap::Args)]
pub struct Args {
    /// Reprint the simulation behind the statistical method: no server, no root
    #[arg(long)]
    pub simulate: bool,
    /// Simulated sessions per figure
    #[arg(long, default_value_t = 4_000)]
    pub sessions: usize,
}

pub fn run(_: &Args) -> Result<Verdict> {
    bail!("only --simulate is there")
}

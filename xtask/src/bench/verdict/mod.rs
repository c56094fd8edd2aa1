//! `cargo xtask bench verdict`: how often the verdict of `tracer diff` is right.

mod live;
mod pool;
mod simulate;

use anyhow::Result;

pub use simulate::simulate;

use crate::Verdict;

#[derive(clap::Args)]
pub struct Args {
    /// Reprint the simulation behind the statistical method: no server, no root
    #[arg(long)]
    pub simulate: bool,
    /// Simulated or resampled sessions per figure
    #[arg(long, default_value_t = 4_000)]
    pub sessions: usize,
    /// Launches in the pool of each planted change
    #[arg(long, default_value_t = 60)]
    launches: usize,
    /// Only the pool
    #[arg(long, conflicts_with = "live")]
    pool: bool,
    /// Only the eight live comparisons
    #[arg(long)]
    live: bool,
}

pub fn run(args: &Args) -> Result<Verdict> {
    let mut held = Vec::new();
    if !args.live {
        held.push(pool::run(args.launches, args.sessions)?);
    }
    if !args.pool {
        held.push(live::run()?);
    }
    Ok(Verdict::of_all(held))
}

//! `cargo xtask bench verdict`: how often the verdict of `tracer diff` is right.

mod live;
mod pool;
mod simulate;

use anyhow::Result;

pub use simulate::simulate;

use crate::Verdict;

/// A session drawn from a pool costs little, and many of them bound its rates closely.
const RESAMPLED_SESSIONS: usize = 40_000;
/// The simulated ones behind the method's table.
pub const SIMULATED_SESSIONS: usize = 4_000;

#[derive(clap::Args)]
pub struct Args {
    /// Reprint the simulation behind the statistical method: no server, no root
    #[arg(long)]
    pub simulate: bool,
    /// Simulated (4,000) or resampled (40,000) sessions per figure
    #[arg(long)]
    pub sessions: Option<usize>,
    /// Launches in the pool of each planted change
    #[arg(long, default_value_t = 60)]
    launches: usize,
    /// Only the pool
    #[arg(long, conflicts_with = "live")]
    pool: bool,
    /// Only the eight live comparisons
    #[arg(long)]
    live: bool,
    /// Only the live comparisons whose name contains this
    #[arg(long, value_name = "NAME", requires = "live")]
    only: Option<String>,
}

pub fn run(args: &Args) -> Result<Verdict> {
    let mut held = Vec::new();
    if !args.live {
        held.push(pool::run(args.launches, args.sessions.unwrap_or(RESAMPLED_SESSIONS))?);
    }
    if !args.pool {
        held.push(live::run(args.only.as_deref().unwrap_or_default())?);
    }
    Ok(Verdict::of_all(held))
}

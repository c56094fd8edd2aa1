//! What a timer alone can do at a constant rate: the same waits without any request.

use anyhow::{Context, Result};
use rustix::{
    io::read,
    time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    },
};
use tracer::load::monotonic_ns;

/// How late each of `count` times came, in nanoseconds, ascending.
pub fn lags_ns(rate: f64, count: u64) -> Result<Vec<u64>> {
    let timer =
        timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC).context("cannot make a timer")?;
    let start_ns = monotonic_ns();
    let mut lags_ns = Vec::with_capacity(count as usize);
    for number in 0..count {
        let due_ns = start_ns + (number as f64 * 1e9 / rate) as u64;
        if monotonic_ns() < due_ns {
            let due = Timespec {
                tv_sec: (due_ns / 1_000_000_000) as i64,
                tv_nsec: (due_ns % 1_000_000_000) as i64,
            };
            let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: due };
            timerfd_settime(&timer, TimerfdTimerFlags::ABSTIME, &once).context("cannot set the timer")?;
            read(&timer, &mut [0; 8]).context("cannot wait for the timer")?;
        }
        lags_ns.push(monotonic_ns() - due_ns);
    }
    lags_ns.sort_unstable();
    Ok(lags_ns)
}

/// Of ascending values.
pub fn quantile(sorted: &[u64], quantile: f64) -> u64 {
    let rank = (sorted.len() as f64 * quantile).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or_default()
}

//! The same truths under load: at a rate, at saturation, on many connections.

use anyhow::{Result, ensure};
use tracer::{load::Stop, probe::Options, recording::Phase};

use super::{
    Case, Checks,
    stage::{Seen, Stage},
    states::app_states,
    writes::every_write,
};

pub(super) const CASES: &[Case] = &[
    Case::new("at-1000-requests-per-second", |checks| {
        loaded(checks, "spin=50&sleep=100&spin=50", 16, Some(1_000.0))
    }),
    Case::new("at-saturation", |checks| loaded(checks, "spin=20", 32, None)),
    Case::new("at-saturation-256-connections", |checks| loaded(checks, "spin=20&sleep=20", 256, None)).full(),
    Case::new("small-ring", small_ring),
];

const REQUESTS: u64 = 2_000;

/// Every request is there, closes, and its thread's states are those the thread was told by the kernel.
fn loaded(checks: &mut Checks, script: &str, connections: usize, rate: Option<f64>) -> Result<()> {
    let mut stage = Stage::start(&["--mode", "loop"])?;
    let mut driver = stage.driver(script, connections, rate)?;
    stage.open()?;
    let load = driver.run_keeping_samples(Stop::Count(REQUESTS))?;
    ensure!(load.totals.errors == 0, "the load failed: {:?}", load.totals.first_error);
    let sent = load.sent();
    let seen = stage.finish(sent as usize, sent)?;
    let ids = seen.stamps.keys().copied();
    let ones = seen.each(ids);
    checks.equal("requests", sent as usize, seen.requests.len());
    checks.equal("of them by their path", sent as usize, ones.len());
    closes(checks, &seen);
    app_states(checks, &ones);
    every_write(checks, &ones);
    checks.equal("went wrong", "nothing".to_owned(), seen.complaints());
    Ok(())
}

/// Phases add up to the wall time and states to each phase, to the nanosecond.
fn closes(checks: &mut Checks, seen: &Seen) {
    let open = seen.requests.iter().filter(|request| {
        request.end_ns.checked_sub(request.first_byte_ns) != Some(request.wall_ns())
            || Phase::ALL
                .iter()
                .any(|&phase| request.states[phase as usize].total_ns() != request.phase_ns(phase))
    });
    checks.equal("do not add up", 0, open.count());
}

/// A ring that holds a fraction of what comes between two looks: what is lost is counted where it is lost.
fn small_ring(checks: &mut Checks) -> Result<()> {
    let mut stage = Stage::start(&["--mode", "loop"])?;
    let mut driver = stage.driver("", 32, None)?;
    stage.open_with(Options { ring_bytes: 4_096, ..Options::default() })?;
    let load = driver.run_keeping_samples(Stop::Count(REQUESTS))?;
    ensure!(load.totals.errors == 0, "the load failed: {:?}", load.totals.first_error);
    let sent = load.sent();
    let seen = stage.finish(sent as usize, sent)?;
    let ledger = &seen.traced.tally.ledger;
    checks.holds("lost to the full ring", "some", ledger.lost_ring_full, ledger.lost_ring_full > 0);
    let found = ledger.traced + ledger.mid_flight + ledger.lost_ring_full + ledger.lost_connections_full;
    checks.equal("traced + in flight + lost", sent, found);
    checks.equal("unexplained", 0, ledger.unexplained().unwrap_or_default());
    checks.equal("defects", 0, ledger.defects);
    let ones = seen.each(seen.stamps.keys().copied());
    every_write(checks, &ones);
    closes(checks, &seen);
    Ok(())
}

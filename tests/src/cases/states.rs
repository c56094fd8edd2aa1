//! What the thread did while it worked on a request.

use std::ops::RangeInclusive;

use anyhow::Result;
use tracer::recording::{Phase, syscall_name};

use super::{
    Case, Checks,
    stage::{One, Stage, exactly},
};
use crate::{
    metronome::{
        client::{Peer, request},
        log::Stamp,
    },
    truth::Hog,
};

pub(super) const CASES: &[Case] = &[
    Case::new("spin-5ms", |checks| working(checks, "spin=5000", None)),
    Case::new("sleep-5ms", |checks| working(checks, "sleep=5000", Some("clock_nanosleep"))),
    Case::new("futex-5ms", |checks| working(checks, "futex=5000", Some("futex"))),
    Case::new("pipe-5ms", |checks| working(checks, "pipe=5000", Some("read"))),
    Case::new("fault-5ms", |checks| working(checks, "fault=5000", None)),
    Case::new("peer-5ms", peer),
    Case::new("mixed", |checks| working(checks, "spin=1000&sleep=2000&spin=1000&futex=2000&spin=1000", None)),
    Case::new("short", |checks| working(checks, "spin=50&sleep=50&spin=50", None)),
    Case::new("run-queue", run_queue),
    Case::new("await-while-others-run", await_while_others_run),
];

const REQUESTS: u64 = 40;

/// What the kernel may leave out of a thread's run-queue time at each wake-up, and put into its CPU time: where a
/// wake-up makes an idle or preempted CPU switch, it does not read its clock a second time.
const WAKE_UP_NS: u64 = 30_000;

/// The states of `app` by `tracer` beside the thread's own accounts of the same stretch.
pub(super) fn app_states(checks: &mut Checks, ones: &[One<'_>]) {
    let said = |one: &One<'_>| one.said(Phase::App);
    checks
        .times("app", ones.iter().map(|one| (exactly(one.app().wall_ns), one.request.phase_ns(Phase::App))));
    checks.times("own CPU", ones.iter().map(|one| (cpu_range(one), said(one).own_cpu_ns)));
    checks.times("run queue", ones.iter().map(|one| (run_queue_range(one), said(one).run_queue_ns)));
    checks.times("blocked", ones.iter().map(|one| (blocked_range(one), said(one).blocked_ns)));
    checks.times(
        "other or unknown",
        ones.iter().map(|one| (exactly(0), said(one).other_cpu_ns + said(one).unknown_ns)),
    );
}

/// Steps that put the thread to sleep.
fn sleeps(one: &One<'_>) -> u64 {
    let sleeps = |stamp: &&Stamp| matches!(&*stamp.what, "sleep" | "futex" | "pipe" | "peer");
    one.stamps.iter().filter(sleeps).count() as u64
}

fn cpu_range(one: &One<'_>) -> RangeInclusive<u64> {
    let app = one.app();
    // A thread that did not sleep was robbed of the rest by the hypervisor, which the kernel takes off its CPU time.
    let stolen_ns = if sleeps(one) == 0 { app.blocked_ns } else { 0 };
    app.cpu_ns.saturating_sub(sleeps(one) * WAKE_UP_NS)..=app.cpu_ns + stolen_ns
}

fn run_queue_range(one: &One<'_>) -> RangeInclusive<u64> {
    let run_queue_ns = one.app().run_queue_ns;
    run_queue_ns..=run_queue_ns + sleeps(one) * WAKE_UP_NS
}

fn blocked_range(one: &One<'_>) -> RangeInclusive<u64> {
    if sleeps(one) == 0 { exactly(0) } else { exactly(one.app().blocked_ns) }
}

fn working(checks: &mut Checks, script: &str, blocked_in: Option<&str>) -> Result<()> {
    let mut stage = Stage::traced(&["--mode", "loop"])?;
    let mut client = stage.client()?;
    for id in 0..REQUESTS {
        stage.get(&mut client, id, script)?;
    }
    let seen = stage.finish(REQUESTS as usize, REQUESTS)?;
    let ones = seen.each(0..REQUESTS);
    checks.equal("requests", REQUESTS as usize, ones.len());
    app_states(checks, &ones);
    if let Some(call) = blocked_in {
        checks.each("blocked in", ones.iter().map(|one| (call.to_owned(), blocked_call(one))));
    }
    checks.equal("went wrong", "nothing".to_owned(), seen.complaints());
    Ok(())
}

fn blocked_call(one: &One<'_>) -> String {
    let call = one.request.blocked_call_plus_one.checked_sub(1);
    call.map_or_else(|| "nothing".to_owned(), |call| syscall_name(call).to_string())
}

/// A round trip to another server.
fn peer(checks: &mut Checks) -> Result<()> {
    let peer = Peer::start()?;
    working(checks, &format!("peer={}:5000", peer.port), Some("recvfrom"))
}

/// Two others want the same CPU.
fn run_queue(checks: &mut Checks) -> Result<()> {
    let mut stage = Stage::traced(&["--mode", "loop"])?;
    let mut client = stage.client()?;
    let hogs = [Hog::on_server_cpu(), Hog::on_server_cpu()];
    for id in 0..REQUESTS {
        stage.get(&mut client, id, "spin=20000")?;
    }
    drop(hogs);
    let seen = stage.finish(REQUESTS as usize, REQUESTS)?;
    app_states(checks, &seen.each(0..REQUESTS));
    Ok(())
}

/// An event loop whose request awaits a timer while it works for another: the first is on no CPU of its own meanwhile.
fn await_while_others_run(checks: &mut Checks) -> Result<()> {
    let mut stage = Stage::traced(&["--mode", "loop"])?;
    let (mut waits, mut works) = (stage.client()?, stage.client()?);
    for id in 0..REQUESTS {
        waits.send(&request("GET", id, "spin=300&await=5000&spin=300", ""))?;
        stage.get(&mut works, 1_000 + id, "spin=2000")?;
        waits.response(true)?;
    }
    let seen = stage.finish(2 * REQUESTS as usize, 2 * REQUESTS)?;
    let (ones, others) = (seen.each(0..REQUESTS), seen.each(1_000..1_000 + REQUESTS));
    checks.equal("requests", REQUESTS as usize, ones.len());
    app_states(checks, &others);
    checks.times(
        "app of the one",
        ones.iter().map(|one| (exactly(one.app().wall_ns), one.request.phase_ns(Phase::App))),
    );
    // The loop's own work before and after a wait goes to whom it was for, or to nobody.
    let shares = ones.iter().zip(&others).map(|(one, other)| {
        let theirs_ns = other.last_read().begin.until(&other.last_write().end).cpu_ns;
        let all_ns = one.app().cpu_ns;
        (one.said(Phase::App), around_await(one)..=all_ns - theirs_ns, theirs_ns..=all_ns - around_await(one))
    });
    let shares: Vec<_> = shares.collect();
    checks.times("its own CPU", shares.iter().map(|(said, own, _)| (own.clone(), said.own_cpu_ns)));
    checks.times("CPU for another", shares.iter().map(|(said, _, other)| (other.clone(), said.other_cpu_ns)));
    checks.equal("went wrong", "nothing".to_owned(), seen.complaints());
    Ok(())
}

/// CPU from the read to the wait for the timer, and from there to the write.
fn around_await(one: &One<'_>) -> u64 {
    let wait = one.did("await");
    one.last_read().end.until(&wait.begin).cpu_ns + wait.end.until(&one.first_write().begin).cpu_ns
}

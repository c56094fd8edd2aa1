//! Where one phase ends and the next begins.

use std::{
    io::{Read, Write},
    net::TcpStream,
    ops::RangeInclusive,
    time::Duration,
};

use anyhow::Result;
use rustix::net::sockopt::socket_recv_buffer_size;
use tracer::{
    probe::{Options, hooks::Detail},
    recording::{Phase, Request},
};

use super::{
    Case, Checks,
    stage::{One, Seen, Stage, exactly},
    writes::every_write,
};
use crate::metronome::{client::request, clock::now_ns};

pub(super) const CASES: &[Case] = &[
    Case::new("plain", plain),
    Case::new("read-entered-early", read_entered_early),
    Case::new("late-read", late_read),
    Case::new("late-accept", late_accept),
    Case::new("busy-loop", busy_loop),
    Case::new("write-gaps", write_gaps),
    Case::new("apart", apart),
    Case::new("slow-reader", slow_reader),
];

/// Requests of a case.
const REQUESTS: u64 = 40;

/// Every phase of requests that were answered without a body being read in between.
fn every_phase(checks: &mut Checks, ones: &[One<'_>]) {
    checks
        .times("app", ones.iter().map(|one| (exactly(one.app().wall_ns), one.request.phase_ns(Phase::App))));
    all_but_app(checks, ones);
}

/// The same of a thread that was woken inside the read: on its way back to its first stamp everything is cold, so that
/// where `read` ends and `app` begins is not known to 20 us; where both together end is.
fn all_but_app(checks: &mut Checks, ones: &[One<'_>]) {
    checks.times("queue", ones.iter().map(|one| (queue(one), one.request.phase_ns(Phase::Queue))));
    checks.times("read", ones.iter().map(|one| (read(one), one.request.phase_ns(Phase::Read))));
    checks.times("until the write", ones.iter().map(|one| (until_write(one), said_until_write(one.request))));
    checks.times("write", ones.iter().map(|one| (write(one), one.request.phase_ns(Phase::Write))));
}

fn until_write(one: &One<'_>) -> RangeInclusive<u64> {
    one.since_sent(one.first_write().begin.at_ns)
}

fn said_until_write(request: &Request) -> u64 {
    request.phases_ns[..=Phase::App as usize].iter().sum()
}

/// From the first byte until the read of it was entered; nothing when it was entered before.
fn queue(one: &One<'_>) -> RangeInclusive<u64> {
    one.since_sent(one.reads().next().map_or(0, |read| read.begin.at_ns))
}

fn read(one: &One<'_>) -> RangeInclusive<u64> {
    let (first, last) = (one.reads().next().unwrap_or(one.last_read()), one.last_read());
    let since_sent = one.since_sent(last.end.at_ns);
    let since_entered = last.end.at_ns - first.begin.at_ns;
    since_entered.min(*since_sent.start())..=since_entered.min(*since_sent.end())
}

/// Delivery is some time inside the last call.
pub(super) fn write(one: &One<'_>) -> RangeInclusive<u64> {
    let (first, last) = (one.first_write(), one.last_write());
    last.begin.at_ns - first.begin.at_ns..=last.end.at_ns - first.begin.at_ns
}

fn nothing_lost(checks: &mut Checks, seen: &Seen) {
    checks.equal("went wrong", "nothing".to_owned(), seen.complaints());
}

/// An event loop asleep in epoll_wait, a small answer.
fn plain(checks: &mut Checks) -> Result<()> {
    let mut stage = Stage::traced(&["--mode", "loop"])?;
    let mut client = stage.client()?;
    for id in 0..REQUESTS {
        stage.get(&mut client, id, "out=writev:100:2")?;
    }
    let seen = stage.finish(REQUESTS as usize, REQUESTS)?;
    let ones = seen.each(0..REQUESTS);
    checks.equal("requests", REQUESTS as usize, ones.len());
    every_phase(checks, &ones);
    nothing_lost(checks, &seen);
    Ok(())
}

/// A thread that waits for the request inside the read: no `queue`, and a `read` that begins with the first byte.
fn read_entered_early(checks: &mut Checks) -> Result<()> {
    let mut stage = Stage::traced(&["--mode", "threads"])?;
    let mut client = stage.client()?;
    for id in 0..REQUESTS {
        stage.until_asleep()?;
        stage.get(&mut client, id, "")?;
    }
    let seen = stage.finish(REQUESTS as usize, REQUESTS)?;
    let ones = seen.each(0..REQUESTS);
    checks.equal("requests", REQUESTS as usize, ones.len());
    all_but_app(checks, &ones);
    nothing_lost(checks, &seen);
    Ok(())
}

/// A thread that sleeps 5 ms before it reads.
fn late_read(checks: &mut Checks) -> Result<()> {
    let mut stage = Stage::traced(&["--mode", "threads"])?;
    let mut client = stage.client()?;
    for id in 0..REQUESTS {
        stage.get(&mut client, id, "out=write:5&sleep=5000")?;
    }
    let seen = stage.finish(REQUESTS as usize, REQUESTS)?;
    let ones = seen.each(1..REQUESTS);
    every_phase(checks, &ones);
    // It sleeps after the response before; the bytes may come before or after it falls asleep.
    let asleep = |one: &One<'_>| {
        let sleep = seen.each([one.id - 1])[0].did("sleep");
        let (slept, since_sent) = (sleep.span(), one.since_sent(sleep.end.at_ns));
        let part = |ns: u64| ns.saturating_sub(slept.run_queue_ns).min(slept.blocked_ns);
        // Its own CPU is before it falls asleep and after it wakes, nobody knows how much of it when.
        part(since_sent.start().saturating_sub(slept.cpu_ns))..=part(*since_sent.end())
    };
    checks.times("asleep in queue", ones.iter().map(|one| (asleep(one), one.said(Phase::Queue).blocked_ns)));
    nothing_lost(checks, &seen);
    Ok(())
}

/// A thread that sleeps 5 ms before it accepts the next connection.
fn late_accept(checks: &mut Checks) -> Result<()> {
    let mut stage = Stage::traced(&["--mode", "single"])?;
    for id in 0..REQUESTS {
        let mut client = stage.client()?;
        stage.get(&mut client, id, "out=write:5&sleep=5000&close")?;
    }
    let seen = stage.finish(REQUESTS as usize, REQUESTS)?;
    let ones = seen.each(1..REQUESTS);
    checks.times(
        "accept",
        ones.iter()
            .map(|one| (one.since_sent(one.did("accept").end.at_ns), one.request.phase_ns(Phase::Accept))),
    );
    checks.times(
        "queue",
        ones.iter().map(|one| {
            let read = one.reads().next().unwrap_or(one.last_read());
            (exactly(read.begin.at_ns - one.did("accept").end.at_ns), one.request.phase_ns(Phase::Queue))
        }),
    );
    checks.equal("connections accepted", REQUESTS, seen.traced.tally.accepted);
    nothing_lost(checks, &seen);
    Ok(())
}

/// An event loop that spins 5 ms for one connection while another's request waits: event-loop delay, on a CPU.
fn busy_loop(checks: &mut Checks) -> Result<()> {
    let mut stage = Stage::traced(&["--mode", "loop"])?;
    let (mut busy, mut waits) = (stage.client()?, stage.client()?);
    for id in 0..REQUESTS {
        busy.send(&request("GET", 1_000 + id, "spin=5000", ""))?;
        stage.get(&mut waits, id, "")?;
        busy.response(true)?;
    }
    let seen = stage.finish(2 * REQUESTS as usize, 2 * REQUESTS)?;
    let ones = seen.each(0..REQUESTS);
    checks.equal("requests", REQUESTS as usize, ones.len());
    every_phase(checks, &ones);
    let other_cpu = ones.iter().map(|one| {
        let spin = seen.each([1_000 + one.id])[0].did("spin");
        // Others took its CPU meanwhile, before or after the bytes came.
        let taken_ns = spin.begin.until(&one.last_read().begin).run_queue_ns;
        let from_ns = spin.begin.at_ns.max(one.exchange.sent_ns);
        let least_ns = spin.end.at_ns.saturating_sub(from_ns).saturating_sub(taken_ns);
        // From the spin to the read it answers the other.
        (least_ns..=*queue(one).end(), one.said(Phase::Queue).other_cpu_ns)
    });
    checks.times("loop busy with another", other_cpu);
    nothing_lost(checks, &seen);
    Ok(())
}

/// Three writes, 3 ms apart.
fn write_gaps(checks: &mut Checks) -> Result<()> {
    let mut stage = Stage::traced(&["--mode", "threads"])?;
    let mut client = stage.client()?;
    for id in 0..REQUESTS {
        stage.get(&mut client, id, "out=write:10&sleep=3000&out=write:20&sleep=3000&out=write:30")?;
    }
    let seen = stage.finish(REQUESTS as usize, REQUESTS)?;
    let ones = seen.each(0..REQUESTS);
    all_but_app(checks, &ones);
    checks.times(
        "write gap",
        ones.iter().map(|one| {
            let writes: Vec<_> = one.writes().collect();
            let gaps = writes.windows(2).map(|pair| pair[1].begin.at_ns - pair[0].end.at_ns).sum();
            (exactly(gaps), one.request.write_gap_ns)
        }),
    );
    checks.each("writes", ones.iter().map(|one| (one.writes().count() as u32, one.request.writes)));
    nothing_lost(checks, &seen);
    Ok(())
}

/// Requests 5 ms apart on one connection: the time between them is nobody's.
fn apart(checks: &mut Checks) -> Result<()> {
    let mut stage = Stage::traced(&["--mode", "loop"])?;
    let mut client = stage.client()?;
    for id in 0..REQUESTS {
        stage.get(&mut client, id, "spin=100")?;
        std::thread::sleep(Duration::from_millis(5));
    }
    let seen = stage.finish(REQUESTS as usize, REQUESTS)?;
    let ones = seen.each(0..REQUESTS);
    checks.times(
        "wall time",
        ones.iter().map(|one| {
            let write = one.last_write();
            let least = write.begin.at_ns.saturating_sub(one.exchange.sent_ns);
            (least..=write.end.at_ns.saturating_sub(one.exchange.send_ns), one.request.wall_ns())
        }),
    );
    nothing_lost(checks, &seen);
    Ok(())
}

/// A client that reads 4 MiB slowly: the response is over when its last byte has left, long after the last write.
fn slow_reader(checks: &mut Checks) -> Result<()> {
    const BYTES: usize = 4 << 20;
    const WINDOW: usize = 64 << 10;
    let mut stage = Stage::start(&["--mode", "threads"])?;
    stage.open_with(Options { details: [Detail::Drain].into(), ..Options::default() })?;
    let mut bounds = Vec::new();
    for id in 0..5 {
        let client = stage.client_with_window(WINDOW)?;
        bounds.push(read_slowly(&client, id, BYTES)?);
    }
    let seen = stage.finish(5, 5)?;
    let ones = seen.each(0..5);
    checks.equal("requests", 5, ones.len());
    every_write(checks, &ones);
    // The last byte cannot have left before the client had made room for it, nor after it had it.
    let ends = ones.iter().zip(&bounds).map(|(one, &(room_ns, done_ns))| {
        let since = |ns: u64| ns.saturating_sub(one.request.first_byte_ns);
        (since(room_ns)..=since(done_ns), one.request.wall_ns())
    });
    checks.times("wall time", ends);
    let drained = |one: &One<'_>| one.request.end_ns.saturating_sub(one.last_write().end.at_ns);
    checks.times("drain", ones.iter().map(|one| (exactly(drained(one)), one.request.phase_ns(Phase::Drain))));
    nothing_lost(checks, &seen);
    Ok(())
}

/// Asks, and reads 32 KiB every 2 ms: when there was room for the last byte, and when it was there.
fn read_slowly(client: &TcpStream, id: u64, bytes: usize) -> Result<(u64, u64)> {
    let mut stream = client;
    stream.write_all(&request("GET", id, &format!("out=write:{bytes}"), ""))?;
    let receive_buffer = socket_recv_buffer_size(client)?;
    let (mut read, mut room_ns) = (0, now_ns());
    let mut piece = vec![0; 32 << 10];
    while read < bytes {
        std::thread::sleep(Duration::from_millis(2));
        let count = stream.read(&mut piece)?;
        anyhow::ensure!(count > 0, "the server closed after {read} bytes");
        // Before this read, the kernel had at most its buffer's bytes beyond those read.
        if read + receive_buffer < bytes {
            room_ns = now_ns();
        }
        read += count;
    }
    Ok((room_ns, now_ns()))
}

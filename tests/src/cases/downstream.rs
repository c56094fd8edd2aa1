//! Whom a request waited for: round trips to peers that stamp when they were asked and when they answered.

use std::{ops::RangeInclusive, sync::Arc, thread};

use anyhow::{Result, anyhow};
use tracer::recording::DownstreamPeer;

use super::{
    Case, Checks,
    stage::{One, Stage},
};
use crate::metronome::client::{Answered, Peer};

pub(super) const CASES: &[Case] = &[
    Case::new("downstream-1-round-trip", |checks| round_trips(checks, 1)),
    Case::new("downstream-3-round-trips", |checks| round_trips(checks, 3)),
    Case::new("downstream-two-peers", two_peers),
    Case::new("downstream-threads-overlap", threads_overlap),
    Case::new("downstream-none", none),
];

const REQUESTS: u64 = 40;
const DELAY_US: u64 = 2_000;
/// The peer's question and answer.
const MESSAGE_BYTES: u64 = 4;

fn ask(peer: &Peer) -> String {
    format!("peer={}:{DELAY_US}", peer.port)
}

fn name(peer: &Peer) -> Arc<str> {
    format!("127.0.0.1:{}", peer.port).into()
}

/// The peer in a request, or nothing of it.
fn of(one: &One<'_>, peer: &Peer) -> DownstreamPeer {
    let found = one.request.downstream.iter().find(|known| known.peer == name(peer));
    found.cloned().unwrap_or_default()
}

/// How long the peer took, by its own stamps, for each request in turn; at most as long as the server's own step.
fn waits(ones: &[One<'_>], answered: &[Answered], each: usize) -> Vec<RangeInclusive<u64>> {
    ones.iter()
        .zip(answered.chunks(each))
        .map(|(one, answers)| {
            let peer_ns = answers.iter().map(|answer| answer.sent_ns - answer.asked_ns).sum();
            let steps = one.stamps.iter().filter(|stamp| stamp.what == "peer");
            peer_ns..=steps.map(|stamp| stamp.span().wall_ns).sum::<u64>().max(peer_ns)
        })
        .collect()
}

fn round_trips(checks: &mut Checks, count: usize) -> Result<()> {
    let peer = Peer::start()?;
    let script = vec![ask(&peer); count].join("&");
    let mut stage = Stage::traced(&["--mode", "loop"])?;
    let mut client = stage.client()?;
    for id in 0..REQUESTS {
        stage.get(&mut client, id, &script)?;
    }
    let seen = stage.finish(REQUESTS as usize, REQUESTS)?;
    let ones = seen.each(0..REQUESTS);
    let said: Vec<DownstreamPeer> = ones.iter().map(|one| of(one, &peer)).collect();
    checks.equal("requests", REQUESTS as usize, ones.len());
    checks.each("round trips", said.iter().map(|said| (count as u32, said.round_trips)));
    checks.each("inferred", said.iter().map(|said| (0, said.inferred)));
    let bytes = MESSAGE_BYTES * count as u64;
    checks.each("bytes out", said.iter().map(|said| (bytes, said.bytes_out)));
    checks.each("bytes in", said.iter().map(|said| (bytes, said.bytes_in)));
    let truth = waits(&ones, &peer.answered(), count);
    checks.times("wait", truth.into_iter().zip(said.iter().map(|said| said.wait_ns)));
    // The first step connects, then sends: only later requests find the connection there.
    let sends = ones.iter().skip(1).map(|one| {
        let begun = one.did("peer").begin.at_ns - one.last_read().end.at_ns;
        (begun..=begun + one.did("peer").span().cpu_ns, one.request.before_downstream_ns)
    });
    checks.times("before it is sent", sends);
    checks.equal("went wrong", "nothing".to_owned(), seen.complaints());
    checks.equal("calls of no request", 0, seen.traced.tally.ledger.downstream_unowned);
    Ok(())
}

/// Two connections of the server's, each to a peer of its own.
fn two_peers(checks: &mut Checks) -> Result<()> {
    let peers = [Peer::start()?, Peer::start()?];
    let mut stage = Stage::traced(&["--mode", "loop"])?;
    // The metronome keeps a connection downstream for each of its own.
    let mut clients = [stage.client()?, stage.client()?];
    for id in 0..REQUESTS {
        let which = (id % 2) as usize;
        stage.get(&mut clients[which], id, &ask(&peers[which]))?;
    }
    let seen = stage.finish(REQUESTS as usize, REQUESTS)?;
    let ones = seen.each(0..REQUESTS);
    checks.equal("requests", REQUESTS as usize, ones.len());
    checks.each("peers", ones.iter().map(|one| (1, one.request.downstream.len())));
    checks.each(
        "round trips to its own",
        ones.iter().map(|one| (1, of(one, &peers[one.id as usize % 2]).round_trips)),
    );
    Ok(())
}

/// Two threads wait for the same peer at once, each for itself: nobody's round trip is taken for the other's.
fn threads_overlap(checks: &mut Checks) -> Result<()> {
    let peer = Peer::start()?;
    let stage = Stage::traced(&["--mode", "threads"])?;
    let clients = [stage.client()?, stage.client()?];
    thread::scope(|scope| -> Result<()> {
        let running: Vec<_> = clients
            .into_iter()
            .enumerate()
            .map(|(number, mut client)| {
                let script = ask(&peer);
                scope.spawn(move || -> Result<()> {
                    for id in 0..REQUESTS {
                        client.get(number as u64 * REQUESTS + id, &script)?;
                    }
                    Ok(())
                })
            })
            .collect();
        running.into_iter().try_for_each(|client| {
            client.join().map_err(|_| anyhow!("a client panicked")).and_then(|done| done)
        })
    })?;
    let seen = stage.finish(2 * REQUESTS as usize, 2 * REQUESTS)?;
    let ones = seen.each(0..2 * REQUESTS);
    let said: Vec<DownstreamPeer> = ones.iter().map(|one| of(one, &peer)).collect();
    checks.equal("requests", 2 * REQUESTS as usize, ones.len());
    checks.each("round trips", said.iter().map(|said| (1, said.round_trips)));
    checks.each("inferred", said.iter().map(|said| (0, said.inferred)));
    let steps = ones.iter().map(|one| DELAY_US * 1_000..=one.did("peer").span().wall_ns);
    checks.times("wait", steps.zip(said.iter().map(|said| said.wait_ns)));
    checks.equal("calls of no request", 0, seen.traced.tally.ledger.downstream_unowned);
    Ok(())
}

/// A server that asks nobody.
fn none(checks: &mut Checks) -> Result<()> {
    let mut stage = Stage::traced(&["--mode", "loop"])?;
    let mut client = stage.client()?;
    for id in 0..REQUESTS {
        stage.get(&mut client, id, "spin=10")?;
    }
    let seen = stage.finish(REQUESTS as usize, REQUESTS)?;
    let ones = seen.each(0..REQUESTS);
    checks.equal("requests", REQUESTS as usize, ones.len());
    checks.each("peers", ones.iter().map(|one| (0, one.request.downstream.len())));
    checks.equal("downstream calls", 0, seen.traced.tally.ledger.downstream_calls);
    Ok(())
}

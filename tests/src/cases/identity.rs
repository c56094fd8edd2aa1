//! Whose connection it is: threads, processes, descriptors, addresses.

use std::{
    io::{Read, Write},
    os::unix::net::UnixStream,
    process::Command,
};

use anyhow::{Context, Result, ensure};
use tracer::recording::Phase;

use super::{
    Case, Checks,
    phases::write,
    stage::{One, Seen, Stage, exactly},
    states::app_states,
    writes::every_write,
};
use crate::metronome::client::{Client, request};

pub(super) const CASES: &[Case] = &[
    Case::new("another-thread-answers", another_thread_answers),
    Case::new("passed-to-another-process", passed),
    Case::new("forked-workers", |checks| workers(checks, "fork")),
    Case::new("reuseport-workers", |checks| workers(checks, "reuseport")),
    Case::new("descriptors-reused", descriptors_reused),
    Case::new("connected-before-attach", connected_before_attach),
    Case::new("several-ports", several_ports),
    Case::new("ipv6", ipv6),
    Case::new("pid-namespace", pid_namespace),
    Case::new("network-namespace", network_namespace),
    Case::new("unix-socket", unix_socket)
        .open("connections over UNIX sockets are counted as other sockets and not followed"),
];

const REQUESTS: u64 = 40;

/// The reading and the writing thread and process of each request, and how it left.
fn owners(checks: &mut Checks, seen: &Seen, ids: std::ops::Range<u64>) {
    let ones = seen.each(ids.clone());
    checks.equal("requests", (ids.end - ids.start) as usize, seen.requests.len());
    checks.equal("of them by their path", (ids.end - ids.start) as usize, ones.len());
    threads(checks, &ones);
    every_write(checks, &ones);
    checks.equal("went wrong", "nothing".to_owned(), seen.complaints());
}

/// By the kernel's own ids, which are those the server knows itself by where it is in no namespace of its own.
fn threads(checks: &mut Checks, ones: &[One<'_>]) {
    let read_by = |one: &One<'_>| one.last_read().thread_id;
    checks.each("reading thread", ones.iter().map(|one| (read_by(one), one.request.read_thread_id)));
    let written_by = |one: &One<'_>| one.first_write().thread_id;
    checks.each("writing thread", ones.iter().map(|one| (written_by(one), one.request.write_thread_id)));
    checks.each("process", ones.iter().map(|one| (one.last_read().process_id, one.request.process_id)));
}

/// Read on one thread, worked on and written on another: what each did is known only of its own stretch.
fn another_thread_answers(checks: &mut Checks) -> Result<()> {
    let mut stage = Stage::traced(&["--mode", "threads"])?;
    let mut client = stage.client()?;
    for id in 0..REQUESTS {
        stage.get(&mut client, id, "hand&spin=2000")?;
    }
    let seen = stage.finish(REQUESTS as usize, REQUESTS)?;
    owners(checks, &seen, 0..REQUESTS);
    let ones = seen.each(0..REQUESTS);
    checks.times(
        "app",
        ones.iter().map(|one| {
            let wall_ns = one.first_write().begin.at_ns - one.last_read().end.at_ns;
            (exactly(wall_ns), one.request.phase_ns(Phase::App))
        }),
    );
    Ok(())
}

/// As Node's cluster does: one process accepts, and passes the descriptor to another that never accepts.
fn passed(checks: &mut Checks) -> Result<()> {
    let mut stage = Stage::traced(&["--mode", "pass"])?;
    for connection in 0..8 {
        let mut client = stage.client()?;
        for id in connection * 5..connection * 5 + 5 {
            stage.get(&mut client, id, "spin=100")?;
        }
    }
    let seen = stage.finish(40, 40)?;
    owners(checks, &seen, 0..40);
    checks.equal("connections accepted", 8, seen.traced.tally.accepted);
    Ok(())
}

/// Workers forked before `tracer` came.
fn workers(checks: &mut Checks, mode: &str) -> Result<()> {
    let mut stage = Stage::traced(&["--mode", mode, "--workers", "3"])?;
    let mut clients = (0..8).map(|_| stage.client()).collect::<Result<Vec<_>>>()?;
    for id in 0..REQUESTS {
        stage.get(&mut clients[id as usize % 8], id, "spin=100")?;
    }
    let seen = stage.finish(REQUESTS as usize, REQUESTS)?;
    owners(checks, &seen, 0..REQUESTS);
    checks.equal("connections accepted", 8, seen.traced.tally.accepted);
    Ok(())
}

/// Every connection gets the descriptor of the one before; each counts by itself.
fn descriptors_reused(checks: &mut Checks) -> Result<()> {
    let mut stage = Stage::traced(&["--mode", "single"])?;
    for id in 0..200 {
        let mut client = stage.client()?;
        stage.get(&mut client, id, "out=write:5&close")?;
    }
    let seen = stage.finish(200, 200)?;
    owners(checks, &seen, 0..200);
    checks.equal("connections accepted", 200, seen.traced.tally.accepted);
    let mut connections: Vec<_> = seen.requests.iter().map(|request| request.connection_id).collect();
    connections.sort_unstable();
    connections.dedup();
    checks.equal("connections", 200, connections.len());
    checks.each("ordinal on its connection", seen.requests.iter().map(|request| (0, request.index)));
    Ok(())
}

/// Connections that were there, and had been used, before `tracer` came.
fn connected_before_attach(checks: &mut Checks) -> Result<()> {
    let mut stage = Stage::start(&["--mode", "loop"])?;
    let mut clients = (0..8).map(|_| stage.client()).collect::<Result<Vec<_>>>()?;
    for (id, client) in (1_000..).zip(&mut clients) {
        client.get(id, "")?;
    }
    stage.open()?;
    for id in 0..REQUESTS {
        stage.get(&mut clients[id as usize % 8], id, "spin=100")?;
    }
    let seen = stage.finish(REQUESTS as usize + 8, REQUESTS)?;
    owners(checks, &seen, 0..REQUESTS);
    checks.equal("connections accepted", 0, seen.traced.tally.accepted);
    Ok(())
}

/// One process on three ports.
fn several_ports(checks: &mut Checks) -> Result<()> {
    let listen = ["--listen", "127.0.0.1:0"];
    let mut stage = Stage::traced(&[&["--mode", "loop"][..], &listen, &listen, &listen].concat())?;
    let addresses = stage.addresses.clone();
    let mut clients =
        addresses.iter().map(|address| Client::connect(*address)).collect::<Result<Vec<_>, _>>()?;
    for id in 0..REQUESTS {
        stage.get(&mut clients[id as usize % 3], id, "")?;
    }
    let seen = stage.finish(REQUESTS as usize, REQUESTS)?;
    owners(checks, &seen, 0..REQUESTS);
    let port = |id: u64| addresses[id as usize % 3].port();
    checks.each("port", seen.each(0..REQUESTS).iter().map(|one| (port(one.id), one.request.local_port)));
    Ok(())
}

/// The other family.
fn ipv6(checks: &mut Checks) -> Result<()> {
    let mut stage = Stage::traced(&["--mode", "loop", "--listen", "[::1]:0"])?;
    let mut client = stage.client()?;
    let client_port = client.port()?;
    for id in 0..REQUESTS {
        stage.get(&mut client, id, "")?;
    }
    let server_port = stage.addresses[0].port();
    let seen = stage.finish(REQUESTS as usize, REQUESTS)?;
    owners(checks, &seen, 0..REQUESTS);
    let ports = seen.requests.iter().map(|request| format!("{} {}", request.local_port, request.remote_port));
    checks.each("ports", ports.map(|said| (format!("{server_port} {client_port}"), said)));
    Ok(())
}

/// A server that is process 1 of its own namespace: it is known by the ids everyone else knows it by.
fn pid_namespace(checks: &mut Checks) -> Result<()> {
    let mut stage = Stage::start_by(&["unshare", "--pid", "--fork", "--mount-proc"], &["--mode", "loop"])?;
    stage.open()?;
    let process = stage.processes().pop().context("it runs")?;
    let mut client = stage.client()?;
    for id in 0..REQUESTS {
        stage.get(&mut client, id, "spin=2000")?;
    }
    let seen = stage.finish(REQUESTS as usize, REQUESTS)?;
    let ones = seen.each(0..REQUESTS);
    checks.equal("requests", REQUESTS as usize, seen.requests.len());
    checks.each("its own name for itself", ones.iter().map(|one| (1, one.last_read().process_id)));
    checks.each("process", ones.iter().map(|one| (process, one.request.process_id)));
    every_write(checks, &ones);
    app_states(checks, &ones);
    checks.equal("went wrong", "nothing".to_owned(), seen.complaints());
    Ok(())
}

/// A server at the other end of a veth pair, whose client is not on its loopback.
fn network_namespace(checks: &mut Checks) -> Result<()> {
    let network = Network::new()?;
    let address = format!("{}:8080", Network::SERVER);
    let inside = ["ip", "netns", "exec", Network::NAME];
    let mut stage = Stage::start_by(&inside, &["--mode", "loop", "--listen", &address])?;
    stage.open()?;
    let mut client = stage.client()?;
    for id in 0..REQUESTS {
        stage.get(&mut client, id, "spin=200&out=write:100&sleep=500&out=write:1000")?;
    }
    let seen = stage.finish(REQUESTS as usize, REQUESTS)?;
    drop(network);
    owners(checks, &seen, 0..REQUESTS);
    checks.times(
        "write",
        seen.each(0..REQUESTS).iter().map(|one| (write(one), one.request.phase_ns(Phase::Write))),
    );
    Ok(())
}

/// A network namespace of our own, and a veth pair into it. Dropping it removes both.
struct Network;

impl Network {
    const NAME: &str = "tracer-truth";
    const CLIENT: &str = "10.211.7.1";
    const SERVER: &str = "10.211.7.2";

    fn new() -> Result<Self> {
        // One that an earlier run, killed, has left behind.
        let _ = ip(&["netns", "delete", Self::NAME]);
        ip(&["netns", "add", Self::NAME])?;
        let network = Self;
        ip(&["link", "add", "tracer-t0", "type", "veth", "peer", "name", "tracer-t1", "netns", Self::NAME])?;
        ip(&["address", "add", &format!("{}/30", Self::CLIENT), "dev", "tracer-t0"])?;
        ip(&["link", "set", "tracer-t0", "up"])?;
        let inside = ["-n", Self::NAME];
        ip(&[&inside[..], &["address", "add", &format!("{}/30", Self::SERVER), "dev", "tracer-t1"]].concat())?;
        ip(&[&inside[..], &["link", "set", "tracer-t1", "up"]].concat())?;
        Ok(network)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // The pair goes with the namespace.
        let _ = ip(&["netns", "delete", Self::NAME]);
    }
}

fn ip(arguments: &[&str]) -> Result<()> {
    let output = Command::new("ip").args(arguments).output().context("this case needs iproute2")?;
    ensure!(
        output.status.success(),
        "ip {}: {}",
        arguments.join(" "),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

/// The same HTTP over a UNIX socket.
fn unix_socket(checks: &mut Checks) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("socket");
    let named = path.to_str().context("a path of text")?;
    let stage = Stage::traced(&["--mode", "loop", "--unix", named])?;
    let mut stream = UnixStream::connect(&path)?;
    for id in 0..REQUESTS {
        stream.write_all(&request("GET", id, "", ""))?;
        ensure!(stream.read(&mut [0; 1_000])? > 0, "the server closed");
    }
    let seen = stage.finish(REQUESTS as usize, REQUESTS)?;
    owners(checks, &seen, 0..REQUESTS);
    Ok(())
}

//! The shapes a response can have on Node's own server: each write by strace beside each write by `tracer`.

use std::{
    collections::HashMap,
    io::{BufRead, BufReader},
    net::{Ipv4Addr, SocketAddr},
    process::{Child, Command, Stdio},
};

use anyhow::{Context, Result, ensure};
use tracer::{
    probe::Options,
    recording::{Request, WriteCall, syscall_name},
    window::{Settings, Window},
};

use super::{Case, Checks, stage::on_server_cpu};
use crate::{
    cli::descendants,
    metronome::client::Client,
    truth::{Requests, STILL, Strace},
};

pub(super) const CASES: &[Case] = &[
    Case::new("shape-hello", |checks| shape(checks, GET, "/hello")),
    Case::new("shape-one-tick", |checks| shape(checks, GET, "/one-tick")),
    Case::new("shape-apart", |checks| shape(checks, GET, "/apart")),
    Case::new("shape-events", |checks| shape(checks, GET, "/events")),
    Case::new("shape-cork", |checks| shape(checks, GET, "/cork")),
    Case::new("shape-flush", |checks| shape(checks, GET, "/flush")),
    Case::new("shape-early-hints", |checks| shape(checks, GET, "/early-hints")),
    Case::new("shape-processing", |checks| shape(checks, GET, "/processing")),
    Case::new("shape-continue", continued),
    Case::new("shape-gzip", |checks| shape(checks, GET, "/gzip")),
    Case::new("shape-gzip-sync", |checks| shape(checks, GET, "/gzip-sync")),
    Case::new("shape-64-kib", |checks| shape(checks, GET, "/64k")),
    Case::new("shape-1-mib", |checks| shape(checks, GET, "/1m")),
    Case::new("shape-10-mib", |checks| shape(checks, GET, "/10m")),
    Case::new("shape-file-stream", |checks| shape(checks, GET, "/stream")),
    Case::new("shape-head", |checks| shape(checks, "HEAD", "/hello")),
    Case::new("shape-204", |checks| shape(checks, GET, "/204")),
    Case::new("shape-304", |checks| shape(checks, GET, "/304")),
    Case::new("shape-404", |checks| shape(checks, GET, "/nothing-here")),
    Case::new("shape-close", closed),
    Case::new("shape-pipelined", pipelined),
];

const GET: &str = "GET";

/// Requests of each shape.
const REQUESTS: usize = 10;

/// A Node that answers in shapes, and a window and strace on it.
struct Shapes {
    child: Child,
    address: SocketAddr,
}

impl Shapes {
    fn start() -> Result<Self> {
        let server = concat!(env!("CARGO_MANIFEST_DIR"), "/servers/shapes.mjs");
        let mut command = Command::new("node");
        command.arg(server).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = on_server_cpu(move || command.spawn()).context("this case needs Node 20 or newer")?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("it is piped")?).read_line(&mut line)?;
        let port: u16 = line.trim().parse().context("the server did not say its port")?;
        Ok(Self { child, address: (Ipv4Addr::LOCALHOST, port).into() })
    }

    fn processes(&self) -> Vec<u32> {
        [vec![self.child.id()], descendants(self.child.id())].concat()
    }

    /// Watches what `ask` does by both, and compares the writes of each connection.
    fn compare(
        &self,
        checks: &mut Checks,
        requests: usize,
        ask: impl FnOnce(SocketAddr) -> Result<()>,
    ) -> Result<()> {
        // What is compiled at the first request is compiled now.
        Client::connect(self.address)?.exchange(&request(GET, "/hello", ""))?;
        let strace = Strace::attach_with(&["-yy"], &self.processes());
        let settings = Settings {
            processes: self.processes(),
            ports: vec![self.address.port()],
            probes: Options::default(),
            keeps_query: false,
            joins_samples: false,
        };
        let window = Window::open(&settings, Requests::default())?;
        ask(self.address)?;
        strace.calls_when_quiet_for(STILL);
        let (traced, seen) = window.close(Some(requests as u64))?;
        let theirs = socket_writes(&strace.log(), self.address.port());
        checks.equal("requests", requests, seen.0.len());
        let (moved, bytes) = totals(&theirs);
        checks.equal("writes", moved, seen.0.iter().map(|request| u64::from(request.writes)).sum());
        checks.equal("bytes out", bytes, seen.0.iter().map(|request| request.bytes_out).sum());
        let ours: Vec<&Request> = seen.0.iter().collect();
        if ours.iter().all(|request| kept_all(request)) {
            checks.equal("calls", in_words(&theirs), said_in_words(&ours));
        }
        checks.equal("unexplained", 0, traced.tally.ledger.unexplained().unwrap_or_default());
        Ok(())
    }
}

impl Drop for Shapes {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn request(method: &str, path: &str, headers: &str) -> Vec<u8> {
    format!("{method} {path} HTTP/1.1\r\nhost: shapes\r\n{headers}\r\n").into_bytes()
}

/// The final response; those before it are 1xx.
fn final_response(client: &mut Client, has_body: bool) -> Result<u16> {
    loop {
        let status = client.response(has_body)?.status;
        if status >= 200 {
            return Ok(status);
        }
    }
}

/// One request after the other on one connection.
fn shape(checks: &mut Checks, method: &str, path: &str) -> Result<()> {
    let bytes = request(method, path, "");
    Shapes::start()?.compare(checks, REQUESTS, |address| {
        let mut client = Client::connect(address)?;
        for _ in 0..REQUESTS {
            client.send(&bytes)?;
            final_response(&mut client, method != "HEAD")?;
        }
        Ok(())
    })
}

fn continued(checks: &mut Checks) -> Result<()> {
    Shapes::start()?.compare(checks, REQUESTS, |address| {
        let mut client = Client::connect(address)?;
        for _ in 0..REQUESTS {
            client.send(&request("POST", "/echo", "content-length: 907\r\nexpect: 100-continue\r\n"))?;
            ensure!(client.response(true)?.status == 100, "the server wants no body");
            client.send(&[b'b'; 907])?;
            final_response(&mut client, true)?;
        }
        Ok(())
    })
}

fn closed(checks: &mut Checks) -> Result<()> {
    Shapes::start()?.compare(checks, REQUESTS, |address| {
        for _ in 0..REQUESTS {
            let mut client = Client::connect(address)?;
            client.send(&request(GET, "/hello", "connection: close\r\n"))?;
            client.read_to_end()?;
        }
        Ok(())
    })
}

/// Ten requests in one segment: Node reads once and writes ten times.
fn pipelined(checks: &mut Checks) -> Result<()> {
    Shapes::start()?.compare(checks, 10, |address| {
        let mut client = Client::connect(address)?;
        client.send(&request(GET, "/hello", "").repeat(10))?;
        (0..10).try_for_each(|_| final_response(&mut client, true).map(drop))
    })
}

/// A write-class call on a connection of the server, by strace.
#[derive(Debug, PartialEq, Eq)]
struct SocketWrite {
    call: String,
    /// Bytes, or -1.
    result: i64,
}

/// Those in a log of `strace -f -yy`, in the order in which they returned.
fn socket_writes(log: &str, port: u16) -> Vec<SocketWrite> {
    const CALLS: [&str; 7] = ["write", "writev", "sendto", "sendmsg", "sendfile", "splice", "pwritev2"];
    let mut unfinished = HashMap::new();
    let mut writes = Vec::new();
    for line in log.lines() {
        let Some((thread, event)) = line.split_once(' ') else { continue };
        let event = event.trim_start();
        let (begun, end) = if let Some(begun) = event.strip_suffix("<unfinished ...>") {
            unfinished.insert(thread, begun);
            continue;
        } else if event.starts_with("<... ") {
            (unfinished.remove(thread).unwrap_or_default(), event)
        } else {
            (event, event)
        };
        let Some((call, arguments)) = begun.split_once('(') else { continue };
        // The descriptor is the first argument of each, but splice's third.
        let descriptor = arguments.split(", ").nth(if call == "splice" { 2 } else { 0 }).unwrap_or_default();
        let is_ours = descriptor.contains("<TCP") && descriptor.contains(&format!(":{port}->"));
        let result = end.rsplit_once(" = ").and_then(|(_, result)| result.split(' ').next()?.parse().ok());
        if let Some(result) = result.filter(|_| is_ours && CALLS.contains(&call)) {
            writes.push(SocketWrite { call: call.to_owned(), result });
        }
    }
    writes
}

/// Calls that moved bytes, and the bytes.
fn totals(writes: &[SocketWrite]) -> (u64, u64) {
    let moved = writes.iter().filter(|write| write.result > 0);
    (moved.clone().count() as u64, moved.map(|write| write.result as u64).sum())
}

fn kept_all(request: &Request) -> bool {
    let calls = request.writes + request.writes_eagain;
    calls as usize <= request.kept_writes().len() || calls == 0
}

/// Without empty writes: Node makes one after the last byte of a large response, which is over by then.
fn in_words(writes: &[SocketWrite]) -> String {
    let moved_or_failed = writes.iter().filter(|write| write.result != 0);
    let words = moved_or_failed.map(|write| format!("{} {}", write.call, write.result.max(-1)));
    words.collect::<Vec<_>>().join(", ")
}

fn said_in_words(requests: &[&Request]) -> String {
    let call = |write: &WriteCall| format!("{} {}", syscall_name(write.call.into()), write.result.max(-1));
    let kept = requests.iter().flat_map(|request| request.kept_writes());
    let words = kept.filter(|write| write.result != 0).map(call);
    words.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_of_the_servers_connections_are_found() {
        let log = "7  writev(21<TCP:[127.0.0.1:80->127.0.0.1:9]>, [{\"a = b\", 5}], 1) = 5\n\
                   7  write(3<TCP:[127.0.0.1:7->127.0.0.1:80]>, \"x\", 1) = 1\n\
                   8  write(21<TCP:[127.0.0.1:80->127.0.0.1:9]>, \"x\"..., 90 <unfinished ...>\n\
                   7  write(5</tmp/log>, \"x\", 1) = 1\n\
                   8  <... write resumed>) = 90\n\
                   7  sendto(21<TCP:[127.0.0.1:80->127.0.0.1:9]>, \"x\", 1, 0, NULL, 0) = -1 EAGAIN (Resource ...)\n";
        let found = socket_writes(log, 80);
        let expected = [("writev", 5), ("write", 90), ("sendto", -1)];
        assert_eq!(found, expected.map(|(call, result)| SocketWrite { call: call.to_owned(), result }));
        assert_eq!(totals(&found), (2, 95));
    }
}

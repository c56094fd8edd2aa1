//! Where requests and responses begin and end.

use std::net::Shutdown;

use anyhow::Result;

use super::{
    Case, Checks,
    stage::{One, Seen, Stage},
    writes::every_write,
};
use crate::metronome::client::request;

pub(super) const CASES: &[Case] = &[
    Case::new("head-in-pieces", head_in_pieces),
    Case::new("head-cut-at-each-byte", head_cut_at_each_byte),
    Case::new("body-in-pieces", body_in_pieces),
    Case::new("chunked-body", chunked_body),
    Case::new("one-byte-read", one_byte_read),
    Case::new("pipelined", pipelined),
    Case::new("pipelined-one-write", pipelined_one_write),
    Case::new("pipelined-straddling", pipelined_straddling),
    Case::new("pipelined-pairs", pipelined_pairs),
    Case::new("early-response", |checks| early_response(checks, true)),
    Case::new("early-response-joined", |checks| early_response(checks, false)).open(KEPT),
    Case::new("informational", informational),
    Case::new("expect-continue", expect_continue),
    Case::new("no-body", no_body),
    Case::new("upgrade", upgrade),
    Case::new("reset", reset),
    Case::new("half-closed", half_closed),
    Case::new("ended-by-close", ended_by_close),
    Case::new("not-http", not_http),
    Case::new("large-head", large_head),
];

const REQUESTS: u64 = 20;

/// Why one case is known not to hold.
const KEPT: &str =
    "the kernel keeps a call's first 792 bytes: what begins behind them is known by its response alone";

/// Reads, bytes in, writes and bytes out of each request; and every request is there, once.
fn messages(checks: &mut Checks, seen: &Seen, ids: std::ops::Range<u64>) {
    let ones = seen.each(ids.clone());
    checks.equal("requests", (ids.end - ids.start) as usize, seen.requests.len());
    checks.equal("of them by their path", (ids.end - ids.start) as usize, ones.len());
    every_write(checks, &ones);
    checks.equal("went wrong", "nothing".to_owned(), seen.complaints());
}

fn reads(checks: &mut Checks, ones: &[One<'_>]) {
    checks.each("reads", ones.iter().map(|one| (one.reads().count() as u32, one.request.reads)));
    let bytes = |one: &One<'_>| one.reads().map(|read| read.result as u64).sum::<u64>();
    checks.each("bytes in", ones.iter().map(|one| (bytes(one), one.request.bytes_in)));
}

/// Sends a request in two pieces; the server reads each.
fn in_pieces(checks: &mut Checks, request_of: impl Fn(u64) -> (Vec<u8>, usize), requests: u64) -> Result<()> {
    let stage = Stage::traced(&["--mode", "threads"])?;
    let mut client = stage.client()?;
    for id in 0..requests {
        let (bytes, cut) = request_of(id);
        client.send(&bytes[..cut])?;
        client.until_taken()?;
        client.send(&bytes[cut..])?;
        client.response(true)?;
    }
    let seen = stage.finish(requests as usize, requests)?;
    messages(checks, &seen, 0..requests);
    reads(checks, &seen.each(0..requests));
    Ok(())
}

fn head_in_pieces(checks: &mut Checks) -> Result<()> {
    in_pieces(checks, |id| (request("GET", id, "", ""), 30), REQUESTS)
}

fn head_cut_at_each_byte(checks: &mut Checks) -> Result<()> {
    let length = request("GET", 0, "", "").len() as u64;
    in_pieces(checks, |id| (request("GET", id, "", ""), 1 + id as usize), length - 1)
}

fn body_in_pieces(checks: &mut Checks) -> Result<()> {
    let whole = |id| {
        let mut bytes = request("POST", id, "", "content-length: 1000\r\n");
        let head = bytes.len();
        // Bytes that look like a request, but are a body.
        bytes.extend_from_slice(&b"GET /99 HTTP/1.1\r\n".repeat(60)[..1000]);
        // Within the body, or between head and body.
        (bytes, if id % 2 == 0 { head } else { head + 18 * 20 })
    };
    in_pieces(checks, whole, REQUESTS)
}

fn chunked_body(checks: &mut Checks) -> Result<()> {
    let whole = |id| {
        let mut bytes = request("POST", id, "", "transfer-encoding: chunked\r\n");
        let head = bytes.len();
        bytes.extend_from_slice(b"12\r\nGET /99 HTTP/1.1\r\n\r\n3\r\nabc\r\n0\r\n\r\n");
        (bytes, if id % 2 == 0 { head } else { head + 4 })
    };
    in_pieces(checks, whole, REQUESTS)
}

/// As Go reads: one byte in the background by one thread, the rest by another.
fn one_byte_read(checks: &mut Checks) -> Result<()> {
    let mut stage = Stage::traced(&["--mode", "threads"])?;
    let mut client = stage.client()?;
    for id in 0..REQUESTS {
        stage.get(&mut client, id, "spin=200&out=write:5&one")?;
    }
    let seen = stage.finish(REQUESTS as usize, REQUESTS)?;
    messages(checks, &seen, 0..REQUESTS);
    reads(checks, &seen.each(0..REQUESTS));
    Ok(())
}

/// Ten requests at once, answered one by one.
fn pipelined(checks: &mut Checks) -> Result<()> {
    pipelined_by(checks, 10, "spin=200&out=write:10")
}

/// Two short requests at once: their heads fit in what is kept of a read.
fn pipelined_pairs(checks: &mut Checks) -> Result<()> {
    pipelined_by(checks, 2, "spin=200")
}

/// Ten requests at once, all answers in the last one's write.
fn pipelined_one_write(checks: &mut Checks) -> Result<()> {
    let stage = Stage::traced(&["--mode", "threads"])?;
    let mut client = stage.client()?;
    for batch in 0..4 {
        let ids = batch * 10..batch * 10 + 10;
        let script = |id: u64| if id % 10 == 9 { "out=write:10" } else { "out=hold:10" };
        client.send(&ids.clone().flat_map(|id| request("GET", id, script(id), "")).collect::<Vec<_>>())?;
        for _ in ids {
            client.response(true)?;
        }
    }
    // Each batch's first was stamped for the read and its last for the write.
    let seen = stage.finish(8, 40)?;
    let ones = seen.each(0..40);
    checks.equal("requests", 40, seen.requests.len());
    checks.equal("of them by their path", 40, ones.len());
    // The write of all is the tenth's by its stamps, and carries every one's bytes.
    let write = |one: &One<'_>| {
        let mut tenth = seen.stamps[&(one.id / 10 * 10 + 9)].iter();
        tenth.rfind(|stamp| stamp.is_write()).expect("the tenth was answered")
    };
    checks.each("bytes out", ones.iter().map(|one| (write(one).result as u64 / 10, one.request.bytes_out)));
    checks.equal("writes", 4, ones.iter().map(|one| one.request.writes).sum::<u32>());
    checks.each("of them shared", ones.iter().map(|one| (1, one.request.shared_writes)));
    checks.holds(
        "ends",
        "inside the write",
        "see left",
        ones.iter().all(|one| (write(one).begin.at_ns..=write(one).end.at_ns).contains(&one.request.end_ns))
            && !ones.is_empty(),
    );
    checks.equal("went wrong", "nothing".to_owned(), seen.complaints());
    Ok(())
}

fn pipelined_by(checks: &mut Checks, size: u64, script: &str) -> Result<()> {
    let stage = Stage::traced(&["--mode", "threads"])?;
    let mut client = stage.client()?;
    for batch in 0..40 / size {
        let ids = batch * size..(batch + 1) * size;
        client.send(&ids.clone().flat_map(|id| request("GET", id, script, "")).collect::<Vec<_>>())?;
        for _ in ids {
            client.response(true)?;
        }
    }
    let seen = stage.finish(40, 40)?;
    messages(checks, &seen, 0..40);
    let ones = seen.each(0..40);
    checks.equal("reads", 40 / size, ones.iter().map(|one| u64::from(one.request.reads)).sum());
    checks.each("of them shared", ones.iter().map(|one| (1, one.request.shared_reads)));
    one_after_the_other(checks, &ones);
    Ok(())
}

/// Each response's write lies within its request and no other.
fn one_after_the_other(checks: &mut Checks, ones: &[One<'_>]) {
    let wrong = ones.iter().filter(|one| {
        let write = one.last_write();
        !(write.begin.at_ns..=write.end.at_ns).contains(&one.request.end_ns)
    });
    checks.equal("ends outside its own write", 0, wrong.count());
}

/// Two and a half requests, then the rest.
fn pipelined_straddling(checks: &mut Checks) -> Result<()> {
    let stage = Stage::traced(&["--mode", "threads"])?;
    let mut client = stage.client()?;
    for batch in 0..8 {
        let bytes: Vec<u8> =
            (batch * 3..batch * 3 + 3).flat_map(|id| request("GET", id, "out=write:10", "")).collect();
        let cut = bytes.len() * 5 / 6;
        client.send(&bytes[..cut])?;
        client.response(true)?;
        client.response(true)?;
        client.send(&bytes[cut..])?;
        client.response(true)?;
    }
    let seen = stage.finish(24, 24)?;
    messages(checks, &seen, 0..24);
    one_after_the_other(checks, &seen.each(0..24));
    Ok(())
}

/// The answer leaves before the body is read; what is left of the body is no request. The next request follows
/// when that was read, or may be read together with it.
fn early_response(checks: &mut Checks, apart: bool) -> Result<()> {
    let stage = Stage::traced(&["--mode", "threads"])?;
    let mut client = stage.client()?;
    for id in 0..REQUESTS {
        client.send(&request("POST", id, "out=write:10&body", "content-length: 1020\r\n"))?;
        client.response(true)?;
        client.send(&b"GET /99 HTTP/1.1\r\n\r\n".repeat(51))?;
        if apart {
            stage.until_stamped(id as usize + 1)?;
        }
    }
    let seen = stage.finish(REQUESTS as usize, REQUESTS)?;
    messages(checks, &seen, 0..REQUESTS);
    one_after_the_other(checks, &seen.each(0..REQUESTS));
    Ok(())
}

/// 103 and 102 before the answer.
fn informational(checks: &mut Checks) -> Result<()> {
    let stage = Stage::traced(&["--mode", "threads"])?;
    let mut client = stage.client()?;
    for id in 0..REQUESTS {
        client.send(&request("GET", id, "info=103&sleep=1000&info=102&out=write:10", ""))?;
        for _ in 0..3 {
            client.response(true)?;
        }
    }
    let seen = stage.finish(REQUESTS as usize, REQUESTS)?;
    messages(checks, &seen, 0..REQUESTS);
    let ones = seen.each(0..REQUESTS);
    checks.each("status", ones.iter().map(|one| (200, one.request.status)));
    one_after_the_other(checks, &ones);
    Ok(())
}

/// 100 asks for the body.
fn expect_continue(checks: &mut Checks) -> Result<()> {
    let stage = Stage::traced(&["--mode", "threads"])?;
    let mut client = stage.client()?;
    for id in 0..REQUESTS {
        let headers = "content-length: 907\r\nexpect: 100-continue\r\n";
        client.send(&request("POST", id, "info=100&body&out=write:10", headers))?;
        client.response(true)?;
        client.send(&[b'b'; 907])?;
        client.response(true)?;
    }
    let seen = stage.finish(REQUESTS as usize, REQUESTS)?;
    messages(checks, &seen, 0..REQUESTS);
    let ones = seen.each(0..REQUESTS);
    reads(checks, &ones);
    checks.each("status", ones.iter().map(|one| (200, one.request.status)));
    one_after_the_other(checks, &ones);
    Ok(())
}

/// HEAD, 204 and 304, with an ordinary request after each.
fn no_body(checks: &mut Checks) -> Result<()> {
    let stage = Stage::traced(&["--mode", "threads"])?;
    let mut client = stage.client()?;
    let kinds = [
        ("HEAD", "out=write:1000", 200),
        ("GET", "status=204&out=write:0", 204),
        ("GET", "status=304&out=write:0", 304),
        ("GET", "out=write:10", 200),
    ];
    for id in 0..REQUESTS {
        let (method, script, _) = kinds[id as usize % kinds.len()];
        client.send(&request(method, id, script, ""))?;
        client.response(method != "HEAD")?;
    }
    let seen = stage.finish(REQUESTS as usize, REQUESTS)?;
    messages(checks, &seen, 0..REQUESTS);
    let status = |one: &One<'_>| kinds[one.id as usize % kinds.len()].2;
    checks.each("status", seen.each(0..REQUESTS).iter().map(|one| (status(one), one.request.status)));
    Ok(())
}

/// After 101 the bytes are not HTTP, whatever they look like.
fn upgrade(checks: &mut Checks) -> Result<()> {
    let stage = Stage::traced(&["--mode", "threads"])?;
    for id in 0..REQUESTS {
        let mut client = stage.client()?;
        client.send(&request(
            "GET",
            id,
            "status=101&out=write:0&raw",
            "connection: upgrade\r\nupgrade: raw\r\n",
        ))?;
        client.response(true)?;
        for _ in 0..3 {
            client.send(b"GET /99 HTTP/1.1\r\n\r\n")?;
            client.read(1_000)?;
        }
        client.finish()?;
        client.read_to_end()?;
    }
    let seen = stage.finish(REQUESTS as usize, REQUESTS)?;
    messages(checks, &seen, 0..REQUESTS);
    checks.each("status", seen.each(0..REQUESTS).iter().map(|one| (101, one.request.status)));
    Ok(())
}

/// The client resets in mid-body; the server's write fails.
fn reset(checks: &mut Checks) -> Result<()> {
    let stage = Stage::traced(&["--mode", "threads"])?;
    for id in 0..REQUESTS {
        let mut client = stage.client()?;
        client.send(&request(
            "GET",
            id,
            "out=write:100&sleep=3000&out=write:50&sleep=1000&out=write:50",
            "",
        ))?;
        client.read(1_000)?;
        client.reset()?;
    }
    let seen = stage.finish(REQUESTS as usize, REQUESTS)?;
    let ones = seen.each(0..REQUESTS);
    checks.equal("requests", REQUESTS as usize, seen.requests.len());
    every_write(checks, &ones);
    checks.equal("went wrong", "nothing".to_owned(), seen.complaints());
    Ok(())
}

/// The client closes its sending half with the request: a FIN is no byte.
fn half_closed(checks: &mut Checks) -> Result<()> {
    let stage = Stage::traced(&["--mode", "threads"])?;
    for id in 0..REQUESTS {
        let mut client = stage.client()?;
        client.send(&request("GET", id, "sleep=2000&out=write:10", ""))?;
        client.stream().shutdown(Shutdown::Write)?;
        client.read_to_end()?;
    }
    // And connections that send nothing at all.
    for _ in 0..REQUESTS {
        let mut client = stage.client()?;
        client.finish()?;
        client.read_to_end()?;
    }
    let seen = stage.finish(REQUESTS as usize, REQUESTS)?;
    messages(checks, &seen, 0..REQUESTS);
    reads(checks, &seen.each(0..REQUESTS));
    Ok(())
}

/// The server closes after each response.
fn ended_by_close(checks: &mut Checks) -> Result<()> {
    let mut stage = Stage::traced(&["--mode", "threads"])?;
    for id in 0..REQUESTS {
        let mut client = stage.client()?;
        stage.get(&mut client, id, "out=write:10&close")?;
        client.read_to_end()?;
    }
    let seen = stage.finish(REQUESTS as usize, REQUESTS)?;
    messages(checks, &seen, 0..REQUESTS);
    Ok(())
}

/// Connections on which no HTTP is spoken: the server closes them, and no request is invented.
fn not_http(checks: &mut Checks) -> Result<()> {
    let mut stage = Stage::traced(&["--mode", "threads"])?;
    for bytes in
        [&b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"[..], b"\0\0\0\0", b"SSH-2.0-x\r\n", b"\xff"]
    {
        let mut client = stage.client()?;
        client.send(bytes)?;
        client.finish()?;
        // It ends in a reset where bytes were left unread.
        let _ = client.read_to_end();
    }
    let mut client = stage.client()?;
    stage.get(&mut client, 0, "")?;
    let seen = stage.finish(1, 1)?;
    messages(checks, &seen, 0..1);
    Ok(())
}

/// Heads of up to 60 KiB, in as many reads as they take.
fn large_head(checks: &mut Checks) -> Result<()> {
    let stage = Stage::traced(&["--mode", "threads"])?;
    let mut client = stage.client()?;
    for id in 0..REQUESTS {
        let filler = format!("x-filler: {}\r\n", "f".repeat(id as usize * 3_000));
        client.exchange(&request("GET", id, "", &filler))?;
    }
    let seen = stage.finish(REQUESTS as usize, REQUESTS)?;
    messages(checks, &seen, 0..REQUESTS);
    reads(checks, &seen.each(0..REQUESTS));
    Ok(())
}

//! Requests told apart by their bytes, on the real kernel: pipelining, and what is no HTTP/1.
//!
//! As root, one after the other: `cargo test -p tracer-tests --test framing -- --test-threads=1`.

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpStream},
    time::Duration,
};

use tracer::{
    load::{Driver, Plan, Route, Stop},
    recording::Request,
    window::Traced,
};
use tracer_tests::truth::{Served, alone, drive};

/// Everything the server says to these bytes, until it closes or has said it `answers` times.
fn say(served: &Served, bytes: &[u8], answers: usize) -> String {
    let mut stream = TcpStream::connect(served.address()).expect("the server accepts");
    stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a new socket takes options");
    stream.write_all(bytes).expect("the server takes bytes");
    let mut said = Vec::new();
    let mut buffer = [0; 4_096];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => break,
            Ok(count) => said.extend_from_slice(&buffer[..count]),
        }
        if String::from_utf8_lossy(&said).matches("HTTP/1.1 ").count() == answers {
            break;
        }
    }
    stream.shutdown(Shutdown::Both).ok();
    String::from_utf8_lossy(&said).into_owned()
}

/// A window on one conversation with the built-in server.
fn conversation(bytes: &[u8], answers: usize) -> (String, Traced, Vec<Request>) {
    let served = Served::start("builtin");
    let window = served.open(false);
    let said = say(&served, bytes, answers);
    let (traced, requests) = window.close(None).expect("the window closes");
    assert_eq!(traced.tally.ledger.defects, 0, "{:?}", traced.tally.ledger);
    (said, traced, requests.0)
}

/// Three requests in one segment: three records, and the read they share counts once.
#[test]
fn pipelined_requests_have_a_record_each() {
    let _alone = alone();
    let (_, traced, requests) = conversation(&b"GET / HTTP/1.1\r\nhost: a\r\n\r\n".repeat(3), 3);
    let told: Vec<_> = requests.iter().map(|request| (request.index, request.status)).collect();
    assert_eq!(told, [(0, 200), (1, 200), (2, 200)], "{:?}", traced.tally.ledger);
    let reads: Vec<_> = requests.iter().map(|request| (request.reads, request.shared_reads)).collect();
    assert_eq!(reads, [(1, 1), (0, 1), (0, 1)]);
    assert!(requests.iter().all(|request| &*request.method == "GET" && &*request.path == "/"));
}

/// A driver that pipelines: as many requests traced as sent, each within the driver's own times.
#[test]
fn a_pipelining_driver_is_traced_in_full() {
    let _alone = alone();
    for server in ["builtin", "node-http"] {
        let served = Served::start(server);
        let route = Route::get("/");
        let plan = Plan { connections: 4, pipeline: 4, ..Plan::new(served.address(), vec![route]) };
        let mut driver = Driver::start(plan).expect("the driver connects");
        let (load, traced, requests) = drive(served.open(true), &mut driver, Stop::Count(2_000));
        let ledger = &traced.tally.ledger;
        println!("{server}: {ledger:?}");
        assert_eq!(requests.len() as u64, load.totals.requests, "{server}: {ledger:?}");
        assert_eq!((ledger.unexplained(), ledger.defects), (Some(0), 0), "{server}: {ledger:?}");
        let writes: u64 = requests.iter().map(|request| u64::from(request.writes)).sum();
        let called: u64 = traced
            .syscalls
            .iter()
            .filter(|call| matches!(&*call.name, "write" | "writev" | "sendto" | "sendmsg"))
            .map(|call| call.calls - call.eagain)
            .sum();
        // The event loop's own write to its eventfd, say, is no response.
        assert!(writes <= called, "{server}: {writes} writes of responses, {called} calls");
    }
}

/// Noise that the server refuses is no request.
#[test]
fn noise_is_counted_and_no_request() {
    let _alone = alone();
    let (said, traced, requests) = conversation(b"\x01\x02 not a request\r\n\r\n", 1);
    assert!(said.starts_with("HTTP/1.1 400"), "{said:?}");
    assert!(requests.is_empty(), "{requests:?}");
    assert_eq!(traced.tally.ledger.malformed_requests, 1, "{:?}", traced.tally.ledger);
}

/// The preface of HTTP/2 is recognised, and said to be not covered.
#[test]
fn http_2_is_recognised() {
    let _alone = alone();
    let (_, traced, requests) = conversation(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0", 1);
    assert!(requests.is_empty(), "{requests:?}");
    assert_eq!(traced.tally.ledger.http2_connections, 1, "{:?}", traced.tally.ledger);
}

//! Requests told apart by their bytes, on the real kernel: pipelining, and what is no HTTP/1.
//!
//! As root, one after the other: `cargo test -p tracer-tests --test framing -- --test-threads=1`.

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpStream},
    time::Duration,
};

use tracer::{recording::Request, window::Traced};
use tracer_tests::truth::{Served, alone};

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

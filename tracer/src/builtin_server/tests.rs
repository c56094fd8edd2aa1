//! The server is tested with the driver: each checks the other.

use std::thread;
use std::time::Duration;

use super::*;
use crate::load::{Driver, Expectation, Plan, Route, Stop};

/// A server on a thread of its own, for as long as the test process lives.
fn start() -> SocketAddr {
    let (sender, address) = std::sync::mpsc::channel();
    thread::spawn(move || {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            sender.send(listener.local_addr().unwrap()).unwrap();
            serve(listener, Box::leak(Box::default())).await;
        });
    });
    address.recv().unwrap()
}

fn get(path: &str, body: &str) -> Route {
    Route { expect: Expectation { status: 200, body: Some(body.into()) }, ..Route::get(path) }
}

fn check(address: SocketAddr, route: Route) {
    let path = route.path.clone();
    let plan = Plan { connections: 3, timeout: Duration::from_secs(20), ..Plan::new(address, vec![route]) };
    let result = Driver::start(plan).unwrap().run(Stop::Count(20)).unwrap();
    assert_eq!(result.totals.first_error, None, "{path}");
    assert_eq!((result.totals.requests, result.totals.reconnects), (20, 0), "{path}");
}

#[test]
fn the_routes_answer_as_promised() {
    let address = start();
    check(address, get("/", r#"{"message":"hello"}"#));
    check(address, get("/users/42", r#"{"id":"42","name":"ada"}"#));
    check(address, get("/users/%22", r#"{"id":"%22","name":"ada"}"#));
    let echo = get("/echo", "some words");
    check(address, Route { method: String::from("POST"), body: b"some words".to_vec(), ..echo });
    check(address, Route { method: String::from("HEAD"), ..get("/", "") });
    let missing = Expectation { status: 404, body: None };
    check(address, Route { expect: missing, ..get("/missing", "") });
    let refused = Expectation { status: 400, body: None };
    check(address, Route { expect: refused, ..get("/?spin_us=x", "") });
}

#[test]
fn the_body_is_the_same_however_it_is_sent() {
    let address = start();
    for query in
        ["split=1", "chunks=4", "chunks=100", "split=1&chunks=2&chunk_gap_us=100", "spin_us=10&block_us=10"]
    {
        check(address, get(&format!("/?{query}"), r#"{"message":"hello"}"#));
    }
}

#[tokio::test]
async fn a_response_says_what_was_done_and_when() {
    let knobs = Knobs::parse("sleep_us=2000&block_us=300&spin_us=200&split=1&chunks=2").unwrap();
    let did = knobs.act().await.unwrap();
    let mut earlier_ns = 0;
    let mut lasted_ns = Vec::new();
    for entry in did.to_str().unwrap().split(',') {
        let [knob, start, end] = entry.split(';').collect::<Vec<_>>()[..] else { panic!("{entry}") };
        let (start_ns, end_ns): (u64, u64) = (start.parse().unwrap(), end.parse().unwrap());
        assert!(earlier_ns <= start_ns && start_ns <= end_ns);
        earlier_ns = end_ns;
        lasted_ns.push((knob, end_ns - start_ns));
    }
    let at_least_ns =
        [("sleep_us", 2_000_000), ("block_us", 300_000), ("spin_us", 200_000), ("split", 0), ("chunks", 0)];
    assert_eq!(lasted_ns.len(), at_least_ns.len());
    for ((knob, lasted_ns), (expected, at_least_ns)) in lasted_ns.into_iter().zip(at_least_ns) {
        assert!(knob == expected && lasted_ns >= at_least_ns, "{knob} lasted {lasted_ns} ns");
    }
    assert_eq!(Knobs::parse("chunk_gap_us=1").unwrap().act().await, None);
}

//! The driver's own times of a request find the kernel's record of the same request: every one of them.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracer::{
    load::{Driver, Plan, Route, Stop},
    probe::Options,
    recording::Request,
    window::{Settings, Window},
};
use tracer_tests::truth::{Requests, Served, alone, cpus};

/// Connections.
const MANY: u64 = 10_000;

/// Sends requests by this plan, and holds every one of them to have the driver's times.
#[track_caller]
fn assert_all_join(server: &str, requests: u64, plan: impl FnOnce(&mut Plan)) {
    let served = Served::start(server);
    let mut asked = Plan::new(served.address(), vec![Route::get("/")]);
    asked.cores = cpus().client.clone();
    plan(&mut asked);
    let settings = Settings {
        processes: served.target.family(),
        ports: vec![served.target.port()],
        probes: Options::default(),
        keeps_query: false,
        joins_samples: true,
    };
    let churns = asked.requests_per_connection.is_some();
    let mut driver = Driver::start(asked).expect("the driver connects");
    // Of this run nothing is traced: its times must be nobody's.
    driver.run(Stop::Count(100)).expect("the driver runs");
    let window = Window::open(&settings, Requests::default()).expect("the window opens");
    let load = driver.run_sending_samples(Stop::Count(requests), window.samples());
    let load = load.expect("the driver runs");
    let (traced, seen) = window.close(Some(load.sent())).expect("the window closes");
    let ledger = traced.tally.ledger;
    assert_eq!((load.totals.requests, load.totals.errors), (requests, 0), "{:?}", load.totals.first_error);
    assert_eq!((ledger.joined, ledger.joined_share()), (requests, Some(1.0)), "{ledger:?}");
    assert_eq!((ledger.other_clients, ledger.unexplained(), ledger.defects), (0, Some(0), 0), "{ledger:?}");
    assert_eq!(seen.0.len() as u64, requests);
    seen.0.iter().for_each(assert_same_request);
    assert_eq!(churns, !load.connect.is_empty(), "connections were opened on the way");
}

/// The driver's times hold the kernel's between them.
#[track_caller]
fn assert_same_request(request: &Request) {
    let client = request.client.unwrap_or_else(|| panic!("the driver's times are missing: {request:?}"));
    assert!(client.send_ns <= request.first_byte_ns, "{request:?}");
    assert!(request.end_by_client_ns(&client) <= client.done_ns, "{request:?}");
    assert!((client.send_ns..=client.done_ns).contains(&client.first_byte_ns), "{request:?}");
}

#[test]
fn in_steady_state() {
    let _alone = alone();
    assert_all_join("builtin", 5_000, |plan| plan.connections = 32);
    assert_all_join("node-http", 2_000, |plan| plan.connections = 32);
}

#[test]
fn with_churn() {
    let _alone = alone();
    assert_all_join("builtin", 3_000, |plan| {
        (plan.connections, plan.requests_per_connection) = (16, Some(3));
    });
    assert_all_join("node-http", 1_000, |plan| {
        (plan.connections, plan.requests_per_connection) = (4, Some(1));
    });
}

#[test]
fn with_pipelining() {
    let _alone = alone();
    assert_all_join("builtin", 3_000, |plan| (plan.connections, plan.pipeline) = (8, 4));
    assert_all_join("builtin", 3_000, |plan| {
        (plan.connections, plan.pipeline, plan.requests_per_connection) = (8, 4, Some(9));
    });
}

#[test]
fn at_a_constant_rate() {
    let _alone = alone();
    assert_all_join("builtin", 1_000, |plan| (plan.connections, plan.rate) = (16, Some(2_000.0)));
}

#[test]
fn on_many_connections() {
    let _alone = alone();
    // The server inherits it.
    let limit = getrlimit(Resource::Nofile);
    let enough = Rlimit { current: limit.current.max(Some(2 * MANY)), ..limit };
    setrlimit(Resource::Nofile, enough).expect("this test needs as many open files (`ulimit -Hn`)");
    assert_all_join("builtin", MANY, |plan| plan.connections = MANY as usize);
}

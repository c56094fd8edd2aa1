//! Requests that wait for PostgreSQL, behind Node with pg.
//!
//! As root, one after the other: `cargo test -p tracer-tests --test downstream -- --test-threads=1`.

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::Path,
};

use tracer::{
    load::{Driver, Plan, Route, Stop},
    probe::Options,
    recording::{DownstreamPeer, Request},
    scenario::Server,
    target::{SpawnOptions, Target, ready::free_port},
    window::{Settings, Traced, Window},
};
use tracer_tests::{
    postgres::Postgres,
    truth::{Requests, alone, cpus},
};

/// Node in front of a PostgreSQL, with a pool of so many connections.
struct Stage {
    postgres: Postgres,
    target: Target,
}

impl Stage {
    fn start(pool: usize) -> Self {
        let postgres = Postgres::start().expect("PostgreSQL starts");
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("servers/pg");
        assert!(folder.join("node_modules").is_dir(), "pg is missing: run `npm ci` in {}", folder.display());
        let command = vec!["node".to_owned(), folder.join("server.mjs").display().to_string()];
        let mut server = Server::from_command("pg", command);
        server.env = vec![("DATABASE_URL".to_owned(), postgres.url()), ("POOL".to_owned(), pool.to_string())];
        server.port = free_port().expect("a port is free");
        let options = SpawnOptions { core: cpus().server.first().copied(), run_as: None };
        let mut target = Target::spawn(&server, &options).expect("Node starts");
        target.wait_ready(&server.ready, server.ready_timeout).expect("Node answers");
        Self { postgres, target }
    }

    /// So many requests of a path, after enough of the same to open the pool's connections and to warm up.
    fn traced(&self, path: &str, connections: usize, requests: u64) -> (Traced, Vec<Request>) {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.target.port()));
        let plan =
            Plan { connections, cores: cpus().client.clone(), ..Plan::new(address, vec![Route::get(path)]) };
        let mut driver = Driver::start(plan).expect("the driver connects");
        driver.run(Stop::Count(200)).expect("it warms up");
        let settings = Settings {
            processes: self.target.family(),
            ports: vec![self.target.port()],
            probes: Options::default(),
            keeps_query: false,
            joins_samples: true,
        };
        let window = Window::open(&settings, Requests::default()).expect("the window opens");
        let load = driver.run_sending_samples(Stop::Count(requests), window.samples()).expect("it runs");
        assert_eq!((load.totals.errors, load.totals.requests), (0, requests));
        let (traced, requests) = window.close(Some(load.sent())).expect("the window closes");
        assert_eq!(traced.tally.ledger.unexplained(), Some(0), "{:?}", traced.tally.ledger);
        (traced, requests.0)
    }

    /// The only peer of a request; nothing of it when it asked none.
    fn peer(&self, request: &Request) -> DownstreamPeer {
        let peers = &request.downstream;
        assert!(peers.len() <= 1, "{peers:?}");
        let peer = peers.first().cloned().unwrap_or_default();
        assert!(peers.is_empty() || *peer.peer == *format!("127.0.0.1:{}", self.postgres.port), "{peer:?}");
        peer
    }
}

/// One request at a time: every round trip is its own, and known for sure.
#[test]
fn round_trips_to_postgresql_are_counted_for_their_request() {
    let _alone = alone();
    let stage = Stage::start(10);
    for (path, round_trips) in [("/", 0), ("/one", 1), ("/two", 2)] {
        let (traced, requests) = stage.traced(path, 1, 300);
        for request in &requests {
            let peer = stage.peer(request);
            assert_eq!((peer.round_trips, peer.inferred), (round_trips, 0), "{path}: {request:?}");
            assert!((peer.bytes_in > 0) == (round_trips > 0), "{peer:?}");
            assert!(peer.wait_ns <= request.wall_ns(), "{request:?}");
        }
        assert_eq!(traced.tally.ledger.downstream_unowned, 0, "{path}");
    }
}

/// A query that takes 5 ms: so long the request waited for its answer, and it was blocked meanwhile.
#[test]
fn the_wait_for_a_slow_query_is_told() {
    let _alone = alone();
    let stage = Stage::start(10);
    let (_, requests) = stage.traced("/sleep", 1, 100);
    for request in &requests {
        let wait_ns = stage.peer(request).wait_ns;
        assert!((5_000_000..=request.wall_ns()).contains(&wait_ns), "{request:?}");
    }
    let mut waits: Vec<u64> = requests.iter().map(|request| stage.peer(request).wait_ns).collect();
    waits.sort_unstable();
    assert!(waits[50] < 8_000_000, "half of the waits took {} ns or more", waits[50]);
}

/// Eight requests share two connections: most wait for one to become free, each round trip is somebody's, and all of
/// them are marked as inferred.
#[test]
fn a_pool_that_is_too_small_shows_as_a_wait_before_sending() {
    let _alone = alone();
    let stage = Stage::start(2);
    let (traced, requests) = stage.traced("/sleep", 8, 400);
    let peers: Vec<DownstreamPeer> = requests.iter().map(|request| stage.peer(request)).collect();
    let round_trips: u32 = peers.iter().map(|peer| peer.round_trips).sum();
    let inferred: u32 = peers.iter().map(|peer| peer.inferred).sum();
    let unowned = traced.tally.ledger.downstream_unowned;
    println!("{round_trips} round trips, {inferred} inferred, {unowned} calls of no request");
    let exactly_one = peers.iter().filter(|peer| peer.round_trips == 1).count();
    // Those that were open when the window began are known from their answers only.
    assert!(exactly_one as f64 >= 0.95 * requests.len() as f64, "{exactly_one} of {}", requests.len());
    assert!(inferred as f64 >= 0.9 * f64::from(round_trips), "{inferred} of {round_trips}");
    let waited = requests.iter().filter(|request| request.before_downstream_ns > 5_000_000).count();
    assert!(waited as f64 >= 0.8 * requests.len() as f64, "{waited} of {} waited to send", requests.len());
}

//! The driver against servers that behave, and against every way of not behaving that somebody was misled by.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::Ordering::SeqCst;

use rustix::thread::CpuSet;

use super::*;

const HELLO: &str = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello";

/// What a server does with one request.
struct Reply {
    /// Written one by one.
    pieces: Vec<Vec<u8>>,
    closes: bool,
}

fn keep(bytes: &str) -> Reply {
    Reply { pieces: vec![bytes.as_bytes().to_vec()], closes: false }
}

fn close(bytes: &str) -> Reply {
    Reply { closes: true, ..keep(bytes) }
}

/// What a server saw.
#[derive(Clone, Default)]
struct Seen {
    connections: Arc<AtomicU64>,
    requests: Arc<AtomicU64>,
}

/// Answers the n-th request (from 1) of each connection with `reply(n)`.
fn serve(reply: impl Fn(u64) -> Reply + Clone + Send + 'static) -> (SocketAddr, Seen) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let seen = Seen::default();
    let of_server = seen.clone();
    thread::spawn(move || {
        for stream in listener.incoming() {
            of_server.connections.fetch_add(1, SeqCst);
            let (seen, reply) = (of_server.clone(), reply.clone());
            thread::spawn(move || answer(stream.unwrap(), &seen, reply));
        }
    });
    (address, seen)
}

/// Errors only end the connection: they are what the client is to notice.
fn answer(mut stream: TcpStream, seen: &Seen, reply: impl Fn(u64) -> Reply) {
    stream.set_nodelay(true).unwrap();
    for number in 1.. {
        if !take_request(&mut stream) {
            return;
        }
        seen.requests.fetch_add(1, SeqCst);
        let reply = reply(number);
        if reply.pieces.iter().any(|piece| stream.write_all(piece).is_err()) || reply.closes {
            return;
        }
    }
}

/// Reads one request with its body; `false` when there is none.
fn take_request(stream: &mut TcpStream) -> bool {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        if !matches!(stream.read(&mut byte), Ok(1)) {
            return false;
        }
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
    stream.read_exact(&mut vec![0; length.map_or(0, |length| length.parse().unwrap())]).is_ok()
}

fn route() -> Route {
    Route { expect: Expectation { status: 200, body: Some("hello".into()) }, ..Route::get("/") }
}

fn plan(address: SocketAddr, connections: usize) -> Plan {
    Plan {
        host: String::from("test"),
        connections,
        timeout: Duration::from_secs(20),
        ..Plan::new(address, vec![route()])
    }
}

fn run(plan: Plan, stop: Stop) -> LoadResult {
    Driver::start(plan).unwrap().run_keeping_samples(stop).unwrap()
}

/// The only class of error in a result, its number and first example.
fn only_error(result: &LoadResult) -> (ErrorClass, u64, &str) {
    let classes: Vec<_> =
        ErrorClass::ALL.into_iter().filter(|&class| result.errors.count(class) > 0).collect();
    let [class] = classes[..] else { panic!("one class of errors, not: {}", result.errors) };
    assert_eq!(result.totals.errors, result.errors.count(class));
    assert_eq!(
        result.totals.first_error.as_deref(),
        result.errors.first(class).map(|first| first.words.as_str())
    );
    (class, result.errors.count(class), &result.errors.first(class).unwrap().words)
}

#[test]
fn a_count_is_met_exactly_and_connections_last_from_run_to_run() {
    for connections in [1, 7] {
        let (address, seen) = serve(|_| keep(HELLO));
        let mut driver = Driver::start(plan(address, connections)).unwrap();
        let warm_up = driver.run(Stop::Count(100)).unwrap();
        assert_eq!((warm_up.totals.requests, warm_up.samples.len()), (100, 0));

        let result = driver.run_keeping_samples(Stop::Count(1000)).unwrap();
        assert_eq!(result.errors.to_string(), "");
        assert_eq!((result.totals.requests, result.totals.errors, result.totals.reconnects), (1000, 0, 0));
        assert_eq!((seen.requests.load(SeqCst), seen.connections.load(SeqCst)), (1100, connections as u64));
        assert_eq!((result.sent(), result.latency.len(), driver.progress().load(SeqCst)), (1000, 1000, 1000));
        assert_eq!(result.bytes_in, 1000 * HELLO.len() as u64);
        assert_eq!(result.bytes_out, 1000 * "GET / HTTP/1.1\r\nHost: test\r\n\r\n".len() as u64);
        assert_eq!(result.totals.connections, connections as u32);
        let threads: Vec<_> = result.workers.iter().map(|worker| worker.thread_id).collect();
        assert_eq!(threads, driver.thread_ids());
        assert_eq!(result.reused, 1000);
        assert!(result.totals.client_cpu_ns > 0 && result.totals.client_cpu_ns <= result.totals.elapsed_ns);
        assert!(result.totals.latency.p50_ns > 0);
        check_samples(&result);
    }
}

/// On each port one request follows the other, all within the run.
fn check_samples(result: &LoadResult) {
    assert_eq!(result.samples.len() as u64, result.totals.requests);
    let mut ends_ns = std::collections::HashMap::new();
    for sample in &result.samples {
        let earlier_ns = ends_ns.insert(sample.remote_port, sample.done_ns).unwrap_or(result.started_ns);
        assert!(
            earlier_ns <= sample.send_ns
                && sample.send_ns < sample.done_ns
                && sample.done_ns <= result.ended_ns
        );
    }
}

#[test]
fn a_run_by_time_ends_with_nothing_in_flight() {
    let (address, seen) = serve(|_| keep(HELLO));
    let duration = Duration::from_millis(50);
    let result = run(plan(address, 3), Stop::After(duration));
    assert_eq!(seen.requests.load(SeqCst), result.totals.requests);
    assert!(result.totals.requests > 0 && result.totals.elapsed_ns >= 50_000_000);
    assert_eq!(result.errors.total(), 0);
}

#[test]
fn the_stop_flag_ends_a_run() {
    let (address, seen) = serve(|_| keep(HELLO));
    let mut driver = Driver::start(plan(address, 2)).unwrap();
    let (flag, progress) = (driver.stop_flag(), driver.progress());
    let watcher = thread::spawn(move || {
        while progress.load(SeqCst) < 10 {
            thread::yield_now();
        }
        flag.store(true, SeqCst);
    });
    let result = driver.run(Stop::After(Duration::from_secs(3600))).unwrap();
    watcher.join().unwrap();
    assert!(result.totals.requests >= 10);
    assert_eq!(seen.requests.load(SeqCst), result.totals.requests);
    assert_eq!(driver.run(Stop::Count(10)).unwrap().sent(), 0);
}

#[test]
fn a_response_in_single_bytes_and_one_in_odd_chunks_are_taken() {
    let (address, _) =
        serve(|_| Reply { pieces: HELLO.bytes().map(|byte| vec![byte]).collect(), closes: false });
    assert_eq!(run(plan(address, 1), Stop::Count(3)).totals.requests, 3);

    let (address, _) = serve(|_| {
        let pieces =
            ["HTTP/1.1 200 OK\r\nTransfer-Enc", "oding: chunked\r\n\r\n1", "\r\nh\r\n00", "3\r\nel", "l\r"];
        let pieces = pieces.into_iter().chain(["\n1;x=y\r", "\no\r\n0\r\n", "\r\n"]);
        Reply { pieces: pieces.map(|piece| piece.as_bytes().to_vec()).collect(), closes: false }
    });
    assert_eq!(run(plan(address, 1), Stop::Count(3)).totals.requests, 3);
}

#[test]
fn another_status_or_body_is_an_error_on_a_connection_that_lives_on() {
    let (address, seen) = serve(|number| match number % 2 {
        0 => keep(HELLO),
        _ => keep("HTTP/1.1 404 Not Found\r\ncontent-length: 5\r\n\r\nhello"),
    });
    let result = run(plan(address, 1), Stop::Count(10));
    assert_eq!(only_error(&result), (ErrorClass::Status, 5, "expected status 200, got 404"));
    assert_eq!((result.totals.requests, result.sent(), seen.connections.load(SeqCst)), (5, 10, 1));
    assert_eq!((result.samples.len(), result.latency.len()), (10, 10));

    let (address, _) = serve(|_| keep("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhullo"));
    let result = run(plan(address, 1), Stop::Count(4));
    let words = "the body differs from byte 1 on: expected \"ello\", got \"ullo\"";
    assert_eq!(only_error(&result), (ErrorClass::Body, 4, words));

    let any = Expectation { status: 200, body: None };
    let any = Route { expect: any, ..route() };
    assert_eq!(run(Plan { routes: vec![any], ..plan(address, 1) }, Stop::Count(4)).totals.requests, 4);
}

#[test]
fn bytes_after_the_body_are_a_framing_error() {
    let (address, _) = serve(|_| keep(&format!("{HELLO}!")));
    let result = run(plan(address, 1), Stop::Count(3));
    let (class, count, words) = only_error(&result);
    assert_eq!((class, count, result.totals.requests), (ErrorClass::Framing, 3, 0));
    assert!(words.starts_with("1 bytes follow"), "{words}");
}

#[test]
fn a_connection_closed_as_announced_is_opened_again() {
    let (address, seen) = serve(|number| match number {
        10 => close("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 5\r\n\r\nhello"),
        _ => keep(HELLO),
    });
    let mut driver = Driver::start(plan(address, 1)).unwrap();
    let result = driver.run(Stop::Count(100)).unwrap();
    assert_eq!((result.totals.requests, result.totals.errors, result.totals.reconnects), (100, 0, 9));
    assert_eq!((seen.requests.load(SeqCst), seen.connections.load(SeqCst)), (100, 10));
    assert_eq!(driver.run(Stop::Count(1)).unwrap().totals.reconnects, 1);
}

#[test]
fn a_body_that_ends_with_the_connection_is_taken() {
    let (address, seen) = serve(|_| close("HTTP/1.1 200 OK\r\n\r\nhello"));
    let result = run(plan(address, 1), Stop::Count(5));
    assert_eq!((result.totals.requests, result.totals.errors, result.totals.reconnects), (5, 0, 4));
    assert_eq!(seen.connections.load(SeqCst), 5);
}

#[test]
fn a_connection_closed_unannounced_between_requests_is_opened_again() {
    let (address, seen) = serve(|number| if number % 2 == 0 { close(HELLO) } else { keep(HELLO) });
    let result = run(plan(address, 1), Stop::Count(20));
    assert_eq!(result.errors.to_string(), "");
    assert_eq!((result.totals.requests, result.totals.reconnects), (20, 9));
    assert_eq!((seen.requests.load(SeqCst), seen.connections.load(SeqCst)), (20, 10));
}

#[test]
fn a_server_that_takes_requests_and_closes_is_an_error() {
    let (address, _) = serve(|_| close(""));
    let result = run(plan(address, 1), Stop::Count(5));
    let words = "expected a response, but the server closed the connection without one";
    assert_eq!(only_error(&result), (ErrorClass::Reset, 5, words));

    let (address, _) = serve(|_| close(&HELLO[..HELLO.len() - 1]));
    let result = run(plan(address, 1), Stop::Count(5));
    let words = "the server closed the connection in the middle of a response";
    assert_eq!(only_error(&result), (ErrorClass::Framing, 5, words));
}

#[test]
fn a_server_that_never_answers_times_out() {
    let (address, _) = serve(|_| Reply { pieces: vec![], closes: false });
    let timeout = Duration::from_millis(40);
    let result = run(Plan { timeout, ..plan(address, 2) }, Stop::Count(4));
    let words = "expected a whole response within 40ms, got 0 bytes";
    assert_eq!(only_error(&result), (ErrorClass::Timeout, 4, words));
    assert_eq!((result.totals.requests, result.latency.len()), (0, 4));
    assert!(result.latency.min() >= 39_900_000, "{}", result.latency.min());

    let result = run(Plan { timeout, ..plan(address, 2) }, Stop::After(Duration::from_millis(100)));
    assert!(result.sent() >= 1 && result.totals.errors == result.sent(), "{}", result.sent());
}

#[test]
fn without_a_server_there_is_no_load() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = format!("{:#}", Driver::start(plan(address, 4)).err().unwrap());
    assert!(error.contains("is the server listening?") && error.contains("refused"), "{error}");
}

#[test]
fn a_server_that_goes_away_ends_the_run() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        drop(listener);
        answer(stream, &Seen::default(), |number| if number == 3 { close(HELLO) } else { keep(HELLO) });
    });
    let result = run(plan(address, 1), Stop::After(Duration::from_secs(3600)));
    let (class, count, words) = only_error(&result);
    assert_eq!((class, count, result.totals.requests, result.sent()), (ErrorClass::Connect, 3, 3, 3));
    assert!(words.contains("refused"), "{words}");
}

#[test]
fn a_large_body_goes_out_whole_and_an_early_answer_to_it_is_heard() {
    let (address, seen) = serve(|_| keep(HELLO));
    let large = Route { method: String::from("POST"), body: vec![b'x'; 8 << 20], ..route() };
    let post = Plan { routes: vec![large], ..plan(address, 1) };
    let result = run(post.clone(), Stop::Count(3));
    assert_eq!((result.totals.requests, seen.connections.load(SeqCst)), (3, 1));
    assert!(result.bytes_out > 3 * (8 << 20));

    // Answers when it has the head, and leaves the body where it is.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let mut unread = Vec::new();
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            stream.read_exact(&mut [0; 4]).unwrap();
            stream.write_all(b"HTTP/1.1 413 Too Large\r\ncontent-length: 0\r\n\r\n").unwrap();
            unread.push(stream);
        }
    });
    let result = run(Plan { endpoint: address.into(), ..post }, Stop::Count(2));
    assert_eq!(only_error(&result), (ErrorClass::Status, 2, "expected status 200, got 413"));
    assert_eq!((result.totals.reconnects, result.answered_early), (1, 2));
}

#[test]
fn a_core_that_does_not_exist_is_named() {
    let (address, _) = serve(|_| keep(HELLO));
    for core in [CpuSet::MAX_CPU - 1, CpuSet::MAX_CPU] {
        let error = Driver::start(Plan { cores: vec![core], ..plan(address, 1) }).err().unwrap();
        assert!(error.to_string().contains(&format!("CPU {core}")), "{error}");
    }
}

#[test]
fn connections_are_shared_out_to_threads_and_the_count_is_exact() {
    let (address, seen) = serve(|_| keep(HELLO));
    let mut driver = Driver::start(Plan { cores: vec![0, 0], ..plan(address, 3) }).unwrap();
    let result = driver.run_keeping_samples(Stop::Count(1001)).unwrap();
    assert_eq!((result.totals.requests, result.totals.errors, result.sent()), (1001, 0, 1001));
    assert_eq!((seen.requests.load(SeqCst), seen.connections.load(SeqCst)), (1001, 3));
    assert_eq!(result.workers.iter().map(|worker| worker.connections).collect::<Vec<_>>(), [2, 1]);
    assert_eq!(driver.progress().load(SeqCst), 1001);
    check_samples(&result);
}

#[test]
fn pipelined_requests_are_each_answered() {
    let (address, seen) = serve(|_| keep(HELLO));
    let result = run(Plan { pipeline: 4, ..plan(address, 2) }, Stop::Count(1000));
    assert_eq!(result.errors.to_string(), "");
    assert_eq!((result.totals.requests, seen.requests.load(SeqCst)), (1000, 1000));
    assert_eq!(result.bytes_in, 1000 * HELLO.len() as u64);
    assert_eq!(seen.connections.load(SeqCst), 2);
}

#[test]
fn what_was_pipelined_behind_an_announced_close_goes_out_again() {
    let (address, seen) = serve(|number| match number {
        3 => close("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 5\r\n\r\nhello"),
        _ => keep(HELLO),
    });
    let result = run(Plan { pipeline: 5, ..plan(address, 1) }, Stop::Count(30));
    assert_eq!(result.errors.to_string(), "");
    assert_eq!((result.totals.requests, result.totals.reconnects), (30, 9));
    assert_eq!((seen.requests.load(SeqCst), seen.connections.load(SeqCst)), (30, 10));
}

#[test]
fn a_connection_carries_no_more_requests_than_it_may() {
    for (pipeline, may_carry) in [(1, 1), (1, 3), (2, 4)] {
        let (address, seen) = serve(|_| keep(HELLO));
        let churn = Plan { pipeline, requests_per_connection: Some(may_carry), ..plan(address, 1) };
        let result = run(churn, Stop::Count(12));
        assert_eq!((result.totals.requests, result.totals.errors, result.totals.reconnects), (12, 0, 0));
        let connections = 12 / may_carry;
        assert_eq!(seen.connections.load(SeqCst), connections);
        assert_eq!((result.reused, result.connect.len()), (12 - connections, connections - 1));
    }
}

#[test]
fn routes_have_their_shares_and_figures() {
    let (address, _) = serve(|number| match number % 3 {
        2 => keep("HTTP/1.1 404 Not Found\r\ncontent-length: 5\r\n\r\nhello"),
        _ => keep(HELLO),
    });
    // The order of weights 2 and 1 is 0, 1, 0: every second answer is for the second route.
    let other = Route { weight: 1, ..route() };
    let both = Plan { routes: vec![Route { weight: 2, ..route() }, other], ..plan(address, 1) };
    let result = run(both, Stop::Count(30));
    let figures: Vec<_> =
        result.routes.iter().map(|route| (route.requests, route.errors, route.latency.len())).collect();
    assert_eq!(figures, [(20, 0, 20), (0, 10, 10)]);
}

#[test]
fn a_constant_rate_counts_every_request_and_times_it_from_when_it_was_due() {
    // Freezes once, for a tenth of a second.
    let (address, _) = serve(|number| {
        if number == 20 {
            thread::sleep(Duration::from_millis(100));
        }
        keep(HELLO)
    });
    let result = run(Plan { rate: Some(500.0), ..plan(address, 1) }, Stop::After(Duration::from_millis(400)));
    let paced = result.paced.as_ref().unwrap();
    assert_eq!((result.totals.requests, paced.asked, result.errors.total()), (200, 200, 0));
    assert_eq!((result.latency.len(), paced.response.len(), paced.send_lag.len()), (200, 200, 200));
    // Some fifty requests were due during the freeze: they waited, though each was served at once.
    assert!(paced.delayed >= 40, "{}", paced.delayed);
    assert!(result.latency.value_at_quantile(0.9) < 20_000_000, "{}", result.latency.value_at_quantile(0.9));
    assert!(paced.response.value_at_quantile(0.9) > 40_000_000, "{}", paced.response.value_at_quantile(0.9));
    assert!(result.totals.elapsed_ns >= 398_000_000);
}

#[test]
fn a_rate_that_is_not_reached_shows() {
    let (address, _) = serve(|_| {
        thread::sleep(Duration::from_millis(10));
        keep(HELLO)
    });
    let result =
        run(Plan { rate: Some(1000.0), ..plan(address, 1) }, Stop::After(Duration::from_millis(200)));
    let asked = result.paced.as_ref().unwrap().asked;
    assert!(asked == 200 && result.totals.requests <= 21, "{asked} {}", result.totals.requests);
}

#[test]
fn a_slow_reader_takes_its_time() {
    let body = "x".repeat(20_000);
    let reply = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    let (address, _) = serve(move |_| keep(&reply));
    let any = Route { expect: Expectation { status: 200, body: None }, ..route() };
    let slow = Plan { routes: vec![any], read_bytes_per_s: Some(100_000), ..plan(address, 1) };
    let result = run(slow, Stop::Count(2));
    assert_eq!((result.totals.requests, result.totals.errors), (2, 0));
    assert!(result.latency.min() >= 90_000_000, "{}", result.latency.min());
}

#[test]
fn aborted_requests_are_neither_answers_nor_errors() {
    let body = "x".repeat(100_000);
    let reply = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len() + 1);
    let (address, seen) =
        serve(move |_| Reply { pieces: vec![reply.clone().into(), body.clone().into()], closes: false });
    for abort in [Abort::Head, Abort::Bytes(50_000), Abort::After(Duration::from_millis(20))] {
        seen.connections.store(0, SeqCst);
        let result = run(Plan { abort: Some(abort), ..plan(address, 1) }, Stop::Count(4));
        assert_eq!((result.aborted, result.totals.requests, result.totals.errors), (4, 0, 0), "{abort:?}");
        assert_eq!((result.sent(), result.totals.reconnects), (4, 0));
        assert_eq!(seen.connections.load(SeqCst), 4, "{abort:?}");
    }
}

#[test]
fn an_interrupted_run_does_not_wait_for_those_who_never_answer() {
    let (address, seen) = serve(|number| match number {
        1 => keep(HELLO),
        _ => Reply { pieces: vec![], closes: false },
    });
    let mut driver = Driver::start(plan(address, 2)).unwrap();
    let flag = driver.stop_flag();
    let watcher = thread::spawn(move || {
        while seen.requests.load(SeqCst) < 4 {
            thread::yield_now();
        }
        flag.store(true, SeqCst);
    });
    let result = driver.run(Stop::Count(10)).unwrap();
    watcher.join().unwrap();
    assert_eq!((result.totals.requests, result.abandoned, result.sent()), (2, 2, 4));
    assert!(result.totals.elapsed_ns < 15_000_000_000);
}

#[test]
fn ticks_add_up_to_the_result() {
    let (address, _) = serve(|_| {
        thread::sleep(Duration::from_millis(1));
        keep(HELLO)
    });
    let mut driver = Driver::start(Plan { cores: vec![0, 0], ..plan(address, 2) }).unwrap();
    let (sender, ticks) = mpsc::channel();
    let result = driver.run_ticking(Stop::After(Duration::from_millis(2_200)), sender).unwrap();
    let mut seconds = Seconds::new(driver.threads());
    let mut all: Vec<_> = ticks.iter().filter_map(|tick| seconds.take(tick)).collect();
    assert_eq!(all.len(), 2);
    all.push(seconds.rest(&result));
    assert_eq!(all.iter().map(|second| second.counts.requests).sum::<u64>(), result.totals.requests);
    assert_eq!(all.iter().map(|second| second.latency.len()).sum::<u64>(), result.latency.len());
    assert!(all.iter().all(|second| second.counts.requests > 0), "{all:?}");
}

#[test]
fn a_unix_socket_and_ipv6_are_servers_too() {
    let listener = TcpListener::bind("[::1]:0").expect("the loopback has IPv6");
    let address = listener.local_addr().unwrap();
    thread::spawn(move || answer(listener.accept().unwrap().0, &Seen::default(), |_| keep(HELLO)));
    assert_eq!(run(plan(address, 1), Stop::Count(5)).totals.requests, 5);

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = [0; 4096];
        while stream.read(&mut request).is_ok_and(|bytes| bytes > 0) {
            stream.write_all(HELLO.as_bytes()).unwrap();
        }
    });
    let result = run(Plan::new(Endpoint::Unix(path), vec![route()]), Stop::Count(5));
    assert_eq!((result.totals.requests, result.totals.errors), (5, 0));
}

//! `tracer load` against servers that misbehave in every way that has misled the users of another tool, and against
//! servers that count for themselves.

use std::{
    collections::HashSet,
    fs,
    path::Path,
    process::{Command, Stdio},
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use rustix::process::Signal;
use serde_json::Value;
use tracer_tests::{
    cli::{Said, Server, finish, run, start, tracer, until},
    misbehaving::{HELLO, Misbehaving, Reply},
};

/// Runs `tracer load` with these arguments, and gives its one JSON object.
#[track_caller]
fn load(server: &Misbehaving, arguments: &[&str]) -> (Said, Value) {
    let url = server.url();
    let said = run(["load", &url, "--format", "json"].iter().chain(arguments));
    let json = said.json();
    (said, json)
}

/// The run failed for this one reason, so often; no rate is told.
#[track_caller]
fn assert_failed(said: &Said, report: &Value, class: &str, count: u64) {
    assert_eq!(said.code, 1, "{said:#?}");
    let classes = report["error_classes"].as_object().expect("classes are an object");
    assert_eq!(classes.keys().collect::<Vec<_>>(), [class], "{said:#?}");
    assert_eq!((&classes[class]["count"], &report["errors"]), (&count.into(), &count.into()), "{said:#?}");
    assert!(classes[class]["first"].as_str().is_some_and(|first| !first.is_empty()), "{said:#?}");
    assert_eq!(report["requests_per_s"], Value::Null, "{said:#?}");
}

/// Everything was answered as expected.
#[track_caller]
fn assert_held(said: &Said, report: &Value, requests: u64) {
    assert_eq!(
        (said.code, &report["requests"], &report["errors"]),
        (0, &requests.into(), &0.into()),
        "{said:#?}"
    );
}

fn ms(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("not told: {value}")) / 1e6
}

// What others get wrong.

#[test]
fn a_slow_server_at_a_low_rate_has_as_many_samples_as_requests() {
    let server = Misbehaving::start(|_| Reply::of(HELLO).after(Duration::from_millis(50)));
    let (said, report) = load(&server, &["--rate", "10", "-d", "3s", "-c", "1"]);
    assert_held(&said, &report, 30);
    assert_eq!((&report["latency"]["count"], &report["service_time"]["count"]), (&30.into(), &30.into()));
    assert!((50.0..60.0).contains(&ms(&report["service_time"]["p50_ns"])), "{said:#?}");
    assert_eq!(server.requests(), 30);
}

#[test]
fn a_freeze_shows_in_response_times_and_not_in_service_times() {
    // The server stands still for a second: nobody is served meanwhile.
    let (frozen, gate) = (AtomicBool::new(false), Mutex::new(()));
    let server = Misbehaving::start(move |number| {
        let _one = gate.lock().expect("no server thread panics");
        if number.of_all >= 1_000 && !frozen.swap(true, SeqCst) {
            std::thread::sleep(Duration::from_secs(1));
        }
        Reply::of(HELLO)
    });
    let (said, report) = load(&server, &["--rate", "200", "-d", "10s", "-c", "8"]);
    assert_held(&said, &report, 2_000);
    let (response, service) = (ms(&report["latency"]["p99_ns"]), ms(&report["service_time"]["p99_ns"]));
    assert!((850.0..1_000.0).contains(&response), "response time {response} ms: {said:#?}");
    assert!(service < 200.0, "service time {service} ms: {said:#?}");
    assert!(report["rate"]["delayed"].as_u64().is_some_and(|delayed| delayed >= 150), "{said:#?}");
}

#[test]
fn a_server_that_never_answers_is_a_failure_and_no_hang() {
    let server = Misbehaving::start(|_| Reply::silence());
    let (said, report) = load(&server, &["-n", "6", "-c", "2", "--timeout", "100ms"]);
    assert_failed(&said, &report, "timeout", 6);
    assert_eq!((&report["requests"], &report["latency"]["count"]), (&0.into(), &6.into()));
    assert!(ms(&report["latency"]["min_ns"]) >= 99.0, "{said:#?}");
}

#[test]
fn without_a_server_nothing_was_sent() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let said = run(["load", &format!("http://127.0.0.1:{port}/"), "-d", "1s", "--format", "json"]);
    let report = said.json();
    assert_failed(&said, &report, "connect", 1);
    assert_eq!((&report["requests"], &report["sent"]), (&0.into(), &0.into()));
    assert!(said.stderr.contains("is the server listening?"), "{said:#?}");
}

#[test]
fn error_pages_and_wrong_bodies_have_no_rate() {
    let server =
        Misbehaving::start(|_| Reply::of("HTTP/1.1 404 Not Found\r\ncontent-length: 5\r\n\r\nhello"));
    let (said, report) = load(&server, &["-n", "50", "-c", "2"]);
    assert_failed(&said, &report, "status", 50);
    let said = run(["load", &server.url(), "-n", "50", "-c", "2"]);
    assert!(said.code == 1 && said.stdout.contains("FAILED: 50 status · no rate"), "{said:#?}");
    assert!(!said.stdout.contains("requests/s"), "{said:#?}");
    said.assert_fits();
    let (said, report) = load(&server, &["-n", "50", "--expect-status", "404"]);
    assert_held(&said, &report, 50);

    let server = Misbehaving::start(|number| match number.of_all % 5 {
        0 => Reply::of(HELLO.replace("hello", "hullo")),
        _ => Reply::of(HELLO),
    });
    let hash = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
    for expected in [["--expect-body", "hello"], ["--expect-sha256", hash]] {
        let (said, report) = load(&server, &[&["-n", "50", "-c", "1"][..], &expected].concat());
        assert_failed(&said, &report, "body", 10);
        assert_eq!(report["requests"], 40);
    }
    let (said, report) = load(&server, &["-n", "50", "--expect-bytes", "5"]);
    assert_held(&said, &report, 50);
}

#[test]
fn closed_connections_are_seen_and_named() {
    let closing = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 5\r\n\r\nhello";
    for (every, reuse) in [(1, 0.0), (10, 0.9)] {
        let server = Misbehaving::start(move |number| match number.of_connection % every {
            0 => Reply::of(closing).and_close(),
            _ => Reply::of(HELLO),
        });
        let (said, report) = load(&server, &["-n", "200", "-c", "1"]);
        assert_held(&said, &report, 200);
        assert_eq!(report["stamps"]["connection_reuse"], reuse, "{said:#?}");
        assert!(said.stderr.contains("the server closed connections"), "{said:#?}");
        assert!(server.connections() >= 200 / every, "{}", server.connections());
    }
}

#[test]
fn an_upload_that_nobody_reads_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let body = folder.path().join("body");
    fs::write(&body, vec![b'x'; 16 << 20]).unwrap();
    let upload = ["-n", "10", "-c", "1", "-X", "POST", "--body-file", body.to_str().unwrap()];
    let server = Misbehaving::start(|_| Reply::of(HELLO));
    let (said, report) = load(&server, &upload);
    assert_held(&said, &report, 10);
    assert!(report["stamps"]["bytes_out"].as_u64().unwrap() > 10 * (16 << 20), "{said:#?}");
    assert_eq!(report["stamps"]["answered_early"], 0);

    // It cannot close: with bytes unread that would be a reset, and might take the answer with it.
    let server = Misbehaving::start(|_| Reply::of(HELLO).unread().and_close());
    let said = run(["load", &server.url(), "--format", "json"].iter().chain(&upload));
    let report = said.json();
    assert!(report["stamps"]["bytes_out"].as_u64().unwrap() < 10 * (16 << 20), "{said:#?}");
    let early = report["stamps"]["answered_early"].as_u64().unwrap();
    assert_eq!(early + report["errors"].as_u64().unwrap(), 10, "{said:#?}");
    assert!(said.code == 1 || said.stderr.contains("did not read what it was sent"), "{said:#?}");
}

#[test]
fn a_response_is_the_same_however_it_is_cut() {
    let server = Misbehaving::start(|_| Reply::pieces(HELLO.bytes().map(|byte| [byte])));
    let (said, report) = load(&server, &["-n", "20", "-c", "2", "--expect-body", "hello"]);
    assert_held(&said, &report, 20);

    let chunked = [
        "HTTP/1.1 200 OK\r\ntransfer-enc",
        "oding: chunked\r\n\r\n1",
        "\r\nh\r\n00",
        "3\r\nel",
        "l\r\n1;x=y\r",
        "\no\r\n0\r\n",
        "\r\n",
    ];
    let server = Misbehaving::start(move |_| Reply::pieces(chunked));
    let (said, report) = load(&server, &["-n", "20", "-c", "2", "--expect-body", "hello"]);
    assert_held(&said, &report, 20);
}

#[test]
fn two_responses_in_one_read_answer_two_requests() {
    // Says nothing to every first request, and answers both at the second.
    let server = Misbehaving::start(|number| match number.of_connection % 2 {
        0 => Reply::of(HELLO.repeat(2)),
        _ => Reply::silence(),
    });
    let (said, report) =
        load(&server, &["-n", "100", "-c", "2", "--pipeline", "2", "--expect-body", "hello"]);
    assert_held(&said, &report, 100);
    assert_eq!((server.requests(), server.connections()), (100, 2));
    assert!(said.stderr.contains("pipelining"), "{said:#?}");
}

#[test]
fn garbage_and_bytes_too_many_are_framing_errors() {
    for reply in [format!("{HELLO}!"), "SSH-2.0-OpenSSH_9.2\r\n".to_owned(), HELLO.repeat(2)] {
        let server = Misbehaving::start(move |_| Reply::of(reply.clone()));
        let (said, report) = load(&server, &["-n", "10", "-c", "1"]);
        assert_failed(&said, &report, "framing", 10);
    }
    let server = Misbehaving::start(|_| Reply::of(&HELLO[..HELLO.len() - 1]).and_close());
    let (said, report) = load(&server, &["-n", "10", "-c", "1"]);
    assert_failed(&said, &report, "framing", 10);
    let server = Misbehaving::start(|_| Reply::silence().and_close());
    let (said, report) = load(&server, &["-n", "10", "-c", "1"]);
    assert_failed(&said, &report, "reset", 10);
}

#[test]
fn a_fast_server_has_latencies_above_nothing_and_no_percentile_out_of_nothing() {
    let server = Misbehaving::start(|_| Reply::of(HELLO));
    let (said, report) = load(&server, &["-n", "1000", "-c", "1"]);
    assert_held(&said, &report, 1_000);
    assert!(report["latency"]["p50_ns"].as_u64().is_some_and(|ns| ns > 1_000), "{said:#?}");
    assert!(report["latency"]["p99_ns"].is_u64() && report["latency"]["p999_ns"].is_null(), "{said:#?}");
    let error = report["stamps"]["littles_law_error"].as_f64().expect("it is told");
    assert!(error < 0.1, "{said:#?}");
    let said = run(["load", &server.url(), "-n", "1000", "-c", "1"]);
    assert!(said.unwrapped().contains("p99.9 too few"), "{said:#?}");
}

#[test]
fn three_connections_on_two_threads_are_three() {
    let server = Misbehaving::start(|_| Reply::of(HELLO));
    let (said, report) = load(&server, &["-n", "301", "-c", "3", "--cores", "0,1"]);
    assert_held(&said, &report, 301);
    assert_eq!((server.connections(), server.requests()), (3, 301));
    assert_eq!((&report["connections"], &report["threads"]), (&3.into(), &2.into()));
}

#[test]
fn an_interruption_gives_the_result_so_far_and_no_verdict() {
    let server = Misbehaving::start(|number| match number.of_connection {
        50 => Reply::silence(),
        _ => Reply::of(HELLO),
    });
    let running = start(&mut tracer([
        "load",
        &server.url(),
        "-c",
        "2",
        "-d",
        "60s",
        "--timeout",
        "60s",
        "--format",
        "json",
    ]));
    until("both connections wait for an answer", || server.requests() == 100);
    running.signal(Signal::INT);
    let said = running.said();
    let report = said.json();
    assert_eq!((said.code, &report["ended_early"]), (3, &"interrupted".into()), "{said:#?}");
    assert_eq!(
        (&report["requests"], &report["abandoned"], &report["sent"]),
        (&98.into(), &2.into(), &100.into())
    );
}

#[test]
fn a_run_too_short_has_no_rate() {
    let server = Misbehaving::start(|_| Reply::of(HELLO).after(Duration::from_millis(20)));
    let (said, report) = load(&server, &["-d", "1ms", "-c", "2"]);
    assert_eq!((said.code, &report["requests_per_s"]), (3, &Value::Null), "{said:#?}");
    assert!(report["requests"].as_u64().is_some_and(|requests| requests <= 2), "{said:#?}");
}

#[test]
fn a_rate_beyond_the_server_is_named() {
    let server = Misbehaving::start(|_| Reply::of(HELLO).after(Duration::from_millis(20)));
    let (said, report) = load(&server, &["-d", "1s", "-c", "1", "--rate", "1000"]);
    assert_eq!(said.code, 0, "{said:#?}");
    assert!(report["rate"]["achieved"].as_f64().is_some_and(|achieved| achieved < 0.1), "{said:#?}");
    assert!(said.stderr.contains("the rate asked for was not reached"), "{said:#?}");
}

#[test]
fn churn_and_aborts_open_a_connection_each_time() {
    let server = Misbehaving::start(|_| Reply::of(HELLO));
    let (said, report) = load(&server, &["-n", "40", "-c", "1", "--no-keep-alive"]);
    assert_held(&said, &report, 40);
    assert_eq!((server.connections(), &report["stamps"]["connection_reuse"]), (40, &0.0.into()));
    let (said, report) = load(&server, &["-n", "40", "-c", "1", "--requests-per-connection", "4"]);
    assert_held(&said, &report, 40);
    assert_eq!((server.connections(), &report["stamps"]["connection_reuse"]), (50, &0.75.into()));

    let server = Misbehaving::start(|_| Reply::of(HELLO).after(Duration::from_millis(500)));
    let (said, report) = load(&server, &["-n", "20", "-c", "4", "--abort", "after=20ms"]);
    assert_eq!((said.code, &report["aborted"], &report["errors"]), (0, &20.into(), &0.into()), "{said:#?}");
    assert_eq!(server.requests(), 20);
}

#[test]
fn every_second_is_written_down() {
    let folder = tempfile::tempdir().unwrap();
    let (csv, hdr) = (folder.path().join("it.csv"), folder.path().join("it.hlog"));
    let server = Misbehaving::start(|_| Reply::of(HELLO));
    let files = ["--csv", csv.to_str().unwrap(), "--hdr", hdr.to_str().unwrap()];
    let (said, report) = load(&server, &[&["-d", "2s", "--rate", "100", "-c", "2"][..], &files].concat());
    assert_held(&said, &report, 200);
    let rows = fs::read_to_string(&csv).unwrap();
    let requests = rows.lines().skip(1).map(|row| row.split(',').nth(1).unwrap().parse::<u64>().unwrap());
    assert_eq!(requests.sum::<u64>(), 200, "{rows}");
    let log = fs::read_to_string(&hdr).unwrap();
    assert_eq!(
        log.lines().filter(|line| line.contains(",HISTFAAA")).count(),
        rows.lines().count() - 1,
        "{log}"
    );
    let said = run(["load", &server.url(), "-n", "1"].iter().chain(&files));
    said.assert_refused(&["exists already"]);
}

#[test]
fn what_cannot_be_meant_is_refused() {
    let refused =
        |arguments: &[&str], parts: &[&str]| run(["load"].iter().chain(arguments)).assert_refused(parts);
    refused(&["127.0.0.1:80"], &["http://"]);
    refused(&["https://127.0.0.1/"], &["TLS"]);
    refused(&["http://no-such-host.invalid/"], &["cannot be resolved"]);
    refused(&["http://127.0.0.1:1/", "--rate", "0"], &["above zero"]);
    refused(&["http://127.0.0.1:1/", "--abort", "never"], &["head, bytes=N, after=TIME"]);
    refused(&["http://127.0.0.1:1/", "--route", "0 GET /"], &["3 GET /path"]);
    refused(&["http://127.0.0.1:1/", "--route", "/{id:99}"], &["width"]);
    refused(&["http://127.0.0.1:1/", "--cores", "4096"], &["CPU 4096"]);
    refused(&["http://127.0.0.1:1/", "-H", "a: b\nc"], &["line break"]);
}

// Servers that count for themselves.

/// The same for every server: path, and what else is asked for.
const LOADS: &[(&str, &[&str])] = &[
    ("/", &["-n", "1234", "-c", "7"]),
    ("/", &["-d", "500ms", "-c", "3"]),
    ("/", &["-n", "333", "-c", "2", "--pipeline", "4"]),
    ("/", &["-n", "50", "-c", "2", "--no-keep-alive"]),
    ("/", &["-n", "60", "-c", "2", "--requests-per-connection", "7"]),
    ("/", &["-d", "500ms", "--rate", "500"]),
    ("/", &["-n", "300", "--route", "2 /users/a", "--route", "1 /users/{counter:6}"]),
    ("/echo", &["-n", "100", "-c", "2", "-X", "POST", "--body", "some words"]),
];

/// Loads a server in every way, and gives how many requests it answered by the driver's count.
#[track_caller]
fn answered_by_the_driver(port: u16) -> u64 {
    let answered = LOADS.iter().map(|(path, arguments)| {
        let url = format!("http://127.0.0.1:{port}{path}");
        let said = run(["load", &url, "--format", "json"].iter().chain(*arguments));
        assert_eq!(said.code, 0, "{arguments:?} {said:#?}");
        let report = said.json();
        assert_eq!(report["requests"], report["sent"], "{said:#?}");
        report["requests"].as_u64().expect("requests are counted")
    });
    answered.sum()
}

/// The whole body of a path.
fn body_of(port: u16, path: &str) -> String {
    let answer = tracer_tests::cli::get(port, path).expect("the server answers");
    answer.rsplit("\r\n\r\n").next().unwrap_or_default().trim().to_owned()
}

#[test]
fn the_access_log_of_nginx_has_as_many_lines() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|name| format!("{name}_temp_path {}/{name};\n", root.display()))
        .concat();
    let configuration = format!(
        "daemon off; worker_processes 1; pid {0}/pid; error_log stderr;\n\
         events {{ worker_connections 1024; }}\n\
         http {{ log_format it \"$request_uri\"; access_log {0}/log it; keepalive_requests 100;\n{temporary}\
         server {{ listen 127.0.0.1:{port}; location / {{ return 200 \"hello\"; }} }} }}\n",
        root.display()
    );
    fs::write(root.join("nginx.conf"), configuration).unwrap();
    let mut nginx = Command::new("nginx");
    let mut nginx =
        start(nginx.arg("-p").arg(root).arg("-c").arg(root.join("nginx.conf")).arg("-e").arg("stderr"));
    until("nginx listens", || {
        assert!(nginx.runs(), "nginx ended");
        std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
    });
    let answered = answered_by_the_driver(port);
    let log = || fs::read_to_string(root.join("log")).unwrap();
    // nginx writes a line when a response is out, a moment after the client has it.
    until("the log has every line", || log().lines().count() as u64 >= answered);
    let log = log();
    assert_eq!(log.lines().count() as u64, answered);
    assert_eq!(log.lines().filter(|line| *line == "/users/a").count(), 200);
    assert_eq!(log.lines().filter(|line| *line == "/echo").count(), 100);
    let users = log.lines().filter(|line| line.starts_with("/users/") && !line.ends_with('a'));
    assert_eq!(users.collect::<HashSet<_>>().len(), 100, "every counter is another");
    nginx.signal(Signal::TERM);
}

#[test]
fn a_node_server_has_seen_as_many_requests() {
    let script = "let seen = 0; const server = require('node:http').createServer((request, response) => { \
        if (request.url === '/seen') return response.end(String(seen)); \
        seen += 1; request.resume(); request.on('end', () => response.end('hello')); }); \
        server.keepAliveTimeout = 60000; \
        server.listen(0, '127.0.0.1', () => console.log(server.address().port));";
    let mut node = Command::new("node");
    let mut child = node.args(["-e", script]).stdout(Stdio::piped()).spawn().expect("this test needs node");
    let mut line = String::new();
    let mut stdout = std::io::BufReader::new(child.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut stdout, &mut line).unwrap();
    let port: u16 = line.trim().parse().unwrap_or_else(|_| panic!("no port: {line:?}"));
    let answered = answered_by_the_driver(port);
    let seen = body_of(port, "/seen");
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(seen, answered.to_string());
}

#[test]
fn the_builtin_server_has_answered_as_many_requests() {
    let server = Server::start();
    let answered = answered_by_the_driver(server.port);
    assert_eq!(body_of(server.port, "/answered"), answered.to_string());
}

#[test]
fn standard_tools_read_the_histogram_log() {
    let tools =
        std::env::var("TRACER_TEST_TOOLS").expect("TRACER_TEST_TOOLS is not set: run `cargo xtask test`");
    let folder = tempfile::tempdir().unwrap();
    let hdr = folder.path().join("it.hlog");
    let server = Misbehaving::start(|_| Reply::of(HELLO));
    let (said, report) = load(&server, &["-n", "1000", "-c", "2", "--hdr", hdr.to_str().unwrap()]);
    assert_held(&said, &report, 1_000);
    let script = "import sys\n\
        from hdrh.histogram import HdrHistogram\n\
        from hdrh.log import HistogramLogReader\n\
        all = HdrHistogram(1, 3600000000000, 3)\n\
        reader = HistogramLogReader(sys.argv[1], all)\n\
        while reader.add_next_interval_histogram(all): pass\n\
        print(all.get_total_count(), all.get_value_at_percentile(50))\n";
    let read = finish(Command::new(Path::new(&tools).join("bin/python")).args([
        "-c",
        script,
        hdr.to_str().unwrap(),
    ]));
    let expected = format!("1000 {}", report["latency"]["p50_ns"]);
    assert_eq!(read.stdout.trim(), expected, "{read:#?}");
}

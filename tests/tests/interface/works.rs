//! What works.

use super::*;

#[test]
fn bench_answers_in_its_first_line() {
    let _alone = begin();
    let said = run(["bench", "--requests", "2000", "--rounds", "1"]);
    said.assert_held();
    said.assert_fits();
    // The answer ends at the first empty line; a narrow page folds it.
    let answer = words(said.stdout.split("\n\n").next().expect("there is a first paragraph"));
    for part in ["builtin hello: ", " requests/s", " us CPU per request", "largest phase ", " % of own CPU"] {
        assert!(answer.contains(part), "`{part}` is missing: {answer}");
    }
    assert!(answer.ends_with("one write per response: held, writev"), "{answer}");
    let whole = said.unwrapped();
    for part in ["2,000 sent = 2,000 traced", "+ 0 unexplained: held", "tracing ratio", "writev: 2,000 calls"]
    {
        assert!(whole.contains(part), "`{part}` is missing: {}", said.stdout);
    }
}

#[test]
fn bench_as_json_has_a_schema_and_an_exact_ledger() {
    let _alone = begin();
    let said = run(["bench", "--requests", "2000", "--rounds", "1", "--format", "json"]);
    let report = said.json();
    assert_eq!(report["schema"], 1);
    let row = row(&report);
    assert_eq!((&row["server"], &row["workload"]), (&"builtin".into(), &"hello".into()));
    assert_eq!(row["requests"], 2000);
    assert_ledger_exact(row);
    assert_eq!(row["defects"], serde_json::json!([]), "{}", said.stderr);
    said.assert_held();
}

#[test]
fn bench_lists_and_runs_only_what_is_named() {
    let _alone = begin();
    let folder = folder();
    let mut second = builtin();
    second.push_str(&format!("\n[[server]]\nname = \"two\"\n{}", builtin()));
    let request = "[[request]]\nname = \"param\"\npath = \"/users/42\"";
    let file = scenario(folder.path(), request, &second);
    let said = run(["bench", text(&file), "--list"]);
    assert_eq!(said.code, 0, "{said:#?}");
    let listed =
        "scenario it\n  server one\n  server two\n  workload hello: GET /\n  workload param: GET /users/42\n";
    assert_eq!(said.stdout, listed);
    let said = run(["bench", text(&file), "--only", "two,param"]);
    said.assert_held();
    assert!(said.stdout.starts_with("two param: "), "{}", said.stdout);
    assert!(!said.stdout.contains("one hello") && !said.stdout.contains("one param"), "{}", said.stdout);
    run(["bench", text(&file), "--only", "three"]).assert_refused(&["`three`", "one, two", "hello, param"]);
}

#[test]
fn a_recording_reports_the_same_figures() {
    let _alone = begin();
    let (folder, server) = (folder(), Server::start());
    let output = folder.path().join("it");
    let said = record(&server, &output, &[]);
    said.assert_held();
    said.assert_fits();
    assert!(said.stderr.contains(&format!("recording written to {}", text(&output))), "{}", said.stderr);
    assert_eq!(names(folder.path()), ["it"]);
    let report = run(["report", text(&output)]);
    assert_eq!((report.code, &report.stdout), (said.code, &said.stdout));
    let report = run(["report", text(&output), "--format", "json"]).json();
    assert_eq!(report["schema"], 1);
    assert_ledger_exact(row(&report));

    let said = record(&server, &folder.path().join("json"), &["--format", "json"]);
    let again = run(["report", text(&folder.path().join("json")), "--format", "json"]);
    assert_eq!(again.json(), said.json());
    assert!(server.answers());
}

#[test]
fn requests_of_other_clients_are_told_apart_from_our_load() {
    let _alone = begin();
    let (folder, server) = (folder(), Server::start());
    let output = folder.path().join("it");
    let (pid, url) = (server.pid().to_string(), server.url("/"));
    let options = ["record", "-p", &pid, "--url", &url, "--duration", "1s", "-o", text(&output)];
    let mut running = start(tracer(options).args(["--format", "json"]));
    until_traced(&mut running);
    // Visitors come and go; one never sends all of its request.
    let mut waits = std::net::TcpStream::connect(("127.0.0.1", server.port)).expect("the server accepts");
    std::io::Write::write_all(&mut waits, b"POST /echo HTTP/1.1\r\nhost: test\r\ncontent-length: 9\r\n\r\n")
        .unwrap();
    let served = traffic_while(server.port, || running.runs());
    let said = running.said();
    let report = said.json();
    let row = row(&report);
    let count = |name: &str| row["ledger"][name].as_u64().unwrap_or_else(|| panic!("no {name}: {said:#?}"));
    assert_eq!(row["ledger"]["unexplained"], 0, "{said:#?}");
    assert!((2..=served + 1).contains(&count("other_clients")), "{served}: {said:#?}");
    assert_eq!((count("joined"), &row["ledger"]["joined_share"]), (count("sent"), &1.0.into()), "{said:#?}");
    assert_eq!(count("sent") + count("other_clients"), count("traced") + count("mid_flight"), "{said:#?}");
    assert_eq!(row["requests"], count("traced"));
    // The visitors take CPUs from everybody: what that does to the kernel's accounts is not the matter here.
    let defects = row["defects"].as_array().expect("defects are listed");
    assert!(defects.iter().all(|defect| defect.as_str().unwrap().starts_with("conservation")), "{said:#?}");
    let told = run(["report", text(&output)]).unwrapped();
    for part in [
        " of other clients = ",
        " + 0 unexplained: held",
        "(100.0 %)",
        "note other clients used the server too",
    ] {
        assert!(told.contains(part), "`{part}` is missing: {told}");
    }
}

#[test]
fn record_and_bench_send_as_load_does() {
    let _alone = begin();
    let (folder, server) = (folder(), Server::start());
    let (pid, echo) = (server.pid().to_string(), server.url("/echo"));
    let output = folder.path().join("it");
    let whom =
        ["record", "-p", &pid, "--duration", "1s", "--format", "json", "-o", text(&output), "--url", &echo];
    let what = ["-X", "POST", "-H", "content-type: text/plain", "--body", "some words", "--connections", "4"];
    let when = ["--rate", "200", "--requests-per-connection", "5"];
    let said = run(whom.iter().chain(&what).chain(&when));
    said.assert_held();
    let report = said.json();
    let row_of = row(&report);
    assert_ledger_exact(row_of);
    assert_eq!(
        (&row_of["workload"], &row_of["ledger"]["sent"]),
        (&"POST /echo".into(), &200.into()),
        "{said:#?}"
    );
    assert_eq!(row_of["routes"][0]["name"], "POST /echo");
    assert!(row_of["accept_wait"]["connections"].as_u64().is_some_and(|opened| opened >= 36), "{said:#?}");
    assert_eq!(row_of["limit"]["littles_law_error"], Value::Null, "{said:#?}");
    assert!(!said.stdout.contains("was not reached"), "{said:#?}");

    let bench = ["bench", "--requests", "800", "--rounds", "1", "--connections", "2", "--format", "json"];
    let said = run(bench.iter().chain(&["--pipeline", "4"]));
    let report = said.json();
    assert_ledger_exact(row(&report));
    let behind = &row(&report)["latency"][1];
    assert_eq!(behind["phase"], "behind");
    assert!(behind["loaded"]["mean_ns"].as_f64().is_some_and(|ns| ns > 0.0), "nothing waited: {said:#?}");
    assert!(said.stderr.contains("pipelining"), "{said:#?}");

    let slow = server.url("/?sleep_us=2000");
    let output = folder.path().join("slow");
    let said = run([
        "record",
        "-p",
        &pid,
        "--duration",
        "300ms",
        "-o",
        text(&output),
        "--url",
        &slow,
        "--rate",
        "5000",
        "--connections",
        "1",
    ]);
    assert!(said.unwrapped().contains("note the rate asked for was not reached"), "{said:#?}");

    run(["record", "-p", &pid, "--rate", "5", "-o", text(&folder.path().join("no"))])
        .assert_refused(&["give --url"]);
    run(["bench", "--suite", "s200", "--rate", "5"]).assert_refused(&["leave out --rate"]);
    let promise = ["check", text(&output), "--writes-per-response", "1"];
    run(promise.iter().chain(&["--pipeline", "2"])).assert_refused(&["is a recording", "leave out --rate"]);
    run(promise.iter().chain(&["-X", "PUT"])).assert_refused(&["leave out method"]);
}

#[test]
fn duckdb_reads_the_requests_and_their_phases_add_up() {
    let _alone = begin();
    let tools = env::var("TRACER_TEST_TOOLS").expect("TRACER_TEST_TOOLS is not set: run `cargo xtask test`");
    let (folder, server) = (folder(), Server::start());
    let output = folder.path().join("it");
    let said = record(&server, &output, &["--format", "json"]);
    let query = "select count(*), \
        count(*) filter (accept_ns + behind_ns + queue_ns + read_ns + app_ns + write_ns + drain_ns \
            = end_ns - first_byte_ns), \
        count(*) filter (status = 200 and writes = 1 and method = 'GET' and path = '/'), \
        cast(sum(bytes_out) as bigint), count(distinct connection_id) \
        from read_parquet(?)";
    let script = "import duckdb, json, sys; \
        print(json.dumps(duckdb.execute(sys.argv[1], [sys.argv[2]]).fetchall()))";
    let parquet = output.join("requests.parquet");
    let read = finish(Command::new(Path::new(&tools).join("bin/python")).args([
        "-c",
        script,
        query,
        text(&parquet),
    ]));
    assert_eq!(read.code, 0, "{read:#?}");
    let report = said.json();
    let requests = row(&report)["requests"].as_u64().expect("requests are counted");
    assert!(requests > 100, "{requests}");
    assert_eq!(read.json(), serde_json::json!([[requests, requests, requests, requests * 127, 32]]));
}

#[test]
fn a_command_is_started_recorded_and_stopped() {
    let _alone = begin();
    let folder = folder();
    let port = free_port();
    let output = folder.path().join("it");
    let url = format!("http://127.0.0.1:{port}/");
    let serve = [text(&binary()), "serve", "--port", &port.to_string()].map(str::to_owned);
    let options =
        ["record", "--url", &url, "--requests", "2000", "-o", text(&output), "--"].map(str::to_owned);
    let said = run(options.iter().chain(&serve));
    said.assert_held();
    assert!(said.unwrapped().contains("2,000 sent = 2,000 traced"), "{}", said.stdout);
    assert_eq!(processes_with(&format!("serve --port {port}")), [0u32; 0]);
}

#[test]
fn traffic_of_others_is_recorded_on_several_servers() {
    let _alone = begin();
    let folder = folder();
    let (one, two) = (Server::start(), Server::start());
    let output = folder.path().join("it");
    let (first, second) = (one.pid().to_string(), two.pid().to_string());
    let options = ["record", "-p", &first, "-p", &second, "--duration", "3s", "-o", text(&output)];
    let mut running = start(tracer(options).args(["--format", "json"]));
    until_traced(&mut running);
    let begun = Instant::now();
    let sent = traffic_while(one.port, || begun.elapsed() < Duration::from_millis(500));
    assert!(get(two.port, "/users/7").is_ok());
    let said = running.said();
    said.assert_held();
    let report = said.json();
    let row = row(&report);
    assert_eq!(row["requests"].as_u64(), Some(sent + 1), "{}", said.stdout);
    let routes = row["routes"].to_string();
    assert!(routes.contains("GET /users/7") && routes.contains("GET /\""), "{routes}");
    assert!(one.answers() && two.answers());
}

#[test]
fn ctrl_c_ends_a_recording_with_the_result_so_far() {
    let _alone = begin();
    let (folder, server) = (folder(), Server::start());
    let output = folder.path().join("it");
    let pid = server.pid().to_string();
    let mut running = start(&mut tracer(["record", "-p", &pid, "-o", text(&output)]));
    until_traced(&mut running);
    // Attached is one instant later than loaded: go on until some were seen for sure.
    let begun = Instant::now();
    traffic_while(server.port, || begun.elapsed() < Duration::from_secs(1));
    running.signal(Signal::INT);
    let said = running.said();
    said.assert_held();
    assert!(said.stdout.contains("largest phase"), "{}", said.stdout);
    assert_eq!(run(["report", text(&output)]).stdout, said.stdout);
    assert_eq!(names(folder.path()), ["it"]);

    // With our own load and no length, Ctrl-C is the end that was meant, too.
    let output = folder.path().join("load");
    let url = server.url("/");
    let mut running = start(&mut tracer(["record", "-p", &pid, "--url", &url, "-o", text(&output)]));
    until_traced(&mut running);
    running.signal(Signal::INT);
    let said = running.said();
    said.assert_held();
    assert!(!said.stdout.contains("ended early"), "{said:#?}");
    assert!(output.join("run.json").is_file(), "{said:#?}");
    assert!(server.answers());
}

#[test]
fn what_exists_is_not_overwritten() {
    let _alone = begin();
    let (folder, server) = (folder(), Server::start());
    let output = folder.path().join("it");
    fs::create_dir(&output).unwrap();
    fs::write(output.join("mine"), "precious").unwrap();
    record(&server, &output, &[]).assert_refused(&["exists", "choose another place with -o"]);
    assert_eq!(fs::read_to_string(output.join("mine")).unwrap(), "precious");
    let whole = folder.path().join("whole");
    record(&server, &whole, &[]).assert_held();
    let before = fs::read(whole.join("requests.parquet")).unwrap();
    record(&server, &whole, &[]).assert_refused(&["holds a recording already", "choose another place"]);
    assert_eq!(fs::read(whole.join("requests.parquet")).unwrap(), before);
    assert_eq!(names(&output), ["mine"]);
}

#[test]
fn check_holds_a_server_to_one_write() {
    let _alone = begin();
    let server = Server::start();
    let said = check(&server, "/", &["--writes-per-response", "1"]);
    assert_verdict(&said, 0);
    assert!(said.stdout.contains(": writes per response <= 1: "), "{said:#?}");
    said.assert_fits();
    let said = check(&server, "/", &["--writes-per-response", "1", "--call", "writev", "--format", "json"]);
    assert_eq!((&said.json()["schema"], &said.json()["held"]), (&1.into(), &true.into()), "{said:#?}");

    let said = check(&server, "/?split=1", &["--writes-per-response", "1"]);
    assert_verdict(&said, 1);
    said.assert_fits();
    let told = said.unwrapped();
    for part in ["BROKEN: writes per response <= 1", "(100.0 %)", "for example GET / -> 200", "in 2 writes"] {
        assert!(told.contains(part), "`{part}` is missing: {}", said.stdout);
    }
    // The head's length varies with the digits of the stamps in it; the body's does not.
    assert!(told.contains(" bytes, 1 iovec writev: 19 bytes, 1 iovec"), "{}", said.stdout);
    assert!(told.contains("no EAGAIN among them"), "{}", said.stdout);

    let said = check(&server, "/", &["--writes-per-response", "1", "--call", "sendto"]);
    assert_verdict(&said, 1);
    let said = check(&server, "/", &["--max-syscalls-per-request", "0.5"]);
    assert_verdict(&said, 1);
    assert!(said.stdout.contains("BROKEN: syscalls per request <= 0.5: "), "{said:#?}");
    let said = check(&server, "/", &["--max-cpu-us-per-request", "0.1"]);
    assert_verdict(&said, 1);
}

#[test]
fn check_judges_recordings_and_scenarios() {
    let _alone = begin();
    let (folder, server) = (folder(), Server::start());
    let promise = ["--writes-per-response", "1"];
    for (path, code) in [("/", 0), ("/?split=1", 1)] {
        let (pid, url) = (server.pid().to_string(), server.url(path));
        let output = folder.path().join(code.to_string());
        let output = text(&output);
        run(["record", "-p", &pid, "--url", &url, "--requests", "1000", "-o", output]).assert_held();
        assert_verdict(&run(["check", output].iter().chain(&promise)), code);
    }
    let file = scenario(folder.path(), "", &builtin());
    assert_verdict(&run(["check", text(&file)].iter().chain(&promise)), 0);
    let file = scenario(folder.path(), "", &builtin());
    let split = fs::read_to_string(&file).unwrap().replace("path = \"/\"", "path = \"/?split=1\"");
    fs::write(&file, split).unwrap();
    assert_verdict(&run(["check", text(&file)].iter().chain(&promise)), 1);
}

//! The command line, as a user meets it: results, refusals, interruptions, and what is left behind.

use std::{
    collections::HashSet,
    env, fs,
    net::TcpListener,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;
use tracer::target::cpu::CpuAccount;
use tracer_tests::cli::{
    Running, Said, Server, begin, binary, descendants, finish, get, lives, processes_with, run, start,
    tracer, until, words,
};

/// User and group of nobody on Debian and nearly everywhere else.
const NOBODY: u32 = 65_534;
/// Programs that are attached without further detail asked for.
const HOOKS: usize = 12;

fn folder() -> TempDir {
    tempfile::tempdir().expect("a temporary folder can be made")
}

fn text(path: &Path) -> &str {
    path.to_str().expect("paths of tests are text")
}

/// Writes a scenario whose only server is the given table's rest, and gives its path.
fn scenario(folder: &Path, request: &str, server: &str) -> PathBuf {
    let path = folder.join("it.toml");
    let head = "name = \"it\"\nconnections = 4\nrequests = 500\nrounds = 1\n";
    let content = format!(
        "{head}\n[[request]]\nname = \"hello\"\npath = \"/\"\n{request}\n\n[[server]]\nname = \"one\"\n{server}\n"
    );
    fs::write(&path, content).expect("a scenario can be written");
    path
}

/// The command of the built-in server, as a line of a scenario.
fn builtin() -> String {
    format!("command = [{:?}, \"serve\", \"--port\", \"{{port}}\"]\nwarm_up = 100", text(&binary()))
}

/// Records the server under our load.
fn record(server: &Server, output: &Path, more: &[&str]) -> Said {
    let (pid, url) = (server.pid().to_string(), server.url("/"));
    run(["record", "-p", &pid, "--url", &url, "--duration", "1s", "-o", text(output)].iter().chain(more))
}

/// `check` on the live server.
fn check(server: &Server, path: &str, promise: &[&str]) -> Said {
    let (pid, url) = (server.pid().to_string(), server.url(path));
    run(["check", "-p", &pid, "--url", &url, "--duration", "1s"].iter().chain(promise))
}

/// The verdict is this one, in the exit code and in words.
#[track_caller]
fn assert_verdict(said: &Said, code: i32) {
    assert_eq!(said.code, code, "{said:#?}");
    let outcome = if code == 0 { "held: " } else { "BROKEN: " };
    assert!(said.stdout.lines().any(|line| line.starts_with(outcome)), "{said:#?}");
    assert_eq!(said.stdout.contains("BROKEN"), code == 1, "{said:#?}");
}

/// The only row of a JSON report.
#[track_caller]
fn row(report: &Value) -> &Value {
    let rows = report["rows"].as_array().expect("a report has rows");
    assert_eq!(rows.len(), 1);
    &rows[0]
}

/// The ledger of a row is exact: all that was sent is accounted for, by causes that were counted.
#[track_caller]
fn assert_ledger_exact(row: &Value) {
    let ledger = words(&row["ledger"].to_string());
    assert_eq!(row["ledger"]["unexplained"], 0, "{ledger}");
    assert_eq!(row["ledger"]["sent"], row["requests"], "{ledger}");
}

/// Names in a folder.
fn names(folder: &Path) -> Vec<String> {
    let entries = folder.read_dir().expect("the folder can be listed").flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// Ids of the BPF programs that a process has attached.
fn programs_of(pid: u32) -> HashSet<u32> {
    let files = Path::new("/proc").join(pid.to_string()).join("fdinfo");
    let infos = files.read_dir().into_iter().flatten().flatten();
    infos
        .filter_map(|file| fs::read_to_string(file.path()).ok())
        // Of links: a program is attached as long as its link is open.
        .filter(|info| info.contains("link_type:"))
        .filter_map(|info| info.lines().find_map(|line| line.strip_prefix("prog_id:")?.trim().parse().ok()))
        .collect()
}

/// Ids of the BPF programs in the kernel.
fn programs_loaded() -> HashSet<u32> {
    aya::programs::loaded_programs().flatten().map(|program| program.id()).collect()
}

/// Waits until a run has attached its programs, and gives their ids.
fn until_traced(running: &mut Running) -> HashSet<u32> {
    let pid = running.pid();
    let mut programs = HashSet::new();
    until("it attaches its programs", || {
        assert!(running.runs(), "it ended before it attached anything");
        programs = programs_of(pid);
        programs.len() >= HOOKS
    });
    programs
}

/// Sends requests from here until told to stop; gives how many were answered.
fn traffic_while(port: u16, mut goes_on: impl FnMut() -> bool) -> u64 {
    let mut answered = 0;
    while goes_on() {
        answered += u64::from(get(port, "/").is_ok());
    }
    answered
}

// What works.

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

// What is refused.

#[test]
fn a_wrong_target_or_url_is_refused() {
    let _alone = begin();
    let folder = folder();
    let output = folder.path().join("it");
    let output = text(&output);
    let mut dead = Command::new("true").spawn().expect("`true` is there");
    dead.wait().unwrap();
    let dead_pid = dead.id().to_string();
    let own = std::process::id().to_string();
    let record =
        |arguments: &[&str]| run(["record", "-o", output, "--duration", "1s"].iter().chain(arguments));
    record(&["-p", &dead_pid]).assert_refused(&["no process", &dead_pid, "ps -e"]);
    record(&["-p", "0"]).assert_refused(&["no process 0"]);
    record(&["-p", "ada"]).assert_refused(&["invalid value 'ada'", "--pid"]);
    record(&["-p", "4294967297"]).assert_refused(&["--pid"]);
    record(&[]).assert_refused(&["nothing to trace", "-p PID", "-- COMMAND"]);
    record(&["-p", &own, "--url", "https://127.0.0.1/"])
        .assert_refused(&["TLS is not supported", "plain http"]);
    record(&["-p", &own, "--url", "127.0.0.1:80"]).assert_refused(&["http://"]);
    record(&["-p", &own, "--url", "http://no-such-host.invalid/"])
        .assert_refused(&["no-such-host.invalid cannot be resolved"]);
    let nobody = format!("http://127.0.0.1:{}/", free_port());
    let said = record(&["-p", &own, "--url", &nobody]);
    said.assert_refused(&["is the server listening?", "refused"]);
    assert_eq!(said.stderr.matches("refused").count(), 1, "{said:#?}");
    record(&["--", "/no/such/program"]).assert_refused(&["/no/such/program", "is not an executable file"]);
    run(["record", "--no-such-flag"]).assert_refused(&["unexpected argument '--no-such-flag'"]);
    run(["check", "no-such-folder", "--writes-per-response", "1"]).assert_refused(&[
        "no-such-folder does not exist",
        "tracer record -o",
        "scenario file",
    ]);
    run(["check", "-p", &own]).assert_refused(&["nothing to check", "--writes-per-response 1"]);
    run(["check", "-p", &own, "--writes-per-response", "1", "--call", "scribble"])
        .assert_refused(&["there is no syscall of that name"]);
    assert_eq!(names(folder.path()), [""; 0], "nothing is half written");
}

#[test]
fn a_normal_user_without_a_terminal_gets_the_line_to_paste() {
    let _alone = begin();
    let folder = folder();
    fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    // The build folder may be closed to others.
    let program = folder.path().join("tracer");
    fs::copy(binary(), &program).expect("the program can be copied");
    let server = Server::start();
    let pid = server.pid().to_string();
    let as_nobody = |arguments: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", text(&program)]);
        finish(command.args(arguments).current_dir(folder.path()).stdin(Stdio::null()))
    };
    let line = format!("run: sudo {} bench --rounds 1", text(&program));
    as_nobody(&["bench", "--rounds", "1"]).assert_refused(&["needs root", "loading BPF programs", &line]);
    // A process of somebody else.
    as_nobody(&["record", "-p", &pid, "-o", "it"]).assert_refused(&["needs root", "run: sudo"]);
    as_nobody(&["check", "--writes-per-response", "1", "-p", &pid]).assert_refused(&["needs root"]);
    assert_eq!(names(folder.path()), ["tracer"]);
    // What needs no root works without.
    assert_eq!(as_nobody(&["bench", "--list"]).code, 0);
    assert!(server.answers());
}

#[test]
fn a_wrong_scenario_is_refused_with_file_line_and_fix() {
    let _alone = begin();
    let folder = folder();
    let refused = |request: &str, server: &str, parts: &[&str]| {
        let file = scenario(folder.path(), request, server);
        let begun = Instant::now();
        run(["bench", text(&file)]).assert_refused(parts);
        assert!(begun.elapsed() < Duration::from_secs(10), "{parts:?} took {:?}", begun.elapsed());
    };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    refused("", &format!("{}\nport = {port}", builtin()), &["is in use by process", "choose another port"]);
    refused(
        "",
        "command = [\"sleep\", \"98765.4321\"]\nready_timeout = \"1s\"",
        &["`one`", "did not answer GET / on port", "within 1s"],
    );
    assert_eq!(processes_with("sleep 98765.4321"), [0u32; 0]);
    refused(
        "",
        "command = [\"sh\", \"-c\", \"echo no database here; exit 3\"]",
        &["ended before it answered (exit status: 3)", "no database here"],
    );
    refused("", "command = [\"no-such-program\"]", &["it.toml:12", "`no-such-program` is not in PATH"]);
    refused("", "comand = [\"true\"]", &["it.toml:13", "unknown key `comand`", "`command`"]);
    refused("", "command = []", &["it.toml:13", "the command is empty", "node"]);
    refused("expect.status = 42", &builtin(), &["it.toml:9", "42", "from 200 to 599"]);
    run(["bench", "no-such-file.toml"]).assert_refused(&["no-such-file.toml"]);
    assert_eq!(names(folder.path()), ["it.toml"]);
}

#[test]
fn a_damaged_or_foreign_recording_is_refused() {
    let _alone = begin();
    let (folder, server) = (folder(), Server::start());
    let output = folder.path().join("it");
    record(&server, &output, &[]).assert_held();
    let (parquet, json) = (output.join("requests.parquet"), output.join("run.json"));
    let (rows, run_json) = (fs::read(&parquet).unwrap(), fs::read_to_string(&json).unwrap());
    let refused = |parts: &[&str]| {
        run(["report", text(&output)]).assert_refused(parts);
        run(["check", text(&output), "--writes-per-response", "1"]).assert_refused(parts);
    };
    for kept in [0, 100, rows.len() / 2, rows.len() - 1] {
        fs::write(&parquet, &rows[..kept]).unwrap();
        refused(&["requests.parquet", "truncated or damaged", "record again"]);
    }
    fs::remove_file(&parquet).unwrap();
    refused(&["is not a whole recording", "record again"]);
    fs::write(&parquet, &rows).unwrap();
    fs::write(&json, "{\"name\": \"somebody else's\"}").unwrap();
    refused(&["is not a recording", "was not written by tracer"]);
    let version = format!("\"schema_version\": {}", tracer::recording::SCHEMA_VERSION);
    let other = run_json.replacen(&version, "\"schema_version\": 9999", 1);
    assert_ne!(other, run_json, "the version is in run.json");
    fs::write(&json, other).unwrap();
    refused(&["has format version 9999", "record again"]);
    fs::remove_file(&json).unwrap();
    refused(&["is not a recording", "it has no run.json"]);
    run(["report", "no-such-folder"]).assert_refused(&["no-such-folder", "tracer record -o"]);
}

#[test]
fn a_benchmark_of_error_pages_has_no_rate() {
    let _alone = begin();
    let folder = folder();
    for (request, reason) in [
        ("expect.status = 404", "expected status 404, got 200"),
        ("expect.body = \"something else\"", "body"),
    ] {
        let file = scenario(folder.path(), request, &builtin());
        let said = run(["bench", text(&file)]);
        assert_eq!(said.code, 1, "{said:#?}");
        let answer = words(said.stdout.split("\n\n").next().unwrap());
        assert!(answer.starts_with("one hello: INVALID, "), "{answer}");
        assert!(answer.contains(reason), "{answer}");
        assert!(!said.stdout.contains("requests/s"), "{}", said.stdout);
    }
}

// What is left behind.

#[test]
fn a_killed_record_leaves_the_target_and_nothing_else() {
    let _alone = begin();
    let (folder, server) = (folder(), Server::start());
    let output = folder.path().join("it");
    let (pid, url) = (server.pid().to_string(), server.url("/"));
    let options = ["record", "-p", &pid, "--url", &url, "--duration", "60s", "-o", text(&output)];
    let mut running = start(&mut tracer(options));
    let programs = until_traced(&mut running);
    assert!(programs.is_subset(&programs_loaded()), "the programs seen are in the kernel");
    running.signal(Signal::KILL);
    let said = running.said();
    assert_eq!(said.code, 128 + 9, "{said:#?}");
    until("its programs are gone", || programs.is_disjoint(&programs_loaded()));
    assert!(server.answers());
    assert_eq!(names(folder.path()), [""; 0], "nothing is half written");
    record(&server, &output, &[]).assert_held();
}

#[test]
fn a_killed_bench_leaves_no_server_and_no_file() {
    let _alone = begin();
    let folder = folder();
    let options = ["bench", "--duration", "60s", "--rounds", "1"];
    let mut running = start(tracer(options).env("TMPDIR", folder.path()));
    let tracer = running.pid();
    let mut servers = Vec::new();
    until("its server runs", || {
        servers = descendants(tracer);
        assert!(running.runs());
        servers.iter().any(|&server| {
            let command = fs::read(format!("/proc/{server}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&command).contains("\0serve\0")
        })
    });
    running.signal(Signal::KILL);
    assert_eq!(running.said().code, 128 + 9);
    until("its server is gone", || servers.iter().all(|&server| !lives(server)));
    until("its files are gone", || names(folder.path()).is_empty());
}

/// `tracer` said in one sentence that its target exited, and gave the report of what it saw until then.
#[track_caller]
fn assert_exit_told(said: &Said, name: &str) {
    assert_eq!(said.code, 2, "{said:#?}");
    assert!(said.stderr.contains(&format!("tracer: {name} exited in mid-run")), "{said:#?}");
    let told = said.unwrapped();
    for part in ["the target exited in mid-run", "ended early: the target exited", "largest phase"] {
        assert!(told.contains(part), "`{part}` is missing: {said:#?}");
    }
    assert!(!said.stdout.contains("DEFECT"), "{said:#?}");
}

#[test]
fn a_target_that_exits_ends_its_recording() {
    let _alone = begin();
    let folder = folder();
    for load in [false, true] {
        let mut server = Server::start();
        let output = folder.path().join(load.to_string());
        let (pid, url) = (server.pid().to_string(), server.url("/"));
        let mut options = vec!["record", "-p", &pid, "--duration", "60s", "-o", text(&output)];
        options.extend(load.then_some(["--url", &url]).into_iter().flatten());
        let mut running = start(&mut tracer(options));
        until_traced(&mut running);
        let begun = Instant::now();
        if load {
            let mut account = CpuAccount::new(&[server.pid()]);
            let before = account.sample();
            until("it worked", || account.sample().since(before).cpu_ns > 200_000_000);
        } else {
            traffic_while(server.port, || begun.elapsed() < Duration::from_secs(1));
        }
        server.kill();
        let said = running.said();
        assert!(begun.elapsed() < Duration::from_secs(30), "it waited on");
        assert_exit_told(&said, "tracer");
        assert!(said.stderr.contains(&format!("gone: process {pid}")), "{said:#?}");
        assert_eq!(run(["report", text(&output)]).stdout, said.stdout);
    }
}

#[test]
fn without_a_length_the_end_of_the_target_is_the_end_that_was_meant() {
    let _alone = begin();
    let folder = folder();
    let output = folder.path().join("it");
    let said = run(["record", "-o", text(&output), "--", "sh", "-c", "exit 0"]);
    assert!(!said.unwrapped().contains("ended early"), "{said:#?}");
    assert_eq!(names(folder.path()), ["it"]);
    let output = folder.path().join("failed");
    let said = run(["record", "-o", text(&output), "--", "sh", "-c", "echo no database here; exit 3"]);
    assert_eq!(said.code, 2, "{said:#?}");
    for part in ["sh exited in mid-run", "exit status: 3", "no database here"] {
        assert!(said.stderr.contains(part), "`{part}` is missing: {said:#?}");
    }
}

#[test]
fn a_server_that_exits_ends_bench_and_check() {
    let _alone = begin();
    let folder = folder();
    let program = binary();
    let serve = [text(&program), "serve", "--port", "{port}"];
    let command = format!("command = {:?}", [&["timeout", "--signal", "KILL", "3"][..], &serve].concat());
    let file = scenario(folder.path(), "", &command);
    let said = run(["bench", text(&file), "--duration", "20s"]);
    assert_eq!(said.code, 2, "{said:#?}");
    assert!(said.stderr.contains("tracer: one exited in mid-run"), "{said:#?}");
    assert!(said.unwrapped().starts_with("one hello: INVALID, the target exited in mid-run"), "{said:#?}");
    let promise = ["--writes-per-response", "1"];
    run(["check", text(&file), "--duration", "20s"].iter().chain(&promise))
        .assert_refused(&["one exited in mid-run", "ended by itself"]);
    let mut server = Server::start();
    let (pid, url) = (server.pid().to_string(), server.url("/"));
    let mut running = start(tracer(["check", "-p", &pid, "--url", &url, "--duration", "60s"]).args(promise));
    until_traced(&mut running);
    server.kill();
    running.said().assert_refused(&["tracer exited in mid-run", &format!("gone: process {pid}")]);
}

#[test]
fn servers_and_recordings_belong_to_who_called_sudo() {
    let _alone = begin();
    let folder = folder();
    // Nobody must be able to reach the program: the build folder may be closed to others.
    fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let program = folder.path().join("tracer");
    fs::copy(binary(), &program).expect("the program can be copied");
    let output = folder.path().join("it");
    let port = free_port().to_string();
    let url = format!("http://127.0.0.1:{port}/");
    let mut command = tracer(["record", "--url", &url, "--duration", "2s", "-o", text(&output)]);
    command.args(["--", text(&program), "serve", "--port", &port]).current_dir(folder.path());
    let nobody = NOBODY.to_string();
    let mut running = start(command.env("SUDO_UID", &nobody).env("SUDO_GID", &nobody));
    let pattern = format!("{} serve --port {port}", text(&program));
    until("the server runs as nobody", || {
        assert!(running.runs());
        let started = processes_with(&pattern).into_iter();
        let uids: Vec<_> =
            started.filter_map(|pid| Some(fs::metadata(format!("/proc/{pid}")).ok()?.uid())).collect();
        // Between fork and exec the command line is tracer's own, which holds the pattern too.
        uids.contains(&NOBODY)
    });
    running.said().assert_held();
    for path in [output.clone(), output.join("run.json"), output.join("requests.parquet")] {
        let owner = fs::metadata(&path).unwrap();
        assert_eq!((owner.uid(), owner.gid()), (NOBODY, NOBODY), "{}", path.display());
    }
}

#[test]
fn a_normal_user_on_a_terminal_gets_there_through_sudo() {
    let _alone = begin();
    let folder = folder();
    let user = SudoUser::create(folder.path());
    // The build folder may be closed to others.
    let program = folder.path().join("tracer");
    fs::copy(binary(), &program).expect("the program can be copied");
    let output = folder.path().join("it");
    let port = free_port();
    let (program, url) = (text(&program), format!("http://127.0.0.1:{port}/"));
    let tracer = format!("{program} record --url {url} --requests 2000 -o {}", text(&output));
    let as_user = format!("setpriv --reuid {0} --regid {0} --init-groups --reset-env {tracer}", user.name);
    let line = format!("{as_user} -- {program} serve --port {port}");
    // `script` gives it a terminal.
    let mut command = Command::new("script");
    command.args(["--quiet", "--return", "--command", &line, "/dev/null"]).env("SHELL", "/bin/sh");
    let mut running = start(command.current_dir(folder.path()).stdin(Stdio::null()));
    until("the server runs as the user", || {
        assert!(running.runs());
        let served = |pid: &u32| {
            let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            command.starts_with(format!("{program}\0serve\0").as_bytes())
        };
        let mut servers = processes_with(&format!("{program} serve")).into_iter().filter(served);
        servers.any(|pid| fs::metadata(format!("/proc/{pid}")).is_ok_and(|owner| owner.uid() == user.uid))
    });
    let said = running.said();
    said.assert_held();
    let told = said.unwrapped();
    for part in [
        "tracer: this needs root: loading BPF programs",
        "running it again through sudo",
        "2,000 sent = 2,000 traced",
        "recording written to",
    ] {
        assert!(told.contains(part), "`{part}` is missing: {said:#?}");
    }
    for path in [output.clone(), output.join("run.json"), output.join("requests.parquet")] {
        assert_eq!(fs::metadata(&path).unwrap().uid(), user.uid, "{}", path.display());
    }
}

/// A user for the length of a test, who needs no password for sudo.
struct SudoUser {
    name: String,
    uid: u32,
    rule: PathBuf,
}

impl SudoUser {
    /// Makes one whose home this folder is.
    #[track_caller]
    fn create(home: &Path) -> Self {
        let name = format!("tracer-test-{}", std::process::id());
        let rule = Path::new("/etc/sudoers.d").join(&name);
        let added = finish(Command::new("useradd").args([
            "--user-group",
            "--no-create-home",
            "--home-dir",
            text(home),
            &name,
        ]));
        assert_eq!(added.code, 0, "{added:#?}");
        // From here on it is removed, whatever fails.
        let mut user = Self { name, uid: 0, rule };
        let id = finish(Command::new("id").args(["-u", &user.name]));
        user.uid = id.stdout.trim().parse().expect("a user has a number");
        std::os::unix::fs::chown(home, Some(user.uid), None).expect("a folder can be given away");
        fs::write(&user.rule, format!("{} ALL=(root) NOPASSWD: ALL\n", user.name))
            .expect("/etc/sudoers.d can be written: install sudo");
        user
    }
}

impl Drop for SudoUser {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.rule);
        let removed = finish(Command::new("userdel").arg(&self.name));
        if removed.code != 0 {
            eprintln!("the user {} is left behind: {removed:?}", self.name);
        }
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port can be had");
    listener.local_addr().expect("it has an address").port()
}

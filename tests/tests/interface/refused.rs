//! What is refused.

use super::*;

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

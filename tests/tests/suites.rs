//! The suites: each server's routes do what they say, and a small part of a suite from end to end.

use std::{
    collections::HashSet,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::Value;
use tempfile::TempDir;
use tracer::{equal_work::differences, scenario::Scenario};
use tracer_tests::{
    cli::{Said, begin, run, start, tracer},
    running::{Running, assert_json, request},
};

/// Longest run of a part of a suite, on a machine that others keep busy.
const SUITE_PATIENCE: Duration = Duration::from_secs(600);

fn suite_file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../scenarios/{name}.toml"))
}

#[track_caller]
fn suite(name: &str) -> Scenario {
    Scenario::load(&suite_file(name)).expect("the suite is a sound scenario")
}

fn s200() -> Scenario {
    suite("s200")
}

#[track_caller]
fn assert_equal_work(suite: &Scenario) {
    let servers: Vec<_> = suite.servers.iter().map(|server| (server, Running::start(server, &[]))).collect();
    for request in &suite.requests {
        let answers: Vec<_> =
            servers.iter().map(|(server, running)| (server.name.clone(), running.ask(request))).collect();
        assert_eq!(differences(request, &answers), [], "{}", request.name);
    }
}

#[test]
fn every_workload_gets_equal_work_from_every_server() {
    for name in ["s200", "compare", "blixis"] {
        println!("{name}");
        assert_equal_work(&suite(name));
    }
}

#[test]
fn routes_do_what_they_say() {
    for server in &s200().servers {
        let running = Running::start(server, &[]);
        println!("{}", server.name);
        assert_json(&running.get("/"), 200, r#"{"message":"hello"}"#);
        assert_json(&running.get("/users/7"), 200, r#"{"id":"7","name":"ada"}"#);
        assert_json(&running.get("/nothing"), 404, r#"{"error":"not found"}"#);
        let mut echo = request("POST", "/echo");
        echo.headers = vec![("content-type".into(), "text/plain".into())];
        echo.body = b"as it came".to_vec();
        let answer = running.ask(&echo);
        assert_eq!((answer.status, answer.body.as_slice()), (200, echo.body.as_slice()));
    }
}

#[test]
fn the_chain_has_five_links_that_read_the_request_and_is_passed_by_no_other_route() {
    for server in &s200().servers {
        let running = Running::start(server, &[]);
        println!("{}", server.name);
        for value in ["one", "other"] {
            let mut mw = request("GET", "/mw");
            mw.headers = vec![("x-test".into(), value.into())];
            let answer = running.ask(&mw);
            assert_json(&answer, 200, r#"{"message":"hello"}"#);
            for link in 1..=5 {
                assert_eq!(answer.header(&format!("x-mw-{link}")).as_deref(), Some(value), "link {link}");
            }
        }
        for path in ["/", "/users/42"] {
            assert_eq!(running.get(path).header("x-mw-1"), None, "{path}");
        }
    }
}

#[test]
fn a_table_has_the_routes_asked_for_and_no_others() {
    for server in &s200().servers {
        println!("{}", server.name);
        for (table, routes, found, not_found) in [
            ("static", "200", ["/resource0", "/resource199"], ["/resource200", "/acme/item0"]),
            ("static", "2000", ["/resource0", "/resource1999"], ["/resource2000", "/x/y/z"]),
            ("tenant", "200", ["/resource0", "/acme/item199"], ["/resource1", "/acme/item200"]),
            ("params", "200", ["/resource0", "/x/y/z"], ["/resource1", "/x/y/z/w"]),
        ] {
            let running = Running::start(server, &[("ROUTES", routes), ("TABLE", table)]);
            for path in found {
                assert_json(&running.get(path), 200, r#"{"message":"hello"}"#);
            }
            for path in not_found {
                assert_json(&running.get(path), 404, r#"{"error":"not found"}"#);
            }
        }
    }
}

#[test]
fn the_heap_report_is_of_the_heap_after_a_collection() {
    for server in &s200().servers {
        println!("{}", server.name);
        let running = Running::start(server, &[]);
        let heap_bytes = || {
            let report: Value = serde_json::from_slice(&running.get("/gc").body).expect("a report in JSON");
            assert!(report["handles"].as_u64().expect("a count of handles") > 0);
            report["heap_bytes"].as_u64().expect("a heap in bytes")
        };
        let before = heap_bytes();
        assert!((1 << 20..1 << 28).contains(&before), "{before}");
        // Garbage, a megabyte at least: none of it is in the next report.
        let mut echo = request("POST", "/echo");
        echo.body = vec![b'x'; 50_000];
        for _ in 0..40 {
            running.ask(&echo);
        }
        let after = heap_bytes();
        assert!(after < before + (1 << 20), "{before} then {after}");
    }
}

#[test]
fn servers_are_told_apart_by_their_commands_and_environments() {
    let servers = s200().servers;
    let distinct: HashSet<_> = servers.iter().map(|server| (&server.command, &server.env)).collect();
    assert_eq!(distinct.len(), servers.len());
}

/// A server of one's own, outside the repository: the folder, and the file that names it to a suite.
struct Own {
    folder: TempDir,
    file: PathBuf,
}

impl Own {
    /// One whose `GET /` ends as `body` says, in JavaScript; `count` is the number of the request.
    fn new(body: &str) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let script = format!(
            "require('http').createServer((request, response) => {{\n  globalThis.count = (globalThis.count ?? 0) + 1;\n  \
             response.setHeader('content-type', 'application/json');\n  {body}\n\
             }}).listen(process.env.MY_PORT, '127.0.0.1');\n"
        );
        fs::write(folder.path().join("own.cjs"), script).expect("a script can be written");
        let file = folder.path().join("own.toml");
        let node = s200().servers[0].folder.join(&s200().servers[0].command[0]);
        let node = node.canonicalize().expect("the runtime is installed: cargo xtask setup");
        let server = format!(
            "[[server]]\nname = \"own\"\nruntime = \"node24\"\ncommand = [\"sh\", \"-c\", \"MY_PORT={{port}} exec \
             {} own.cjs\"]\nenv = {{ NODE_ENV = \"production\" }}\nready = \"/\"\nwarm_up = 100\n",
            node.display()
        );
        fs::write(&file, server).expect("a scenario can be written");
        Self { folder, file }
    }

    /// A suite with this server added, as JSON, stored in its folder too.
    #[track_caller]
    fn bench(&self, only: &str, more: &[&str]) -> Said {
        let (file, stored) = (self.file.to_str().expect("text"), self.stored());
        let suite = suite_file("s200");
        let arguments = ["bench", "--suite", suite.to_str().expect("text"), "--server", file, "--only", only];
        let arguments =
            arguments.into_iter().chain(["-o", stored.to_str().expect("text"), "--format", "json"]);
        start(&mut tracer(arguments.chain(more.iter().copied()))).said_within(SUITE_PATIENCE)
    }

    fn stored(&self) -> PathBuf {
        self.folder.path().join("result.json")
    }
}

const HELLO: &str = r#"response.setHeader('content-length', 19); response.end('{"message":"hello"}');"#;

#[test]
fn a_server_changed_on_purpose_is_caught_and_not_measured() {
    for (change, what, wanted, got) in [
        ("response.setHeader('etag', '\"1\"');", "etag", "absent", "present"),
        ("response.setHeader('content-type', 'text/html');", "content-type", "application/json", "text/html"),
        ("response.statusCode = 500;", "status", "200", "500"),
        ("return response.end('{}');", "body", r#"`{"message":"hello"}`"#, "`{}`"),
    ] {
        // It must be ready first; what is compared is its second answer.
        let own = Own::new(&format!("if (globalThis.count > 1) {{ {change} }}\n  {HELLO}"));
        let said = own.bench("equal-work,node-http,fastify,own,hello", &[]);
        assert_eq!(said.code, 1, "{said:#?}");
        let differences = said.json()["differences"].as_array().expect("a list").clone();
        let found = differences.iter().find(|difference| difference["what"] == what);
        let found = found.unwrap_or_else(|| panic!("{what}: {differences:?}"));
        assert_eq!((&found["server"], &found["workload"]), (&"own".into(), &"hello".into()));
        assert_eq!((&found["wanted"], &found["got"]), (&wanted.into(), &got.into()));
        assert!(differences.iter().all(|difference| difference["server"] == "own"), "{differences:?}");
        let stored = own.stored();
        let printed = run(["report", stored.to_str().expect("text")]);
        assert_eq!(printed.code, 1);
        assert!(printed.unwrapped().contains("UNEQUAL WORK"), "{printed:#?}");
    }
}

/// The row of a server under hello.
#[track_caller]
fn row<'j>(result: &'j Value, server: &str) -> &'j Value {
    let rows = result["rows"].as_array().expect("rows");
    rows.iter().find(|row| row["server"] == server).unwrap_or_else(|| panic!("no row of {server}: {rows:?}"))
}

#[test]
fn a_small_part_of_s200_with_a_server_of_ones_own_runs_from_end_to_end() {
    let _alone = begin();
    let own = Own::new(HELLO);
    let only = "load,node-http,express,fastify,own,hello";
    let said = own.bench(only, &["--requests", "1000", "--connections", "8", "--seed", "7"]);
    assert!(said.code == 0 || said.code == 3, "{said:#?}");
    let result = said.json();
    assert_eq!(result["seed"], 7);
    assert_eq!(result["differences"], Value::Array(Vec::new()));
    assert_eq!(result["runtimes"][0][1], "v24.21.0");
    for server in ["node-http", "express", "fastify", "own"] {
        let row = row(&result, server);
        assert!([3, 5].contains(&row["rounds"].as_array().expect("rounds").len()), "{row}");
        assert_eq!((&row["failed"], &row["runtime"]), (&0.into(), &"node24".into()));
        // Rounds of fresh processes add up: each traced round was seen whole.
        let traced = row["traced_requests"].as_u64().expect("a count");
        assert!(traced == 3_000 || traced == 5_000, "{row}");
        assert_eq!((&row["writes_per_response"], &row["one_write_share"]), (&1.0.into(), &1.0.into()));
        let calls = row["syscalls_per_request"].as_f64().expect("a mean");
        assert!((2.0..6.0).contains(&calls), "{calls}");
        let cpu = &row["cpu"];
        assert!(cpu["app_user_ns"].as_f64() > Some(0.0) && cpu["write_ns"].as_f64() > Some(0.0), "{cpu}");
    }
    assert_eq!(result["control"]["name"], "node-http hello");
    let claims: Vec<_> = result["claims"].as_array().expect("claims").iter().collect();
    assert_eq!(
        (&claims[0]["held"], &claims[3]["held"]),
        (&"not_measured".into(), &"yes".into()),
        "{claims:?}"
    );
    let stored = own.stored();
    let stored = stored.to_str().expect("text");
    let printed = run(["report", stored]);
    assert_eq!(printed.code, said.code);
    printed.assert_fits();
    assert!(printed.stdout.contains("hello: ladder over node-http"), "{printed:#?}");
    assert!(
        run(["report", stored, "--format", "json"]).stdout == said.stdout,
        "stored otherwise than printed"
    );
}

#[test]
fn a_row_that_fails_in_mid_run_has_no_figures_and_fails_the_suite() {
    let _alone = begin();
    let own = Own::new(&format!("if (globalThis.count > 300) response.statusCode = 500;\n  {HELLO}"));
    let said = own.bench("load,fastify,own,hello", &["--requests", "500", "--connections", "4"]);
    assert_eq!(said.code, 1, "{said:#?}");
    let result = said.json();
    let failed = row(&result, "own");
    assert!(failed["failed"].as_u64() > Some(0), "{failed}");
    assert!(failed["first_failure"].as_str().is_some_and(|first| first.contains("500")), "{failed}");
    assert_eq!(row(&result, "fastify")["failed"], 0);
    let printed = run(["report", own.stored().to_str().expect("text")]);
    assert!(printed.unwrapped().contains("no rank, requests failed: own"), "{printed:#?}");
}

#[test]
fn a_suite_that_is_none_is_refused() {
    run(["bench", "--suite", "nonesuch"]).assert_refused(&["there is no suite `nonesuch`"]);
    let node = suite_file("node");
    run(["bench", "--suite", node.to_str().expect("text"), "--only", "equal-work"])
        .assert_refused(&["`node` is no suite"]);
}

/// Runs parts of s200, and gives the result.
#[track_caller]
fn parts(only: &str, more: &[&str]) -> Value {
    let suite = suite_file("s200");
    let arguments = ["bench", "--suite", suite.to_str().expect("text"), "--only", only, "--format", "json"];
    let said =
        start(&mut tracer(arguments.into_iter().chain(more.iter().copied()))).said_within(SUITE_PATIENCE);
    assert_eq!(said.code, 0, "{said:#?}");
    said.json()
}

#[test]
fn a_cold_start_is_stamped_in_order_and_leaves_no_trace_instance() {
    let _alone = begin();
    let result = parts("start,express", &["--quick"]);
    let starts = result["starts"].as_array().expect("starts");
    assert_eq!(starts.len(), 1);
    let median = |figure: &str| starts[0][figure]["median"].as_f64().expect("a figure");
    assert!(median("listen_ns") > 10e6 && median("answer_ns") > median("listen_ns"), "{starts:?}");
    assert!(median("answer_ns") < 60e9 && median("cpu_ns") > 10e6, "{starts:?}");
    assert_eq!(starts[0]["listen_ns"]["rounds"], 3);
    assert_eq!(starts[0]["curve_ns"].as_array().expect("a curve").len(), 10);
    // Express is many modules: their files are looked for and read.
    let calls = starts[0]["file_calls"].as_array().expect("calls");
    assert!(calls.iter().any(|call| call[0] == "openat" && call[1].as_u64() > Some(50)), "{calls:?}");
    let instances = fs::read_dir("/sys/kernel/tracing/instances").expect("the trace file system is there");
    let left = instances.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with("tracer-"));
    assert_eq!(left.count(), 0);
}

#[test]
fn memory_is_read_idle_loaded_and_per_route() {
    let result = parts("memory,fastify", &["--quick"]);
    let memory = &result["memory"][0];
    let median = |figure: &str| memory[figure]["median"].as_f64().expect("a figure");
    let (idle, loaded, peak) = (median("idle_bytes"), median("loaded_bytes"), median("peak_bytes"));
    assert!(idle > 20e6 && loaded >= idle * 0.9 && peak >= loaded * 0.99, "{memory}");
    assert!((100.0..100_000.0).contains(&median("route_bytes")), "{memory}");
}

#[test]
fn a_linear_router_is_seen_to_grow() {
    let result = parts("router,express", &[]);
    let rows = result["router"].as_array().expect("rows");
    let last = rows.iter().find(|row| row["target"] == "last" && row["routes"] == 2000).expect("the row");
    assert!(last["added_ns"]["low"].as_f64() > Some(1000.0), "{last}");
    assert_eq!(last["added_ns"]["launches"], 6);
    for (target, routes) in [("last", 200), ("miss", 200), ("tenant", 2000), ("params", 1)] {
        let row = rows.iter().find(|row| row["target"] == target && row["routes"] == routes);
        assert_eq!(row.expect("the row")["failed"], 0);
    }
}

#[test]
fn a_planted_leak_is_called_and_its_clean_twin_is_not() {
    let leak = "globalThis.kept ??= []; globalThis.kept.push(new Array(128).fill(globalThis.count));";
    let heap = suite_file("servers/heap").with_extension("mjs").canonicalize().expect("it is there");
    let gc = format!(
        "if (request.url === '/gc') return import('{}').then(async (m) => \
         response.end(JSON.stringify(await m.heap())));",
        heap.display()
    );
    for (plant, grows) in [(leak, true), ("", false)] {
        let own = Own::new(&format!("{gc}\n  {plant}\n  {HELLO}"));
        let server = fs::read_to_string(&own.file).expect("it was written");
        let head = "name = \"mine\"\nconnections = 4\n[suite]\nbase = \"own\"\ncontrol = \"own hello\"\nquick = []\n\
                    [suite.leak]\nphase = \"2s\"\n[[request]]\nname = \"hello\"\npath = \"/\"\n";
        let suite = own.folder.path().join("mine.toml");
        fs::write(&suite, format!("{head}{server}")).expect("a suite can be written");
        let stored = own.stored();
        let arguments = ["bench", "--suite", suite.to_str().expect("text"), "--only", "leak"];
        let arguments = arguments.into_iter().chain(["-o", stored.to_str().expect("text")]);
        let said = start(&mut tracer(arguments)).said_within(SUITE_PATIENCE);
        assert_eq!(said.code, 0, "{said:#?}");
        let (growth, plateau) = (said.stdout.contains("GROWTH: 1,"), said.stdout.contains("plateau: below"));
        assert_eq!((growth, plateau), (grows, !grows), "{said:#?}");
    }
}

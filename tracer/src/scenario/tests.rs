//! Scenario files good and bad, as a user would write them.

use std::path::Path;
use std::time::Duration;

use proptest::prelude::*;
use rustix::process::Signal;
use tempfile::TempDir;

use super::{Length, Scenario};

const GOOD: &str = r#"name = "hello"

[[request]]
name = "hello"
path = "/"

[[server]]
name = "one"
command = ["sh", "-c", "exit"]
"#;

fn load(text: &str) -> anyhow::Result<Scenario> {
    let folder = TempDir::new()?;
    let path = folder.path().join("s.toml");
    std::fs::write(&path, text)?;
    Scenario::load(&path)
}

/// The error's text, less the folder the file happened to lie in.
#[track_caller]
fn error(text: &str) -> String {
    let error = format!("{:#}", load(text).expect_err("the scenario is bad"));
    error[error.find("s.toml").expect("the file is named")..].to_owned()
}

#[test]
fn defaults() {
    let scenario = load(GOOD).unwrap();
    assert_eq!((scenario.connections, scenario.rounds), (32, 3));
    assert_eq!(scenario.length, Length::Requests(30_000));
    let server = &scenario.servers[0];
    assert_eq!((server.ready.as_str(), server.warm_up_requests, server.port), ("/", 2_000, 0));
    assert_eq!(server.stop, Signal::TERM);
    assert_eq!(server.cwd, server.folder);
    assert!(server.declared_at.ends_with("s.toml:8"), "{}", server.declared_at);
    assert_eq!((scenario.requests[0].method.as_str(), scenario.requests[0].expect.status), ("GET", 200));
}

#[test]
fn every_key() {
    let scenario = load(
        r#"
name = "all"
connections = 8
duration = "2s"
rounds = 1
timeout = "500ms"
[[request]]
name = "echo"
method = "POST"
path = "/echo?x=1"
headers = { accept = "application/json" }
body = "ada"
expect.status = 201
expect.body = "ada"
[[server]]
name = "one"
command = ["./run", "{port}"]
cwd = "sub"
env = { NODE_ENV = "production" }
ready = "/ready"
ready_timeout = "1m"
warm_up = 0
setup = "make"
stop = "SIGINT"
port = 8080
requires = ["sub/file"]
"#,
    )
    .unwrap();
    assert_eq!(scenario.length, Length::Duration(Duration::from_secs(2)));
    assert_eq!(scenario.timeout, Duration::from_millis(500));
    let request = &scenario.requests[0];
    assert_eq!(request.headers, [("accept".to_owned(), "application/json".to_owned())]);
    assert_eq!((request.body.as_slice(), request.expect.body.as_deref()), (&b"ada"[..], Some(&b"ada"[..])));
    let server = &scenario.servers[0];
    assert_eq!(server.cwd, server.folder.join("sub"));
    assert_eq!((server.ready_timeout, server.warm_up_requests), (Duration::from_secs(60), 0));
    assert_eq!((server.stop, server.port, server.ready.as_str()), (Signal::INT, 8080, "/ready"));
}

#[test]
fn body_files_lie_beside_the_scenario() {
    let folder = TempDir::new().unwrap();
    std::fs::write(folder.path().join("body.bin"), [1, 2, 3]).unwrap();
    let path = folder.path().join("s.toml");
    std::fs::write(&path, GOOD.replace("path = \"/\"", "path = \"/\"\nbody_file = \"body.bin\"")).unwrap();
    assert_eq!(Scenario::load(&path).unwrap().requests[0].body, [1, 2, 3]);
}

#[test]
fn errors_name_line_and_fix() {
    let top = |line: &str| error(&GOOD.replacen('\n', &format!("\n{line}\n"), 1));
    assert_eq!(top("conections = 8"), "s.toml:2: unknown key `conections`; did you mean `connections`?");
    assert_eq!(top("connections = 0"), "s.toml:2: `connections` is zero; give at least 1");
    assert_eq!(top("rounds = 0"), "s.toml:2: `rounds` is zero; give at least 1");
    assert_eq!(
        top("requests = 1\nduration = \"1s\""),
        "s.toml:3: both `requests` and `duration` are given; keep one of them"
    );
    assert!(
        top("timeout = \"5\"").starts_with("s.toml:2: `5` is not a duration; write a number and ms, s or m")
    );
    assert!(top("connections = \"8\"").starts_with("s.toml:2: invalid type: string"));
    assert!(top("connections = -1").starts_with("s.toml:2: invalid value: integer `-1`"));
    assert!(top("connections = ").starts_with("s.toml:2: "));
    assert!(
        top("colour = 1")
            .starts_with("s.toml:2: unknown key `colour`; the keys here are: name, connections,")
    );
}

#[test]
fn errors_in_requests() {
    let request = |line: &str| error(&GOOD.replace("path = \"/\"", line));
    assert_eq!(request("method = \"GET\""), "s.toml:3: missing field `path`");
    assert!(request("path = \"x\"").starts_with("s.toml:5: `x` is not a path; begin it with /"));
    assert!(request("path = \"/\"\nmethod = \"get\"").starts_with("s.toml:6: `get` is not an HTTP method"));
    assert!(
        request("path = \"/\"\nexpect.status = 99")
            .starts_with("s.toml:6: 99 is not the status of an answer")
    );
    assert!(
        request("path = \"/\"\nexpect.stats = 99")
            .starts_with("s.toml:6: unknown key `stats`; did you mean `status`?")
    );
    assert!(
        request("path = \"/\"\nheaders = { Connection = \"close\" }")
            .starts_with("s.toml:6: the header `Connection`")
    );
    assert!(request("path = \"/\"\nbody = \"\"\nbody_file = \"b\"").starts_with("s.toml:7: both `body` and"));
    assert!(
        request("path = \"/\"\nbody_file = \"b\"").starts_with("s.toml:6: cannot read the body file b (")
    );
}

#[test]
fn errors_in_servers() {
    let server = |line: &str| error(&format!("{GOOD}{line}"));
    assert!(
        server("stop = \"TERM\"").starts_with("s.toml:10: `TERM` is not a signal to stop a server by; write")
    );
    assert!(server("env = { PORT = \"1\" }").starts_with("s.toml:10: PORT is set by tracer itself"));
    assert!(server("port = 70000").starts_with("s.toml:10: invalid value: integer `70000`"));
    assert_eq!(
        server("[[server]]\nname = \"one\"\ncommand = [\"x\"]"),
        "s.toml:11: the server `one` is there twice; rename one of them"
    );
    assert!(
        server("[[server]]\nname = \"two\"\ncommand = []")
            .starts_with("s.toml:12: the command is empty; write")
    );
    assert!(error("name = \"x\"").starts_with("s.toml:1: no request is given; add a [[request]] table"));
}

#[test]
fn a_missing_file_says_so() {
    let error = format!("{:#}", Scenario::load(Path::new("nowhere.toml")).unwrap_err());
    assert!(
        error.starts_with("cannot read the scenario nowhere.toml; give the path of a TOML file"),
        "{error}"
    );
}

#[test]
fn what_is_not_installed_is_named_with_its_setup() {
    let missing = |lines: &str, command: &str| {
        let text = GOOD
            .replace("command = [\"sh\", \"-c\", \"exit\"]", &format!("command = [\"{command}\"]\n{lines}"));
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("s.toml");
        std::fs::write(&path, text).unwrap();
        let result = Scenario::load(&path).unwrap().servers[0].check_installed();
        result.err().map(|error| error.to_string()[folder.path().as_os_str().len() + 1..].to_owned())
    };
    assert_eq!(missing("", "sh"), None);
    assert_eq!(missing("requires = [\"s.toml\", \"sh\"]", "sh"), None);
    assert_eq!(
        missing("setup = \"make it\"", "no-such-program").unwrap(),
        "s.toml:8: the server `one` cannot start: its program `no-such-program` is not in PATH; set it up first: make it"
    );
    assert!(
        missing("", "./s.toml")
            .unwrap()
            .contains("its program `./s.toml` is not an executable file; install it")
    );
    assert!(
        missing("requires = [\"node_modules\"]", "sh")
            .unwrap()
            .contains("node_modules is missing; install it")
    );
    assert!(missing("cwd = \"nowhere\"", "sh").unwrap().contains("nowhere does not exist"));
}

#[test]
fn only_keeps_what_is_named() {
    let scenario = load(&format!("{GOOD}[[server]]\nname = \"two\"\ncommand = [\"sh\"]")).unwrap();
    let kept = scenario.clone().only(&["two"]).unwrap();
    assert_eq!((kept.servers.len(), kept.requests.len()), (1, 1));
    assert_eq!(kept.servers[0].name, "two");
    assert_eq!(scenario.clone().only(&["hello"]).unwrap(), scenario);
    assert_eq!(scenario.clone().only::<&str>(&[]).unwrap(), scenario);
    assert_eq!(
        scenario.only(&["tow"]).unwrap_err().to_string(),
        "the scenario `hello` has no server or request `tow`; its servers are: one, two; its requests are: hello"
    );
}

#[test]
fn the_committed_scenarios_load() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scenarios");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            Scenario::load(&path).unwrap();
            count += 1;
        }
    }
    assert!(count >= 2);
}

#[test]
fn the_builtin_server_runs_from_the_binary_given() {
    let scenario = Scenario::builtin(Path::new("/x/tracer"));
    assert_eq!(scenario.servers[0].command, ["/x/tracer", "serve", "--port", "{port}"]);
}

proptest! {
    #[test]
    fn no_file_panics(lines in proptest::collection::vec("[a-z_\\[\\]= \"0-9.{}é]{0,30}", 0..12)) {
        let _ = load(&lines.join("\n"));
    }

    #[test]
    fn the_line_is_the_line_of_the_mistake(blank in 0usize..40) {
        let text = GOOD.replacen('\n', &format!("\n{}connections = 0\n", "\n".repeat(blank)), 1);
        let start = format!("s.toml:{}: ", blank + 2);
        prop_assert!(error(&text).starts_with(&start));
    }
}

const SUITE: &str = r#"
[suite]
base = "one"
control = "one hello"
quick = []
"#;

#[test]
fn a_suite_names_rows_by_server_and_request() {
    let suite = load(&format!("{GOOD}{SUITE}")).unwrap().suite.unwrap();
    assert!(suite.control.is("one", "hello"));
    assert_eq!(suite.router, None);
    let wrong = |from: &str, to: &str| error(&format!("{GOOD}{SUITE}").replace(from, to));
    assert_eq!(
        wrong("\"one hello\"", "\"one mw\""),
        "s.toml:13: `one mw` is no row; name a server and a request, as in \"express hello\""
    );
    assert_eq!(
        wrong("base = \"one\"", "base = \"two\""),
        "s.toml:12: there is no server `two`; there are one"
    );
    let few = "quick = []\n[suite.router]\nsizes = [2]\ncontrol = \"one\"\nlaunches = 5";
    assert_eq!(wrong("quick = []", few), "s.toml:18: 5 is too few; give at least 6");
    let claim = "quick = []\n[[suite.claim]]\nsays = \"so\"";
    assert!(
        wrong("quick = []", claim).starts_with("s.toml:16: the claim does not say what it means in figures;")
    );
}

#[test]
fn a_file_of_servers_adds_to_a_scenario() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("more.toml");
    let add = |text: &str| {
        std::fs::write(&path, text).unwrap();
        let mut scenario = load(GOOD).unwrap();
        scenario.add_servers(&path).map(|()| scenario)
    };
    let scenario = add("[[server]]\nname = \"two\"\ncommand = [\"sh\"]\nruntime = \"sh\"\n").unwrap();
    assert_eq!((scenario.servers.len(), scenario.servers[1].runtime.as_str()), (2, "sh"));
    assert_eq!(scenario.servers[1].cwd, folder.path());
    let refused = |text| format!("{:#}", add(text).unwrap_err());
    assert!(refused("").contains("no server is given"));
    assert!(refused("[[server]]\nname = \"one\"\ncommand = [\"sh\"]").contains("a server `one` already"));
    assert!(
        refused("name = \"x\"\n[[server]]\nname = \"two\"\ncommand = [\"sh\"]")
            .contains("unknown key `name`")
    );
}

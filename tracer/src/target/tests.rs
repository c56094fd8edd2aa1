//! Real processes: started, awaited, accounted for, stopped.

use std::fs::read_to_string;
use std::net::TcpListener;
use std::time::{Duration, Instant};

use super::*;

const PATIENCE: Duration = Duration::from_secs(20);

fn server(command: &[&str]) -> Server {
    Server::from_command("it", command.iter().map(|word| (*word).to_owned()).collect())
}

fn spawn(command: &[&str]) -> Target {
    Target::spawn(&server(command), &SpawnOptions::default()).unwrap()
}

/// A one-line HTTP server that answers everything with `status`.
fn http(status: &str) -> [String; 4] {
    let program = format!(
        "import os,sys,http.server as h\n\
         class H(h.BaseHTTPRequestHandler):\n  def do_GET(self): self.send_response({status}); self.end_headers()\n\
         h.HTTPServer(('127.0.0.1', int(sys.argv[1])), H).serve_forever()"
    );
    ["python3".to_owned(), "-c".to_owned(), program, "{port}".to_owned()]
}

#[track_caller]
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[track_caller]
fn failure<T>(result: Result<T>) -> String {
    format!("{:#}", result.err().expect("it must fail"))
}

#[test]
fn a_server_is_started_awaited_and_stopped() {
    let mut target =
        Target::spawn(&Server::from_command("it", http("404").to_vec()), &SpawnOptions::default()).unwrap();
    target.wait_ready("/", PATIENCE).unwrap();
    assert_eq!(processes::listening_ports(&target.family()), [target.port()]);
    let error = failure(ready::check_port_free(target.port()));
    assert!(error.contains(&format!("is in use by process {} (python3)", target.pid())), "{error}");
    target.stop();
    assert!(!processes::exists(target.pid()));
    assert_eq!(target.exit_status().unwrap().signal(), Some(libc::SIGTERM));
    ready::check_port_free(target.port()).unwrap();
}

#[test]
fn a_paused_process_has_not_begun() {
    let mut target = Target::spawn_paused(&server(&["sleep", "100"]), &SpawnOptions::default()).unwrap();
    let comm = format!("/proc/{}/comm", target.pid());
    assert_ne!(read_to_string(&comm).unwrap(), "sleep\n");
    target.release().unwrap();
    assert_eq!(read_to_string(&comm).unwrap(), "sleep\n");
}

#[test]
fn a_paused_process_ends_with_its_target() {
    let target = Target::spawn_paused(&server(&["sleep", "100"]), &SpawnOptions::default()).unwrap();
    let pid = target.pid();
    drop(target);
    assert!(!processes::exists(pid));
}

#[test]
fn it_starts_where_and_how_it_was_told() {
    let core = *cores::allowed().unwrap().last().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let script =
        "echo $PORT $1 $COLOUR $(pwd); cat; exec grep -E 'Sig(Blk|Ign)|Cpus_allowed_list' /proc/self/status";
    let mut server = server(&["sh", "-c", script, "sh", "{port}"]);
    server.env = vec![("COLOUR".to_owned(), "blue".to_owned())];
    server.cwd = folder.path().to_owned();
    let mut target = Target::spawn(&server, &SpawnOptions { core: Some(core), run_as: None }).unwrap();
    until("it ends at the end of its empty input", || target.exit_status().is_some());
    let port = target.port();
    let printed = read_to_string(&target.log).unwrap();
    let lines: Vec<&str> = printed.lines().collect();
    assert_eq!(lines[0], format!("{port} {port} blue {}", folder.path().canonicalize().unwrap().display()));
    let signals = |line: &str| u64::from_str_radix(line.split_whitespace().last().unwrap(), 16).unwrap();
    assert_eq!((signals(lines[1]), signals(lines[2]) & 1 << (libc::SIGPIPE - 1)), (0, 0), "{printed}");
    assert_eq!(lines[3].split_whitespace().last(), Some(core.to_string().as_str()));
}

#[test]
fn it_runs_as_the_user_it_was_given() {
    if !rustix::process::geteuid().is_root() {
        return; // Only root can become somebody else.
    }
    let user =
        RunAs { uid: 4242, gid: 4343, groups: vec![4343, 4444], name: "ada".to_owned(), home: "/".into() };
    let script =
        "id -u; id -g; id -G; echo $USER; touch $TRACER_TMP/x && echo written; echo more >>/dev/stderr";
    let options = SpawnOptions { core: None, run_as: Some(user) };
    let mut server = server(&["sh", "-c", script]);
    server.cwd = "/".into();
    let mut target = Target::spawn(&server, &options).unwrap();
    until("it ends", || target.exit_status().is_some());
    assert_eq!(read_to_string(&target.log).unwrap(), "4242\n4343\n4343 4444\nada\nwritten\nmore\n");
}

#[test]
fn what_cannot_start_says_why() {
    assert!(
        failure(Target::spawn(&server(&["no-such-program"]), &SpawnOptions::default()))
            .contains("is not in PATH")
    );
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("text");
    std::fs::write(&program, "not a program").unwrap();
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let error = failure(Target::spawn(&server(&[program.to_str().unwrap()]), &SpawnOptions::default()));
    assert!(error.contains("did not start: it could not execute the program: Exec format error"), "{error}");
    let options = SpawnOptions { core: Some(1000), run_as: None };
    let error = failure(Target::spawn(&server(&["true"]), &options));
    assert!(error.contains("it could not pin itself to its CPU: Invalid argument"), "{error}");
}

#[test]
fn one_that_dies_before_it_answers_is_reported_at_once_with_its_last_words() {
    let mut target = spawn(&["sh", "-c", "echo no database; exit 3"]);
    target.setup = Some("make database".to_owned());
    let error = failure(target.wait_ready("/", Duration::from_secs(600)));
    assert!(
        error.contains("`it` ended before it answered (exit status: 3); if it is not set up yet: make"),
        "{error}"
    );
    assert!(error.ends_with("its last words:\n    no database"), "{error}");
}

#[test]
fn one_that_never_answers_well_is_reported() {
    let mut target =
        Target::spawn(&Server::from_command("it", http("503").to_vec()), &SpawnOptions::default()).unwrap();
    let port = target.port();
    until("it listens", || processes::listening_ports(&target.family()).contains(&port));
    let error = failure(target.wait_ready("/", Duration::from_millis(300)));
    assert!(error.contains("did not answer GET / on port"), "{error}");
    assert!(error.contains("within 300ms (its last answer was 503)"), "{error}");
}

#[test]
fn one_that_listens_elsewhere_is_told_so() {
    let elsewhere = ready::free_port().unwrap();
    let mut command = http("200");
    command[3] = elsewhere.to_string();
    let mut target =
        Target::spawn(&Server::from_command("it", command.to_vec()), &SpawnOptions::default()).unwrap();
    until("it listens", || processes::listening_ports(&target.family()).contains(&elsewhere));
    let error = failure(target.wait_ready("/", Duration::from_millis(50)));
    assert!(error.contains(&format!("it listens on {elsewhere} instead")), "{error}");
}

#[test]
fn a_port_in_use_is_refused_before_the_start() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut server = server(&["sleep", "100"]);
    server.port = listener.local_addr().unwrap().port();
    let error = failure(Target::spawn(&server, &SpawnOptions::default()));
    let expected = format!("port {} is in use by process {} (", server.port, std::process::id());
    assert!(error.starts_with(&expected), "{error}");
    assert!(error.ends_with("stop it, or choose another port"), "{error}");
}

#[test]
fn one_that_ignores_its_signal_is_killed_with_its_children() {
    let mut target = spawn(&["sh", "-c", "trap '' TERM; sleep 100 & while :; do wait; done"]);
    until("its child runs", || target.family().len() == 2);
    let family = target.family();
    let begun = Instant::now();
    target.stop();
    assert!(begun.elapsed() >= STOP_PATIENCE);
    assert!(family.iter().all(|pid| !processes::exists(*pid)));
    assert_eq!(target.exit_status().unwrap().signal(), Some(libc::SIGKILL));
}

#[test]
fn the_guardian_kills_what_would_be_left_behind() {
    let mut target = spawn(&["sh", "-c", "sleep 100 & sleep 100"]);
    until("its child runs", || target.family().len() >= 2);
    let family = target.family();
    // The end of the line is what the guardian sees of the end of `tracer`.
    target.guardian.take().unwrap().hang_up();
    until("all are gone", || family.iter().all(|pid| !processes::exists(*pid)));
    assert!(!target._folder.path().exists());
}

#[test]
fn the_committed_servers_answer_and_leave_nothing() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scenarios");
    for file in ["node.toml", "nginx.toml"] {
        let scenario = crate::scenario::Scenario::load(&folder.join(file)).unwrap();
        // What is not installed here is the end-to-end tests' matter.
        for server in scenario.servers.iter().filter(|server| server.check_installed().is_ok()) {
            let mut target = Target::spawn(server, &SpawnOptions::default()).unwrap();
            target.wait_ready(&server.ready, server.ready_timeout).unwrap();
            for request in &scenario.requests {
                assert_eq!(
                    ready::ask(target.port(), &request.path, PATIENCE).unwrap(),
                    request.expect.status
                );
            }
            let family = target.family();
            target.stop();
            assert!(family.iter().all(|pid| !processes::exists(*pid)), "{}", server.name);
        }
    }
}

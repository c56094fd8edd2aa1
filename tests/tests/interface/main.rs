//! The command line, as a user meets it: results, refusals, interruptions, and what is left behind.

mod left_behind;
mod refused;
mod works;

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

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port can be had");
    listener.local_addr().expect("it has an address").port()
}

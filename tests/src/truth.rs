//! Real servers, real load and outside witnesses (strace, /proc), for the tests that hold our numbers against theirs.

use std::{
    collections::BTreeMap,
    fs,
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Mutex, MutexGuard, OnceLock, PoisonError},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use rustix::{
    process::{Pid, Signal, geteuid, kill_process},
    thread::{CpuSet, sched_setaffinity},
};
use tempfile::TempDir;
use tracer::{
    load::{Driver, LoadResult, Plan, Route, Stop, monotonic_ns},
    probe::Options,
    recording::Request,
    scenario::Scenario,
    target::{
        SpawnOptions, Target,
        cores::{Placement, pin_current_thread, placement},
    },
    window::{Settings, Sink, Traced, Window},
};

/// How long anything may take that a test waits for.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Pause between two looks at a condition.
const POLL: Duration = Duration::from_millis(5);

/// A log that has not grown for this long is that of a server that stands still.
pub const STILL: Duration = Duration::from_millis(250);

/// The same for a server that has no timer left to fire: Node keeps the date for up to a second after a request.
pub const SETTLED: Duration = Duration::from_millis(1_200);

/// One test at a time: they share two CPUs, and measure.
pub fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    assert!(geteuid().is_root(), "these tests attach BPF programs: run them as root");
    // The window's reader shares the client's CPU, as in `bench`.
    cpus().client.iter().for_each(|&cpu| pin_current_thread(cpu).expect("this thread can be pinned"));
    // A test that failed has poisoned it, which says nothing about the next one.
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Polls until the condition holds; panics with `what` when it takes longer than [`PATIENCE`].
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "waited {PATIENCE:?} in vain until {what}");
        std::thread::sleep(POLL);
    }
}

/// CPUs of server and client, as before anything was pinned.
pub fn cpus() -> &'static Placement {
    static CPUS: OnceLock<Placement> = OnceLock::new();
    CPUS.get_or_init(|| placement().expect("the CPUs allowed can be read"))
}

/// Pins a process to the server's CPU.
pub fn pin_to_server_cpu(process_id: u32) {
    let mut only = CpuSet::new();
    cpus().server.iter().for_each(|&cpu| only.set(cpu));
    sched_setaffinity(Some(pid(process_id)), &only).expect("a process of ours can be pinned");
}

/// Nanoseconds the hypervisor took the server's CPU away so far, to a tick: time on the CPU to whoever looks at the
/// clock, but not to schedstat.
pub fn stolen_ns() -> u64 {
    let stat = fs::read_to_string("/proc/stat").expect("/proc is there");
    let stolen = |cpu: &usize| {
        let line = stat.lines().find_map(|line| line.strip_prefix(&format!("cpu{cpu} ")))?;
        line.split(' ').nth(7)?.parse::<u64>().ok()
    };
    cpus().server.iter().filter_map(stolen).sum::<u64>() * TICK_NS
}

/// The unit of /proc/stat (`USER_HZ` is 100).
pub const TICK_NS: u64 = 10_000_000;

fn pid(process_id: u32) -> Pid {
    Pid::from_raw(process_id as i32).expect("a process id is not zero")
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("the repository is there")
}

/// A program of ours, built beside this one.
pub fn program(name: &str) -> PathBuf {
    let this = std::env::current_exe().expect("a program knows its own path");
    // This one is target/PROFILE/PROGRAM, or target/PROFILE/deps/TEST.
    let found = this.ancestors().skip(1).take(2).map(|folder| folder.join(name)).find(|path| path.is_file());
    found.unwrap_or_else(|| {
        panic!("`{name}` is missing: build it with `cargo build --workspace --bins` before")
    })
}

/// A server of a scenario, running on the server's CPU.
pub struct Served {
    /// Its process.
    pub target: Target,
    scenario: Scenario,
}

impl Served {
    /// Starts `builtin`, or a server of `scenarios/node.toml` or `scenarios/nginx.toml`, or one of another file as
    /// `FILE/SERVER`, and waits until it answers.
    pub fn start(server: &str) -> Self {
        let scenario = match server {
            "builtin" => Scenario::builtin(&program("tracer")),
            _ => {
                let usual = if server.starts_with("nginx") { "nginx" } else { "node" };
                let file = server.split_once('/').map_or(usual, |(file, _)| file);
                Scenario::load(&repository().join(format!("scenarios/{file}.toml")))
                    .expect("a scenario of ours is right")
            }
        };
        let name = server.rsplit('/').next().unwrap_or(server);
        let scenario = scenario.only(&[name, "hello"]).expect("it is in the scenario");
        let server = &scenario.servers[0];
        server.check_installed().unwrap_or_else(|error| panic!("this test needs it: {error:#}"));
        let options = SpawnOptions { core: cpus().server.first().copied(), run_as: None };
        let mut target = Target::spawn(server, &options).expect("the server starts");
        target.wait_ready(&server.ready, server.ready_timeout).expect("the server answers");
        Self { target, scenario }
    }

    /// The driver with its connections open, sending the hello request.
    pub fn driver(&self, connections: usize) -> Driver {
        self.driver_of("/", connections)
    }

    /// The same with another path.
    pub fn driver_of(&self, path: &str, connections: usize) -> Driver {
        let request = &self.scenario.requests[0];
        let address = self.address();
        let plan = Plan {
            connections,
            timeout: self.scenario.timeout,
            cores: cpus().client.clone(),
            ..Plan::new(address, vec![Route { path: path.to_owned(), ..request.into() }])
        };
        Driver::start(plan).expect("the driver connects")
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.target.port()))
    }

    /// Opens a window on all its processes.
    pub fn open(&self, joins_samples: bool) -> Window<Requests> {
        let settings = Settings {
            processes: self.target.family(),
            ports: vec![self.target.port()],
            probes: Options::default(),
            keeps_query: false,
            joins_samples,
        };
        Window::open(&settings, Requests::default()).expect("the window opens")
    }

    /// A tiny client of its own on one connection.
    pub fn client(&self) -> Client {
        let stream = TcpStream::connect(self.address()).expect("the server accepts");
        stream.set_nodelay(true).expect("a new socket takes options");
        stream.set_read_timeout(Some(PATIENCE)).expect("a new socket takes options");
        Client { stream }
    }
}

/// Every request of a window, in the order in which they were attributed.
#[derive(Default)]
pub struct Requests(pub Vec<Request>);

impl Sink for Requests {
    fn take(&mut self, request: Request) -> Result<()> {
        self.0.push(request);
        Ok(())
    }
}

/// Sends so many requests through an open window and closes it.
pub fn drive(
    window: Window<Requests>,
    driver: &mut Driver,
    stop: Stop,
) -> (LoadResult, Traced, Vec<Request>) {
    let load = driver.run_sending_samples(stop, window.samples()).expect("the driver runs");
    assert_eq!(load.totals.errors, 0, "{:?}", load.totals.first_error);
    let (traced, requests) = window.close(Some(load.sent())).expect("the window closes");
    (load, traced, requests.0)
}

/// A client that shows the raw answer.
pub struct Client {
    stream: TcpStream,
}

/// One answer.
#[derive(Debug)]
pub struct Answer {
    /// Before its request was written.
    pub send_ns: u64,
    /// After it was read whole.
    pub done_ns: u64,
    /// Status line and headers.
    pub head: String,
}

impl Client {
    /// Writes a request and does not wait.
    pub fn send(&mut self, path: &str) {
        let request = format!("GET {path} HTTP/1.1\r\nhost: test\r\n\r\n");
        self.stream.write_all(request.as_bytes()).expect("the server reads");
    }

    /// One request, and its whole answer (which must have a Content-Length).
    pub fn get(&mut self, path: &str) -> Answer {
        let send_ns = monotonic_ns();
        self.send(path);
        let mut bytes = Vec::new();
        let head = loop {
            let mut piece = [0; 4096];
            let read = self.stream.read(&mut piece).expect("the server answers");
            assert!(read > 0, "the server closed the connection");
            bytes.extend_from_slice(&piece[..read]);
            let text = String::from_utf8_lossy(&bytes);
            if let Some((head, body)) = text.split_once("\r\n\r\n")
                && body.len() >= content_length(head)
            {
                break head.to_owned();
            }
        };
        let done_ns = monotonic_ns();
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        Answer { send_ns, done_ns, head }
    }
}

fn content_length(head: &str) -> usize {
    header(head, "content-length")
        .and_then(|value| value.parse().ok())
        .expect("the answer has a Content-Length")
}

fn header<'h>(head: &'h str, name: &str) -> Option<&'h str> {
    head.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        key.eq_ignore_ascii_case(name).then_some(value.trim())
    })
}

impl Answer {
    /// Start and end of what the built-in server did for this knob, by its own stamps.
    pub fn did(&self, knob: &str) -> (u64, u64) {
        let did = header(&self.head, "x-did").expect("the server says what it did");
        let stamps = did.split(',').find_map(|one| {
            let (start, end) = one.strip_prefix(knob)?.strip_prefix(';')?.split_once(';')?;
            Some((start.parse().ok()?, end.parse().ok()?))
        });
        stamps.unwrap_or_else(|| panic!("no {knob} in {did}"))
    }
}

/// strace on every thread of some processes. Dropping it detaches.
pub struct Strace {
    child: Child,
    log: PathBuf,
    _folder: TempDir,
}

impl Strace {
    /// Attaches, and waits until every thread is traced.
    pub fn attach(processes: &[u32]) -> Self {
        Self::attach_with(&[], processes)
    }

    /// The same with more options of its own.
    pub fn attach_with(options: &[&str], processes: &[u32]) -> Self {
        let folder = TempDir::with_prefix("tracer-strace-").expect("a temporary folder can be made");
        let log = folder.path().join("log");
        let mut command = Command::new("strace");
        command.arg("-f").args(options).arg("-o").arg(&log).stdin(Stdio::null()).stderr(Stdio::null());
        processes.iter().for_each(|process| {
            command.arg("-p").arg(process.to_string());
        });
        let child = command.spawn().expect("this test needs strace: `apt-get install strace`");
        let strace = Self { child, log, _folder: folder };
        until("strace has attached to every thread", || {
            processes.iter().all(|&process| threads_are_traced(process, strace.child.id()).unwrap_or(false))
        });
        strace
    }

    /// Calls that returned so far, by name, once the log has not grown for so long: the server does nothing any more.
    pub fn calls_when_quiet_for(&self, quiet: Duration) -> BTreeMap<String, u64> {
        let length = || fs::metadata(&self.log).map_or(0, |log| log.len());
        let (mut last, mut since) = (length(), Instant::now());
        until("the server makes no more system calls", || {
            let now = length();
            if now != last {
                (last, since) = (now, Instant::now());
            }
            since.elapsed() > quiet
        });
        self.calls()
    }

    /// What it wrote so far.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).expect("strace writes its log")
    }

    /// Calls that returned so far, by name.
    pub fn calls(&self) -> BTreeMap<String, u64> {
        returned_calls(&self.log())
    }
}

impl Drop for Strace {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let _ = self.child.wait();
    }
}

fn threads_are_traced(process: u32, by: u32) -> Result<bool> {
    let mut threads = 0;
    for thread in fs::read_dir(format!("/proc/{process}/task"))? {
        let status = fs::read_to_string(thread?.path().join("status"))?;
        let tracer =
            status.lines().find_map(|line| line.strip_prefix("TracerPid:")).context("no TracerPid")?;
        threads += 1;
        if tracer.trim() != by.to_string() {
            return Ok(false);
        }
    }
    ensure!(threads > 0, "it is gone");
    Ok(true)
}

/// Counts returns in a log of `strace -f`: whole lines `PID name(...) = ...` and `PID <... name resumed>...`. A line
/// still being written, or one that ends in `<unfinished ...>`, is a call that has not returned.
pub fn returned_calls(log: &str) -> BTreeMap<String, u64> {
    let mut calls = BTreeMap::new();
    let whole = log.rfind('\n').map_or("", |end| &log[..end]);
    for line in whole.lines() {
        let Some((_, event)) = line.split_once(' ') else { continue };
        let event = event.trim_start();
        let name = match event.strip_prefix("<... ") {
            Some(resumed) => resumed.split(' ').next(),
            None if event.ends_with("<unfinished ...>") => None,
            // Signals (---) and ends (+++) have no name before a parenthesis.
            None => event.split_once('(').map(|(name, _)| name),
        };
        let is_name = |name: &&str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        if let Some(name) = name.filter(is_name) {
            *calls.entry(name.to_owned()).or_default() += 1;
        }
    }
    calls
}

/// What `later` counts beyond `earlier`.
pub fn calls_since(earlier: &BTreeMap<String, u64>, later: &BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    let more = |(name, calls): (&String, &u64)| {
        let more = calls - earlier.get(name).copied().unwrap_or_default();
        (more > 0).then(|| (name.clone(), more))
    };
    later.iter().filter_map(more).collect()
}

/// A process that is always busy, on the server's CPU. Dropping it ends it.
pub struct Hog(Child);

impl Hog {
    /// Starts it.
    pub fn on_server_cpu() -> Self {
        let child = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().expect("sh is there");
        pin_to_server_cpu(child.id());
        Self(child)
    }

    /// Its process id.
    pub fn process_id(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Hog {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_counts_when_it_returns() {
        let log = "7  read(3, \"a = b(\", 9) = 6\n7  epoll_wait(5, <unfinished ...>\n8  futex(0x1, 2) = ? ERESTARTSYS\n\
                   8  --- SIGCHLD {si_signo=SIGCHLD} ---\n7  <... epoll_wait resumed>[], 8, 0) = 0\n7  +++ exited with 0 +++\n\
                   7  write(4, ";
        let expected = [("epoll_wait", 1), ("futex", 1), ("read", 1)];
        assert_eq!(returned_calls(log), expected.map(|(name, calls)| (name.to_owned(), calls)).into());
    }
}

//! Running `tracer` as a user does, and the built-in server as somebody else's.

use std::{
    env,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use rustix::{
    process::{Pid, Signal, kill_process},
    thread::{CpuSet, sched_setaffinity},
};
use tracer::target::cores;

/// Longest wait for a condition.
const PATIENCE: Duration = Duration::from_secs(30);
/// Pause between two looks at a condition.
const PAUSE: Duration = Duration::from_millis(10);
/// Widest line of a result on stdout.
const COLUMNS: usize = 100;

/// Held by a test while it runs: each measures, and would disturb another.
pub struct Alone(#[expect(dead_code, reason = "held, not read")] MutexGuard<'static, ()>);

/// Begins a test that needs root: fails without it, and waits for the test before.
#[track_caller]
pub fn begin() -> Alone {
    static ONE: Mutex<()> = Mutex::new(());
    assert!(
        rustix::process::geteuid().is_root(),
        "this test needs root: run it by `cargo xtask test`, or with sudo"
    );
    Alone(ONE.lock().unwrap_or_else(PoisonError::into_inner))
}

/// The program under test: `TRACER_BIN`, or the one built beside this test.
#[track_caller]
pub fn binary() -> PathBuf {
    let named = env::var_os("TRACER_BIN").map(PathBuf::from);
    let path = named.unwrap_or_else(|| {
        let test = env::current_exe().expect("a test has a program file");
        // PROFILE/deps/TEST
        test.ancestors().nth(2).expect("a test lies in its profile's folder").join("tracer")
    });
    assert!(path.is_file(), "{} does not exist: run `cargo build -p tracer` first", path.display());
    path
}

/// `tracer` with these arguments, called by root without sudo and without a terminal.
pub fn tracer<A: AsRef<std::ffi::OsStr>>(arguments: impl IntoIterator<Item = A>) -> Command {
    let mut command = Command::new(binary());
    command.args(arguments).env_remove("SUDO_UID").env_remove("SUDO_GID").stdin(Stdio::null());
    command
}

/// What a finished program said.
#[derive(Debug)]
pub struct Said {
    /// Exit code; 128 and more: the signal that ended it.
    pub code: i32,
    /// Results.
    pub stdout: String,
    /// Progress, notes, errors.
    pub stderr: String,
}

impl From<Output> for Said {
    fn from(output: Output) -> Self {
        let status = output.status;
        Self {
            code: status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default()),
            stdout: String::from_utf8(output.stdout).expect("tracer prints text"),
            stderr: String::from_utf8(output.stderr).expect("tracer prints text"),
        }
    }
}

impl Said {
    /// All of the result as one line: no sentence of it is cut by a line end.
    pub fn unwrapped(&self) -> String {
        words(&self.stdout)
    }

    /// The result as JSON.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("no JSON ({error}): {self:#?}"))
    }

    /// It held, and nothing is to be said against it.
    #[track_caller]
    pub fn assert_held(&self) {
        assert_eq!(self.code, 0, "{self:#?}");
    }

    /// No line of the result is wider than the promise.
    #[track_caller]
    pub fn assert_fits(&self) {
        for line in self.stdout.lines() {
            assert!(line.chars().count() <= COLUMNS, "wider than {COLUMNS} columns: {line:?}");
        }
    }

    /// It was refused as bad input: exit 2, no result, a clear message that holds all of `parts`, no panic.
    #[track_caller]
    pub fn assert_refused(&self, parts: &[&str]) {
        assert_eq!(self.code, 2, "{self:#?}");
        assert_eq!(self.stdout, "", "{self:#?}");
        for part in parts {
            assert!(words(&self.stderr).contains(part), "`{part}` is missing: {self:#?}");
        }
        for noise in ["panicked", "RUST_BACKTRACE", "Stack backtrace", "stack backtrace"] {
            assert!(!self.stderr.contains(noise), "{self:#?}");
        }
    }
}

/// Text with every run of white space made one blank.
pub fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Runs a command to its end, at most a minute.
#[track_caller]
pub fn finish(command: &mut Command) -> Said {
    start(command).said()
}

/// Runs `tracer` with these arguments to its end.
#[track_caller]
pub fn run<A: AsRef<std::ffi::OsStr>>(arguments: impl IntoIterator<Item = A>) -> Said {
    finish(&mut tracer(arguments))
}

/// A program that runs meanwhile; killed when dropped.
pub struct Running(Option<Child>);

/// Starts a command whose output is kept.
#[track_caller]
pub fn start(command: &mut Command) -> Running {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    Running(Some(child.unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"))))
}

impl Running {
    fn child(&mut self) -> &mut Child {
        self.0.as_mut().expect("it runs")
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.0.as_ref().expect("it runs").id()
    }

    /// It has not ended.
    pub fn runs(&mut self) -> bool {
        self.child().try_wait().expect("a child can be waited for").is_none()
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.pid() as i32).expect("pids are above zero");
        kill_process(pid, signal).expect("a child may be signalled");
    }

    /// Waits for its end, and gives what it said.
    #[track_caller]
    pub fn said(self) -> Said {
        self.said_within(2 * PATIENCE)
    }

    /// As [`said`](Self::said), with another patience.
    #[track_caller]
    pub fn said_within(mut self, patience: Duration) -> Said {
        let child = self.0.take().expect("it runs");
        let pid = Pid::from_raw(child.id() as i32).expect("pids are above zero");
        let (done, ended) = std::sync::mpsc::channel();
        let reader = thread::spawn(move || {
            let output = child.wait_with_output();
            let _ = done.send(());
            output
        });
        if ended.recv_timeout(patience).is_err() {
            let _ = kill_process(pid, Signal::KILL);
            panic!("it did not end by itself: {:#?}", reader.join());
        }
        reader.join().expect("reading does not panic").expect("its output can be read").into()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Waits until a condition holds.
#[track_caller]
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        thread::sleep(PAUSE);
    }
}

/// A process lives and is no zombie.
pub fn lives(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap_or_default().starts_with(" Z"))
}

/// Processes whose command line holds `part`.
pub fn processes_with(part: &str) -> Vec<u32> {
    let folders = Path::new("/proc").read_dir().expect("/proc is there").flatten();
    folders
        .filter_map(|folder| folder.file_name().to_str()?.parse().ok())
        .filter(|pid| {
            let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&command).replace('\0', " ").contains(part) && lives(*pid)
        })
        .collect()
}

/// Processes started by `pid`, and by those.
pub fn descendants(pid: u32) -> Vec<u32> {
    let tasks = Path::new("/proc").join(pid.to_string()).join("task");
    let threads = tasks.read_dir().into_iter().flatten().flatten();
    let children: Vec<u32> = threads
        .filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok())
        .flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>())
        .collect();
    children.iter().flat_map(|&child| [vec![child], descendants(child)].concat()).collect()
}

/// The built-in server as somebody else's: not started by the `tracer` that traces it.
pub struct Server {
    child: Child,
    /// Its port on 127.0.0.1.
    pub port: u16,
}

impl Server {
    /// Starts it on a free port, off the CPU of the driver, and returns when it listens.
    #[track_caller]
    pub fn start() -> Self {
        let mut child = tracer(["serve", "--port", "0"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("the built-in server can be started");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("it is piped");
        BufReader::new(stdout).read_line(&mut line).expect("it says where it listens");
        let port = line.trim().rsplit(':').next().and_then(|port| port.parse().ok());
        let pid = Pid::from_raw(child.id() as i32);
        let mut cpus = CpuSet::new();
        cpus.set(*cores::allowed().expect("the CPUs can be read").last().expect("there is one"));
        sched_setaffinity(pid, &cpus).expect("a child can be pinned");
        Self { child, port: port.unwrap_or_else(|| panic!("no port in {line:?}")) }
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The URL of a path.
    pub fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    /// It answers as it should.
    pub fn answers(&self) -> bool {
        get(self.port, "/").is_ok_and(|answer| answer.ends_with(r#"{"message":"hello"}"#))
    }

    /// Ends it at once.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// One request on a connection of its own; the whole response.
pub fn get(port: u16, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

//! A PostgreSQL of our own: Debian's program, a folder in /tmp, an unprivileged user, gone when it is dropped.

use std::{
    cmp::Ordering,
    fs,
    io::{BufRead, BufReader},
    net::{Ipv4Addr, TcpListener, TcpStream},
    os::unix::fs::chown,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// Longest wait for it to answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// The user of Debian's package: PostgreSQL refuses to run as root.
const USER: &str = "postgres";
/// Where Debian puts each version's programs.
const PROGRAMS: &str = "/usr/lib/postgresql";

/// A server on a port of its own.
pub struct Postgres {
    child: Child,
    /// Where it listens.
    pub port: u16,
    _folder: TempDir,
}

impl Postgres {
    /// Makes an empty database and serves it.
    pub fn start() -> Result<Self> {
        let folder = TempDir::with_prefix("tracer-postgres-").context("cannot make a folder")?;
        let (user, group) = ids(USER)?;
        chown(folder.path(), Some(user), Some(group))?;
        let data = folder.path().join("data");
        let made = as_user("initdb")?
            .args(["--auth=trust", "--no-sync", "--no-instructions", "--pgdata"])
            .arg(&data)
            .output()?;
        ensure!(made.status.success(), "initdb failed: {}", String::from_utf8_lossy(&made.stderr));
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let mut child = as_user("postgres")?
            .arg("-D")
            .arg(&data)
            .args(["-p", &port.to_string(), "-c", "fsync=off", "-c", "listen_addresses=127.0.0.1"])
            .args(["-c", "unix_socket_directories="])
            .stderr(Stdio::piped())
            .spawn()
            .context("cannot start postgres")?;
        let log = child.stderr.take().context("it is piped")?;
        let postgres = Self { child, port, _folder: folder };
        postgres.until_ready(BufReader::new(log))?;
        Ok(postgres)
    }

    /// For clients.
    pub fn url(&self) -> String {
        format!("postgres://{USER}@127.0.0.1:{}/postgres", self.port)
    }

    fn until_ready(&self, log: impl BufRead + Send + 'static) -> Result<()> {
        // Read to its end, or the server would wait for a reader.
        let (said, lines) = std::sync::mpsc::channel();
        std::thread::spawn(move || log.lines().map_while(Result::ok).try_for_each(|line| said.send(line)));
        let deadline = Instant::now() + PATIENCE;
        let mut told = Vec::new();
        while let Ok(line) = lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            if line.contains("ready to accept connections") {
                std::thread::spawn(move || lines.iter().for_each(drop));
                TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).context("it does not accept")?;
                return Ok(());
            }
            told.push(line);
        }
        bail!("PostgreSQL was not ready: {}", told.join("\n"))
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // SIGQUIT: at once, without a checkpoint.
        if let Some(pid) = Pid::from_raw(self.child.id() as i32) {
            let _ = kill_process(pid, Signal::QUIT);
        }
        let _ = self.child.wait();
    }
}

/// One of its programs, to be run as its user.
fn as_user(program: &str) -> Result<Command> {
    let path = programs()?.join(program);
    let mut command = Command::new("setpriv");
    let options = ["--reuid", USER, "--regid", USER, "--clear-groups", "--pdeathsig", "QUIT"];
    command.args(options).arg(path).current_dir("/");
    Ok(command)
}

/// The programs of the newest version installed.
fn programs() -> Result<PathBuf> {
    let installed = fs::read_dir(PROGRAMS).into_iter().flatten().flatten();
    let folders = installed.map(|entry| entry.path().join("bin"));
    let version = |bin: &PathBuf| bin.parent()?.file_name()?.to_str()?.parse::<f64>().ok();
    let whole = folders.filter(|bin| bin.join("initdb").is_file());
    let newest = whole.max_by(|a, b| version(a).partial_cmp(&version(b)).unwrap_or(Ordering::Equal));
    newest.context("PostgreSQL is missing: `apt-get install postgresql`, or run `cargo xtask test`")
}

/// User and group id of a name.
fn ids(name: &str) -> Result<(u32, u32)> {
    let users = fs::read_to_string(Path::new("/etc/passwd"))?;
    let line = users.lines().find(|line| line.split(':').next() == Some(name));
    let mut fields = line.with_context(|| format!("there is no user `{name}`"))?.split(':').skip(2);
    let mut number = || fields.next().and_then(|id| id.parse().ok()).context("a user has two numbers");
    Ok((number()?, number()?))
}

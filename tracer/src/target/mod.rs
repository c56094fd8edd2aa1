//! The process under test: start it fresh, wait until it answers, account for it, stop it.
//!
//! Only processes started here are ever signalled.

pub mod cores;
pub mod cpu;
pub mod environment;
mod launch;
mod log;
pub mod processes;
pub mod ready;
pub mod throttle;
pub mod user;

use std::collections::BTreeMap;
use std::ffi::{CString, OsString};
use std::fs::File;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus, waitid};
use tempfile::TempDir;

use crate::scenario::Server;
use launch::{Gate, Guardian, Plan, fork_paused, signal_group};
use user::RunAs;

/// How long a server may take to end by itself once asked.
const STOP_PATIENCE: Duration = Duration::from_secs(3);

/// How a target is started.
#[derive(Clone, Debug, Default)]
pub struct SpawnOptions {
    /// CPU it is pinned to from before its first instruction.
    pub core: Option<usize>,
    /// User it runs as; `None`: as `tracer` does.
    pub run_as: Option<RunAs>,
}

/// A server process started here, with all its children in a process group of their own. Dropping stops it.
pub struct Target {
    name: String,
    setup: Option<String>,
    pid: Pid,
    port: u16,
    stop_signal: Signal,
    gate: Option<Gate>,
    exit_status: Option<ExitStatus>,
    log: PathBuf,
    guardian: Option<Guardian>,
    _folder: TempDir,
}

impl Target {
    /// Starts a server and lets it run.
    pub fn spawn(server: &Server, options: &SpawnOptions) -> Result<Self> {
        let mut target = Self::spawn_paused(server, options)?;
        target.release()?;
        Ok(target)
    }

    /// Makes the process, which waits before its exec until it is released: time to register its pid.
    pub fn spawn_paused(server: &Server, options: &SpawnOptions) -> Result<Self> {
        server.check_installed()?;
        let port = if server.port == 0 { ready::free_port()? } else { server.port };
        ready::check_port_free(port)?;
        let folder = TempDir::with_prefix("tracer-")
            .context("cannot make a temporary folder; set TMPDIR to a writable one")?;
        let log = folder.path().join("log");
        let plan = plan(server, options, port, folder.path(), &log)?;
        let (pid, gate) = fork_paused(&plan)?;
        // Without a guardian the gate is dropped here, and the child behind it ends.
        let guardian = Guardian::of(pid, folder.path())?;
        Ok(Self {
            name: server.name.clone(),
            setup: server.setup.clone(),
            pid,
            port,
            stop_signal: server.stop,
            gate: Some(gate),
            exit_status: None,
            log,
            guardian: Some(guardian),
            _folder: folder,
        })
    }

    /// Lets a paused target become its program; returns once it has.
    pub fn release(&mut self) -> Result<()> {
        let Some(gate) = self.gate.take() else { return Ok(()) };
        gate.open().with_context(|| format!("the server `{}` did not start", self.name))
    }

    /// Its process id; also its process group's.
    pub fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get() as u32
    }

    /// The port it was told to listen on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its living processes: itself and its descendants.
    pub fn family(&self) -> Vec<u32> {
        processes::family(&[self.pid()])
    }

    /// The last lines it printed, ready to stand under an error.
    pub fn log_tail(&self) -> String {
        log::tail(&self.log)
    }

    /// How it ended; `None` while it runs. Until it is stopped it stays a zombie, so that its pid is not reused.
    pub fn exit_status(&mut self) -> Option<ExitStatus> {
        if self.exit_status.is_none() {
            let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
            self.exit_status = waitid(WaitId::Pid(self.pid), look).ok().flatten().map(exit_status);
        }
        self.exit_status
    }

    /// That it ended by itself, how, and its last words; `None` while it runs.
    pub fn exit_told(&mut self) -> Option<String> {
        let status = self.exit_status()?;
        Some(format!("the server `{}` ended by itself ({status}){}", self.name, self.log_tail()))
    }

    /// Waits until it answers on its port, with any status below 500.
    pub fn wait_ready(&mut self, path: &str, timeout: Duration) -> Result<()> {
        let deadline = Instant::now() + timeout;
        let mut pause = Duration::from_millis(1);
        loop {
            if let Some(status) = self.exit_status() {
                let setup = self.setup.as_ref().map(|setup| format!("; if it is not set up yet: {setup}"));
                let fix = setup.unwrap_or_default();
                bail!(
                    "the server `{}` ended before it answered ({status}){fix}{}",
                    self.name,
                    self.log_tail()
                );
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let answer = match ready::ask(self.port, path, left.max(Duration::from_millis(1))) {
                Ok(status) if status < 500 => return self.check_listener(),
                Ok(status) => format!("its last answer was {status}"),
                Err(error) => format!("the last try: {error}"),
            };
            if left.is_zero() {
                return Err(self.not_ready(path, timeout, &answer));
            }
            std::thread::sleep(pause.min(left));
            pause = (pause * 2).min(Duration::from_millis(10));
        }
    }

    /// The answer must have come from the target: somebody else may have taken the port first.
    fn check_listener(&self) -> Result<()> {
        if processes::listening_ports(&self.family()).contains(&self.port) {
            return Ok(());
        }
        match processes::listener_of(self.port) {
            Some(other) => bail!(
                "port {} is answered by process {} ({}), not by the server `{}`; stop it, or choose another port{}",
                self.port,
                other.process_id,
                other.name,
                self.name,
                self.log_tail()
            ),
            None => Ok(()),
        }
    }

    fn not_ready(&self, path: &str, timeout: Duration, answer: &str) -> anyhow::Error {
        let (name, port) = (&self.name, self.port);
        let ports: Vec<String> = processes::listening_ports(&self.family())
            .iter()
            .filter(|p| **p != port)
            .map(u16::to_string)
            .collect();
        let fix = if ports.is_empty() {
            "see what it printed, or raise `ready_timeout`".to_owned()
        } else {
            format!("it listens on {} instead: make it use PORT or {{port}}", ports.join(", "))
        };
        let tail = self.log_tail();
        anyhow!(
            "the server `{name}` did not answer GET {path} on port {port} within {timeout:?} ({answer}); {fix}{tail}"
        )
    }

    /// Ends it and its process group: by its own signal, after three seconds by SIGKILL.
    pub fn stop(&mut self) {
        // The guardian is there exactly as long as the group may be signalled.
        let Some(guardian) = self.guardian.take() else { return };
        let paused = self.gate.take().is_some();
        signal_group(self.pid, if paused { Signal::KILL } else { self.stop_signal });
        if !self.wait_gone(STOP_PATIENCE) {
            signal_group(self.pid, Signal::KILL);
            self.wait_gone(STOP_PATIENCE);
        }
        drop(guardian);
        let _ = waitid(WaitId::Pid(self.pid), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
    }

    fn wait_gone(&mut self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        while self.exit_status().is_none() || processes::group_lives(self.pid()) {
            if Instant::now() > deadline {
                return false;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        true
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        self.stop();
    }
}

fn exit_status(status: WaitIdStatus) -> ExitStatus {
    let code = status.exit_status().map(|code| code << 8);
    ExitStatus::from_raw(code.or(status.terminating_signal()).unwrap_or_default())
}

fn plan(server: &Server, options: &SpawnOptions, port: u16, folder: &Path, log: &Path) -> Result<Plan> {
    let log_file = File::options().create(true).append(true).open(log);
    let log_file = log_file.with_context(|| format!("cannot write the server's log {}", log.display()))?;
    if let Some(user) = &options.run_as {
        user::give(folder, user.uid, user.gid)?;
    }
    let absolute =
        |path: &Path| std::path::absolute(path).map(OsString::from).context("cannot tell the current folder");
    let arguments =
        server.command.iter().map(|argument| argument.replace("{port}", &port.to_string()).into());
    Ok(Plan {
        program: c_string(absolute(&server.program()?)?)?,
        arguments: arguments.map(c_string).collect::<Result<_>>()?,
        environment: environment(server, options, port, folder)
            .into_iter()
            .map(|(mut variable, value)| {
                variable.push("=");
                variable.push(value);
                c_string(variable)
            })
            .collect::<Result<_>>()?,
        cwd: c_string(absolute(&server.cwd)?)?,
        core: options.core,
        run_as: options.run_as.clone(),
        log: log_file,
    })
}

fn environment(
    server: &Server,
    options: &SpawnOptions,
    port: u16,
    folder: &Path,
) -> BTreeMap<OsString, OsString> {
    let mut environment: BTreeMap<OsString, OsString> = std::env::vars_os().collect();
    if let Some(user) = &options.run_as {
        environment.insert("HOME".into(), user.home.clone().into());
        environment.extend(["USER", "LOGNAME"].map(|variable| (variable.into(), user.name.clone().into())));
    }
    environment.extend(server.env.iter().map(|(variable, value)| (variable.into(), value.into())));
    environment.insert("PORT".into(), port.to_string().into());
    environment.insert("TRACER_TMP".into(), folder.into());
    environment
}

fn c_string(text: OsString) -> Result<CString> {
    let shown = text.to_string_lossy().into_owned();
    CString::new(text.into_vec()).map_err(|_| anyhow!("{shown:?} has a zero byte in it; remove it"))
}

#[cfg(test)]
mod tests;

//! Two moments of a start, stamped by the kernel: its exec, and its port beginning to listen.
//!
//! They come from tracepoints read through a trace instance of our own, whose clock is the one of everything else here.
//! The instance is gone when this is dropped; one that a killed tracer left is removed by the next.

use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::target::processes;

/// Where the trace file system may be.
const PLACES: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
/// What our instances' names begin with; their process follows.
const PREFIX: &str = "tracer-start-";

/// A trace instance that sees one process and one port.
pub(super) struct Stamps {
    instance: PathBuf,
    pipe: File,
    unread: String,
}

/// The moments, `CLOCK_MONOTONIC` nanoseconds, to the microsecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moments {
    pub exec_ns: u64,
    pub listen_ns: u64,
}

impl Stamps {
    /// Begins to watch a process that has not executed its program yet, and the port it will listen on.
    pub fn watch(pid: u32, port: u16) -> Result<Self> {
        let root = PLACES.iter().map(Path::new).find(|place| place.join("instances").is_dir()).context(
            "the trace file system is not mounted; mount it: mount -t tracefs tracefs /sys/kernel/tracing",
        )?;
        remove_orphans(&root.join("instances"));
        let instance = root.join("instances").join(format!("{PREFIX}{}", std::process::id()));
        fs::create_dir(&instance).with_context(|| format!("cannot make {}", instance.display()))?;
        match set_up(&instance, pid, port) {
            Ok(pipe) => Ok(Self { instance, pipe, unread: String::new() }),
            Err(error) => {
                let _ = fs::remove_dir(&instance);
                Err(error)
            }
        }
    }

    /// Waits until it listens.
    pub fn listening(&mut self, patience: Duration) -> Result<Moments> {
        let deadline = Instant::now() + patience;
        let (mut exec_ns, mut listen_ns) = (None, None);
        loop {
            for line in self.lines()? {
                match event(&line) {
                    // A shell that becomes the server executes twice: the first counts.
                    Some((ns, "sched_process_exec")) => exec_ns = exec_ns.or(Some(ns)),
                    Some((ns, "inet_sock_set_state")) => listen_ns = listen_ns.or(Some(ns)),
                    _ => {}
                }
            }
            if let (Some(exec_ns), Some(listen_ns)) = (exec_ns, listen_ns) {
                return Ok(Moments { exec_ns, listen_ns });
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let missing = if exec_ns.is_none() { "its exec" } else { "that it listens" };
                bail!("the kernel did not report {missing} within {patience:?}");
            }
            let left = Timespec::try_from(left).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
            poll(&mut [PollFd::from_borrowed_fd(self.pipe.as_fd(), PollFlags::IN)], Some(&left))
                .or_else(|error| if error == rustix::io::Errno::INTR { Ok(0) } else { Err(error) })?;
        }
    }

    /// The whole lines that have come.
    fn lines(&mut self) -> Result<Vec<String>> {
        let mut bytes = [0; 4096];
        match self.pipe.read(&mut bytes) {
            Ok(count) => self.unread.push_str(&String::from_utf8_lossy(&bytes[..count])),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error).context("cannot read the kernel's trace"),
        }
        let whole = self.unread.rfind('\n').map_or(0, |end| end + 1);
        let rest = self.unread.split_off(whole);
        let lines = std::mem::replace(&mut self.unread, rest);
        Ok(lines.lines().map(str::to_owned).collect())
    }
}

impl Drop for Stamps {
    fn drop(&mut self) {
        let _ = fs::write(self.instance.join("events/enable"), "0");
        // The open pipe holds the instance: another file takes its place.
        if let Ok(null) = File::open("/dev/null") {
            self.pipe = null;
        }
        let _ = fs::remove_dir(&self.instance);
    }
}

fn set_up(instance: &Path, pid: u32, port: u16) -> Result<File> {
    let set = |file: &str, text: &str| {
        let path = instance.join(file);
        fs::write(&path, text).with_context(|| format!("cannot write `{text}` to {}", path.display()))
    };
    set("trace_clock", "mono")?;
    set("events/sched/sched_process_exec/filter", &format!("pid == {pid}"))?;
    // TCP_LISTEN is 10.
    set("events/sock/inet_sock_set_state/filter", &format!("newstate == 10 && sport == {port}"))?;
    set("events/sched/sched_process_exec/enable", "1")?;
    set("events/sock/inet_sock_set_state/enable", "1")?;
    let pipe = instance.join("trace_pipe");
    let mut options = File::options();
    options.read(true).custom_flags(libc::O_NONBLOCK);
    options.open(&pipe).with_context(|| format!("cannot open {}", pipe.display()))
}

/// Removes the instances of processes that are gone.
fn remove_orphans(instances: &Path) {
    for entry in instances.read_dir().into_iter().flatten().flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.parse().ok());
        if pid.is_some_and(|pid| !processes::exists(pid)) {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// Moment and name of an event, from a line such as
/// `node-812 [001] ..... 93.250601: inet_sock_set_state: family=AF_INET ...`.
fn event(line: &str) -> Option<(u64, &str)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    words.windows(2).find_map(|pair| {
        let [moment, name] = pair else { return None };
        let name = name.strip_suffix(':').filter(|name| name.contains('_'))?;
        let (seconds, fraction) = moment.strip_suffix(':')?.split_once('.')?;
        let fraction_ns = fraction.parse::<u64>().ok()? * 10u64.pow(9u32.checked_sub(fraction.len() as u32)?);
        Some((seconds.parse::<u64>().ok()? * 1_000_000_000 + fraction_ns, name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_read_from_its_line() {
        let line =
            "      MainThread-812     [001] .....    93.250601: inet_sock_set_state: family=AF_INET sport=80";
        assert_eq!(event(line), Some((93_250_601_000, "inet_sock_set_state")));
        let named = "  a b: c_d: 1.5: x-9 [000] d..2. 12.000001: sched_process_exec: filename=/bin/a pid=9";
        assert_eq!(event(named).map(|(_, name)| name), Some("sched_process_exec"));
        assert_eq!(event("CPU:0 [LOST 3 EVENTS]"), None);
    }
}

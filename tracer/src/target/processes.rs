//! Questions about processes, answered from /proc: who lives, whose child is whose, who listens where.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;

use anyhow::{Context, Result, bail};
use procfs::ProcError;
use procfs::net::TcpState;
use procfs::process::{FDTarget, Process, Stat, all_processes};

use crate::recording::TracedProcess;

/// The process lives. A zombie does not.
pub fn exists(pid: u32) -> bool {
    stat(pid).is_ok_and(|stat| lives(&stat))
}

/// What the process is; the error for a dead or foreign pid is a sentence with the fix.
pub fn describe(pid: u32) -> Result<TracedProcess> {
    let list = "list processes with `ps -e`, or find a server's by `pgrep NAME`";
    let process = match stat(pid) {
        Ok(stat) if lives(&stat) => stat,
        Ok(_) => bail!("process {pid} has exited and only awaits its parent; {list}"),
        Err(ProcError::NotFound(_)) => bail!("no process {pid}; {list}"),
        Err(error) => return Err(error).with_context(|| format!("cannot read process {pid}; {list}")),
    };
    let command = Process::new(pid as i32).and_then(|process| process.cmdline()).unwrap_or_default();
    Ok(TracedProcess { process_id: pid, name: process.comm, command })
}

/// The process and its descendants, as a recording lists them; those that end meanwhile are left out.
pub fn processes(pid: u32) -> Vec<TracedProcess> {
    family(&[pid]).into_iter().filter_map(|pid| describe(pid).ok()).collect()
}

/// The living children of a process, their children, and so on, without itself.
pub fn descendants(pid: u32) -> Vec<u32> {
    let mut family = family(&[pid]);
    family.retain(|member| *member != pid);
    family
}

/// The living ones of `pids` and all their living descendants, each once, ascending.
pub fn family(pids: &[u32]) -> Vec<u32> {
    let parents: HashMap<u32, u32> =
        all_stats().into_iter().filter(lives).map(|stat| (stat.pid as u32, stat.ppid as u32)).collect();
    let mut family: HashSet<u32> = pids.iter().copied().filter(|pid| parents.contains_key(pid)).collect();
    loop {
        let is_new_child = |(pid, parent): &(&u32, &u32)| family.contains(*parent) && !family.contains(*pid);
        let children: Vec<u32> = parents.iter().filter(is_new_child).map(|(pid, _)| *pid).collect();
        if children.is_empty() {
            break;
        }
        family.extend(children);
    }
    let mut family: Vec<u32> = family.into_iter().collect();
    family.sort_unstable();
    family
}

/// Some process of this process group lives.
pub fn group_lives(group: u32) -> bool {
    all_stats().iter().any(|stat| stat.pgrp as u32 == group && lives(stat))
}

/// When the process started, in clock ticks since boot: with its pid, an identity that is not reused.
pub fn started_ticks(pid: u32) -> Option<u64> {
    stat(pid).ok().filter(lives).map(|stat| stat.starttime)
}

/// Page faults of processes since they began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Served from memory.
    pub minor: u64,
    /// Served by reading a disk.
    pub major: u64,
}

/// Page faults of these processes together.
pub fn faults(pids: &[u32]) -> Faults {
    pids.iter().filter_map(|pid| stat(*pid).ok()).fold(Faults::default(), |sum, stat| Faults {
        minor: sum.minor + stat.minflt,
        major: sum.major + stat.majflt,
    })
}

/// The most memory each of these processes ever had resident, together. Pages they share count once for each.
pub fn peak_rss_bytes(pids: &[u32]) -> u64 {
    let peak_kib = |pid: &u32| Process::new(*pid as i32).and_then(|process| process.status()).ok()?.vmhwm;
    pids.iter().filter_map(peak_kib).sum::<u64>() * 1024
}

/// Ports on which one of `pids` listens for TCP, ascending.
pub fn listening_ports(pids: &[u32]) -> Vec<u16> {
    let mut ports: Vec<u16> = pids
        .iter()
        .flat_map(|pid| {
            let inodes = socket_inodes(*pid);
            listeners(*pid).into_iter().filter(move |(_, inode)| inodes.contains(inode))
        })
        .map(|(address, _)| address.port())
        .collect();
    ports.sort_unstable();
    ports.dedup();
    ports
}

/// A process that listens on the port, in this network namespace, if it can be seen.
pub fn listener_of(port: u16) -> Option<TracedProcess> {
    let inodes: HashSet<u64> = listeners(std::process::id())
        .into_iter()
        .filter_map(|(address, inode)| (address.port() == port).then_some(inode))
        .collect();
    let holds = |pid: &u32| !inodes.is_disjoint(&socket_inodes(*pid));
    all_stats().into_iter().map(|stat| stat.pid as u32).find(holds).and_then(|pid| describe(pid).ok())
}

/// Listening TCP sockets of the network namespace that a process is in, with their inodes.
fn listeners(pid: u32) -> Vec<(SocketAddr, u64)> {
    let Ok(process) = Process::new(pid as i32) else { return Vec::new() };
    [process.tcp(), process.tcp6()]
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.state == TcpState::Listen)
        .map(|entry| (entry.local_address, entry.inode))
        .collect()
}

fn socket_inodes(pid: u32) -> HashSet<u64> {
    let Ok(fds) = Process::new(pid as i32).and_then(|process| process.fd()) else { return HashSet::new() };
    fds.flatten()
        .filter_map(|fd| match fd.target {
            FDTarget::Socket(inode) => Some(inode),
            _ => None,
        })
        .collect()
}

fn stat(pid: u32) -> Result<Stat, ProcError> {
    Process::new(i32::try_from(pid).map_err(|_| ProcError::NotFound(None))?)?.stat()
}

fn all_stats() -> Vec<Stat> {
    all_processes()
        .map(|all| all.flatten().filter_map(|process| process.stat().ok()).collect())
        .unwrap_or_default()
}

fn lives(stat: &Stat) -> bool {
    !matches!(stat.state, 'Z' | 'X')
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::process::Command;
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn dead_pids_get_a_sentence() {
        let mut child = Command::new("true").spawn().unwrap();
        let pid = child.id();
        child.wait().unwrap();
        assert!(!exists(pid));
        assert!(
            describe(pid).unwrap_err().to_string().starts_with(&format!("no process {pid}; list processes"))
        );
        assert!(describe(u32::MAX).unwrap_err().to_string().starts_with("no process 4294967295;"));
    }

    #[test]
    fn a_process_is_described() {
        let mut child = Command::new("sleep").arg("100").spawn().unwrap();
        // `spawn` may return when the exec has begun but the arguments are not laid out yet.
        let deadline = Instant::now() + Duration::from_secs(20);
        while describe(child.id()).unwrap().command != ["sleep", "100"] {
            assert!(Instant::now() < deadline);
        }
        let described = describe(child.id()).unwrap();
        assert!(exists(child.id()));
        assert_eq!(described.name, "sleep");
        assert_eq!(processes(child.id()), [described]);
        assert!(descendants(std::process::id()).contains(&child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn listening_ports_are_those_of_the_process() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(listening_ports(&[std::process::id()]).contains(&port));
        assert!(!listening_ports(&[1]).contains(&port));
        assert_eq!(listener_of(port).unwrap().process_id, std::process::id());
        drop(listener);
        assert!(!listening_ports(&[std::process::id()]).contains(&port));
    }
}

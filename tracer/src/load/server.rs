//! The server's CPU during a run, where the server is a process of this machine.

use std::collections::HashMap;
use std::time::Instant;

use procfs::process::Process;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity};

use super::plan::Endpoint;
use crate::target::{cpu::CpuAccount, processes};

/// A process that listens where the load goes, with its family.
pub struct ServerWatch {
    pid: u32,
    name: String,
    cores: Vec<usize>,
    account: CpuAccount,
    began: Instant,
    cpu_ns: u64,
    /// CPU of each thread.
    threads_ns: HashMap<i32, u64>,
}

/// What the server used.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServerUse {
    /// The process that listens.
    pub pid: u32,
    /// Its name.
    pub name: String,
    /// CPUs it may run on.
    pub cores: Vec<usize>,
    /// CPU nanoseconds of it and its children.
    pub cpu_ns: u64,
    /// Nanoseconds of the run.
    pub elapsed_ns: u64,
    /// CPU nanoseconds of its busiest thread.
    pub busiest_thread_ns: u64,
}

impl ServerUse {
    /// The larger of two shares: that of its busiest thread in one core, that of all threads in all cores allowed.
    pub fn busy(&self) -> f64 {
        let elapsed_ns = self.elapsed_ns.max(1) as f64;
        let of_all = self.cpu_ns as f64 / elapsed_ns / self.cores.len().max(1) as f64;
        of_all.max(self.busiest_thread_ns as f64 / elapsed_ns)
    }
}

impl ServerWatch {
    /// `None`: it is on another machine, behind a UNIX socket, or cannot be seen.
    pub fn find(endpoint: &Endpoint) -> Option<Self> {
        let Endpoint::Tcp(address) = endpoint else { return None };
        if !address.ip().is_loopback() {
            return None;
        }
        let process = processes::listener_of(address.port())?;
        let pid = process.process_id;
        let set = sched_getaffinity(Pid::from_raw(pid as i32)).ok()?;
        let cores = (0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect();
        let account = CpuAccount::new(&[pid]);
        let name = process.name;
        Some(Self { pid, name, cores, account, began: Instant::now(), cpu_ns: 0, threads_ns: HashMap::new() })
    }

    /// CPUs it may run on.
    pub fn cores(&self) -> &[usize] {
        &self.cores
    }

    /// The run begins.
    pub fn begin(&mut self) {
        self.cpu_ns = self.account.sample().cpu_ns;
        self.threads_ns = threads_ns(self.pid);
        self.began = Instant::now();
    }

    /// The run is over.
    pub fn end(mut self) -> ServerUse {
        let elapsed_ns = self.began.elapsed().as_nanos() as u64;
        let used = threads_ns(self.pid).into_iter().map(|(thread, cpu_ns)| {
            cpu_ns.saturating_sub(self.threads_ns.get(&thread).copied().unwrap_or_default())
        });
        ServerUse {
            busiest_thread_ns: used.max().unwrap_or_default(),
            cpu_ns: self.account.sample().cpu_ns.saturating_sub(self.cpu_ns),
            pid: self.pid,
            name: self.name,
            cores: self.cores,
            elapsed_ns,
        }
    }
}

/// CPU of every thread of a process and its children.
fn threads_ns(pid: u32) -> HashMap<i32, u64> {
    let tasks = |pid: u32| Process::new(pid as i32).and_then(|process| process.tasks());
    processes::family(&[pid])
        .into_iter()
        .filter_map(|pid| tasks(pid).ok())
        .flatten()
        .flatten()
        .filter_map(|task| Some((task.tid, task.schedstat().ok()?.sum_exec_runtime)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_busier_of_thread_and_cores_counts() {
        let one = ServerUse {
            cores: vec![0, 1],
            cpu_ns: 100,
            elapsed_ns: 100,
            busiest_thread_ns: 90,
            ..ServerUse::default()
        };
        assert_eq!(one.busy(), 0.9);
        assert_eq!(ServerUse { cpu_ns: 196, ..one }.busy(), 0.98);
    }

    #[test]
    fn a_listener_of_this_machine_is_found() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut watch = ServerWatch::find(&listener.local_addr().unwrap().into()).unwrap();
        watch.begin();
        let begun = Instant::now();
        while begun.elapsed().as_millis() < 20 {}
        let used = watch.end();
        assert_eq!(used.pid, std::process::id());
        assert!(used.cpu_ns > 0 && used.busiest_thread_ns > 0, "{used:?}");
        assert!(ServerWatch::find(&Endpoint::Unix("/nowhere".into())).is_none());
    }
}

//! CPU, run-queue time and memory of a process family, as the kernel accounts for them: the outside sources that
//! traced figures must agree with.

use std::collections::HashMap;

use procfs::{
    CurrentSI, KernelStats,
    process::{Process, Stat},
};

use super::processes::{family, started_ticks};

/// Nanoseconds on CPUs and waiting for them, since the processes began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTimes {
    /// On a CPU.
    pub cpu_ns: u64,
    /// Runnable, waiting for a CPU.
    pub run_delay_ns: u64,
}

impl CpuTimes {
    /// What was added after an earlier sample of the same account.
    pub fn since(self, earlier: Self) -> Self {
        Self {
            cpu_ns: self.cpu_ns.saturating_sub(earlier.cpu_ns),
            run_delay_ns: self.run_delay_ns.saturating_sub(earlier.run_delay_ns),
        }
    }
}

/// The account of some processes and all descendants they ever had at a sample.
///
/// CPU is each process's CPU clock: the sum schedstat shows, with threads that have exited and without its lag of up
/// to a tick for running ones. Run delay is the sum of its threads' schedstat; what an exiting thread added after
/// the last sample is not in it.
#[derive(Debug, Default)]
pub struct CpuAccount {
    members: HashMap<u32, u64>,
    exited: u64,
    cpu: Sum,
    run_delay: Sum,
}

impl CpuAccount {
    /// An account of these processes and their descendants.
    pub fn new(pids: &[u32]) -> Self {
        let members = pids.iter().filter_map(|pid| Some((*pid, started_ticks(*pid)?))).collect();
        Self { members, ..Self::default() }
    }

    /// Reads the counters of all that live, and gives the totals. They never fall.
    pub fn sample(&mut self) -> CpuTimes {
        let before = self.members.len();
        self.members.retain(|pid, started| started_ticks(*pid) == Some(*started));
        self.exited += (before - self.members.len()) as u64;
        let known: Vec<u32> = self.members.keys().copied().collect();
        for pid in family(&known) {
            if let Some(started) = started_ticks(pid) {
                self.members.insert(pid, started);
                self.read(pid);
            }
        }
        CpuTimes { cpu_ns: self.cpu.total_ns(), run_delay_ns: self.run_delay.total_ns() }
    }

    /// Processes that were there at a sample and were gone at a later one: what they used in between is not in the
    /// account.
    pub fn exited(&self) -> u64 {
        self.exited
    }

    fn read(&mut self, pid: u32) {
        if let Some(cpu_ns) = cpu_clock_ns(pid) {
            self.cpu.note(pid, cpu_ns);
        }
        let Ok(tasks) = Process::new(pid as i32).and_then(|process| process.tasks()) else { return };
        for task in tasks.flatten() {
            if let Ok(schedstat) = task.schedstat() {
                self.run_delay.note(task.tid as u32, schedstat.run_delay);
            }
        }
    }
}

/// A sum over counters whose owners may end: what they had counted stays in it.
#[derive(Debug, Default)]
struct Sum {
    last_ns: HashMap<u32, u64>,
    ended_ns: u64,
}

impl Sum {
    /// Takes a counter's value. A fall means that the id now belongs to another owner.
    fn note(&mut self, id: u32, value_ns: u64) {
        let last_ns = self.last_ns.entry(id).or_default();
        if value_ns < *last_ns {
            self.ended_ns += *last_ns;
        }
        *last_ns = value_ns;
    }

    fn total_ns(&self) -> u64 {
        self.ended_ns + self.last_ns.values().sum::<u64>()
    }
}

/// The process's CPU clock: all threads, exited ones included, and the tick in progress.
fn cpu_clock_ns(pid: u32) -> Option<u64> {
    let mut clock = 0;
    // SAFETY: the pointer is to a live local.
    let found = unsafe { libc::clock_getcpuclockid(pid as libc::pid_t, &mut clock) };
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a live local; an invalid clock is an error, not undefined.
    let read = found == 0 && unsafe { libc::clock_gettime(clock, &mut time) } == 0;
    read.then(|| time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// Nanoseconds the hypervisor has taken from all CPUs since boot, in steps of a clock tick (10 ms); zero where the
/// kernel does not say.
pub fn stolen_ns() -> u64 {
    let steal_ms = KernelStats::current().ok().and_then(|stats| stats.total.steal_ms());
    steal_ms.unwrap_or(0) * 1_000_000
}

/// Resident memory of the processes and their descendants. Pages they share count once for each.
pub fn rss_bytes(pids: &[u32]) -> u64 {
    let resident_pages =
        |pid: u32| Process::new(pid as i32).and_then(|process| process.statm()).map(|m| m.resident);
    family(pids).into_iter().filter_map(|pid| resident_pages(pid).ok()).sum::<u64>() * procfs::page_size()
}

/// Anonymous memory (heap and stacks) of the processes; those of which it cannot be told are left out.
pub fn heap_bytes(pids: &[u32]) -> u64 {
    let anonymous_kib =
        |pid: &u32| Process::new(*pid as i32).and_then(|process| process.status()).ok()?.rssanon;
    pids.iter().filter_map(anonymous_kib).sum::<u64>() * 1024
}

/// Threads of the processes.
pub fn threads(pids: &[u32]) -> u32 {
    stats(pids).map(|stat| stat.num_threads as u32).sum()
}

/// Page faults of the processes since they began, all threads, exited ones included.
pub fn page_faults(pids: &[u32]) -> u64 {
    stats(pids).map(|stat| stat.minflt + stat.majflt).sum()
}

fn stats(pids: &[u32]) -> impl Iterator<Item = Stat> {
    pids.iter().filter_map(|pid| Process::new(*pid as i32).and_then(|process| process.stat()).ok())
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, Instant};

    use proptest::prelude::*;

    use super::*;

    fn spinning() -> Child {
        Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap()
    }

    fn sample_until(account: &mut CpuAccount, enough: impl Fn(CpuTimes) -> bool) -> CpuTimes {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let times = account.sample();
            if enough(times) {
                return times;
            }
            assert!(Instant::now() < deadline, "{times:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn the_account_agrees_with_schedstat() {
        let mut child = spinning();
        let mut account = CpuAccount::new(&[child.id()]);
        sample_until(&mut account, |times| times.cpu_ns > 200_000_000);
        rustix::process::kill_process(
            rustix::process::Pid::from_child(&child),
            rustix::process::Signal::STOP,
        )
        .unwrap();
        let process = Process::new(child.id() as i32).unwrap();
        let deadline = Instant::now() + Duration::from_secs(5);
        while process.stat().unwrap().state != 'T' {
            assert!(Instant::now() < deadline);
        }
        let (times, schedstat) = (account.sample(), process.schedstat().unwrap());
        assert_eq!((times.cpu_ns, times.run_delay_ns), (schedstat.sum_exec_runtime, schedstat.run_delay));
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn children_and_the_dead_are_in_the_account() {
        let mut parent = Command::new("sh").args(["-c", "(while :; do :; done) & wait"]).spawn().unwrap();
        let mut account = CpuAccount::new(&[parent.id()]);
        let before = sample_until(&mut account, |times| times.cpu_ns > 50_000_000);
        let child = super::super::processes::descendants(parent.id())[0];
        rustix::process::kill_process(
            rustix::process::Pid::from_raw(child as i32).unwrap(),
            rustix::process::Signal::KILL,
        )
        .unwrap();
        parent.wait().unwrap();
        assert_eq!(account.exited(), 0);
        assert!(account.sample().cpu_ns >= before.cpu_ns);
        assert_eq!(account.exited(), 2);
    }

    #[test]
    fn exited_threads_stay_in_the_account() {
        static DONE: AtomicBool = AtomicBool::new(false);
        let mut account = CpuAccount::new(&[std::process::id()]);
        let before = account.sample();
        let thread = std::thread::spawn(|| {
            while !DONE.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        let busy = sample_until(&mut account, |times| times.since(before).cpu_ns > 50_000_000);
        DONE.store(true, Ordering::Relaxed);
        thread.join().unwrap();
        assert!(account.sample().cpu_ns >= busy.cpu_ns);
    }

    #[test]
    fn memory_is_seen() {
        assert!(rss_bytes(&[std::process::id()]) > 1 << 20);
        assert_eq!(rss_bytes(&[u32::MAX]), 0);
    }

    proptest! {
        #[test]
        fn a_sum_never_falls(values in proptest::collection::vec((0u32..4, 0u64..1000), 0..50)) {
            let mut sum = Sum::default();
            let mut before = 0;
            for (id, value) in values {
                sum.note(id, value);
                prop_assert!(sum.total_ns() >= before);
                before = sum.total_ns();
            }
        }
    }
}

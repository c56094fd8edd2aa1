//! Threads of the target as their records show them: clocks at past moments, and stretches of CPU between records.

use std::collections::VecDeque;

use ahash::HashMap;

use tracer_common::records::Edge;

/// Records of one thread looked back on. At 64 waiting connections a request waits behind about 128 records.
const HISTORY: usize = 1_024;

/// A thread's clocks at the end of one of its calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// When.
    pub at_ns: u64,
    /// On-CPU nanoseconds then.
    pub cpu_ns: u64,
    /// Run-queue nanoseconds then.
    pub run_queue_ns: u64,
    /// On-CPU nanoseconds in syscalls then, this call's included.
    pub syscall_cpu_ns: u64,
    /// Connection of the call.
    pub connection_id: u64,
    /// The call was a read.
    pub is_read: bool,
}

impl Moment {
    /// The end of a read or write.
    pub fn end_of(edge: &Edge, is_read: bool) -> Self {
        Self {
            at_ns: edge.exit_ns,
            cpu_ns: edge.exit_cpu_ns,
            run_queue_ns: edge.exit_run_queue_ns,
            syscall_cpu_ns: edge.at_enter.syscall_cpu_ns
                + edge.exit_cpu_ns.saturating_sub(edge.at_enter.cpu_ns),
            connection_id: edge.connection_id,
            is_read,
        }
    }
}

/// CPU a thread used between two of its records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cpu {
    /// In user space.
    pub user_ns: u64,
    /// In syscalls.
    pub syscall_ns: u64,
}

impl Cpu {
    /// Both together.
    pub fn total_ns(self) -> u64 {
        self.user_ns + self.syscall_ns
    }

    /// The same mix of user and syscall, of another size.
    fn scaled(self, part_ns: u64) -> Self {
        let total_ns = self.total_ns();
        if total_ns == 0 {
            return Self::default();
        }
        let syscall_ns = (u128::from(self.syscall_ns) * u128::from(part_ns) / u128::from(total_ns)) as u64;
        Self { user_ns: part_ns - syscall_ns, syscall_ns }
    }
}

/// The CPU between two records of one thread, cut where it slept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// The record it began after.
    pub after: Moment,
    /// The thread slept in between.
    pub slept: bool,
    /// Until the last sleep; everything when it did not sleep.
    pub before_sleep: Cpu,
    /// From the last sleep on.
    pub after_sleep: Cpu,
}

/// Every thread seen.
#[derive(Default)]
pub struct Threads {
    history: HashMap<u32, VecDeque<Moment>>,
}

impl Threads {
    /// The stretch that ends where `edge` was entered; `None` for a thread's first record.
    pub fn stretch_before(&self, edge: &Edge) -> Option<Stretch> {
        let after = *self.history.get(&edge.tid)?.back()?;
        let total_ns = edge.at_enter.cpu_ns.checked_sub(after.cpu_ns)?;
        let syscall_ns = edge.at_enter.syscall_cpu_ns.saturating_sub(after.syscall_cpu_ns).min(total_ns);
        let all = Cpu { user_ns: total_ns - syscall_ns, syscall_ns };
        let slept = edge.sleep.blocked_at_ns >= after.at_ns && edge.sleep.blocked_at_ns < edge.enter_ns;
        if !slept {
            return Some(Stretch { after, slept, before_sleep: all, after_sleep: Cpu::default() });
        }
        let before_ns = edge.sleep.cpu_ns.saturating_sub(after.cpu_ns).min(total_ns);
        Some(Stretch {
            after,
            slept,
            before_sleep: all.scaled(before_ns),
            after_sleep: all.scaled(total_ns - before_ns),
        })
    }

    /// Remembers the end of a call.
    pub fn ended(&mut self, tid: u32, moment: Moment) {
        let history = self.history.entry(tid).or_default();
        if history.len() == HISTORY {
            history.pop_front();
        }
        history.push_back(moment);
    }

    /// The end of a thread's last call.
    pub fn last(&self, tid: u32) -> Option<Moment> {
        self.history.get(&tid)?.back().copied()
    }

    /// The last remembered moment of a thread at or before `at_ns`.
    pub fn last_before(&self, tid: u32, at_ns: u64) -> Option<Moment> {
        let history = self.history.get(&tid)?;
        let after = history.partition_point(|moment| moment.at_ns <= at_ns);
        after.checked_sub(1).map(|index| history[index])
    }
}

//! Counters: per-CPU sums the kernel side keeps, read by user space at the edges of a window.

/// Count and times of one syscall number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct SyscallCounter {
    /// Calls that returned.
    pub calls: u64,
    /// Calls that returned EAGAIN.
    pub eagain: u64,
    /// Wall nanoseconds between entry and exit.
    pub wall_ns: u64,
    /// On-CPU nanoseconds between entry and exit.
    pub cpu_ns: u64,
}

/// What is counted besides syscalls: losses by cause, each where it happens, and things worth knowing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Counter {
    /// A record could not be reserved: the ring was full.
    RingFull = 0,
    /// No slot was left for a connection.
    ConnectionsFull = 1,
    /// No slot was left for a thread.
    ThreadsFull = 2,
    /// A syscall exit without its entry: the call was in flight at attach.
    UnmatchedExit = 3,
    /// Two fds shared a place in the fd cache: the other is looked up anew (slower, not lost).
    FdCacheReplaced = 4,
    /// A read that began a request was refused by the full ring: that request is lost.
    RequestsNotRecorded = 5,
    /// A wake-up was not seen: that run-queue wait is counted as blocked.
    WakeupNotSeen = 6,
    /// A head could not be read from user memory.
    HeadNotRead = 7,
    /// Reads and writes on TCP connections that the target opened and for which no slot was left: not followed.
    OtherTcpCalls = 8,
    /// io_uring_enter calls that submitted something: its socket I/O is not covered.
    IoUringSubmits = 9,
    /// Records written.
    Records = 10,
    /// On-CPU nanoseconds of all target threads.
    CpuNs = 11,
    /// Run-queue nanoseconds of all target threads.
    RunQueueNs = 12,
    /// Times a target thread left a CPU blocked.
    SwitchesBlocked = 13,
    /// Times a target thread left a CPU preempted.
    SwitchesPreempted = 14,
    /// The table of run-queue holders was full.
    HoldersFull = 15,
    /// Sockets other than TCP (UNIX, UDP) that the target read or wrote: not covered.
    OtherSockets = 16,
    /// A read that began a request on a connection for which no slot was left: that request is lost.
    RequestsWithoutSlot = 17,
    /// A target thread was found on a CPU though no switch to it was seen (some kernels do not trace every task):
    /// its clocks were set right from the kernel's own run_delay.
    SwitchesNotSeen = 18,
    /// The part of [`Counter::RunQueueNs`] that was waited between a wake-up and the switch it led to.
    RunQueueAfterWakeupNs = 19,
}

/// Number of [`Counter`]s.
pub const COUNTERS: u32 = 20;

impl Counter {
    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::RingFull => "ring_full",
            Self::ConnectionsFull => "connections_full",
            Self::ThreadsFull => "threads_full",
            Self::UnmatchedExit => "unmatched_exits",
            Self::FdCacheReplaced => "fd_cache_replaced",
            Self::RequestsNotRecorded => "requests_not_recorded",
            Self::WakeupNotSeen => "wakeups_not_seen",
            Self::HeadNotRead => "heads_not_read",
            Self::OtherTcpCalls => "other_tcp_calls",
            Self::IoUringSubmits => "io_uring_submits",
            Self::Records => "records",
            Self::CpuNs => "cpu_ns",
            Self::RunQueueNs => "run_queue_ns",
            Self::SwitchesBlocked => "switches_blocked",
            Self::SwitchesPreempted => "switches_preempted",
            Self::HoldersFull => "holders_full",
            Self::OtherSockets => "other_sockets",
            Self::RequestsWithoutSlot => "requests_without_slot",
            Self::SwitchesNotSeen => "switches_not_seen",
            Self::RunQueueAfterWakeupNs => "run_queue_after_wakeup_ns",
        }
    }

    /// Every counter, in order.
    pub const ALL: [Self; COUNTERS as usize] = [
        Self::RingFull,
        Self::ConnectionsFull,
        Self::ThreadsFull,
        Self::UnmatchedExit,
        Self::FdCacheReplaced,
        Self::RequestsNotRecorded,
        Self::WakeupNotSeen,
        Self::HeadNotRead,
        Self::OtherTcpCalls,
        Self::IoUringSubmits,
        Self::Records,
        Self::CpuNs,
        Self::RunQueueNs,
        Self::SwitchesBlocked,
        Self::SwitchesPreempted,
        Self::HoldersFull,
        Self::OtherSockets,
        Self::RequestsWithoutSlot,
        Self::SwitchesNotSeen,
        Self::RunQueueAfterWakeupNs,
    ];
}

/// Who held a CPU while a target thread waited for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Holder {
    /// Nanoseconds held.
    pub held_ns: u64,
    /// Its process.
    pub tgid: u32,
    /// Padding.
    pub reserved: u32,
    /// Its name (`task_struct.comm`), NUL-padded.
    pub comm: [u8; 16],
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_numbered_without_a_gap() {
        for (index, counter) in Counter::ALL.iter().enumerate() {
            assert_eq!(*counter as usize, index);
        }
    }
}

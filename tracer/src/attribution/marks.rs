//! What a request keeps of its calls: fields as in [`Call`]. Requests are moved as they come and go, so they keep no
//! more than is asked for.

use super::call::Call;

/// What is kept of the read that took the first byte.
#[derive(Clone, Copy, Debug)]
pub struct FirstRead {
    pub tid: u32,
    pub tgid: u32,
    pub enter_ns: u64,
    pub exit_ns: u64,
    pub enter_cpu_ns: u64,
    pub enter_run_queue_ns: u64,
}

impl From<&Call> for FirstRead {
    fn from(read: &Call) -> Self {
        Self {
            tid: read.tid,
            tgid: read.tgid,
            enter_ns: read.enter_ns,
            exit_ns: read.exit_ns,
            enter_cpu_ns: read.at_enter.cpu_ns,
            enter_run_queue_ns: read.at_enter.run_queue_ns,
        }
    }
}

/// What is kept of the read that completed the head.
#[derive(Clone, Copy, Debug)]
pub struct HeadRead {
    pub tid: u32,
    pub exit_ns: u64,
    pub exit_cpu_ns: u64,
    pub exit_run_queue_ns: u64,
    pub slept_at_ns: u64,
    pub slept_at_cpu_ns: u64,
}

impl From<&Call> for HeadRead {
    fn from(read: &Call) -> Self {
        Self {
            tid: read.tid,
            exit_ns: read.exit_ns,
            exit_cpu_ns: read.exit_cpu_ns,
            exit_run_queue_ns: read.exit_run_queue_ns,
            slept_at_ns: read.sleep.blocked_at_ns,
            slept_at_cpu_ns: read.sleep.cpu_ns,
        }
    }
}

/// What is kept of the write that began the response.
#[derive(Clone, Copy, Debug)]
pub struct FirstWrite {
    pub connection_id: u64,
    pub tid: u32,
    /// The syscall of its thread's last sleep, plus one.
    pub slept_in_plus_one: u32,
    pub slept_at_ns: u64,
    pub enter_ns: u64,
    pub enter_cpu_ns: u64,
    pub enter_run_queue_ns: u64,
}

impl From<&Call> for FirstWrite {
    fn from(write: &Call) -> Self {
        Self {
            connection_id: write.connection_id,
            tid: write.tid,
            slept_in_plus_one: write.sleep.call_plus_one,
            slept_at_ns: write.sleep.blocked_at_ns,
            enter_ns: write.enter_ns,
            enter_cpu_ns: write.at_enter.cpu_ns,
            enter_run_queue_ns: write.at_enter.run_queue_ns,
        }
    }
}

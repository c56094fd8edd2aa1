//! The clocks and the identity of the calling thread.

use rustix::thread::gettid;
use rustix::time::{ClockId, clock_gettime};

/// `CLOCK_MONOTONIC` in nanoseconds: the clock of the kernel's marks.
pub fn monotonic_ns() -> u64 {
    nanoseconds(ClockId::Monotonic)
}

/// CPU time of the calling thread.
pub(super) fn thread_cpu_ns() -> u64 {
    nanoseconds(ClockId::ThreadCPUTime)
}

/// The kernel's id of the calling thread.
pub(super) fn thread_id() -> u32 {
    gettid().as_raw_nonzero().get().unsigned_abs()
}

fn nanoseconds(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    // Neither clock is ever negative.
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

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

/// Time the calling thread was ready to run and waited for a CPU; zero where the kernel does not say.
pub(super) fn thread_run_delay_ns() -> u64 {
    let schedstat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    schedstat.split_whitespace().nth(1).and_then(|delay| delay.parse().ok()).unwrap_or_default()
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

//! What the kernel says of the calling thread at one instant.

use std::{cell::OnceCell, fs::File, os::unix::fs::FileExt};

use rustix::time::{ClockId, clock_gettime};

/// An instant of a thread, with its accounts until then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// `CLOCK_MONOTONIC` nanoseconds.
    pub at_ns: u64,
    /// On-CPU nanoseconds of the thread.
    pub cpu_ns: u64,
    /// Nanoseconds it was runnable and waited for a CPU.
    pub run_queue_ns: u64,
}

/// What a thread did between two moments; the parts add up to the wall time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// Nanoseconds in all.
    pub wall_ns: u64,
    /// On a CPU.
    pub cpu_ns: u64,
    /// Waiting for a CPU.
    pub run_queue_ns: u64,
    /// Asleep.
    pub blocked_ns: u64,
}

impl Moment {
    /// Now, at the beginning of something: its time is taken last.
    pub fn before() -> Self {
        let run_queue_ns = run_queue_ns();
        let cpu_ns = nanoseconds(ClockId::ThreadCPUTime);
        Self { at_ns: nanoseconds(ClockId::Monotonic), cpu_ns, run_queue_ns }
    }

    /// Now, at the end of something: its time is taken first.
    pub fn after() -> Self {
        let at_ns = nanoseconds(ClockId::Monotonic);
        let cpu_ns = nanoseconds(ClockId::ThreadCPUTime);
        Self { at_ns, cpu_ns, run_queue_ns: run_queue_ns() }
    }

    /// From this moment to a later one of the same thread.
    pub fn until(&self, end: &Self) -> Span {
        let wall_ns = end.at_ns.saturating_sub(self.at_ns);
        let cpu_ns = end.cpu_ns.saturating_sub(self.cpu_ns).min(wall_ns);
        let run_queue_ns = end.run_queue_ns.saturating_sub(self.run_queue_ns).min(wall_ns - cpu_ns);
        Span { wall_ns, cpu_ns, run_queue_ns, blocked_ns: wall_ns - cpu_ns - run_queue_ns }
    }
}

/// `CLOCK_MONOTONIC` now, nanoseconds.
pub fn now_ns() -> u64 {
    nanoseconds(ClockId::Monotonic)
}

fn nanoseconds(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The thread's `run_delay`. The kernel adds to it when the thread gets its CPU, so for a running thread it is exact.
fn run_queue_ns() -> u64 {
    thread_local! {
        static SCHEDSTAT: OnceCell<File> = const { OnceCell::new() };
    }
    SCHEDSTAT.with(|file| {
        let file = file.get_or_init(|| File::open("/proc/thread-self/schedstat").expect("/proc is there"));
        let mut text = [0; 96];
        let length = file.read_at(&mut text, 0).expect("a thread may read its own schedstat");
        let text = std::str::from_utf8(&text[..length]).unwrap_or_default();
        text.split(' ').nth(1).and_then(|value| value.parse().ok()).expect("schedstat has a run_delay")
    })
}

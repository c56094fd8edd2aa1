//! What a thread did in a phase, from its clocks at both ends.

use super::{call::Call, thread::Threads};
use crate::recording::ThreadStates;

/// Parts of a phase on one thread whose clocks are known at both ends; the rest of the wall time is blocked.
pub fn lay(wall_ns: u64, cpu_ns: u64, own_cpu_ns: u64, run_queue_ns: u64) -> ThreadStates {
    let cpu_ns = cpu_ns.min(wall_ns);
    let own_cpu_ns = own_cpu_ns.min(cpu_ns);
    let run_queue_ns = run_queue_ns.min(wall_ns - cpu_ns);
    ThreadStates {
        own_cpu_ns,
        other_cpu_ns: cpu_ns - own_cpu_ns,
        run_queue_ns,
        blocked_ns: wall_ns - cpu_ns - run_queue_ns,
        unknown_ns: 0,
    }
}

/// A phase that begins on one thread and ends on another: only its own CPU is known.
pub fn split_unknown(wall_ns: u64, own_cpu_ns: u64) -> ThreadStates {
    let own_cpu_ns = own_cpu_ns.min(wall_ns);
    ThreadStates { own_cpu_ns, unknown_ns: wall_ns - own_cpu_ns, ..ThreadStates::default() }
}

/// `states` made to add up to `wall_ns`, which another cut may have shortened.
pub fn fitted(states: ThreadStates, wall_ns: u64) -> ThreadStates {
    if states.total_ns() == wall_ns {
        return states;
    }
    let known = lay(wall_ns, states.other_cpu_ns, 0, states.run_queue_ns);
    if states.unknown_ns > 0 {
        return ThreadStates { unknown_ns: known.blocked_ns, blocked_ns: 0, ..known };
    }
    known
}

/// What the reading thread did while the bytes waited, and how long it slept on after they came.
pub fn queue_states(from_ns: u64, read: &Call, threads: &Threads) -> (ThreadStates, u64) {
    let wall_ns = read.enter_ns.saturating_sub(from_ns);
    if wall_ns == 0 {
        return (ThreadStates::default(), 0);
    }
    let sleep = &read.sleep;
    let asleep = sleep.blocked_at_ns != 0
        && sleep.blocked_at_ns <= from_ns
        && from_ns < sleep.running_ns
        && sleep.running_ns <= read.enter_ns;
    if asleep {
        let run_queue_ns =
            if sleep.runnable_ns != 0 { sleep.running_ns - sleep.runnable_ns.max(from_ns) } else { 0 };
        let cpu_ns = read.at_enter.cpu_ns.saturating_sub(sleep.cpu_ns);
        return (lay(wall_ns, cpu_ns, 0, run_queue_ns), sleep.running_ns - from_ns);
    }
    let Some(before) = threads.last_before(read.tid, from_ns) else {
        return (ThreadStates { unknown_ns: wall_ns, ..ThreadStates::default() }, 0);
    };
    // The thread ran from its last record to `from_ns`, as far as is known: what it used by then is not of this wait.
    let used_ns = read.at_enter.cpu_ns.saturating_sub(before.cpu_ns);
    let cpu_ns = used_ns.saturating_sub(from_ns - before.at_ns);
    let run_queue_ns = read.at_enter.run_queue_ns.saturating_sub(before.run_queue_ns);
    (lay(wall_ns, cpu_ns.min(wall_ns), 0, run_queue_ns), 0)
}

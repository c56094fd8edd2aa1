//! Switches and wake-ups: who is on a CPU, who waits for one, who sleeps.

use aya_ebpf::{macros::map, maps::HashMap, programs::BtfTracePointContext};
use tracer_common::counters::{Counter, Holder};

use crate::{
    counters,
    kernel::{Task, now_ns},
    processes,
    threads::{self, Thread},
};

/// `TASK_DEAD` (`include/linux/sched.h`): the task never runs again.
const TASK_DEAD: u32 = 0x80;

/// Who held a CPU while a target thread waited for it, by thread id.
#[map]
static HOLDERS: HashMap<u32, Holder> = HashMap::with_max_entries(1_024, 0);

/// `sched_switch(preempt, prev, next, prev_state)`
#[inline(always)]
pub fn switched(ctx: &BtfTracePointContext) {
    let previous = Task(ctx.arg(1));
    let next = Task(ctx.arg(2));
    let Some(running) = threads::running_slot() else { return };
    if *running == 0 && !processes::may_contain(previous.tgid()) && !processes::may_contain(next.tgid()) {
        return;
    }
    // Before all look-ups: the kernel read its own clock before it chose `next`.
    let now_ns = now_ns();
    let slot = leaving_slot(*running, previous, now_ns);
    if slot != 0 {
        let preempted: u64 = ctx.arg(0);
        let state: u32 = ctx.arg(3);
        if let Some(thread) = threads::at(slot) {
            thread.run_delay_ns = previous.run_delay_ns();
            thread.exec_ns = previous.exec_ns();
            leave_cpu(thread, now_ns, preempted & 1 == 1 || state == 0);
            if state & TASK_DEAD != 0 {
                threads::forget(thread.tid, slot);
            }
        }
    }
    let arriving = threads::slot_of(next).unwrap_or(0);
    if arriving != *running {
        *running = arriving;
    }
    if arriving != 0
        && let Some(thread) = threads::at(arriving)
    {
        take_cpu(thread, now_ns, next, previous);
    }
}

/// The slot of the task that leaves: the one known to run, unless switches between were not seen.
#[inline(always)]
fn leaving_slot(known: u32, previous: Task, now_ns: u64) -> u32 {
    if known != 0
        && let Some(thread) = threads::at(known)
    {
        if thread.tid == previous.tid() {
            return known;
        }
        thread.left_unseen();
    }
    let Some(slot) = threads::slot_of(previous) else { return 0 };
    if let Some(thread) = threads::at(slot) {
        thread.found_running(previous, now_ns);
    }
    slot
}

#[inline(always)]
fn leave_cpu(thread: &mut Thread, now_ns: u64, still_runnable: bool) {
    if thread.running_since_ns != 0 {
        let ran_ns = now_ns - thread.running_since_ns;
        thread.clock.cpu_ns += ran_ns;
        counters::add(Counter::CpuNs, ran_ns);
    }
    thread.running_since_ns = 0;
    if still_runnable {
        thread.runnable_since_ns = now_ns;
        counters::count(Counter::SwitchesPreempted);
    } else {
        thread.runnable_since_ns = 0;
        thread.sleep.blocked_at_ns = now_ns;
        thread.sleep.waking_ns = 0;
        thread.sleep.runnable_ns = 0;
        thread.sleep.running_ns = 0;
        thread.sleep.cpu_ns = thread.clock.cpu_ns;
        thread.sleep.call_plus_one = thread.call.number_plus_one;
        thread.sleep.waker_tid = 0;
        counters::count(Counter::SwitchesBlocked);
    }
}

#[inline(always)]
fn take_cpu(thread: &mut Thread, now_ns: u64, next: Task, previous: Task) {
    thread.make_up(next);
    thread.running_since_ns = now_ns;
    if thread.runnable_since_ns != 0 {
        let waited_ns = now_ns - thread.runnable_since_ns;
        thread.clock.run_queue_ns += waited_ns;
        // The kernel adds this wait to its own account just after this hook.
        thread.run_delay_ns += waited_ns;
        thread.runnable_since_ns = 0;
        counters::add(Counter::RunQueueNs, waited_ns);
        if thread.sleep.running_ns == 0 {
            counters::add(Counter::RunQueueAfterWakeupNs, waited_ns);
        }
        held_by(previous, waited_ns);
    } else if thread.sleep.blocked_at_ns != 0 && thread.sleep.running_ns == 0 {
        counters::count(Counter::WakeupNotSeen);
    }
    if thread.sleep.running_ns == 0 {
        thread.sleep.running_ns = now_ns;
    }
}

/// Charges a wait to the task that leaves the CPU now; the idle task (tid 0) holds nothing.
#[inline(always)]
fn held_by(task: Task, waited_ns: u64) {
    let tid = task.tid();
    if tid == 0 {
        return;
    }
    if let Some(holder) = HOLDERS.get_ptr_mut(tid) {
        // SAFETY: two CPUs seldom charge one task; a lost addition is below the resolution of this account.
        unsafe { (*holder).held_ns += waited_ns };
    } else {
        let holder = Holder { held_ns: waited_ns, tgid: task.tgid(), reserved: 0, comm: task.comm() };
        if HOLDERS.insert(tid, holder, 0).is_err() {
            counters::count(Counter::HoldersFull);
        }
    }
}

/// `sched_waking(p)`: in the waker's context.
#[inline(always)]
pub fn waking(ctx: &BtfTracePointContext) {
    let Some(slot) = threads::slot_of(Task(ctx.arg(0))) else { return };
    if let Some(thread) = threads::at(slot)
        && thread.running_since_ns == 0
        && thread.sleep.waking_ns == 0
    {
        thread.sleep.waking_ns = now_ns();
        thread.sleep.waker_tid = Task::current().tid();
    }
}

/// `sched_wakeup(p)`: on the woken thread's run queue.
#[inline(always)]
pub fn woken(ctx: &BtfTracePointContext) {
    let Some(slot) = threads::slot_of(Task(ctx.arg(0))) else { return };
    if let Some(thread) = threads::at(slot)
        && thread.running_since_ns == 0
        && thread.runnable_since_ns == 0
    {
        let now = now_ns();
        thread.runnable_since_ns = now;
        thread.sleep.runnable_ns = now;
    }
}

/// `sched_wakeup_new(p)`: a new thread's first time on a run queue.
#[inline(always)]
pub fn woken_new(ctx: &BtfTracePointContext) {
    let Some(slot) = threads::slot_of(Task(ctx.arg(0))) else { return };
    if let Some(thread) = threads::at(slot) {
        thread.runnable_since_ns = now_ns();
    }
}

//! Threads of the target: their clocks, their sleep, and the one syscall each is in.
//!
//! Threads live in slots of an array; a hash finds a slot by thread id at a switch or wake-up, and a per-CPU slot
//! number, set at every switch, finds the running thread without any look-up. Single writer: a thread's own hooks run
//! on its CPU; a waker writes only the sleep fields, and only while the thread is off its CPU.

use aya_ebpf::{
    macros::map,
    maps::{Array, HashMap, PerCpuArray, Queue},
};
use tracer_common::{
    counters::Counter,
    records::{Sleep, ThreadClock},
    settings::MAX_THREADS,
};

use crate::{
    counters,
    kernel::{self, Task},
    processes,
};

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Thread {
    pub tid: u32,
    pub tgid: u32,
    /// On a CPU since; zero: off.
    pub running_since_ns: u64,
    /// On a run queue since; zero: not waiting for a CPU.
    pub runnable_since_ns: u64,
    /// The kernel's own account of waits, as of the thread's last switch.
    pub run_delay_ns: u64,
    /// The kernel's own account of running, as of the thread's last switch.
    pub exec_ns: u64,
    /// The CPU it last took.
    pub cpu: u32,
    /// 1: it left a CPU unseen; what it ran then is still to be made up for.
    pub left_unseen: u32,
    pub clock: ThreadClock,
    pub sleep: Sleep,
    pub call: Call,
}

/// The syscall a thread is in.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Call {
    /// Its number plus one; zero: in none.
    pub number_plus_one: u32,
    pub fd: u32,
    /// 1: its entry was not seen.
    pub not_entered: u32,
    pub reserved: u32,
    pub enter_ns: u64,
    pub enter_cpu_ns: u64,
    pub enter_run_queue_ns: u64,
    pub buffer: u64,
    pub length: u64,
    pub flags: u64,
    pub write: Write,
}

/// What happened to a write's bytes so far: the newest data-ready event of a served connection's peer inside it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Write {
    /// 1: the call is a write.
    pub is_write: u32,
    /// The server's port of the connection the event is of.
    pub local_port: u16,
    /// Its client's.
    pub remote_port: u16,
    /// `rcv_nxt` of the peer at `delivered_ns`.
    pub delivered_sequence: u32,
    pub reserved: u32,
    /// Zero: no such event.
    pub delivered_ns: u64,
    pub delivered_cpu_ns: u64,
}

#[map]
static THREADS: Array<Thread> = Array::with_max_entries(MAX_THREADS, 0);
#[map]
static THREAD_SLOTS: HashMap<u32, u32> = HashMap::with_max_entries(MAX_THREADS, 0);
/// Slots nobody uses; filled by user space. Slot 0 is never handed out: it means "no target thread".
#[map]
static FREE_THREADS: Queue<u32> = Queue::with_max_entries(MAX_THREADS, 0);
/// The slot of the thread on this CPU.
#[map]
static RUNNING: PerCpuArray<u32> = PerCpuArray::with_max_entries(1, 0);

impl Call {
    /// Zero: the entry was not seen.
    #[inline(always)]
    pub fn seen_enter_ns(&self) -> u64 {
        if self.not_entered == 1 { 0 } else { self.enter_ns }
    }
}

impl Thread {
    /// On-CPU nanoseconds up to `now_ns`, for the running thread.
    #[inline(always)]
    pub fn cpu_ns(&self, now_ns: u64) -> u64 {
        self.clock.cpu_ns + now_ns.wrapping_sub(self.running_since_ns)
    }
}

#[inline(always)]
pub fn running_slot() -> Option<&'static mut u32> {
    // SAFETY: this CPU's own value; switches of one CPU do not overlap.
    RUNNING.get_ptr_mut(0).map(|slot| unsafe { &mut *slot })
}

#[inline(always)]
pub fn at(slot: u32) -> Option<&'static mut Thread> {
    // SAFETY: map memory lives as long as the program; see the single-writer rule above.
    THREADS.get_ptr_mut(slot).map(|thread| unsafe { &mut *thread })
}

/// The target thread on this CPU, if the running thread is one.
#[inline(always)]
pub fn running() -> Option<&'static mut Thread> {
    match RUNNING.get(0) {
        Some(&slot) if slot != 0 => at(slot),
        _ => None,
    }
}

/// The target thread that makes a syscall. A switch that was not seen (some kernels do not trace every task) is
/// noticed here: the slot of this CPU is checked against the current task.
#[inline(always)]
pub fn in_syscall() -> Option<&'static mut Thread> {
    let running = running_slot()?;
    let task = Task::current();
    if *running != 0 {
        let thread = at(*running)?;
        if thread.tid == task.tid() {
            return Some(thread);
        }
    } else if !processes::may_contain(task.tgid()) {
        return None;
    }
    *running = set_right(*running);
    at(*running)
}

/// Which slot runs on this CPU, when it is not the one it should be. A function of its own: seldom run.
#[inline(never)]
fn set_right(believed: u32) -> u32 {
    if believed != 0
        && let Some(thread) = at(believed)
    {
        thread.left_unseen();
    }
    let task = Task::current();
    let slot = slot_of(task).unwrap_or(0);
    if slot != 0
        && let Some(thread) = at(slot)
    {
        thread.found_running(task, kernel::now_ns());
    }
    slot
}

impl Thread {
    /// It runs here no more, and nobody knows since when. What it ran is taken from the kernel's own account when it
    /// is next seen to take a CPU.
    #[inline(always)]
    pub fn left_unseen(&mut self) {
        counters::count(Counter::SwitchesNotSeen);
        // It may have been seen on another CPU meanwhile: then its clocks are right.
        if self.cpu == kernel::cpu() {
            self.running_since_ns = 0;
            self.left_unseen = 1;
        }
    }

    /// Makes up for switches that were not seen, from the kernel's own accounts of a task that is off its CPU.
    #[inline(always)]
    pub fn make_up(&mut self, task: Task) {
        let (exec_ns, run_delay_ns) = (task.exec_ns(), task.run_delay_ns());
        if self.left_unseen == 1 {
            self.left_unseen = 0;
            let ran_ns = exec_ns.wrapping_sub(self.exec_ns);
            let waited_ns = run_delay_ns.wrapping_sub(self.run_delay_ns);
            self.clock.cpu_ns += ran_ns;
            self.clock.run_queue_ns += waited_ns;
            counters::add(Counter::CpuNs, ran_ns);
            counters::add(Counter::RunQueueNs, waited_ns);
        }
        self.exec_ns = exec_ns;
        self.run_delay_ns = run_delay_ns;
        self.cpu = kernel::cpu();
    }

    /// Sets right the clocks of a thread that was switched in unseen: it waited as long as the kernel says, and has
    /// run since.
    #[inline(always)]
    pub fn found_running(&mut self, task: Task, now_ns: u64) {
        counters::count(Counter::SwitchesNotSeen);
        let mut since_ns = now_ns;
        let waited_ns = task.run_delay_ns().wrapping_sub(self.run_delay_ns);
        if self.runnable_since_ns != 0 {
            let longest_ns = now_ns - self.runnable_since_ns;
            let waited_ns = if waited_ns < longest_ns { waited_ns } else { longest_ns };
            since_ns = self.runnable_since_ns + waited_ns;
            self.clock.run_queue_ns += waited_ns;
            counters::add(Counter::RunQueueNs, waited_ns);
        } else {
            // Not even its wake-up was seen: the kernel's account of its running is up to date as of the last tick.
            let ran_ns = task.exec_ns().wrapping_sub(self.exec_ns);
            since_ns -= if ran_ns < now_ns { ran_ns } else { 0 };
        }
        self.left_unseen = 0;
        self.runnable_since_ns = 0;
        self.running_since_ns = since_ns;
        self.exec_ns = task.exec_ns();
        self.run_delay_ns = task.run_delay_ns();
        self.cpu = kernel::cpu();
        if self.sleep.running_ns == 0 {
            self.sleep.running_ns = since_ns;
        }
    }
}

/// The slot of a task, if it is a target's; a thread seen for the first time gets one.
#[inline(always)]
pub fn slot_of(task: Task) -> Option<u32> {
    let tgid = task.tgid();
    if !processes::may_contain(tgid) {
        return None;
    }
    let tid = task.tid();
    if let Some(slot) = THREAD_SLOTS.get_ptr(tid) {
        // SAFETY: values are written once, at insertion.
        return Some(unsafe { *slot });
    }
    if !processes::contains(tgid) {
        return None;
    }
    let Ok(Some(slot)) = FREE_THREADS.pop() else {
        counters::count(Counter::ThreadsFull);
        return None;
    };
    let thread = at(slot)?;
    *thread = Thread::ZERO;
    thread.tid = tid;
    thread.tgid = tgid;
    thread.run_delay_ns = task.run_delay_ns();
    thread.exec_ns = task.exec_ns();
    if THREAD_SLOTS.insert(tid, slot, 0).is_err() {
        counters::count(Counter::ThreadsFull);
        let _ = FREE_THREADS.push(slot, 0);
        return None;
    }
    Some(slot)
}

/// Forgets a thread that has left its CPU for the last time.
#[inline(always)]
pub fn forget(tid: u32, slot: u32) {
    if THREAD_SLOTS.remove(tid).is_ok() {
        let _ = FREE_THREADS.push(slot, 0);
    }
}

/// The thread that took over another's id in exec keeps its slot under the new id.
#[inline(always)]
pub fn renamed(old_tid: u32, new_tid: u32) {
    let Some(slot) = THREAD_SLOTS.get_ptr(old_tid) else { return };
    // SAFETY: as in `slot_of`.
    let slot = unsafe { *slot };
    if let Some(thread) = at(slot) {
        thread.tid = new_tid;
    }
    let _ = THREAD_SLOTS.remove(old_tid);
    let _ = THREAD_SLOTS.insert(new_tid, slot, 0);
}

impl Thread {
    const ZERO: Self = Self {
        tid: 0,
        tgid: 0,
        running_since_ns: 0,
        runnable_since_ns: 0,
        run_delay_ns: 0,
        exec_ns: 0,
        cpu: 0,
        left_unseen: 0,
        clock: ThreadClock { cpu_ns: 0, run_queue_ns: 0, syscall_cpu_ns: 0, syscalls: 0 },
        sleep: Sleep {
            blocked_at_ns: 0,
            waking_ns: 0,
            runnable_ns: 0,
            running_ns: 0,
            cpu_ns: 0,
            call_plus_one: 0,
            waker_tid: 0,
        },
        call: Call {
            number_plus_one: 0,
            fd: 0,
            not_entered: 0,
            reserved: 0,
            enter_ns: 0,
            enter_cpu_ns: 0,
            enter_run_queue_ns: 0,
            buffer: 0,
            length: 0,
            flags: 0,
            write: Write {
                is_write: 0,
                local_port: 0,
                remote_port: 0,
                delivered_sequence: 0,
                reserved: 0,
                delivered_ns: 0,
                delivered_cpu_ns: 0,
            },
        },
    };
}

//! Processes: children join the target at fork, leave at the end of their last thread.

use aya_ebpf::programs::BtfTracePointContext;
use tracer_common::records::RecordKind;

use crate::{connections, emit, kernel::Task, processes, threads};

/// `sched_process_fork(parent, child)`
#[inline(always)]
pub fn forked(ctx: &BtfTracePointContext) {
    let parent = Task(ctx.arg(0)).tgid();
    if !processes::contains(parent) {
        return;
    }
    let child = Task(ctx.arg(1)).tgid();
    if child != parent {
        processes::add(child);
        emit::process(RecordKind::Fork, child, parent);
        #[cfg(feature = "log")]
        aya_log_ebpf::info!(ctx, "process {} forked {}", parent, child);
    }
}

/// `sched_process_exec(p, old_pid, bprm)`: all other threads are gone, close-on-exec fds are closed.
#[inline(always)]
pub fn executed(ctx: &BtfTracePointContext) {
    let task = Task(ctx.arg(0));
    if !processes::contains(task.tgid()) {
        return;
    }
    let old_tid: u32 = ctx.arg(1);
    let tid = task.tid();
    if old_tid != tid {
        threads::renamed(old_tid, tid);
    }
    connections::forget_all_fds();
}

/// `sched_process_exit(p, group_dead)`: its final switch comes later and frees the thread's slot.
#[inline(always)]
pub fn exited(ctx: &BtfTracePointContext) {
    let task = Task(ctx.arg(0));
    let tgid = task.tgid();
    if processes::contains(tgid) && task.live_threads() == 0 {
        processes::remove(tgid);
        emit::process(RecordKind::Exit, task.tid(), tgid);
        #[cfg(feature = "log")]
        aya_log_ebpf::info!(ctx, "process {} ended", tgid);
    }
}

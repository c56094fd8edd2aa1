//! Per-CPU counters: syscalls by number, and everything that is lost or worth knowing, by cause.

use aya_ebpf::{macros::map, maps::PerCpuArray};
use tracer_common::{
    counters::{COUNTERS, Counter, SyscallCounter},
    settings::SYSCALL_SLOTS,
};

#[map]
static COUNTS: PerCpuArray<u64> = PerCpuArray::with_max_entries(COUNTERS, 0);

#[map]
static SYSCALLS: PerCpuArray<SyscallCounter> = PerCpuArray::with_max_entries(SYSCALL_SLOTS, 0);

#[inline(always)]
pub fn add(counter: Counter, amount: u64) {
    if let Some(count) = COUNTS.get_ptr_mut(counter as u32) {
        // SAFETY: this CPU's own slot; hooks of one CPU that interrupt each other may lose an increment only when a
        // softirq lands between load and store, which the JIT's single add does not leave room for.
        unsafe { *count = (*count).wrapping_add(amount) };
    }
}

#[inline(always)]
pub fn count(counter: Counter) {
    add(counter, 1);
}

/// Counts one returned syscall.
#[inline(always)]
pub fn syscall(number: u32, wall_ns: u64, cpu_ns: u64, eagain: bool) {
    let slot = if number < SYSCALL_SLOTS { number } else { SYSCALL_SLOTS - 1 };
    if let Some(counter) = SYSCALLS.get_ptr_mut(slot) {
        // SAFETY: as above.
        let counter = unsafe { &mut *counter };
        counter.calls += 1;
        counter.eagain += u64::from(eagain);
        counter.wall_ns += wall_ns;
        counter.cpu_ns += cpu_ns;
    }
}

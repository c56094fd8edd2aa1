//! The set of target processes. Children join at fork; user space puts the first ones in.

use aya_ebpf::{
    macros::map,
    maps::{Array, HashMap},
};
use tracer_common::settings::{MAX_PROCESSES, PROCESS_FILTER_SLOTS};

#[map]
static PROCESSES: HashMap<u32, u32> = HashMap::with_max_entries(MAX_PROCESSES, 0);

/// A filter before the look-up: one byte per process id modulo its size. Set bytes are never cleared, so one says
/// "perhaps".
#[map]
static MAY_BE_TARGET: Array<u8> = Array::with_max_entries(PROCESS_FILTER_SLOTS, 0);

/// False: certainly no target. True: perhaps one.
#[inline(always)]
pub fn may_contain(tgid: u32) -> bool {
    MAY_BE_TARGET.get(tgid % PROCESS_FILTER_SLOTS).is_some_and(|&perhaps| perhaps != 0)
}

#[inline(always)]
pub fn contains(tgid: u32) -> bool {
    may_contain(tgid) && PROCESSES.get_ptr(tgid).is_some()
}

#[inline(always)]
pub fn add(tgid: u32) {
    let _ = PROCESSES.insert(tgid, 1u32, 0);
    if let Some(perhaps) = MAY_BE_TARGET.get_ptr_mut(tgid % PROCESS_FILTER_SLOTS) {
        // SAFETY: a byte that only ever becomes 1.
        unsafe { *perhaps = 1 };
    }
}

#[inline(always)]
pub fn remove(tgid: u32) {
    let _ = PROCESSES.remove(tgid);
}

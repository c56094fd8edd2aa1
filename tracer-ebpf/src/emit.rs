//! Records into the lane of this CPU: a slot taken, filled in place, stamped when it is whole.

use core::{arch::asm, mem::MaybeUninit};

use aya_ebpf::{Global, macros::map, maps::Array};
use tracer_common::{
    counters::Counter,
    records::{self, HEAD_BYTES, LaneEnds, Lifecycle, RecordKind, Slot},
    settings::LANE_RESERVE,
};

use crate::{
    connections::Connection,
    counters,
    kernel::{self, copy_words, now_ns},
    threads::Thread,
};

/// `BPF_F_MMAPABLE` (uapi): user space maps the memory.
const MMAPABLE: u32 = 1 << 10;

/// The slots of every CPU's lane, one lane after another.
#[map]
static LANES: Array<Slot> = Array::with_max_entries(2, MMAPABLE);
/// Both ends of each lane, by CPU.
#[map]
static LANE_ENDS: Array<LaneEnds> = Array::with_max_entries(1, MMAPABLE);
/// Slots of one lane, a power of two; set before load.
#[unsafe(no_mangle)]
static LANE_SLOTS: Global<u32> = Global::new(2);

/// 1: acknowledgements are asked for; set before load.
#[unsafe(no_mangle)]
static AWAITS_ACKS: Global<u32> = Global::new(0);

/// Acknowledgements are asked for. (The verifier knows the answer, and leaves the other branch out.)
#[inline(always)]
pub fn awaits_acks() -> bool {
    AWAITS_ACKS.load() == 1
}

/// A slot that is being filled.
struct Taken {
    slot: *mut Slot,
    stamp: u64,
}

/// Takes the next slot of this CPU's lane. Programs of one CPU may interrupt each other (a socket event inside a
/// syscall's program): each takes a slot of its own.
#[inline(always)]
fn take() -> Option<Taken> {
    let cpu = kernel::cpu();
    let ends = LANE_ENDS.get_ptr_mut(cpu)?;
    let lane_slots = LANE_SLOTS.load();
    // SAFETY: `taken` is written by programs on this CPU only, `returned` by the reader only.
    let (taken, returned) =
        unsafe { (&raw mut (*ends).taken, (&raw const (*ends).returned).read_volatile()) };
    let in_use = unsafe { taken.read_volatile() }.wrapping_sub(returned);
    if in_use + LANE_RESERVE >= u64::from(lane_slots) {
        counters::count(Counter::RingFull);
        return None;
    }
    let position = fetch_add_one(taken);
    counters::count(Counter::Records);
    let slot = LANES.get_ptr_mut(cpu * lane_slots + (position as u32 & (lane_slots - 1)))?;
    Some(Taken { slot, stamp: position + 1 })
}

/// Adds one and returns what was there before, in one instruction. (The target has no `AtomicU64::fetch_add`, and LLVM
/// 22 turns the intrinsic into an addition that returns nothing.)
#[inline(always)]
pub fn fetch_add_one(word: *mut u64) -> u64 {
    let before: u64;
    // SAFETY: an aligned word of a map.
    unsafe {
        asm!("{sum} = atomic_fetch_add((u64 *)({word} + 0), {sum})", word = in(reg) word, sum = inout(reg) 1u64 => before);
    }
    before
}

impl Taken {
    #[inline(always)]
    fn record<T>(&self) -> *mut T {
        const { assert!(size_of::<T>() <= size_of::<[u64; records::SLOT_WORDS]>()) };
        // SAFETY: a pointer inside the slot.
        unsafe { (&raw mut (*self.slot).record).cast() }
    }

    /// The record is whole: the reader may have it. x86-64 keeps stores in order; the barrier keeps the
    /// compiler's.
    #[inline(always)]
    fn commit(self) {
        // SAFETY: no instruction, only a barrier (`compiler_fence` cannot be compiled for this target); the stamp as above.
        unsafe {
            asm!("", options(nostack, preserves_flags));
            (&raw mut (*self.slot).stamp).write_volatile(self.stamp);
        }
    }
}

/// A read or write record being filled. Every path ends in `finish`, which commits it.
pub struct Edge(Taken);

impl Edge {
    #[inline(always)]
    pub fn begin(
        kind: RecordKind,
        thread: &Thread,
        number: u32,
        exit_ns: u64,
        exit_cpu_ns: u64,
        result: i64,
    ) -> Option<Self> {
        let taken = take()?;
        let edge = taken.record::<records::Edge>();
        // SAFETY: a slot of our own; plain integers.
        unsafe {
            (*edge).kind = kind as u8;
            (*edge).call = number as u16;
            (*edge).tid = thread.tid;
            (*edge).tgid = thread.tgid;
            (*edge).enter_ns = thread.call.seen_enter_ns();
            (*edge).exit_ns = exit_ns;
            (*edge).result = result;
            (*edge).at_enter.cpu_ns = thread.call.enter_cpu_ns;
            (*edge).at_enter.run_queue_ns = thread.call.enter_run_queue_ns;
            (*edge).at_enter.syscall_cpu_ns = thread.clock.syscall_cpu_ns;
            (*edge).at_enter.syscalls = thread.clock.syscalls;
            (*edge).exit_cpu_ns = exit_cpu_ns;
            (*edge).exit_run_queue_ns = thread.clock.run_queue_ns;
            copy_words(&raw mut (*edge).sleep, &raw const thread.sleep);
        }
        Some(Self(taken))
    }

    #[inline(always)]
    pub fn connection(&mut self, id: u64, sequence: u32, local_port: u16, remote_port: u16) {
        let edge = self.0.record::<records::Edge>();
        // SAFETY: as above.
        unsafe {
            (*edge).connection_id = id;
            (*edge).sequence = sequence;
            (*edge).local_port = local_port;
            (*edge).remote_port = remote_port;
        }
    }

    #[inline(always)]
    pub fn arrivals(&mut self, connection: &Connection) {
        let edge = self.0.record::<records::Edge>();
        // SAFETY: as above.
        unsafe {
            copy_words(&raw mut (*edge).arrival, &raw const connection.arrival);
            copy_words(&raw mut (*edge).previous_arrival, &raw const connection.previous_arrival);
            (*edge).last_ready_ns = connection.last_ready_ns;
            (*edge).end_sequence = connection.received;
            (*edge).unsent_bytes = 0;
            (*edge).delivered_ns = 0;
            (*edge).delivered_cpu_ns = 0;
        }
    }

    #[inline(always)]
    pub fn delivery(&mut self, write_sequence: u32, unsent: u32, delivered_ns: u64, delivered_cpu_ns: u64) {
        let edge = self.0.record::<records::Edge>();
        // SAFETY: as above.
        unsafe {
            (*edge).last_ready_ns = 0;
            (*edge).end_sequence = write_sequence;
            (*edge).unsent_bytes = unsent;
            (*edge).delivered_ns = delivered_ns;
            (*edge).delivered_cpu_ns = delivered_cpu_ns;
        }
    }

    #[inline(always)]
    pub fn finish(self, flags: u8, iovecs: u32, buffer: u64, bytes: u64) {
        let edge = self.0.record::<records::Edge>();
        let mut head_len = 0;
        if buffer != 0 && bytes != 0 {
            // SAFETY: the head's memory inside the reserved record.
            let head = unsafe { &raw mut (*edge).head }.cast::<MaybeUninit<[u8; HEAD_BYTES]>>();
            match kernel::user_bytes::<HEAD_BYTES>(head, buffer, bytes) {
                Some(len) => head_len = len,
                None => counters::count(Counter::HeadNotRead),
            }
        }
        // SAFETY: as above.
        unsafe {
            (*edge).flags = flags;
            (*edge).iovecs = iovecs;
            (*edge).head_len = head_len;
        }
        self.0.commit();
    }
}

#[inline(always)]
fn lifecycle(record: Lifecycle) {
    if let Some(taken) = take() {
        copy_words(taken.record::<Lifecycle>(), &raw const record);
        taken.commit();
    }
}

#[inline(always)]
fn of_connection(kind: RecordKind, connection: &Connection, now: u64) -> Lifecycle {
    Lifecycle {
        kind: kind as u8,
        reserved: 0,
        call: 0,
        sequence: connection.sequence,
        connection_id: connection.id,
        tid: 0,
        tgid: 0,
        established_ns: connection.established_ns,
        enter_ns: now,
        exit_ns: now,
        local_port: connection.local_port,
        remote_port: connection.remote_port,
        end_sequence: 0,
    }
}

#[inline(always)]
pub fn accepted(connection: &Connection, thread: &Thread, number: u32, now: u64) {
    lifecycle(Lifecycle {
        call: number as u16,
        tid: thread.tid,
        tgid: thread.tgid,
        enter_ns: thread.call.seen_enter_ns(),
        ..of_connection(RecordKind::Accept, connection, now)
    });
}

#[inline(always)]
pub fn destroyed(connection: &Connection) {
    lifecycle(of_connection(RecordKind::Destroy, connection, now_ns()));
}

#[inline(always)]
pub fn drained(connection: &Connection, end_sequence: u32) {
    lifecycle(Lifecycle { end_sequence, ..of_connection(RecordKind::Drained, connection, now_ns()) });
}

#[inline(always)]
pub fn acked(connection: &Connection, acked_ns: u64, end_sequence: u32) {
    let now = now_ns();
    lifecycle(Lifecycle {
        end_sequence,
        enter_ns: acked_ns,
        ..of_connection(RecordKind::Acked, connection, now)
    });
}

#[inline(always)]
pub fn downstream(connection: &Connection, thread: &Thread, is_write: bool, bytes: u64, now: u64) {
    let Some(taken) = take() else { return };
    // SAFETY: a slot of our own; plain integers.
    unsafe {
        let record = taken.record::<records::Downstream>();
        (*record).kind = RecordKind::Downstream as u8;
        (*record).is_write = u8::from(is_write);
        (*record).remote_port = connection.remote_port;
        (*record).sequence = connection.sequence;
        (*record).connection_id = connection.id;
        (*record).tid = thread.tid;
        (*record).enter_ns = thread.call.seen_enter_ns();
        (*record).exit_ns = now;
        (*record).bytes = bytes;
        (*record).arrival_ns = connection.arrival.ns;
        (&raw mut (*record).remote_address).cast::<[u32; 4]>().write(connection.remote_address);
    }
    taken.commit();
}

#[inline(always)]
pub fn process(kind: RecordKind, tid: u32, tgid: u32) {
    let now = now_ns();
    lifecycle(Lifecycle {
        kind: kind as u8,
        reserved: 0,
        call: 0,
        sequence: 0,
        connection_id: 0,
        tid,
        tgid,
        established_ns: 0,
        enter_ns: now,
        exit_ns: now,
        local_port: 0,
        remote_port: 0,
        end_sequence: 0,
    });
}

//! Records into the ring: reserved, filled in place, submitted without waking the reader.

use core::mem::MaybeUninit;

use aya_ebpf::{
    macros::map,
    maps::{RingBuf, ring_buf::RingBufEntry},
};
use tracer_common::{
    counters::Counter,
    records::{self, HEAD_BYTES, Lifecycle, RecordKind},
    settings::DEFAULT_RING_BYTES,
};

use crate::{
    connections::Connection,
    counters,
    kernel::{self, now_ns},
    threads::Thread,
};

/// `BPF_RB_NO_WAKEUP`: the reader drains on a timer; a wake-up costs the traced core more than the record.
const NO_WAKEUP: u64 = 1;

#[map]
static RECORDS: RingBuf = RingBuf::with_byte_size(DEFAULT_RING_BYTES, 0);

#[inline(always)]
fn reserve<T: 'static>() -> Option<RingBufEntry<T>> {
    let entry = RECORDS.reserve::<T>(0);
    counters::count(if entry.is_some() { Counter::Records } else { Counter::RingFull });
    entry
}

/// A read or write record being filled. Every path ends in `finish`, which submits it.
pub struct Edge(RingBufEntry<records::Edge>);

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
        let mut entry = reserve::<records::Edge>()?;
        let edge = entry.as_mut_ptr();
        // SAFETY: reserved memory of this size; plain integers.
        unsafe {
            (*edge).kind = kind as u8;
            (*edge).call = number as u16;
            (*edge).tid = thread.tid;
            (*edge).tgid = thread.tgid;
            (*edge).enter_ns = thread.call.enter_ns;
            (*edge).exit_ns = exit_ns;
            (*edge).result = result;
            (*edge).at_enter.cpu_ns = thread.call.enter_cpu_ns;
            (*edge).at_enter.run_queue_ns = thread.call.enter_run_queue_ns;
            (*edge).at_enter.syscall_cpu_ns = thread.clock.syscall_cpu_ns;
            (*edge).at_enter.syscalls = thread.clock.syscalls;
            (*edge).exit_cpu_ns = exit_cpu_ns;
            (*edge).exit_run_queue_ns = thread.clock.run_queue_ns;
            (*edge).sleep = thread.sleep;
        }
        Some(Self(entry))
    }

    #[inline(always)]
    pub fn connection(&mut self, id: u64, sequence: u32, local_port: u16, remote_port: u16) {
        let edge = self.0.as_mut_ptr();
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
        let edge = self.0.as_mut_ptr();
        // SAFETY: as above.
        unsafe {
            (*edge).arrival = connection.arrival;
            (*edge).previous_arrival = connection.previous_arrival;
            (*edge).last_ready_ns = connection.last_ready_ns;
            (*edge).end_sequence = connection.received;
            (*edge).unsent_bytes = 0;
            (*edge).delivered_ns = 0;
            (*edge).delivered_cpu_ns = 0;
        }
    }

    #[inline(always)]
    pub fn delivery(&mut self, write_sequence: u32, unsent: u32, delivered_ns: u64, delivered_cpu_ns: u64) {
        let edge = self.0.as_mut_ptr();
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
    pub fn finish(mut self, flags: u8, iovecs: u32, buffer: u64, bytes: u64) {
        let edge = self.0.as_mut_ptr();
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
        self.0.submit(NO_WAKEUP);
    }
}

#[inline(always)]
fn lifecycle(record: Lifecycle) {
    if let Some(mut entry) = reserve::<Lifecycle>() {
        entry.write(record);
        entry.submit(NO_WAKEUP);
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
        enter_ns: thread.call.enter_ns,
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

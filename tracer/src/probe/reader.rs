//! The reading end of the lanes: looked at on a timer, records read in place and in the order of their times.

use std::{
    num::NonZeroUsize,
    os::fd::AsFd,
    ptr::{NonNull, null_mut},
    sync::atomic::{AtomicU64, Ordering},
};

use anyhow::{Context, Result};
use aya::maps::{Map, MapData};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use tracer_common::records::{Downstream, Edge, LaneEnds, Lifecycle, RecordKind, Slot};

/// How old a record must be before it is taken. CPUs write at their own pace: a record that is stamped with an earlier
/// time elsewhere has been committed by then, so that records come out in the order of their times.
const SETTLED_NS: u64 = 2_000_000;

/// A record in its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    /// A read or a write.
    Edge(&'a Edge),
    /// A step in the life of a connection or process.
    Lifecycle(&'a Lifecycle),
    /// A call on a connection that the target opened.
    Downstream(&'a Downstream),
}

impl<'a> Record<'a> {
    /// The record of a slot; `None` for bytes that are none.
    fn of(slot: &'a Slot) -> Option<Self> {
        let bytes = slot.record.as_ptr().cast::<u8>();
        // SAFETY: `record` is aligned to eight and as large as the largest record; all are plain integers, for which
        // every bit pattern is valid.
        unsafe {
            match RecordKind::from_byte(*bytes)? {
                RecordKind::Read | RecordKind::Write => Some(Self::Edge(&*bytes.cast())),
                RecordKind::Accept
                | RecordKind::Destroy
                | RecordKind::Fork
                | RecordKind::Exit
                | RecordKind::Drained
                | RecordKind::Acked => Some(Self::Lifecycle(&*bytes.cast())),
                RecordKind::Downstream => Some(Self::Downstream(&*bytes.cast())),
            }
        }
    }

    /// When what it tells of was over, `CLOCK_MONOTONIC` nanoseconds.
    pub fn at_ns(&self) -> u64 {
        match self {
            Self::Edge(edge) => edge.exit_ns,
            Self::Lifecycle(lifecycle) => lifecycle.exit_ns,
            Self::Downstream(call) => call.exit_ns,
        }
    }
}

/// The lanes' reading end.
pub struct Reader {
    slots: Mapping<Slot>,
    ends: Mapping<LaneEnds>,
    lane_slots: usize,
    /// What is ready, in the order of times; kept to be filled again.
    ready: Vec<Ready>,
    /// Records that were not understood: each is a defect.
    pub foreign: u64,
}

/// A record that may be taken.
struct Ready {
    at_ns: u64,
    slot: usize,
}

impl Reader {
    pub(super) fn new(slots: Map, ends: Map, lanes: usize, lane_slots: usize) -> Result<Self> {
        Ok(Self {
            slots: Mapping::new(slots, lanes * lane_slots, ProtFlags::READ)
                .context("cannot map the lanes of records")?,
            ends: Mapping::new(ends, lanes, ProtFlags::READ | ProtFlags::WRITE)
                .context("cannot map the ends of the lanes")?,
            lane_slots,
            ready: Vec::new(),
            foreign: 0,
        })
    }

    /// Takes the records that have settled by `now_ns`; returns how many those were. Once the programs are detached
    /// and nothing more can come, `u64::MAX` takes everything.
    pub fn drain(&mut self, now_ns: u64, mut take: impl FnMut(&Record)) -> u64 {
        let until_ns = now_ns.saturating_sub(SETTLED_NS);
        let mut ready = std::mem::take(&mut self.ready);
        let returned: Vec<u64> =
            (0..self.ends.len).map(|lane| self.look(lane, until_ns, &mut ready)).collect();
        ready.sort_by_key(|record| record.at_ns);
        for record in &ready {
            match Record::of(self.slot(record.slot)) {
                Some(record) => take(&record),
                None => self.foreign += 1,
            }
        }
        for (lane, position) in returned.into_iter().enumerate() {
            self.returned(lane).store(position, Ordering::Release);
        }
        let records = ready.len() as u64;
        ready.clear();
        self.ready = ready;
        records
    }

    /// Notes a lane's settled records; returns the position after them.
    fn look(&self, lane: usize, until_ns: u64, ready: &mut Vec<Ready>) -> u64 {
        let mut position = self.returned(lane).load(Ordering::Relaxed);
        loop {
            let index = lane * self.lane_slots + (position as usize & (self.lane_slots - 1));
            let slot = self.slot(index);
            // SAFETY: an aligned word that the kernel side writes.
            let stamp = unsafe { AtomicU64::from_ptr((&raw const slot.stamp).cast_mut()) };
            if stamp.load(Ordering::Acquire) != position + 1 {
                return position;
            }
            let at_ns = Record::of(slot).map_or(0, |record| record.at_ns());
            if at_ns > until_ns {
                return position;
            }
            ready.push(Ready { at_ns, slot: index });
            position += 1;
        }
    }

    fn slot(&self, index: usize) -> &Slot {
        assert!(index < self.slots.len);
        // SAFETY: inside the mapping, which lives as long as `self`; a committed slot is not written until returned.
        unsafe { self.slots.start.add(index).as_ref() }
    }

    fn returned(&self, lane: usize) -> &AtomicU64 {
        assert!(lane < self.ends.len);
        // SAFETY: as above; this word is the reader's alone.
        unsafe { AtomicU64::from_ptr(&raw mut (*self.ends.start.add(lane).as_ptr()).returned) }
    }
}

/// The memory of an array map, shared with the kernel side.
struct Mapping<T> {
    start: NonNull<T>,
    len: usize,
    bytes: NonZeroUsize,
    /// Keeps the map alive.
    _map: MapData,
}

// SAFETY: the pointer is to memory of the mapping's own, valid in every thread.
unsafe impl<T> Send for Mapping<T> {}

impl<T> Mapping<T> {
    fn new(map: Map, len: usize, access: ProtFlags) -> Result<Self> {
        let Map::Array(map) = map else { anyhow::bail!("the map is no array") };
        let page = rustix::param::page_size();
        let bytes = (len * size_of::<T>()).next_multiple_of(page);
        // SAFETY: a new mapping, at an address of the kernel's choice.
        let start = unsafe { mmap(null_mut(), bytes, access, MapFlags::SHARED, map.fd().as_fd(), 0) }?;
        let (Some(start), Some(bytes)) = (NonNull::new(start.cast::<T>()), NonZeroUsize::new(bytes)) else {
            anyhow::bail!("the mapping is empty");
        };
        Ok(Self { start, len, bytes, _map: map })
    }
}

impl<T> Drop for Mapping<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `new`; nothing borrows from it any more.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes.get()) };
    }
}

//! The reading end of the ring: drained on a timer, record by record, in the order in which they were reserved.

use anyhow::{Context, Result};
use aya::maps::{Map, MapData, RingBuf};
use tracer_common::records::{Edge, Lifecycle, RecordKind};

/// A record out of the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(
    clippy::large_enum_variant,
    reason = "lives on the stack between ring and attribution, one at a time"
)]
pub enum Record {
    /// A read or a write.
    Edge(Edge),
    /// A step in the life of a connection or process.
    Lifecycle(Lifecycle),
}

impl Record {
    /// Reads a record; `None` for bytes that are none.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        match RecordKind::from_byte(*bytes.first()?)? {
            RecordKind::Read | RecordKind::Write => Edge::from_bytes(bytes).map(Self::Edge),
            RecordKind::Accept
            | RecordKind::Destroy
            | RecordKind::Fork
            | RecordKind::Exit
            | RecordKind::Drained => Lifecycle::from_bytes(bytes).map(Self::Lifecycle),
        }
    }
}

/// The ring's reading end.
pub struct Reader {
    ring: RingBuf<MapData>,
    /// Records that were not understood: each is a defect.
    pub foreign: u64,
}

impl Reader {
    pub(super) fn new(map: Map) -> Result<Self> {
        Ok(Self { ring: RingBuf::try_from(map).context("the records' map is no ring buffer")?, foreign: 0 })
    }

    /// Takes everything the ring holds; returns how many records that were.
    pub fn drain(&mut self, mut take: impl FnMut(Record)) -> u64 {
        let mut records = 0;
        while let Some(bytes) = self.ring.next() {
            records += 1;
            match Record::from_bytes(&bytes) {
                Some(record) => take(record),
                None => self.foreign += 1,
            }
        }
        records
    }
}

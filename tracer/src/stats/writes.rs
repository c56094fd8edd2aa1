//! How responses leave: write calls per response, which calls, how many buffers.

use std::collections::BTreeMap;

use crate::recording::Request;

/// Responses with more writes than this are counted together.
pub const MOST_WRITES_COUNTED: usize = 8;

/// Write calls over all responses.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Writes {
    /// Responses by their number of writes that moved bytes; the last one holds those with more.
    pub per_response: [u64; MOST_WRITES_COUNTED + 2],
    /// Writes that moved bytes.
    pub total: u64,
    /// Writes that returned EAGAIN.
    pub eagain: u64,
    /// The kept calls (the first eight of a response), by syscall number.
    pub by_call: BTreeMap<u16, CallTotals>,
    /// Responses that left in exactly one write.
    pub one_write: OneWrite,
}

/// One kind of write call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallTotals {
    /// Calls that moved bytes.
    pub calls: u64,
    /// Bytes moved.
    pub bytes: u64,
    /// Calls that returned EAGAIN.
    pub eagain: u64,
}

/// Responses that left in exactly one write.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OneWrite {
    /// How many.
    pub responses: u64,
    /// How many by which syscall number.
    pub by_call: BTreeMap<u16, u64>,
    /// Buffers given, summed over them.
    pub iovecs: u64,
    /// Fewest buffers.
    pub fewest_iovecs: Option<u32>,
    /// Most buffers.
    pub most_iovecs: Option<u32>,
}

impl Writes {
    /// Adds the writes of one response.
    pub fn add(&mut self, request: &Request) {
        let writes = request.writes as usize;
        self.per_response[writes.min(MOST_WRITES_COUNTED + 1)] += 1;
        self.total += u64::from(request.writes);
        self.eagain += u64::from(request.writes_eagain);
        for write in request.kept_writes() {
            let totals = self.by_call.entry(write.call).or_default();
            totals.eagain += u64::from(write.is_eagain());
            if let Some(bytes) = write.bytes().filter(|&bytes| bytes > 0) {
                totals.calls += 1;
                totals.bytes += bytes;
            }
        }
        if writes == 1 {
            self.one_write.add(request);
        }
    }

    /// Adds everything `other` holds.
    pub fn merge(&mut self, other: &Self) {
        for (mine, others) in self.per_response.iter_mut().zip(other.per_response) {
            *mine += others;
        }
        self.total += other.total;
        self.eagain += other.eagain;
        for (call, totals) in &other.by_call {
            let mine = self.by_call.entry(*call).or_default();
            mine.calls += totals.calls;
            mine.bytes += totals.bytes;
            mine.eagain += totals.eagain;
        }
        self.one_write.merge(&other.one_write);
    }
}

impl OneWrite {
    fn add(&mut self, request: &Request) {
        self.responses += 1;
        let Some(write) = request.writes_that_moved_bytes().next() else {
            return;
        };
        *self.by_call.entry(write.call).or_default() += 1;
        self.iovecs += u64::from(write.iovecs);
        self.widen(Some(write.iovecs), Some(write.iovecs));
    }

    fn merge(&mut self, other: &Self) {
        self.responses += other.responses;
        for (call, count) in &other.by_call {
            *self.by_call.entry(*call).or_default() += count;
        }
        self.iovecs += other.iovecs;
        self.widen(other.fewest_iovecs, other.most_iovecs);
    }

    fn widen(&mut self, fewest: Option<u32>, most: Option<u32>) {
        self.fewest_iovecs = self.fewest_iovecs.into_iter().chain(fewest).min();
        self.most_iovecs = self.most_iovecs.max(most);
    }
}

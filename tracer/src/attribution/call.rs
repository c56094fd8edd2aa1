//! A read or write without its bytes: what a request keeps of its calls.

use tracer_common::records::{Edge, Sleep, ThreadClock, edge_flags};

/// One read-class or write-class call, from entry to exit. Fields as in [`Edge`].
#[derive(Clone, Copy, Debug)]
pub struct Call {
    pub number: u16,
    pub tid: u32,
    pub tgid: u32,
    pub connection_id: u64,
    pub enter_ns: u64,
    pub exit_ns: u64,
    pub result: i64,
    pub iovecs: u32,
    pub at_enter: ThreadClock,
    pub exit_cpu_ns: u64,
    pub exit_run_queue_ns: u64,
    pub sleep: Sleep,
    pub end_sequence: u32,
    pub unsent_bytes: u32,
    pub delivered_ns: u64,
    pub delivered_cpu_ns: u64,
    /// Its entry was seen.
    pub was_entered: bool,
}

impl From<&Edge> for Call {
    fn from(edge: &Edge) -> Self {
        Self {
            number: edge.call,
            tid: edge.tid,
            tgid: edge.tgid,
            connection_id: edge.connection_id,
            enter_ns: edge.enter_ns,
            exit_ns: edge.exit_ns,
            result: edge.result,
            iovecs: edge.iovecs,
            at_enter: edge.at_enter,
            exit_cpu_ns: edge.exit_cpu_ns,
            exit_run_queue_ns: edge.exit_run_queue_ns,
            sleep: edge.sleep,
            end_sequence: edge.end_sequence,
            unsent_bytes: edge.unsent_bytes,
            delivered_ns: edge.delivered_ns,
            delivered_cpu_ns: edge.delivered_cpu_ns,
            was_entered: edge.flags & edge_flags::NO_ENTER == 0,
        }
    }
}

impl Call {
    /// On-CPU nanoseconds inside; zero when its entry was not seen.
    pub fn cpu_ns(&self) -> u64 {
        if self.was_entered { self.exit_cpu_ns.saturating_sub(self.at_enter.cpu_ns) } else { 0 }
    }

    /// When the last byte it wrote was delivered; its exit when nobody saw that.
    pub fn end_of_write_ns(&self) -> u64 {
        if self.delivered_ns != 0 { self.delivered_ns } else { self.exit_ns }
    }
}

/// What a call moved of one message.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    /// Bytes of this message.
    pub bytes: u64,
    /// The call, with its CPU, counts for this message: it has no bytes of an earlier one.
    pub counts: bool,
}

impl Share {
    /// All of a call.
    pub fn whole(call: &Call) -> Self {
        Self { bytes: u64::try_from(call.result).unwrap_or(0), counts: true }
    }
}

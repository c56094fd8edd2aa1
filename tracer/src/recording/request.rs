//! One request, attributed: a row of `requests.parquet`.

use std::ops::AddAssign;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{DownstreamPeer, EAGAIN, Inference, Phase, ThreadStates};

/// How sure a number is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Grade {
    /// Between two kernel edges.
    #[default]
    Measured,
    /// By a user-space probe.
    Probed,
    /// By a rule that could be wrong: an [`Inference`](super::Inference).
    Inferred,
}

impl Grade {
    /// Every grade, the strongest first.
    pub const ALL: [Self; 3] = [Self::Measured, Self::Probed, Self::Inferred];

    /// The name in columns and JSON.
    pub fn key(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Probed => "probed",
            Self::Inferred => "inferred",
        }
    }
}

/// Own CPU of one request: where the server's processor time went. Adds up by itself, apart from wall time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestCpu {
    /// In read calls.
    pub read_ns: u64,
    /// In `app`, in user space.
    pub app_user_ns: u64,
    /// In `app`, inside syscalls other than the request's reads and writes.
    pub app_syscall_ns: u64,
    /// In write calls, until delivery.
    pub write_ns: u64,
    /// In write calls, after delivery: off the request's path.
    pub write_tail_ns: u64,
}

impl RequestCpu {
    /// CPU nanoseconds charged to the request.
    pub fn total_ns(&self) -> u64 {
        self.read_ns + self.app_user_ns + self.app_syscall_ns + self.write_ns + self.write_tail_ns
    }
}

impl AddAssign for RequestCpu {
    fn add_assign(&mut self, other: Self) {
        self.read_ns += other.read_ns;
        self.app_user_ns += other.app_user_ns;
        self.app_syscall_ns += other.app_syscall_ns;
        self.write_ns += other.write_ns;
        self.write_tail_ns += other.write_tail_ns;
    }
}

/// Write calls kept in full for every request.
pub const WRITES_KEPT: usize = 8;

/// One write call of a response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteCall {
    /// Syscall number (x86-64).
    pub call: u16,
    /// What it returned: bytes, or a negative errno (EAGAIN: the send buffer was full).
    pub result: i64,
    /// Buffers given; zero for sendfile and splice.
    pub iovecs: u32,
}

impl WriteCall {
    /// Bytes it moved; `None` when it failed.
    pub fn bytes(&self) -> Option<u64> {
        u64::try_from(self.result).ok()
    }

    /// It was refused because the send buffer was full.
    pub fn is_eagain(&self) -> bool {
        self.result == -EAGAIN
    }
}

/// The same request as the driver saw it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientTimes {
    /// Before the driver's write.
    pub send_ns: u64,
    /// After the driver's read that brought the first byte of the response.
    pub first_byte_ns: u64,
    /// After the driver's read that completed the response.
    pub done_ns: u64,
}

/// One request, attributed. One row of `requests.parquet`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// The connection: unique within the run.
    pub connection_id: u64,
    /// Ordinal of the request on its connection as far as it was traced, from 0.
    pub index: u32,
    /// The server's port.
    pub local_port: u16,
    /// The client's port.
    pub remote_port: u16,
    /// Process that read it.
    pub process_id: u32,
    /// Thread that read its head.
    pub read_thread_id: u32,
    /// Thread that began the response.
    pub write_thread_id: u32,
    /// Method, as sent; empty when it was not to be seen.
    pub method: Arc<str>,
    /// Path, without the query string unless asked for; empty when it was not to be seen.
    pub path: Arc<str>,
    /// Status of the response; zero when it was not to be seen.
    pub status: u16,
    /// The weakest grade among its edges.
    pub grade: Grade,
    /// Why it is graded inferred.
    pub inference: Option<Inference>,
    /// When its first byte became readable.
    pub first_byte_ns: u64,
    /// When its last response byte was delivered, or handed to the device.
    pub end_ns: u64,
    /// When the client's kernel had acknowledged its last byte. Not part of the wall time: a receiver waits up to 40 ms
    /// with it, for data to send it with. Zero: not asked for, or not seen.
    pub acked_ns: u64,
    /// Wall nanoseconds per phase, in the order of [`Phase::ALL`].
    pub phases_ns: [u64; 7],
    /// What the thread did in each phase, in the order of [`Phase::ALL`].
    pub states: [ThreadStates; 7],
    /// Of `app`: reading the rest of the body.
    pub body_read_ns: u64,
    /// Of `app`: waiting for the rest of the body.
    pub body_wait_ns: u64,
    /// Of `write`: between its write calls.
    pub write_gap_ns: u64,
    /// After delivery, inside the last write call. Not part of the wall time.
    pub write_tail_ns: u64,
    /// Of `queue`: from first byte readable until the sleeping thread ran; the rest is event-loop delay.
    pub wakeup_ns: u64,
    /// Own CPU.
    pub cpu: RequestCpu,
    /// Syscall the thread blocked in during `app`, as its number plus one; zero: none.
    pub blocked_call_plus_one: u32,
    /// Read calls that returned bytes of it. A call with bytes of several requests counts for the first of them, and
    /// so does its CPU: sums over requests are calls made.
    pub reads: u32,
    /// Read calls, counted for it or not, that returned bytes of it and of another request.
    pub shared_reads: u32,
    /// Write calls of its response that moved bytes. A call with bytes of several responses counts for the first.
    pub writes: u32,
    /// Write calls, counted for it or not, that moved bytes of its response and of another.
    pub shared_writes: u32,
    /// Write calls of its response that returned EAGAIN.
    pub writes_eagain: u32,
    /// The first [`WRITES_KEPT`] write calls, failed ones included.
    pub write_calls: [WriteCall; WRITES_KEPT],
    /// How many of `write_calls` are used.
    pub write_calls_len: u8,
    /// Request bytes read.
    pub bytes_in: u64,
    /// Response bytes written.
    pub bytes_out: u64,
    /// Whom its server asked for it.
    pub downstream: Vec<DownstreamPeer>,
    /// Of `app`: from the read that completed the head until something was sent downstream; zero: nothing was.
    pub before_downstream_ns: u64,
    /// The driver's own times, when our driver sent it.
    pub client: Option<ClientTimes>,
}

impl Request {
    /// The end of the response as far as the client's own clock does not say otherwise, nanoseconds.
    ///
    /// Delivery inside the last write leaves a tail of that call. Without one (the client held its socket's lock) the
    /// call's exit stands for it, and the client may have had the last byte at any time since its writes began.
    pub fn end_by_client_ns(&self, client: &ClientTimes) -> u64 {
        let delivery_seen = self.write_tail_ns > 0 || self.phase_ns(Phase::Drain) > 0;
        let uncertain_ns = if delivery_seen { 0 } else { self.phase_ns(Phase::Write) };
        client.done_ns.clamp(self.end_ns.saturating_sub(uncertain_ns), self.end_ns)
    }

    /// Wall nanoseconds from first byte readable to the end.
    pub fn wall_ns(&self) -> u64 {
        self.phases_ns.iter().sum()
    }

    /// The write calls kept.
    pub fn kept_writes(&self) -> &[WriteCall] {
        &self.write_calls[..usize::from(self.write_calls_len).min(WRITES_KEPT)]
    }

    /// The same, to be filled in.
    pub(super) fn kept_writes_mut(&mut self) -> &mut [WriteCall] {
        &mut self.write_calls[..usize::from(self.write_calls_len).min(WRITES_KEPT)]
    }

    /// The kept write calls that moved bytes.
    pub fn writes_that_moved_bytes(&self) -> impl Iterator<Item = &WriteCall> {
        self.kept_writes().iter().filter(|write| write.result > 0)
    }

    /// Wall nanoseconds of one phase.
    pub fn phase_ns(&self, phase: Phase) -> u64 {
        self.phases_ns[phase as usize]
    }
}

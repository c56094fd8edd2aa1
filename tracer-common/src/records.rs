//! Records: what the kernel side sends to user space, one per edge of a connection's life.
//!
//! Each CPU writes its records into a lane of its own: a ring of [`Slot`]s that user space maps and reads in place.
//! No lock, no wake-up, no copy: a record costs its stores (the kernel's ring buffer cost 215 ns more). All times are `CLOCK_MONOTONIC` nanoseconds; all process ids are
//! those of the kernel's initial pid namespace.

/// Bytes kept from the start of each read and of each write: most heads whole, so that user space can delimit messages.
/// Of these only method, path and status outlive the reader.
pub const HEAD_BYTES: usize = 792;

/// A record's place in a lane.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Slot {
    /// The record's position in its lane plus one, written last: a slot with another stamp is empty, or being filled.
    pub stamp: u64,
    /// An [`Edge`] or a [`Lifecycle`], told apart by the first byte.
    pub record: [u64; SLOT_WORDS],
}

/// Words of a slot's record.
pub const SLOT_WORDS: usize = 127;

/// Both ends of one lane, on cache lines of their own.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct LaneEnds {
    /// Slots taken so far by the kernel side, which alone writes this.
    pub taken: u64,
    /// Padding.
    pub reserved: [u64; 7],
    /// Slots given back so far by the reader, which alone writes this.
    pub returned: u64,
    /// Padding.
    pub also_reserved: [u64; 7],
}

/// What a record is. The first byte of every record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RecordKind {
    /// A read-class call on a connection returned: [`Edge`].
    Read = 1,
    /// A write-class call on a connection returned: [`Edge`].
    Write = 2,
    /// An accept-class call returned a connection: [`Lifecycle`].
    Accept = 3,
    /// The connection's socket was destroyed: [`Lifecycle`].
    Destroy = 4,
    /// A target process forked a process: [`Lifecycle`].
    Fork = 5,
    /// A target process ended: [`Lifecycle`].
    Exit = 6,
    /// Unsent response bytes reached the device queue: [`Lifecycle`], `exit_ns` is when.
    Drained = 7,
    /// The client's kernel acknowledged response bytes: [`Lifecycle`], `enter_ns` is when.
    Acked = 8,
    /// A read or write on a TCP connection that the target opened returned: [`Downstream`].
    Downstream = 9,
}

impl RecordKind {
    /// The kind that a record's first byte names, or `None` for a byte that names none.
    pub fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Self::Read,
            2 => Self::Write,
            3 => Self::Accept,
            4 => Self::Destroy,
            5 => Self::Fork,
            6 => Self::Exit,
            7 => Self::Drained,
            8 => Self::Acked,
            9 => Self::Downstream,
            _ => return None,
        })
    }
}

/// A thread's own cumulative clocks at one instant. Differences of two of these are what happened in between.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct ThreadClock {
    /// Nanoseconds on a CPU since the thread was first seen.
    pub cpu_ns: u64,
    /// Nanoseconds runnable but waiting for a CPU.
    pub run_queue_ns: u64,
    /// Nanoseconds on a CPU inside syscalls that have ended.
    pub syscall_cpu_ns: u64,
    /// Syscalls that have ended.
    pub syscalls: u64,
}

/// The thread's most recent sleep (a switch-out that was not a preemption) and the way back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Sleep {
    /// Switched out, blocked. Zero: no sleep seen yet.
    pub blocked_at_ns: u64,
    /// `sched_waking`: somebody asked for the wake-up. Zero: not seen.
    pub waking_ns: u64,
    /// `sched_wakeup`: on the run queue. Zero: not seen.
    pub runnable_ns: u64,
    /// On a CPU again.
    pub running_ns: u64,
    /// The thread's `cpu_ns` when it blocked: splits a stretch of CPU into before and after the sleep.
    pub cpu_ns: u64,
    /// The syscall the thread slept in, as its number plus one; zero: none (a page fault, say).
    pub call_plus_one: u32,
    /// The thread id of the waker (whoever ran when `sched_waking` fired; for a network wake-up, the sender).
    pub waker_tid: u32,
}

/// Bytes became readable on a receive queue that was empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Arrival {
    /// When. Zero: not seen.
    pub ns: u64,
    /// The socket's `copied_seq` then: where the arrived bytes begin.
    pub sequence: u32,
    /// Padding.
    pub reserved: u32,
}

/// One read-class or write-class call on a connection, from entry to exit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Edge {
    /// A [`RecordKind`].
    pub kind: u8,
    /// Bits of [`edge_flags`].
    pub flags: u8,
    /// Syscall number.
    pub call: u16,
    /// Counts this connection's records from 1; a gap is a lost record.
    pub sequence: u32,
    /// The connection: unique for the life of the loaded programs.
    pub connection_id: u64,
    /// Thread that made the call.
    pub tid: u32,
    /// Its process.
    pub tgid: u32,
    /// When the call was entered.
    pub enter_ns: u64,
    /// When it returned.
    pub exit_ns: u64,
    /// What it returned: bytes, or a negative errno.
    pub result: i64,
    /// iovec count for readv, writev, sendmsg, recvmsg; 1 for one buffer; 0 for sendfile and splice.
    pub iovecs: u32,
    /// The server's port, host byte order.
    pub local_port: u16,
    /// The client's port, host byte order.
    pub remote_port: u16,
    /// The thread's clocks at entry.
    pub at_enter: ThreadClock,
    /// On-CPU nanoseconds of the thread at exit.
    pub exit_cpu_ns: u64,
    /// Run-queue nanoseconds of the thread at exit.
    pub exit_run_queue_ns: u64,
    /// The thread's last sleep that ended before this record was written.
    pub sleep: Sleep,
    /// Reads: the newest arrival on an empty receive queue.
    pub arrival: Arrival,
    /// Reads: the one before it (the newest may already belong to later bytes than this read took).
    pub previous_arrival: Arrival,
    /// Reads: when bytes last became readable. Zero: not seen.
    pub last_ready_ns: u64,
    /// Reads: `rcv_nxt` at `last_ready_ns`. Writes: `write_seq` at exit.
    pub end_sequence: u32,
    /// Writes: bytes not handed to the device yet at exit (`write_seq` - `snd_nxt`).
    pub unsent_bytes: u32,
    /// Writes: when the peer's socket was told of the last byte, inside this call. Zero: not inside this call.
    pub delivered_ns: u64,
    /// Writes: the thread's `cpu_ns` at `delivered_ns`.
    pub delivered_cpu_ns: u64,
    /// Bytes used in `head`.
    pub head_len: u32,
    /// Padding.
    pub reserved: u32,
    /// First bytes of the call's first buffer.
    pub head: [u8; HEAD_BYTES],
}

/// Bits of [`Edge::flags`].
pub mod edge_flags {
    /// The call was entered before the programs were attached: `enter_ns` is zero, its CPU is not known.
    pub const NO_ENTER: u8 = 1;
    /// The receive queue got a FIN (state CLOSE_WAIT) by `last_ready_ns`.
    pub const PEER_CLOSED: u8 = 2;
    /// MSG_PEEK: the bytes stay in the queue.
    pub const PEEK: u8 = 4;
    /// sendfile or splice: no user buffer to take a head from.
    pub const NO_BUFFER: u8 = 8;
}

/// A step in the life of a connection or a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Lifecycle {
    /// A [`RecordKind`].
    pub kind: u8,
    /// Padding.
    pub reserved: u8,
    /// Syscall number, for accepts.
    pub call: u16,
    /// As [`Edge::sequence`]; zero for records of processes.
    pub sequence: u32,
    /// The connection, zero for records of processes.
    pub connection_id: u64,
    /// Thread that made the call; for forks the child's process id. Zero where the kernel moment has no owner.
    pub tid: u32,
    /// Its process; for forks the parent.
    pub tgid: u32,
    /// Accept: when the handshake ended. Zero: before attach.
    pub established_ns: u64,
    /// Accept: entry of the call. Acked: when it was acknowledged, which may lie inside the write.
    pub enter_ns: u64,
    /// When it happened; for accepts, exit of the call.
    pub exit_ns: u64,
    /// The server's port, host byte order.
    pub local_port: u16,
    /// The client's port, host byte order.
    pub remote_port: u16,
    /// Drained, acked: the sequence number after the last byte of which it is true.
    pub end_sequence: u32,
}

/// A read or write that moved bytes on a TCP connection which the target opened, to a database for example.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Downstream {
    /// [`RecordKind::Downstream`].
    pub kind: u8,
    /// 1: a write.
    pub is_write: u8,
    /// The peer's port, host byte order.
    pub remote_port: u16,
    /// As [`Edge::sequence`].
    pub sequence: u32,
    /// As [`Edge::connection_id`].
    pub connection_id: u64,
    /// When the call was entered; zero: before attach.
    pub enter_ns: u64,
    /// When it returned.
    pub exit_ns: u64,
    /// Bytes moved; none by a read that leaves them in the queue.
    pub bytes: u64,
    /// Reads: when bytes last arrived on an empty receive queue. Zero: not seen.
    pub arrival_ns: u64,
    /// The peer's address; IPv4 as an IPv4-mapped one.
    pub remote_address: [u8; 16],
    /// Thread that made the call.
    pub tid: u32,
    /// Padding.
    pub reserved: u32,
}

// The BPF object is committed: a silent change of layout would make it disagree with user space.
const _: () = assert!(size_of::<ThreadClock>() == 32);
const _: () = assert!(size_of::<Sleep>() == 48);
const _: () = assert!(size_of::<Edge>() == SLOT_WORDS * 8);
const _: () = assert!(size_of::<Slot>() == 1_024);
const _: () = assert!(size_of::<LaneEnds>() == 128);
const _: () = assert!(size_of::<Lifecycle>() == 56);
const _: () = assert!(size_of::<Downstream>() == 72);

//! The seam between what needs the kernel and what is pure: everything one run saw.
//!
//! A [`Run`] (settings, environment, counters, ledger) and its [`Request`]s, in memory or on disk. All `_ns` marks
//! are `CLOCK_MONOTONIC` nanoseconds; all process and thread ids are those of the kernel's initial pid namespace.

mod column;
pub mod columns;
pub mod disk;
mod syscall;

use std::ops::AddAssign;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use syscall::{EAGAIN, syscall_name, syscall_number};

/// Version of `run.json` and of the columns of `requests.parquet`. Rises when a reader must know.
pub const SCHEMA_VERSION: u32 = 1;

/// The phases of a request, end to end in this order; their sum is the request's wall time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// First byte readable, until the accept call that returns the connection exits.
    Accept,
    /// Pipelining: waiting for the previous response on the connection.
    Behind,
    /// Readable, until the read that takes it is entered.
    Queue,
    /// That read, until the read that completes the head exits.
    Read,
    /// Parse and handler: until the first write is entered.
    App,
    /// First write entered, until the last byte is delivered or the last write exits.
    Write,
    /// Unsent bytes left after the last write, until they are handed to the device.
    Drain,
}

impl Phase {
    /// Every phase, in the order in which they lie.
    pub const ALL: [Self; 7] =
        [Self::Accept, Self::Behind, Self::Queue, Self::Read, Self::App, Self::Write, Self::Drain];

    /// The name in tables. `app` says what it holds, for the kernel cannot split it.
    pub fn label(self) -> &'static str {
        match self {
            Self::Accept => "accept",
            Self::Behind => "behind",
            Self::Queue => "queue",
            Self::Read => "read",
            Self::App => "app (parse+handler)",
            Self::Write => "write",
            Self::Drain => "drain",
        }
    }

    /// The name in columns and JSON.
    pub fn key(self) -> &'static str {
        match self {
            Self::Accept => "accept",
            Self::Behind => "behind",
            Self::Queue => "queue",
            Self::Read => "read",
            Self::App => "app",
            Self::Write => "write",
            Self::Drain => "drain",
        }
    }
}

/// How sure a number is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Grade {
    /// Between two kernel edges.
    #[default]
    Measured,
    /// By a user-space probe.
    Probed,
    /// By a rule that could be wrong (named in the ledger's notes).
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

/// What the request's thread did during one phase. The parts add up to the phase's wall time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadStates {
    /// On a CPU for this request.
    pub own_cpu_ns: u64,
    /// On a CPU for something else: another request, the event loop.
    pub other_cpu_ns: u64,
    /// Runnable, waiting for a CPU.
    pub run_queue_ns: u64,
    /// Blocked in a syscall or asleep.
    pub blocked_ns: u64,
    /// Not known: the request moved between threads, or no thread has it.
    pub unknown_ns: u64,
}

impl ThreadStates {
    /// Wall nanoseconds of the phase.
    pub fn total_ns(&self) -> u64 {
        self.own_cpu_ns + self.other_cpu_ns + self.run_queue_ns + self.blocked_ns + self.unknown_ns
    }
}

impl AddAssign for ThreadStates {
    fn add_assign(&mut self, other: Self) {
        self.own_cpu_ns += other.own_cpu_ns;
        self.other_cpu_ns += other.other_cpu_ns;
        self.run_queue_ns += other.run_queue_ns;
        self.blocked_ns += other.blocked_ns;
        self.unknown_ns += other.unknown_ns;
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
    /// When its first byte became readable.
    pub first_byte_ns: u64,
    /// When its last response byte was delivered, or handed to the device.
    pub end_ns: u64,
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
    /// Read calls that returned bytes of it.
    pub reads: u32,
    /// Write calls of its response that moved bytes.
    pub writes: u32,
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
    /// The driver's own times, when our driver sent it.
    pub client: Option<ClientTimes>,
}

impl Request {
    /// Wall nanoseconds from first byte readable to the end.
    pub fn wall_ns(&self) -> u64 {
        self.phases_ns.iter().sum()
    }

    /// The write calls kept.
    pub fn kept_writes(&self) -> &[WriteCall] {
        &self.write_calls[..usize::from(self.write_calls_len).min(WRITES_KEPT)]
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

/// Count and times of one syscall over the traced window.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SyscallTotals {
    /// Its name.
    pub name: String,
    /// Calls that returned.
    pub calls: u64,
    /// Calls that returned EAGAIN.
    pub eagain: u64,
    /// Wall nanoseconds inside.
    pub wall_ns: u64,
    /// On-CPU nanoseconds inside.
    pub cpu_ns: u64,
}

/// Who held a CPU while a target thread was runnable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HolderTotals {
    /// Thread id.
    pub tid: u32,
    /// Process id.
    pub process_id: u32,
    /// Thread name.
    pub name: String,
    /// Nanoseconds held.
    pub held_ns: u64,
    /// It was a thread of `tracer` itself (driver or reader).
    pub is_tracer: bool,
}

/// Where every request went: sent = traced + lost by cause + unexplained.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ledger {
    /// Requests the driver sent and got answered; `None` without our driver.
    pub sent: Option<u64>,
    /// Requests traced in full.
    pub traced: u64,
    /// Requests begun before attach or unanswered at detach.
    pub mid_flight: u64,
    /// Requests spoiled by a record the full ring refused.
    pub lost_ring_full: u64,
    /// Requests on connections for which no slot was left.
    pub lost_connections_full: u64,
    /// Edges that fit no request (a write before any read, say), by number.
    pub unmatched_edges: u64,
    /// Negative differences met: each is a defect.
    pub defects: u64,
    /// Example of a defect.
    pub defect_example: Option<String>,
    /// Requests with an inferred edge, among the traced.
    pub inferred: u64,
    /// Every kernel-side counter by name (see `tracer_common::counters::Counter`).
    pub kernel_counters: Vec<(String, u64)>,
}

impl Ledger {
    /// Adds the ledger of another window.
    pub fn merge(&mut self, other: &Self) {
        self.sent = match (self.sent, other.sent) {
            (Some(a), Some(b)) => Some(a + b),
            (one, other) => one.or(other),
        };
        self.traced += other.traced;
        self.mid_flight += other.mid_flight;
        self.lost_ring_full += other.lost_ring_full;
        self.lost_connections_full += other.lost_connections_full;
        self.unmatched_edges += other.unmatched_edges;
        self.defects += other.defects;
        self.defect_example = self.defect_example.take().or_else(|| other.defect_example.clone());
        self.inferred += other.inferred;
        for (name, count) in &other.kernel_counters {
            match self.kernel_counters.iter_mut().find(|(known, _)| known == name) {
                Some((_, sum)) => *sum += count,
                None => self.kernel_counters.push((name.clone(), *count)),
            }
        }
    }

    /// sent - traced - every counted cause; must be zero. `None` without our driver.
    pub fn unexplained(&self) -> Option<i64> {
        let explained = self.traced + self.mid_flight + self.lost_ring_full + self.lost_connections_full;
        self.sent.map(|sent| sent as i64 - explained as i64)
    }

    /// Lost requests over all requests, 0..=1.
    pub fn loss_share(&self) -> f64 {
        let lost =
            self.lost_ring_full + self.lost_connections_full + self.unexplained().unwrap_or(0).unsigned_abs();
        let all = self.sent.unwrap_or(self.traced + lost).max(1);
        lost as f64 / all as f64
    }
}

/// The target's own accounts over the traced window, from the scheduler hooks and from /proc.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conservation {
    /// On-CPU nanoseconds by `sched_switch`.
    pub traced_cpu_ns: u64,
    /// On-CPU nanoseconds by /proc/PID/task/*/schedstat.
    pub schedstat_cpu_ns: u64,
    /// Run-queue nanoseconds by our hooks.
    pub traced_run_queue_ns: u64,
    /// run_delay by /proc/PID/task/*/schedstat.
    pub schedstat_run_delay_ns: u64,
    /// On-CPU nanoseconds charged to requests.
    pub charged_cpu_ns: u64,
    /// Nanoseconds the hypervisor took from all CPUs meanwhile (`steal` of /proc/stat, in steps of 10 ms). The kernel
    /// takes them off schedstat; a thread that is on a CPU meanwhile is on it all the same for `sched_switch`.
    pub stolen_ns: u64,
}

impl Conservation {
    /// Adds the accounts of another window.
    pub fn merge(&mut self, other: &Self) {
        self.traced_cpu_ns += other.traced_cpu_ns;
        self.schedstat_cpu_ns += other.schedstat_cpu_ns;
        self.traced_run_queue_ns += other.traced_run_queue_ns;
        self.schedstat_run_delay_ns += other.schedstat_run_delay_ns;
        self.charged_cpu_ns += other.charged_cpu_ns;
        self.stolen_ns += other.stolen_ns;
    }
}

/// The machine and kernel of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Environment {
    /// `uname -r`.
    pub kernel: String,
    /// CPU model.
    pub cpu_model: String,
    /// Online CPUs.
    pub cpus: u32,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Scaling governor of CPU 0, or empty.
    pub governor: String,
    /// Default TCP congestion control.
    pub congestion_control: String,
    /// Clock source.
    pub clock_source: String,
}

/// A process that was traced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TracedProcess {
    /// Process id.
    pub process_id: u32,
    /// Its name (`comm`).
    pub name: String,
    /// Its command line.
    pub command: Vec<String>,
}

/// Latencies as the client saw them, nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Percentiles {
    /// Samples.
    pub count: u64,
    /// Mean.
    pub mean_ns: f64,
    /// Median.
    pub p50_ns: u64,
    /// 90th percentile.
    pub p90_ns: u64,
    /// 99th percentile; `None` when fewer than ten samples lie beyond it.
    pub p99_ns: Option<u64>,
    /// 99.9th percentile; `None` when fewer than ten samples lie beyond it.
    pub p999_ns: Option<u64>,
    /// Largest.
    pub max_ns: u64,
}

/// What the driver did in a window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LoadTotals {
    /// Connections held open.
    pub connections: u32,
    /// Requests answered as expected.
    pub requests: u64,
    /// Requests that failed.
    pub errors: u64,
    /// First failure, in words.
    pub first_error: Option<String>,
    /// Connections opened again after the server closed them.
    pub reconnects: u64,
    /// Wall nanoseconds of the window.
    pub elapsed_ns: u64,
    /// CPU nanoseconds the driver's thread used.
    pub client_cpu_ns: u64,
    /// Client latency.
    pub latency: Percentiles,
}

impl LoadTotals {
    /// Requests per second.
    pub fn rate(&self) -> f64 {
        if self.elapsed_ns == 0 { 0.0 } else { self.requests as f64 * 1e9 / self.elapsed_ns as f64 }
    }
}

/// One round without probes: the headline figures come from these.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// The probes were attached.
    pub traced: bool,
    /// What the driver did.
    pub load: LoadTotals,
    /// CPU nanoseconds the server used (schedstat, all threads and children).
    pub server_cpu_ns: u64,
    /// run_delay nanoseconds of the server.
    pub server_run_delay_ns: u64,
}

impl Round {
    /// Server CPU nanoseconds per request.
    pub fn server_cpu_per_request_ns(&self) -> f64 {
        self.server_cpu_ns as f64 / self.load.requests.max(1) as f64
    }
}

/// Everything about a run but its requests: `run.json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// [`SCHEMA_VERSION`] of the writer.
    pub schema_version: u32,
    /// Version of `tracer`.
    pub tracer_version: String,
    /// What the run is called in tables: the server's name, or the command.
    pub name: String,
    /// What was asked of it ("GET /"), or empty for somebody else's traffic.
    pub workload: String,
    /// Seconds since the Unix epoch at the start.
    pub started_unix_s: u64,
    /// The command line of `tracer`.
    pub command: Vec<String>,
    /// Machine and kernel.
    pub environment: Environment,
    /// Traced processes.
    pub processes: Vec<TracedProcess>,
    /// Traced window, nanoseconds.
    pub window_ns: u64,
    /// The query string was kept in paths.
    pub keeps_query: bool,
    /// Connections the traced window saw.
    pub connections: u64,
    /// Connections accepted in the window, and their mean wait from ESTABLISHED to accept, nanoseconds.
    pub accepted: u64,
    /// Sum of their waits.
    pub accept_wait_ns: u64,
    /// Syscalls over the window, most frequent first.
    pub syscalls: Vec<SyscallTotals>,
    /// Who held the CPUs while the target waited, most first.
    pub holders: Vec<HolderTotals>,
    /// The ledger.
    pub ledger: Ledger,
    /// Outside accounts.
    pub conservation: Conservation,
    /// The traced window's load, when our driver made it.
    pub load: Option<LoadTotals>,
    /// Rounds, in the order they ran, traced and untraced.
    pub rounds: Vec<Round>,
    /// CPUs the server was pinned to; empty: not pinned.
    pub server_cpus: Vec<u32>,
    /// CPUs of driver and reader; empty: not pinned.
    pub client_cpus: Vec<u32>,
    /// CPU nanoseconds of the thread that read the records.
    pub reader_cpu_ns: u64,
    /// Kernel memory of the BPF maps, bytes.
    pub map_bytes: u64,
    /// Why the run ended early ("interrupted", "the target exited"), or empty.
    pub ended_early: String,
    /// Things the reader of the numbers must know, in words.
    pub notes: Vec<String>,
}

//! What a report holds. Every format shows this and nothing else; times are nanoseconds.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::limit::Limit;
use crate::recording::{Environment, HolderTotals, Ledger, Percentiles, Phase};
use crate::stats::{CpuPerRequest, Spread};

/// Version of the JSON. Rises when a reader must know.
pub const REPORT_SCHEMA: u32 = 1;

/// Above this share of lost requests the figures are marked unreliable.
pub const LOSS_LIMIT: f64 = 0.001;

/// One report: a row per server and workload.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// [`REPORT_SCHEMA`].
    pub schema: u32,
    /// Version of `tracer`.
    pub tracer_version: String,
    /// Servers and workloads, in the order they ran.
    pub rows: Vec<Row>,
    /// Things the reader must know about all of them.
    pub notes: Vec<String>,
}

impl Report {
    /// A report of these rows.
    pub fn new(rows: Vec<Row>) -> Self {
        let tracer_version = env!("CARGO_PKG_VERSION").to_owned();
        Self { schema: REPORT_SCHEMA, tracer_version, rows, notes: Vec::new() }
    }
}

/// One server under one workload.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Server or command.
    pub server: String,
    /// What was asked of it; empty: somebody else's traffic.
    pub workload: String,
    /// The answer in one sentence.
    pub answer: String,
    /// Requests traced in full: the ones the figures per phase are about.
    pub requests: u64,
    /// Connections under load, when our driver made it.
    pub connections: Option<u32>,
    /// Requests per second; `None` when none were answered, or some wrongly.
    pub requests_per_s: Option<Rate>,
    /// Server CPU per request.
    pub cpu_per_request: Option<CpuPerRequest>,
    /// What tracing did to the server; `None` without rounds of both kinds.
    pub tracing: Option<TracingRatio>,
    /// What the client saw.
    pub client: Option<ClientLatency>,
    /// Who was the limit.
    pub limit: Limit,
    /// Why the run ended before its time; empty: it did not.
    pub ended_early: String,
    /// Failed or unexpected responses.
    pub failed_responses: u64,
    /// The first of them, in words.
    pub first_failure: Option<String>,
    /// Server CPU by phase.
    pub cpu: CpuByPhase,
    /// Wall time by phase.
    pub latency: Vec<PhaseLatency>,
    /// Wall time of whole requests.
    pub wall: PhaseLatency,
    /// Parts of phases.
    pub parts: PhaseParts,
    /// Share of `queue` in the wall time.
    pub queue_share: f64,
    /// Requests with an inferred edge.
    pub inferred_requests: u64,
    /// Requests by the syscall their thread blocked in during `app`, most first.
    pub blocked_calls: Vec<NamedCount>,
    /// Who held the CPUs while the server waited, most first.
    pub holders: Vec<HolderTotals>,
    /// Syscalls per request, most first.
    pub syscalls: Vec<SyscallPerRequest>,
    /// All of them together.
    pub syscalls_per_request: Option<f64>,
    /// How responses left.
    pub writes: WritesReport,
    /// Whom the requests waited for on connections that the server opened, longest wait first.
    pub downstream: Vec<DownstreamReport>,
    /// From the read of the head until something was first sent downstream, of the requests that did: a wait for a
    /// free connection is here.
    pub before_downstream: Option<Latency>,
    /// Requests by status; zero: not seen.
    pub statuses: BTreeMap<u16, u64>,
    /// Requests by method and path, most first.
    pub routes: Vec<NamedCount>,
    /// Mean bytes per request.
    pub bytes_in_per_request: f64,
    /// Mean bytes per response.
    pub bytes_out_per_request: f64,
    /// Mean wait of a connection from ESTABLISHED to its accept, over those accepted in the window.
    pub accept_wait: Option<AcceptWait>,
    /// Where every request went.
    pub ledger: LedgerReport,
    /// Our accounts beside those of the kernel.
    pub conservation: Vec<ConservationLine>,
    /// Machine and kernel.
    pub environment: Environment,
    /// Things the reader must know.
    pub notes: Vec<String>,
    /// Violated promises: the caller exits 3.
    pub defects: Vec<String>,
    /// More requests were lost than [`LOSS_LIMIT`] allows.
    pub unreliable: bool,
}

impl Row {
    /// Violated promises, one sentence each; with any, the figures give no verdict.
    pub fn defects(&self) -> &[String] {
        &self.defects
    }

    /// More requests were lost than [`LOSS_LIMIT`] allows: no verdict either.
    pub fn unreliable(&self) -> bool {
        self.unreliable
    }

    /// It may be compared with others: nothing failed, enough was seen, and the server was not held back.
    pub fn ranked(&self) -> bool {
        !self.limit.is_client()
            && !self.unreliable
            && self.defects.is_empty()
            && self.requests_per_s.is_some()
    }
}

/// Requests per second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Rate {
    /// Over the rounds.
    pub per_s: Spread,
    /// Taken with the probes attached: there was no round without.
    pub traced: bool,
}

/// Latency at the client, of one window: percentiles of several cannot be averaged.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ClientLatency {
    /// Of the round whose rate is the median.
    pub percentiles: Percentiles,
    /// Taken with the probes attached.
    pub traced: bool,
    /// Mean from the driver's send to the first byte readable (traced).
    pub before_arrival_ns: Option<f64>,
    /// Mean from delivery to the driver's last read (traced).
    pub after_delivery_ns: Option<f64>,
}

/// Server CPU per traced request. The parts add up to `total_ns`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuByPhase {
    /// In read calls.
    pub read_ns: f64,
    /// In `app`, in user space.
    pub app_user_ns: f64,
    /// In `app`, in syscalls.
    pub app_syscall_ns: f64,
    /// In write calls until delivery.
    pub write_ns: f64,
    /// In write calls after delivery.
    pub write_tail_ns: f64,
    /// Charged to requests that were not traced in full.
    pub unfinished_ns: f64,
    /// Charged to no request: the event loop, timers, garbage collection in other threads.
    pub between_requests_ns: f64,
    /// All the server used.
    pub total_ns: f64,
}

impl CpuByPhase {
    /// Charged to requests.
    pub fn own_ns(&self) -> f64 {
        self.read_ns + self.app_ns() + self.write_ns + self.write_tail_ns
    }

    /// In `app`.
    pub fn app_ns(&self) -> f64 {
        self.app_user_ns + self.app_syscall_ns
    }

    /// The phase that took most, and its share of the CPU charged to requests.
    pub fn largest(&self) -> Option<(Phase, f64)> {
        let phases = [
            (Phase::Read, self.read_ns),
            (Phase::App, self.app_ns()),
            (Phase::Write, self.write_ns + self.write_tail_ns),
        ];
        let own_ns = self.own_ns();
        let (phase, ns) = phases.into_iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
        (own_ns > 0.0).then(|| (phase, ns / own_ns))
    }
}

/// Wall time of a phase, or of whole requests, under load and at one connection.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PhaseLatency {
    /// The phase; `None`: the whole request.
    pub phase: Option<Phase>,
    /// At the given load.
    pub loaded: Latency,
    /// At one connection.
    pub single: Option<Latency>,
    /// What the thread did meanwhile, mean per request at the given load.
    pub states: StateMeans,
}

/// Mean and percentiles of a duration.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Latency {
    /// Mean.
    pub mean_ns: f64,
    /// Median.
    pub p50_ns: u64,
    /// 99th percentile; `None`: too few samples.
    pub p99_ns: Option<u64>,
}

/// Thread states, mean per request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct StateMeans {
    /// On a CPU for this request.
    pub own_cpu_ns: f64,
    /// On a CPU for something else.
    pub other_cpu_ns: f64,
    /// Waiting for a CPU.
    pub run_queue_ns: f64,
    /// Blocked or asleep.
    pub blocked_ns: f64,
    /// Not known.
    pub unknown_ns: f64,
}

/// Server CPU per request, traced over untraced.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct TracingRatio {
    /// Over pairs of rounds that followed each other.
    pub ratio: Spread,
    /// Share of its cores that the server was busy without the probes, median; `None`: it is not pinned.
    pub server_busy_untraced: Option<f64>,
    /// The same with them.
    pub server_busy_traced: Option<f64>,
}

/// Parts of phases, mean per request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct PhaseParts {
    /// Of `queue`: until the sleeping thread ran.
    pub wakeup_ns: f64,
    /// Of `app`: reading the rest of the body.
    pub body_read_ns: f64,
    /// Of `app`: waiting for the rest of the body.
    pub body_wait_ns: f64,
    /// Of `write`: between write calls.
    pub write_gap_ns: f64,
    /// After delivery, inside the last write: outside the wall time.
    pub write_tail_ns: f64,
    /// From the end to the client's acknowledgement, of the requests where it was seen: outside the wall time.
    pub acked_after_ns: Option<f64>,
}

/// A name and how often it was met.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NamedCount {
    /// The name.
    pub name: String,
    /// How often.
    pub count: u64,
}

/// One syscall, per request.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SyscallPerRequest {
    /// Its name.
    pub name: String,
    /// Calls over the window.
    pub calls: u64,
    /// Calls per request.
    pub calls_per_request: f64,
    /// Calls per request that returned EAGAIN.
    pub eagain_per_request: f64,
    /// Wall time inside, per request.
    pub wall_ns_per_request: f64,
    /// On-CPU time inside, per request.
    pub cpu_ns_per_request: f64,
}

/// How responses left.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WritesReport {
    /// Writes per response, mean.
    pub mean: f64,
    /// Responses by their number of writes ("0" to "8", "more").
    pub per_response: Vec<NamedCount>,
    /// Write calls by name (the first eight of a response).
    pub calls: Vec<WriteCallReport>,
    /// Writes whose call was not kept: beyond the eighth of a response.
    pub not_kept: u64,
    /// Writes that returned EAGAIN.
    pub eagain: u64,
    /// Responses that left in exactly one write.
    pub one_write: OneWriteReport,
}

/// One kind of write call.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WriteCallReport {
    /// Its name.
    pub name: String,
    /// Calls that moved bytes.
    pub calls: u64,
    /// Mean bytes they moved.
    pub mean_bytes: f64,
    /// Calls that returned EAGAIN.
    pub eagain: u64,
}

/// Responses that left in exactly one write.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OneWriteReport {
    /// How many.
    pub responses: u64,
    /// Their share of all responses.
    pub share: f64,
    /// By which call, most first.
    pub calls: Vec<NamedCount>,
    /// Buffers given, mean.
    pub mean_iovecs: f64,
    /// Fewest buffers.
    pub fewest_iovecs: Option<u32>,
    /// Most buffers.
    pub most_iovecs: Option<u32>,
}

/// What was asked of one peer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DownstreamReport {
    /// Its address and port.
    pub peer: String,
    /// Requests that asked it. What follows is about these.
    pub requests: u64,
    /// Round trips per request.
    pub round_trips_per_request: f64,
    /// Share of the round trips that another of the requests open then may have made.
    pub inferred_share: f64,
    /// Wait of a request, summed over its round trips.
    pub wait: Latency,
    /// Mean bytes sent.
    pub bytes_out_per_request: f64,
    /// Mean bytes received.
    pub bytes_in_per_request: f64,
}

/// Connections accepted in the window.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct AcceptWait {
    /// How many.
    pub connections: u64,
    /// Mean from ESTABLISHED to accept.
    pub mean_ns: f64,
}

/// The ledger and what follows from it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LedgerReport {
    /// Every count.
    #[serde(flatten)]
    pub counts: Ledger,
    /// What no cause explains; must be zero. `None` without our driver.
    pub unexplained: Option<i64>,
    /// Lost over all.
    pub loss_share: f64,
    /// Share of the driver's requests that its own times (send, first byte, last byte) were joined with. `None` without
    /// our driver.
    pub joined_share: Option<f64>,
}

/// One account of ours beside that of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ConservationLine {
    /// What is compared.
    pub what: &'static str,
    /// By our hooks.
    pub traced_ns: u64,
    /// By /proc/PID/task/*/schedstat.
    pub kernel_ns: u64,
    /// Nanoseconds the hypervisor took from all CPUs meanwhile: explains as much of a difference.
    pub stolen_ns: u64,
    /// Processes that exited: the kernel's accounts of them went with them, and nothing is compared.
    pub exited_processes: u64,
    /// The difference over the kernel's figure; `None` when there is nothing to compare.
    pub difference: Option<f64>,
    /// They agree as far as promised.
    pub held: bool,
}

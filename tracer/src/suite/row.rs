//! One server under one workload, over fresh starts.

use serde::{Deserialize, Serialize};

use crate::report::{self, CpuByPhase, LimitedBy};
use crate::stats::Spread;

/// One server under one workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The server.
    pub server: String,
    /// What it runs on; empty: not said.
    pub runtime: String,
    /// The workload.
    pub workload: String,
    /// One per round and fresh start, probes off; a round may be missing at the end.
    pub rounds: Vec<Figures>,
    /// Median latency at the client in the round whose rate is the median, probes off.
    pub p50_ns: Option<u64>,
    /// 99th percentile of it.
    pub p99_ns: Option<u64>,
    /// Syscalls per request, traced.
    pub syscalls_per_request: Option<f64>,
    /// Write calls per response, traced.
    pub writes_per_response: f64,
    /// Responses that left in one write, as a share.
    pub one_write_share: f64,
    /// The calls of those, most used first.
    pub one_write_calls: Vec<String>,
    /// Server CPU per request by phase, traced.
    pub cpu: CpuByPhase,
    /// Server CPU per request traced over untraced.
    pub tracing_ratio: Option<f64>,
    /// Who was the limit.
    pub limit: LimitedBy,
    /// Requests traced in full.
    pub traced_requests: u64,
    /// Requests that failed or were answered otherwise than expected.
    pub failed: u64,
    /// The first of them, in words.
    pub first_failure: Option<String>,
    /// Violated promises of the measurement.
    pub defects: Vec<String>,
    /// More requests were lost than may be.
    pub unreliable: bool,
    /// Things the reader must know.
    pub notes: Vec<String>,
}

/// One round, probes off.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Requests per second.
    pub requests_per_s: f64,
    /// Server CPU per request.
    pub cpu_ns: f64,
}

impl Row {
    /// The row of a report, with its rounds one by one.
    pub fn of(row: report::Row, runtime: &str, rounds: Vec<Figures>) -> Self {
        let client = row.client.map(|client| client.percentiles);
        Self {
            runtime: runtime.to_owned(),
            rounds,
            p50_ns: client.map(|percentiles| percentiles.p50_ns),
            p99_ns: client.and_then(|percentiles| percentiles.p99_ns),
            syscalls_per_request: row.syscalls_per_request,
            writes_per_response: row.writes.mean,
            one_write_share: row.writes.one_write.share,
            one_write_calls: row.writes.one_write.calls.into_iter().map(|call| call.name).collect(),
            cpu: row.cpu,
            tracing_ratio: row.tracing.map(|tracing| tracing.ratio.median),
            limit: row.limit.by,
            traced_requests: row.requests,
            failed: row.failed_responses,
            first_failure: row.first_failure,
            defects: row.defects,
            unreliable: row.unreliable,
            notes: row.notes,
            server: row.server,
            workload: row.workload,
        }
    }

    /// Requests per second over the rounds; none when a request failed.
    pub fn requests_per_s(&self) -> Option<Spread> {
        self.spread(|figures| figures.requests_per_s)
    }

    /// Server CPU per request over the rounds; none when a request failed.
    pub fn cpu_ns(&self) -> Option<Spread> {
        self.spread(|figures| figures.cpu_ns)
    }

    fn spread(&self, figure: impl Fn(&Figures) -> f64) -> Option<Spread> {
        Spread::of(self.rounds.iter().map(figure)).filter(|_| self.failed == 0)
    }

    /// Its figures can be relied on.
    pub fn is_sound(&self) -> bool {
        self.defects.is_empty() && !self.unreliable
    }

    /// What this row's CPU per request is more than another's, round by round: both were measured in each.
    pub fn cpu_over(&self, other: &Self) -> Option<Spread> {
        let pairs = self.rounds.iter().zip(&other.rounds);
        Spread::of(pairs.map(|(mine, others)| mine.cpu_ns - others.cpu_ns))
            .filter(|_| self.failed == 0 && other.failed == 0)
    }
}

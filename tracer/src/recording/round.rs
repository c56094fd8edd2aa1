//! What the driver did: a window of load, and a round of a bench.

use serde::{Deserialize, Serialize};

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
    /// Requests kept in flight, connections times pipelining depth; `None`: at a constant rate they are not.
    #[serde(default)]
    pub kept_in_flight: Option<u64>,
    /// Requests that were due, at a constant rate.
    #[serde(default)]
    pub asked: Option<u64>,
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
    /// Client latency: service time, or at a constant rate response time, from when each request was due.
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
    /// Requests of other clients meanwhile; known with probes only.
    #[serde(default)]
    pub other_requests: u64,
}

impl Round {
    /// Server CPU nanoseconds per request.
    pub fn server_cpu_per_request_ns(&self) -> f64 {
        self.server_cpu_ns as f64 / (self.load.requests + self.other_requests).max(1) as f64
    }
}

//! Everything a comparison measured: all launches with all their slices, so that it can be judged again or extended.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::recording::Environment;

/// Version of `comparison.json`. Rises when a reader must know.
pub const COMPARISON_SCHEMA: u32 = 1;

/// Significant digits of stored latencies.
const LATENCY_DIGITS: u8 = 2;

/// Which of the servers that run side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// The build to compare with.
    A,
    /// The build in question.
    B,
    /// A again, in a process of its own: it must not differ from A.
    Control,
}

impl Side {
    /// All of them; the index of each is its place here.
    pub const ALL: [Self; 3] = [Self::A, Self::B, Self::Control];
}

/// What is compared, so that it can be started again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Origin {
    /// Two command lines, asked for these URLs.
    Commands {
        /// A and B.
        commands: [String; 2],
        /// With `{port}` where the port stands.
        urls: Vec<String>,
    },
    /// Two servers of a scenario file, over its requests.
    Scenario {
        /// The file.
        path: String,
        /// Their names in it.
        servers: [String; 2],
        /// Only these requests; empty: all.
        requests: Vec<String>,
    },
    /// Recordings, a launch each.
    Recordings {
        /// Folders of A and of B.
        folders: [String; 2],
    },
}

/// How every launch is measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Design {
    /// Keep-alive connections.
    pub connections: u32,
    /// Requests per second to each side; `None`: as many as it answers.
    #[serde(default)]
    pub rate_per_s: Option<f64>,
    /// Length of one slice, nanoseconds.
    pub slice_ns: u64,
    /// Untraced slices of each side, per launch and route; even.
    pub slices: u32,
    /// Traced slices of A and of B, per launch and route; even, or zero for none.
    pub traced_slices: u32,
    /// Load on each side before its first slice, nanoseconds.
    pub warm_up_ns: u64,
}

/// A comparison: what was asked, and what has been measured so far.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// [`COMPARISON_SCHEMA`] of the writer.
    pub schema_version: u32,
    /// Version of `tracer`.
    pub tracer_version: String,
    /// Seconds since the Unix epoch at the start.
    pub started_unix_s: u64,
    /// Machine and kernel.
    pub environment: Environment,
    /// What is compared.
    pub origin: Origin,
    /// Names of A and B.
    pub names: [String; 2],
    /// How.
    pub design: Design,
    /// What is asked of both, in order.
    pub routes: Vec<Route>,
    /// Launches that were completed, in order.
    pub launches: Vec<Launch>,
    /// Number of launches at each look that was taken.
    pub looks: Vec<usize>,
    /// Why it ended before its verdict, or empty.
    pub ended_early: String,
    /// Things the reader must know.
    pub notes: Vec<String>,
}

/// One request, asked again and again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// Its name in tables, such as `GET /`.
    pub name: String,
    /// How the answers of A and B differ where they must not; empty: not at all.
    pub unequal_work: String,
}

/// One fresh start of A, B and the control.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Launch {
    /// CPU of all three servers.
    pub server_cpu: u32,
    /// CPU of the driver and of `tracer`.
    pub client_cpu: u32,
    /// Order in which they were started.
    pub order: [Side; 3],
    /// The processes, in the order of [`Side::ALL`].
    pub processes: [Started; 3],
    /// One entry for each route.
    pub routes: Vec<RouteLaunch>,
    /// Nanoseconds the hypervisor took from all CPUs meanwhile.
    pub stolen_ns: u64,
}

/// One server process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    /// Its port.
    pub port: u16,
    /// From its exec to its first answer.
    pub cold_start_ns: u64,
    /// Resident memory after the slices.
    pub rss_bytes: u64,
    /// Of it, anonymous: heap and stacks.
    pub heap_bytes: u64,
    /// Processes after the slices.
    pub processes: u32,
    /// Their threads.
    pub threads: u32,
}

/// One route in one launch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RouteLaunch {
    /// Untraced slices, in the order in which they ran.
    pub slices: Vec<Slice>,
    /// Client latency of the untraced slices, in the order of [`Side::ALL`]: service time, or at a constant rate
    /// response time, from when each request was due.
    pub latency: [Latency; 3],
    /// What the traced slices of A and of B came to.
    pub traced: Option<[Figures; 2]>,
}

/// Load on one side, for a fraction of a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slice {
    /// Who was loaded.
    pub side: Side,
    /// Slices of one turn are neighbours in time, one of each side.
    pub turn: u32,
    /// Requests answered.
    pub requests: u64,
    /// Requests that were due, at a constant rate.
    #[serde(default)]
    pub due: Option<u64>,
    /// Wall time.
    pub elapsed_ns: u64,
    /// CPU of the server, all threads and children.
    pub server_cpu_ns: u64,
    /// Its wait for a CPU.
    pub run_delay_ns: u64,
    /// CPU of the driver.
    pub client_cpu_ns: u64,
    /// Its page faults.
    pub page_faults: u64,
}

/// A distribution of client latencies, as pairs of nanoseconds and a count, to two digits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latency(pub Vec<(u64, u64)>);

impl Latency {
    /// Adds all of `histogram`.
    pub fn add(&mut self, histogram: &Histogram<u64>) {
        let mut all = self.histogram();
        for value in histogram.iter_recorded() {
            let clamped = value.value_iterated_to().min(i64::MAX as u64);
            all.record_n(clamped, value.count_at_value())
                .expect("an auto-resizing histogram takes every value");
        }
        self.0 = all.iter_recorded().map(|v| (v.value_iterated_to(), v.count_at_value())).collect();
    }

    /// As a histogram again.
    pub fn histogram(&self) -> Histogram<u64> {
        let mut histogram = Histogram::new(LATENCY_DIGITS).expect("two digits are allowed");
        for &(ns, count) in &self.0 {
            histogram.record_n(ns, count).expect("an auto-resizing histogram takes every value");
        }
        histogram
    }
}

/// What traced slices came to, per request. Nanoseconds unless told otherwise.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Requests traced.
    pub requests: u64,
    /// Server CPU by phase and by user or syscall; the lines add up to all of it.
    pub cpu_ns: BTreeMap<String, f64>,
    /// Wall time by phase and thread state; the lines add up to all of it.
    pub latency_ns: BTreeMap<String, f64>,
    /// The same of the slowest hundredth.
    pub slowest_ns: BTreeMap<String, f64>,
    /// Calls, bytes and switches per request.
    pub counts: BTreeMap<String, f64>,
    /// The most frequent way in which responses left.
    pub writes: Vec<WriteStep>,
    /// Share of the responses that left like that.
    pub writes_share: f64,
    /// Share of requests that were lost.
    pub loss_share: f64,
    /// Slices left out, with what was not sound about each.
    pub left_out: Vec<String>,
}

/// One write of a response.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WriteStep {
    /// Its syscall.
    pub call: String,
    /// Bytes it moved, mean.
    pub bytes: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_latency_keeps_its_percentiles() {
        let mut histogram = Histogram::<u64>::new(3).unwrap();
        (1..=10_000u64).for_each(|n| histogram.record(n * 1000).unwrap());
        let mut latency = Latency::default();
        latency.add(&histogram);
        latency.add(&histogram);
        let again = latency.histogram();
        assert_eq!(again.len(), 20_000);
        let p99 = again.value_at_quantile(0.99) as f64;
        assert!((p99 / 9_900_000.0 - 1.0).abs() < 0.02, "{p99}");
    }
}

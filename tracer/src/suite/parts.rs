//! What a suite finds beside the rows: memory, cold starts, and how routers grow.

use serde::{Deserialize, Serialize};

use crate::stats::{Spread, paired::Interval};

/// Memory of one server, over fresh starts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Memory {
    /// The server.
    pub server: String,
    /// Resident when it answers.
    pub idle_bytes: Option<Spread>,
    /// Resident after the load.
    pub loaded_bytes: Option<Spread>,
    /// The most it ever was.
    pub peak_bytes: Option<Spread>,
    /// Requests of the load.
    pub requests: u64,
    /// Connections they came over.
    pub connections: u32,
    /// Heap that a route keeps, after a forced collection; `None`: the server does not tell.
    pub route_bytes: Option<Spread>,
}

/// Cold starts of one server. Moments are the kernel's; the first answer's is the client's, on the same clock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ColdStart {
    /// The server.
    pub server: String,
    /// From exec until it listens.
    pub listen_ns: Option<Spread>,
    /// From exec until the first answer was read, by a client that connected on the event.
    pub answer_ns: Option<Spread>,
    /// CPU until then.
    pub cpu_ns: Option<Spread>,
    /// Waiting for its core until then.
    pub run_queue_ns: Option<Spread>,
    /// Page faults until then: without and with a read from a disk.
    pub minor_faults: Option<Spread>,
    /// Those with a read from a disk.
    pub major_faults: Option<Spread>,
    /// Files opened and read until then, in one more start with probes: calls by name.
    pub file_calls: Vec<(String, u64)>,
    /// CPU per request of the first requests, slice by slice, median over the starts.
    pub curve_ns: Vec<f64>,
    /// Requests in a slice.
    pub slice_requests: u64,
}

impl ColdStart {
    /// Requests after which CPU per request stays within a tenth of its last value; `None`: not within the curve.
    pub fn flat_after(&self) -> Option<u64> {
        let last = *self.curve_ns.last()?;
        let uneven = self.curve_ns.iter().rposition(|ns| (ns - last).abs() > 0.1 * last);
        let first_flat = uneven.map_or(0, |index| index + 1);
        // The last slice is always like itself: that alone is no evidence.
        (first_flat + 1 < self.curve_ns.len()).then_some(first_flat as u64 * self.slice_requests)
    }
}

/// What a request to some route takes more than one to the first, within a process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RouterGrowth {
    /// The server.
    pub server: String,
    /// Which request: `last`, `miss`, `tenant`, `params`.
    pub target: String,
    /// Routes in the table.
    pub routes: u32,
    /// Added CPU per request, a value per fresh start; `None`: too few for an interval.
    pub added_ns: Option<Interval>,
    /// Requests that failed.
    pub failed: u64,
}

impl RouterGrowth {
    /// It takes more, and that is sure.
    pub fn grows(&self) -> bool {
        self.failed == 0 && self.added_ns.is_some_and(|added| added.low > 0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(curve_ns: &[f64]) -> ColdStart {
        ColdStart {
            server: "a".into(),
            listen_ns: None,
            answer_ns: None,
            cpu_ns: None,
            run_queue_ns: None,
            minor_faults: None,
            major_faults: None,
            file_calls: Vec::new(),
            curve_ns: curve_ns.to_vec(),
            slice_requests: 100,
        }
    }

    #[test]
    fn a_curve_is_flat_from_where_it_stays_near_its_end() {
        assert_eq!(start(&[90.0, 50.0, 31.0, 29.0, 30.0]).flat_after(), Some(200));
        assert_eq!(start(&[30.0, 50.0, 31.0, 30.0]).flat_after(), Some(200));
        assert_eq!(start(&[30.0, 30.0]).flat_after(), Some(0));
        assert_eq!(start(&[90.0, 80.0, 60.0, 30.0]).flat_after(), None);
        assert_eq!(start(&[]).flat_after(), None);
    }
}

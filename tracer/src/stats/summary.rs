//! The summary of many requests, kept online in bounded memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Distribution, Invariants, Writes};
use crate::recording::{DownstreamPeer, Grade, OTHER_PEERS, Phase, Request, RequestCpu, ThreadStates};

/// Routes counted apart; the rest is counted as [`OTHER_ROUTES`].
pub const ROUTES_KEPT: usize = 64;

/// The path under which requests of further routes are counted.
pub const OTHER_ROUTES: &str = "other";

/// Downstream peers counted apart; the rest is counted as [`OTHER_PEERS`].
const PEERS_COUNTED: usize = 64;

/// Everything a report tells about requests.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// Wall time from first byte readable to the end; its count is the number of requests.
    pub wall: Distribution,
    /// Phases, in the order of [`Phase::ALL`].
    pub phases: [PhaseSummary; Phase::ALL.len()],
    /// Sum of own CPU.
    pub cpu: RequestCpu,
    /// Sum of the sub-phases `body_read`, `body_wait`, `write_gap`, `wakeup`.
    pub body_read_ns: u64,
    /// Of `app`: waiting for the rest of the body.
    pub body_wait_ns: u64,
    /// Of `write`: between write calls.
    pub write_gap_ns: u64,
    /// After delivery, inside the last write; outside the wall time.
    pub write_tail_ns: u64,
    /// Of `queue`: until the sleeping thread ran.
    pub wakeup_ns: u64,
    /// From the end to the client's acknowledgement, where it was seen; outside the wall time.
    pub acked_after: ClientTerm,
    /// Read calls that returned request bytes.
    pub reads: u64,
    /// Write calls.
    pub writes: Writes,
    /// Request bytes.
    pub bytes_in: u64,
    /// Response bytes.
    pub bytes_out: u64,
    /// Requests by the syscall their thread blocked in during `app` (its number).
    pub blocked_calls: BTreeMap<u32, u64>,
    /// From the driver's send to the first byte readable.
    pub before_arrival: ClientTerm,
    /// From delivery to the driver's last read.
    pub after_delivery: ClientTerm,
    /// Requests by status; zero: not seen.
    pub statuses: BTreeMap<u16, u64>,
    /// Requests by method and path, at most [`ROUTES_KEPT`] and [`OTHER_ROUTES`].
    pub routes: BTreeMap<(Arc<str>, Arc<str>), u64>,
    /// What was asked of whom downstream, at most 64 peers and [`OTHER_PEERS`].
    pub downstream: BTreeMap<Arc<str>, DownstreamSummary>,
    /// From the read of the head until something was first sent downstream, of the requests that did.
    pub before_downstream: Distribution,
    /// Requests with an inferred edge.
    pub inferred: u64,
    /// Violated promises.
    pub invariants: Invariants,
}

/// One phase over all requests.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PhaseSummary {
    /// Its wall time.
    pub wall: Distribution,
    /// Sum of thread states.
    pub states: ThreadStates,
}

/// One downstream peer over all requests that asked it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DownstreamSummary {
    /// Wait of a request, summed over its round trips; its count is the number of requests.
    pub wait: Distribution,
    /// Round trips.
    pub round_trips: u64,
    /// Of them, those that another request may have made.
    pub inferred: u64,
    /// Bytes sent.
    pub bytes_out: u64,
    /// Bytes received.
    pub bytes_in: u64,
}

/// A difference between two marks, one of them the client's: never negative, or a defect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientTerm {
    /// Requests with both marks.
    pub count: u64,
    /// Sum of the differences that are not negative.
    pub sum_ns: u64,
    /// Negative differences.
    pub negative: u64,
}

impl Summary {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of requests.
    pub fn requests(&self) -> u64 {
        self.wall.count()
    }

    /// One phase.
    pub fn phase(&self, phase: Phase) -> &PhaseSummary {
        &self.phases[phase as usize]
    }

    /// Thread states summed over all phases.
    pub fn states(&self) -> ThreadStates {
        let mut all = ThreadStates::default();
        self.phases.iter().for_each(|phase| all += phase.states);
        all
    }

    /// Adds one request.
    pub fn add(&mut self, request: &Request) {
        self.wall.record(request.wall_ns());
        for phase in Phase::ALL {
            let summary = &mut self.phases[phase as usize];
            summary.wall.record(request.phase_ns(phase));
            summary.states += request.states[phase as usize];
        }
        self.cpu += request.cpu;
        self.body_read_ns += request.body_read_ns;
        self.body_wait_ns += request.body_wait_ns;
        self.write_gap_ns += request.write_gap_ns;
        self.write_tail_ns += request.write_tail_ns;
        self.wakeup_ns += request.wakeup_ns;
        if request.acked_ns != 0 {
            self.acked_after.add(request.end_ns.min(request.acked_ns), request.acked_ns);
        }
        self.reads += u64::from(request.reads);
        self.writes.add(request);
        self.bytes_in += request.bytes_in;
        self.bytes_out += request.bytes_out;
        if let Some(call) = request.blocked_call_plus_one.checked_sub(1) {
            *self.blocked_calls.entry(call).or_default() += 1;
        }
        if let Some(client) = request.client {
            self.before_arrival.add(client.send_ns, request.first_byte_ns);
            self.after_delivery.add(request.end_by_client_ns(&client), client.done_ns);
        }
        *self.statuses.entry(request.status).or_default() += 1;
        let route = (Arc::clone(&request.method), Arc::clone(&request.path));
        self.add_route(route, 1);
        request.downstream.iter().for_each(|peer| self.add_peer(peer));
        if request.before_downstream_ns > 0 {
            self.before_downstream.record(request.before_downstream_ns);
        }
        self.inferred += u64::from(request.grade == Grade::Inferred);
        self.invariants.observe(request);
    }

    /// Adds everything `other` holds.
    pub fn merge(&mut self, other: &Self) {
        self.wall.merge(&other.wall);
        for (mine, others) in self.phases.iter_mut().zip(&other.phases) {
            mine.wall.merge(&others.wall);
            mine.states += others.states;
        }
        self.cpu += other.cpu;
        self.body_read_ns += other.body_read_ns;
        self.body_wait_ns += other.body_wait_ns;
        self.write_gap_ns += other.write_gap_ns;
        self.write_tail_ns += other.write_tail_ns;
        self.wakeup_ns += other.wakeup_ns;
        self.acked_after.merge(other.acked_after);
        self.reads += other.reads;
        self.writes.merge(&other.writes);
        self.bytes_in += other.bytes_in;
        self.bytes_out += other.bytes_out;
        merge_counts(&mut self.blocked_calls, &other.blocked_calls);
        self.before_arrival.merge(other.before_arrival);
        self.after_delivery.merge(other.after_delivery);
        merge_counts(&mut self.statuses, &other.statuses);
        for (route, count) in &other.routes {
            self.add_route(route.clone(), *count);
        }
        for (peer, downstream) in &other.downstream {
            self.peer(peer).merge(downstream);
        }
        self.before_downstream.merge(&other.before_downstream);
        self.inferred += other.inferred;
        self.invariants.merge(&other.invariants);
    }

    fn add_peer(&mut self, peer: &DownstreamPeer) {
        let downstream = self.peer(&peer.peer);
        downstream.wait.record(peer.wait_ns);
        downstream.round_trips += u64::from(peer.round_trips);
        downstream.inferred += u64::from(peer.inferred);
        downstream.bytes_out += peer.bytes_out;
        downstream.bytes_in += peer.bytes_in;
    }

    fn peer(&mut self, peer: &Arc<str>) -> &mut DownstreamSummary {
        let is_known = self.downstream.contains_key(peer);
        let name =
            if is_known || self.downstream.len() < PEERS_COUNTED { peer.clone() } else { OTHER_PEERS.into() };
        self.downstream.entry(name).or_default()
    }

    fn add_route(&mut self, route: (Arc<str>, Arc<str>), count: u64) {
        if let Some(known) = self.routes.get_mut(&route) {
            *known += count;
        } else if self.routes.len() < ROUTES_KEPT {
            self.routes.insert(route, count);
        } else {
            let other = (Arc::default(), Arc::from(OTHER_ROUTES));
            *self.routes.entry(other).or_default() += count;
        }
    }
}

impl DownstreamSummary {
    fn merge(&mut self, other: &Self) {
        self.wait.merge(&other.wait);
        self.round_trips += other.round_trips;
        self.inferred += other.inferred;
        self.bytes_out += other.bytes_out;
        self.bytes_in += other.bytes_in;
    }
}

impl ClientTerm {
    /// Mean of the differences that are not negative, nanoseconds; `None`: there is none.
    pub fn mean_ns(&self) -> Option<f64> {
        let counted = self.count - self.negative;
        (counted > 0).then(|| self.sum_ns as f64 / counted as f64)
    }

    fn add(&mut self, from_ns: u64, to_ns: u64) {
        self.count += 1;
        match to_ns.checked_sub(from_ns) {
            Some(ns) => self.sum_ns += ns,
            None => self.negative += 1,
        }
    }

    fn merge(&mut self, other: Self) {
        self.count += other.count;
        self.sum_ns += other.sum_ns;
        self.negative += other.negative;
    }
}

fn merge_counts<Key: Copy + Ord>(mine: &mut BTreeMap<Key, u64>, others: &BTreeMap<Key, u64>) {
    for (key, count) in others {
        *mine.entry(*key).or_default() += count;
    }
}

#[cfg(test)]
#[path = "summary_tests.rs"]
mod tests;

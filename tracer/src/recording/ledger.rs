//! What a traced window must account for: its requests, and the target's CPU and run-queue time.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Inference;

/// Where every request went: sent + those of other clients = traced + lost by cause + unexplained.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ledger {
    /// Requests the driver sent and got answered; `None` without our driver.
    pub sent: Option<u64>,
    /// Requests of connections that our driver never opened, while it ran: among those traced or in mid-flight.
    #[serde(default)]
    pub other_clients: u64,
    /// Requests that the driver's own times of them were joined with, among the traced.
    #[serde(default)]
    pub joined: u64,
    /// Requests traced in full.
    pub traced: u64,
    /// Requests begun before attach, unanswered at detach, or not read yet when the target exited.
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
    /// The same by the first rule each needed.
    pub inferred_by: BTreeMap<Inference, u64>,
    /// Times bytes came where a request should begin, and began none. Each such run of bytes counts once.
    pub malformed_requests: u64,
    /// Reads that may hold more requests where nothing was kept of them; those that were answered alone are traced.
    pub reads_cut_short: u64,
    /// Connections that began with the preface of HTTP/2: not covered, their requests are in no figure.
    pub http2_connections: u64,
    /// Connections that switched protocols (101, CONNECT): what came after is in no figure.
    pub upgraded_connections: u64,
    /// Connections whose bytes are not HTTP/1 (TLS, say): their requests are told apart by turn-taking.
    pub opaque_connections: u64,
    /// Reads and writes that moved bytes on connections the target opened.
    #[serde(default)]
    pub downstream_calls: u64,
    /// Of them, those that belonged to no request that was open.
    #[serde(default)]
    pub downstream_unowned: u64,
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
        self.other_clients += other.other_clients;
        self.joined += other.joined;
        self.traced += other.traced;
        self.mid_flight += other.mid_flight;
        self.lost_ring_full += other.lost_ring_full;
        self.lost_connections_full += other.lost_connections_full;
        self.unmatched_edges += other.unmatched_edges;
        self.defects += other.defects;
        self.defect_example = self.defect_example.take().or_else(|| other.defect_example.clone());
        self.inferred += other.inferred;
        for (inference, count) in &other.inferred_by {
            *self.inferred_by.entry(*inference).or_default() += count;
        }
        self.malformed_requests += other.malformed_requests;
        self.reads_cut_short += other.reads_cut_short;
        self.http2_connections += other.http2_connections;
        self.upgraded_connections += other.upgraded_connections;
        self.opaque_connections += other.opaque_connections;
        self.downstream_calls += other.downstream_calls;
        self.downstream_unowned += other.downstream_unowned;
        for (name, count) in &other.kernel_counters {
            match self.kernel_counters.iter_mut().find(|(known, _)| known == name) {
                Some((_, sum)) => *sum += count,
                None => self.kernel_counters.push((name.clone(), *count)),
            }
        }
    }

    /// sent + those of other clients - traced - every counted cause; must be zero. `None` without our driver.
    pub fn unexplained(&self) -> Option<i64> {
        let lost = (self.lost_ring_full + self.lost_connections_full) as i64;
        let all = self.sent? + self.other_clients;
        let unexplained = all as i64 - (self.traced + self.mid_flight) as i64 - lost;
        // Of a lost request it is not known whose it was: with other clients, up to all of them were theirs.
        let were_theirs = if self.other_clients > 0 { (-unexplained).clamp(0, lost) } else { 0 };
        Some(unexplained + were_theirs)
    }

    /// Share of the driver's requests that its own times were joined with, 0..=1. `None` without our driver.
    pub fn joined_share(&self) -> Option<f64> {
        self.sent.filter(|&sent| sent > 0).map(|sent| self.joined as f64 / sent as f64)
    }

    /// The target exited: of the requests that are unexplained, as many as could be on their way were not read any more.
    pub fn target_exited(&mut self, on_their_way_at_most: u64) {
        let unread = self.unexplained().and_then(|unexplained| u64::try_from(unexplained).ok());
        self.mid_flight += unread.unwrap_or_default().min(on_their_way_at_most);
    }

    /// Lost requests over all requests, 0..=1.
    pub fn loss_share(&self) -> f64 {
        let lost =
            self.lost_ring_full + self.lost_connections_full + self.unexplained().unwrap_or(0).unsigned_abs();
        let all = self.sent.map_or(self.traced + lost, |sent| sent + self.other_clients).max(1);
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
    /// The part of it that was waited between a wake-up and the switch it led to.
    #[serde(default)]
    pub run_queue_after_wakeup_ns: u64,
    /// Times a thread of the target left a CPU.
    #[serde(default)]
    pub switches: u64,
    /// run_delay by /proc/PID/task/*/schedstat.
    pub schedstat_run_delay_ns: u64,
    /// On-CPU nanoseconds charged to requests.
    pub charged_cpu_ns: u64,
    /// Nanoseconds the hypervisor took from all CPUs meanwhile (`steal` of /proc/stat, in steps of 10 ms). The kernel
    /// takes them off schedstat; a thread that is on a CPU meanwhile is on it all the same for `sched_switch`.
    pub stolen_ns: u64,
    /// Processes of the target that exited in the window. The kernel's accounts of them went with them: nothing is left
    /// to compare ours with.
    #[serde(default)]
    pub exited_processes: u64,
}

impl Conservation {
    /// Adds the accounts of another window.
    pub fn merge(&mut self, other: &Self) {
        self.traced_cpu_ns += other.traced_cpu_ns;
        self.schedstat_cpu_ns += other.schedstat_cpu_ns;
        self.traced_run_queue_ns += other.traced_run_queue_ns;
        self.run_queue_after_wakeup_ns += other.run_queue_after_wakeup_ns;
        self.switches += other.switches;
        self.schedstat_run_delay_ns += other.schedstat_run_delay_ns;
        self.charged_cpu_ns += other.charged_cpu_ns;
        self.stolen_ns += other.stolen_ns;
        self.exited_processes += other.exited_processes;
    }
}

//! The promises every number rests on: closure, conservation, the ledger, no negative difference.

use crate::recording::{Conservation, Phase, Request, Run};

/// Outside accounts may differ by this share ...
const CONSERVATION_SHARE: f64 = 0.005;
/// ... or by this much, whichever is more: /proc is not read in the same instant as our counters.
const CONSERVATION_SLACK_NS: u64 = 2_000_000;

/// /proc/stat counts stolen time in ticks, on each edge of a window.
const STEAL_RESOLUTION_NS: u64 = 20_000_000;

/// Between the kernel's reading of its clock in `__schedule` and `sched_switch` it looks for the next task, on an
/// idle CPU on other run queues too: this much per switch, at most on average, is CPU time for us and nobody's for
/// the kernel. Measured on Linux 6.18 as 0.6 to 1.9 microseconds.
const SWITCH_PATH_NS: u64 = 2_000;

/// Violations met request by request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Invariants {
    /// Requests checked.
    pub requests: u64,
    /// Requests that violated one.
    pub defects: u64,
    /// The first, in words.
    pub example: Option<String>,
}

impl Invariants {
    /// Checks one request.
    pub fn observe(&mut self, request: &Request) {
        self.requests += 1;
        if let Some(violation) = violation(request) {
            self.defects += 1;
            self.example.get_or_insert_with(|| {
                format!("connection {} request {}: {violation}", request.connection_id, request.index)
            });
        }
    }

    /// Adds everything `other` holds.
    pub fn merge(&mut self, other: &Self) {
        self.requests += other.requests;
        self.defects += other.defects;
        if self.example.is_none() {
            self.example.clone_from(&other.example);
        }
    }

    /// Requests that do not add up, in a sentence with an example; `None`: every one does.
    pub fn of_requests(&self) -> Option<String> {
        let example = self.example.as_deref().unwrap_or_default();
        let defects = self.defects;
        (defects > 0).then(|| format!("closure: requests that do not add up: {defects} ({example})"))
    }

    /// Every violated promise of a run and its requests, one sentence each; empty: all held.
    pub fn violated(&self, run: &Run) -> Vec<String> {
        let ledger = &run.ledger;
        let conservation = &run.conservation;
        let (cpu_disagrees, run_queue_disagrees) = accounts_disagree(conservation);
        let charged_too_much = conservation.charged_cpu_ns > conservation.traced_cpu_ns
            && disagree(conservation.charged_cpu_ns, conservation.traced_cpu_ns);
        [
            self.of_requests(),
            (self.requests != ledger.traced).then(|| {
                format!("ledger: {} requests were traced, {} recorded", ledger.traced, self.requests)
            }),
            (ledger.defects > 0).then(|| {
                let example = ledger.defect_example.as_deref().unwrap_or("no example was kept");
                format!("negative differences: {} ({example})", ledger.defects)
            }),
            ledger
                .unexplained()
                .filter(|&unexplained| unexplained != 0)
                .map(|unexplained| format!("ledger: requests that are unexplained: {unexplained}")),
            cpu_disagrees.then(|| {
                format!(
                    "conservation: sched_switch saw {} of CPU, schedstat {}",
                    ms(conservation.traced_cpu_ns),
                    ms(conservation.schedstat_cpu_ns)
                )
            }),
            run_queue_disagrees.then(|| {
                format!(
                    "conservation: the hooks saw {} of run queue, run_delay is {}",
                    ms(conservation.traced_run_queue_ns),
                    ms(conservation.schedstat_run_delay_ns)
                )
            }),
            charged_too_much.then(|| {
                format!(
                    "conservation: {} of CPU were charged to requests, the server used {}",
                    ms(conservation.charged_cpu_ns),
                    ms(conservation.traced_cpu_ns)
                )
            }),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

fn ms(ns: u64) -> String {
    format!("{:.3} ms", ns as f64 / 1e6)
}

/// Two accounts of the same thing differ by more than the promise allows.
fn disagree(ours_ns: u64, theirs_ns: u64) -> bool {
    let difference_ns = ours_ns.abs_diff(theirs_ns);
    difference_ns > CONSERVATION_SLACK_NS && difference_ns as f64 > theirs_ns as f64 * CONSERVATION_SHARE
}

/// The same where the hypervisor took time from this machine: the kernel moves stolen time between its accounts of a
/// task (off its CPU time), ours are plain differences of one clock. As much as was stolen is explained by it.
pub(super) fn disagree_beyond_steal(ours_ns: u64, theirs_ns: u64, stolen_ns: u64) -> bool {
    let explained = stolen_ns > 0 && ours_ns.abs_diff(theirs_ns) <= stolen_ns + STEAL_RESOLUTION_NS;
    disagree(ours_ns, theirs_ns) && !explained
}

/// Whether the target's `(CPU, run-queue)` accounts disagree with the kernel's. Those of a process end with it: where
/// one exited, nothing can be compared.
///
/// When a wake-up preempts the running task (the idle task, too), the kernel does not read its clock again at the
/// switch that follows (`rq_clock_skip_update` in `wakeup_preempt`, kernel/sched/core.c). What the task that leaves
/// still ran is its run_delay then, and what the woken task still waited is its CPU time. So either may be moved from
/// one account to the other, the second by no more than was waited after wake-ups, while their sum stays.
pub(crate) fn accounts_disagree(accounts: &Conservation) -> (bool, bool) {
    if accounts.exited_processes > 0 {
        return (false, false);
    }
    let apart = |ours_ns, theirs_ns| disagree_beyond_steal(ours_ns, theirs_ns, accounts.stolen_ns);
    let cpu = apart(accounts.traced_cpu_ns, accounts.schedstat_cpu_ns);
    let run_queue = apart(accounts.traced_run_queue_ns, accounts.schedstat_run_delay_ns);
    let ours_ns = accounts.traced_cpu_ns + accounts.traced_run_queue_ns;
    let theirs_ns = accounts.schedstat_cpu_ns + accounts.schedstat_run_delay_ns;
    let in_switches_ns = ours_ns.saturating_sub(theirs_ns).min(accounts.switches * SWITCH_PATH_NS);
    let not_run_delay_ns = accounts.traced_run_queue_ns.saturating_sub(accounts.schedstat_run_delay_ns);
    let skipped_clock =
        !apart(ours_ns - in_switches_ns, theirs_ns) && not_run_delay_ns <= accounts.run_queue_after_wakeup_ns;
    (cpu && !skipped_clock, run_queue && !skipped_clock)
}

fn violation(request: &Request) -> Option<String> {
    let Some(wall_ns) = request.end_ns.checked_sub(request.first_byte_ns) else {
        return Some(format!("it ends {} ns before its first byte", request.first_byte_ns - request.end_ns));
    };
    if request.wall_ns() != wall_ns {
        return Some(format!("its phases add up to {} ns, its wall time is {wall_ns} ns", request.wall_ns()));
    }
    for phase in Phase::ALL {
        let (phase_ns, states_ns) = (request.phase_ns(phase), request.states[phase as usize].total_ns());
        if phase_ns != states_ns {
            return Some(format!(
                "its thread states in {} add up to {states_ns} ns, the phase is {phase_ns} ns",
                phase.key()
            ));
        }
    }
    let client = request.client?;
    if client.send_ns > request.first_byte_ns {
        return Some(format!(
            "its first byte was readable {} ns before the client sent it",
            client.send_ns - request.first_byte_ns
        ));
    }
    let after_ns = request.end_by_client_ns(&client).saturating_sub(client.done_ns);
    (after_ns > 0).then(|| format!("its last byte was delivered {after_ns} ns after the client had it"))
}

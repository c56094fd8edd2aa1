//! The figures a run is judged by. Untraced rounds come first: the probes cost something.

use serde::{Deserialize, Serialize};

use crate::recording::{Round, Run};

/// Median of several rounds, with their extremes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Middle value (the mean of the two middle ones, for an even number).
    pub median: f64,
    /// Smallest.
    pub min: f64,
    /// Largest.
    pub max: f64,
    /// How many.
    pub rounds: usize,
}

impl Spread {
    /// Of these values; `None` when there are none.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = values.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let rounds = sorted.len();
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let median = (sorted[(rounds - 1) / 2] + sorted[rounds / 2]) / 2.0;
        Some(Self { median, min, max, rounds })
    }
}

/// Server CPU per request, and whether the probes were attached when it was taken.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CpuPerRequest {
    /// Nanoseconds.
    pub ns: Spread,
    /// Taken with the probes attached: there was no round without.
    pub traced: bool,
}

/// Server CPU per request: of the untraced rounds, else of the traced window; `None` without requests.
pub fn cpu_per_request_ns(run: &Run) -> Option<CpuPerRequest> {
    let untraced = Spread::of(rounds(run, false).map(Round::server_cpu_per_request_ns));
    match untraced {
        Some(ns) => Some(CpuPerRequest { ns, traced: false }),
        None => traced_cpu_per_request_ns(run).map(|ns| CpuPerRequest { ns, traced: true }),
    }
}

/// Server CPU per request with the probes attached: of the traced rounds, else of the traced window.
fn traced_cpu_per_request_ns(run: &Run) -> Option<Spread> {
    let of_rounds = Spread::of(rounds(run, true).map(Round::server_cpu_per_request_ns));
    let requests = answered_requests(run);
    if of_rounds.is_some() || requests == 0 {
        return of_rounds;
    }
    Spread::of([run.conservation.schedstat_cpu_ns as f64 / requests as f64])
}

/// The rounds with or without probes in which something was answered.
pub(crate) fn rounds(run: &Run, traced: bool) -> impl Iterator<Item = &Round> {
    run.rounds.iter().filter(move |round| round.traced == traced && round.load.requests > 0)
}

/// Requests answered in the traced window: as the driver counted them and those of other clients, else as they were
/// traced.
pub fn answered_requests(run: &Run) -> u64 {
    run.ledger.sent.map_or(run.ledger.traced, |sent| sent + run.ledger.other_clients)
}

/// Syscalls per request over the traced window; `None` without requests.
pub fn syscalls_per_request(run: &Run) -> Option<f64> {
    let calls: u64 = run.syscalls.iter().map(|syscall| syscall.calls).sum();
    let requests = answered_requests(run);
    (requests > 0).then(|| calls as f64 / requests as f64)
}

/// Failed or unexpected responses over all rounds (else the traced window), and the first one in words.
pub fn failed_responses(run: &Run) -> (u64, Option<&str>) {
    let traced_round = run.rounds.iter().any(|round| round.traced);
    let window = run.load.as_ref().filter(|_| !traced_round);
    let loads = || run.rounds.iter().map(|round| &round.load).chain(window);
    let failed = loads().map(|load| load.errors).sum();
    (failed, loads().find_map(|load| load.first_error.as_deref()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::{Conservation, Ledger, LoadTotals};

    fn round(traced: bool, server_cpu_ns: u64) -> Round {
        let load = LoadTotals { requests: 10, ..LoadTotals::default() };
        Round { traced, server_cpu_ns, load, ..Round::default() }
    }

    #[test]
    fn the_median_of_rounds_lies_between_their_extremes() {
        assert_eq!(Spread::of([]), None);
        let even = Spread::of([4.0, 1.0, 3.0, 2.0]).unwrap();
        assert_eq!(even, Spread { median: 2.5, min: 1.0, max: 4.0, rounds: 4 });
        assert_eq!(Spread::of([9.0, 1.0, 2.0]).unwrap().median, 2.0);
    }

    #[test]
    fn cpu_comes_from_untraced_rounds_when_there_are_any() {
        let mut run = Run {
            rounds: vec![round(false, 100), round(true, 900), round(false, 300)],
            ledger: Ledger { traced: 5, ..Ledger::default() },
            conservation: Conservation { schedstat_cpu_ns: 1000, ..Conservation::default() },
            ..Run::default()
        };
        let cpu = cpu_per_request_ns(&run).unwrap();
        assert_eq!((cpu.ns.median, cpu.traced), (20.0, false));
        run.rounds[0].other_requests = 40;
        assert_eq!(cpu_per_request_ns(&run).unwrap().ns.min, 2.0, "of all that it answered");
        run.rounds.clear();
        let cpu = cpu_per_request_ns(&run).unwrap();
        assert_eq!((cpu.ns.median, cpu.traced), (200.0, true));
        assert_eq!(cpu_per_request_ns(&Run::default()), None);
    }
}

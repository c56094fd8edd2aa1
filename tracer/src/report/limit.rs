//! Who was the limit: a benchmark bound by its client says nothing about the server.

use serde::{Deserialize, Serialize};

use crate::recording::{LoadTotals, Run};
use crate::stats::{Spread, rounds};

/// A core this busy is the limit. For a server, waiting for its core counts too: it had work all the time, and what
/// others took of the core is no idleness of its own.
pub const BUSY: f64 = 0.95;

/// Who was the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitedBy {
    /// The server's CPUs.
    Server,
    /// The driver's CPUs.
    Client,
    /// Neither: waits, the connections, or the network.
    Neither,
    /// Not to be told.
    Unknown,
}

impl LimitedBy {
    /// By the shares of time in which either side's CPUs were busy, or had work and waited for them; `None`: not known.
    /// The server comes first: when both are busy, the driver still kept it so.
    pub fn of(server: Option<f64>, client: Option<f64>) -> Self {
        match (server, client) {
            (Some(server), _) if server >= BUSY => Self::Server,
            (_, Some(client)) if client >= BUSY => Self::Client,
            (Some(_), Some(_)) => Self::Neither,
            _ => Self::Unknown,
        }
    }

    /// In one word, for tables.
    pub fn word(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Client => "client",
            Self::Neither => "neither",
            Self::Unknown => "?",
        }
    }
}

/// Who was the limit, and by which figures.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Limit {
    /// The verdict.
    pub by: LimitedBy,
    /// Share of time the server's CPUs were busy with it; `None`: not pinned.
    pub server_busy: Option<f64>,
    /// Share of time the server had work but waited for its core; `None`: not pinned.
    pub server_waited: Option<f64>,
    /// Share of time the driver was busy.
    pub client_busy: Option<f64>,
    /// |c - rate x mean latency| / c, with c requests kept in flight: what Little's law leaves over. Closed loop only.
    pub littles_law_error: Option<f64>,
    /// Connections the server closed and the driver opened again.
    pub reconnects: Option<u64>,
}

impl Limit {
    /// Of a run: by its untraced rounds, else by its traced window.
    pub(super) fn of(run: &Run) -> Self {
        let windows = windows(run);
        let busy = |cpu_ns: fn(&Window) -> u64, cpus: usize| {
            let shares = windows.iter().map(|w| cpu_ns(w) as f64 / w.load.elapsed_ns.max(1) as f64);
            Spread::of(shares).map(|spread| spread.median / cpus.max(1) as f64)
        };
        let pinned = !run.server_cpus.is_empty();
        let server_busy = busy(|w| w.server_cpu_ns, run.server_cpus.len()).filter(|_| pinned);
        let server_waited = busy(|w| w.server_run_delay_ns, run.server_cpus.len()).filter(|_| pinned);
        let client_busy = busy(|w| w.load.client_cpu_ns, run.client_cpus.len());
        let shared = run.server_cpus.iter().any(|cpu| run.client_cpus.contains(cpu));
        let server_had_work = server_busy.map(|busy| busy + server_waited.unwrap_or_default());
        let by =
            if shared || !pinned { LimitedBy::Unknown } else { LimitedBy::of(server_had_work, client_busy) };
        let errors = windows.iter().filter_map(|window| littles_law_error(window.load));
        let littles_law_error = Spread::of(errors).map(|spread| spread.median);
        let reconnects =
            (!windows.is_empty()).then(|| windows.iter().map(|window| window.load.reconnects).sum());
        Self { by, server_busy, server_waited, client_busy, littles_law_error, reconnects }
    }

    /// The client held the server back.
    pub fn is_client(&self) -> bool {
        self.by == LimitedBy::Client
    }
}

struct Window<'run> {
    load: &'run LoadTotals,
    server_cpu_ns: u64,
    server_run_delay_ns: u64,
}

fn windows(run: &Run) -> Vec<Window<'_>> {
    let untraced = rounds(run, false);
    let untraced: Vec<_> = untraced
        .map(|round| Window {
            load: &round.load,
            server_cpu_ns: round.server_cpu_ns,
            server_run_delay_ns: round.server_run_delay_ns,
        })
        .collect();
    if !untraced.is_empty() {
        return untraced;
    }
    let server_cpu_ns = run.conservation.schedstat_cpu_ns;
    let server_run_delay_ns = run.conservation.schedstat_run_delay_ns;
    let traced = run.load.iter().filter(|load| load.requests > 0);
    traced.map(|load| Window { load, server_cpu_ns, server_run_delay_ns }).collect()
}

fn littles_law_error(load: &LoadTotals) -> Option<f64> {
    let kept = load.kept_in_flight.filter(|&kept| kept > 0)? as f64;
    let in_flight = load.rate() * load.latency.mean_ns / 1e9;
    Some((kept - in_flight).abs() / kept)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::Round;

    fn limit(server_cpu_ns: u64, client_cpu_ns: u64, server_cpus: &[u32], client_cpus: &[u32]) -> LimitedBy {
        let load = LoadTotals { requests: 1, elapsed_ns: 1000, client_cpu_ns, ..LoadTotals::default() };
        let run = Run {
            rounds: vec![Round { load, server_cpu_ns, ..Round::default() }],
            server_cpus: server_cpus.to_vec(),
            client_cpus: client_cpus.to_vec(),
            ..Run::default()
        };
        Limit::of(&run).by
    }

    #[test]
    fn the_server_is_the_limit_before_the_client() {
        assert_eq!(LimitedBy::of(Some(0.99), Some(0.99)), LimitedBy::Server);
        assert_eq!(LimitedBy::of(Some(0.5), Some(0.99)), LimitedBy::Client);
        assert_eq!(LimitedBy::of(None, Some(0.99)), LimitedBy::Client);
        assert_eq!(LimitedBy::of(Some(0.5), Some(0.5)), LimitedBy::Neither);
        assert_eq!(LimitedBy::of(None, Some(0.5)), LimitedBy::Unknown);
    }

    #[test]
    fn the_busy_core_is_the_limit_and_the_server_comes_first() {
        assert_eq!(limit(990, 700, &[0], &[1]), LimitedBy::Server);
        assert_eq!(limit(990, 990, &[0], &[1]), LimitedBy::Server);
        assert_eq!(limit(700, 960, &[0], &[1]), LimitedBy::Client);
        assert_eq!(limit(700, 700, &[0], &[1]), LimitedBy::Neither);
        assert_eq!(limit(990, 960, &[0, 2], &[1]), LimitedBy::Client);
    }

    #[test]
    fn a_server_that_waits_for_its_core_is_the_limit_and_not_idle() {
        let load = LoadTotals { requests: 1, elapsed_ns: 1000, client_cpu_ns: 400, ..LoadTotals::default() };
        let round = Round { load, server_cpu_ns: 500, server_run_delay_ns: 480, ..Round::default() };
        let run = |round: &Round| Run {
            rounds: vec![round.clone()],
            server_cpus: vec![0],
            client_cpus: vec![1],
            ..Run::default()
        };
        let limit = Limit::of(&run(&round));
        assert_eq!((limit.by, limit.server_waited), (LimitedBy::Server, Some(0.48)));
        assert_eq!(Limit::of(&run(&Round { server_run_delay_ns: 100, ..round })).by, LimitedBy::Neither);
    }

    #[test]
    fn nothing_is_said_without_cores_of_their_own() {
        assert_eq!(limit(990, 700, &[], &[1]), LimitedBy::Unknown);
        assert_eq!(limit(500, 500, &[0], &[0]), LimitedBy::Unknown);
        assert_eq!(Limit::of(&Run::default()).by, LimitedBy::Unknown);
    }

    #[test]
    fn littles_law_compares_connections_with_those_in_flight() {
        let mut load = LoadTotals {
            kept_in_flight: Some(10),
            requests: 1000,
            elapsed_ns: 1_000_000_000,
            ..LoadTotals::default()
        };
        load.latency.mean_ns = 9_000_000.0;
        assert!((littles_law_error(&load).unwrap() - 0.1).abs() < 1e-9);
        assert_eq!(littles_law_error(&LoadTotals::default()), None);
    }
}

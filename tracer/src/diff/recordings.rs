//! Recordings as launches: one of each build is described, eight of each are judged.

use std::collections::BTreeSet;

use anyhow::{Result, bail, ensure};

use super::{
    COMPARISON_SCHEMA, Comparison, Design, Figures, Latency, Launch, Origin, Route, RouteLaunch, Side, Slice,
    Started,
};
use crate::{
    recording::{Round, Run},
    stats::paired::LOOKS,
};

/// What a recording came to.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// Its folder, for messages.
    pub folder: String,
    /// Everything but the requests.
    pub run: Run,
    /// Its requests.
    pub figures: Figures,
    /// Methods and paths it holds.
    pub routes: BTreeSet<String>,
    /// Statuses it holds; zero: not seen.
    pub statuses: BTreeSet<u16>,
}

/// The recordings of A and of B, paired in their order. Those of unlike environments, routes or work are refused.
pub fn of_recordings(folders: [String; 2], a: &[Recorded], b: &[Recorded]) -> Result<Comparison> {
    let (Some(first), Some(first_b)) = (a.first(), b.first()) else {
        bail!("there is no recording to compare")
    };
    ensure!(
        a.len() == b.len(),
        "{} holds {} recordings and {} holds {}: give as many of each build",
        folders[0],
        a.len(),
        folders[1],
        b.len()
    );
    for other in a.iter().chain(b) {
        check_alike(first, other)?;
    }
    let launches: Vec<Launch> = a.iter().zip(b).map(|(a, b)| launch(a, b)).collect();
    let mut notes = vec!["recordings hold no control".to_owned()];
    if a.iter().chain(b).any(|recorded| untraced(&recorded.run).next().is_none()) {
        notes.push(
            "CPU per request was taken with the probes attached: a recording has no untraced round"
                .to_owned(),
        );
    }
    Ok(Comparison {
        schema_version: COMPARISON_SCHEMA,
        tracer_version: env!("CARGO_PKG_VERSION").to_owned(),
        started_unix_s: first.run.started_unix_s,
        environment: first.run.environment.clone(),
        origin: Origin::Recordings { folders },
        names: [first.run.name.clone(), first_b.run.name.clone()],
        design: Design {
            connections: first.run.load.as_ref().map_or(0, |load| load.connections),
            rate_per_s: None,
            slice_ns: 0,
            slices: 1,
            traced_slices: 1,
            warm_up_ns: 0,
        },
        routes: vec![Route { name: first.run.workload.clone(), unequal_work: String::new() }],
        looks: LOOKS.iter().map(|look| look.launches).filter(|enough| *enough == launches.len()).collect(),
        launches,
        ended_early: String::new(),
        notes,
    })
}

fn check_alike(one: &Recorded, other: &Recorded) -> Result<()> {
    let differences = one.run.environment.differences(&other.run.environment);
    let (mine, others) = (&one.folder, &other.folder);
    ensure!(
        differences.is_empty(),
        "{mine} and {others} were recorded in unlike environments ({}): record both on one machine",
        differences.join(", ")
    );
    ensure!(
        one.run.workload == other.run.workload,
        "{mine} was asked {:?}, {others} {:?}: record both under the same load",
        one.run.workload,
        other.run.workload
    );
    if let Some(route) = one.routes.symmetric_difference(&other.routes).next() {
        let (has, lacks) = if one.routes.contains(route) { (mine, others) } else { (others, mine) };
        bail!("unlike routes: {has} has {route:?}, {lacks} has not; record both under the same load");
    }
    if let Some(status) = one.statuses.symmetric_difference(&other.statuses).next() {
        let (has, lacks) = if one.statuses.contains(status) { (mine, others) } else { (others, mine) };
        bail!("unequal work: {has} has answers of status {status}, {lacks} has none");
    }
    let connections = |recorded: &Recorded| recorded.run.load.as_ref().map(|load| load.connections);
    ensure!(
        connections(one) == connections(other),
        "{mine} and {others} were recorded at unlike numbers of connections: record both under the same load"
    );
    Ok(())
}

fn untraced(run: &Run) -> impl Iterator<Item = &Round> {
    run.rounds.iter().filter(|round| !round.traced && round.load.requests > 0)
}

/// Two recordings side by side. Their rounds were not interleaved, so each turn holds the n-th of both.
fn launch(a: &Recorded, b: &Recorded) -> Launch {
    let mut slices = slices(Side::A, &a.run);
    slices.extend(self::slices(Side::B, &b.run));
    Launch {
        server_cpu: a.run.server_cpus.first().copied().unwrap_or(0),
        client_cpu: a.run.client_cpus.first().copied().unwrap_or(0),
        order: Side::ALL,
        processes: [Started::default(); 3],
        routes: vec![RouteLaunch {
            slices,
            latency: [const { Latency(Vec::new()) }; 3],
            traced: Some([a.figures.clone(), b.figures.clone()]),
        }],
        stolen_ns: a.run.conservation.stolen_ns + b.run.conservation.stolen_ns,
    }
}

fn slices(side: Side, run: &Run) -> Vec<Slice> {
    let of_rounds = |rounds: Vec<&Round>| -> Vec<Slice> {
        let turns = rounds.into_iter().enumerate();
        turns
            .map(|(turn, round)| Slice {
                side,
                turn: turn as u32,
                requests: round.load.requests,
                due: None,
                elapsed_ns: round.load.elapsed_ns,
                server_cpu_ns: round.server_cpu_ns,
                run_delay_ns: round.server_run_delay_ns,
                client_cpu_ns: round.load.client_cpu_ns,
                page_faults: 0,
            })
            .collect()
    };
    let untraced: Vec<&Round> = untraced(run).collect();
    if !untraced.is_empty() {
        return of_rounds(untraced);
    }
    if !run.rounds.is_empty() {
        return of_rounds(run.rounds.iter().collect());
    }
    vec![Slice {
        side,
        turn: 0,
        requests: crate::stats::answered_requests(run),
        due: None,
        elapsed_ns: run.window_ns,
        server_cpu_ns: run.conservation.schedstat_cpu_ns,
        run_delay_ns: run.conservation.schedstat_run_delay_ns,
        client_cpu_ns: 0,
        page_faults: 0,
    }]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        diff::{judge, text},
        recording::{Conservation, Environment, Ledger},
        stats::paired::{Rule, Verdict},
    };

    fn recorded(folder: &str, cpu_ns: u64) -> Recorded {
        let run = Run {
            name: folder.to_owned(),
            workload: "GET /".to_owned(),
            conservation: Conservation {
                schedstat_cpu_ns: cpu_ns,
                traced_cpu_ns: cpu_ns,
                ..Conservation::default()
            },
            ledger: Ledger { traced: 1000, ..Ledger::default() },
            window_ns: 1_000_000_000,
            ..Run::default()
        };
        let figures = Figures {
            requests: 1000,
            cpu_ns: [("app: user".to_owned(), cpu_ns as f64 / 1000.0)].into(),
            ..Figures::default()
        };
        Recorded {
            folder: folder.to_owned(),
            run,
            figures,
            routes: ["GET /".to_owned()].into(),
            statuses: [200].into(),
        }
    }

    fn folders() -> [String; 2] {
        ["a".to_owned(), "b".to_owned()]
    }

    #[test]
    fn one_of_each_is_described_without_a_verdict() {
        let comparison =
            of_recordings(folders(), &[recorded("a", 1_000_000)], &[recorded("b", 2_000_000)]).unwrap();
        let judgement = judge(&comparison, Rule::default(), &[]);
        assert_eq!(judgement.exit_code(), 3);
        let text = text(&judgement);
        assert!(text.starts_with("withheld: the recordings hold 1 launch of each build"), "{text}");
        assert!(text.contains("+1.00 us CPU per request (+100.0 %)"), "{text}");
    }

    #[test]
    fn eight_of_each_are_judged() {
        let many = |folder: &str, cpu_ns: u64| {
            (0..8).map(|n| recorded(folder, cpu_ns + n * 1000)).collect::<Vec<_>>()
        };
        let comparison = of_recordings(folders(), &many("a", 1_000_000), &many("b", 2_000_000)).unwrap();
        assert_eq!(judge(&comparison, Rule::default(), &[]).verdict, Verdict::Regression);
    }

    #[test]
    fn unlike_recordings_are_refused_with_the_difference() {
        let refused = |change: fn(&mut Recorded)| {
            let mut other = recorded("b", 1);
            change(&mut other);
            of_recordings(folders(), &[recorded("a", 1)], &[other]).unwrap_err().to_string()
        };
        let environment = |other: &mut Recorded| {
            other.run.environment = Environment { kernel: "6.12".into(), ..Environment::default() };
        };
        assert!(refused(environment).contains("kernel \"\" and \"6.12\""));
        assert!(
            refused(|other| other.routes.extend(["GET /x".to_owned()]))
                .contains("b has \"GET /x\", a has not")
        );
        assert!(refused(|other| other.statuses.extend([500])).contains("status 500"));
        assert!(refused(|other| other.run.workload = "GET /y".into()).contains("GET /y"));
        let uneven = of_recordings(folders(), &[recorded("a", 1)], &[]).unwrap_err().to_string();
        assert!(uneven.contains("no recording"), "{uneven}");
    }
}

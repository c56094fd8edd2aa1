//! A comparison made by hand.

use std::collections::BTreeMap;

use super::{
    COMPARISON_SCHEMA, Comparison, Design, Figures, Latency, Launch, Origin, Route, RouteLaunch, Side, Slice,
    Started, WriteStep,
};
use crate::recording::Environment;

/// Requests of every slice.
const REQUESTS: u64 = 10_000;

/// What a build does per request.
#[derive(Clone, Debug)]
pub struct Build {
    pub cpu_ns: f64,
    pub latency_ns: u64,
    pub write_ns: f64,
    pub writes: Vec<(&'static str, f64)>,
}

impl Build {
    /// 15 us of CPU, one write.
    pub fn plain() -> Self {
        Self { cpu_ns: 15_000.0, latency_ns: 500_000, write_ns: 6_000.0, writes: vec![("writev", 173.0)] }
    }

    /// The same with a second write.
    pub fn two_writes() -> Self {
        Self {
            cpu_ns: 17_000.0,
            latency_ns: 560_000,
            write_ns: 7_900.0,
            writes: vec![("write", 154.0), ("write", 19.0)],
        }
    }

    fn figures(&self, luck: f64) -> Figures {
        let named = |lines: &[(&str, f64)]| -> BTreeMap<String, f64> {
            lines.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
        };
        let call = self.writes[0].0;
        let rest_ns = (self.cpu_ns - self.write_ns - 1_000.0) * luck;
        Figures {
            requests: REQUESTS,
            cpu_ns: named(&[
                (&format!("write: {call}"), self.write_ns * luck),
                ("read: recvfrom", 1_000.0 * luck),
                ("app: user", rest_ns),
            ]),
            latency_ns: named(&[
                ("queue: other CPU", self.latency_ns as f64 * 0.9 * luck),
                ("app: own CPU", 9_000.0),
            ]),
            slowest_ns: named(&[("queue: other CPU", self.latency_ns as f64 * 3.0 * luck)]),
            counts: named(&[
                ("writes", self.writes.len() as f64),
                ("reads", 1.0),
                ("syscalls", 2.0 + self.writes.len() as f64),
                (&format!("calls of {call}"), self.writes.len() as f64),
                ("calls of recvfrom", 1.0),
            ]),
            writes: self
                .writes
                .iter()
                .map(|(call, bytes)| WriteStep { call: (*call).to_owned(), bytes: *bytes })
                .collect(),
            writes_share: 1.0,
            ..Figures::default()
        }
    }
}

/// A, B and the control over so many launches, one route, looks taken where they are due.
pub fn comparison(a: &Build, b: &Build, launches: usize) -> Comparison {
    let looks = crate::stats::paired::LOOKS.iter().map(|look| look.launches).filter(|look| *look <= launches);
    Comparison {
        schema_version: COMPARISON_SCHEMA,
        tracer_version: "test".to_owned(),
        started_unix_s: 0,
        environment: Environment::default(),
        origin: Origin::Commands {
            commands: ["a".into(), "b".into()],
            urls: vec!["http://127.0.0.1:{port}/".into()],
        },
        names: ["a".to_owned(), "b".to_owned()],
        design: Design {
            connections: 32,
            rate_per_s: None,
            slice_ns: 250_000_000,
            slices: 4,
            traced_slices: 2,
            warm_up_ns: 0,
        },
        routes: vec![Route { name: "GET /".to_owned(), unequal_work: String::new() }],
        launches: (0..launches).map(|number| launch(number, [a, b, a])).collect(),
        looks: looks.collect(),
        ended_early: String::new(),
        notes: Vec::new(),
    }
}

/// Luck of a side in a launch, within one per cent, for B and the control unlike for A.
fn luck(number: usize, side: Side) -> f64 {
    let step = (number * 7 + side as usize * 5) % 11;
    1.0 + (step as f64 - 5.0) * 0.001
}

fn launch(number: usize, builds: [&Build; 3]) -> Launch {
    let slice = |turn: u32, side: Side| {
        let build = builds[side as usize];
        let cpu_ns = build.cpu_ns * luck(number, side) * REQUESTS as f64;
        Slice {
            side,
            turn,
            requests: REQUESTS,
            due: None,
            elapsed_ns: 250_000_000,
            server_cpu_ns: cpu_ns as u64,
            run_delay_ns: 1_000_000,
            client_cpu_ns: 50_000_000,
            page_faults: 3,
        }
    };
    let latency = |side: Side| {
        Latency(vec![((builds[side as usize].latency_ns as f64 * luck(number, side)) as u64, 40_000)])
    };
    let [a, b, _] = builds;
    Launch {
        server_cpu: 1,
        client_cpu: 0,
        order: Side::ALL,
        processes: [Started {
            port: 1,
            cold_start_ns: 30_000_000,
            rss_bytes: 50 << 20,
            heap_bytes: 30 << 20,
            processes: 1,
            threads: 4,
        }; 3],
        routes: vec![RouteLaunch {
            slices: (0..4).flat_map(|turn| Side::ALL.map(|side| slice(turn, side))).collect(),
            latency: Side::ALL.map(latency),
            traced: Some([a.figures(luck(number, Side::A)), b.figures(luck(number, Side::B))]),
        }],
        stolen_ns: 0,
    }
}

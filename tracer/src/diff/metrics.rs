//! What can be compared, and its value in one launch.

use serde::{Deserialize, Serialize};

use super::{Launch, RouteLaunch, Side, Slice};
use crate::stats::paired::median;

/// A figure of a build in one launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Server CPU per request, untraced, nanoseconds.
    Cpu,
    /// Requests per second, untraced.
    Rate,
    /// Mean client latency, untraced, nanoseconds.
    Mean,
    /// Median client latency, untraced, nanoseconds.
    P50,
    /// 99th percentile of client latency, untraced, nanoseconds.
    P99,
    /// From exec to the first answer, nanoseconds.
    ColdStart,
    /// Resident memory after the load, bytes.
    Rss,
    /// Anonymous memory (heap and stacks) after the load, bytes.
    Heap,
}

impl Metric {
    /// Those that are told beside CPU.
    pub const BESIDE_CPU: [Self; 7] =
        [Self::Rate, Self::Mean, Self::P50, Self::P99, Self::ColdStart, Self::Rss, Self::Heap];

    /// Its name in tables.
    pub fn label(self) -> &'static str {
        match self {
            Self::Cpu => "CPU per request",
            Self::Rate => "requests/s",
            Self::Mean => "mean latency",
            Self::P50 => "p50 latency",
            Self::P99 => "p99 latency",
            Self::ColdStart => "cold start",
            Self::Rss => "resident memory",
            Self::Heap => "heap (anonymous memory)",
        }
    }

    /// It belongs to the process, and so is the same for every route.
    pub fn of_process(self) -> bool {
        matches!(self, Self::ColdStart | Self::Rss | Self::Heap)
    }

    /// Less of it is worse.
    pub fn less_is_worse(self) -> bool {
        self == Self::Rate
    }

    /// Of one side in one launch; `None`: not to be told.
    pub fn value(self, launch: &Launch, route: usize, side: Side) -> Option<f64> {
        let process = &launch.processes[side as usize];
        let measured = match self {
            Self::ColdStart => process.cold_start_ns as f64,
            Self::Rss => process.rss_bytes as f64,
            Self::Heap => process.heap_bytes as f64,
            _ => {
                let route = launch.routes.get(route)?;
                match self.of_slices(route, side) {
                    Some(values) => median(&values)?,
                    None => self.of_latency(route, side)?,
                }
            }
        };
        (measured > 0.0).then_some(measured)
    }

    /// ln(side / A) in one launch.
    pub fn log_ratio(self, launch: &Launch, route: usize, side: Side) -> Option<f64> {
        match self {
            // Neighbours in time are compared with each other.
            Self::Cpu | Self::Rate => {
                let logs: Vec<f64> = turns(launch.routes.get(route)?, side)
                    .filter_map(|(a, other)| Some((self.of_slice(other)? / self.of_slice(a)?).ln()))
                    .collect();
                median(&logs)
            }
            _ => Some((self.value(launch, route, side)? / self.value(launch, route, Side::A)?).ln()),
        }
        .filter(|log| log.is_finite())
    }

    /// B - A in one launch, in the metric's unit.
    pub fn difference(self, launch: &Launch, route: usize) -> Option<f64> {
        match self {
            Self::Cpu | Self::Rate => {
                let differences: Vec<f64> = turns(launch.routes.get(route)?, Side::B)
                    .filter_map(|(a, b)| Some(self.of_slice(b)? - self.of_slice(a)?))
                    .collect();
                median(&differences)
            }
            _ => Some(self.value(launch, route, Side::B)? - self.value(launch, route, Side::A)?),
        }
    }

    fn of_slices(self, route: &RouteLaunch, side: Side) -> Option<Vec<f64>> {
        matches!(self, Self::Cpu | Self::Rate).then(|| {
            route.slices.iter().filter(|slice| slice.side == side).filter_map(|s| self.of_slice(s)).collect()
        })
    }

    fn of_slice(self, slice: &Slice) -> Option<f64> {
        let requests = slice.requests as f64;
        let value = match self {
            Self::Rate => requests * 1e9 / slice.elapsed_ns.max(1) as f64,
            _ => slice.server_cpu_ns as f64 / requests,
        };
        (slice.requests > 0 && value > 0.0).then_some(value)
    }

    fn of_latency(self, route: &RouteLaunch, side: Side) -> Option<f64> {
        let histogram = route.latency[side as usize].histogram();
        if histogram.is_empty() {
            return None;
        }
        match self {
            Self::Mean => Some(histogram.mean()),
            Self::P50 => Some(histogram.value_at_quantile(0.5) as f64),
            // With fewer than ten samples beyond it, a percentile is a single request.
            Self::P99 if histogram.len() >= 1000 => Some(histogram.value_at_quantile(0.99) as f64),
            _ => None,
        }
    }
}

/// The slices of A and of `side` that are neighbours in time.
fn turns(route: &RouteLaunch, side: Side) -> impl Iterator<Item = (&Slice, &Slice)> {
    let of_a = route.slices.iter().filter(|slice| slice.side == Side::A);
    of_a.filter_map(move |a| {
        let neighbour = route.slices.iter().find(|other| other.side == side && other.turn == a.turn)?;
        Some((a, neighbour))
    })
}

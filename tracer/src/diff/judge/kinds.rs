//! Changes of kind: a syscall that appeared, another way to write, more threads. They need no interval.

use std::collections::{BTreeMap, BTreeSet};

use super::super::{Figures, Launch, Side, WriteStep};
use crate::{
    report::{counted, decimals},
    stats::paired::median,
};

/// A syscall counts as there when it is called for one request in so many.
const THERE_PER_REQUEST: f64 = 0.001;
/// Prefix of the counts that are calls of one syscall.
const CALLS_OF: &str = "calls of ";

/// What was found.
pub struct Kinds {
    /// In words.
    pub words: Vec<String>,
    /// How most responses leave, of A and of B.
    pub writes: [Vec<WriteStep>; 2],
}

/// Of one route over all launches.
pub fn kinds(launches: &[Launch], route: usize) -> Kinds {
    let traced: Vec<&[Figures; 2]> =
        launches.iter().filter_map(|launch| launch.routes.get(route)?.traced.as_ref()).collect();
    let side =
        |index: usize| traced.iter().map(|pair| &pair[index]).filter(|f| f.requests > 0).collect::<Vec<_>>();
    let (a, b) = (side(0), side(1));
    let mut words = Vec::new();
    let (calls_a, calls_b) = (calls(&a), calls(&b));
    if !a.is_empty() && !b.is_empty() {
        let new = |of: &BTreeMap<String, f64>, other: &BTreeMap<String, f64>| -> Vec<String> {
            let others: BTreeSet<&String> = other.keys().collect();
            let names = of.iter().filter(|(name, _)| !others.contains(name));
            names
                .map(|(name, per_request)| format!("{name} ({} per request)", decimals(*per_request, 3)))
                .collect()
        };
        words.extend(
            new(&calls_b, &calls_a).iter().map(|call| format!("a syscall that A does not make: {call}")),
        );
        words.extend(
            new(&calls_a, &calls_b).iter().map(|call| format!("a syscall that B no longer makes: {call}")),
        );
    }
    let writes = [most_frequent_writes(&a), most_frequent_writes(&b)];
    let names = |steps: &[WriteStep]| steps.iter().map(|step| step.call.clone()).collect::<Vec<_>>();
    if names(&writes[0]) != names(&writes[1]) {
        words.push(format!(
            "responses leave in {} instead of {}",
            write_words(&writes[1]),
            write_words(&writes[0])
        ));
    }
    words.extend(population(launches, "threads", |launch, side| launch.processes[side as usize].threads));
    words.extend(population(launches, "processes", |launch, side| launch.processes[side as usize].processes));
    Kinds { words, writes }
}

/// `2 writes (write 154 B, write 19 B)`.
fn write_words(steps: &[WriteStep]) -> String {
    match steps.len() {
        0 => "no write".to_owned(),
        count => format!("{} ({})", counted(count as u64, "write"), steps_words(steps)),
    }
}

/// `write 154 B, write 19 B`.
pub fn steps_words(steps: &[WriteStep]) -> String {
    let each: Vec<String> =
        steps.iter().map(|step| format!("{} {} B", step.call, decimals(step.bytes, 0))).collect();
    each.join(", ")
}

/// Syscalls made in most launches, with their median number per request.
fn calls(launches: &[&Figures]) -> BTreeMap<String, f64> {
    let names: BTreeSet<&String> = launches
        .iter()
        .flat_map(|figures| figures.counts.keys())
        .filter(|name| name.starts_with(CALLS_OF))
        .collect();
    let usual = |name: &String| {
        let counts: Vec<f64> =
            launches.iter().map(|figures| figures.counts.get(name).copied().unwrap_or(0.0)).collect();
        median(&counts).filter(|count| *count >= THERE_PER_REQUEST)
    };
    names.into_iter().filter_map(|name| Some((name[CALLS_OF.len()..].to_owned(), usual(name)?))).collect()
}

fn most_frequent_writes(launches: &[&Figures]) -> Vec<WriteStep> {
    let weight = |figures: &&&Figures| (figures.writes_share * figures.requests as f64) as u64;
    launches.iter().max_by_key(weight).map(|figures| figures.writes.clone()).unwrap_or_default()
}

fn population(launches: &[Launch], what: &str, count: fn(&Launch, Side) -> u32) -> Option<String> {
    let usual = |side| {
        let counts: Vec<f64> = launches.iter().map(|launch| f64::from(count(launch, side))).collect();
        median(&counts)
    };
    let (a, b) = (usual(Side::A)?, usual(Side::B)?);
    (a != b).then(|| format!("{what}: {} -> {}", decimals(a, 0), decimals(b, 0)))
}

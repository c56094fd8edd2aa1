//! The golden shape of each route: which calls take a request and send its response, how often, and what the server
//! calls besides. Saved once, it fails a build that drifts from it.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::Finding;
use crate::recording::{Request, Run, syscall_name};
use crate::report::{decimals, percent};
use crate::stats::answered_requests;

/// Routes and sequences kept; the rest is left out and counted.
const KEPT: usize = 64;
/// A sequence of a smaller share is not part of the shape.
const RARE: f64 = 0.01;
/// Shares may differ by this much.
const SHARE_DRIFT: f64 = 0.05;
/// Fewer calls per request are not part of the shape.
const RARE_CALLS: f64 = 0.01;
/// Calls per request may differ by this share, and by this much.
const CALLS_DRIFT: f64 = 0.25;
const CALLS_DRIFT_LEAST: f64 = 0.05;

/// Shares of sequences by route, and calls per request by name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shape {
    /// Calls per request over the whole server.
    pub calls: BTreeMap<String, f64>,
    /// For each route, the share of requests with each sequence of calls.
    pub routes: BTreeMap<String, BTreeMap<String, f64>>,
}

impl Shape {
    /// Reads a shape that was saved.
    pub fn load(path: &Path) -> Result<Self> {
        let shown = path.display();
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read the shape {shown}; write one with --save-shape"))?;
        toml::from_str(&text)
            .with_context(|| format!("the shape {shown} is damaged; write it again with --save-shape"))
    }

    /// Saves it for later checks.
    pub fn save(&self, path: &Path) -> Result<()> {
        let toml = toml::to_string_pretty(self).context("a shape has only string keys")?;
        std::fs::write(path, toml).with_context(|| format!("cannot write the shape to {}", path.display()))
    }

    /// Every difference of `now` from this shape, a line each; empty: none.
    pub fn drift(&self, now: &Self) -> Vec<String> {
        let mut lines = Vec::new();
        for (route, was, is) in both(&self.routes, &now.routes) {
            let (Some(was), Some(is)) = (was, is) else {
                lines.push(format!("{} {route}", if was.is_some() { "- route" } else { "+ route" }));
                continue;
            };
            for (sequence, was, is) in both(was, is) {
                let (was, is) = (was.copied().unwrap_or(0.0), is.copied().unwrap_or(0.0));
                if (was - is).abs() > SHARE_DRIFT {
                    lines.push(format!(
                        "{} {route}: {sequence}: {} -> {}",
                        sign(was, is),
                        percent(was),
                        percent(is)
                    ));
                }
            }
        }
        for (call, was, is) in both(&self.calls, &now.calls) {
            let (was, is) = (was.copied().unwrap_or(0.0), is.copied().unwrap_or(0.0));
            if (was - is).abs() > (was * CALLS_DRIFT).max(CALLS_DRIFT_LEAST) {
                let (shown_was, shown_is) = (decimals(was, 2), decimals(is, 2));
                lines.push(format!("{} {call} per request: {shown_was} -> {shown_is}", sign(was, is)));
            }
        }
        lines
    }

    /// The drift as a finding.
    pub fn finding(&self, now: &Self) -> Finding {
        let drift = self.drift(now);
        Finding {
            promise: "golden shape".to_owned(),
            held: drift.is_empty(),
            says: if drift.is_empty() { "as saved".to_owned() } else { drift.join("; ") },
            measured: None,
            offending: Some(drift.len() as u64),
            sample: None,
        }
    }
}

fn sign(was: f64, is: f64) -> char {
    match (was > 0.0, is > 0.0) {
        (false, _) => '+',
        (_, false) => '-',
        _ => '~',
    }
}

type Pair<'m, V> = (&'m String, Option<&'m V>, Option<&'m V>);

/// The keys of both maps with the value in each.
fn both<'m, V>(a: &'m BTreeMap<String, V>, b: &'m BTreeMap<String, V>) -> Vec<Pair<'m, V>> {
    let keys: std::collections::BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    keys.into_iter().map(|key| (key, a.get(key), b.get(key))).collect()
}

/// Gathers the shape of a run.
#[derive(Default)]
pub struct Gathering {
    routes: BTreeMap<String, BTreeMap<String, u64>>,
}

impl Gathering {
    /// Adds one request.
    pub fn add(&mut self, request: &Request) {
        let route = format!("{} {}", request.method, request.path);
        if self.routes.len() >= KEPT && !self.routes.contains_key(&route) {
            return;
        }
        let sequences = self.routes.entry(route).or_default();
        let sequence = sequence(request);
        if sequences.len() < KEPT || sequences.contains_key(&sequence) {
            *sequences.entry(sequence).or_default() += 1;
        }
    }

    /// The shape, with the server's calls from the run.
    pub fn shape(&self, run: &Run) -> Shape {
        let requests = answered_requests(run).max(1) as f64;
        let calls = run.syscalls.iter().map(|call| (call.name.clone(), call.calls as f64 / requests));
        let rounded = |share: f64| (share * 10_000.0).round() / 10_000.0;
        let routes = self.routes.iter().map(|(route, sequences)| {
            let all: u64 = sequences.values().sum();
            let shares =
                sequences.iter().map(|(sequence, count)| (sequence.clone(), *count as f64 / all as f64));
            let shares = shares
                .filter(|(_, share)| *share >= RARE)
                .map(|(sequence, share)| (sequence, rounded(share)));
            (route.clone(), shares.collect())
        });
        Shape {
            calls: calls
                .filter(|(_, calls)| *calls >= RARE_CALLS)
                .map(|(name, calls)| (name, rounded(calls)))
                .collect(),
            routes: routes.collect(),
        }
    }
}

/// `read writev`: the reads of a request and the write calls of its response, in order.
fn sequence(request: &Request) -> String {
    let mut words: Vec<String> = match request.reads {
        0 => Vec::new(),
        1 => vec!["read".to_owned()],
        reads => vec![format!("{reads} x read")],
    };
    for write in request.kept_writes() {
        let name = syscall_name(write.call.into());
        words.push(if write.is_eagain() { format!("{name}=EAGAIN") } else { name.into_owned() });
    }
    if request.writes as usize > request.kept_writes().len() {
        words.push("...".to_owned());
    }
    words.join(" ")
}

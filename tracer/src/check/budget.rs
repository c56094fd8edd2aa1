//! A budget file: figures that a server keeps to, overall and per route.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use super::{Finding, Sample};
use crate::recording::{Request, Run};
use crate::report::{counted, decimals, percent, thousands};
use crate::stats::{self, Distribution, answered_requests};

/// What a budget file says.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    /// Of all requests together.
    #[serde(default)]
    pub overall: Overall,
    /// Of some of them.
    #[serde(default, rename = "route")]
    pub routes: Vec<OfRoute>,
}

/// Limits that only the server as a whole can keep to, and those of its requests.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Overall {
    writes_per_response: Option<u32>,
    eagain_per_request: Option<f64>,
    p99_us: Option<f64>,
    blocked_us: Option<f64>,
    downstream_round_trips: Option<f64>,
    /// Server CPU, event loop included; untraced where there is an untraced round.
    cpu_us: Option<f64>,
    /// Of the baseline's, such as 1.05.
    cpu_of_baseline: Option<f64>,
    /// Calls per request, by name; `all` is their sum.
    #[serde(default)]
    syscalls: BTreeMap<String, f64>,
}

/// Limits of the requests to one path.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OfRoute {
    /// `GET /users/*`: method and path, where `*` at the end stands for anything.
    route: String,
    writes_per_response: Option<u32>,
    eagain_per_request: Option<f64>,
    p99_us: Option<f64>,
    blocked_us: Option<f64>,
    downstream_round_trips: Option<f64>,
    /// CPU charged to its requests, traced.
    cpu_us: Option<f64>,
}

impl Budget {
    /// Reads a budget file; a mistake is named with its line.
    pub fn load(path: &Path) -> Result<Self> {
        let shown = path.display();
        let text =
            std::fs::read_to_string(path).with_context(|| format!("cannot read the budget {shown}"))?;
        let budget: Self =
            toml::from_str(&text).with_context(|| format!("the budget {shown} has a mistake"))?;
        for name in budget.overall.syscalls.keys().filter(|name| *name != "all") {
            ensure!(
                crate::recording::syscall_number(name).is_some(),
                "the budget {shown} limits `{name}`, which is no syscall; `all` is their sum"
            );
        }
        if budget == Self::default() {
            bail!("the budget {shown} limits nothing; see [overall] and [[route]] in the README");
        }
        Ok(budget)
    }

    /// It compares with a baseline.
    pub fn needs_baseline(&self) -> bool {
        self.overall.cpu_of_baseline.is_some()
    }
}

/// Watches requests for a budget.
pub struct Watch {
    budget: Budget,
    /// CPU per request of the baseline, nanoseconds.
    baseline_cpu_ns: Option<f64>,
    overall: Spent,
    routes: Vec<Spent>,
}

/// What some requests spent.
#[derive(Default)]
struct Spent {
    requests: u64,
    too_many_writes: u64,
    sample: Option<Request>,
    eagain: u64,
    wall: Distribution,
    blocked_ns: u64,
    round_trips: u64,
    cpu_ns: u64,
}

impl Spent {
    fn add(&mut self, request: &Request, most_writes: Option<u32>) {
        self.requests += 1;
        if most_writes.is_some_and(|most| request.writes > most) {
            self.too_many_writes += 1;
            self.sample.get_or_insert_with(|| request.clone());
        }
        self.eagain += u64::from(request.writes_eagain);
        self.wall.record(request.wall_ns());
        self.blocked_ns += request.states.iter().map(|states| states.blocked_ns).sum::<u64>();
        self.round_trips += request.downstream.iter().map(|peer| u64::from(peer.round_trips)).sum::<u64>();
        self.cpu_ns += request.cpu.total_ns();
    }

    fn mean(&self, sum: u64) -> f64 {
        sum as f64 / self.requests.max(1) as f64
    }
}

impl Watch {
    /// Nothing seen yet. `baseline` is what `cpu_of_baseline` compares with.
    pub fn new(budget: Budget, baseline: Option<&Run>) -> Self {
        Self {
            routes: budget.routes.iter().map(|_| Spent::default()).collect(),
            overall: Spent::default(),
            baseline_cpu_ns: baseline.and_then(stats::cpu_per_request_ns).map(|cpu| cpu.ns.median),
            budget,
        }
    }

    /// Looks at one request.
    pub fn observe(&mut self, request: &Request) {
        self.overall.add(request, self.budget.overall.writes_per_response);
        let name = format!("{} {}", request.method, request.path);
        for (limits, spent) in self.budget.routes.iter().zip(&mut self.routes) {
            if matches(&limits.route, &name) {
                spent.add(request, limits.writes_per_response);
            }
        }
    }

    /// One finding for each limit.
    pub fn findings(&self, run: &Run) -> Vec<Finding> {
        let limits = &self.budget.overall;
        let mut findings = of_requests(
            "",
            &self.overall,
            limits.writes_per_response,
            [limits.eagain_per_request, limits.p99_us, limits.blocked_us, limits.downstream_round_trips],
        );
        findings.extend(self.of_server(run));
        for (limits, spent) in self.budget.routes.iter().zip(&self.routes) {
            let route = format!("{}: ", limits.route);
            findings.extend(of_requests(
                &route,
                spent,
                limits.writes_per_response,
                [limits.eagain_per_request, limits.p99_us, limits.blocked_us, limits.downstream_round_trips],
            ));
            findings.extend(limits.cpu_us.map(|most| {
                let measured = (spent.requests > 0).then(|| spent.mean(spent.cpu_ns) / 1000.0);
                figure(format!("{route}CPU us per request, charged to it"), measured, most)
            }));
        }
        findings
    }

    /// Limits that only the whole server can keep to.
    fn of_server(&self, run: &Run) -> Vec<Finding> {
        let limits = &self.budget.overall;
        let cpu_ns = stats::cpu_per_request_ns(run).map(|cpu| cpu.ns.median);
        let requests = answered_requests(run);
        let per_request = |count: u64| (requests > 0).then(|| count as f64 / requests as f64);
        let mut findings = Vec::new();
        findings.extend(
            limits
                .cpu_us
                .map(|most| figure("CPU us per request".to_owned(), cpu_ns.map(|ns| ns / 1000.0), most)),
        );
        findings.extend(limits.cpu_of_baseline.map(|most| {
            let ratio = cpu_ns.zip(self.baseline_cpu_ns).map(|(ns, baseline_ns)| ns / baseline_ns);
            figure("CPU per request over the baseline's".to_owned(), ratio, most)
        }));
        findings.extend(limits.syscalls.iter().map(|(name, most)| {
            let is_meant = |call: &&crate::recording::SyscallTotals| name == "all" || call.name == *name;
            let calls: u64 = run.syscalls.iter().filter(is_meant).map(|call| call.calls).sum();
            let what =
                if name == "all" { "syscalls per request".to_owned() } else { format!("{name} per request") };
            figure(what, per_request(calls), *most)
        }));
        findings
    }
}

/// Limits of any requests: most writes of a response; and EAGAIN, p99, blocked time and round trips.
fn of_requests(route: &str, spent: &Spent, writes: Option<u32>, limits: [Option<f64>; 4]) -> Vec<Finding> {
    let seen = |value: f64| (spent.requests > 0).then_some(value);
    let [eagain, p99, blocked, round_trips] = limits;
    let mut findings = Vec::new();
    findings.extend(writes.map(|most| writes_finding(route, spent, most)));
    findings.extend(eagain.map(|most| {
        figure(format!("{route}writes with EAGAIN per request"), seen(spent.mean(spent.eagain)), most)
    }));
    findings.extend(p99.map(|most| {
        let p99_us = spent.wall.percentiles().p99_ns.map(|ns| ns as f64 / 1000.0);
        figure(format!("{route}p99 us from first byte to delivery"), p99_us, most)
    }));
    findings.extend(blocked.map(|most| {
        figure(format!("{route}us blocked per request"), seen(spent.mean(spent.blocked_ns) / 1000.0), most)
    }));
    findings.extend(round_trips.map(|most| {
        figure(
            format!("{route}downstream round trips per request"),
            seen(spent.mean(spent.round_trips)),
            most,
        )
    }));
    findings
}

fn writes_finding(route: &str, spent: &Spent, most: u32) -> Finding {
    let all = counted(spent.requests, "response");
    let broken = spent.too_many_writes;
    Finding {
        promise: format!("{route}writes per response <= {most}"),
        held: broken == 0 && spent.requests > 0,
        says: match (spent.requests, broken) {
            (0, _) => "no such request was seen".to_owned(),
            (_, 0) => format!("all of {all}"),
            _ => format!(
                "{} of {all} ({}) broke it",
                thousands(broken),
                percent(broken as f64 / spent.requests as f64)
            ),
        },
        measured: None,
        offending: Some(broken),
        sample: spent.sample.as_ref().map(Sample::of),
    }
}

/// A figure against the most it may be. What was not measured does not hold.
fn figure(what: String, measured: Option<f64>, most: f64) -> Finding {
    Finding {
        promise: format!("{what} <= {most}"),
        held: measured.is_some_and(|measured| measured <= most),
        says: measured.map_or_else(|| "nothing was measured".to_owned(), |measured| decimals(measured, 3)),
        measured,
        offending: None,
        sample: None,
    }
}

fn matches(pattern: &str, route: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => route.starts_with(prefix),
        None => route == pattern,
    }
}

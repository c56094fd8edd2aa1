//! What a load of its own says about itself: the figures, and the stamps that tell how far to trust them.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde::Serialize;

use super::errors::ErrorClass;
use super::plan::{Abort, Pacing, Plan};
use super::result::LoadResult;
use super::server::ServerUse;
use crate::report::{BUSY, LimitedBy};

/// Samples that must lie beyond a percentile for it to be told.
const SAMPLES_BEYOND: f64 = 10.0;
/// Fewer requests than this have no rate.
const RATE_REQUESTS: u64 = 10;
/// A constant rate is reached from this share on.
const REACHED: f64 = 0.99;

/// One load.
#[derive(Clone, Debug, Serialize)]
pub struct LoadReport {
    /// Version of this layout.
    pub schema: u32,
    /// Version of `tracer`.
    pub tracer_version: &'static str,
    /// Where to.
    pub url: String,
    /// `closed` or `constant_rate`.
    pub mode: &'static str,
    /// Connections.
    pub connections: u32,
    /// Requests in flight on a connection at most.
    pub pipeline: usize,
    /// Threads of the driver.
    pub threads: usize,
    /// Requests sent.
    pub sent: u64,
    /// Requests answered as expected.
    pub requests: u64,
    /// Requests that failed, and connections that could not be opened.
    pub errors: u64,
    /// The failures by class; those that occurred.
    pub error_classes: BTreeMap<&'static str, ErrorReport>,
    /// Requests given up on purpose.
    pub aborted: u64,
    /// Requests in flight at an interruption.
    pub abandoned: u64,
    /// Nanoseconds from the first send to the last answer.
    pub elapsed_ns: u64,
    /// Requests (aborted ones too) per second; `None` when a request failed, or there were too few.
    pub requests_per_s: Option<f64>,
    /// From when a request was due (constant rate) or sent (closed loop) to its last byte.
    pub latency: Latency,
    /// From when a request was sent to its last byte; only at a constant rate.
    pub service_time: Option<Latency>,
    /// Only at a constant rate.
    pub rate: Option<RateReport>,
    /// Nanoseconds to open a connection, of those opened during the run.
    pub connect: Latency,
    /// By route, when there are several.
    pub routes: Vec<RouteReport>,
    /// How far to trust it.
    pub stamps: Stamps,
    /// `interrupted`, or empty.
    pub ended_early: String,
    /// What would mislead who did not know it.
    pub notes: Vec<String>,
}

/// Failures of one class.
#[derive(Clone, Debug, Serialize)]
pub struct ErrorReport {
    /// How many.
    pub count: u64,
    /// The first one, in words.
    pub first: String,
    /// When it was, in nanoseconds after the start.
    pub first_after_ns: u64,
}

/// A distribution of nanoseconds. A percentile is `None` when fewer than ten samples lie beyond it.
#[derive(Clone, Debug, Serialize)]
pub struct Latency {
    /// Samples.
    pub count: u64,
    /// Mean.
    pub mean_ns: f64,
    /// Standard deviation.
    pub stdev_ns: f64,
    /// Smallest.
    pub min_ns: u64,
    /// Median.
    pub p50_ns: Option<u64>,
    /// 75th percentile.
    pub p75_ns: Option<u64>,
    /// 90th percentile.
    pub p90_ns: Option<u64>,
    /// 99th percentile.
    pub p99_ns: Option<u64>,
    /// 99.9th percentile.
    pub p999_ns: Option<u64>,
    /// 99.99th percentile.
    pub p9999_ns: Option<u64>,
    /// Largest.
    pub max_ns: u64,
}

/// What became of a constant rate.
#[derive(Clone, Debug, Serialize)]
pub struct RateReport {
    /// Requests per second asked for.
    pub asked_per_s: f64,
    /// Requests due in the run.
    pub asked: u64,
    /// Requests sent / requests due.
    pub achieved: f64,
    /// How much later than it could the driver sent a request.
    pub send_lag: Latency,
    /// Requests that found no free connection when they were due.
    pub delayed: u64,
}

/// Figures of one route.
#[derive(Clone, Debug, Serialize)]
pub struct RouteReport {
    /// `GET /path`.
    pub route: String,
    /// Its weight.
    pub weight: u32,
    /// Answered as expected.
    pub requests: u64,
    /// Failed.
    pub errors: u64,
    /// As the report's.
    pub latency: Latency,
}

/// How far to trust it.
#[derive(Clone, Debug, Serialize)]
pub struct Stamps {
    /// Who was the limit.
    pub limited_by: LimitedBy,
    /// Share of time that the driver's busiest thread ran.
    pub client_busy: f64,
    /// Share of time that the driver's most delayed thread waited for its CPU.
    pub client_waited: f64,
    /// CPU nanoseconds of the driver per request.
    pub client_cpu_per_request_ns: Option<f64>,
    /// Share of time that the server's busiest thread ran, or that all its CPUs were busy with it; `None`: unknown.
    pub server_busy: Option<f64>,
    /// CPU nanoseconds of the server per request.
    pub server_cpu_per_request_ns: Option<f64>,
    /// The process that listens.
    pub server: Option<String>,
    /// CPUs of the driver; empty: not pinned.
    pub client_cores: Vec<usize>,
    /// CPUs the server may use.
    pub server_cores: Vec<usize>,
    /// |c - rate x mean latency| / c, with c requests in flight: what Little's law leaves over. Closed loop only.
    pub littles_law_error: Option<f64>,
    /// Share of answers that came over a connection used before.
    pub connection_reuse: Option<f64>,
    /// Connections opened again after the server closed them, or after a failure.
    pub reconnects: u64,
    /// Request bytes written.
    pub bytes_out: u64,
    /// Response bytes read.
    pub bytes_in: u64,
    /// Requests answered before all of them was written: the server did not read them.
    pub answered_early: u64,
}

/// What is known besides the result.
#[derive(Clone, Debug, Default)]
pub struct Circumstances {
    /// Where to, without what may be secret.
    pub url: String,
    /// The server's CPU.
    pub server: Option<ServerUse>,
    /// The run was interrupted.
    pub interrupted: bool,
    /// What would mislead who did not know it.
    pub notes: Vec<String>,
}

impl LoadReport {
    /// Of a run.
    pub fn new(plan: &Plan, result: &LoadResult, circumstances: Circumstances) -> Self {
        let Circumstances { url, server, interrupted, mut notes } = circumstances;
        let totals = &result.totals;
        let answered = totals.requests + result.aborted;
        let is_told = totals.errors == 0 && answered >= RATE_REQUESTS && totals.elapsed_ns > 0;
        let requests_per_s = is_told.then(|| answered as f64 * 1e9 / totals.elapsed_ns as f64);
        let latency = result.paced.as_ref().map_or(&result.latency, |paced| &paced.response);
        let stamps = Stamps::of(plan, result, server, requests_per_s);
        let rate = rate(plan, result);
        notes.extend(hindsight(plan, &stamps, rate.as_ref()));
        Self {
            schema: 1,
            tracer_version: env!("CARGO_PKG_VERSION"),
            url,
            mode: if rate.is_some() { "constant_rate" } else { "closed" },
            connections: totals.connections,
            pipeline: plan.pipeline,
            threads: plan.threads(),
            sent: result.sent(),
            requests: totals.requests,
            errors: totals.errors,
            error_classes: error_classes(result),
            aborted: result.aborted,
            abandoned: result.abandoned,
            elapsed_ns: totals.elapsed_ns,
            requests_per_s,
            latency: Latency::of(latency),
            service_time: result.paced.as_ref().map(|_| Latency::of(&result.latency)),
            rate,
            connect: Latency::of(&result.connect),
            routes: routes(plan, result),
            stamps,
            ended_early: if interrupted { "interrupted".to_owned() } else { String::new() },
            notes,
        }
    }
}

impl Latency {
    /// Of nanoseconds.
    pub fn of(histogram: &Histogram<u64>) -> Self {
        let count = histogram.len();
        let told = |quantile: f64| {
            // Rounded, for 1000 * (1 - 0.99) is a little less than 10.
            let beyond = (count as f64 * (1.0 - quantile) * 1e6).round() / 1e6;
            (beyond >= SAMPLES_BEYOND).then(|| histogram.value_at_quantile(quantile).min(histogram.max()))
        };
        Self {
            count,
            mean_ns: if count == 0 { 0.0 } else { histogram.mean() },
            stdev_ns: if count == 0 { 0.0 } else { histogram.stdev() },
            min_ns: if count == 0 { 0 } else { histogram.min() },
            p50_ns: told(0.5),
            p75_ns: told(0.75),
            p90_ns: told(0.9),
            p99_ns: told(0.99),
            p999_ns: told(0.999),
            p9999_ns: told(0.9999),
            max_ns: histogram.max(),
        }
    }
}

fn error_classes(result: &LoadResult) -> BTreeMap<&'static str, ErrorReport> {
    let report = |class: ErrorClass| {
        let first = result.errors.first(class)?;
        let report = ErrorReport {
            count: result.errors.count(class),
            first: first.words.clone(),
            first_after_ns: first.time_ns.saturating_sub(result.started_ns),
        };
        Some((class.name(), report))
    };
    ErrorClass::ALL.into_iter().filter_map(report).collect()
}

fn rate(plan: &Plan, result: &LoadResult) -> Option<RateReport> {
    let (asked_per_s, paced) = (plan.rate?, result.paced.as_ref()?);
    Some(RateReport {
        asked_per_s,
        asked: paced.asked,
        achieved: result.sent() as f64 / paced.asked.max(1) as f64,
        send_lag: Latency::of(&paced.send_lag),
        delayed: paced.delayed,
    })
}

fn routes(plan: &Plan, result: &LoadResult) -> Vec<RouteReport> {
    if plan.routes.len() < 2 {
        return Vec::new();
    }
    let report = |(route, found): (&super::plan::Route, &super::result::RouteResult)| RouteReport {
        route: format!("{} {}", route.method, route.path),
        weight: route.weight,
        requests: found.requests,
        errors: found.errors,
        latency: Latency::of(&found.latency),
    };
    plan.routes.iter().zip(&result.routes).map(report).collect()
}

impl Stamps {
    fn of(plan: &Plan, result: &LoadResult, server: Option<ServerUse>, rate: Option<f64>) -> Self {
        let share = |part_ns: fn(&super::WorkerResult) -> u64| {
            let shares =
                result.workers.iter().map(|worker| part_ns(worker) as f64 / worker.elapsed_ns.max(1) as f64);
            shares.fold(0.0, f64::max)
        };
        let client_busy = share(|worker| worker.cpu_ns);
        let client_waited = share(|worker| worker.run_delay_ns);
        let ended = result.totals.requests + result.aborted;
        let per_request = |cpu_ns: u64| (ended > 0).then(|| cpu_ns as f64 / ended as f64);
        let server_busy = server.as_ref().map(ServerUse::busy);
        let answered = result.latency.len();
        let in_flight = f64::from(result.totals.connections) * plan.pipeline as f64;
        let is_closed = plan.rate.is_none() && plan.abort.is_none();
        Self {
            limited_by: LimitedBy::of(server_busy, Some(client_busy + client_waited)),
            client_busy,
            client_waited,
            client_cpu_per_request_ns: per_request(result.totals.client_cpu_ns),
            server_busy,
            server_cpu_per_request_ns: server.as_ref().and_then(|server| per_request(server.cpu_ns)),
            server: server.as_ref().map(|server| format!("{} ({})", server.name, server.pid)),
            client_cores: plan.cores.clone(),
            server_cores: server.map(|server| server.cores).unwrap_or_default(),
            littles_law_error: rate
                .filter(|_| is_closed && answered > 0)
                .map(|rate| (in_flight - rate * result.latency.mean() / 1e9).abs() / in_flight),
            connection_reuse: (answered > 0).then(|| result.reused as f64 / answered as f64),
            reconnects: result.totals.reconnects,
            bytes_out: result.bytes_out,
            bytes_in: result.bytes_in,
            answered_early: result.answered_early,
        }
    }
}

/// What only the result shows to be misleading.
fn hindsight(plan: &Plan, stamps: &Stamps, rate: Option<&RateReport>) -> Vec<String> {
    let mut notes = Vec::new();
    if stamps.limited_by == LimitedBy::Client {
        let why = if stamps.client_busy >= BUSY {
            "its CPU was busy: give it more with --cores, or send less"
        } else {
            "others held its CPU: give it one of its own with --cores, or stop them"
        };
        notes.push(format!("the driver was the limit, so this is no rate of the server; {why}"));
    }
    if let Some(rate) = rate.filter(|rate| rate.achieved < REACHED) {
        notes.push(format!(
            "the rate asked for was not reached, so its latencies leave out the requests that were never sent: \
             {} of {} were; ask for less, or use more connections",
            crate::report::percent(rate.achieved),
            crate::report::counted(rate.asked, "request")
        ));
    }
    let intends_reuse = plan.requests_per_connection.is_none() && plan.abort.is_none();
    if stamps.connection_reuse.is_some_and(|reuse| reuse < 0.99) && stamps.reconnects > 0 && intends_reuse {
        notes.push(
            "the server closed connections: what opening them costs is in every figure, so do not compare it \
             with a server that keeps them"
                .to_owned(),
        );
    }
    if stamps.answered_early > 0 {
        notes.push(format!(
            "{} answered before all of it was sent: the server did not read what it was sent",
            crate::report::counted(stamps.answered_early, "request")
        ));
    }
    notes
}

/// What misleads whatever the result is.
pub fn foresight(plan: &Plan, server_cores: Option<&[usize]>) -> Vec<String> {
    let mut notes = Vec::new();
    if cfg!(debug_assertions) {
        notes.push("this is a debug build of tracer: its driver costs many times as much CPU".to_owned());
    }
    if server_cores
        .is_some_and(|cores| !cores.is_empty() && cores.iter().all(|core| plan.cores.contains(core)))
    {
        notes.push(
            "server and driver may use only the same CPU, so each waits for the other; choose another with --cores"
                .to_owned(),
        );
    }
    notes.extend(notes_on_pacing(&plan.pacing()));
    if plan.cores.len() > plan.connections {
        notes.push(format!(
            "{} for {}: only {} used",
            crate::report::counted(plan.cores.len() as u64, "core"),
            crate::report::counted(plan.connections as u64, "connection"),
            plan.connections
        ));
    }
    if matches!(plan.abort, Some(Abort::After(after)) if after >= plan.timeout) {
        notes.push("--abort after is not shorter than --timeout: requests time out first".to_owned());
    }
    notes
}

/// What is misleading about the way in which requests are sent.
pub fn notes_on_pacing(pacing: &Pacing) -> Vec<String> {
    let pipelines = pacing.pipeline > 1;
    let churns = pacing.requests_per_connection.is_some() && pacing.rate.is_none();
    let notes = [
        pipelines.then_some(
            "pipelining: browsers and proxies do not do it, and it lets a server save most of its calls; do not \
             compare frameworks by it",
        ),
        churns.then_some(
            "new connections all the time: the figures are those of connecting, as much as of requests",
        ),
    ];
    notes.into_iter().flatten().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn latency(samples: u64) -> Latency {
        let mut histogram = super::super::result::histogram();
        (1..=samples).for_each(|n| histogram.record(n * 1000).unwrap());
        Latency::of(&histogram)
    }

    #[test]
    fn a_percentile_needs_ten_samples_beyond_it() {
        assert_eq!((latency(19).p50_ns, latency(99).p90_ns, latency(999).p99_ns), (None, None, None));
        assert_eq!(latency(1_000).p999_ns, None);
        assert!(latency(20).p50_ns.is_some() && latency(100).p90_ns.is_some());
        assert!(latency(1_000).p99_ns.is_some() && latency(10_000).p999_ns.is_some());
        assert_eq!((latency(0).min_ns, latency(0).max_ns), (0, 0));
    }
}

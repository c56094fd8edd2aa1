//! What a run of the driver found out.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;

use super::clock::monotonic_ns;
use super::errors::{ErrorClass, ErrorCounts, Failure};
use super::plan::Plan;
use crate::recording::LoadTotals;
use crate::stats::percentiles;

/// Largest latency a histogram tells apart, an hour; what is longer counts as that.
const LATENCY_MAX_NS: u64 = 3_600_000_000_000;

/// One answered request as the client saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The client's port: the remote one from where the server stands. Zero on a UNIX socket.
    pub remote_port: u16,
    /// Read just before the request's first write.
    pub send_ns: u64,
    /// Read just after the read that brought the response's first byte.
    pub first_byte_ns: u64,
    /// Read just after the read that completed the response.
    pub done_ns: u64,
}

/// What a driver tells of its connections while a run goes on.
#[derive(Clone, Debug)]
pub enum ClientRecord {
    /// It has this connection; told before the connection carries a request of the run.
    Opened {
        /// The client's port.
        remote_port: u16,
        /// Read just after it was connected.
        at_ns: u64,
    },
    /// Requests that were answered, in the order of completion on each connection.
    Answered(Vec<Sample>),
}

/// What one run found.
#[derive(Clone, Debug)]
pub struct LoadResult {
    /// The figures that are kept.
    pub totals: LoadTotals,
    /// Service time: nanoseconds from send to done of every answered request, as expected or not, and from send to
    /// giving up of those that timed out.
    pub latency: Histogram<u64>,
    /// What only a constant rate has.
    pub paced: Option<Paced>,
    /// Nanoseconds to open a connection; those opened during the run.
    pub connect: Histogram<u64>,
    /// Figures by route, in the plan's order.
    pub routes: Vec<RouteResult>,
    /// Every answered request, in the order of completion on its thread; empty unless asked for.
    pub samples: Vec<Sample>,
    /// When the run started.
    pub started_ns: u64,
    /// When nothing was in flight any more.
    pub ended_ns: u64,
    /// Request bytes written.
    pub bytes_out: u64,
    /// Response bytes read.
    pub bytes_in: u64,
    /// Requests sent on a connection that had carried another one before.
    pub reused: u64,
    /// Requests the client gave up on purpose.
    pub aborted: u64,
    /// Requests in flight when the run was interrupted.
    pub abandoned: u64,
    /// Requests answered before all of them was written.
    pub answered_early: u64,
    /// The driver's threads.
    pub workers: Vec<WorkerResult>,
    /// Failures by class.
    pub errors: ErrorCounts,
}

/// What a constant rate tells besides.
#[derive(Clone, Debug)]
pub struct Paced {
    /// Response time: as [`LoadResult::latency`], but from when the request was due.
    pub response: Histogram<u64>,
    /// Nanoseconds a request left later than the driver could have sent it: after it was due, and after there was an
    /// idle connection.
    pub send_lag: Histogram<u64>,
    /// Requests due in the run.
    pub asked: u64,
    /// Requests that found no idle connection when they were due.
    pub delayed: u64,
}

/// Figures of one route.
#[derive(Clone, Debug)]
pub struct RouteResult {
    /// Requests answered as expected.
    pub requests: u64,
    /// Requests answered wrongly or not at all.
    pub errors: u64,
    /// As [`LoadResult::latency`] and, at a constant rate, as [`Paced::response`].
    pub latency: Histogram<u64>,
}

/// One of the driver's threads.
#[derive(Clone, Debug)]
pub struct WorkerResult {
    /// The kernel's id of it.
    pub thread_id: u32,
    /// The CPU it was pinned to.
    pub core: Option<usize>,
    /// Its connections.
    pub connections: usize,
    /// CPU nanoseconds it used.
    pub cpu_ns: u64,
    /// Nanoseconds it was ready and waited for its CPU.
    pub run_delay_ns: u64,
    /// Nanoseconds of its part of the run.
    pub elapsed_ns: u64,
}

impl LoadResult {
    /// Of a run that begins.
    pub(super) fn begun(plan: &Plan, connections: usize, started_ns: u64) -> Self {
        let paced = || Paced { response: histogram(), send_lag: histogram(), asked: 0, delayed: 0 };
        let route = || RouteResult { requests: 0, errors: 0, latency: histogram() };
        Self {
            totals: LoadTotals {
                connections: connections as u32,
                kept_in_flight: plan.rate.is_none().then_some((connections * plan.pipeline) as u64),
                ..LoadTotals::default()
            },
            latency: histogram(),
            paced: plan.rate.map(|_| paced()),
            connect: histogram(),
            routes: plan.routes.iter().map(|_| route()).collect(),
            samples: Vec::new(),
            started_ns,
            ended_ns: started_ns,
            bytes_out: 0,
            bytes_in: 0,
            reused: 0,
            aborted: 0,
            abandoned: 0,
            answered_early: 0,
            workers: Vec::new(),
            errors: ErrorCounts::default(),
        }
    }

    /// What there is to tell when the driver could not even be started: its connection was refused. `None`: `error` is
    /// of another kind.
    pub fn unconnected(plan: &Plan, error: &anyhow::Error) -> Option<Self> {
        let failure = error.downcast_ref::<Failure>()?;
        let now_ns = monotonic_ns();
        let mut result = Self::begun(plan, plan.connections, now_ns);
        result.errors.add(failure, now_ns);
        result.complete();
        Some(result)
    }

    /// Requests sent, whatever became of them.
    pub fn sent(&self) -> u64 {
        let unsent = self.errors.count(ErrorClass::Connect);
        self.totals.requests + self.totals.errors + self.aborted + self.abandoned - unsent
    }

    /// Adds what another thread found in the same run.
    pub(super) fn merge(&mut self, other: Self) {
        let add = |into: &mut Histogram<u64>, from: &Histogram<u64>| {
            into.add(from).expect("histograms of the same bounds");
        };
        let (totals, others) = (&mut self.totals, &other.totals);
        totals.connections += others.connections;
        totals.kept_in_flight =
            totals.kept_in_flight.zip(others.kept_in_flight).map(|(ours, theirs)| ours + theirs);
        totals.requests += others.requests;
        totals.reconnects += others.reconnects;
        totals.client_cpu_ns += others.client_cpu_ns;
        add(&mut self.latency, &other.latency);
        add(&mut self.connect, &other.connect);
        if let (Some(paced), Some(others)) = (&mut self.paced, &other.paced) {
            add(&mut paced.response, &others.response);
            add(&mut paced.send_lag, &others.send_lag);
            paced.asked += others.asked;
            paced.delayed += others.delayed;
        }
        for (route, others) in self.routes.iter_mut().zip(&other.routes) {
            route.requests += others.requests;
            route.errors += others.errors;
            add(&mut route.latency, &others.latency);
        }
        self.samples.extend(other.samples);
        self.started_ns = self.started_ns.min(other.started_ns);
        self.ended_ns = self.ended_ns.max(other.ended_ns);
        self.bytes_out += other.bytes_out;
        self.bytes_in += other.bytes_in;
        self.reused += other.reused;
        self.aborted += other.aborted;
        self.abandoned += other.abandoned;
        self.answered_early += other.answered_early;
        self.workers.extend(other.workers);
        self.errors.merge(other.errors);
        self.complete();
    }

    /// Fills in what follows from the rest.
    pub(super) fn complete(&mut self) {
        let totals = &mut self.totals;
        totals.errors = self.errors.total();
        totals.first_error = self.errors.first_of_all().map(|first| first.words.clone());
        totals.elapsed_ns = self.ended_ns - self.started_ns;
        totals.asked = self.paced.as_ref().map(|paced| paced.asked);
        totals.latency = percentiles(self.paced.as_ref().map_or(&self.latency, |paced| &paced.response));
    }
}

/// Cumulative figures of one thread, a whole number of seconds after the start.
#[derive(Clone, Debug)]
pub struct Tick {
    /// Seconds since the start.
    pub second: u64,
    /// What was found up to then.
    pub counts: Counts,
    /// Latency up to then: response time at a constant rate, else service time.
    pub latency: Histogram<u64>,
}

/// Counts that only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests answered as expected.
    pub requests: u64,
    /// Requests that failed.
    pub errors: u64,
    /// Request bytes written.
    pub bytes_out: u64,
    /// Response bytes read.
    pub bytes_in: u64,
}

/// What happened in one second, over all threads.
#[derive(Clone, Debug)]
pub struct Second {
    /// Seconds since the start, at its end.
    pub second: u64,
    /// In this second.
    pub counts: Counts,
    /// From the start to here.
    pub total: Counts,
    /// In this second.
    pub latency: Histogram<u64>,
}

/// Puts the ticks of all threads together into seconds.
#[derive(Debug)]
pub struct Seconds {
    threads: usize,
    waiting: BTreeMap<u64, (usize, Tick)>,
    last: (Counts, Histogram<u64>),
}

impl Seconds {
    /// Of a driver with so many threads.
    pub fn new(threads: usize) -> Self {
        Self { threads, waiting: BTreeMap::new(), last: (Counts::default(), histogram()) }
    }

    /// Takes a tick; gives the second that it completes.
    pub fn take(&mut self, tick: Tick) -> Option<Second> {
        let second = tick.second;
        match self.waiting.get_mut(&second) {
            Some((ticks, all)) => {
                *ticks += 1;
                all.counts = all.counts.plus(tick.counts);
                all.latency.add(&tick.latency).expect("histograms of the same bounds");
            }
            None => {
                self.waiting.insert(second, (1, tick));
            }
        }
        if self.waiting.get(&second)?.0 < self.threads {
            return None;
        }
        let (_, all) = self.waiting.remove(&second)?;
        Some(self.since_last(second, all.counts, all.latency))
    }

    /// What came after the last whole second, by the result of the run.
    pub fn rest(&mut self, result: &LoadResult) -> Second {
        let counts = Counts {
            requests: result.totals.requests,
            errors: result.totals.errors,
            bytes_out: result.bytes_out,
            bytes_in: result.bytes_in,
        };
        let latency = result.paced.as_ref().map_or(&result.latency, |paced| &paced.response).clone();
        self.since_last(result.totals.elapsed_ns.div_ceil(1_000_000_000), counts, latency)
    }

    fn since_last(&mut self, second: u64, counts: Counts, latency: Histogram<u64>) -> Second {
        let mut added = latency.clone();
        added.subtract(&self.last.1).expect("counts only grow");
        let before = std::mem::replace(&mut self.last, (counts, latency)).0;
        Second { second, counts: counts.minus(before), total: counts, latency: added }
    }
}

impl Counts {
    fn plus(self, other: Self) -> Self {
        Self {
            requests: self.requests + other.requests,
            errors: self.errors + other.errors,
            bytes_out: self.bytes_out + other.bytes_out,
            bytes_in: self.bytes_in + other.bytes_in,
        }
    }

    fn minus(self, other: Self) -> Self {
        Self {
            requests: self.requests - other.requests,
            errors: self.errors - other.errors,
            bytes_out: self.bytes_out - other.bytes_out,
            bytes_in: self.bytes_in - other.bytes_in,
        }
    }
}

/// A histogram of nanoseconds.
pub(super) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_MAX_NS, 3).expect("constant bounds are valid")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tick(second: u64, latencies_ns: &[u64]) -> Tick {
        let mut latency = histogram();
        latencies_ns.iter().for_each(|&ns| latency.record(ns).unwrap());
        let counts = Counts { requests: latencies_ns.len() as u64, ..Counts::default() };
        Tick { second, counts, latency }
    }

    #[test]
    fn a_second_is_whole_when_every_thread_has_told() {
        let mut seconds = Seconds::new(2);
        assert!(seconds.take(tick(1, &[10, 20])).is_none());
        let first = seconds.take(tick(1, &[30])).unwrap();
        assert_eq!((first.counts.requests, first.latency.len(), first.latency.max()), (3, 3, 30));
        assert!(seconds.take(tick(2, &[10, 20, 500])).is_none());
        let second = seconds.take(tick(2, &[30])).unwrap();
        assert_eq!((second.second, second.counts.requests, second.total.requests), (2, 1, 4));
        assert_eq!((second.latency.len(), second.latency.min()), (1, 500));
    }
}

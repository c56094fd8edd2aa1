//! What a run of the driver found out, while it runs ([`Window`]) and after ([`LoadResult`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use hdrhistogram::Histogram;

use super::errors::{ErrorClass, ErrorCounts, Failure};
use super::{Stop, clock};
use crate::recording::LoadTotals;
use crate::stats::percentiles;

/// Largest latency the histogram tells apart, an hour; what is longer counts as that.
const LATENCY_MAX_NS: u64 = 3_600_000_000_000;
/// Attempts to open a connection that may fail in a row, per connection, before the run is given up.
const CONNECT_ATTEMPTS: u64 = 3;

/// One answered request as the client saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The client's port: the remote one from where the server stands.
    pub remote_port: u16,
    /// Read just before the request's first write.
    pub send_ns: u64,
    /// Read just after the read that completed the response.
    pub done_ns: u64,
}

/// What one run found.
#[derive(Clone, Debug)]
pub struct LoadResult {
    /// The figures that are kept.
    pub totals: LoadTotals,
    /// Nanoseconds from send to done of every answered request, as expected or not, and from send to giving up of
    /// those that timed out.
    pub latency: Histogram<u64>,
    /// Every answered request, in the order of completion; empty unless asked for.
    pub samples: Vec<Sample>,
    /// When the run started.
    pub started_ns: u64,
    /// When nothing was in flight any more.
    pub ended_ns: u64,
    /// Request bytes written.
    pub bytes_out: u64,
    /// Response bytes read.
    pub bytes_in: u64,
    /// The driver's thread.
    pub thread_id: u32,
    /// Failures by class.
    pub errors: ErrorCounts,
}

impl LoadResult {
    /// Requests sent, whatever became of them.
    pub fn sent(&self) -> u64 {
        self.totals.requests + self.totals.errors - self.errors.count(ErrorClass::Connect)
    }
}

/// What the caller may watch and set while a run goes on.
#[derive(Clone, Debug, Default)]
pub(super) struct Controls {
    pub stop: Arc<AtomicBool>,
    pub progress: Arc<AtomicU64>,
}

/// What becomes of the samples of a run.
#[derive(Clone, Debug)]
pub(super) enum Sampling {
    Off,
    Keep,
    Send(mpsc::Sender<Vec<Sample>>),
}

/// Samples sent at once.
const PORTION: usize = 1_024;

/// A run while it goes on: says whether another request may be sent, and takes in what became of each.
#[derive(Debug)]
pub(super) struct Window {
    result: LoadResult,
    controls: Controls,
    sampling: Sampling,
    /// Requests that may still be sent.
    remaining: u64,
    /// No request is sent from here on.
    deadline_ns: u64,
    /// The last clock reading: closed loop, so it is when the next request could be sent.
    now_ns: u64,
    started_cpu_ns: u64,
    /// Requests answered, right or wrong.
    answered: u64,
    failed_connects: u64,
    failed_connects_max: u64,
}

impl Window {
    pub fn open(stop: Stop, sampling: Sampling, connections: usize, controls: Controls) -> Self {
        controls.progress.store(0, Ordering::Relaxed);
        let latency = Histogram::new_with_bounds(1, LATENCY_MAX_NS, 3).expect("constant bounds are valid");
        let started_cpu_ns = clock::thread_cpu_ns();
        let started_ns = clock::monotonic_ns();
        let (remaining, deadline_ns) = match stop {
            Stop::Count(count) => (count, u64::MAX),
            Stop::After(duration) => (u64::MAX, started_ns.saturating_add(nanoseconds(duration))),
        };
        let totals = LoadTotals { connections: connections as u32, ..LoadTotals::default() };
        Self {
            result: LoadResult {
                totals,
                latency,
                samples: Vec::new(),
                started_ns,
                ended_ns: started_ns,
                bytes_out: 0,
                bytes_in: 0,
                thread_id: clock::thread_id(),
                errors: ErrorCounts::default(),
            },
            controls,
            sampling,
            remaining,
            deadline_ns,
            now_ns: started_ns,
            started_cpu_ns,
            answered: 0,
            failed_connects: 0,
            failed_connects_max: CONNECT_ATTEMPTS * connections as u64,
        }
    }

    /// One more request may be sent, and is counted as sent.
    pub fn claim(&mut self) -> bool {
        let open = self.remaining > 0
            && self.now_ns < self.deadline_ns
            && self.failed_connects < self.failed_connects_max
            && !self.controls.stop.load(Ordering::Relaxed);
        self.remaining -= u64::from(open);
        open
    }

    /// A claimed request was not sent, for there is no connection.
    pub fn connect_failed(&mut self, failure: &Failure) {
        self.remaining += 1;
        self.failed_connects += 1;
        self.now_ns = clock::monotonic_ns();
        self.result.errors.add(failure, self.now_ns);
    }

    /// A connection that had been closed was opened again.
    pub fn reconnected(&mut self) {
        self.failed_connects = 0;
        self.result.totals.reconnects += 1;
    }

    pub fn count_bytes(&mut self, bytes_out: u64, bytes_in: u64) {
        self.result.bytes_out += bytes_out;
        self.result.bytes_in += bytes_in;
    }

    /// A request was answered, rightly or wrongly.
    pub fn answered(&mut self, sample: Sample, verdict: Result<(), Failure>) {
        self.ended(sample.send_ns, sample.done_ns);
        if !matches!(self.sampling, Sampling::Off) {
            self.result.samples.push(sample);
            if self.result.samples.len() >= PORTION {
                self.send_samples();
            }
        }
        match verdict {
            Ok(()) => self.result.totals.requests += 1,
            Err(failure) => self.result.errors.add(&failure, sample.done_ns),
        }
        self.answered += 1;
        // One writer: a plain store is enough, and a locked addition per request is not free.
        self.controls.progress.store(self.answered, Ordering::Relaxed);
    }

    /// A request was not answered.
    pub fn failed(&mut self, send_ns: u64, failure: &Failure) {
        let now_ns = clock::monotonic_ns();
        if let Failure::Timeout { .. } = failure {
            self.ended(send_ns, now_ns);
        }
        self.now_ns = now_ns;
        self.result.errors.add(failure, now_ns);
    }

    fn ended(&mut self, send_ns: u64, done_ns: u64) {
        self.now_ns = done_ns;
        self.result.latency.saturating_record(done_ns - send_ns);
    }

    /// Sends what was gathered, when samples are sent and not kept.
    fn send_samples(&mut self) {
        if let Sampling::Send(sender) = &self.sampling {
            // Whoever wanted them may be gone: then nobody misses them.
            let _ = sender.send(std::mem::take(&mut self.result.samples));
        }
    }

    pub fn close(mut self) -> LoadResult {
        self.send_samples();
        let mut result = self.result;
        result.ended_ns = clock::monotonic_ns();
        let totals = &mut result.totals;
        totals.errors = result.errors.total();
        totals.first_error = result.errors.first_of_all().map(|first| first.words.clone());
        totals.elapsed_ns = result.ended_ns - result.started_ns;
        totals.client_cpu_ns = clock::thread_cpu_ns() - self.started_cpu_ns;
        totals.latency = percentiles(&result.latency);
        result
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(stop: Stop, sampling: Sampling, controls: Controls) -> Window {
        Window::open(stop, sampling, 1, controls)
    }

    #[test]
    fn a_window_lets_through_what_was_asked_and_no_more() {
        let controls = Controls::default();
        let mut open = window(Stop::Count(2), Sampling::Off, controls.clone());
        assert!(open.claim() && open.claim() && !open.claim());
        open.connect_failed(&Failure::Closed);
        assert!(open.claim(), "a request that was not sent may be sent again");

        controls.stop.store(true, Ordering::Relaxed);
        assert!(!window(Stop::Count(2), Sampling::Off, controls).claim());
        assert!(!window(Stop::After(Duration::ZERO), Sampling::Off, Controls::default()).claim());
    }

    #[test]
    fn samples_that_are_sent_are_not_kept() {
        let (sender, samples) = mpsc::channel();
        let mut open = window(Stop::Count(3_000), Sampling::Send(sender), Controls::default());
        for done_ns in 1..=3_000 {
            open.answered(Sample { remote_port: 1, send_ns: 0, done_ns }, Ok(()));
        }
        assert!(open.close().samples.is_empty());
        let portions: Vec<Vec<Sample>> = samples.iter().collect();
        assert!(portions.iter().all(|portion| portion.len() <= PORTION));
        let done: Vec<u64> = portions.concat().iter().map(|sample| sample.done_ns).collect();
        assert!(done.into_iter().eq(1..=3_000));
    }
}

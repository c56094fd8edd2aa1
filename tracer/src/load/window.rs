//! A run on one thread while it goes on: says whether another request may be sent, and takes in what became of each.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};

use super::clock;
use super::errors::Failure;
use super::mix::Mix;
use super::pace::Schedule;
use super::plan::Plan;
use super::request::Numbers;
use super::result::{ClientRecord, Counts, LoadResult, Sample, Tick, WorkerResult};

/// Attempts to open a connection that may fail in a row, per connection, before the run is given up.
const CONNECT_ATTEMPTS: u64 = 3;
/// Samples sent at once.
const PORTION: usize = 1_024;
/// Requests a thread takes from those of all threads at once, at most.
const BLOCK: u64 = 64;

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
    Send(mpsc::Sender<ClientRecord>),
}

/// A run as all threads are asked for it.
#[derive(Clone, Debug)]
pub(super) struct Order {
    /// Requests that no thread has taken yet.
    pub remaining: Arc<AtomicU64>,
    /// How long requests are sent.
    pub length_ns: u64,
    pub sampling: Sampling,
    pub ticks: Option<mpsc::Sender<Tick>>,
    /// Where the result goes, with the thread's number.
    pub reply: mpsc::Sender<(usize, LoadResult)>,
}

/// Which of the driver's threads this is.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub thread: usize,
    pub threads: usize,
    pub core: Option<usize>,
    pub connections: usize,
}

/// Whether a request may be sent.
pub(super) enum Claim {
    /// Yes, and it counts as sent.
    Send(Claimed),
    /// None is due: wait for a turn.
    NotYet,
    /// No more in this run.
    Over,
}

/// A request to be sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claimed {
    pub route: usize,
    /// When it was due, at a constant rate.
    pub due_ns: Option<u64>,
}

/// How a request was answered.
pub(super) struct Answered {
    pub claimed: Claimed,
    pub sample: Sample,
    /// Its connection had carried a request before.
    pub reuses: bool,
    /// It came before all of the request was written.
    pub is_early: bool,
    pub verdict: Result<(), Failure>,
}

/// One thread's share of a run.
pub(super) struct Window {
    result: LoadResult,
    controls: Controls,
    order: Order,
    start_ns: u64,
    /// No request is sent from here on.
    deadline_ns: u64,
    /// Requests taken from those of all threads and not sent yet.
    taken: u64,
    block: u64,
    mix: Mix,
    pub numbers: Numbers,
    pub schedule: Option<Schedule>,
    started_cpu: CpuTimes,
    /// Requests sent and not ended.
    in_flight: u64,
    /// Requests answered, right or wrong.
    answered: u64,
    failed_connects: u64,
    failed_connects_max: u64,
    /// Several routes: each has figures of its own.
    tells_routes_apart: bool,
    /// No other thread takes part.
    is_alone: bool,
    last_send_ns: u64,
}

#[derive(Clone, Copy, Default)]
struct CpuTimes {
    cpu_ns: u64,
    run_delay_ns: u64,
}

impl CpuTimes {
    fn now() -> Self {
        Self { cpu_ns: clock::thread_cpu_ns(), run_delay_ns: clock::thread_run_delay_ns() }
    }
}

impl Window {
    pub fn open(plan: &Plan, place: &Place, order: Order, controls: Controls) -> Self {
        let weights: Vec<u32> = plan.routes.iter().map(|route| route.weight).collect();
        let share = order.remaining.load(Ordering::Relaxed) / (100 * place.threads as u64);
        let started_cpu = CpuTimes::now();
        let start_ns = clock::monotonic_ns();
        let schedule = plan.rate.map(|rate| Schedule::new(rate, start_ns, place.thread, place.threads));
        let mut result = LoadResult::begun(plan, place.connections, start_ns);
        result.workers.push(WorkerResult {
            thread_id: clock::thread_id(),
            core: place.core,
            connections: place.connections,
            cpu_ns: 0,
            run_delay_ns: 0,
            elapsed_ns: 0,
        });
        Self {
            result,
            controls,
            taken: 0,
            block: share.clamp(1, BLOCK),
            mix: Mix::new(&weights),
            numbers: Numbers::new(place.thread, place.threads),
            schedule,
            started_cpu,
            in_flight: 0,
            answered: 0,
            failed_connects: 0,
            failed_connects_max: CONNECT_ATTEMPTS * place.connections as u64,
            tells_routes_apart: plan.routes.len() > 1,
            is_alone: place.threads == 1,
            last_send_ns: start_ns,
            start_ns,
            deadline_ns: start_ns.saturating_add(order.length_ns),
            order,
        }
    }

    /// Whether one more request may be sent now.
    pub fn claim(&mut self, now_ns: u64) -> Claim {
        if now_ns >= self.deadline_ns
            || self.failed_connects >= self.failed_connects_max
            || self.controls.stop.load(Ordering::Relaxed)
        {
            return Claim::Over;
        }
        let due_ns = self.schedule.as_ref().map(|schedule| schedule.due_ns(0));
        if due_ns.is_some_and(|due_ns| now_ns < due_ns && due_ns < self.deadline_ns) && self.has_left() {
            return Claim::NotYet;
        }
        if due_ns.is_some_and(|due_ns| now_ns < due_ns) || !self.take() {
            return Claim::Over;
        }
        if let Some(schedule) = &mut self.schedule {
            schedule.take();
        }
        self.in_flight += 1;
        Claim::Send(Claimed { route: self.mix.next(), due_ns })
    }

    /// Takes one request of those that all threads have to send; `false` when there is none left.
    fn take(&mut self) -> bool {
        if self.taken == 0 {
            let left = self.order.remaining.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                (left > 0).then(|| left - self.block.min(left))
            });
            let Ok(left) = left else { return false };
            self.taken = self.block.min(left);
        }
        self.taken -= 1;
        true
    }

    /// When the request after `ahead` others is due; `None` when there is no more to send.
    pub fn due_ns(&self, ahead: u64) -> Option<u64> {
        let schedule = self.schedule.as_ref().filter(|_| self.has_left() && !self.is_stopped())?;
        Some(schedule.due_ns(ahead))
    }

    fn has_left(&self) -> bool {
        self.taken > 0 || self.order.remaining.load(Ordering::Relaxed) > 0
    }

    /// The caller asked for an end.
    pub fn is_stopped(&self) -> bool {
        self.controls.stop.load(Ordering::Relaxed)
    }

    pub fn start_ns(&self) -> u64 {
        self.start_ns
    }

    pub fn deadline_ns(&self) -> u64 {
        self.deadline_ns
    }

    /// Claimed requests were not sent, for there is no connection.
    pub fn connect_failed(&mut self, failure: &Failure, claimed: u64) {
        self.taken += claimed;
        self.in_flight -= claimed;
        self.failed_connects += 1;
        self.result.errors.add(failure, clock::monotonic_ns());
    }

    /// A connection was opened.
    pub fn connected(&mut self, took_ns: u64, replaces_closed: bool) {
        self.failed_connects = 0;
        self.result.connect.saturating_record(took_ns);
        self.result.totals.reconnects += u64::from(replaces_closed);
    }

    /// A connection will carry requests of this run: those of other clients are not among its.
    pub fn carried_by(&self, remote_port: u16, opened_ns: u64) {
        if let Sampling::Send(sender) = &self.order.sampling {
            // As with samples.
            let _ = sender.send(ClientRecord::Opened { remote_port, at_ns: opened_ns });
        }
    }

    pub fn wrote(&mut self, bytes: u64) {
        self.result.bytes_out += bytes;
    }

    pub fn read(&mut self, bytes: u64) {
        self.result.bytes_in += bytes;
    }

    /// A request goes out. `free_ns`: since when its connection could have carried it.
    pub fn sent(&mut self, claimed: Claimed, free_ns: u64, send_ns: u64) {
        self.last_send_ns = send_ns;
        if let (Some(paced), Some(due_ns)) = (&mut self.result.paced, claimed.due_ns) {
            paced.delayed += u64::from(free_ns > due_ns);
            paced.send_lag.saturating_record(send_ns.saturating_sub(due_ns.max(free_ns)));
        }
    }

    /// A request was answered, rightly or wrongly.
    pub fn answered(&mut self, answered: Answered) {
        let Answered { claimed, sample, reuses, is_early, verdict } = answered;
        self.result.reused += u64::from(reuses);
        self.result.answered_early += u64::from(is_early);
        self.ended(claimed, sample.send_ns, sample.done_ns);
        if !matches!(self.order.sampling, Sampling::Off) {
            self.result.samples.push(sample);
            if self.result.samples.len() >= PORTION {
                self.send_samples();
            }
        }
        match verdict {
            Ok(()) => {
                self.result.totals.requests += 1;
                self.result.routes[claimed.route].requests += 1;
            }
            Err(failure) => self.erred(claimed, &failure, sample.done_ns),
        }
        self.in_flight -= 1;
        self.answered += 1;
        if self.is_alone {
            // One writer: a plain store is enough, and a locked addition per request is not free.
            self.controls.progress.store(self.answered, Ordering::Relaxed);
        } else {
            self.controls.progress.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A request was not answered.
    pub fn failed(&mut self, claimed: Claimed, send_ns: u64, failure: &Failure) {
        let now_ns = clock::monotonic_ns();
        if let Failure::Timeout { .. } = failure {
            self.ended(claimed, send_ns, now_ns);
        }
        self.in_flight -= 1;
        self.erred(claimed, failure, now_ns);
    }

    /// The client gave up on a request on purpose.
    pub fn aborted(&mut self) {
        self.in_flight -= 1;
        self.result.aborted += 1;
    }

    fn erred(&mut self, claimed: Claimed, failure: &Failure, now_ns: u64) {
        self.result.errors.add(failure, now_ns);
        self.result.routes[claimed.route].errors += 1;
    }

    fn ended(&mut self, claimed: Claimed, send_ns: u64, done_ns: u64) {
        let result = &mut self.result;
        result.latency.saturating_record(done_ns - send_ns);
        let mut told_ns = done_ns - send_ns;
        if let (Some(paced), Some(due_ns)) = (&mut result.paced, claimed.due_ns) {
            told_ns = done_ns.saturating_sub(due_ns);
            paced.response.saturating_record(told_ns);
        }
        if self.tells_routes_apart {
            result.routes[claimed.route].latency.saturating_record(told_ns);
        }
    }

    /// Sends what was gathered, when samples are sent and not kept.
    fn send_samples(&mut self) {
        if let Sampling::Send(sender) = &self.order.sampling {
            // Whoever wanted them may be gone: then nobody misses them.
            let _ = sender.send(ClientRecord::Answered(std::mem::take(&mut self.result.samples)));
        }
    }

    /// The figures so far, to whoever wants them each second.
    pub fn tick(&self, second: u64) {
        let Some(ticks) = &self.order.ticks else { return };
        let result = &self.result;
        let counts = Counts {
            requests: result.totals.requests,
            errors: result.errors.total(),
            bytes_out: result.bytes_out,
            bytes_in: result.bytes_in,
        };
        let latency = result.paced.as_ref().map_or(&result.latency, |paced| &paced.response).clone();
        // As with samples.
        let _ = ticks.send(Tick { second, counts, latency });
    }

    pub fn close(mut self) -> LoadResult {
        self.send_samples();
        let mut result = self.result;
        result.ended_ns = clock::monotonic_ns();
        result.abandoned = self.in_flight;
        if let (Some(paced), Some(schedule)) = (&mut result.paced, &self.schedule) {
            let is_through = result.ended_ns >= self.deadline_ns;
            // What nobody wanted to send any more was not asked for.
            paced.asked = schedule.asked(if is_through { self.deadline_ns } else { self.last_send_ns + 1 });
        }
        let used = CpuTimes::now();
        for worker in &mut result.workers {
            worker.cpu_ns = used.cpu_ns - self.started_cpu.cpu_ns;
            worker.run_delay_ns = used.run_delay_ns.saturating_sub(self.started_cpu.run_delay_ns);
            worker.elapsed_ns = result.ended_ns - result.started_ns;
            result.totals.client_cpu_ns += worker.cpu_ns;
        }
        // The latency of the only route is that of all.
        if let ([route], false) = (&mut result.routes[..], self.tells_routes_apart) {
            route.latency = result.paced.as_ref().map_or(&result.latency, |paced| &paced.response).clone();
        }
        result.complete();
        result
    }
}

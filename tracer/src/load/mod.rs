//! The load driver: raw HTTP/1.1 connections on one thread per core, as a closed loop or at a constant rate.
//!
//! A [`Driver`] opens its connections once and keeps them from run to run, so that a warm-up ends with the very
//! connections that are measured. Every response's status, framing and body are checked.

mod body;
mod clock;
mod connection;
mod errors;
mod files;
mod framing;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
#[cfg(test)]
mod hyper_tests;
mod mix;
mod pace;
mod plan;
pub mod report;
mod request;
mod result;
mod server;
mod socket;
#[cfg(test)]
mod tests;
mod text;
mod url;
mod window;
mod worker;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, anyhow, ensure};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

pub use self::clock::monotonic_ns;
pub use self::errors::{ErrorClass, ErrorCounts, FirstError};
pub use self::files::Files;
pub use self::plan::{Abort, Endpoint, Expectation, ExpectedBody, Pacing, Plan, Route};
pub use self::result::{
    ClientRecord, Counts, LoadResult, Paced, RouteResult, Sample, Second, Seconds, Tick, WorkerResult,
};
pub use self::server::{ServerUse, ServerWatch};
pub use self::text::text;
pub use self::url::Url;
use self::window::{Controls, Order, Place, Sampling};
use self::worker::Worker;

/// Files a process has open besides the connections: more than enough.
const OTHER_FILES: u64 = 64;

/// When a run stops sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// After exactly so many requests over all connections.
    Count(u64),
    /// After so long.
    After(Duration),
}

/// The driver: its threads with their connections. Dropping it closes them.
pub struct Driver {
    workers: Vec<Handle>,
    controls: Controls,
}

/// One of the driver's threads.
struct Handle {
    /// `None` only while being dropped: the closed channel ends the thread.
    orders: Option<UnboundedSender<Order>>,
    thread: Option<thread::JoinHandle<()>>,
    thread_id: u32,
}

impl Driver {
    /// Starts the driver's threads and opens all connections.
    pub fn start(plan: Plan) -> anyhow::Result<Self> {
        let requests = plan.requests()?;
        allow_open_files(plan.connections as u64 + OTHER_FILES)?;
        let controls = Controls::default();
        let threads = plan.threads();
        let mut workers = Vec::new();
        for thread in 0..threads {
            let place = Place {
                thread,
                threads,
                core: plan.cores.get(thread).copied(),
                connections: plan.connections_of(thread),
            };
            let (plan, requests, controls) = (plan.clone(), requests.clone(), controls.clone());
            workers.push(Handle::start(Worker { plan, requests, place, controls })?);
        }
        Ok(Self { workers, controls })
    }

    /// Sends requests until `stop`, waits for the last answers, and leaves the connections open for the next run.
    pub fn run(&mut self, stop: Stop) -> anyhow::Result<LoadResult> {
        self.order(stop, Sampling::Off, None)
    }

    /// Like [`run`](Self::run), and keeps every request's times.
    pub fn run_keeping_samples(&mut self, stop: Stop) -> anyhow::Result<LoadResult> {
        self.order(stop, Sampling::Keep, None)
    }

    /// Like [`run`](Self::run), and tells of its connections, and of every request's times in portions as they come:
    /// memory does not grow with the number of requests.
    pub fn run_sending_samples(
        &mut self,
        stop: Stop,
        samples: mpsc::Sender<ClientRecord>,
    ) -> anyhow::Result<LoadResult> {
        self.order(stop, Sampling::Send(samples), None)
    }

    /// Like [`run`](Self::run), and sends the figures of every thread each second; [`Seconds`] puts them together.
    pub fn run_ticking(&mut self, stop: Stop, ticks: mpsc::Sender<Tick>) -> anyhow::Result<LoadResult> {
        self.order(stop, Sampling::Off, Some(ticks))
    }

    /// Once set, a run sends no more and returns what it has, and no other run begins. What is not answered within a
    /// second is abandoned.
    pub fn stop_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.controls.stop)
    }

    /// Requests answered so far in the run that goes on.
    pub fn progress(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.controls.progress)
    }

    /// Threads it sends from.
    pub fn threads(&self) -> usize {
        self.workers.len()
    }

    /// The kernel's ids of the driver's threads.
    pub fn thread_ids(&self) -> Vec<u32> {
        self.workers.iter().map(|worker| worker.thread_id).collect()
    }

    fn order(
        &mut self,
        stop: Stop,
        sampling: Sampling,
        ticks: Option<mpsc::Sender<Tick>>,
    ) -> anyhow::Result<LoadResult> {
        self.controls.progress.store(0, Ordering::Relaxed);
        let (remaining, length_ns) = match stop {
            Stop::Count(count) => (count, u64::MAX),
            Stop::After(duration) => (u64::MAX, u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)),
        };
        let (reply, results) = mpsc::channel();
        let remaining = Arc::new(AtomicU64::new(remaining));
        let order = Order { remaining, length_ns, sampling, ticks, reply };
        for worker in &self.workers {
            let orders = worker.orders.as_ref().ok_or_else(gone)?;
            orders.send(order.clone()).map_err(|_| gone())?;
        }
        drop(order);
        let mut results: Vec<_> = results.iter().collect();
        if results.len() < self.workers.len() {
            return Err(gone());
        }
        results.sort_by_key(|(thread, _)| *thread);
        let mut results = results.into_iter().map(|(_, result)| result);
        let mut all = results.next().ok_or_else(gone)?;
        results.for_each(|result| all.merge(result));
        Ok(all)
    }
}

fn gone() -> anyhow::Error {
    anyhow!("a thread of the load driver is gone: its panic is printed above, please report it")
}

impl Handle {
    fn start(worker: Worker) -> anyhow::Result<Self> {
        let (orders, inbox) = unbounded_channel();
        let (ready_sender, ready) = mpsc::channel();
        let thread = thread::Builder::new()
            .name(String::from("tracer-load"))
            .spawn(move || worker.serve(inbox, &ready_sender))
            .context("cannot start the load driver's thread")?;
        let thread_id = ready.recv().context("the load driver's thread ended before it was ready")??;
        Ok(Self { orders: Some(orders), thread: Some(thread), thread_id })
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            // An error is a panic of the thread, which has been printed.
            let _ = thread.join();
        }
    }
}

/// Raises this process's own limit of open files when it is too low for the connections.
fn allow_open_files(wanted: u64) -> anyhow::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= wanted) {
        return Ok(());
    }
    ensure!(
        limit.maximum.is_none_or(|maximum| maximum >= wanted),
        "so many connections need {wanted} open files, but this process may have only {}: raise the limit with `ulimit -Hn {wanted}`, or use fewer connections",
        limit.maximum.unwrap_or_default()
    );
    setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), ..limit })
        .context("cannot raise the limit of open files for so many connections")
}

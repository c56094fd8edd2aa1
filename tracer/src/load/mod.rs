//! The keep-alive load driver: a closed loop over raw HTTP/1.1 connections, on one thread and one core.
//!
//! A [`Driver`] opens its connections once and keeps them from run to run, so that a warm-up ends with the very
//! connections that are measured. Every response's status, framing and body are checked.

mod clock;
mod connection;
mod errors;
mod framing;
mod plan;
mod result;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, anyhow};
use rustix::thread::{CpuSet, sched_setaffinity};
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

pub use self::clock::monotonic_ns;
use self::connection::{Connection, Job};
pub use self::errors::{ErrorClass, ErrorCounts, FirstError};
pub use self::plan::{Expectation, Plan};
use self::result::{Controls, Sampling, Window};
pub use self::result::{LoadResult, Sample};

/// When a run stops sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// After exactly so many requests over all connections.
    Count(u64),
    /// After so long.
    After(Duration),
}

/// The driver: a thread with its connections. Dropping it closes them.
pub struct Driver {
    /// `None` only while being dropped: the closed channel ends the thread.
    orders: Option<UnboundedSender<Order>>,
    thread: Option<thread::JoinHandle<()>>,
    controls: Controls,
    thread_id: u32,
}

/// One run, as the driver's thread is asked for it.
struct Order {
    stop: Stop,
    sampling: Sampling,
    reply: mpsc::Sender<LoadResult>,
}

impl Driver {
    /// Starts the driver's thread and opens all connections.
    pub fn start(plan: Plan) -> anyhow::Result<Self> {
        let job = Job { request: plan.request_bytes()?, plan };
        let controls = Controls::default();
        let (orders, inbox) = unbounded_channel();
        let (ready_sender, ready) = mpsc::channel();
        let of_thread = controls.clone();
        let thread = thread::Builder::new()
            .name(String::from("tracer-load"))
            .spawn(move || serve(job, of_thread, inbox, &ready_sender))
            .context("cannot start the load driver's thread")?;
        let thread_id = ready.recv().context("the load driver's thread ended before it was ready")??;
        Ok(Self { orders: Some(orders), thread: Some(thread), controls, thread_id })
    }

    /// Sends requests until `stop`, waits for the last answers, and leaves the connections open for the next run.
    pub fn run(&mut self, stop: Stop) -> anyhow::Result<LoadResult> {
        self.order(stop, Sampling::Off)
    }

    /// Like [`run`](Self::run), and keeps every request's times.
    pub fn run_keeping_samples(&mut self, stop: Stop) -> anyhow::Result<LoadResult> {
        self.order(stop, Sampling::Keep)
    }

    /// Like [`run`](Self::run), and sends every request's times in portions as they come, in the order of completion:
    /// memory does not grow with the number of requests.
    pub fn run_sending_samples(
        &mut self,
        stop: Stop,
        samples: mpsc::Sender<Vec<Sample>>,
    ) -> anyhow::Result<LoadResult> {
        self.order(stop, Sampling::Send(samples))
    }

    /// Once set, a run sends no more and returns what it has, and no other run begins.
    pub fn stop_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.controls.stop)
    }

    /// Requests answered so far in the run that goes on.
    pub fn progress(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.controls.progress)
    }

    /// The kernel's id of the driver's thread.
    pub fn thread_id(&self) -> u32 {
        self.thread_id
    }

    fn order(&mut self, stop: Stop, sampling: Sampling) -> anyhow::Result<LoadResult> {
        let (reply, result) = mpsc::channel();
        let gone =
            || anyhow!("the load driver's thread is gone: its panic is printed above, please report it");
        let orders = self.orders.as_ref().ok_or_else(gone)?;
        orders.send(Order { stop, sampling, reply }).map_err(|_| gone())?;
        result.recv().map_err(|_| gone())
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            // An error is a panic of the thread, which has been printed.
            let _ = thread.join();
        }
    }
}

/// The driver's thread: gets ready, says so or why not, and works off orders until there are none to come.
fn serve(
    job: Job,
    controls: Controls,
    mut inbox: UnboundedReceiver<Order>,
    ready: &mpsc::Sender<anyhow::Result<u32>>,
) {
    let prepared = pin(job.plan.core).and_then(|()| {
        Builder::new_current_thread()
            .enable_all()
            .build_local(LocalOptions::default())
            .context("cannot start the load driver's event loop")
    });
    let runtime = match prepared {
        Ok(runtime) => runtime,
        Err(error) => return drop(ready.send(Err(error))),
    };
    runtime.block_on(async {
        let mut connections = match open(Rc::new(job)).await {
            Ok(connections) => connections,
            Err(error) => return drop(ready.send(Err(error))),
        };
        // Whoever waits for a reply may have gone: then the channel of orders closes as well.
        let _ = ready.send(Ok(clock::thread_id()));
        while let Some(order) = inbox.recv().await {
            let result;
            (connections, result) = run(connections, &order, controls.clone()).await;
            let _ = order.reply.send(result);
        }
    });
}

fn pin(core: Option<usize>) -> anyhow::Result<()> {
    let Some(core) = core else { return Ok(()) };
    let impossible =
        || format!("cannot pin the load driver to CPU {core}: choose one that this process may run on");
    if core >= CpuSet::MAX_CPU {
        return Err(anyhow!(impossible()));
    }
    let mut cores = CpuSet::new();
    cores.set(core);
    sched_setaffinity(None, &cores).with_context(impossible)
}

async fn open(job: Rc<Job>) -> anyhow::Result<Vec<Connection>> {
    let count = job.plan.connections;
    let mut connections = Vec::with_capacity(count);
    for number in 1..=count {
        let connection = Connection::open(Rc::clone(&job)).await.with_context(|| {
            format!(
                "opening connection {number} of {count} failed, so there is no load: is the server listening?"
            )
        })?;
        connections.push(connection);
    }
    Ok(connections)
}

/// One run over the connections: each in a task of its own, all on this thread.
async fn run(
    connections: Vec<Connection>,
    order: &Order,
    controls: Controls,
) -> (Vec<Connection>, LoadResult) {
    let window = Window::open(order.stop, order.sampling.clone(), connections.len(), controls);
    let window = Rc::new(RefCell::new(window));
    let mut tasks = JoinSet::new();
    for connection in connections {
        tasks.spawn_local(connection.drive(Rc::clone(&window)));
    }
    let connections = tasks.join_all().await;
    let window = Rc::into_inner(window).expect("every task gave its share back").into_inner();
    (connections, window.close())
}

//! One of the driver's threads, with its share of the connections.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use rustix::thread::{CpuSet, sched_setaffinity};
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval_at, sleep};

use super::clock::{monotonic_ns, thread_id};
use super::connection::{Connection, Job};
use super::pace::{Timer, Turns, pace};
use super::plan::Plan;
use super::request::Request;
use super::result::LoadResult;
use super::window::{Controls, Order, Place, Window};

/// Between two looks at whether the caller wants an end.
const STOP_PAUSE: Duration = Duration::from_millis(50);
/// For responses that are still to come once the caller wants an end.
const STOP_PATIENCE: Duration = Duration::from_secs(1);

/// What the connections of a thread share in one run.
pub(super) struct Run {
    pub window: RefCell<Window>,
    pub turns: Turns,
}

/// A thread that is to be.
pub(super) struct Worker {
    pub plan: Plan,
    pub requests: Vec<Request>,
    pub place: Place,
    pub controls: Controls,
}

impl Worker {
    /// The thread: gets ready, says so or why not, and works off orders until there are none to come.
    pub fn serve(self, mut inbox: UnboundedReceiver<Order>, ready: &mpsc::Sender<anyhow::Result<u32>>) {
        let prepared = pin(self.place.core).and_then(|()| {
            Builder::new_current_thread()
                .enable_all()
                .build_local(LocalOptions::default())
                .context("cannot start the load driver's event loop")
        });
        let runtime = match prepared {
            Ok(runtime) => runtime,
            Err(error) => return drop(ready.send(Err(error))),
        };
        let Self { plan, requests, place, controls } = self;
        runtime.block_on(async {
            let job = Rc::new(Job { plan, requests: requests.into() });
            let prepared = async { anyhow::Ok((open(&job, &place).await?, Timer::new()?)) };
            let (mut connections, timer) = match prepared.await {
                Ok(prepared) => prepared,
                Err(error) => return drop(ready.send(Err(error))),
            };
            let timer = Rc::new(timer);
            // Whoever waits for a reply may have gone: then the channel of orders closes as well.
            let _ = ready.send(Ok(thread_id()));
            while let Some(order) = inbox.recv().await {
                let reply = order.reply.clone();
                let window = Window::open(&job.plan, &place, order, controls.clone());
                let result;
                (connections, result) = run(connections, window, &timer).await;
                let _ = reply.send((place.thread, result));
            }
        });
    }
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

async fn open(job: &Rc<Job>, place: &Place) -> anyhow::Result<Vec<Connection>> {
    let count = place.connections;
    let mut connections = Vec::with_capacity(count);
    for number in 1..=count {
        let connection = Connection::open(Rc::clone(job)).await.with_context(|| {
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
    window: Window,
    timer: &Rc<Timer>,
) -> (Vec<Connection>, LoadResult) {
    let run = Rc::new(Run { window: RefCell::new(window), turns: Turns::default() });
    let mut tasks = JoinSet::new();
    for connection in connections {
        tasks.spawn_local(connection.drive(Rc::clone(&run)));
    }
    let mut helpers = JoinSet::new();
    helpers.spawn_local(tick(Rc::clone(&run)));
    if run.window.borrow().schedule.is_some() {
        helpers.spawn_local(keep_pace(Rc::clone(&run), Rc::clone(timer)));
    }
    let mut connections = Vec::new();
    let all = async {
        while let Some(connection) = tasks.join_next().await {
            connections.push(connection.expect("a connection's task neither panics nor is aborted"));
        }
    };
    tokio::select! {
        () = all => {}
        // What has not been answered by then is counted as abandoned.
        () = given_up(&run) => {}
    }
    tasks.shutdown().await;
    helpers.shutdown().await;
    let run = Rc::into_inner(run).expect("every task gave its share back");
    (connections, run.window.into_inner().close())
}

/// Sends the figures of every whole second.
async fn tick(run: Rc<Run>) {
    let passed = Duration::from_nanos(monotonic_ns().saturating_sub(run.window.borrow().start_ns()));
    let second = Duration::from_secs(1);
    let mut seconds = interval_at(Instant::now() + second.saturating_sub(passed), second);
    for number in 1.. {
        seconds.tick().await;
        run.window.borrow().tick(number);
    }
}

async fn keep_pace(run: Rc<Run>, timer: Rc<Timer>) {
    let deadline_ns = run.window.borrow().deadline_ns();
    let due_ns = |ahead| run.window.borrow().due_ns(ahead);
    if let Err(error) = pace(&run.turns, &timer, deadline_ns, due_ns).await {
        // Without its timer there is no constant rate: the run ends, and its shortfall shows in what was asked.
        eprintln!("tracer: {error:#}");
        run.turns.end();
    }
}

/// Waits until the caller has wanted an end for so long that what is still in flight is not waited for.
async fn given_up(run: &Run) {
    while !run.window.borrow().is_stopped() {
        sleep(STOP_PAUSE).await;
    }
    run.turns.end();
    sleep(STOP_PATIENCE).await;
}

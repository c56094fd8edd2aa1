//! Constant rate: when each request is due, and which idle connection sends it.
//!
//! A request's time does not depend on the answers: it is start + k / rate. Connections that find nothing due wait in a
//! queue; the pacer wakes the first of them when something is. A timerfd wakes the pacer, for the event loop's own timers
//! know only milliseconds.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::task::{Poll, Waker};

use anyhow::Context;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;

use super::clock::monotonic_ns;

/// The times of one thread's requests. With several threads each sends every n-th.
#[derive(Debug)]
pub(super) struct Schedule {
    start_ns: u64,
    /// Between two requests of this thread.
    period_ns: f64,
    /// Requests taken so far.
    taken: u64,
}

impl Schedule {
    /// `rate` is that of all threads together, per second.
    pub fn new(rate: f64, start_ns: u64, thread: usize, threads: usize) -> Self {
        let of_all_ns = 1e9 / rate;
        Self {
            start_ns: start_ns + (of_all_ns * thread as f64) as u64,
            period_ns: of_all_ns * threads as f64,
            taken: 0,
        }
    }

    /// When the request after `ahead` others is due.
    pub fn due_ns(&self, ahead: u64) -> u64 {
        self.start_ns.saturating_add(((self.taken + ahead) as f64 * self.period_ns) as u64)
    }

    pub fn take(&mut self) {
        self.taken += 1;
    }

    /// Requests due before `end_ns`.
    pub fn asked(&self, end_ns: u64) -> u64 {
        (end_ns.saturating_sub(self.start_ns) as f64 / self.period_ns).ceil() as u64
    }
}

/// The idle connections of one thread, longest idle first.
#[derive(Debug, Default)]
pub(super) struct Turns {
    queue: RefCell<Queue>,
    /// The queue is no longer empty.
    joined: Notify,
}

#[derive(Debug, Default)]
struct Queue {
    /// Who waits, each with the waker of its task.
    waiting: VecDeque<Rc<Turn>>,
    /// Turns given and not yet used.
    given: u64,
    /// Nobody waits any more.
    is_over: bool,
}

/// A place in the queue.
#[derive(Debug, Default)]
struct Turn {
    waker: RefCell<Option<Waker>>,
    is_given: Cell<bool>,
}

impl Turns {
    /// Waits for a turn.
    pub async fn wait(&self) {
        let turn = {
            let mut queue = self.queue.borrow_mut();
            if queue.is_over {
                return;
            }
            let turn = Rc::new(Turn::default());
            queue.waiting.push_back(Rc::clone(&turn));
            turn
        };
        self.joined.notify_one();
        poll_fn(|context| {
            if turn.is_given.get() {
                return Poll::Ready(());
            }
            turn.waker.replace(Some(context.waker().clone()));
            Poll::Pending
        })
        .await;
        let mut queue = self.queue.borrow_mut();
        queue.given = queue.given.saturating_sub(1);
    }

    /// Ends all waiting, now and later.
    pub fn end(&self) {
        let mut queue = self.queue.borrow_mut();
        queue.is_over = true;
        while queue.give() {}
        self.joined.notify_one();
    }
}

impl Queue {
    /// Gives the first in the queue its turn; `false` when there is none.
    fn give(&mut self) -> bool {
        let Some(turn) = self.waiting.pop_front() else { return false };
        self.given += 1;
        turn.is_given.set(true);
        if let Some(waker) = turn.waker.take() {
            waker.wake();
        }
        true
    }
}

/// Wakes an idle connection whenever a request is due, until `deadline_ns`. `due_ns(n)` says when the n-th request from
/// now is due; `None`: never.
pub(super) async fn pace(
    turns: &Turns,
    timer: &Timer,
    deadline_ns: u64,
    due_ns: impl Fn(u64) -> Option<u64>,
) -> anyhow::Result<()> {
    loop {
        let now_ns = monotonic_ns();
        let next_ns = loop {
            let mut queue = turns.queue.borrow_mut();
            match due_ns(queue.given) {
                _ if queue.is_over => return Ok(()),
                Some(due_ns) if due_ns < deadline_ns && now_ns < deadline_ns => {
                    if due_ns > now_ns {
                        break Some(due_ns);
                    }
                    if !queue.give() {
                        break None;
                    }
                }
                // Nothing is sent after the deadline, so what is due then is only its end.
                Some(_) if now_ns < deadline_ns => break Some(deadline_ns),
                _ => {
                    drop(queue);
                    turns.end();
                    return Ok(());
                }
            }
        };
        match next_ns {
            Some(next_ns) => timer.until(next_ns).await?,
            // Every connection is busy. The first to find nothing due tells.
            None => turns.joined.notified().await,
        }
    }
}

/// A timer as exact as the kernel's own.
pub(super) struct Timer(AsyncFd<OwnedFd>);

impl Timer {
    pub fn new() -> anyhow::Result<Self> {
        let fd = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC);
        let fd = fd.context("cannot make a timer for the constant rate")?;
        // SAFETY: an `OwnedFd` stays the same open file for as long as it lives, and nobody else has this one.
        let fd = unsafe { AsyncFd::register(fd) };
        Ok(Self(fd.context("cannot wait for the timer of the constant rate")?))
    }

    /// Waits until then.
    pub async fn until(&self, at_ns: u64) -> anyhow::Result<()> {
        let at = Timespec { tv_sec: (at_ns / 1_000_000_000) as i64, tv_nsec: (at_ns % 1_000_000_000) as i64 };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: at };
        timerfd_settime(self.0.get_ref(), TimerfdTimerFlags::ABSTIME, &once)
            .context("cannot set the timer of the constant rate")?;
        // Setting it anew takes back an earlier expiry, so it need not be read.
        let mut guard = self.0.readable().await.context("cannot wait for the timer of the constant rate")?;
        guard.clear_ready();
        Ok(())
    }
}

//! One keep-alive connection: sends requests, follows the responses, checks them, again and again.
//!
//! The hot path is one write and one read per request. A request goes out in the same poll in which the response before
//! it ended, and the socket is not read before the kernel says there is something to read.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::ReadBuf;
use tokio::time::{Instant, Sleep, sleep};

use super::body::BodyCheck;
use super::clock::monotonic_ns;
use super::errors::Failure;
use super::framing::{Answer, Framing, FramingError, Progress};
use super::plan::{Abort, Plan};
use super::request::Request;
use super::result::Sample;
use super::socket::{Socket, Throttle};
use super::window::{Answered, Claim, Claimed, Window};
use super::worker::Run;

/// Room for a response head, or for a piece of a body.
const BUFFER_BYTES: usize = 16 * 1024;

/// What every connection of a thread has in common.
pub(super) struct Job {
    pub plan: Plan,
    /// [`Plan::requests`].
    pub requests: Rc<[Request]>,
}

/// One place in the load: a connection, opened again whenever it was closed.
pub(super) struct Connection {
    job: Rc<Job>,
    /// Those of the job, or a copy of its own when they change.
    requests: Rc<[Request]>,
    /// `None`: to be opened before the next request.
    socket: Option<Socket>,
    /// The server closed the last socket, or it had to be given up.
    lost_socket: bool,
    /// Sent and not answered, oldest first.
    in_flight: VecDeque<Exchange>,
    outbox: Outbox,
    framing: Framing,
    buffer: Box<[u8]>,
    /// At the front of the buffer, not yet followed.
    buffered_bytes: usize,
    /// Set anew only when it fires, not for every request: most requests end long before.
    timer: Pin<Box<Sleep>>,
    throttle: Option<(Throttle, Pin<Box<Sleep>>)>,
    /// The last clock reading: when the next request is sent.
    now_ns: u64,
    /// Since when there has been room for another request.
    free_ns: u64,
}

/// A request on its way.
struct Exchange {
    claimed: Claimed,
    send_ns: u64,
    /// Zero until it came.
    first_byte_ns: u64,
    /// Of its response, followed so far.
    received_bytes: u64,
    /// The socket had carried a request before.
    reuses: bool,
    /// No other request was in flight when it was sent.
    from_idle: bool,
    body: BodyCheck,
}

/// What is to be written. A single request goes out from where it lies; pipelined ones are gathered for one write.
#[derive(Default)]
struct Outbox {
    batch: Vec<u8>,
    written_bytes: usize,
    /// The server takes no more; it may have answered before.
    is_refused: bool,
}

/// What became of a transfer.
enum Event {
    Bytes,
    /// The server closed in order.
    Closed,
    Broken(io::Error),
    TimedOut,
    AbortDue,
}

/// What there is to do.
enum Todo {
    Transfer,
    WaitForTurn,
    Nothing,
}

impl Connection {
    pub async fn open(job: Rc<Job>) -> Result<Self, Failure> {
        let socket = Socket::open(&job.plan).await?;
        let changes = job.requests.iter().any(Request::changes);
        let requests = if changes { job.requests.to_vec().into() } else { Rc::clone(&job.requests) };
        let throttle = job.plan.read_bytes_per_s;
        let throttle =
            throttle.map(|rate| (Throttle::new(rate, monotonic_ns()), Box::pin(sleep(Duration::ZERO))));
        Ok(Self {
            requests,
            socket: Some(socket),
            lost_socket: false,
            in_flight: VecDeque::new(),
            outbox: Outbox::default(),
            framing: Framing::default(),
            buffer: vec![0; BUFFER_BYTES].into_boxed_slice(),
            buffered_bytes: 0,
            timer: Box::pin(sleep(job.plan.patience())),
            throttle,
            now_ns: 0,
            free_ns: 0,
            job,
        })
    }

    /// Sends requests for as long as the run lets it.
    pub async fn drive(mut self, run: Rc<Run>) -> Self {
        self.now_ns = monotonic_ns();
        self.free_ns = self.now_ns;
        if let Some(socket) = &self.socket {
            run.window.borrow().carried_by(socket.local_port, socket.opened_ns);
        }
        loop {
            let todo = self.fill(&mut run.window.borrow_mut());
            match todo {
                Todo::Nothing => return self,
                Todo::WaitForTurn => {
                    run.turns.wait().await;
                    self.now_ns = monotonic_ns();
                    continue;
                }
                Todo::Transfer => {}
            }
            if self.socket.is_none() && !self.connect(&run).await {
                continue;
            }
            let event = poll_fn(|context| self.poll_transfer(&run, context)).await;
            self.settle(event, &mut run.window.borrow_mut());
        }
    }

    /// Puts as many requests on their way as there is room for.
    fn fill(&mut self, window: &mut Window) -> Todo {
        while self.has_room() {
            match window.claim(self.now_ns) {
                Claim::Send(claimed) => self.enqueue(claimed, window),
                Claim::NotYet if self.in_flight.is_empty() => return Todo::WaitForTurn,
                Claim::Over if self.in_flight.is_empty() => return Todo::Nothing,
                Claim::NotYet | Claim::Over => break,
            }
        }
        Todo::Transfer
    }

    fn has_room(&self) -> bool {
        let may_carry = self.job.plan.requests_per_connection.unwrap_or(u64::MAX);
        let carried = self.socket.as_ref().map_or(self.in_flight.len() as u64, |socket| socket.sent);
        self.in_flight.len() < self.job.plan.pipeline && carried < may_carry
    }

    fn enqueue(&mut self, claimed: Claimed, window: &mut Window) {
        let reuses = self.socket.as_ref().is_some_and(|socket| socket.sent > 0);
        if let Some(socket) = &mut self.socket {
            socket.sent += 1;
        }
        window.sent(claimed, self.free_ns, self.now_ns);
        self.put(claimed.route, window);
        self.in_flight.push_back(Exchange {
            claimed,
            send_ns: self.now_ns,
            first_byte_ns: 0,
            received_bytes: 0,
            reuses,
            from_idle: self.in_flight.is_empty(),
            body: BodyCheck::default(),
        });
    }

    /// Puts a request's bytes where they are written from.
    fn put(&mut self, route: usize, window: &mut Window) {
        // A copy of one's own is there when the requests change.
        if let Some(request) = Rc::get_mut(&mut self.requests).map(|own| &mut own[route]) {
            request.patch(&mut window.numbers);
        }
        let outbox = &mut self.outbox;
        if self.job.plan.pipeline == 1 {
            *outbox = Outbox { batch: std::mem::take(&mut outbox.batch), ..Outbox::default() };
            return;
        }
        if outbox.written_bytes == outbox.batch.len() {
            outbox.batch.clear();
            outbox.written_bytes = 0;
        }
        outbox.batch.extend_from_slice(&self.requests[route].bytes);
    }

    /// Opens a socket for the requests that are on their way; `false` when that failed and none is.
    async fn connect(&mut self, run: &Run) -> bool {
        let begun_ns = monotonic_ns();
        let opened = Socket::open(&self.job.plan).await;
        self.now_ns = monotonic_ns();
        self.free_ns = self.now_ns;
        let mut window = run.window.borrow_mut();
        match opened {
            Ok(mut socket) => {
                window.connected(self.now_ns - begun_ns, std::mem::take(&mut self.lost_socket));
                window.carried_by(socket.local_port, socket.opened_ns);
                socket.sent = self.in_flight.len() as u64;
                self.socket = Some(socket);
            }
            Err(failure) => {
                window.connect_failed(&failure, self.in_flight.len() as u64);
                self.in_flight.clear();
                return false;
            }
        }
        self.framing.restart();
        self.buffered_bytes = 0;
        self.outbox = Outbox::default();
        for number in 0..self.in_flight.len() {
            self.put(self.in_flight[number].claimed.route, &mut window);
            let exchange = &mut self.in_flight[number];
            exchange.send_ns = self.now_ns;
            (exchange.first_byte_ns, exchange.received_bytes) = (0, 0);
            (exchange.reuses, exchange.from_idle) = (number > 0, number == 0);
        }
        true
    }

    /// Writes what is to be written and waits for bytes, or for the end of the wait for them.
    fn poll_transfer(&mut self, run: &Run, context: &mut Context<'_>) -> Poll<Event> {
        let (Some(socket), Some(first)) = (&mut self.socket, self.in_flight.front()) else {
            return Poll::Ready(Event::Closed);
        };
        let outbox = &mut self.outbox;
        let whole = match self.job.plan.pipeline {
            1 => &self.requests[first.claimed.route].bytes,
            _ => &outbox.batch,
        };
        while outbox.written_bytes < whole.len() && !outbox.is_refused {
            match socket.poll_write(context, &whole[outbox.written_bytes..]) {
                Poll::Pending => break,
                Poll::Ready(Ok(written_bytes)) => {
                    outbox.written_bytes += written_bytes;
                    run.window.borrow_mut().wrote(written_bytes as u64);
                }
                // The server may have answered before it closed: the read tells, and if not, says why.
                Poll::Ready(Err(_)) => outbox.is_refused = true,
            }
        }
        match self.poll_read(run, context) {
            Poll::Ready(event) => Poll::Ready(event),
            Poll::Pending => self.poll_patience(context),
        }
    }

    fn poll_read(&mut self, run: &Run, context: &mut Context<'_>) -> Poll<Event> {
        let Some(socket) = &mut self.socket else { return Poll::Ready(Event::Closed) };
        let mut room = &mut self.buffer[self.buffered_bytes..];
        if let Some((throttle, pause)) = &mut self.throttle {
            let allowed_bytes = loop {
                match throttle.allowance(monotonic_ns()) {
                    Ok(bytes) => break bytes,
                    Err(wait) => {
                        pause.as_mut().reset(Instant::now() + wait);
                        ready!(pause.as_mut().poll(context));
                    }
                }
            };
            let taken = room.len().min(allowed_bytes);
            room = &mut room[..taken];
        }
        let mut into = ReadBuf::new(room);
        match ready!(socket.poll_read(context, &mut into)) {
            Err(error) => return Poll::Ready(Event::Broken(error)),
            Ok(()) if into.filled().is_empty() => return Poll::Ready(Event::Closed),
            Ok(()) => {}
        }
        let read_bytes = into.filled().len();
        self.buffered_bytes += read_bytes;
        if let Some((throttle, _)) = &mut self.throttle {
            throttle.take(read_bytes);
        }
        run.window.borrow_mut().read(read_bytes as u64);
        Poll::Ready(Event::Bytes)
    }

    /// The longest wait for a response, or until it is to be aborted.
    fn poll_patience(&mut self, context: &mut Context<'_>) -> Poll<Event> {
        let Some(first) = self.in_flight.front() else { return Poll::Pending };
        // The timer may still be that of an earlier request: then it is set to what is left for this one.
        while self.timer.as_mut().poll(context).is_ready() {
            let waited = Duration::from_nanos(monotonic_ns() - first.send_ns);
            let left = self.job.plan.patience().saturating_sub(waited);
            if left.is_zero() {
                let is_abort = waited < self.job.plan.timeout;
                return Poll::Ready(if is_abort { Event::AbortDue } else { Event::TimedOut });
            }
            self.timer.as_mut().reset(Instant::now() + left);
        }
        Poll::Pending
    }

    /// Draws the conclusions from what became of a transfer.
    fn settle(&mut self, event: Event, window: &mut Window) {
        match event {
            Event::Bytes => match self.follow(window) {
                Ok(()) => {}
                Err(error) => self.fail(&error.into(), window),
            },
            Event::Closed => self.closed(window),
            Event::Broken(error) => {
                let is_reset =
                    matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe);
                if is_reset && self.was_not_taken() {
                    self.lose_socket();
                } else {
                    self.fail(&Failure::Broken(error), window);
                }
            }
            Event::TimedOut => {
                let timeout = self.job.plan.timeout;
                self.fail(&Failure::Timeout { timeout, received_bytes: self.received_bytes() }, window);
            }
            Event::AbortDue => self.abort(window),
        }
    }

    /// Follows the responses through the buffer and keeps what is not yet understood.
    fn follow(&mut self, window: &mut Window) -> Result<(), FramingError> {
        let mut start = 0;
        while let Some(first) = self.in_flight.front_mut() {
            let request = &self.requests[first.claimed.route];
            let input = &self.buffer[start..self.buffered_bytes];
            let progress = self.framing.advance(input, request.is_head, |piece| {
                if let Some(expected) = &request.expect.body {
                    first.body.piece(expected, piece);
                }
            })?;
            match progress {
                Progress::Whole { answer, consumed } => {
                    start += consumed;
                    let extra_bytes = self.buffered_bytes - start;
                    if extra_bytes > 0 && self.in_flight.len() == 1 {
                        return Err(FramingError::Extra(extra_bytes));
                    }
                    if !self.answered(answer, window) {
                        // Nothing more comes on this connection.
                        self.buffered_bytes = 0;
                        return Ok(());
                    }
                }
                Progress::Partial { consumed } => {
                    first.received_bytes += consumed as u64;
                    let is_begun = consumed < input.len() || first.received_bytes > 0;
                    if is_begun && first.first_byte_ns == 0 {
                        first.first_byte_ns = monotonic_ns();
                    }
                    start += consumed;
                    break;
                }
            }
        }
        self.buffer.copy_within(start..self.buffered_bytes, 0);
        self.buffered_bytes -= start;
        if self.buffered_bytes == self.buffer.len() {
            return Err(FramingError::TooLong(self.buffer.len()));
        }
        if self.is_abort_due() {
            self.abort(window);
        }
        Ok(())
    }

    /// The first request is answered; `false` when the connection carries no other.
    fn answered(&mut self, answer: Answer, window: &mut Window) -> bool {
        let done_ns = monotonic_ns();
        (self.now_ns, self.free_ns) = (done_ns, done_ns);
        let is_written = self.is_first_written();
        let (Some(first), Some(socket)) = (self.in_flight.pop_front(), &mut self.socket) else {
            return false;
        };
        socket.answered += 1;
        let verdict = verdict(&self.requests[first.claimed.route], answer, first.body);
        let first_byte_ns = if first.first_byte_ns == 0 { done_ns } else { first.first_byte_ns };
        let remote_port = socket.local_port;
        let is_spent = self.in_flight.is_empty()
            && self.job.plan.requests_per_connection.is_some_and(|may_carry| socket.sent >= may_carry);
        window.answered(Answered {
            claimed: first.claimed,
            sample: Sample { remote_port, send_ns: first.send_ns, first_byte_ns, done_ns },
            reuses: first.reuses,
            is_early: !is_written,
            verdict,
        });
        if !answer.keeps_alive || !is_written {
            // What was pipelined behind it was not taken, and goes out again.
            self.lose_socket();
        } else if is_spent {
            self.socket = None;
        }
        self.socket.is_some()
    }

    fn is_first_written(&self) -> bool {
        let length = |exchange: &Exchange| self.requests[exchange.claimed.route].bytes.len();
        match self.job.plan.pipeline {
            1 => self.in_flight.front().is_some_and(|first| self.outbox.written_bytes == length(first)),
            _ => {
                let unwritten_bytes = self.outbox.batch.len() - self.outbox.written_bytes;
                unwritten_bytes == 0 || unwritten_bytes <= self.in_flight.iter().skip(1).map(length).sum()
            }
        }
    }

    /// Bytes of the response that is being followed.
    fn received_bytes(&self) -> u64 {
        self.in_flight.front().map_or(0, |first| first.received_bytes) + self.buffered_bytes as u64
    }

    /// The connection ended in order.
    fn closed(&mut self, window: &mut Window) {
        if self.received_bytes() > 0 {
            match self.framing.close() {
                Ok(answer) => {
                    self.answered(answer, window);
                }
                Err(error) => self.fail(&error.into(), window),
            }
            return;
        }
        // A request sent into a connection that the server had closed before is answered by a reset. Without one the
        // server's kernel took the request, and the server closed on it.
        let noted = self.socket.as_ref().is_some_and(|socket| socket.take_error().is_some());
        if (self.outbox.is_refused || noted) && self.was_not_taken() {
            self.lose_socket();
        } else {
            self.fail(&Failure::Closed, window);
        }
    }

    /// The server had closed the idle connection before it saw the request, provided that it reset the connection.
    fn was_not_taken(&self) -> bool {
        let was_used = self.socket.as_ref().is_some_and(|socket| socket.answered > 0);
        let was_idle = self.in_flight.front().is_some_and(|first| first.from_idle);
        was_used && was_idle && self.received_bytes() == 0
    }

    fn lose_socket(&mut self) {
        self.socket = None;
        self.lost_socket = true;
    }

    /// Whatever is on its way failed.
    fn fail(&mut self, failure: &Failure, window: &mut Window) {
        for exchange in self.in_flight.drain(..) {
            window.failed(exchange.claimed, exchange.send_ns, failure);
        }
        self.give_up();
        self.lost_socket = true;
    }

    fn is_abort_due(&self) -> bool {
        let has_begun = self.received_bytes() > 0;
        has_begun
            && match self.job.plan.abort {
                Some(Abort::Head) => !self.framing.is_at_head(),
                Some(Abort::Bytes(bytes)) => self.received_bytes() >= bytes,
                Some(Abort::After(_)) | None => false,
            }
    }

    /// Gives up on what is on its way, as asked.
    fn abort(&mut self, window: &mut Window) {
        self.in_flight.drain(..).for_each(|_| window.aborted());
        self.give_up();
    }

    fn give_up(&mut self) {
        self.socket = None;
        self.now_ns = monotonic_ns();
        self.free_ns = self.now_ns;
    }
}

impl Plan {
    /// Longest wait for a response, for one reason or the other.
    fn patience(&self) -> Duration {
        match self.abort {
            Some(Abort::After(after)) => self.timeout.min(after),
            _ => self.timeout,
        }
    }
}

/// Whether a whole response is the expected one.
fn verdict(request: &Request, answer: Answer, body: BodyCheck) -> Result<(), Failure> {
    let expect = &request.expect;
    if answer.status != expect.status {
        return Err(Failure::Status { expected: expect.status, got: answer.status });
    }
    if let Some(expected) = &expect.body {
        body.finish(expected)?;
    }
    Ok(())
}

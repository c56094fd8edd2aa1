//! One keep-alive connection: sends a request, follows the response, checks it, again and again.
//!
//! The hot path is one write and one read per request. The request goes out in the same poll in which the previous
//! response ended, and the socket is not read before the kernel says there is something to read.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep, timeout};

use super::clock::monotonic_ns;
use super::errors::{BodyCheck, Failure};
use super::framing::{Answer, Framing, FramingError, Progress};
use super::plan::Plan;
use super::result::{Sample, Window};

/// Room for a response head, or for a piece of a body.
const BUFFER_BYTES: usize = 16 * 1024;

/// What every connection of a driver has in common.
pub(super) struct Job {
    pub plan: Plan,
    /// [`Plan::request_bytes`].
    pub request: Vec<u8>,
}

/// One place in the closed loop: a connection, opened again whenever it was closed.
pub(super) struct Connection {
    job: Rc<Job>,
    /// `None`: to be opened before the next request.
    socket: Option<Socket>,
    framing: Framing,
    buffer: Box<[u8]>,
    /// Set anew only when it fires, not for every request: most requests end long before.
    timer: Pin<Box<Sleep>>,
}

struct Socket {
    stream: TcpStream,
    local_port: u16,
    /// It carried a response already.
    is_used: bool,
}

/// A request on its way.
#[derive(Default)]
struct Exchange {
    send_ns: u64,
    sent_bytes: usize,
    /// The server takes no more of the request; it may have answered before.
    is_refused: bool,
    /// At the front of the buffer, not yet followed.
    buffered_bytes: usize,
    received_bytes: u64,
    body: BodyCheck,
}

/// How a request ended.
enum Ended {
    Answered(Answer),
    /// The server had closed the idle connection before it saw the request.
    NotTaken,
    Failed(Failure),
}

impl Connection {
    pub async fn open(job: Rc<Job>) -> Result<Self, Failure> {
        Ok(Self {
            socket: Some(Socket::open(&job.plan).await?),
            framing: Framing::new(&job.plan.method),
            buffer: vec![0; BUFFER_BYTES].into_boxed_slice(),
            timer: Box::pin(sleep(job.plan.timeout)),
            job,
        })
    }

    /// Sends requests, one at a time, for as long as the window lets it.
    pub async fn drive(mut self, window: Rc<RefCell<Window>>) -> Self {
        loop {
            if !window.borrow_mut().claim() {
                return self;
            }
            self.request(&window).await;
        }
    }

    /// Sends one request, on a new connection if the server had closed the old one, and reports what became of it.
    async fn request(&mut self, window: &RefCell<Window>) {
        loop {
            let mut socket = match self.socket.take() {
                Some(socket) => socket,
                None => match Socket::open(&self.job.plan).await {
                    Ok(socket) => {
                        self.framing.restart();
                        window.borrow_mut().reconnected();
                        socket
                    }
                    Err(failure) => return window.borrow_mut().connect_failed(&failure),
                },
            };
            let mut exchange = Exchange { send_ns: monotonic_ns(), ..Exchange::default() };
            let ended = poll_fn(|context| self.poll_exchange(&mut socket, &mut exchange, context)).await;
            let mut window = window.borrow_mut();
            match ended {
                Ended::NotTaken => continue,
                Ended::Failed(failure) => window.failed(exchange.send_ns, &failure),
                Ended::Answered(answer) => {
                    let done_ns = monotonic_ns();
                    let sample =
                        Sample { remote_port: socket.local_port, send_ns: exchange.send_ns, done_ns };
                    if answer.keeps_alive && exchange.sent_bytes == self.job.request.len() {
                        socket.is_used = true;
                        self.socket = Some(socket);
                    }
                    window.answered(sample, self.job.verdict(answer, exchange.body));
                }
            }
            return window.count_bytes(exchange.sent_bytes as u64, exchange.received_bytes);
        }
    }

    fn poll_exchange(
        &mut self,
        socket: &mut Socket,
        exchange: &mut Exchange,
        context: &mut Context<'_>,
    ) -> Poll<Ended> {
        exchange.poll_write(&mut socket.stream, &self.job.request, context);
        loop {
            let mut into = ReadBuf::new(&mut self.buffer[exchange.buffered_bytes..]);
            match Pin::new(&mut socket.stream).poll_read(context, &mut into) {
                Poll::Pending => break,
                Poll::Ready(Err(error)) => return Poll::Ready(exchange.broken(socket, error)),
                Poll::Ready(Ok(())) if into.filled().is_empty() => {
                    return Poll::Ready(exchange.closed(socket, &mut self.framing));
                }
                Poll::Ready(Ok(())) => {
                    exchange.received_bytes += into.filled().len() as u64;
                    exchange.buffered_bytes += into.filled().len();
                }
            }
            match self.follow(exchange) {
                Ok(None) => {}
                Ok(Some(answer)) => return Poll::Ready(Ended::Answered(answer)),
                Err(error) => return Poll::Ready(Ended::Failed(error.into())),
            }
        }
        self.poll_timeout(exchange, context).map(Ended::Failed)
    }

    /// Follows the response through the buffer and keeps what is not yet understood.
    fn follow(&mut self, exchange: &mut Exchange) -> Result<Option<Answer>, FramingError> {
        let Exchange { buffered_bytes, body, .. } = exchange;
        let progress = self.framing.advance(&self.buffer[..*buffered_bytes], |piece| {
            if let Some(expected) = &self.job.plan.expect.body {
                body.piece(expected, piece);
            }
        })?;
        let consumed = match progress {
            Progress::Whole(answer) => return Ok(Some(answer)),
            Progress::Partial { consumed } => consumed,
        };
        self.buffer.copy_within(consumed..*buffered_bytes, 0);
        *buffered_bytes -= consumed;
        if *buffered_bytes == self.buffer.len() {
            return Err(FramingError::TooLong(self.buffer.len()));
        }
        Ok(None)
    }

    fn poll_timeout(&mut self, exchange: &Exchange, context: &mut Context<'_>) -> Poll<Failure> {
        let timeout = self.job.plan.timeout;
        // The timer may still be that of an earlier request: then it is set to what is left for this one.
        while self.timer.as_mut().poll(context).is_ready() {
            let waited_ns = monotonic_ns() - exchange.send_ns;
            let left = timeout.saturating_sub(Duration::from_nanos(waited_ns));
            if left.is_zero() {
                return Poll::Ready(Failure::Timeout { timeout, received_bytes: exchange.received_bytes });
            }
            self.timer.as_mut().reset(Instant::now() + left);
        }
        Poll::Pending
    }
}

impl Job {
    /// Whether a whole response is the expected one.
    fn verdict(&self, answer: Answer, body: BodyCheck) -> Result<(), Failure> {
        let expect = &self.plan.expect;
        if answer.status != expect.status {
            return Err(Failure::Status { expected: expect.status, got: answer.status });
        }
        if let Some(expected) = &expect.body {
            body.finish(expected)?;
        }
        Ok(())
    }
}

impl Socket {
    async fn open(plan: &Plan) -> Result<Self, Failure> {
        let address = plan.address;
        let connect = async {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            let local_port = stream.local_addr()?.port();
            Ok(Self { stream, local_port, is_used: false })
        };
        match timeout(plan.timeout, connect).await {
            Ok(socket) => socket,
            Err(_) => {
                Err(io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {:?}", plan.timeout)))
            }
        }
        .map_err(|error| Failure::Connect { address, error })
    }
}

impl Exchange {
    /// Writes as much of the request as the socket takes.
    fn poll_write(&mut self, stream: &mut TcpStream, request: &[u8], context: &mut Context<'_>) {
        while self.sent_bytes < request.len() && !self.is_refused {
            match Pin::new(&mut *stream).poll_write(context, &request[self.sent_bytes..]) {
                Poll::Pending => return,
                Poll::Ready(Ok(written_bytes)) => self.sent_bytes += written_bytes,
                // The server may have answered before it closed: the read tells, and if not, says why.
                Poll::Ready(Err(_)) => self.is_refused = true,
            }
        }
    }

    /// The connection ended in order.
    fn closed(&self, socket: &Socket, framing: &mut Framing) -> Ended {
        if self.received_bytes > 0 {
            return match framing.close() {
                Ok(answer) => Ended::Answered(answer),
                Err(error) => Ended::Failed(error.into()),
            };
        }
        // A request sent into a connection that the server had closed before is answered by a reset. Without one the
        // server's kernel took the request, and the server closed on it.
        let was_reset = self.is_refused || matches!(socket.stream.take_error(), Ok(Some(_)));
        if socket.is_used && was_reset { Ended::NotTaken } else { Ended::Failed(Failure::Closed) }
    }

    /// The connection ended with an error.
    fn broken(&self, socket: &Socket, error: io::Error) -> Ended {
        let is_reset = matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe);
        if socket.is_used && self.received_bytes == 0 && is_reset {
            Ended::NotTaken
        } else {
            Ended::Failed(Failure::Broken(error))
        }
    }
}

//! A connected socket, of any kind of endpoint.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpSocket, TcpStream, UnixStream};
use tokio::time::timeout;

use super::clock::monotonic_ns;
use super::errors::Failure;
use super::plan::{Endpoint, Plan};

/// Receive buffer asked for by a slow reader: the kernel's own would take in most responses whole.
const SLOW_READER_BUFFER_BYTES: u32 = 4 * 1024;

/// A connection to the server.
pub(super) struct Socket {
    stream: Stream,
    /// Zero on a UNIX socket.
    pub local_port: u16,
    /// Read just after it was connected.
    pub opened_ns: u64,
    /// Requests that were sent on it.
    pub sent: u64,
    /// Responses it carried.
    pub answered: u64,
}

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    pub async fn open(plan: &Plan) -> Result<Self, Failure> {
        let connect = async {
            match &plan.endpoint {
                Endpoint::Tcp(address) => {
                    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
                    if plan.read_bytes_per_s.is_some() {
                        socket.set_recv_buffer_size(SLOW_READER_BUFFER_BYTES)?;
                    }
                    let stream = socket.connect(*address).await?;
                    stream.set_nodelay(true)?;
                    let local_port = stream.local_addr()?.port();
                    Ok(Self::of(Stream::Tcp(stream), local_port))
                }
                Endpoint::Unix(path) => Ok(Self::of(Stream::Unix(UnixStream::connect(path).await?), 0)),
            }
        };
        match timeout(plan.timeout, connect).await {
            Ok(socket) => socket,
            Err(_) => {
                Err(io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {:?}", plan.timeout)))
            }
        }
        .map_err(|error| Failure::Connect { endpoint: plan.endpoint.clone(), error })
    }

    fn of(stream: Stream, local_port: u16) -> Self {
        Self { stream, local_port, opened_ns: monotonic_ns(), sent: 0, answered: 0 }
    }

    pub fn poll_read(&mut self, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Tcp(stream) => Pin::new(stream).poll_read(context, into),
            Stream::Unix(stream) => Pin::new(stream).poll_read(context, into),
        }
    }

    pub fn poll_write(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.stream {
            Stream::Tcp(stream) => Pin::new(stream).poll_write(context, bytes),
            Stream::Unix(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    /// The error the kernel noted on it, if there is one.
    pub fn take_error(&self) -> Option<io::Error> {
        match &self.stream {
            Stream::Tcp(stream) => stream.take_error(),
            Stream::Unix(stream) => stream.take_error(),
        }
        .ok()
        .flatten()
    }
}

/// How many bytes a slow reader may read by now: a token bucket.
pub(super) struct Throttle {
    bytes_per_s: f64,
    tokens: f64,
    filled_ns: u64,
}

impl Throttle {
    /// Seconds whose bytes are saved up at most while nothing is there to be read.
    const SAVED_S: f64 = 0.1;

    pub fn new(bytes_per_s: u64, now_ns: u64) -> Self {
        Self { bytes_per_s: bytes_per_s as f64, tokens: 0.0, filled_ns: now_ns }
    }

    pub fn take(&mut self, bytes: usize) {
        self.tokens -= bytes as f64;
    }

    /// Bytes that may be read now, or how long until there is one.
    pub fn allowance(&mut self, now_ns: u64) -> Result<usize, Duration> {
        let passed_s = now_ns.saturating_sub(self.filled_ns) as f64 / 1e9;
        let most = (self.bytes_per_s * Self::SAVED_S).max(1.0);
        self.tokens = (self.tokens + passed_s * self.bytes_per_s).min(most);
        self.filled_ns = now_ns;
        if self.tokens >= 1.0 {
            return Ok(self.tokens as usize);
        }
        Err(Duration::from_secs_f64((1.0 - self.tokens) / self.bytes_per_s).max(Duration::from_nanos(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_throttle_lets_through_its_rate() {
        let mut throttle = Throttle::new(1_000, 0);
        assert_eq!(throttle.allowance(0), Err(Duration::from_millis(1)));
        assert_eq!(throttle.allowance(10_000_000), Ok(10));
        throttle.take(10);
        assert_eq!(throttle.allowance(10_500_000), Err(Duration::from_micros(500)));
        assert_eq!(throttle.allowance(60_000_000), Ok(50));
        assert_eq!(throttle.allowance(9_000_000_000), Ok(100), "a pause is not saved up for ever");
    }
}

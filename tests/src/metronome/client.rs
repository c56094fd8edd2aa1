//! The other end: a client that does exactly what a test says, and a TCP peer for the server to wait on.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use rustix::net::sockopt::set_socket_linger;

use super::clock::now_ns;

/// Longest wait for bytes.
const PATIENCE: Duration = Duration::from_secs(20);

/// One connection.
#[derive(Debug)]
pub struct Client {
    stream: TcpStream,
    received: Vec<u8>,
}

/// One exchange as the client saw it, `CLOCK_MONOTONIC` nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exchange {
    /// Before the first byte was sent.
    pub send_ns: u64,
    /// After the call that sent the first byte.
    pub sent_ns: u64,
    /// After the read that completed the response.
    pub done_ns: u64,
}

/// A response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// Its status.
    pub status: u16,
    /// Bytes of its body.
    pub body: Vec<u8>,
}

impl Client {
    /// Connects.
    pub fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self { stream, received: Vec::new() })
    }

    /// Its port, by which `tracer` names the connection.
    pub fn port(&self) -> io::Result<u16> {
        Ok(self.stream.local_addr()?.port())
    }

    /// Waits until the server has read all that was sent: its receive queue, by the kernel's own table, is empty.
    pub fn until_taken(&self) -> io::Result<()> {
        let (server, client) = (self.stream.peer_addr()?, self.stream.local_addr()?);
        let deadline = Instant::now() + PATIENCE;
        loop {
            let sockets = procfs::net::tcp().map_err(io::Error::other)?;
            let mut theirs =
                sockets.iter().filter(|s| s.local_address == server && s.remote_address == client);
            if theirs.any(|socket| socket.rx_queue == 0) {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(io::Error::new(ErrorKind::TimedOut, "the server does not read what was sent"));
            }
            thread::yield_now();
        }
    }

    /// Sends bytes in one call; the times before and after it.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<(u64, u64)> {
        let send_ns = now_ns();
        let count = self.stream.write(bytes)?;
        let sent_ns = now_ns();
        self.stream.write_all(&bytes[count..])?;
        Ok((send_ns, sent_ns))
    }

    /// Sends a request without a body, and reads its response.
    pub fn get(&mut self, id: u64, script: &str) -> io::Result<Exchange> {
        self.exchange(&request("GET", id, script, ""))
    }

    /// Sends a whole request, and reads its response.
    pub fn exchange(&mut self, request: &[u8]) -> io::Result<Exchange> {
        let (send_ns, sent_ns) = self.send(request)?;
        let has_body = !request.starts_with(b"HEAD ");
        let response = self.response(has_body)?;
        let done_ns = now_ns();
        if response.status >= 400 {
            return Err(io::Error::new(ErrorKind::InvalidData, format!("status {}", response.status)));
        }
        Ok(Exchange { send_ns, sent_ns, done_ns })
    }

    /// Reads one response, 1xx ones too. `has_body`: the request was not HEAD.
    pub fn response(&mut self, has_body: bool) -> io::Result<Response> {
        loop {
            if let Some(response) = self.take_response(has_body)? {
                return Ok(response);
            }
            if self.read(64 << 10)? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// One read of at most so many bytes; how many it took.
    pub fn read(&mut self, limit: usize) -> io::Result<usize> {
        let mut piece = vec![0; limit];
        let count = self.stream.read(&mut piece)?;
        self.received.extend_from_slice(&piece[..count]);
        Ok(count)
    }

    /// Reads until the server closes; how many bytes came, those read before included.
    pub fn read_to_end(&mut self) -> io::Result<usize> {
        while self.read(64 << 10)? > 0 {}
        Ok(self.received.len())
    }

    /// Closes the sending half.
    pub fn finish(&self) -> io::Result<()> {
        self.stream.shutdown(Shutdown::Write)
    }

    /// Closes with a reset.
    pub fn reset(self) -> io::Result<()> {
        Ok(set_socket_linger(&self.stream, Some(Duration::ZERO))?)
    }

    /// The socket, for options a test sets.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    fn take_response(&mut self, has_body: bool) -> io::Result<Option<Response>> {
        let mut headers = [httparse::EMPTY_HEADER; 32];
        let mut response = httparse::Response::new(&mut headers);
        let parsed = response.parse(&self.received);
        let parsed = parsed.map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
        let httparse::Status::Complete(head) = parsed else { return Ok(None) };
        let status = response.code.unwrap_or_default();
        let value = |name: &str| {
            let header = response.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name));
            header.and_then(|header| std::str::from_utf8(header.value).ok())
        };
        let rest = &self.received[head..];
        let none = !has_body || matches!(status, 100..200 | 204 | 304);
        let end = if none {
            Some((Vec::new(), 0))
        } else if value("transfer-encoding").is_some() {
            unchunk(rest)?
        } else {
            let length = value("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
            rest.get(..length).map(|body| (body.to_vec(), length))
        };
        let Some((body, length)) = end else { return Ok(None) };
        self.received.drain(..head + length);
        Ok(Some(Response { status, body }))
    }
}

/// A body out of its chunks, and the bytes they took; `None` while the last is still to come.
fn unchunk(bytes: &[u8]) -> io::Result<Option<(Vec<u8>, usize)>> {
    let (mut body, mut at) = (Vec::new(), 0);
    loop {
        let size = httparse::parse_chunk_size(&bytes[at..]);
        let size = size.map_err(|_| io::Error::new(ErrorKind::InvalidData, "no chunk size"))?;
        let httparse::Status::Complete((line, size)) = size else { return Ok(None) };
        let (start, size) = (at + line, size as usize);
        let Some(chunk) = bytes.get(start..start + size + 2) else { return Ok(None) };
        body.extend_from_slice(&chunk[..size]);
        at = start + size + 2;
        if size == 0 {
            return Ok(Some((body, at)));
        }
    }
}

/// The bytes of a request. `headers`: more of them, each ended by CRLF.
pub fn request(method: &str, id: u64, script: &str, headers: &str) -> Vec<u8> {
    format!("{method} /{id}?{script} HTTP/1.1\r\nhost: metronome\r\n{headers}\r\n").into_bytes()
}

/// A TCP server for the metronome to wait on: it answers four bytes after as many microseconds as four bytes say.
#[derive(Debug)]
pub struct Peer {
    /// Where it listens.
    pub port: u16,
    answered: Arc<Mutex<Vec<Answered>>>,
}

/// One answer of a peer's, `CLOCK_MONOTONIC` nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answered {
    /// After the read that completed the question.
    pub asked_ns: u64,
    /// Before the write of the answer.
    pub sent_ns: u64,
}

impl Peer {
    /// Listens on a thread of this process, which is no part of what is traced.
    pub fn start() -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let port = listener.local_addr()?.port();
        let answered = Arc::new(Mutex::new(Vec::new()));
        let of_all = Arc::clone(&answered);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let answered = Arc::clone(&of_all);
                // It ends when the metronome does.
                thread::spawn(move || answer_late(stream, &answered));
            }
        });
        Ok(Self { port, answered })
    }

    /// Its answers so far, in order.
    pub fn answered(&self) -> Vec<Answered> {
        self.answered.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn answer_late(mut stream: TcpStream, answered: &Mutex<Vec<Answered>>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    loop {
        let mut us = [0; 4];
        stream.read_exact(&mut us)?;
        let asked_ns = now_ns();
        thread::sleep(Duration::from_micros(u32::from_be_bytes(us).into()));
        let answer = Answered { asked_ns, sent_ns: now_ns() };
        // Before it is sent: whoever has the answer finds it here.
        answered.lock().unwrap_or_else(PoisonError::into_inner).push(answer);
        stream.write_all(&us)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_make_a_body() {
        let bytes = b"3\r\nabc\r\n1\r\nd\r\n0\r\n\r\nHTTP/1.1";
        assert_eq!(unchunk(bytes).unwrap(), Some((b"abcd".to_vec(), 19)));
        assert_eq!(unchunk(&bytes[..12]).unwrap(), None);
    }
}

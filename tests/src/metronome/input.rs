//! Requests as they come in: read call by read call, told apart by bytes.

use std::{io, os::fd::BorrowedFd, thread};

use super::log::Stamps;

/// Most that one read takes.
const READ_BYTES: usize = 64 << 10;

/// Headers read; a request with more is refused.
const HEADERS: usize = 64;

/// Bytes received and not used yet.
#[derive(Debug, Default)]
pub struct Input {
    bytes: Vec<u8>,
    /// The client has closed its sending half.
    pub ended: bool,
}

/// A request's head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// Its method is HEAD: no body may be sent.
    pub is_head: bool,
    /// Path and query.
    pub target: String,
    /// How its body ends.
    pub body: Body,
}

/// How a body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// After so many bytes.
    Bytes(usize),
    /// With the last chunk.
    Chunked,
}

impl Input {
    /// One read of at most `limit` bytes. A socket that would block, or an end, adds nothing.
    pub fn read(&mut self, socket: BorrowedFd<'_>, limit: usize, stamps: &mut Stamps) -> io::Result<()> {
        let mut piece = vec![0; limit.min(READ_BYTES)];
        let count = stamps.call("read", 1, || rustix::io::read(socket, &mut piece[..]), |count| *count)?;
        self.ended = count == 0;
        self.bytes.extend_from_slice(&piece[..count]);
        Ok(())
    }

    /// One read of whatever is there.
    pub fn read_all(&mut self, socket: BorrowedFd<'_>, stamps: &mut Stamps) -> io::Result<()> {
        self.read(socket, READ_BYTES, stamps)
    }

    /// One read of one byte, by another thread.
    pub fn read_one_elsewhere(&mut self, socket: BorrowedFd<'_>, stamps: &mut Stamps) -> io::Result<()> {
        let read = || self.read(socket, 1, stamps);
        thread::scope(|scope| scope.spawn(read).join()).unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))
    }

    /// Takes a request's head, once it is whole.
    pub fn take_head(&mut self) -> io::Result<Option<Head>> {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS];
        let mut request = httparse::Request::new(&mut headers);
        let length = match request.parse(&self.bytes) {
            Ok(httparse::Status::Complete(length)) => length,
            Ok(httparse::Status::Partial) => return Ok(None),
            Err(error) => return Err(io::Error::new(io::ErrorKind::InvalidData, error)),
        };
        let value = |name: &str| {
            let header = request.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name));
            header.and_then(|header| std::str::from_utf8(header.value).ok())
        };
        let body = if value("transfer-encoding").is_some() {
            Body::Chunked
        } else {
            Body::Bytes(value("content-length").and_then(|length| length.parse().ok()).unwrap_or(0))
        };
        let target = request.path.unwrap_or_default().to_owned();
        let head = Head { is_head: request.method == Some("HEAD"), target, body };
        self.bytes.drain(..length);
        Ok(Some(head))
    }

    /// Takes a request's body, once it is whole.
    pub fn take_body(&mut self, body: Body) -> bool {
        const LAST_CHUNK: &[u8] = b"0\r\n\r\n";
        let length = match body {
            Body::Bytes(length) => (self.bytes.len() >= length).then_some(length),
            // Our clients send no body in which this could stand elsewhere.
            Body::Chunked => self
                .bytes
                .windows(LAST_CHUNK.len())
                .position(|window| window == LAST_CHUNK)
                .map(|start| start + LAST_CHUNK.len()),
        };
        if let Some(length) = length {
            self.bytes.drain(..length);
        }
        length.is_some()
    }

    /// Takes everything.
    pub fn take_rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }
}

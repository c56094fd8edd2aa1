//! The response: its bytes, and the system calls they leave by.

use std::{
    cell::Cell,
    fs::File,
    io::{self, IoSlice, Seek, Write},
    os::fd::{BorrowedFd, OwnedFd},
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    fs::{MemfdFlags, memfd_create, sendfile},
    io::Errno,
    net::{SendAncillaryBuffer, SendFlags, send, sendmsg},
    pipe::{SpliceFlags, fcntl_setpipe_size, pipe, splice},
};

use super::{
    log::Stamps,
    script::{Call, Script, Step},
};

/// Most that a pipe is made to hold: larger splices take several calls.
const PIPE_BYTES: usize = 1 << 20;

/// Sends one response after the other on a connection.
#[derive(Debug, Default)]
pub struct Output {
    /// Bytes that wait for the next call.
    held: Vec<u8>,
    status: u16,
    chunked: bool,
    head_is_out: bool,
    /// `out` steps still to come.
    pieces_left: usize,
    body_bytes: usize,
    closes: bool,
    is_head: bool,
}

impl Output {
    /// A new response. `is_head`: to a HEAD request.
    pub fn begin(&mut self, script: &Script, is_head: bool) {
        self.status = 200;
        self.chunked = false;
        self.head_is_out = false;
        self.pieces_left = script.steps.iter().filter(|step| matches!(step, Step::Out { .. })).count();
        self.body_bytes = script.body_bytes();
        self.closes = script.steps.contains(&Step::Close);
        self.is_head = is_head;
    }

    /// Its status.
    pub fn status(&mut self, status: u16) {
        self.status = status;
    }

    /// It has no Content-Length.
    pub fn chunked(&mut self) {
        self.chunked = true;
    }

    /// Sends a 1xx head.
    pub fn inform(&mut self, status: u16, socket: BorrowedFd<'_>, stamps: &mut Stamps) -> io::Result<()> {
        write!(self.held, "HTTP/1.1 {status} -\r\n\r\n")?;
        self.leave(Call::Write, 1, socket, stamps)
    }

    /// Sends a piece of the body, and first whatever waits before it.
    pub fn send(
        &mut self,
        (call, bytes, buffers): (Call, usize, usize),
        socket: BorrowedFd<'_>,
        stamps: &mut Stamps,
    ) -> io::Result<()> {
        self.pieces_left -= 1;
        self.add_head()?;
        if !self.is_head && !matches!(self.status, 100..200 | 204 | 304) {
            self.add_body(bytes)?;
        }
        if call == Call::Hold { Ok(()) } else { self.leave(call, buffers, socket, stamps) }
    }

    fn add_head(&mut self) -> io::Result<()> {
        if self.head_is_out {
            return Ok(());
        }
        self.head_is_out = true;
        write!(self.held, "HTTP/1.1 {} -\r\n", self.status)?;
        match (self.status, self.chunked) {
            (101, _) => write!(self.held, "connection: upgrade\r\nupgrade: raw\r\n")?,
            (100..200 | 204 | 304, _) => {}
            (_, true) => write!(self.held, "transfer-encoding: chunked\r\n")?,
            (_, false) => write!(self.held, "content-length: {}\r\n", self.body_bytes)?,
        }
        if self.closes {
            write!(self.held, "connection: close\r\n")?;
        }
        write!(self.held, "\r\n")
    }

    fn add_body(&mut self, bytes: usize) -> io::Result<()> {
        if !self.chunked {
            self.held.resize(self.held.len() + bytes, b'x');
            return Ok(());
        }
        if bytes > 0 {
            write!(self.held, "{bytes:x}\r\n")?;
            self.held.resize(self.held.len() + bytes, b'x');
            write!(self.held, "\r\n")?;
        }
        if self.pieces_left == 0 {
            write!(self.held, "0\r\n\r\n")?;
        }
        Ok(())
    }

    /// Everything held leaves by this call, or by as many of it as the socket makes necessary.
    fn leave(
        &mut self,
        call: Call,
        buffers: usize,
        socket: BorrowedFd<'_>,
        stamps: &mut Stamps,
    ) -> io::Result<()> {
        let bytes = std::mem::take(&mut self.held);
        let source = Source::of(call, &bytes)?;
        let mut sent = 0;
        while sent < bytes.len() {
            let rest = &bytes[sent..];
            match source.send(call, rest, buffers, socket, stamps) {
                Ok(count) => sent += count,
                Err(Errno::AGAIN) => {
                    poll(&mut [PollFd::new(&socket, PollFlags::OUT)], None)?;
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// Where bytes come from that leave without a buffer of the caller's.
enum Source {
    Memory,
    File(File),
    /// With the bytes that a short splice left in it.
    Pipe {
        reader: OwnedFd,
        writer: File,
        left: Cell<usize>,
    },
}

impl Source {
    fn of(call: Call, bytes: &[u8]) -> io::Result<Self> {
        Ok(match call {
            Call::Sendfile => {
                let mut file = File::from(memfd_create("metronome", MemfdFlags::CLOEXEC)?);
                file.write_all(bytes)?;
                file.rewind()?;
                Self::File(file)
            }
            Call::Splice => {
                let (reader, writer) = pipe()?;
                fcntl_setpipe_size(&writer, PIPE_BYTES)?;
                Self::Pipe { reader, writer: File::from(writer), left: Cell::new(0) }
            }
            _ => Self::Memory,
        })
    }

    /// One call.
    fn send(
        &self,
        call: Call,
        bytes: &[u8],
        buffers: usize,
        socket: BorrowedFd<'_>,
        stamps: &mut Stamps,
    ) -> rustix::io::Result<usize> {
        let name = call.name();
        let count = |count: &usize| *count;
        match self {
            Self::File(file) => stamps.call(name, 0, || sendfile(socket, file, None, bytes.len()), count),
            Self::Pipe { reader, writer, left } => {
                if left.get() == 0 {
                    let piece = &bytes[..bytes.len().min(PIPE_BYTES)];
                    (&*writer).write_all(piece).map_err(|_| Errno::IO)?;
                    left.set(piece.len());
                }
                let all = || splice(reader, None, socket, None, left.get(), SpliceFlags::empty());
                let spliced = stamps.call(name, 0, all, count)?;
                left.set(left.get() - spliced);
                Ok(spliced)
            }
            Self::Memory => {
                let slices = slices(bytes, buffers);
                match call {
                    Call::Writev => {
                        stamps.call(name, slices.len(), || rustix::io::writev(socket, &slices), count)
                    }
                    Call::Sendmsg => {
                        let mut control = SendAncillaryBuffer::default();
                        let flags = SendFlags::NOSIGNAL;
                        let send = || sendmsg(socket, &slices, &mut control, flags);
                        stamps.call(name, slices.len(), send, count)
                    }
                    Call::Send => stamps.call(name, 1, || send(socket, bytes, SendFlags::NOSIGNAL), count),
                    _ => stamps.call(name, 1, || rustix::io::write(socket, bytes), count),
                }
            }
        }
    }
}

/// The bytes in so many buffers; in fewer when there are not that many bytes.
fn slices(bytes: &[u8], buffers: usize) -> Vec<IoSlice<'_>> {
    let buffers = buffers.clamp(1, bytes.len().max(1));
    let size = bytes.len() / buffers;
    (0..buffers)
        .map(|index| {
            let end = if index + 1 == buffers { bytes.len() } else { (index + 1) * size };
            IoSlice::new(&bytes[index * size..end])
        })
        .collect()
}

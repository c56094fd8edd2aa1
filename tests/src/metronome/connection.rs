//! One connection: its requests' steps, done one by one.

use std::{
    collections::VecDeque,
    io,
    net::TcpStream,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    thread,
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    net::{Shutdown as Half, shutdown, sockopt::set_socket_linger},
};

use super::{
    clock::Moment,
    input::{Body, Input},
    log::{Log, Stamps},
    output::Output,
    script::{Script, Step},
    work,
};

/// A connection being served.
#[derive(Debug)]
pub struct Connection {
    socket: OwnedFd,
    input: Input,
    output: Output,
    stamps: Stamps,
    log: Log,
    /// Connection to the downstream peer.
    peer: Option<TcpStream>,
    reads_one: bool,
    /// The request being answered.
    current: Option<Current>,
}

#[derive(Debug)]
struct Current {
    id: u64,
    body: Body,
    steps: VecDeque<Step>,
}

/// How far a connection came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It needs more bytes.
    Reads,
    /// Its request waits so long; others may be served.
    Waits(Duration),
    /// It is over.
    Over,
}

impl Connection {
    /// A connection just accepted.
    pub fn accepted(socket: OwnedFd, (begin, end): (Moment, Moment), log: Log) -> Self {
        let mut stamps = Stamps::default();
        stamps.push("accept", begin, end, 0, 0);
        Self {
            socket,
            input: Input::default(),
            output: Output::default(),
            stamps,
            log,
            peer: None,
            reads_one: false,
            current: None,
        }
    }

    /// Its socket.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Serves it to its end on this thread.
    pub fn serve(mut self) -> io::Result<()> {
        loop {
            match self.go_on()? {
                Progress::Reads => self.read()?,
                Progress::Waits(time) => self.stamps.work("await", || thread::sleep(time)),
                Progress::Over => return Ok(()),
            }
        }
    }

    /// One read.
    pub fn read(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.reads_one) {
            self.input.read_one_elsewhere(self.socket.as_fd(), &mut self.stamps)
        } else {
            self.input.read_all(self.socket.as_fd(), &mut self.stamps)
        }
    }

    /// A wait that [`Progress::Waits`] asked for is over.
    pub fn waited(&mut self, begin: Moment) {
        self.stamps.push("await", begin, Moment::after(), 0, 0);
    }

    /// Does whatever can be done with the bytes there are.
    pub fn go_on(&mut self) -> io::Result<Progress> {
        loop {
            if self.current.is_none() {
                self.current = self.next_request()?;
            }
            let Some(mut current) = self.current.take() else {
                return Ok(if self.input.ended { Progress::Over } else { Progress::Reads });
            };
            let done = self.perform(&mut current);
            match done {
                Ok(None) => self.log.write(current.id, &mut self.stamps)?,
                Ok(Some(Progress::Waits(time))) => {
                    self.current = Some(current);
                    return Ok(Progress::Waits(time));
                }
                Ok(Some(progress)) => {
                    self.log.write(current.id, &mut self.stamps)?;
                    return Ok(progress);
                }
                Err(error) => {
                    // What was done until then is still true.
                    self.log.write(current.id, &mut self.stamps)?;
                    return Err(error);
                }
            }
        }
    }

    fn next_request(&mut self) -> io::Result<Option<Current>> {
        let Some(head) = self.input.take_head()? else { return Ok(None) };
        let script = Script::parse(&head.target)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, format!("{error:#}")))?;
        self.output.begin(&script, head.is_head);
        if !script.reads_body_itself() {
            self.read_body(head.body)?;
        }
        Ok(Some(Current { id: script.id, body: head.body, steps: script.steps.into() }))
    }

    /// Reads until the body is whole, waiting for it even on the event loop: bodies are for servers with threads.
    fn read_body(&mut self, body: Body) -> io::Result<()> {
        while !self.input.take_body(body) {
            if self.input.ended {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            match self.input.read_all(self.socket.as_fd(), &mut self.stamps) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], None)?;
                }
                other => other?,
            }
        }
        Ok(())
    }

    /// Does the steps left; `None` when all are done and the connection goes on.
    fn perform(&mut self, current: &mut Current) -> io::Result<Option<Progress>> {
        while let Some(step) = current.steps.pop_front() {
            let stamps = &mut self.stamps;
            match step {
                Step::Spin(time) => stamps.work("spin", || work::spin(time)),
                Step::Sleep(time) => stamps.work("sleep", || thread::sleep(time)),
                Step::Futex(time) => stamps.work("futex", || work::wait_on_futex(time)),
                Step::Fault(time) => stamps.work("fault", || work::fault(time))?,
                Step::Pipe(time) => stamps.work("pipe", || work::wait_on_pipe(time))?,
                Step::Peer { port, delay } => {
                    stamps.work("peer", || work::ask_peer(&mut self.peer, port, delay))?;
                }
                Step::Await(time) => return Ok(Some(Progress::Waits(time))),
                Step::Hand => {
                    let rest = || self.perform(current);
                    let done = thread::scope(|scope| scope.spawn(rest).join());
                    return done.unwrap_or_else(|_| Err(io::ErrorKind::Other.into()));
                }
                Step::Body => self.read_body(current.body)?,
                Step::Status(status) => self.output.status(status),
                Step::Chunked => self.output.chunked(),
                Step::Info(status) => self.output.inform(status, self.socket.as_fd(), stamps)?,
                Step::Out { call, bytes, buffers } => {
                    self.output.send((call, bytes, buffers), self.socket.as_fd(), stamps)?;
                }
                Step::One => self.reads_one = true,
                Step::Raw => return self.echo().map(|()| Some(Progress::Over)),
                Step::Fin => shutdown(&self.socket, Half::Write)?,
                Step::Close => return Ok(Some(Progress::Over)),
                Step::Reset => {
                    set_socket_linger(&self.socket, Some(Duration::ZERO))?;
                    return Ok(Some(Progress::Over));
                }
            }
        }
        Ok(None)
    }

    /// No HTTP any more: sends back what comes.
    fn echo(&mut self) -> io::Result<()> {
        while !self.input.ended {
            let mut bytes = &self.input.take_rest()[..];
            while !bytes.is_empty() {
                let count = rustix::io::write(&self.socket, bytes)?;
                bytes = &bytes[count..];
            }
            self.input.read_all(self.socket.as_fd(), &mut self.stamps)?;
        }
        Ok(())
    }
}

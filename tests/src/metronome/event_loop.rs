//! Many connections on one thread: a bare epoll loop.

use std::{collections::HashMap, io, os::fd::AsFd, time::Duration};

use rustix::{
    event::{
        Timespec,
        epoll::{self, EventData, EventFlags},
    },
    fd::OwnedFd,
};

use super::{
    clock::{Moment, now_ns},
    connection::{Connection, Progress},
    log::Log,
    serve::{Listener, accept},
};

/// Events taken at a time.
const EVENTS: usize = 256;

struct EventLoop {
    epoll: OwnedFd,
    connections: HashMap<u64, Connection>,
    /// Connections that wait, until when, and since when.
    waiting: Vec<(u64, u64, Moment)>,
}

/// Serves everything that connects, for ever.
pub fn run(listeners: &[Listener], log: &Log) -> io::Result<()> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let mut events = EventLoop { epoll, connections: HashMap::new(), waiting: Vec::new() };
    for (index, listener) in listeners.iter().enumerate() {
        listener.set_nonblocking()?;
        epoll::add(&events.epoll, listener.fd(), EventData::new_u64(index as u64), EventFlags::IN)?;
    }
    let mut next_id = listeners.len() as u64;
    let mut ready = Vec::with_capacity(EVENTS);
    loop {
        ready.clear();
        let timeout = events.timeout();
        match epoll::wait(&events.epoll, rustix::buffer::spare_capacity(&mut ready), timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for event in &ready {
            let id = event.data.u64();
            match listeners.get(id as usize) {
                Some(listener) => {
                    if events.accept(listener, next_id, log)? {
                        next_id += 1;
                    }
                }
                None => events.readable(id),
            }
        }
        events.end_waits();
    }
}

impl EventLoop {
    fn timeout(&self) -> Option<Timespec> {
        let first = self.waiting.iter().map(|(_, until_ns, _)| *until_ns).min()?;
        Duration::from_nanos(first.saturating_sub(now_ns())).try_into().ok()
    }

    /// Accepts one connection, if another process was not faster.
    fn accept(&mut self, listener: &Listener, id: u64, log: &Log) -> io::Result<bool> {
        let (socket, moments) = match accept(listener, true) {
            Ok(accepted) => accepted,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        };
        epoll::add(&self.epoll, socket.as_fd(), EventData::new_u64(id), EventFlags::IN)?;
        self.connections.insert(id, Connection::accepted(socket, moments, log.clone()));
        Ok(true)
    }

    fn readable(&mut self, id: u64) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        match connection.read() {
            Ok(()) => self.go_on(id),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => self.end(id),
        }
    }

    fn go_on(&mut self, id: u64) {
        if self.waiting.iter().any(|(waits, ..)| *waits == id) {
            return;
        }
        let Some(connection) = self.connections.get_mut(&id) else { return };
        match connection.go_on() {
            Ok(Progress::Reads) => {}
            Ok(Progress::Waits(time)) => {
                let until_ns = now_ns() + time.as_nanos() as u64;
                self.waiting.push((id, until_ns, Moment::before()));
            }
            Ok(Progress::Over) | Err(_) => self.end(id),
        }
    }

    fn end_waits(&mut self) {
        let now_ns = now_ns();
        let over: Vec<_> = self.waiting.extract_if(.., |(_, until_ns, _)| *until_ns <= now_ns).collect();
        for (id, _, begin) in over {
            if let Some(connection) = self.connections.get_mut(&id) {
                connection.waited(begin);
            }
            self.go_on(id);
        }
    }

    fn end(&mut self, id: u64) {
        if let Some(connection) = self.connections.remove(&id) {
            // Dropping it closes the socket, which takes it out of epoll as well; but not where it was dup'ed or forked.
            let _ = epoll::delete(&self.epoll, connection.socket());
        }
    }
}

//! A server that does as little as can be: one thread, epoll, one fixed answer. What is measured is the client.

use std::{
    io::{ErrorKind, Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    os::fd::AsFd,
};

use anyhow::{Context, Result};
use rustix::{
    buffer::spare_capacity,
    event::epoll,
    process::{Resource, Rlimit, getrlimit, setrlimit},
};

pub const ANSWER: &[u8] =
    b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 13\r\n\r\nHello, World!";
/// The listener's place among the events.
const LISTENER: u64 = u64::MAX;
const EVENTS: usize = 1_024;

/// Serves on the port in PORT until the process is ended.
pub fn run() -> Result<()> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })?;
    let port = std::env::var("PORT").context("PORT is not set: the benchmark sets it")?.parse()?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
    listener.set_nonblocking(true)?;
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let watch = |fd: &dyn AsFd, number: u64| {
        epoll::add(&epoll, fd.as_fd(), epoll::EventData::new_u64(number), epoll::EventFlags::IN)
    };
    watch(&listener, LISTENER)?;
    let mut connections: Vec<Option<TcpStream>> = Vec::new();
    let mut events = Vec::with_capacity(EVENTS);
    let mut buffer = [0; 16 * 1024];
    loop {
        events.clear();
        epoll::wait(&epoll, spare_capacity(&mut events), None)?;
        for event in &events {
            let number = event.data.u64();
            if number == LISTENER {
                while let Ok((stream, _)) = listener.accept() {
                    stream.set_nonblocking(true)?;
                    stream.set_nodelay(true)?;
                    let free =
                        connections.iter().position(Option::is_none).filter(|_| connections.len() > 64);
                    let number = free.unwrap_or(connections.len());
                    watch(&stream, number as u64)?;
                    match connections.get_mut(number) {
                        Some(place) => *place = Some(stream),
                        None => connections.push(Some(stream)),
                    }
                }
                continue;
            }
            let Some(Some(stream)) = connections.get_mut(number as usize) else { continue };
            if !answer(stream, &mut buffer) {
                connections[number as usize] = None;
            }
        }
    }
}

/// Answers what has come; `false` when the client is gone. Requests come whole: the benchmark's are small.
fn answer(stream: &mut TcpStream, buffer: &mut [u8]) -> bool {
    match stream.read(buffer) {
        Ok(0) => false,
        Ok(read_bytes) => (0..requests_in(&buffer[..read_bytes])).all(|_| stream.write_all(ANSWER).is_ok()),
        Err(error) => error.kind() == ErrorKind::WouldBlock,
    }
}

/// Requests without a body that these bytes hold.
pub fn requests_in(bytes: &[u8]) -> usize {
    bytes.windows(4).filter(|end| *end == b"\r\n\r\n").count()
}

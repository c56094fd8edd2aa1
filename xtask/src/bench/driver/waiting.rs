//! A server whose answers take a fixed time, with a thread for each connection: what a client waits is the server's time,
//! so that clients of different cost see the same latency at the same rate.

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    thread,
    time::Duration,
};

use anyhow::{Context, Result};

use super::server::{ANSWER, requests_in};

/// What an answer takes, besides the way there and back.
pub const WAIT: Duration = Duration::from_millis(1);

/// Serves on the port in PORT until the process is ended.
pub fn run() -> Result<()> {
    let port = std::env::var("PORT").context("PORT is not set: the benchmark sets it")?.parse()?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
    loop {
        let (stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        // An error is a client that went away.
        thread::spawn(move || drop(serve(stream)));
    }
}

fn serve(mut stream: TcpStream) -> std::io::Result<()> {
    let mut buffer = [0; 16 * 1024];
    loop {
        let read_bytes = stream.read(&mut buffer)?;
        if read_bytes == 0 {
            return Ok(());
        }
        for _ in 0..requests_in(&buffer[..read_bytes]) {
            thread::sleep(WAIT);
            stream.write_all(ANSWER)?;
        }
    }
}

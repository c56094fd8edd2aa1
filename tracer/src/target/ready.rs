//! Ports, and whether a server answers on one.

use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::processes;

/// A port that nobody listens on now.
pub fn free_port() -> Result<u16> {
    let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
    Ok(address.context("cannot find a free port on 127.0.0.1; is the loopback interface up?")?.port())
}

/// Fails, naming the holder, when somebody listens on the port.
pub fn check_port_free(port: u16) -> Result<()> {
    match TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
        Err(error) if error.kind() == ErrorKind::AddrInUse => {
            let holder = match processes::listener_of(port) {
                Some(process) => format!("process {} ({})", process.process_id, process.name),
                None => "another process".to_owned(),
            };
            bail!("port {port} is in use by {holder}; stop it, or choose another port")
        }
        // Whether the server may take it is for the server to find out.
        _ => Ok(()),
    }
}

/// Asks for a path once; gives the status.
pub fn ask(port: u16, path: &str, timeout: Duration) -> io::Result<u16> {
    let mut stream = TcpStream::connect_timeout(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)), timeout)?;
    stream.set_read_timeout(Some(timeout))?;
    stream.write_all(
        format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n").as_bytes(),
    )?;
    let mut status_line = String::new();
    BufReader::new(stream).read_line(&mut status_line)?;
    let status =
        status_line.strip_prefix("HTTP/1.").and_then(|rest| rest.split(' ').nth(1)?.trim().parse().ok());
    status.ok_or_else(|| {
        io::Error::new(ErrorKind::InvalidData, format!("no HTTP answer: {:?}", status_line.trim()))
    })
}

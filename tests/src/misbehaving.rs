//! A small HTTP server that does what it is told with each request, and counts what it saw.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

/// A whole, right response.
pub const HELLO: &str = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello";

/// What a server does with one request.
#[derive(Clone, Debug, Default)]
pub struct Reply {
    /// Leaves the request's body where it is.
    leaves_body: bool,
    wait: Duration,
    /// Written one by one.
    pieces: Vec<Vec<u8>>,
    closes: bool,
}

impl Reply {
    /// Says nothing, and keeps the connection.
    pub fn silence() -> Self {
        Self::default()
    }

    /// Writes this.
    pub fn of(bytes: impl Into<Vec<u8>>) -> Self {
        Self { pieces: vec![bytes.into()], ..Self::default() }
    }

    /// Writes these, one after the other.
    pub fn pieces(pieces: impl IntoIterator<Item = impl Into<Vec<u8>>>) -> Self {
        Self { pieces: pieces.into_iter().map(Into::into).collect(), ..Self::default() }
    }

    /// But first waits.
    pub fn after(self, wait: Duration) -> Self {
        Self { wait, ..self }
    }

    /// And closes the connection.
    pub fn and_close(self) -> Self {
        Self { closes: true, ..self }
    }

    /// And never reads the request's body.
    pub fn unread(self) -> Self {
        Self { leaves_body: true, ..self }
    }
}

/// Which request it is, counted from one.
#[derive(Clone, Copy, Debug)]
pub struct Number {
    /// On its connection.
    pub of_connection: u64,
    /// Of all.
    pub of_all: u64,
}

/// The server. Its threads end with the test.
pub struct Misbehaving {
    address: SocketAddr,
    seen: Arc<Seen>,
}

#[derive(Default)]
struct Seen {
    connections: AtomicU64,
    requests: AtomicU64,
}

impl Misbehaving {
    /// Listens on a free port, and answers every request as `reply` says; it is asked when the request is there.
    pub fn start(reply: impl Fn(Number) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let seen = Arc::new(Seen::default());
        let (of_server, reply) = (seen.clone(), Arc::new(reply));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                of_server.connections.fetch_add(1, SeqCst);
                let (seen, reply) = (of_server.clone(), reply.clone());
                // An error is a client that went away: nothing to do about it.
                thread::spawn(move || serve(stream, &seen, &*reply));
            }
        });
        Self { address, seen }
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// Connections it accepted.
    pub fn connections(&self) -> u64 {
        self.seen.connections.load(SeqCst)
    }

    /// Requests whose head it read.
    pub fn requests(&self) -> u64 {
        self.seen.requests.load(SeqCst)
    }
}

fn serve(stream: TcpStream, seen: &Seen, reply: &dyn Fn(Number) -> Reply) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let (mut requests, mut responses) = (BufReader::with_capacity(1, stream.try_clone()?), stream);
    for of_connection in 1.. {
        let Some(body_bytes) = take_head(&mut requests)? else { return Ok(()) };
        let of_all = seen.requests.fetch_add(1, SeqCst) + 1;
        let reply = reply(Number { of_connection, of_all });
        if !reply.leaves_body {
            std::io::copy(&mut (&mut requests).take(body_bytes), &mut std::io::sink())?;
        }
        thread::sleep(reply.wait);
        for piece in &reply.pieces {
            responses.write_all(piece)?;
        }
        if reply.closes {
            return Ok(());
        }
    }
    Ok(())
}

/// The Content-Length of the next request; `None`: there is none.
fn take_head(requests: &mut impl BufRead) -> std::io::Result<Option<u64>> {
    let (mut body_bytes, mut line) = (0, String::new());
    while requests.read_line(&mut line)? > 0 {
        if line == "\r\n" {
            return Ok(Some(body_bytes));
        }
        if let Some(length) = line.strip_prefix("Content-Length: ") {
            body_bytes = length.trim().parse().map_err(std::io::Error::other)?;
        }
        line.clear();
    }
    Ok(None)
}

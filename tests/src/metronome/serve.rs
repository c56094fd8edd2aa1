//! Listening, accepting, and which thread or process serves a connection.

use std::{
    fmt,
    io::{self, IoSlice, IoSliceMut, Write},
    mem::MaybeUninit,
    net::{SocketAddr, TcpListener},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::{UnixListener, UnixStream},
    },
    path::PathBuf,
    thread,
};

use anyhow::{Context, Result, bail};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, acceptfrom_with, bind, listen, recvmsg,
    sendmsg, socket_with,
    sockopt::{set_socket_reuseaddr, set_socket_reuseport, set_tcp_nodelay},
};

use super::{clock::Moment, connection::Connection, event_loop, log::Log};

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 1_024;

/// Who serves a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Mode {
    /// A thread of its own.
    Threads,
    /// The accepting thread; the next connection is accepted when this one is over.
    Single,
    /// One event loop.
    Loop,
    /// Forked workers with an event loop each, all accepting from one socket.
    Fork,
    /// Forked workers with an event loop and a listening socket each (SO_REUSEPORT).
    Reuseport,
    /// Another process, to which the accepting one passes the connection over a UNIX socket.
    Pass,
}

/// Options of the metronome.
#[derive(Clone, Debug, clap::Parser)]
#[command(name = "metronome")]
pub struct Options {
    /// Who serves a connection
    #[arg(long, default_value = "threads")]
    pub mode: Mode,
    /// Processes of `fork` and `reuseport`
    #[arg(long, default_value_t = 2)]
    pub workers: usize,
    /// Where to listen
    #[arg(long, default_value = "127.0.0.1:0")]
    pub listen: Vec<SocketAddr>,
    /// Listen on this UNIX socket as well
    #[arg(long)]
    pub unix: Option<PathBuf>,
    /// Where to write what was done and when
    #[arg(long)]
    pub log: PathBuf,
}

/// A listening socket.
#[derive(Debug)]
pub enum Listener {
    /// Of TCP.
    Tcp(TcpListener),
    /// Of the file system.
    Unix(UnixListener),
}

impl fmt::Display for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(listener) => write!(f, "{}", listener.local_addr().map_err(|_| fmt::Error)?),
            Self::Unix(_) => write!(f, "a UNIX socket"),
        }
    }
}

impl Listener {
    fn bind(address: SocketAddr, shares_port: bool) -> Result<Self> {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        set_socket_reuseaddr(&socket, true)?;
        set_socket_reuseport(&socket, shares_port)?;
        bind(&socket, &address).with_context(|| format!("cannot bind {address}"))?;
        listen(&socket, BACKLOG)?;
        Ok(Self::Tcp(socket.into()))
    }

    /// Its descriptor.
    pub fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(listener) => listener.as_fd(),
            Self::Unix(listener) => listener.as_fd(),
        }
    }

    /// Accepting does not block.
    pub fn set_nonblocking(&self) -> io::Result<()> {
        match self {
            Self::Tcp(listener) => listener.set_nonblocking(true),
            Self::Unix(listener) => listener.set_nonblocking(true),
        }
    }
}

/// One accept, with the moments around it.
pub fn accept(listener: &Listener, nonblocking: bool) -> io::Result<(OwnedFd, (Moment, Moment))> {
    let flags = if nonblocking { SocketFlags::NONBLOCK } else { SocketFlags::empty() };
    let begin = Moment::before();
    let accepted = acceptfrom_with(listener.fd(), flags | SocketFlags::CLOEXEC);
    let end = Moment::after();
    let (socket, _) = accepted?;
    if matches!(listener, Listener::Tcp(_)) {
        set_tcp_nodelay(&socket, true)?;
    }
    Ok((socket, (begin, end)))
}

/// Serves until the process is ended. Prints one line, `listening on ADDRESS`, for every socket.
pub fn serve(options: &Options) -> Result<()> {
    let log = Log::open(&options.log)?;
    let shares_port = options.mode == Mode::Reuseport;
    let mut listeners = Vec::new();
    for address in &options.listen {
        listeners.push(Listener::bind(*address, shares_port)?);
    }
    if let Some(path) = &options.unix {
        let listener = UnixListener::bind(path);
        listeners
            .push(Listener::Unix(listener.with_context(|| format!("cannot listen on {}", path.display()))?));
    }
    let announced: Vec<String> =
        listeners.iter().map(|listener| format!("listening on {listener}\n")).collect();
    let announce = || {
        let mut stdout = io::stdout();
        stdout.write_all(announced.concat().as_bytes()).and_then(|()| stdout.flush())
    };
    match options.mode {
        Mode::Threads => {
            announce()?;
            on_threads(listeners, &log)
        }
        Mode::Single => {
            announce()?;
            one_by_one(&listeners[0], &log)
        }
        Mode::Loop => {
            announce()?;
            Ok(event_loop::run(&listeners, &log)?)
        }
        Mode::Fork => {
            fork_workers(options.workers, |_| Ok(event_loop::run(&listeners, &log)?))?;
            announce()?;
            wait_for_workers()
        }
        Mode::Reuseport => {
            let Listener::Tcp(first) = &listeners[0] else { bail!("reuseport is of TCP") };
            let address = first.local_addr()?;
            let sockets = (0..options.workers).map(|_| Listener::bind(address, true));
            let sockets = sockets.collect::<Result<Vec<_>>>()?;
            // Connections would be dealt to it as well, and nobody would accept them.
            drop(listeners);
            fork_workers(options.workers, |index| {
                Ok(event_loop::run(std::slice::from_ref(&sockets[index]), &log)?)
            })?;
            // Each worker keeps only its own, or the port would have listeners that outlive it.
            drop(sockets);
            announce()?;
            wait_for_workers()
        }
        Mode::Pass => {
            let (ours, theirs) = UnixStream::pair()?;
            fork_workers(1, |_| receive_connections(&theirs, &log))?;
            announce()?;
            pass_connections(&listeners[0], &ours)
        }
    }
}

fn on_threads(listeners: Vec<Listener>, log: &Log) -> Result<()> {
    let acceptors: Vec<_> = listeners
        .into_iter()
        .map(|listener| {
            let log = log.clone();
            thread::spawn(move || -> io::Result<()> {
                loop {
                    let (socket, moments) = accept(&listener, false)?;
                    let connection = Connection::accepted(socket, moments, log.clone());
                    thread::spawn(move || serve_one(connection));
                }
            })
        })
        .collect();
    for acceptor in acceptors {
        acceptor.join().map_err(|_| anyhow::anyhow!("an accepting thread panicked"))??;
    }
    Ok(())
}

fn one_by_one(listener: &Listener, log: &Log) -> Result<()> {
    loop {
        let (socket, moments) = accept(listener, false)?;
        serve_one(Connection::accepted(socket, moments, log.clone()));
    }
}

fn serve_one(connection: Connection) {
    // A client that went away is no error of the server's, and what is no command is the test's.
    if let Err(error) = connection.serve()
        && error.kind() == io::ErrorKind::InvalidData
    {
        eprintln!("metronome: {error}");
    }
}

/// Forks so many processes, each of which does `work` and ends.
fn fork_workers(workers: usize, work: impl Fn(usize) -> Result<()>) -> Result<()> {
    for index in 0..workers {
        // SAFETY: this process has one thread until all workers are forked.
        match unsafe { libc::fork() } {
            -1 => return Err(io::Error::last_os_error()).context("cannot fork"),
            0 => {
                rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
                if let Err(error) = work(index) {
                    eprintln!("metronome, worker {index}: {error:#}");
                }
                std::process::exit(1);
            }
            _ => {}
        }
    }
    Ok(())
}

/// Workers end only by being ended, with their parent.
fn wait_for_workers() -> Result<()> {
    rustix::process::wait(rustix::process::WaitOptions::empty())?;
    bail!("a worker ended")
}

fn pass_connections(listener: &Listener, to: &UnixStream) -> Result<()> {
    loop {
        let (socket, (begin, end)) = accept(listener, false)?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let fds = [socket.as_fd()];
        control.push(SendAncillaryMessage::ScmRights(&fds));
        let moments = [begin, end].map(|moment| [moment.at_ns, moment.cpu_ns, moment.run_queue_ns]);
        let bytes: Vec<u8> = moments.as_flattened().iter().flat_map(|number| number.to_ne_bytes()).collect();
        sendmsg(to, &[IoSlice::new(&bytes)], &mut control, SendFlags::empty())?;
    }
}

fn receive_connections(from: &UnixStream, log: &Log) -> Result<()> {
    loop {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut bytes = [0; 48];
        let received =
            recvmsg(from, &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
        if received.bytes == 0 {
            return Ok(());
        }
        let number =
            |index: usize| u64::from_ne_bytes(bytes[index * 8..][..8].try_into().expect("eight bytes"));
        let moment =
            |at: usize| Moment { at_ns: number(at), cpu_ns: number(at + 1), run_queue_ns: number(at + 2) };
        for message in control.drain() {
            let RecvAncillaryMessage::ScmRights(sockets) = message else { continue };
            for socket in sockets {
                let connection = Connection::accepted(socket, (moment(0), moment(3)), log.clone());
                thread::spawn(move || serve_one(connection));
            }
        }
    }
}

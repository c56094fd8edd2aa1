//! A metronome that runs, a window of `tracer` on it, and both sides' accounts of each request.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    io::{BufRead, BufReader},
    net::{SocketAddr, TcpStream},
    ops::RangeInclusive,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use procfs::process::Process;
use rustix::{
    net::{
        AddressFamily, SocketFlags, SocketType, connect, socket_with, sockopt::set_socket_recv_buffer_size,
    },
    process::{Pid, Signal, kill_process},
};
use tempfile::TempDir;
use tracer::{
    load::{Driver, Expectation, Plan, Route},
    probe::Options,
    recording::{Phase, Request, ThreadStates},
    target::cores::pin_current_thread,
    window::{Settings, Traced, Window},
};

use crate::{
    cli::descendants,
    metronome::{
        client::{Client, Exchange},
        clock::Span,
        log::{self, Stamp},
    },
    truth::{Requests, cpus, program},
};

/// Longest wait for the metronome's log.
const PATIENCE: Duration = Duration::from_secs(10);

/// A metronome and what it needs.
pub struct Stage {
    child: Child,
    folder: TempDir,
    /// Where it listens, in the order asked for.
    pub addresses: Vec<SocketAddr>,
    window: Option<Window<Requests>>,
    exchanges: BTreeMap<u64, Exchange>,
}

impl Stage {
    /// Starts the metronome on the server's CPU. `arguments` as on its command line.
    pub fn start(arguments: &[&str]) -> Result<Self> {
        Self::start_by(&[], arguments)
    }

    /// The same, started by another program: `unshare`, say.
    pub fn start_by(starter: &[&str], arguments: &[&str]) -> Result<Self> {
        let folder = TempDir::with_prefix("tracer-metronome-").context("cannot make a folder")?;
        let metronome = program("metronome");
        let mut words = starter.iter().map(OsStr::new).chain([metronome.as_os_str()]);
        let mut command = Command::new(words.next().context("there is a program")?);
        command
            .args(words)
            .args(arguments)
            .arg("--log")
            .arg(folder.path().join("log"))
            .stdout(Stdio::piped());
        let mut child = on_server_cpu(move || command.spawn()).context("cannot start the metronome")?;
        let listeners = arguments.iter().filter(|argument| **argument == "--listen").count().max(1);
        let mut lines = BufReader::new(child.stdout.take().context("it is piped")?).lines();
        let addresses = (0..listeners)
            .map(|_| {
                let line = lines.next().context("the metronome ended")??;
                let address = line.strip_prefix("listening on ").and_then(|address| address.parse().ok());
                address.with_context(|| format!("no address in {line:?}"))
            })
            .collect::<Result<_>>()?;
        Ok(Self { child, folder, addresses, window: None, exchanges: BTreeMap::new() })
    }

    /// Starts it and opens the window.
    pub fn traced(arguments: &[&str]) -> Result<Self> {
        let mut stage = Self::start(arguments)?;
        stage.open()?;
        Ok(stage)
    }

    /// Opens the window.
    pub fn open(&mut self) -> Result<()> {
        self.open_with(Options::default())
    }

    /// The same with other sizes of the kernel's maps.
    pub fn open_with(&mut self, probes: Options) -> Result<()> {
        let settings = Settings {
            processes: self.processes(),
            ports: self.addresses.iter().map(SocketAddr::port).collect(),
            probes,
            keeps_query: false,
            joins_samples: false,
        };
        cpus().client.iter().try_for_each(|&cpu| pin_current_thread(cpu))?;
        self.window = Some(Window::open(&settings, Requests::default())?);
        Ok(())
    }

    /// Its processes.
    pub fn processes(&self) -> Vec<u32> {
        let first = self.child.id();
        [vec![first], descendants(first)].concat()
    }

    /// A new connection to it.
    pub fn client(&self) -> Result<Client> {
        Client::connect(self.addresses[0]).context("the metronome does not accept")
    }

    /// A bare connection that can receive so many bytes ahead of its reader.
    pub fn client_with_window(&self, bytes: usize) -> Result<TcpStream> {
        let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        // Before the handshake: later it no longer bounds the window.
        set_socket_recv_buffer_size(&socket, bytes)?;
        connect(&socket, &self.addresses[0])?;
        Ok(socket.into())
    }

    /// A driver that sends requests 1, 2, 3 and so on, all with the same script. `rate`: so many per second.
    pub fn driver(&self, script: &str, connections: usize, rate: Option<f64>) -> Result<Driver> {
        let route = Route {
            method: "GET".into(),
            path: format!("/{{counter:7}}?{script}"),
            headers: Vec::new(),
            body: Vec::new(),
            expect: Expectation { status: 200, body: None },
            weight: 1,
        };
        let cores = cpus().client.clone();
        Driver::start(Plan { connections, rate, cores, ..Plan::new(self.addresses[0], vec![route]) })
    }

    /// One request without a body, and its response.
    pub fn get(&mut self, client: &mut Client, id: u64, script: &str) -> Result<()> {
        let exchange = client.get(id, script).with_context(|| format!("request {id}: {script}"))?;
        self.exchanges.insert(id, exchange);
        Ok(())
    }

    /// Waits until every thread of the metronome is asleep: those that serve are inside their reads.
    pub fn until_asleep(&self) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        let runs = |pid: u32| -> Result<bool> {
            let mut tasks = Process::new(pid as i32)?.tasks()?;
            Ok(tasks.any(|task| task.and_then(|task| task.stat()).is_ok_and(|stat| stat.state != 'S')))
        };
        while self.processes().into_iter().map(runs).collect::<Result<Vec<_>>>()?.contains(&true) {
            ensure!(Instant::now() < deadline, "the metronome does not come to rest");
            thread::yield_now();
        }
        Ok(())
    }

    /// Waits until the metronome has written down so many requests: their steps are all done.
    pub fn until_stamped(&self, requests: usize) -> Result<BTreeMap<u64, Vec<Stamp>>> {
        let path = self.folder.path().join("log");
        let deadline = Instant::now() + PATIENCE;
        loop {
            let stamps = log::read(&path)?;
            if stamps.len() >= requests {
                return Ok(stamps);
            }
            ensure!(Instant::now() < deadline, "the metronome wrote down {} of {requests}", stamps.len());
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Closes the window when the metronome has written down `stamped` requests. `sent` were sent in the window.
    pub fn finish(mut self, stamped: usize, sent: u64) -> Result<Seen> {
        let stamps = self.until_stamped(stamped)?;
        let window = self.window.take().context("a window was opened")?;
        let (traced, requests) = window.close(Some(sent))?;
        Ok(Seen { traced, requests: requests.0, stamps, exchanges: std::mem::take(&mut self.exchanges) })
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // What a starter started does not end with it.
        for process in self.processes().into_iter().skip(1).filter_map(|id| Pid::from_raw(id as i32)) {
            let _ = kill_process(process, Signal::KILL);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Does something on a thread bound to the server's CPU: a process started there stays there.
pub fn on_server_cpu<T: Send>(work: impl FnOnce() -> std::io::Result<T> + Send) -> Result<T> {
    let bound = || {
        cpus().server.iter().try_for_each(|&cpu| pin_current_thread(cpu))?;
        Ok(work()?)
    };
    thread::scope(|scope| scope.spawn(bound).join()).unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// What both sides know.
pub struct Seen {
    /// `tracer`'s counts.
    pub traced: Traced,
    /// `tracer`'s requests.
    pub requests: Vec<Request>,
    /// The metronome's stamps, by request.
    pub stamps: BTreeMap<u64, Vec<Stamp>>,
    /// The client's times, by request.
    pub exchanges: BTreeMap<u64, Exchange>,
}

/// One request, as everybody saw it.
#[derive(Clone, Copy)]
pub struct One<'s> {
    /// Its number.
    pub id: u64,
    /// By `tracer`.
    pub request: &'s Request,
    /// By the metronome.
    pub stamps: &'s [Stamp],
    /// By the client.
    pub exchange: Exchange,
}

impl Seen {
    /// The requests that `tracer` gave the path of one of these numbers, with what the others know of it.
    pub fn each(&self, ids: impl IntoIterator<Item = u64>) -> Vec<One<'_>> {
        let mut named = BTreeMap::<u64, Vec<&Request>>::new();
        for request in &self.requests {
            if let Ok(id) = request.path.trim_start_matches('/').parse() {
                named.entry(id).or_default().push(request);
            }
        }
        let one = |(id, request)| One {
            id,
            request,
            stamps: self.stamps.get(&id).map_or(&[], Vec::as_slice),
            exchange: self.exchanges.get(&id).copied().unwrap_or_default(),
        };
        let of_id = |id| named.get(&id).into_iter().flatten().map(move |&request| (id, request));
        ids.into_iter().flat_map(of_id).map(one).collect()
    }

    /// The ledger in words: what went wrong, or nothing.
    pub fn complaints(&self) -> String {
        let ledger = &self.traced.tally.ledger;
        let unexplained = ledger.unexplained().unwrap_or_default();
        let mut complaints = Vec::new();
        for (count, what) in [
            (unexplained, "unexplained"),
            (ledger.defects as i64, "defects"),
            (ledger.unmatched_edges as i64, "unmatched"),
            (ledger.lost_ring_full as i64, "lost"),
            (ledger.mid_flight as i64, "in flight"),
        ] {
            if count != 0 {
                complaints.push(format!("{count} {what}"));
            }
        }
        complaints.extend(ledger.defect_example.clone());
        if complaints.is_empty() { "nothing".to_owned() } else { complaints.join(", ") }
    }
}

impl<'s> One<'s> {
    /// Reads that took bytes.
    pub fn reads(&self) -> impl DoubleEndedIterator<Item = &'s Stamp> + use<'s> {
        self.stamps.iter().filter(|stamp| stamp.is_read() && stamp.result > 0)
    }

    /// Write calls, failed ones too.
    pub fn writes(&self) -> impl DoubleEndedIterator<Item = &'s Stamp> + use<'s> {
        self.stamps.iter().filter(|stamp| stamp.is_write())
    }

    /// The stamp of a step.
    pub fn did(&self, what: &str) -> &'s Stamp {
        let found = self.stamps.iter().find(|stamp| stamp.what == what);
        found.unwrap_or_else(|| panic!("request {} has no stamp `{what}`: {:?}", self.id, self.stamps))
    }

    /// The read before the first write.
    pub fn last_read(&self) -> &'s Stamp {
        let write_ns = self.first_write().begin.at_ns;
        let read = self.reads().rfind(|read| read.end.at_ns <= write_ns);
        read.unwrap_or_else(|| panic!("request {} was not read: {:?}", self.id, self.stamps))
    }

    /// The first write call.
    pub fn first_write(&self) -> &'s Stamp {
        self.writes()
            .next()
            .unwrap_or_else(|| panic!("request {} was not answered: {:?}", self.id, self.stamps))
    }

    /// The last write call.
    pub fn last_write(&self) -> &'s Stamp {
        self.writes().next_back().unwrap_or_else(|| panic!("request {} was not answered", self.id))
    }

    /// What the thread did from the last read to the first write, by its stamps.
    pub fn app(&self) -> Span {
        self.last_read().end.until(&self.first_write().begin)
    }

    /// What the thread did in a phase, by `tracer`.
    pub fn said(&self, phase: Phase) -> ThreadStates {
        self.request.states[phase as usize]
    }

    /// From when the first byte was readable, at the earliest and at the latest, to a moment.
    pub fn since_sent(&self, at_ns: u64) -> RangeInclusive<u64> {
        at_ns.saturating_sub(self.exchange.sent_ns)..=at_ns.saturating_sub(self.exchange.send_ns)
    }
}

/// The truth when it is exact.
pub fn exactly(ns: u64) -> RangeInclusive<u64> {
    ns..=ns
}

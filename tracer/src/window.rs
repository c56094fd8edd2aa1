//! One traced window: programs attached, records read and attributed on a thread of their own, accounts taken at both
//! edges. Opens and closes in one place each, so that nothing is counted outside.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, Sender, channel},
    },
    thread::JoinHandle,
    time::Duration,
};

use anyhow::{Context, Result, anyhow};
use rustix::time::{ClockId, clock_gettime};
use tracer_common::counters::Counter;

use crate::{
    attribution::{Attribution, Awaited, Tally, join::Joiner},
    load::{ClientRecord, monotonic_ns},
    probe::{Options, Probes, ProgramRuns, hooks::Detail, reader::Reader, switch_every_cpu},
    recording::{Conservation, HolderTotals, Ledger, Request, SyscallTotals},
    target::{
        cpu::{CpuAccount, CpuTimes, stolen_ns},
        throttle::throttled_ns,
    },
};

/// Pause of the reader between two looks at the lanes. They hold many times what arrives meanwhile.
const READER_PAUSE: Duration = Duration::from_millis(5);

/// Where attributed requests go.
pub trait Sink: Send + 'static {
    /// Takes one request.
    fn take(&mut self, request: Request) -> Result<()>;
}

/// Whom to trace, and how.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Processes of the target; their children join by themselves.
    pub processes: Vec<u32>,
    /// Ports known to be served.
    pub ports: Vec<u16>,
    /// Programs and map sizes.
    pub probes: Options,
    /// Keep query strings in paths.
    pub keeps_query: bool,
    /// Our own driver sends: its times are joined with the requests, and all other connections are of other clients.
    pub joins_samples: bool,
}

/// An open window.
pub struct Window<S: Sink> {
    probes: Probes,
    account: CpuAccount,
    /// A process of the target, and how long its cgroups had been throttled at the beginning.
    throttled: Option<(u32, u64)>,
    begin: Edge,
    stop: Arc<AtomicBool>,
    samples: Sender<ClientRecord>,
    reader: JoinHandle<Read<S>>,
}

/// What a window saw, besides the requests.
#[derive(Clone, Debug, Default)]
pub struct Traced {
    /// Nanoseconds it was open.
    pub window_ns: u64,
    /// Attribution's counts; the ledger is complete but for `sent`.
    pub tally: Tally,
    /// Syscalls, most frequent first.
    pub syscalls: Vec<SyscallTotals>,
    /// Who held the CPUs, longest first.
    pub holders: Vec<HolderTotals>,
    /// The target's accounts.
    pub conservation: Conservation,
    /// Nanoseconds the target's cgroups were throttled meanwhile; `None`: not to be told.
    pub throttled_ns: Option<u64>,
    /// CPU nanoseconds of the reader's thread.
    pub reader_cpu_ns: u64,
    /// Memory of the maps in bytes.
    pub map_bytes: u64,
    /// Run time of the programs, when the kernel keeps statistics.
    pub program_runs: Vec<ProgramRuns>,
}

/// Accounts at one edge of the window.
struct Edge {
    at_ns: u64,
    cpu: CpuTimes,
    stolen_ns: u64,
    counters: Vec<(Counter, u64)>,
}

impl Edge {
    fn now(probes: &Probes, account: &mut CpuAccount) -> Result<Self> {
        // Running threads are counted up to their last switch: make them switch.
        switch_every_cpu()?;
        Ok(Self {
            counters: probes.counters()?,
            cpu: account.sample(),
            stolen_ns: stolen_ns(),
            at_ns: monotonic_ns(),
        })
    }
}

/// What the reader's thread brings back.
struct Read<S> {
    sink: S,
    tally: Tally,
    result: Result<()>,
    cpu_ns: u64,
}

impl<S: Sink> Window<S> {
    /// Loads and attaches the programs, and starts reading.
    pub fn open(settings: &Settings, sink: S) -> Result<Self> {
        let mut probes = Probes::load(&settings.probes)?;
        for &process in &settings.processes {
            probes.add_process(process)?;
        }
        for &port in &settings.ports {
            probes.serve_port(port)?;
        }
        let reader = probes.take_reader()?;
        let stop = Arc::new(AtomicBool::new(false));
        let (samples, incoming) = channel();
        let reading = Reading {
            reader,
            attribution: Attribution::new(settings.keeps_query).awaiting(Awaited {
                drain: settings.probes.details.contains(&Detail::Drain),
                ack: settings.probes.details.contains(&Detail::Acks),
            }),
            joiner: settings.joins_samples.then(Joiner::default),
            incoming,
            sink,
            result: Ok(()),
        };
        let thread = {
            let stop = stop.clone();
            std::thread::Builder::new().name("tracer-reader".into()).spawn(move || reading.until(&stop))
        };
        let thread = thread.context("cannot start the reader's thread")?;
        probes.attach()?;
        let mut account = CpuAccount::new(&settings.processes);
        let begin = Edge::now(&probes, &mut account)?;
        let process = settings.processes.first().copied();
        let throttled = process.and_then(|process| Some((process, throttled_ns(process)?)));
        Ok(Self { probes, account, throttled, begin, stop, samples, reader: thread })
    }

    /// Where a driver tells of its connections and sends its samples as they come, in order for each connection.
    pub fn samples(&self) -> Sender<ClientRecord> {
        self.samples.clone()
    }

    /// Detaches, reads what is left and gives everything back. `sent`: requests the driver sent in the window.
    pub fn close(mut self, sent: Option<u64>) -> Result<(Traced, S)> {
        let end = Edge::now(&self.probes, &mut self.account)?;
        self.probes.detach()?;
        self.stop.store(true, Ordering::Release);
        drop(self.samples);
        let read =
            self.reader.join().map_err(|_| anyhow!("the reader's thread panicked; please report this"))?;
        read.result?;
        let mut traced = Traced {
            window_ns: end.at_ns - self.begin.at_ns,
            tally: read.tally,
            syscalls: self.probes.syscalls()?,
            holders: self.probes.holders()?,
            conservation: Conservation::default(),
            throttled_ns: self
                .throttled
                .and_then(|(process, before_ns)| Some(throttled_ns(process)?.saturating_sub(before_ns))),
            reader_cpu_ns: read.cpu_ns,
            map_bytes: self.probes.map_bytes(),
            program_runs: self.probes.program_runs()?,
        };
        traced.conservation = conservation(&self.begin, &end, traced.tally.charged_cpu_ns);
        traced.conservation.exited_processes = self.account.exited();
        complete(&mut traced.tally.ledger, &self.probes.counters()?, sent);
        Ok((traced, read.sink))
    }
}

impl Traced {
    /// Adds another window of the same target.
    pub fn merge(&mut self, other: Self) {
        self.window_ns += other.window_ns;
        self.throttled_ns = self.throttled_ns.zip(other.throttled_ns).map(|(a, b)| a + b);
        self.reader_cpu_ns += other.reader_cpu_ns;
        self.map_bytes = self.map_bytes.max(other.map_bytes);
        self.tally.merge(other.tally);
        merge_by(
            &mut self.syscalls,
            other.syscalls,
            |a, b| a.name == b.name,
            |a, b| {
                a.calls += b.calls;
                a.eagain += b.eagain;
                a.wall_ns += b.wall_ns;
                a.cpu_ns += b.cpu_ns;
            },
        );
        self.syscalls.sort_by(|a, b| b.calls.cmp(&a.calls).then_with(|| a.name.cmp(&b.name)));
        merge_by(&mut self.holders, other.holders, |a, b| a.tid == b.tid, |a, b| a.held_ns += b.held_ns);
        self.holders.sort_by_key(|holder| std::cmp::Reverse(holder.held_ns));
        merge_by(
            &mut self.program_runs,
            other.program_runs,
            |a, b| a.name == b.name,
            |a, b| {
                a.run_ns += b.run_ns;
                a.runs += b.runs;
            },
        );
        self.conservation.merge(&other.conservation);
    }
}

fn merge_by<T>(all: &mut Vec<T>, more: Vec<T>, same: impl Fn(&T, &T) -> bool, add: impl Fn(&mut T, &T)) {
    for item in more {
        match all.iter_mut().find(|known| same(known, &item)) {
            Some(known) => add(known, &item),
            None => all.push(item),
        }
    }
}

/// The target's CPU and run-queue time in the window, by our hooks and by /proc.
fn conservation(begin: &Edge, end: &Edge, charged_cpu_ns: u64) -> Conservation {
    let cpu = end.cpu.since(begin.cpu);
    let counted = |counter| count_of(&end.counters, counter) - count_of(&begin.counters, counter);
    Conservation {
        traced_cpu_ns: counted(Counter::CpuNs),
        schedstat_cpu_ns: cpu.cpu_ns,
        traced_run_queue_ns: counted(Counter::RunQueueNs),
        run_queue_after_wakeup_ns: counted(Counter::RunQueueAfterWakeupNs),
        switches: counted(Counter::SwitchesBlocked) + counted(Counter::SwitchesPreempted),
        schedstat_run_delay_ns: cpu.run_delay_ns,
        charged_cpu_ns,
        stolen_ns: end.stolen_ns.saturating_sub(begin.stolen_ns),
        exited_processes: 0,
    }
}

fn count_of(counters: &[(Counter, u64)], wanted: Counter) -> u64 {
    counters.iter().find(|(counter, _)| *counter == wanted).map_or(0, |(_, count)| *count)
}

/// Adds what only the kernel side and the driver know.
fn complete(ledger: &mut Ledger, counters: &[(Counter, u64)], sent: Option<u64>) {
    ledger.sent = sent;
    ledger.lost_ring_full += count_of(counters, Counter::RequestsNotRecorded);
    ledger.lost_connections_full += count_of(counters, Counter::RequestsWithoutSlot);
    ledger.kernel_counters =
        counters.iter().map(|(counter, count)| (counter.name().to_owned(), *count)).collect();
}

/// The reader's thread: lanes to attribution to sink.
struct Reading<S: Sink> {
    reader: Reader,
    attribution: Attribution,
    joiner: Option<Joiner>,
    incoming: Receiver<ClientRecord>,
    sink: S,
    result: Result<()>,
}

impl<S: Sink> Reading<S> {
    fn until(mut self, stop: &AtomicBool) -> Read<S> {
        loop {
            // Asked before the look: what was written before the stop is still taken.
            let stopping = stop.load(Ordering::Acquire);
            self.drain(if stopping { u64::MAX } else { monotonic_ns() });
            if stopping {
                break;
            }
            std::thread::sleep(READER_PAUSE);
        }
        self.finish()
    }

    fn drain(&mut self, now_ns: u64) {
        // After `now_ns` was read: a connection of the driver's is told of before it carries a request.
        self.hear_driver();
        let Self { reader, attribution, joiner, sink, result, .. } = self;
        let mut put = |request| {
            if result.is_ok() {
                *result = sink.take(request);
            }
        };
        reader.drain(now_ns, |record| {
            attribution.take(record, &mut |request| match joiner {
                Some(joiner) => joiner.request(request, &mut put),
                None => put(request),
            });
            for unanswered in attribution.tally.unanswered.drain(..) {
                if let Some(joiner) = joiner {
                    joiner.unanswered(unanswered);
                }
            }
        });
    }

    /// Takes what the driver has told by now.
    fn hear_driver(&mut self) {
        let Self { joiner, incoming, sink, result, .. } = self;
        let Some(joiner) = joiner else { return };
        let mut put = |request| {
            if result.is_ok() {
                *result = sink.take(request);
            }
        };
        incoming.try_iter().for_each(|record| joiner.client(record, &mut put));
    }

    fn finish(mut self) -> Read<S> {
        self.hear_driver();
        let Self { reader, attribution, joiner, sink, result, .. } = &mut self;
        let mut put = |request| {
            if result.is_ok() {
                *result = sink.take(request);
            }
        };
        attribution.finish(&mut |request| match joiner {
            Some(joiner) => joiner.request(request, &mut put),
            None => put(request),
        });
        let Tally { ledger, unanswered, .. } = &mut attribution.tally;
        ledger.defects += reader.foreign;
        if let Some(joiner) = joiner {
            unanswered.drain(..).for_each(|unanswered| joiner.unanswered(unanswered));
            joiner.finish(&mut put);
            ledger.joined += joiner.counts.joined;
            ledger.other_clients += joiner.counts.other_clients;
            ledger.defects += joiner.counts.contradictions;
            if let Some(example) = joiner.counts.contradiction_example.take() {
                ledger.defect_example.get_or_insert(example);
            }
        }
        let cpu = clock_gettime(ClockId::ThreadCPUTime);
        Read {
            cpu_ns: cpu.tv_sec as u64 * 1_000_000_000 + cpu.tv_nsec as u64,
            sink: self.sink,
            tally: self.attribution.tally,
            result: self.result,
        }
    }
}

//! Server CPU per request, traced against untraced: the probes are switched inside one load run, in short paired slots.
//! Rounds of seconds cannot see a microsecond; neighbours in time can.

use std::{
    process::{Command, Stdio},
    sync::atomic::{AtomicU64, Ordering},
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use tracer::{
    load::Stop,
    probe::{Options, Probes},
};

use super::{
    Bed, ServerName,
    estimate::{Estimate, median_of},
    goal, no_errors,
    reader::Discarding,
    take_places,
};
use crate::Verdict;

/// Not measured after each switch.
const SETTLE: Duration = Duration::from_millis(12);
const SLOT: Duration = Duration::from_millis(90);
const STRACE_SLOT: Duration = Duration::from_secs(1);
const STRACE_PAIRS: usize = 3;
/// The server's core counts as saturated from here on: below, a batch of requests is smaller and costs more each.
const SATURATED: f64 = 0.98;
/// Saturated pairs that give an estimate of their own.
const ENOUGH_SATURATED: usize = 30;
/// A slot in which the load got no CPU says nothing: it is measured again, so often.
const ATTEMPTS: usize = 20;
/// Longer than any run: the load is stopped by its flag.
const FOREVER: Duration = Duration::from_secs(3600);

#[derive(clap::Args)]
pub struct Args {
    /// Only this server
    #[arg(long, value_enum)]
    server: Option<ServerName>,
    /// Pairs of a traced and an untraced slot
    #[arg(long, default_value_t = 150)]
    slots: usize,
    /// Connections of the load
    #[arg(long, default_value_t = 32)]
    connections: usize,
}

pub fn run(args: &Args) -> Result<Verdict> {
    let placement = take_places()?;
    let all = [(ServerName::Builtin, 1.20), (ServerName::NodeHttp, 1.08)];
    let mut reached = Vec::new();
    for (server, limit) in
        all.into_iter().filter(|(server, _)| args.server.is_none_or(|only| only == *server))
    {
        let mut bed = Bed::start(server, args.connections, &placement)?;
        let measured = measure(&mut bed, args.slots)?;
        reached.push(measured.print(server, args.connections, limit)?);
    }
    Ok(Verdict::of_all(reached))
}

/// What a slot showed.
#[derive(Clone, Copy)]
struct Slot {
    /// CPU microseconds per request.
    us: f64,
    /// Share of the server's core.
    busy: f64,
}

#[derive(Clone, Copy)]
struct Pair {
    off: Slot,
    on: Slot,
}

impl Pair {
    fn saturated(&self) -> bool {
        self.off.busy.min(self.on.busy) >= SATURATED
    }
}

#[derive(Default)]
struct Measured {
    pairs: Vec<Pair>,
    control: Vec<Pair>,
    strace: Vec<Pair>,
    attributed: u64,
}

fn measure(bed: &mut Bed, slots: usize) -> Result<Measured> {
    let pid = bed.target.pid();
    let mut probes = Probes::load(&Options::default())?;
    probes.add_process(pid)?;
    probes.serve_port(bed.target.port())?;
    let reader = Discarding::start(probes.take_reader()?);
    let (progress, stop) = (bed.driver.progress(), bed.driver.stop_flag());
    let meter = Meter { pid, answered: &progress };
    let driver = &mut bed.driver;
    let (measured, load) = std::thread::scope(|scope| {
        let load = scope.spawn(|| driver.run(Stop::After(FOREVER)));
        sleep(Duration::from_millis(300));
        let measured = meter.all(&mut probes, slots);
        stop.store(true, Ordering::Relaxed);
        (measured, load.join())
    });
    let mut measured = measured?;
    no_errors(&load.map_err(|_| anyhow::anyhow!("the load's thread panicked"))??)?;
    measured.attributed = reader.finish()?;
    if measured.attributed == 0 {
        bail!("no request was traced: the figures would show nothing");
    }
    Ok(measured)
}

/// Reads the two counters a slot needs.
struct Meter<'a> {
    pid: u32,
    answered: &'a AtomicU64,
}

impl Meter<'_> {
    fn all(&self, probes: &mut Probes, slots: usize) -> Result<Measured> {
        let mut measured = Measured::default();
        // Off-on-on-off, then off-off as a control: slow drift falls out, order too.
        while measured.pairs.len() < slots {
            let off = self.slot()?;
            probes.attach()?;
            let on = self.slot()?;
            measured.pairs.push(Pair { off, on });
            let on = self.slot()?;
            probes.detach()?;
            let off = self.slot()?;
            measured.pairs.push(Pair { off, on });
            let (first, second) = (self.slot()?, self.slot()?);
            let turned = measured.control.len() % 2 == 1;
            let (off, on) = if turned { (second, first) } else { (first, second) };
            measured.control.push(Pair { off, on });
        }
        for _ in 0..STRACE_PAIRS {
            let off = self.slot_of(STRACE_SLOT)?;
            let on = self.under_strace()?;
            measured.strace.push(Pair { off, on });
        }
        Ok(measured)
    }

    fn slot(&self) -> Result<Slot> {
        sleep(SETTLE);
        self.slot_of(SLOT)
    }

    fn slot_of(&self, length: Duration) -> Result<Slot> {
        for _ in 0..ATTEMPTS {
            let (begun, cpu, answered) = self.read()?;
            sleep(length);
            let (ended, cpu_end, answered_end) = self.read()?;
            let cpu_us = (cpu_end - cpu) as f64 / 1e3;
            let requests = answered_end.saturating_sub(answered);
            if requests > 0 {
                return Ok(Slot {
                    us: cpu_us / requests as f64,
                    busy: cpu_us / ended.duration_since(begun).as_micros() as f64,
                });
            }
        }
        bail!(
            "no request was answered in {ATTEMPTS} slots of {length:?}; is the machine busy with something else?"
        )
    }

    fn read(&self) -> Result<(Instant, u64, u64)> {
        Ok((Instant::now(), cpu_clock_ns(self.pid)?, self.answered.load(Ordering::Relaxed)))
    }

    fn under_strace(&self) -> Result<Slot> {
        let mut strace = Command::new("strace")
            .args(["-c", "-f", "-o", "/dev/null", "-p", &self.pid.to_string()])
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start strace; install it, for the comparison")?;
        sleep(Duration::from_millis(400));
        let slot = self.slot_of(STRACE_SLOT);
        // Interrupted it detaches and leaves the server running.
        kill_process(Pid::from_child(&strace), Signal::INT)?;
        strace.wait()?;
        sleep(Duration::from_millis(200));
        slot
    }
}

impl Measured {
    fn print(&self, server: ServerName, connections: usize, limit: f64) -> Result<bool> {
        let untraced = median_of(self.pairs.iter().map(|pair| pair.off.us).collect());
        let busy = median_of(self.pairs.iter().flat_map(|pair| [pair.off.busy, pair.on.busy]).collect());
        println!(
            "{} hello, {connections} connections: {untraced:.2} us of server CPU per request untraced; its core {:.1} % busy",
            server.name(),
            busy * 100.0
        );
        println!("  {:<28} {:<26} added us per request (95 %)", "against untraced", "ratio (95 %)");
        let mut ratio = line(&format!("tracer, {} pairs", self.pairs.len()), &self.pairs)?;
        let saturated: Vec<Pair> = self.pairs.iter().filter(|pair| pair.saturated()).copied().collect();
        // The goal speaks of a saturated server; without enough of that all pairs are judged.
        let enough = saturated.len() >= ENOUGH_SATURATED;
        if enough {
            ratio = line(&format!("  {} of them saturated", saturated.len()), &saturated)?;
        }
        let control = line(&format!("nothing, {} pairs", self.control.len()), &self.control)?;
        let strace_us = median_of(self.strace.iter().map(|pair| pair.on.us - pair.off.us).collect());
        let strace_ratio = median_of(self.strace.iter().map(|pair| pair.on.us / pair.off.us).collect());
        println!(
            "  {:<28} {strace_ratio:<26.3} {strace_us:+.2}",
            format!("strace -c -f, {STRACE_PAIRS} pairs")
        );
        let pairs = if enough { "saturated pairs" } else { "all pairs, too few of them saturated" };
        if control.low > 1.0 || control.high < 1.0 {
            println!(
                "  goal ratio at most {limit:.2}: withheld, for nothing against nothing shows a difference"
            );
            return Ok(false);
        }
        if ratio.low <= limit && limit < ratio.high {
            println!("  goal ratio at most {limit:.2}: undecided from {pairs}, its interval holds the goal");
            return Ok(false);
        }
        let reached = ratio.middle <= limit;
        println!("  {}, from {pairs}", goal(&format!("ratio at most {limit:.2}"), reached));
        Ok(reached)
    }
}

fn line(what: &str, pairs: &[Pair]) -> Result<Estimate> {
    let too_few = || format!("{what}: too few for an interval; ask for more --slots");
    let logs: Vec<f64> = pairs.iter().map(|pair| (pair.on.us / pair.off.us).ln()).collect();
    let added: Vec<f64> = pairs.iter().map(|pair| pair.on.us - pair.off.us).collect();
    let ratio = Estimate::of(&logs).with_context(too_few)?.map(f64::exp);
    let added = Estimate::of(&added).with_context(too_few)?;
    println!(
        "  {what:<28} {:<26} {:+.2} ({:+.2}..{:+.2})",
        format!("{:.3} ({:.3}..{:.3})", ratio.middle, ratio.low, ratio.high),
        added.middle,
        added.low,
        added.high
    );
    Ok(ratio)
}

/// The process's CPU clock. Far cheaper than an account of its family, so both counters are read at one moment.
fn cpu_clock_ns(pid: u32) -> Result<u64> {
    let mut clock = 0;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: both pointers are to live locals; an unknown process is an error, not undefined.
    let read = unsafe {
        libc::clock_getcpuclockid(pid as libc::pid_t, &mut clock) == 0
            && libc::clock_gettime(clock, &mut time) == 0
    };
    if !read {
        bail!("the server (process {pid}) is gone");
    }
    Ok(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

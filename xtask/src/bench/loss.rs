//! A million requests at saturation: what is lost, what the reader costs, what memory is held.

use std::{thread::sleep, time::Duration};

use anyhow::{Context, Result};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracer::{
    load::{Driver, Stop},
    recording::Request,
    window::{Settings, Sink, Traced, Window},
};

use super::{Bed, ServerName, goal, no_errors, take_places};
use crate::Verdict;

const READER_SHARE: f64 = 0.10;
const MANY: usize = 1_000;
const BUSY_REQUESTS: u64 = 100_000;

#[derive(clap::Args)]
pub struct Args {
    /// Requests at saturation
    #[arg(long, default_value_t = 1_000_000)]
    requests: u64,
}

pub fn run(args: &Args) -> Result<Verdict> {
    // A thousand connections are more files than most limits allow at first; the server inherits it.
    let files = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: files.maximum, ..files })
        .context("cannot raise the limit of open files")?;
    let placement = take_places()?;
    let saturated = {
        let mut bed = Bed::start(ServerName::Builtin, 32, &placement)?;
        let window = Window::open(&settings(&bed), Count::default())?;
        let sent = drive(&mut bed.driver, &window, args.requests)?;
        let (traced, count) = window.close(Some(sent))?;
        print_saturated(sent, &count, &traced)
    };
    let mut bed = Bed::start(ServerName::Builtin, MANY, &placement)?;
    println!("builtin with {MANY} keep-alive connections opened before attach");
    let before = resident_mb()?;
    let window = Window::open(&settings(&bed), Count::default())?;
    sleep(Duration::from_secs(2));
    let idle = resident_mb()?;
    let (traced, _) = window.close(Some(0))?;
    print_memory("idle for 2 s", before, idle, &traced);
    let window = Window::open(&settings(&bed), Count::default())?;
    let sent = drive(&mut bed.driver, &window, BUSY_REQUESTS)?;
    let busy = resident_mb()?;
    let (traced, count) = window.close(Some(sent))?;
    print_memory(&format!("busy, {sent} requests"), before, busy, &traced);
    let many = print_losses(sent, &count, &traced);
    Ok(Verdict::of_all([saturated, many]))
}

/// Counts requests and those with the driver's times.
#[derive(Default)]
struct Count {
    requests: u64,
    joined: u64,
}

impl Sink for Count {
    fn take(&mut self, request: Request) -> Result<()> {
        self.requests += 1;
        self.joined += u64::from(request.client.is_some());
        Ok(())
    }
}

fn settings(bed: &Bed) -> Settings {
    Settings {
        processes: bed.target.family(),
        ports: vec![bed.target.port()],
        joins_samples: true,
        ..Settings::default()
    }
}

/// One run inside the window, its samples sent on as `bench` and `record` do; returns how many requests were sent.
fn drive(driver: &mut Driver, window: &Window<Count>, requests: u64) -> Result<u64> {
    let load = driver.run_sending_samples(Stop::Count(requests), window.samples())?;
    no_errors(&load)?;
    Ok(load.sent())
}

fn print_saturated(sent: u64, count: &Count, traced: &Traced) -> bool {
    let rate = sent as f64 / (traced.window_ns as f64 / 1e9);
    let share = traced.reader_cpu_ns as f64 / traced.window_ns as f64;
    println!("builtin hello, 32 connections, {sent} requests in one window, {rate:.0} per second");
    let complete = print_losses(sent, count, traced);
    println!(
        "  reader: {:.1} % of a core, {:.2} us per request; {}",
        share * 100.0,
        traced.reader_cpu_ns as f64 / 1e3 / sent as f64,
        goal("under 10 %", share < READER_SHARE)
    );
    println!("  maps: {:.1} MiB", mebibytes(traced.map_bytes));
    complete && share < READER_SHARE
}

fn print_losses(sent: u64, count: &Count, traced: &Traced) -> bool {
    let ledger = &traced.tally.ledger;
    let lost = ledger.lost_ring_full + ledger.lost_connections_full;
    let unexplained = sent as i64 - (ledger.traced + ledger.mid_flight + lost) as i64;
    let complete = lost == 0 && unexplained == 0 && ledger.defects == 0;
    println!(
        "  sent {sent}, traced {}, joined {}, mid-flight {}, lost {lost}, unmatched {}, defects {}, unexplained {unexplained}; {}",
        ledger.traced,
        count.joined,
        ledger.mid_flight,
        ledger.unmatched_edges,
        ledger.defects,
        goal("none lost or unexplained", complete)
    );
    if let Some(example) = &ledger.defect_example {
        println!("  a defect: {example}");
    }
    if count.requests != ledger.traced {
        println!("  but the sink took {}", count.requests);
    }
    complete
}

fn print_memory(what: &str, before: f64, during: f64, traced: &Traced) {
    println!(
        "  {what}: maps {:.1} MiB, resident {during:.1} MiB ({before:.1} before attach)",
        mebibytes(traced.map_bytes)
    );
}

fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// Of this process alone, which reads and drives as `tracer` does.
fn resident_mb() -> Result<f64> {
    let status = std::fs::read_to_string("/proc/self/status").context("cannot read /proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<f64>().ok());
    Ok(kilobytes.context("/proc/self/status says no VmRSS")? / 1024.0)
}

//! What our driver costs, beside its peers: client CPU per request, memory, and how exact its constant rate is.

mod client;
mod server;
mod timer;
mod waiting;

use std::env;

use anyhow::{Context, Result};
use clap::ValueEnum;
use tracer::{
    scenario::Server,
    target::{Target, cores::Placement, cpu::CpuAccount},
};

use self::client::{Client, Found, oha_root, tracer};
pub use self::{server::run as serve, waiting::run as serve_waiting};
use super::{estimate::median_of, goal, start_server, take_places};
use crate::{Verdict, command, system::ensure_installed};

/// Connections at which CPU per request is compared.
const CONNECTIONS: [usize; 3] = [1, 16, 64];
const MANY: usize = 10_000;
/// The goals.
const OF_WRK: f64 = 0.90;
const OF_OHA: f64 = 0.55;
const P50_APART: f64 = 0.05;
const MANY_CPU: f64 = 1.3;
const MANY_BYTES: f64 = 20.0 * 1024.0;
const RATE: f64 = 50_000.0;
const ACHIEVED: f64 = 0.999;
const LAG: f64 = 2.0;
const FEW_REQUESTS: u64 = 100_000;
const FLAT_BYTES: u64 = 5_000_000;
const P50_CONNECTIONS: usize = 16;
const EPOLL_SERVER: &str = "epoll-server";
const WAITING_SERVER: &str = "waiting-server";
const OHA: &str = "oha";

/// Whom to compare with.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Peers {
    /// What Debian has: wrk
    Debian,
    /// Also oha, built from crates.io, which takes minutes
    All,
}

#[derive(clap::Args)]
pub struct Args {
    /// Whom to compare with
    #[arg(long, value_enum, default_value = "debian")]
    peers: Peers,
    /// Rounds, in each of which every client runs once
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Seconds of one run
    #[arg(long, default_value_t = 2)]
    seconds: u64,
    /// Requests of the long run that must need no more memory than a short one
    #[arg(long, default_value_t = 10_000_000)]
    many_requests: u64,
}

pub fn run(args: &Args) -> Result<Verdict> {
    ensure_installed("wrk", "wrk")?;
    let mut clients = vec![Client::Tracer, Client::Wrk];
    if args.peers == Peers::All {
        install_oha()?;
        clients.push(Client::Oha);
    }
    let placement = take_places()?;
    let bed = Bed::start(EPOLL_SERVER, &placement)?;
    let mut reached = Vec::new();
    for connections in CONNECTIONS {
        reached.extend(compare(&bed, &clients, connections, args)?);
    }
    reached.push(same_p50(&placement, args)?);
    reached.extend(many_connections(&bed, args)?);
    reached.extend(constant_rate(&bed, args)?);
    reached.push(flat_memory(&bed, args)?);
    Ok(Verdict::of_all(reached))
}

fn install_oha() -> Result<()> {
    let root = oha_root();
    if !root.join("bin").join(OHA).is_file() {
        command::run(command::cargo().args(["install", "--quiet", "--locked", OHA, "--root"]).arg(root))?;
    }
    Ok(())
}

/// The server on its core, and the core of the clients.
struct Bed {
    target: Target,
    url: String,
    core: usize,
}

impl Bed {
    /// `server` is a subcommand of `bench`.
    fn start(server: &str, placement: &Placement) -> Result<Self> {
        let program = env::current_exe().context("cannot tell this program's file")?;
        let words = [program.to_string_lossy().into_owned(), "bench".into(), server.to_owned()];
        let target = start_server(&Server::from_command(server, words.into()), placement)?;
        let url = format!("http://127.0.0.1:{}/", target.port());
        Ok(Self { target, url, core: placement.client.first().copied().context("no CPU for the clients")? })
    }

    /// Runs a client; also gives the share of the server's core that stayed free.
    fn with_headroom<T>(
        &self,
        work: impl FnOnce() -> Result<T>,
        elapsed_s: impl Fn(&T) -> f64,
    ) -> Result<(T, f64)> {
        let mut account = CpuAccount::new(&[self.target.pid()]);
        let before = account.sample();
        let done = work()?;
        let busy_s = account.sample().since(before).cpu_ns as f64 / 1e9;
        let headroom = 1.0 - busy_s / elapsed_s(&done);
        Ok((done, headroom))
    }
}

/// Every client in every round, in turn, so that drift meets all alike.
fn compare(bed: &Bed, clients: &[Client], connections: usize, args: &Args) -> Result<Vec<bool>> {
    let mut runs: Vec<Vec<(Found, f64)>> = clients.iter().map(|_| Vec::new()).collect();
    for round in 0..args.rounds {
        for place in 0..clients.len() {
            let which = (place + round) % clients.len();
            let work = || clients[which].run(&bed.url, connections, args.seconds, bed.core);
            runs[which].push(bed.with_headroom(work, |found| found.elapsed_s)?);
        }
    }
    let median = |which: usize, figure: &dyn Fn(&(Found, f64)) -> f64| {
        median_of(runs[which].iter().map(figure).collect())
    };
    println!("{connections} connections, medians of {} rounds:", args.rounds);
    for (which, client) in clients.iter().enumerate() {
        println!(
            "  {:<12} {:6.2} us of client CPU per request · {:8.0} requests/s · p50 {:8.1} us · server core {:.0} % free",
            client.name(),
            median(which, &|(found, _)| found.cpu_us_per_request()),
            median(which, &|(found, _)| found.requests as f64 / found.elapsed_s),
            median(which, &|(found, _)| found.p50_us),
            median(which, &|(_, headroom)| 100.0 * headroom),
        );
    }
    let mut reached = Vec::new();
    for (which, client) in clients.iter().enumerate().skip(1) {
        let limit = if *client == Client::Wrk { OF_WRK } else { OF_OHA };
        // Of neighbours in time: what both met falls out.
        let pairs = runs[0].iter().zip(&runs[which]);
        let ratio = median_of(
            pairs.map(|(ours, theirs)| ours.0.cpu_us_per_request() / theirs.0.cpu_us_per_request()).collect(),
        );
        let held = ratio <= limit;
        println!(
            "  CPU per request, of {}: {ratio:.2}; {}",
            client.name(),
            goal(&format!("<= {limit:.2}"), held)
        );
        reached.push(held);
    }
    Ok(reached)
}

/// Whether we and wrk tell the same median latency of a server that makes both wait as long. (In `compare` the cheaper
/// client gets through more, and its requests wait longer for each other.)
fn same_p50(placement: &Placement, args: &Args) -> Result<bool> {
    let bed = Bed::start(WAITING_SERVER, placement)?;
    let run = |client: Client| client.run(&bed.url, P50_CONNECTIONS, args.seconds, bed.core);
    let pairs = (0..args.rounds).map(|round| {
        Ok(if round % 2 == 0 {
            (run(Client::Tracer)?, run(Client::Wrk)?)
        } else {
            let wrk = run(Client::Wrk)?;
            (run(Client::Tracer)?, wrk)
        })
    });
    let pairs: Vec<(Found, Found)> = pairs.collect::<Result<_>>()?;
    println!(
        "{P50_CONNECTIONS} connections to a server that takes {:?}, medians of {} rounds:",
        waiting::WAIT,
        args.rounds
    );
    let print = |client: Client, found: &dyn Fn(&(Found, Found)) -> &Found| {
        let median = |figure: &dyn Fn(&Found) -> f64| {
            median_of(pairs.iter().map(|pair| figure(found(pair))).collect())
        };
        let rate = median(&|found| found.requests as f64 / found.elapsed_s);
        let p50_us = median(&|found| found.p50_us);
        println!("  {:<12} {rate:8.0} requests/s · p50 {p50_us:8.1} us", client.name());
    };
    print(Client::Tracer, &|pair| &pair.0);
    print(Client::Wrk, &|pair| &pair.1);
    let apart = median_of(pairs.iter().map(|(ours, wrks)| ours.p50_us / wrks.p50_us).collect()) - 1.0;
    let held = apart.abs() <= P50_APART;
    println!("  p50 against wrk: {:+.1} %; {}", 100.0 * apart, goal("within 5 %", held));
    Ok(held)
}

fn many_connections(bed: &Bed, args: &Args) -> Result<Vec<bool>> {
    let requests = (MANY * 20).to_string();
    let mut figures = Vec::new();
    for _ in 0..args.rounds {
        let of = |connections: usize| {
            let connections = connections.to_string();
            let (found, report) =
                tracer(&bed.url, bed.core, &["-c", &connections, "-n", &requests, "--timeout", "30s"])?;
            let cpu_ns = report["stamps"]["client_cpu_per_request_ns"].as_f64().context("no CPU told")?;
            anyhow::Ok((cpu_ns, found.max_rss_bytes))
        };
        let (few, many) = (of(64)?, of(MANY)?);
        figures.push((many.0 / few.0, many.1.saturating_sub(few.1) as f64 / (MANY - 64) as f64));
    }
    let cpu = median_of(figures.iter().map(|(cpu, _)| *cpu).collect());
    let bytes = median_of(figures.iter().map(|(_, bytes)| *bytes).collect());
    let held = (cpu <= MANY_CPU, bytes <= MANY_BYTES);
    println!("{MANY} connections:");
    println!(
        "  client CPU per request, of that at 64: {cpu:.2}; {}",
        goal(&format!("<= {MANY_CPU}"), held.0)
    );
    println!("  memory per connection: {:.1} KiB; {}", bytes / 1024.0, goal("<= 20 KiB", held.1));
    Ok(vec![held.0, held.1])
}

fn constant_rate(bed: &Bed, args: &Args) -> Result<Vec<bool>> {
    let seconds = args.seconds.max(5);
    let (length, rate) = (format!("{seconds}s"), RATE.to_string());
    let mut figures = Vec::new();
    for _ in 0..args.rounds {
        let (_, report) = tracer(&bed.url, bed.core, &["-c", "64", "-d", &length, "--rate", &rate])?;
        let number = |value: &serde_json::Value| value.as_f64().context("the rate's figures are not told");
        let lag = &report["rate"]["send_lag"];
        let ours = [number(&lag["p50_ns"])?, number(&lag["p99_ns"])?, number(&lag["max_ns"])?];
        // This thread is pinned to the clients' core.
        let lags_ns = timer::lags_ns(RATE, RATE as u64 * seconds)?;
        let bare = [0.5, 0.99, 1.0].map(|quantile| timer::quantile(&lags_ns, quantile) as f64);
        figures.push((number(&report["rate"]["achieved"])?, ours, bare));
    }
    let achieved = median_of(figures.iter().map(|(achieved, ..)| *achieved).collect());
    let lag = |which: usize| median_of(figures.iter().map(|(_, ours, _)| ours[which] / 1e3).collect());
    let bare = |which: usize| median_of(figures.iter().map(|(.., bare)| bare[which] / 1e3).collect());
    let ratio = median_of(figures.iter().map(|(_, ours, bare)| ours[1] / bare[1]).collect());
    // Without the rate the lag says nothing: a driver that is always late never waits for its timer.
    let held = (achieved >= ACHIEVED, achieved >= ACHIEVED && ratio <= LAG);
    println!("{RATE} requests/s for {seconds} s, medians of {} rounds:", args.rounds);
    println!("  sent of those due: {:.4}; {}", achieved, goal(&format!(">= {ACHIEVED}"), held.0));
    println!("  send lag, us: p50 {:.1} · p99 {:.1} · max {:.1}", lag(0), lag(1), lag(2));
    println!("  a bare timer: p50 {:.1} · p99 {:.1} · max {:.1}", bare(0), bare(1), bare(2));
    println!("  p99 of the lag, of the bare timer's: {ratio:.2}; {}", goal(&format!("<= {LAG}"), held.1));
    Ok(vec![held.0, held.1])
}

fn flat_memory(bed: &Bed, args: &Args) -> Result<bool> {
    let of = |requests: u64| {
        let requests = requests.to_string();
        anyhow::Ok(tracer(&bed.url, bed.core, &["-c", "64", "-n", &requests])?.0.max_rss_bytes)
    };
    let (few, many) = (of(FEW_REQUESTS)?, of(args.many_requests)?);
    let held = few.abs_diff(many) <= FLAT_BYTES;
    println!(
        "memory: {:.1} MB after {FEW_REQUESTS} requests, {:.1} MB after {}; {}",
        few as f64 / 1e6,
        many as f64 / 1e6,
        args.many_requests,
        goal("within 5 MB", held)
    );
    Ok(held)
}

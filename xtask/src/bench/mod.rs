//! `cargo xtask bench NAME`: what tracer itself costs, each figure beside its goal.

mod bpf;
mod driver;
mod estimate;
mod loss;
mod overhead;
mod reader;
mod start;
mod verdict;

use std::{
    env,
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
};

use anyhow::{Context, Result, bail};
use clap::{Subcommand, ValueEnum};
use tracer::{
    load::{Driver, Plan, Stop},
    scenario::{Request, Scenario, Server},
    target::{
        SpawnOptions, Target,
        cores::{Placement, pin_current_thread, placement},
        user::invoking_user,
    },
};

use crate::{
    Verdict,
    command::{self, target_dir, workspace},
};

/// Which benchmark.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    which: Which,
}

#[derive(Subcommand)]
enum Which {
    /// Server CPU per request traced and untraced, from slots switched inside one load run
    Overhead(overhead::Args),
    /// Time and runs of each BPF program per request, less an empty program's
    Bpf(bpf::Args),
    /// Lost records over a million requests at saturation, the reader's share of a core, and memory
    Loss(loss::Args),
    /// From command to first request under load
    Start(start::Args),
    /// What the load driver costs beside wrk (and oha), and how exact its constant rate is
    Driver(driver::Args),
    /// A server of `driver`
    #[command(hide = true)]
    EpollServer,
    /// Another
    #[command(hide = true)]
    WaitingServer,
    /// How often the verdict of `tracer diff` is right
    Verdict(verdict::Args),
}

/// A server to measure.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ServerName {
    /// The one in the tracer binary
    Builtin,
    /// Node's own server
    NodeHttp,
}

/// Runs one benchmark. A debug build hands over to a release build: its reader would not be the one people run.
pub fn run_task(args: &Args) -> Result<Verdict> {
    if let Which::Verdict(verdict::Args { simulate: true, sessions, .. }) = &args.which {
        return Ok(verdict::simulate(sessions.unwrap_or(verdict::SIMULATED_SESSIONS)));
    }
    match &args.which {
        Which::EpollServer => return driver::serve().map(|()| Verdict::Held),
        Which::WaitingServer => return driver::serve_waiting().map(|()| Verdict::Held),
        _ => {}
    }
    if cfg!(debug_assertions) {
        return in_release();
    }
    if !rustix::process::geteuid().is_root() {
        bail!("benchmarks load BPF programs; run them as root");
    }
    command::run(command::cargo().current_dir(workspace()).args([
        "build",
        "--quiet",
        "--release",
        "--package=tracer",
    ]))?;
    match &args.which {
        Which::Overhead(args) => overhead::run(args),
        Which::Bpf(args) => bpf::run(args),
        Which::Loss(args) => loss::run(args),
        Which::Start(args) => start::run(args),
        Which::Driver(args) => driver::run(args),
        Which::EpollServer | Which::WaitingServer => unreachable!("handled above"),
        Which::Verdict(args) => verdict::run(args),
    }
}

fn in_release() -> Result<Verdict> {
    let mut again = command::cargo();
    again.current_dir(workspace()).args(["run", "--quiet", "--release", "--package=xtask", "--"]);
    let status = again.args(env::args_os().skip(1)).status().context("cannot start cargo")?;
    match status.code() {
        Some(0) => Ok(Verdict::Held),
        Some(1) => Ok(Verdict::Failed),
        _ => bail!("the benchmark ended with {status}"),
    }
}

/// The tracer binary that was built for the benchmark.
fn tracer_binary() -> PathBuf {
    target_dir().join("release/tracer")
}

impl ServerName {
    fn name(self) -> &'static str {
        match self {
            Self::Builtin => "builtin",
            Self::NodeHttp => "node-http",
        }
    }

    /// The server and its `hello`.
    fn hello(self) -> Result<(Server, Request)> {
        let scenario = match self {
            Self::Builtin => Scenario::builtin(&tracer_binary()),
            Self::NodeHttp => Scenario::load(&workspace().join("scenarios/node.toml"))?,
        };
        let mut scenario = scenario.only(&[self.name(), "hello"])?;
        Ok((scenario.servers.swap_remove(0), scenario.requests.swap_remove(0)))
    }
}

/// A server on its own core and a warm driver on the other.
struct Bed {
    // Dropped in this order: connections close before their server ends.
    driver: Driver,
    target: Target,
}

impl Bed {
    fn start(name: ServerName, connections: usize, placement: &Placement) -> Result<Self> {
        let (server, request) = name.hello()?;
        let target = start_server(&server, placement)?;
        let mut driver = Driver::start(plan(&request, target.port(), connections, placement))?;
        warm_up(&mut driver, server.warm_up_requests)?;
        Ok(Self { driver, target })
    }
}

fn start_server(server: &Server, placement: &Placement) -> Result<Target> {
    let options = SpawnOptions { core: placement.server.first().copied(), run_as: invoking_user() };
    let mut target = Target::spawn(server, &options)?;
    target.wait_ready(&server.ready, server.ready_timeout)?;
    Ok(target)
}

fn warm_up(driver: &mut Driver, requests: u64) -> Result<()> {
    let warm_up = driver.run(Stop::Count(requests))?;
    no_errors(&warm_up)
}

fn no_errors(load: &tracer::load::LoadResult) -> Result<()> {
    if load.totals.errors > 0 {
        bail!("{} requests failed; nothing measured counts", load.totals.errors);
    }
    Ok(())
}

fn plan(request: &Request, port: u16, connections: usize, placement: &Placement) -> Plan {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    Plan {
        connections,
        timeout: tracer::scenario::DEFAULT_TIMEOUT,
        cores: placement.client.clone(),
        ..Plan::new(address, vec![request.into()])
    }
}

/// Where server and driver go; this thread, and those it starts, go beside the driver.
fn take_places() -> Result<Placement> {
    let placement = placement()?;
    if placement.shared() {
        bail!("server and driver would share the only CPU allowed: a benchmark needs two");
    }
    if let Some(&core) = placement.client.first() {
        pin_current_thread(core)?;
    }
    Ok(placement)
}

/// A goal and whether it was reached, as the end of a line.
fn goal(text: &str, reached: bool) -> String {
    format!("goal {text}: {}", if reached { "reached" } else { "NOT reached" })
}

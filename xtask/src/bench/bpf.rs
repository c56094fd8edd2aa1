//! Run time of each program per request, from the kernel's statistics, less that of a program which does nothing.

use anyhow::{Context, Result};
use aya::sys::{Stats, enable_stats};
use tracer::{
    load::Stop,
    probe::{Options, Probes, ProgramRuns},
    recording::SyscallTotals,
};

use super::{Bed, ServerName, no_errors, reader::Discarding, take_places};
use crate::Verdict;

#[derive(clap::Args)]
pub struct Args {
    /// Only this server
    #[arg(long, value_enum)]
    server: Option<ServerName>,
    /// Requests of each run
    #[arg(long, default_value_t = 50_000)]
    requests: u64,
}

pub fn run(args: &Args) -> Result<Verdict> {
    let placement = take_places()?;
    let _statistics =
        enable_stats(Stats::RunTime).context("cannot turn the kernel's run-time statistics on")?;
    let all = [ServerName::Builtin, ServerName::NodeHttp];
    for server in all.into_iter().filter(|server| args.server.is_none_or(|only| only == *server)) {
        let mut bed = Bed::start(server, 32, &placement)?;
        let mut load = Ok(());
        let empty = Probes::measure_empty(|| load = drive(&mut bed, args.requests))?;
        load?;
        let nobody = measure(&mut bed, args.requests, false)?;
        let traced = measure(&mut bed, args.requests, true)?;
        print(server, args.requests, per_run(&empty), &nobody, &traced);
    }
    Ok(Verdict::Held)
}

/// One load with the programs attached.
struct Measured {
    programs: Vec<ProgramRuns>,
    syscalls: Vec<SyscallTotals>,
}

fn measure(bed: &mut Bed, requests: u64, traces_server: bool) -> Result<Measured> {
    let mut probes = Probes::load(&Options::default())?;
    if traces_server {
        probes.add_process(bed.target.pid())?;
        probes.serve_port(bed.target.port())?;
    }
    let reader = Discarding::start(probes.take_reader()?);
    probes.attach()?;
    drive(bed, requests)?;
    probes.detach()?;
    reader.finish()?;
    Ok(Measured { programs: probes.program_runs()?, syscalls: probes.syscalls()? })
}

fn drive(bed: &mut Bed, requests: u64) -> Result<()> {
    no_errors(&bed.driver.run(Stop::Count(requests))?)
}

fn per_run(program: &ProgramRuns) -> f64 {
    program.run_ns as f64 / program.runs.max(1) as f64
}

/// Nanoseconds per request above the empty program.
fn net(program: &ProgramRuns, empty_ns: f64, requests: u64) -> f64 {
    (program.run_ns as f64 - program.runs as f64 * empty_ns) / requests as f64
}

fn print(server: ServerName, requests: u64, empty_ns: f64, nobody: &Measured, traced: &Measured) {
    println!(
        "{} hello, 32 connections, {requests} requests; all processes of the machine together; an empty program: {empty_ns:.0} ns per run",
        server.name()
    );
    println!(
        "  {:<22} {:>9} {:>9} {:>12} {:>12} {:>16}",
        "server traced", "runs/req", "ns/run", "net ns/run", "net ns/req", "nobody: net ns/req"
    );
    let (mut total, mut total_nobody) = (0.0, 0.0);
    for (program, other) in traced.programs.iter().zip(&nobody.programs) {
        let (here, there) = (net(program, empty_ns, requests), net(other, empty_ns, requests));
        total += here;
        total_nobody += there;
        println!(
            "  {:<22} {:>9.3} {:>9.0} {:>12.0} {:>12.1} {:>16.1}",
            program.name,
            program.runs as f64 / requests as f64,
            per_run(program),
            if program.runs == 0 { 0.0 } else { per_run(program) - empty_ns },
            here,
            there
        );
    }
    let calls: u64 = traced.syscalls.iter().map(|syscall| syscall.calls).sum();
    println!("  {:<22} {:>9} {:>9} {:>12} {total:>12.1} {total_nobody:>16.1}", "total", "", "", "");
    println!(
        "  the target's own share, {:.2} syscalls per request: {:.2} us per request; every other process, driver included: {:.2} us",
        calls as f64 / requests as f64,
        (total - total_nobody) / 1e3,
        total_nobody / 1e3
    );
}

//! The command line: one file per command. Results go to stdout, progress and notes to stderr.

mod bench;
mod check;
mod diff;
mod doctor;
mod lint;
mod load;
mod record;
mod report;
mod sending;
mod suite;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::{
    probe::{self, hooks::Detail},
    recording::Run,
    report::Row,
    session::{interrupt, launch::Tracing},
};

/// Where each request of an HTTP server spends its time, measured in the kernel
#[derive(Parser)]
#[command(name = "tracer", version, about, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Start servers, drive keep-alive load, and say where each request's time went
    Bench(bench::Arguments),
    /// Attach to running processes, or start a command, and write a recording
    Record(record::Arguments),
    /// Print the tables of a recording
    Report(report::Arguments),
    /// Hold a recording, a scenario or a live server to its promises; exit 1 when one is broken
    Check(check::Arguments),
    /// Send load to a URL, and say how it went and how far to trust it
    Load(Box<load::Arguments>),
    /// Look for known ways to waste time in a recording; exit 1 when one is found
    Lint(lint::Arguments),
    /// Say whether one server costs more than another, by how much, and where: exit 1 when it does
    Diff(diff::Arguments),
    /// Say what works on this machine, what does not, and the fix
    Doctor(doctor::Arguments),
    /// The built-in server, for benchmarks of tracer itself
    #[command(hide = true)]
    Serve(ServeArguments),
}

#[derive(Args)]
struct ServeArguments {
    /// Port on 127.0.0.1; 0 picks a free one
    #[arg(long, default_value_t = 0)]
    port: u16,
    /// Threads
    #[arg(long, default_value_t = 1)]
    workers: usize,
    /// How every response without a query misbehaves, as a query would say it: split=1, spin_ns=500 ...
    #[arg(long, value_name = "KNOBS", default_value = "")]
    knobs: String,
}

/// How results are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Tables that fit 100 columns
    #[default]
    Text,
    /// One JSON object
    Json,
}

/// Options of every command that traces.
#[derive(Args)]
struct TraceArguments {
    /// Connections followed at once
    #[arg(long, value_name = "N", default_value_t = tracer_common::settings::DEFAULT_MAX_CONNECTIONS,
          value_parser = clap::value_parser!(u32).range(64..=1_048_576))]
    max_connections: u32,
    /// Memory the kernel writes records to, in MiB, shared out to the CPUs (a power of two)
    #[arg(long, value_name = "MIB", default_value_t = probe::default_ring_bytes() >> 20,
          value_parser = power_of_two)]
    ring_mib: u32,
    /// Detail that costs extra: `drain` dates the moment unsent bytes reach the device, `acks` when the client
    /// acknowledged the response
    #[arg(long, value_name = "DETAIL")]
    detail: Vec<DetailArgument>,
    /// Keep query strings in recorded paths (off: they may hold secrets)
    #[arg(long)]
    keep_query: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum DetailArgument {
    Drain,
    Acks,
}

impl From<DetailArgument> for Detail {
    fn from(argument: DetailArgument) -> Self {
        match argument {
            DetailArgument::Drain => Self::Drain,
            DetailArgument::Acks => Self::Acks,
        }
    }
}

impl TraceArguments {
    fn probes(&self) -> probe::Options {
        probe::Options {
            max_connections: self.max_connections,
            ring_bytes: self.ring_mib << 20,
            details: self.detail.iter().map(|&detail| detail.into()).collect(),
        }
    }

    fn tracing(&self) -> Tracing {
        Tracing { probes: self.probes(), keeps_query: self.keep_query }
    }
}

fn power_of_two(text: &str) -> Result<u32, String> {
    match text.parse::<u32>() {
        Ok(mib) if mib.is_power_of_two() && mib <= 1_024 => Ok(mib),
        _ => Err("a power of two from 1 to 1024".into()),
    }
}

/// Exit statuses, as documented in the README.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    /// Everything held.
    Held = 0,
    /// A promise was broken, or responses failed.
    Broken = 1,
    /// Usage or environment.
    Usage = 2,
    /// No verdict: not enough evidence, loss, or a violated invariant.
    NoVerdict = 3,
}

impl From<Status> for ExitCode {
    fn from(status: Status) -> Self {
        Self::from(status as u8)
    }
}

/// Runs the command line; every error is one message and exit 2.
pub fn run() -> ExitCode {
    match dispatch(Cli::parse().command) {
        Ok(status) => status.into(),
        Err(error) => {
            eprintln!("tracer: {error:#}");
            Status::Usage.into()
        }
    }
}

fn dispatch(command: Command) -> Result<Status> {
    if let Command::Serve(serve) = command {
        return crate::builtin_server::run(serve.port, serve.workers, &serve.knobs).map(|()| Status::Held);
    }
    interrupt::install()?;
    match command {
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Record(arguments) => record::run(arguments),
        Command::Report(arguments) => report::run(&arguments),
        Command::Check(arguments) => check::run(&arguments),
        Command::Load(arguments) => load::run(&arguments),
        Command::Lint(arguments) => lint::run(&arguments),
        Command::Diff(arguments) => diff::run(&arguments),
        Command::Doctor(arguments) => doctor::run(&arguments),
        Command::Serve(_) => unreachable!("handled above"),
    }
}

/// The status a row deserves: whether its target was there to the end, then failed responses, then whether it can be
/// relied on.
fn status_of(run: &Run, row: &Row) -> Status {
    if run.target_exited() {
        Status::Usage
    } else if row.failed_responses > 0 {
        Status::Broken
    } else if !row.defects().is_empty() || row.unreliable() || !run.ended_early.is_empty() {
        Status::NoVerdict
    } else {
        Status::Held
    }
}

/// What is to be done about a target that exited in mid-run; `None`: it did not.
fn told_of_exit(run: &Run) -> Option<String> {
    let how = run.notes.last().map_or("", String::as_str);
    run.target_exited().then(|| {
        format!(
            "{} exited in mid-run, so there is no whole result; find out why it exited, and run again: {how}",
            run.name
        )
    })
}

/// Prints a result; a reader that went away (a closed pipe) is no error.
fn print(text: &str) -> Result<()> {
    use std::io::Write;
    let mut stdout = std::io::stdout().lock();
    match writeln!(stdout, "{}", text.trim_end()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        result => Ok(result?),
    }
}

/// The worst of two statuses: a broken promise outweighs a missing verdict.
fn worst(a: Status, b: Status) -> Status {
    let rank = |status| match status {
        Status::Held => 0,
        Status::NoVerdict => 1,
        Status::Broken => 2,
        Status::Usage => 3,
    };
    if rank(a) >= rank(b) { a } else { b }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_ring_is_a_power_of_two() {
        assert_eq!(power_of_two("32"), Ok(32));
        for wrong in ["0", "33", "x", "2048"] {
            assert!(power_of_two(wrong).is_err(), "{wrong}");
        }
    }
}

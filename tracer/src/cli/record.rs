//! `tracer record`

use std::{path::PathBuf, time::Duration};

use anyhow::{Result, anyhow, bail};
use clap::Args;

use super::{
    Format, Status, TraceArguments, print,
    sending::{MessageArguments, PacingArguments},
    status_of, told_of_exit,
};
use crate::{
    load::Url,
    preflight::elevate,
    report::{self, Report},
    scenario::parse_duration,
    session::{
        progress::Progress,
        record::{self, Load, Subject},
    },
};

/// Whom to trace and with which load: shared by `record` and `check`.
#[derive(Args, Default)]
pub struct SubjectArguments {
    /// Process to attach to, with all its children; may be given several times
    #[arg(short, long = "pid", value_name = "PID")]
    pub pids: Vec<u32>,
    /// Send our own keep-alive load to this URL meanwhile
    #[arg(long, value_name = "URL")]
    pub url: Option<String>,
    /// Keep-alive connections of our load
    #[arg(long, value_name = "N", default_value_t = 32, requires = "url",
          value_parser = clap::value_parser!(u32).range(1..=65_535))]
    pub connections: u32,
    #[command(flatten)]
    pub pacing: PacingArguments,
    #[command(flatten)]
    pub message: MessageArguments,
    /// Requests of our load; without it, until the duration is over
    #[arg(long, value_name = "N", requires = "url", value_parser = clap::value_parser!(u64).range(1..))]
    pub requests: Option<u64>,
    /// Status our load expects
    #[arg(long, value_name = "CODE", default_value_t = 200, requires = "url",
          value_parser = clap::value_parser!(u16).range(100..=599))]
    pub expect_status: u16,
    /// How long, such as 2s; without it, until Ctrl-C or the end of the target
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub duration: Option<Duration>,
    /// Command to start and trace: from its first instruction, or with --url once it answers there; it gets a free
    /// port, or the URL's, in PORT
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

impl SubjectArguments {
    /// Whom; exactly one of pids and command.
    pub fn subject(&self) -> Result<Subject> {
        match (self.pids.is_empty(), self.command.is_empty()) {
            (false, true) => Ok(Subject::Processes(self.pids.clone())),
            (true, false) => Ok(Subject::Command(self.command.clone())),
            (false, false) => bail!("both -p and a command were given; use one of them"),
            (true, true) => {
                bail!("nothing to trace; give a process (-p PID) or a command (-- COMMAND ARGUMENTS)")
            }
        }
    }

    /// Our load, when a URL was given.
    pub fn load(&self) -> Result<Option<Load>> {
        let Some(url) = &self.url else {
            if !self.pacing.is_usual() || !self.message.is_usual() {
                bail!("what to send was given, but not where to; give --url URL, or leave it out");
            }
            return Ok(None);
        };
        Ok(Some(Load {
            url: Url::parse(url).map_err(|error| anyhow!("--url {error:#}"))?,
            connections: self.connections,
            pacing: self.pacing.pacing(),
            method: self.message.method().to_owned(),
            headers: self.message.headers.clone(),
            body: self.message.body()?,
            status: self.expect_status,
            requests: self.requests,
        }))
    }
}

/// Options of `record`.
#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    subject: SubjectArguments,
    /// Folder the recording is written to; it must not exist
    #[arg(short, long, value_name = "FOLDER", default_value = "recording")]
    output: PathBuf,
    /// How results are printed
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    #[command(flatten)]
    trace: TraceArguments,
}

/// Runs `record`.
pub fn run(arguments: Arguments) -> Result<Status> {
    let subject = arguments.subject.subject()?;
    let load = arguments.subject.load()?;
    elevate::ensure()?;
    let progress = Progress::new();
    let outcome = record::record(
        record::Options {
            subject,
            load,
            duration: arguments.subject.duration,
            output: Some(arguments.output.clone()),
            probes: arguments.trace.probes(),
            keeps_query: arguments.trace.keep_query,
            checker: None,
        },
        &progress,
    )?;
    drop(progress);
    let row = report::row(&outcome.run, &outcome.summary, None);
    let status = status_of(&outcome.run, &row);
    let report = Report::new(vec![row]);
    print(&match arguments.format {
        Format::Text => report::text(&report),
        Format::Json => report::json(&report),
    })?;
    eprintln!("tracer: recording written to {}", arguments.output.display());
    if let Some(exit) = told_of_exit(&outcome.run) {
        eprintln!("tracer: {exit}");
    }
    Ok(status)
}

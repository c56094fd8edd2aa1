//! `tracer check`

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::Args;

use super::{
    Format, Status, TraceArguments,
    bench::{SizeArguments, scenarios},
    print,
    record::SubjectArguments,
    told_of_exit, worst,
};
use crate::{
    check::{self, Budget, Checker, Promise, Shape, Verdict},
    preflight::elevate,
    recording::{Run, disk, syscall_number},
    session::{bench, progress::Progress, record},
};

/// Options of `check`.
#[derive(Args)]
pub struct Arguments {
    /// A recording folder or a scenario file; without one, a live server (-p PID, or -- COMMAND)
    #[arg(value_name = "RECORDING|SCENARIO.toml")]
    subject: Option<PathBuf>,
    /// No response takes more write calls than this (1: it leaves whole in one call)
    #[arg(long, value_name = "N")]
    writes_per_response: Option<u32>,
    /// Each write of a response is this call, such as writev
    #[arg(long, value_name = "SYSCALL", requires = "writes_per_response")]
    call: Option<String>,
    /// No more syscalls than this per request, over the whole server
    #[arg(long, value_name = "N", value_parser = positive)]
    max_syscalls_per_request: Option<f64>,
    /// No more server CPU than this per request, in microseconds
    #[arg(long, value_name = "US", value_parser = positive)]
    max_cpu_us_per_request: Option<f64>,
    /// Limits from a file: overall and per route
    #[arg(long, value_name = "FILE.toml")]
    budget: Option<PathBuf>,
    /// Recording of the build that `cpu_of_baseline` in the budget compares with, made in the same job
    #[arg(long, value_name = "RECORDING", requires = "budget")]
    baseline: Option<PathBuf>,
    /// Golden syscall shape per route, written by --save-shape: any drift from it breaks the promise
    #[arg(long, value_name = "FILE.toml")]
    shape: Option<PathBuf>,
    /// Write the syscall shape of what is checked to this file
    #[arg(long, value_name = "FILE.toml")]
    save_shape: Option<PathBuf>,
    /// Of a scenario: only these servers and workloads
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,
    #[command(flatten)]
    live: SubjectArguments,
    /// How the verdict is printed
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    #[command(flatten)]
    trace: TraceArguments,
}

fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if number > 0.0 && number.is_finite() => Ok(number),
        _ => Err("a number above zero".into()),
    }
}

/// Runs `check`.
pub fn run(arguments: &Arguments) -> Result<Status> {
    let asked = arguments.asked()?;
    arguments.refuse_what_would_be_ignored()?;
    let checked = match &arguments.subject {
        None => vec![arguments.live(&asked)?],
        Some(path) if !path.exists() => bail!(
            "{} does not exist; give a folder that `tracer record -o` wrote, or a scenario file",
            path.display()
        ),
        Some(path) if path.is_dir() => vec![recorded(path, &asked)?],
        Some(path) => arguments.scenario(path, &asked)?,
    };
    if let Some(path) = &arguments.save_shape {
        save_shape(path, &checked)?;
    }
    let verdicts: Vec<Verdict> = checked.iter().map(|(checker, run)| checker.verdict(run)).collect();
    let mut status = Status::Held;
    let mut texts = Vec::new();
    for verdict in &verdicts {
        status = worst(
            status,
            match verdict.exit_code() {
                0 => Status::Held,
                1 => Status::Broken,
                _ => Status::NoVerdict,
            },
        );
        texts.push(match arguments.format {
            Format::Text => check::text(verdict),
            Format::Json => check::json(verdict),
        });
    }
    print(&texts.join("\n"))?;
    Ok(status)
}

/// All that is asked of a server.
struct Asked {
    promises: Vec<Promise>,
    budget: Option<Budget>,
    baseline: Option<Run>,
    golden: Option<Shape>,
}

impl Asked {
    fn checker(&self) -> Checker {
        let mut checker = Checker::new(self.promises.iter().cloned());
        if let Some(budget) = &self.budget {
            checker = checker.with_budget(budget.clone(), self.baseline.as_ref());
        }
        match &self.golden {
            Some(golden) => checker.with_shape(golden.clone()),
            None => checker,
        }
    }
}

/// A checker that has seen the requests of a run.
type Checked = (Checker, Run);

fn recorded(path: &Path, asked: &Asked) -> Result<Checked> {
    let recording = disk::open(path)?;
    let mut checker = asked.checker();
    for request in recording.requests {
        checker.observe(&request?);
    }
    Ok((checker, recording.run))
}

fn save_shape(path: &Path, checked: &[Checked]) -> Result<()> {
    let [(checker, run)] = checked else {
        bail!("--save-shape writes one shape, and {} runs were checked; name one with --only", checked.len());
    };
    checker.shape(run).save(path)?;
    eprintln!("tracer: shape written to {}", path.display());
    Ok(())
}

impl Arguments {
    fn promises(&self) -> Result<Vec<Promise>> {
        if let Some(call) = &self.call
            && syscall_number(call).is_none()
        {
            bail!(
                "--call {call}: there is no syscall of that name; use one such as write, writev, sendto or sendmsg"
            );
        }
        let promises: Vec<Promise> = [
            self.writes_per_response.map(|max| Promise::WritesPerResponse { max, call: self.call.clone() }),
            self.max_syscalls_per_request.map(Promise::MaxSyscallsPerRequest),
            self.max_cpu_us_per_request.map(Promise::MaxCpuUsPerRequest),
        ]
        .into_iter()
        .flatten()
        .collect();
        Ok(promises)
    }

    fn asked(&self) -> Result<Asked> {
        let asked = Asked {
            promises: self.promises()?,
            budget: self.budget.as_deref().map(Budget::load).transpose()?,
            baseline: self
                .baseline
                .as_deref()
                .map(|path| disk::open(path).map(|recording| recording.run))
                .transpose()?,
            golden: self.shape.as_deref().map(Shape::load).transpose()?,
        };
        if asked.budget.as_ref().is_some_and(Budget::needs_baseline) && asked.baseline.is_none() {
            bail!(
                "the budget's `cpu_of_baseline` needs a baseline; give --baseline RECORDING, made in this job"
            );
        }
        let asks_nothing = asked.promises.is_empty() && asked.budget.is_none() && asked.golden.is_none();
        if asks_nothing && self.save_shape.is_none() {
            bail!(
                "nothing to check; give --writes-per-response 1, --max-syscalls-per-request N, \
                 --max-cpu-us-per-request US, --budget FILE.toml or --shape FILE.toml"
            );
        }
        Ok(asked)
    }

    /// A recording or scenario brings its own servers and load.
    fn refuse_what_would_be_ignored(&self) -> Result<()> {
        let Some(subject) = &self.subject else { return Ok(()) };
        if !self.live.pids.is_empty() || self.live.url.is_some() || !self.live.command.is_empty() {
            bail!(
                "{} is checked by itself; leave out -p, --url and the command, or leave it out and check the live server",
                subject.display()
            );
        }
        if !self.live.message.is_usual() {
            bail!("{} says itself what is sent; leave out method, headers and body", subject.display());
        }
        if subject.is_dir() && !self.live.pacing.is_usual() {
            bail!(
                "{} is a recording, whose load is over; leave out --rate, --pipeline and --requests-per-connection",
                subject.display()
            );
        }
        if subject.is_dir() && self.live.duration.is_some() {
            bail!("{} is a recording, whose length is fixed; leave out --duration", subject.display());
        }
        Ok(())
    }

    fn live(&self, asked: &Asked) -> Result<Checked> {
        let subject = self.live.subject()?;
        let load = self.live.load()?;
        if load.is_some() && self.live.duration.is_none() && self.live.requests.is_none() {
            bail!("how long? give --duration 2s or --requests N");
        }
        elevate::ensure()?;
        let outcome = record::record(
            record::Options {
                subject,
                load,
                duration: self.live.duration,
                output: None,
                probes: self.trace.probes(),
                keeps_query: self.trace.keep_query,
                checker: Some(asked.checker()),
            },
            &Progress::new(),
        )?;
        if let Some(exit) = told_of_exit(&outcome.run) {
            bail!(exit);
        }
        Ok((outcome.checker.unwrap_or_else(|| asked.checker()), outcome.run))
    }

    fn scenario(&self, path: &Path, asked: &Asked) -> Result<Vec<Checked>> {
        // The driver's flags are `record`'s: they mean the same for a scenario, where they were given.
        let size = SizeArguments { duration: self.live.duration, ..SizeArguments::default() };
        let scenarios = scenarios(&[path.to_owned()], &self.only, &size)?;
        elevate::ensure()?;
        let make = || asked.checker();
        let options = bench::Options {
            tracing: self.trace.tracing(),
            pacing: self.live.pacing.pacing(),
            output: None,
            checker: Some(&make),
        };
        let progress = Progress::new();
        let mut outcomes = Vec::new();
        for scenario in &scenarios {
            bench::bench(scenario, &options, &progress, &mut outcomes)?;
        }
        if let Some(exit) = outcomes.iter().find_map(|outcome| told_of_exit(&outcome.run)) {
            bail!(exit);
        }
        Ok(outcomes.into_iter().filter_map(|outcome| Some((outcome.checker?, outcome.run))).collect())
    }
}

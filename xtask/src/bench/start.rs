//! From command to first request under load, step by step, on the built-in server.

use std::{
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use tracer::{
    load::{Driver, Stop},
    window::{Settings, Sink, Window},
};

use super::{
    ServerName, estimate::median_of, goal, no_errors, plan, start_server, take_places, tracer_binary, warm_up,
};
use crate::Verdict;

const STEPS: [&str; 5] = [
    "tracer starts and ends (--version)",
    "server started and ready",
    "driver connected, 32 connections",
    "programs loaded and attached",
    "first answer under load",
];

#[derive(clap::Args)]
pub struct Args {
    /// Times to measure
    #[arg(long, default_value_t = 7)]
    times: usize,
}

pub fn run(args: &Args) -> Result<Verdict> {
    if args.times == 0 {
        bail!("--times must be at least 1");
    }
    let mut steps = vec![Vec::new(); STEPS.len()];
    let mut warm_ups = Vec::new();
    // The whole command first: afterwards this thread is pinned, and what it starts would be too.
    let whole = ended_in(&["bench", "--rounds", "1", "--duration", "10ms"])?;
    let placement = take_places()?;
    for _ in 0..args.times {
        let mut timed = Vec::new();
        timed.push(ended_in(&["--version"])?);
        let (server, request) = ServerName::Builtin.hello()?;
        let begun = Instant::now();
        let target = start_server(&server, &placement)?;
        timed.push(begun.elapsed());
        let begun = Instant::now();
        let mut driver = Driver::start(plan(&request, target.port(), 32, &placement))?;
        timed.push(begun.elapsed());
        let begun = Instant::now();
        warm_up(&mut driver, server.warm_up_requests)?;
        warm_ups.push(begun.elapsed().as_secs_f64() * 1e3);
        let begun = Instant::now();
        let settings =
            Settings { processes: target.family(), ports: vec![target.port()], ..Settings::default() };
        let window = Window::open(&settings, Nothing)?;
        timed.push(begun.elapsed());
        timed.push(first_answer(&mut driver)?);
        window.close(None)?;
        for (all, one) in steps.iter_mut().zip(timed) {
            all.push(one.as_secs_f64() * 1e3);
        }
    }
    println!("from command to first request under load, built-in server, median of {} (ms)", args.times);
    let total: f64 = steps.iter().cloned().map(median_of).sum();
    for (step, times) in STEPS.iter().zip(steps) {
        println!("  {step:<36} {:>7.1}", median_of(times));
    }
    let reached = total < 1000.0;
    println!("  {:<36} {total:>7.1}   {}", "together", goal("under 1000 ms beyond the warm-up", reached));
    println!("  {:<36} {:>7.1}", "beside it: the warm-up", median_of(warm_ups));
    println!("  {:<36} {:>7.1}", "a whole bench of 10 ms rounds, once", whole.as_secs_f64() * 1e3);
    Ok(Verdict::of_all([reached]))
}

/// A sink that keeps nothing.
struct Nothing;

impl Sink for Nothing {
    fn take(&mut self, _: tracer::recording::Request) -> Result<()> {
        Ok(())
    }
}

fn first_answer(driver: &mut Driver) -> Result<Duration> {
    let begun = Instant::now();
    no_errors(&driver.run(Stop::Count(1))?)?;
    Ok(begun.elapsed())
}

fn ended_in(arguments: &[&str]) -> Result<Duration> {
    let begun = Instant::now();
    let status = Command::new(tracer_binary())
        .args(arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .context("cannot start tracer")?;
    if !status.success() {
        eprintln!("note: `tracer {}` ended with {status}", arguments.join(" "));
    }
    Ok(begun.elapsed())
}

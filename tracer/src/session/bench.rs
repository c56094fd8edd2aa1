//! `bench`: each server in a fresh process, untraced and traced rounds in turn, then one connection alone.

use std::path::Path;

use anyhow::{Context, Result, anyhow};

use super::{
    Gather, interrupt,
    launch::{Launch, Tracing},
    new_run,
    progress::Progress,
    put_traced, target_exited,
};
use crate::{
    check::Checker,
    load::{Pacing, Stop, report::notes_on_pacing},
    recording::{INTERRUPTED, LoadTotals, Round, Run, disk::Writer},
    report::{self, Row},
    scenario::{Length, Request, Scenario, Server},
    stats::Summary,
    target::{
        Target,
        cores::{Placement, pin_current_thread, placement},
        user::give_to_user,
    },
    window::Traced,
};

/// Requests at one connection, at most: enough for its p99.
const SINGLE_REQUESTS: u64 = 3_000;

/// What `bench` is asked for besides the scenario.
pub struct Options<'a> {
    /// How rounds are traced.
    pub tracing: Tracing,
    /// How requests are sent; the latency of one connection alone is always that of a closed loop.
    pub pacing: Pacing,
    /// Write the recording of the only server and workload here.
    pub output: Option<&'a Path>,
    /// Makes the promises to watch, for each server and workload anew.
    pub checker: Option<&'a dyn Fn() -> Checker>,
}

/// One server under one workload.
pub struct Outcome {
    /// Everything but the requests.
    pub run: Run,
    /// The row of the report.
    pub row: Row,
    /// The promises watched.
    pub checker: Option<Checker>,
}

/// Runs every server of the scenario under every workload. An error leaves the outcomes before it.
pub fn bench(
    scenario: &Scenario,
    options: &Options,
    progress: &Progress,
    outcomes: &mut Vec<Outcome>,
) -> Result<()> {
    for server in &scenario.servers {
        server.check_installed()?;
    }
    let placement = placement()?;
    if let Some(note) = placement.note() {
        progress.note(&note);
    }
    notes_on_pacing(&options.pacing).iter().for_each(|note| progress.note(note));
    // Reader and everything else of ours share the driver's CPU: the server has its own for itself.
    if let Some(&core) = placement.client.first() {
        pin_current_thread(core)?;
    }
    for server in &scenario.servers {
        for request in &scenario.requests {
            if interrupt::requested() {
                return Ok(());
            }
            let bench = Bench { scenario, server, request, options, placement: &placement, progress };
            outcomes.push(bench.run().with_context(|| format!("{} {}", server.name, request.name))?);
        }
    }
    Ok(())
}

/// One server under one workload, while it runs.
struct Bench<'a> {
    scenario: &'a Scenario,
    server: &'a Server,
    request: &'a Request,
    options: &'a Options<'a>,
    placement: &'a Placement,
    progress: &'a Progress,
}

impl Bench<'_> {
    fn run(&self) -> Result<Outcome> {
        let mut run = new_run(&self.server.name, &self.request.name, self.options.tracing.keeps_query);
        run.server_cpus = as_u32(&self.placement.server);
        run.client_cpus = as_u32(&self.placement.client);
        run.notes.extend(self.placement.note());
        let writer = self.options.output.map(Writer::create).transpose()?;
        let mut gather =
            Gather { writer, checker: self.options.checker.map(|make| make()), ..Gather::default() };

        self.say("starting");
        let mut launch = Launch::start(self.scenario, self.server, self.placement)?;
        run.processes = crate::target::processes::processes(launch.target.pid());
        let pacing = self.options.pacing;
        let driver = launch.paced_driver(self.request, self.scenario.connections, pacing);
        let mut driver = driver.map_err(|error| or_its_exit(error, &mut launch.target))?;
        self.say("warming up");
        let warm_up = driver.run(Stop::Count(pacing.warm_up(self.server.warm_up_requests)))?;
        let mut traced: Option<Traced> = None;
        let mut failed = warm_up.totals.errors > 0;
        if failed {
            run.rounds.push(Round { load: warm_up.totals, ..Round::default() });
        }
        for number in 1..=self.scenario.rounds {
            if interrupt::requested() || failed {
                break;
            }
            self.say(&format!("round {number} of {}, untraced", self.scenario.rounds));
            let untraced = launch.untraced(&mut driver, self.stop())?;
            failed |= untraced.load.errors > 0;
            run.rounds.push(untraced);
            if interrupt::requested() || failed {
                break;
            }
            self.say(&format!("round {number} of {}, traced", self.scenario.rounds));
            let (round, window) =
                launch.traced(&mut driver, self.stop(), &self.options.tracing, &mut gather)?;
            failed |= round.load.errors > 0;
            run.rounds.push(round);
            match &mut traced {
                Some(all) => all.merge(window),
                None => traced = Some(window),
            }
        }
        drop(driver);
        let single = if failed || interrupt::requested() {
            None
        } else {
            self.single_connection(&launch).map_err(|error| or_its_exit(error, &mut launch.target))?
        };
        let exit = launch.target.exit_told();
        launch.target.stop();

        put_traced(&mut run, traced.unwrap_or_default());
        run.load = Some(totals_of(&run.rounds, self.scenario.connections));
        if let Some(exit) = exit {
            target_exited(&mut run);
            run.notes.push(exit);
        } else if interrupt::requested() {
            run.ended_early = INTERRUPTED.into();
        }
        let row = report::row(&run, &gather.summary, single.as_ref());
        if let (Some(writer), Some(path)) = (gather.writer, self.options.output) {
            writer.finish(&run)?;
            give_to_user(path)?;
        }
        Ok(Outcome { run, row, checker: gather.checker })
    }

    fn say(&self, what: &str) {
        self.progress.say(format!("{} {}: {what}", self.server.name, self.request.name));
    }

    fn stop(&self) -> Stop {
        match self.scenario.length {
            Length::Requests(count) => Stop::Count(count),
            Length::Duration(duration) => Stop::After(duration),
        }
    }

    /// The latency of a request that waits for no other: one connection, traced.
    fn single_connection(&self, launch: &Launch) -> Result<Option<Summary>> {
        self.say("one connection");
        let mut driver = launch.driver(self.request, 1)?;
        let stop = match self.scenario.length {
            Length::Requests(count) => Stop::Count((count / 10).clamp(1, SINGLE_REQUESTS)),
            Length::Duration(duration) => Stop::After(duration / 4),
        };
        let mut gather = Gather::default();
        launch.traced(&mut driver, stop, &self.options.tracing, &mut gather)?;
        Ok((gather.summary.requests() > 0).then_some(gather.summary))
    }
}

/// The error, or what explains it better: that the server is gone.
fn or_its_exit(error: anyhow::Error, target: &mut Target) -> anyhow::Error {
    target.exit_told().map_or(error, |exit| anyhow!(exit))
}

fn as_u32(cpus: &[usize]) -> Vec<u32> {
    cpus.iter().map(|&cpu| cpu as u32).collect()
}

/// The load of the traced rounds together. Percentiles are those of each round: they do not add up.
pub(super) fn totals_of(rounds: &[Round], connections: u32) -> LoadTotals {
    let kept_in_flight = rounds.first().and_then(|round| round.load.kept_in_flight);
    let mut all = LoadTotals { connections, kept_in_flight, ..LoadTotals::default() };
    for load in rounds.iter().filter(|round| round.traced).map(|round| &round.load) {
        all.requests += load.requests;
        all.asked = load.asked.map(|asked| all.asked.unwrap_or_default() + asked);
        all.errors += load.errors;
        all.first_error = all.first_error.or_else(|| load.first_error.clone());
        all.reconnects += load.reconnects;
        all.elapsed_ns += load.elapsed_ns;
        all.client_cpu_ns += load.client_cpu_ns;
        all.latency = load.latency;
    }
    all
}

//! `record`: attach to running processes, or start one, with our load or somebody else's traffic.

use std::{
    path::PathBuf,
    sync::mpsc::Sender,
    time::{Duration, Instant},
};

use anyhow::{Result, anyhow};

use super::{Gather, interrupt, new_run, progress::Progress, put_traced, target_exited};
use crate::{
    check::Checker,
    load::{
        ClientRecord, Driver, Expectation, LoadResult, Pacing, Plan, Route, Stop, Url,
        report::notes_on_pacing,
    },
    probe,
    recording::{INTERRUPTED, Round, Run, TARGET_EXITED, disk::Writer},
    scenario::Server,
    stats::Summary,
    target::{
        SpawnOptions, Target,
        cores::{Placement, pin_current_thread, placement},
        cpu::CpuAccount,
        processes,
        user::{give_to_user, invoking_user},
    },
    window::{Settings, Window},
};

/// Pause between two looks at clock, target and Ctrl-C.
const WATCH_PAUSE: Duration = Duration::from_millis(20);
/// Load without a length goes on until Ctrl-C; nobody waits this long.
const UNTIL_INTERRUPTED: Duration = Duration::from_secs(365 * 24 * 3_600);
/// Requests sent before the window opens, so that the first ones do not stand for all.
const WARM_UP_REQUESTS: u64 = 500;

/// Whom to record.
pub enum Subject {
    /// Running processes, with all their children.
    Processes(Vec<u32>),
    /// A command to start.
    Command(Vec<String>),
}

/// Load of our own driver.
#[derive(Clone, Debug)]
pub struct Load {
    /// Where to.
    pub url: Url,
    /// Connections held open.
    pub connections: u32,
    /// How requests are sent.
    pub pacing: Pacing,
    /// Method.
    pub method: String,
    /// Headers beside those the driver writes itself.
    pub headers: Vec<(String, String)>,
    /// Body; may be empty.
    pub body: Vec<u8>,
    /// Status expected.
    pub status: u16,
    /// Requests to send; `None`: for the duration.
    pub requests: Option<u64>,
}

/// What `record` is asked for.
pub struct Options {
    /// Whom.
    pub subject: Subject,
    /// Our own load, or somebody else's traffic.
    pub load: Option<Load>,
    /// How long; `None`: until Ctrl-C, the end of the target, or the last request asked for.
    pub duration: Option<Duration>,
    /// Where the recording goes; `None`: nowhere.
    pub output: Option<PathBuf>,
    /// Programs and map sizes.
    pub probes: probe::Options,
    /// Keep query strings in paths.
    pub keeps_query: bool,
    /// Promises to watch.
    pub checker: Option<Checker>,
}

/// What a recording saw.
pub struct Outcome {
    /// Everything but the requests.
    pub run: Run,
    /// Sums and distributions.
    pub summary: Summary,
    /// The promises watched.
    pub checker: Option<Checker>,
}

/// Records until the duration is over, the load is through, the target ends, or Ctrl-C.
pub fn record(options: Options, progress: &Progress) -> Result<Outcome> {
    // Without one, Ctrl-C is the end that was meant.
    let has_length =
        options.duration.is_some() || options.load.as_ref().is_some_and(|l| l.requests.is_some());
    let placement = placement()?;
    let writer = options.output.as_deref().map(Writer::create).transpose()?;
    let mut recorded = Recorded::find(&options, &placement)?;
    let mut run =
        new_run(&recorded.name, &workload(options.load.as_ref(), options.keeps_query), options.keeps_query);
    if let Some(&core) = placement.client.first() {
        pin_current_thread(core)?;
        run.client_cpus = placement.client.iter().map(|&cpu| cpu as u32).collect();
    }
    run.server_cpus = recorded.pinned_to.iter().map(|&cpu| cpu as u32).collect();

    recorded.begin(options.load.as_ref(), progress)?;
    let mut driver = options
        .load
        .as_ref()
        .map(|load| start_driver(load, &placement, progress))
        .transpose()
        .map_err(|error| recorded.or_its_exit(error))?;
    if recorded.ended() {
        return Err(recorded.or_its_exit(anyhow!("the target exited before anything was recorded")));
    }
    let roots = recorded.roots();
    run.processes = roots.iter().flat_map(|&root| processes::processes(root)).collect();
    let settings = Settings {
        processes: processes::family(&roots),
        ports: ports(&roots, options.load.as_ref()),
        probes: options.probes.clone(),
        keeps_query: options.keeps_query,
        joins_samples: driver.is_some(),
    };
    let gather = Gather { writer, checker: options.checker, ..Gather::default() };
    let window = Window::open(&settings, gather)?;
    recorded.run_traced(options.load.as_ref())?;
    progress.say(format!("recording {}; Ctrl-C ends it with the result so far", recorded.name));

    let mut account = CpuAccount::new(&roots);
    let before = account.sample();
    let load = match (&mut driver, &options.load) {
        (Some(driver), Some(load)) => Some(drive(driver, load, options.duration, window.samples())?),
        _ => {
            recorded.watch(options.duration);
            None
        }
    };
    let used = account.sample().since(before);
    let sent = load.as_ref().map(LoadResult::sent);
    if let Some(LoadResult { totals, .. }) = load {
        run.load = Some(totals.clone());
        run.rounds = vec![Round {
            traced: true,
            load: totals,
            server_cpu_ns: used.cpu_ns,
            server_run_delay_ns: used.run_delay_ns,
            other_requests: 0,
        }];
    }
    let (traced, gather) = window.close(sent)?;
    for round in &mut run.rounds {
        round.other_requests = traced.tally.ledger.other_clients;
    }
    drop(driver);
    run.notes.extend(recorded.exited());
    if recorded.ended() && (has_length || options.load.is_some() || recorded.failed()) {
        run.ended_early = TARGET_EXITED.into();
    } else if has_length && interrupt::requested() {
        run.ended_early = INTERRUPTED.into();
    }
    recorded.stop();
    put_traced(&mut run, traced);
    if run.ended_early == TARGET_EXITED {
        target_exited(&mut run);
    }
    if run.conservation.exited_processes > 0 {
        // What the kernel knew of them went with them: ours is all there is.
        for round in &mut run.rounds {
            round.server_cpu_ns = run.conservation.traced_cpu_ns;
            round.server_run_delay_ns = run.conservation.traced_run_queue_ns;
        }
    }
    if let (Some(writer), Some(path)) = (gather.writer, &options.output) {
        writer.finish(&run)?;
        give_to_user(path)?;
    }
    Ok(Outcome { run, summary: gather.summary, checker: gather.checker })
}

/// The processes being recorded, found or started.
struct Recorded {
    name: String,
    processes: Vec<u32>,
    started: Option<(Target, Server)>,
    pinned_to: Vec<usize>,
}

impl Recorded {
    fn find(options: &Options, placement: &Placement) -> Result<Self> {
        match &options.subject {
            Subject::Processes(pids) => {
                let described: Vec<_> =
                    pids.iter().map(|&pid| processes::describe(pid)).collect::<Result<_>>()?;
                let name = described.iter().map(|process| process.name.clone()).collect::<Vec<_>>().join("+");
                Ok(Self { name, processes: pids.clone(), started: None, pinned_to: Vec::new() })
            }
            Subject::Command(command) => {
                let mut server = Server::from_command(&name_of(command), command.clone());
                if let Some(load) = &options.load {
                    server.port = load.url.address.port();
                    server.ready = load.url.path.clone();
                }
                let options =
                    SpawnOptions { core: placement.server.first().copied(), run_as: invoking_user() };
                let target = Target::spawn_paused(&server, &options)?;
                Ok(Self {
                    name: server.name.clone(),
                    processes: Vec::new(),
                    started: Some((target, server)),
                    pinned_to: placement.server.clone(),
                })
            }
        }
    }

    /// With our load: lets a started command run until it answers. Without, it waits for the window to open, so that
    /// it is traced from its first instruction.
    fn begin(&mut self, load: Option<&Load>, progress: &Progress) -> Result<()> {
        let Some((target, server)) = &mut self.started else { return Ok(()) };
        if load.is_some() {
            target.release()?;
            progress.say(format!("waiting for {}", self.name));
            target.wait_ready(&server.ready, server.ready_timeout)?;
        }
        Ok(())
    }

    /// Lets a command run that waits for the window.
    fn run_traced(&mut self, load: Option<&Load>) -> Result<()> {
        match &mut self.started {
            Some((target, _)) if load.is_none() => target.release(),
            _ => Ok(()),
        }
    }

    fn roots(&self) -> Vec<u32> {
        match &self.started {
            Some((target, _)) => vec![target.pid()],
            None => self.processes.clone(),
        }
    }

    /// Waits for the end of the duration, of the target, or Ctrl-C.
    fn watch(&mut self, duration: Option<Duration>) {
        let end = duration.map(|duration| Instant::now() + duration);
        while !interrupt::requested() && !self.ended() && end.is_none_or(|end| Instant::now() < end) {
            std::thread::sleep(WATCH_PAUSE);
        }
    }

    fn ended(&mut self) -> bool {
        match &mut self.started {
            Some((target, _)) => target.exit_status().is_some(),
            None => !self.processes.iter().any(|&pid| processes::exists(pid)),
        }
    }

    /// A started command ended with a failure.
    fn failed(&mut self) -> bool {
        let status = self.started.as_mut().and_then(|(target, _)| target.exit_status());
        status.is_some_and(|status| !status.success())
    }

    /// Who of them exited, in a sentence; with a started command's last words.
    fn exited(&mut self) -> Option<String> {
        if let Some((target, _)) = &mut self.started {
            return target.exit_told();
        }
        let gone: Vec<_> =
            self.processes.iter().filter(|&&pid| !processes::exists(pid)).map(u32::to_string).collect();
        (!gone.is_empty()).then(|| format!("gone: process {}", gone.join(", ")))
    }

    /// The error, or what explains it better: that nobody is left.
    fn or_its_exit(&mut self, error: anyhow::Error) -> anyhow::Error {
        match self.exited() {
            Some(exit) => anyhow!("there was nothing to record: {exit}"),
            None => error,
        }
    }

    fn stop(&mut self) {
        if let Some((target, _)) = &mut self.started {
            target.stop();
        }
    }
}

fn name_of(command: &[String]) -> String {
    let program = command.first().map_or("", String::as_str);
    program.rsplit('/').next().unwrap_or(program).to_owned()
}

fn workload(load: Option<&Load>, keeps_query: bool) -> String {
    let Some(load) = load else { return "(traffic of others)".to_owned() };
    let path = &load.url.path;
    let shown = if keeps_query { path.as_str() } else { path.split('?').next().unwrap_or(path) };
    format!("{} {shown}", load.method)
}

fn ports(roots: &[u32], load: Option<&Load>) -> Vec<u16> {
    let mut ports = processes::listening_ports(&processes::family(roots));
    ports.extend(load.map(|load| load.url.address.port()));
    ports
}

fn start_driver(load: &Load, placement: &Placement, progress: &Progress) -> Result<Driver> {
    let route = Route {
        method: load.method.clone(),
        headers: load.headers.clone(),
        body: load.body.clone(),
        expect: Expectation { status: load.status, body: None },
        ..Route::get(&load.url.path)
    };
    let plan = Plan {
        host: load.url.host.clone(),
        connections: load.connections as usize,
        cores: placement.client.clone(),
        ..Plan::new(load.url.address, vec![route])
    };
    notes_on_pacing(&load.pacing).iter().for_each(|note| progress.note(note));
    let mut driver = Driver::start(plan.paced(load.pacing))?;
    interrupt::also_set(&driver.stop_flag())?;
    progress.say("warming up");
    driver.run(Stop::Count(load.pacing.warm_up(WARM_UP_REQUESTS)))?;
    Ok(driver)
}

fn drive(
    driver: &mut Driver,
    load: &Load,
    duration: Option<Duration>,
    samples: Sender<ClientRecord>,
) -> Result<LoadResult> {
    let stop = match (load.requests, duration) {
        (Some(requests), _) => Stop::Count(requests),
        (None, Some(duration)) => Stop::After(duration),
        (None, None) => Stop::After(UNTIL_INTERRUPTED),
    };
    driver.run_sending_samples(stop, samples)
}

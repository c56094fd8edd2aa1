//! Cold starts: from exec to listening, to the first answer, and until CPU per request is flat.

use anyhow::{Context, Result, ensure};

use super::{Session, stamps::Stamps};
use crate::{
    equal_work::ask,
    load::{Stop, monotonic_ns},
    scenario,
    scenario::Server,
    session::{
        Gather, interrupt,
        launch::{Launch, spawn_options},
    },
    stats::{Spread, paired::median},
    suite::ColdStart,
    target::{
        Target,
        cpu::CpuAccount,
        processes::{Faults, faults},
    },
    window::{Settings, Window},
};

/// Requests after the first answer, in so many slices.
const SLICES: usize = 10;
/// Requests in a slice.
const SLICE: u64 = 100;
/// Calls that open or read files.
const FILE_CALLS: [&str; 12] = [
    "open",
    "openat",
    "openat2",
    "read",
    "pread64",
    "readv",
    "mmap",
    "stat",
    "statx",
    "newfstatat",
    "fstat",
    "readlink",
];

/// Measures every server.
pub(super) fn measure(session: &Session, settings: scenario::Start) -> Result<Vec<ColdStart>> {
    let launches = if session.options.quick { settings.launches.min(3) } else { settings.launches };
    let mut found = Vec::new();
    for server in session.servers() {
        let mut starts = Vec::new();
        for number in 1..=launches {
            if interrupt::requested() {
                return Ok(found);
            }
            session.say(format_args!("cold start {number} of {launches} of {}", server.name));
            starts.push(start(session, server).with_context(|| format!("cold start of {}", server.name))?);
        }
        found.push(ColdStart { file_calls: file_calls(session, server)?, ..together(&server.name, &starts) });
    }
    Ok(found)
}

/// One cold start.
struct Start {
    listen_ns: u64,
    answer_ns: u64,
    cpu_ns: u64,
    run_queue_ns: u64,
    faults: Faults,
    curve_ns: Vec<f64>,
}

fn start(session: &Session, server: &Server) -> Result<Start> {
    let mut target = Target::spawn_paused(server, &spawn_options(session.placement))?;
    let mut stamps = Stamps::watch(target.pid(), target.port())?;
    // Before its exec: what the exec itself costs is in it, what the fork cost is not.
    let mut account = CpuAccount::new(&[target.pid()]);
    let before = account.sample();
    target.release()?;
    let moments = stamps.listening(server.ready_timeout).with_context(|| target.log_tail())?;
    let launch = Launch::of(session.scenario, target, session.placement);
    let request = &session.scenario.requests[0];
    let answer = ask(launch.address(), request, session.scenario.timeout)?;
    let answered_ns = monotonic_ns();
    ensure!(answer.status == request.expect.status, "the first answer was {}", answer.status);
    let used = account.sample().since(before);
    let faults = faults(&launch.target.family());
    Ok(Start {
        listen_ns: moments.listen_ns.saturating_sub(moments.exec_ns),
        answer_ns: answered_ns.saturating_sub(moments.exec_ns),
        cpu_ns: used.cpu_ns,
        run_queue_ns: used.run_delay_ns,
        faults,
        curve_ns: curve(session, &launch)?,
    })
}

/// CPU per request of the first requests, slice by slice.
fn curve(session: &Session, launch: &Launch) -> Result<Vec<f64>> {
    let mut driver = launch.driver(&session.scenario.requests[0], session.scenario.connections)?;
    (0..SLICES)
        .map(|_| Ok(launch.untraced(&mut driver, Stop::Count(SLICE))?.server_cpu_per_request_ns()))
        .collect()
}

/// The calls on files until the first answer, of a start with probes.
fn file_calls(session: &Session, server: &Server) -> Result<Vec<(String, u64)>> {
    let mut target = Target::spawn_paused(server, &spawn_options(session.placement))?;
    let settings = Settings {
        processes: vec![target.pid()],
        ports: vec![target.port()],
        probes: session.options.tracing.probes.clone(),
        keeps_query: session.options.tracing.keeps_query,
        joins_samples: false,
    };
    let window = Window::open(&settings, Gather::default())?;
    target.release()?;
    target.wait_ready(&server.ready, server.ready_timeout)?;
    let (traced, _) = window.close(None)?;
    let calls = traced.syscalls.into_iter().filter(|call| FILE_CALLS.contains(&call.name.as_str()));
    let mut calls: Vec<_> = calls.map(|call| (call.name, call.calls)).collect();
    calls.sort_by_key(|(_, calls)| std::cmp::Reverse(*calls));
    Ok(calls)
}

fn together(server: &str, starts: &[Start]) -> ColdStart {
    let spread = |figure: &dyn Fn(&Start) -> u64| Spread::of(starts.iter().map(|start| figure(start) as f64));
    let slice = |index: usize| median(&starts.iter().map(|start| start.curve_ns[index]).collect::<Vec<_>>());
    ColdStart {
        server: server.to_owned(),
        listen_ns: spread(&|start| start.listen_ns),
        answer_ns: spread(&|start| start.answer_ns),
        cpu_ns: spread(&|start| start.cpu_ns),
        run_queue_ns: spread(&|start| start.run_queue_ns),
        minor_faults: spread(&|start| start.faults.minor),
        major_faults: spread(&|start| start.faults.major),
        file_calls: Vec::new(),
        curve_ns: (0..SLICES).filter_map(slice).collect(),
        slice_requests: SLICE,
    }
}

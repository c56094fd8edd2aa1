//! The leak check: phases of load on one process, a forced collection after each.

use std::time::Duration;

use anyhow::Result;

use super::{Session, contract};
use crate::{
    load::Stop,
    scenario::Server,
    session::{interrupt, launch::Launch},
    suite::{LeakCheck, LeakPhase},
    target::cpu::rss_bytes,
};

/// Phases, as the write-ups have them.
const PHASES: u32 = 4;

/// Checks every server.
pub(super) fn measure(session: &Session, phase: Duration) -> Result<Vec<LeakCheck>> {
    let mut found = Vec::new();
    for server in session.servers() {
        if interrupt::requested() {
            break;
        }
        found.push(check(session, server, phase)?);
    }
    Ok(found)
}

fn check(session: &Session, server: &Server, phase: Duration) -> Result<LeakCheck> {
    let launch = Launch::start(session.scenario, server, session.placement)?;
    let mut driver = launch.driver(&session.scenario.requests[0], session.scenario.connections)?;
    let mut check = LeakCheck { server: server.name.clone(), phases: Vec::new(), failed: 0 };
    for number in 1..=PHASES {
        session.say(format_args!("leak check of {}, phase {number} of {PHASES}", server.name));
        let load = driver.run(Stop::After(phase))?;
        if interrupt::requested() {
            break;
        }
        let heap = contract::heap(launch.address(), session.scenario.timeout);
        check.failed += load.totals.errors;
        check.phases.push(LeakPhase {
            requests: load.totals.requests,
            rss_bytes: rss_bytes(&[launch.target.pid()]),
            heap_bytes: heap.map(|heap| heap.heap_bytes),
            handles: heap.map(|heap| heap.handles),
        });
    }
    Ok(check)
}

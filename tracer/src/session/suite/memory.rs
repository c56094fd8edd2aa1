//! Resident memory of fresh servers, idle and after a load, and the heap that a route keeps.

use anyhow::Result;

use super::{Session, contract};
use crate::{
    load::Stop,
    scenario,
    scenario::Server,
    session::{interrupt, launch::Launch},
    stats::Spread,
    suite::Memory,
    target::{cpu::rss_bytes, processes::peak_rss_bytes},
};

/// Measures every server.
pub(super) fn measure(session: &Session, settings: scenario::Memory) -> Result<Vec<Memory>> {
    let launches = if session.options.quick { 1 } else { settings.launches };
    let mut found = Vec::new();
    for server in session.servers() {
        let (mut idle, mut loaded, mut peak, mut routes) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for number in 1..=launches {
            if interrupt::requested() {
                return Ok(found);
            }
            session.say(format_args!("memory of {}, start {number} of {launches}", server.name));
            let launch = Launch::start(session.scenario, server, session.placement)?;
            idle.push(rss_bytes(&[launch.target.pid()]) as f64);
            let mut driver = launch.driver(&session.scenario.requests[0], settings.connections)?;
            let load = driver.run(Stop::Count(settings.requests))?;
            if load.totals.errors == 0 {
                loaded.push(rss_bytes(&[launch.target.pid()]) as f64);
                peak.push(peak_rss_bytes(&launch.target.family()) as f64);
            }
            drop(launch);
            routes.extend(route_bytes(session, server)?);
        }
        found.push(Memory {
            server: server.name.clone(),
            idle_bytes: Spread::of(idle),
            loaded_bytes: Spread::of(loaded),
            peak_bytes: Spread::of(peak),
            requests: settings.requests,
            connections: settings.connections,
            route_bytes: Spread::of(routes),
        });
    }
    Ok(found)
}

/// What each route keeps of the heap: a small table beside a large one, each in a fresh process that has served nothing.
fn route_bytes(session: &Session, server: &Server) -> Result<Option<f64>> {
    let Some(router) = &session.suite.router else { return Ok(None) };
    let (Some(few), Some(many)) = (router.sizes.iter().min(), router.sizes.iter().max()) else {
        return Ok(None);
    };
    let heap_bytes = |routes: u32| -> Result<Option<f64>> {
        let server = contract::with_table(server, "static", routes);
        let launch = Launch::start(session.scenario, &server, session.placement)?;
        let heap = contract::heap(launch.address(), session.scenario.timeout);
        Ok(heap.map(|heap| heap.heap_bytes as f64))
    };
    let (small, large) = (heap_bytes(*few)?, heap_bytes(*many)?);
    Ok(small.zip(large).map(|(small, large)| (large - small) / f64::from(many - few)).filter(|_| many > few))
}

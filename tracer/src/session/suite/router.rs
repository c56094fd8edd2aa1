//! How routers grow: what a request to some route takes more than one to the first, within one process, over fresh
//! starts.

use anyhow::Result;

use super::{Session, contract};
use crate::{
    load::{Driver, Stop},
    scenario::{Router, Server},
    session::{interrupt, launch::Launch},
    stats::paired::{Interval, median},
    suite::RouterGrowth,
};

/// Requests to each route before any is measured: its code is compiled by then.
const WARM_UP: u64 = 2_000;
/// Requests in a slice.
const SLICE: u64 = 1_000;
/// Pairs of slices, the order in a pair taking turns.
const PAIRS: usize = 4;
/// On each side: the interval holds the truth in 95 of 100 cases at least.
const LEVEL: f64 = 0.025;

/// One table, and what is asked of it beside its first route.
struct Table {
    name: &'static str,
    routes: u32,
    targets: Vec<Target>,
}

/// A route that is compared with the first.
struct Target {
    name: &'static str,
    path: String,
    status: u16,
}

/// The tables of the write-up. What matches three parameters is no matter of size: it is asked once.
fn tables(sizes: &[u32]) -> Vec<Table> {
    let target = |name, path, status| Target { name, path, status };
    let sized = sizes.iter().flat_map(|&routes| {
        let last = routes.saturating_sub(1);
        let fixed =
            vec![target("last", format!("/resource{last}"), 200), target("miss", "/nothing".to_owned(), 404)];
        let tenant = vec![target("tenant", format!("/acme/item{last}"), 200)];
        [Table { name: "static", routes, targets: fixed }, Table { name: "tenant", routes, targets: tenant }]
    });
    let params =
        Table { name: "params", routes: 1, targets: vec![target("params", "/x/y/z".to_owned(), 200)] };
    sized.chain([params]).collect()
}

/// Measures every server.
pub(super) fn measure(session: &Session, settings: &Router) -> Result<Vec<RouterGrowth>> {
    let tables = tables(&settings.sizes);
    let servers: Vec<&Server> = session.servers().collect();
    let mut cells: Vec<(usize, usize)> =
        (0..servers.len()).flat_map(|server| (0..tables.len()).map(move |table| (server, table))).collect();
    let mut found: Vec<Vec<Vec<Seen>>> = vec![tables.iter().map(|_| Vec::new()).collect(); servers.len()];
    let mut random = fastrand::Rng::with_seed(session.options.seed);
    for number in 1..=settings.launches {
        random.shuffle(&mut cells);
        for (place, &(server, table)) in cells.iter().enumerate() {
            if interrupt::requested() {
                return Ok(Vec::new());
            }
            session.say(format_args!(
                "router growth, start {number} of {}, table {} of {}: {} {}",
                settings.launches,
                place + 1,
                cells.len(),
                servers[server].name,
                tables[table].name
            ));
            found[server][table].push(launch(session, servers[server], &tables[table])?);
        }
    }
    let rows = servers.iter().zip(&found).flat_map(|(server, found)| {
        tables.iter().zip(found).flat_map(move |(table, launches)| rows(server, table, launches))
    });
    Ok(rows.collect())
}

/// What one start showed of a table's targets: added nanoseconds per request, and failures.
#[derive(Clone, Debug, Default)]
struct Seen {
    added_ns: Vec<f64>,
    failed: u64,
}

fn launch(session: &Session, server: &Server, table: &Table) -> Result<Seen> {
    let server = contract::with_table(server, table.name, table.routes);
    let launch = Launch::start(session.scenario, &server, session.placement)?;
    let connections = session.scenario.connections;
    let mut seen = Seen::default();
    let mut first = launch.driver(&contract::get("/resource0", 200), connections)?;
    seen.failed += first.run(Stop::Count(WARM_UP))?.totals.errors;
    for target in &table.targets {
        let mut driver = launch.driver(&contract::get(&target.path, target.status), connections)?;
        seen.failed += driver.run(Stop::Count(WARM_UP))?.totals.errors;
        let mut slice = |driver: &mut Driver| -> Result<f64> {
            let round = launch.untraced(driver, Stop::Count(SLICE))?;
            seen.failed += round.load.errors;
            Ok(round.server_cpu_per_request_ns())
        };
        let mut differences = Vec::new();
        for pair in 0..PAIRS {
            let (one, other) = if pair % 2 == 0 {
                let one = slice(&mut first)?;
                (one, slice(&mut driver)?)
            } else {
                let other = slice(&mut driver)?;
                (slice(&mut first)?, other)
            };
            differences.push(other - one);
        }
        seen.added_ns.extend(median(&differences));
    }
    Ok(seen)
}

fn rows(server: &Server, table: &Table, launches: &[Seen]) -> Vec<RouterGrowth> {
    let failed = launches.iter().map(|seen| seen.failed).sum();
    let row = |(index, target): (usize, &Target)| {
        let added: Vec<f64> = launches.iter().filter_map(|seen| seen.added_ns.get(index).copied()).collect();
        RouterGrowth {
            server: server.name.clone(),
            target: target.name.to_owned(),
            routes: table.routes,
            added_ns: Interval::of(&added, LEVEL),
            failed,
        }
    };
    table.targets.iter().enumerate().map(row).collect()
}

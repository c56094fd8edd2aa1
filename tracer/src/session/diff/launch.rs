//! One launch: three servers fresh on one core, the driver on another, slices in turn.

use std::{
    net::{Ipv4Addr, SocketAddr},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};

use super::{
    Contenders,
    slices::{Loaded, Slicer},
};
use crate::{
    diff::{Design, Latency, Launch, RouteLaunch, Side, Started},
    equal_work,
    load::{Driver, Plan, Stop},
    probe,
    scenario::{Request, Server},
    session::{interrupt, progress::Progress},
    target::{
        SpawnOptions, Target,
        cores::pin_current_thread,
        cpu::{CpuAccount, heap_bytes, rss_bytes, stolen_ns, threads},
        ready::free_port,
        user::invoking_user,
    },
};

/// Every order of the three. Neighbours differ in who of A and B comes first.
const ORDERS: [[Side; 3]; 6] = [
    [Side::A, Side::B, Side::Control],
    [Side::B, Side::A, Side::Control],
    [Side::Control, Side::A, Side::B],
    [Side::Control, Side::B, Side::A],
    [Side::A, Side::Control, Side::B],
    [Side::B, Side::Control, Side::A],
];

/// Where launches run.
pub struct Bed<'a> {
    pub contenders: &'a Contenders,
    pub design: Design,
    pub probes: &'a probe::Options,
    pub cpus: &'a [usize],
    pub progress: &'a Progress,
}

/// How one launch differs from the others: the order of starting, who has which port, and the cores.
struct Places {
    order: [Side; 3],
    ports: [u16; 3],
    server_cpu: usize,
    client_cpu: usize,
}

impl Places {
    fn of(number: usize, cpus: &[usize]) -> Result<Self> {
        // Two launches per order, one on each core.
        let order = ORDERS[number / 2 % ORDERS.len()];
        let mut free = Vec::new();
        while free.len() < Side::ALL.len() {
            let port = free_port()?;
            if !free.contains(&port) {
                free.push(port);
            }
        }
        free.sort_unstable();
        let mut ports = [0; 3];
        for (side, port) in ORDERS[number % ORDERS.len()].into_iter().zip(free) {
            ports[side as usize] = port;
        }
        let (first, last) = (cpus[0], cpus[cpus.len() - 1]);
        let (server_cpu, client_cpu) = if number.is_multiple_of(2) { (last, first) } else { (first, last) };
        Ok(Self { order, ports, server_cpu, client_cpu })
    }
}

impl Bed<'_> {
    /// One launch; `None` when it was interrupted.
    pub fn launch(&self, number: usize) -> Result<Option<Launch>> {
        let places = Places::of(number, self.cpus)?;
        pin_current_thread(places.client_cpu)?;
        let stolen_before_ns = stolen_ns();
        let mut servers = self.start(&places)?;
        let mut drivers = self.drivers(&servers, &places)?;
        let result = self.measure(number, &places, &mut servers, &mut drivers);
        // Connections close before their servers end.
        drop(drivers);
        let Some((routes, processes)) = result.map_err(|error| with_exits(error, &mut servers))? else {
            return Ok(None);
        };
        Ok(Some(Launch {
            server_cpu: places.server_cpu as u32,
            client_cpu: places.client_cpu as u32,
            order: places.order,
            processes,
            routes,
            stolen_ns: stolen_ns().saturating_sub(stolen_before_ns),
        }))
    }

    /// How the answers of A and of B to each route differ, empty where they do not.
    pub fn unequal_work(&self) -> Result<Vec<String>> {
        let places = Places::of(0, self.cpus)?;
        let servers = self.start(&places)?;
        let ask = |workload: &Request, side: Side| {
            let address = servers[side as usize].address();
            equal_work::ask(address, workload, self.contenders.timeout).with_context(|| called(side))
        };
        self.contenders
            .workloads
            .iter()
            .map(|workload| {
                let (a, b) = (ask(workload, Side::A)?, ask(workload, Side::B)?);
                Ok(if a.status != b.status {
                    format!("A answers {} with status {}, B with {}", workload.name, a.status, b.status)
                } else if a.body.len() != b.body.len() {
                    let (a, b) = (a.body.len(), b.body.len());
                    format!("A answers {} with {a} bytes, B with {b}", workload.name)
                } else {
                    String::new()
                })
            })
            .collect()
    }

    fn server(&self, side: Side) -> &Server {
        &self.contenders.servers[usize::from(side == Side::B)]
    }

    fn start(&self, places: &Places) -> Result<[Serving; 3]> {
        let mut started: [Option<Serving>; 3] = [const { None }; 3];
        for side in places.order {
            let mut server = self.server(side).clone();
            server.port = places.ports[side as usize];
            started[side as usize] =
                Some(Serving::start(&server, places.server_cpu).with_context(|| called(side))?);
        }
        Ok(started.map(|serving| serving.expect("every side is in every order")))
    }

    /// For each route, a driver for each side.
    fn drivers(&self, servers: &[Serving; 3], places: &Places) -> Result<Vec<[Driver; 3]>> {
        let driver = |workload: &Request, side: Side| -> Result<Driver> {
            let plan = self.plan(workload, &servers[side as usize], places.client_cpu);
            let driver = Driver::start(plan).with_context(|| called(side))?;
            interrupt::also_set(&driver.stop_flag())?;
            Ok(driver)
        };
        let of_route = |workload: &Request| -> Result<[Driver; 3]> {
            Ok([driver(workload, Side::A)?, driver(workload, Side::B)?, driver(workload, Side::Control)?])
        };
        self.contenders.workloads.iter().map(of_route).collect()
    }

    fn plan(&self, workload: &Request, server: &Serving, core: usize) -> Plan {
        Plan {
            connections: self.design.connections as usize,
            rate: self.design.rate_per_s,
            timeout: self.contenders.timeout,
            cores: vec![core],
            ..Plan::new(server.address(), vec![workload.into()])
        }
    }

    /// All slices of all routes, and the processes as they were after the untraced ones.
    fn measure(
        &self,
        number: usize,
        places: &Places,
        servers: &mut [Serving; 3],
        drivers: &mut [[Driver; 3]],
    ) -> Result<Option<(Vec<RouteLaunch>, [Started; 3])>> {
        let mut slicer = Slicer { design: self.design, probes: self.probes, servers };
        let warm_up = Stop::After(Duration::from_nanos(self.design.warm_up_ns));
        let mut routes = Vec::new();
        for drivers in drivers.iter_mut() {
            for side in places.order {
                slicer.load(side, &mut drivers[side as usize], warm_up)?;
            }
            let mut route =
                RouteLaunch { slices: Vec::new(), latency: [const { Latency(Vec::new()) }; 3], traced: None };
            for turn in 0..self.design.slices {
                // There and back again, so that a steady drift falls out; who is in the middle changes.
                let mut order = ORDERS[(number + turn as usize / 2) % ORDERS.len()];
                if turn % 2 == 1 {
                    order.reverse();
                }
                for side in order {
                    let Loaded { slice, latency } =
                        slicer.untraced(side, turn, &mut drivers[side as usize])?;
                    if interrupt::requested() {
                        return Ok(None);
                    }
                    route.latency[side as usize].add(&latency);
                    route.slices.push(slice);
                }
            }
            routes.push(route);
        }
        let processes = slicer.servers.each_ref().map(Serving::after_load);
        for (route, drivers) in routes.iter_mut().zip(drivers) {
            route.traced = slicer.traced(number, drivers)?;
            if interrupt::requested() {
                return Ok(None);
            }
        }
        Ok(Some((routes, processes)))
    }
}

/// A server that answers.
pub struct Serving {
    pub target: Target,
    pub account: CpuAccount,
    cold_start_ns: u64,
}

impl Serving {
    fn start(server: &Server, cpu: usize) -> Result<Self> {
        let options = SpawnOptions { core: Some(cpu), run_as: invoking_user() };
        let mut target = Target::spawn_paused(server, &options)?;
        let begun = Instant::now();
        target.release()?;
        target.wait_ready(&server.ready, server.ready_timeout)?;
        let cold_start_ns = begun.elapsed().as_nanos() as u64;
        let account = CpuAccount::new(&[target.pid()]);
        Ok(Self { target, account, cold_start_ns })
    }

    fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.target.port()))
    }

    fn after_load(&self) -> Started {
        let family = self.target.family();
        Started {
            port: self.target.port(),
            cold_start_ns: self.cold_start_ns,
            rss_bytes: rss_bytes(&family),
            heap_bytes: heap_bytes(&family),
            processes: family.len() as u32,
            threads: threads(&family),
        }
    }
}

/// A side in the middle of a sentence.
pub fn called(side: Side) -> &'static str {
    match side {
        Side::A => "A",
        Side::B => "B",
        Side::Control => "the control (A again)",
    }
}

/// A failed request often means that a server ended: then that is what went wrong.
fn with_exits(error: anyhow::Error, servers: &mut [Serving; 3]) -> anyhow::Error {
    for side in Side::ALL {
        let target = &mut servers[side as usize].target;
        if let Some(status) = target.exit_status() {
            return error.context(format!(
                "{} ended by itself ({status}){}",
                called(side),
                target.log_tail()
            ));
        }
    }
    error
}

/// The load is only worth something when every answer is right.
pub fn refuse_errors(side: Side, load: &crate::load::LoadResult) -> Result<()> {
    if load.totals.errors > 0 {
        let first = load.totals.first_error.as_deref().unwrap_or("no reason was kept");
        bail!("{} failed {} requests: {first}", called(side), load.totals.errors);
    }
    Ok(())
}

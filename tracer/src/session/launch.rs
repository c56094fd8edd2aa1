//! A server in a fresh process, and rounds of load on it.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::Result;

use super::{Gather, interrupt, plan};
use crate::{
    load::{Driver, LoadResult, Pacing, Stop},
    probe,
    recording::Round,
    scenario::{Request, Scenario, Server},
    target::{
        SpawnOptions, Target,
        cores::Placement,
        cpu::{CpuAccount, CpuTimes},
        user::invoking_user,
    },
    window::{Settings, Traced, Window},
};

/// How rounds are traced.
#[derive(Clone, Debug, Default)]
pub struct Tracing {
    /// Programs and map sizes.
    pub probes: probe::Options,
    /// Keep query strings in paths.
    pub keeps_query: bool,
}

/// A server that answers, pinned to its own core.
pub(super) struct Launch<'a> {
    scenario: &'a Scenario,
    placement: &'a Placement,
    pub target: Target,
}

impl<'a> Launch<'a> {
    /// Starts the server and waits until it answers.
    pub fn start(scenario: &'a Scenario, server: &Server, placement: &'a Placement) -> Result<Self> {
        let mut target = Target::spawn(server, &spawn_options(placement))?;
        target.wait_ready(&server.ready, server.ready_timeout)?;
        Ok(Self::of(scenario, target, placement))
    }

    /// A target that listens already.
    pub fn of(scenario: &'a Scenario, target: Target, placement: &'a Placement) -> Self {
        Self { scenario, placement, target }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.target.port()))
    }

    /// A driver of this workload, with its connections open.
    pub fn driver(&self, request: &Request, connections: u32) -> Result<Driver> {
        self.paced_driver(request, connections, Pacing::default())
    }

    /// The same with another pacing.
    pub fn paced_driver(&self, request: &Request, connections: u32, pacing: Pacing) -> Result<Driver> {
        let core = self.placement.client.first().copied();
        let plan = plan(request, self.address(), connections, self.scenario, core);
        let driver = Driver::start(plan.paced(pacing))?;
        interrupt::also_set(&driver.stop_flag())?;
        Ok(driver)
    }

    /// One round without probes.
    pub fn untraced(&self, driver: &mut Driver, stop: Stop) -> Result<Round> {
        let (load, used) = self.accounted(|| driver.run(stop))?;
        Ok(round(false, load, used))
    }

    /// One round with the programs attached. `gather` lends its sink to the window and gets it back.
    pub fn traced(
        &self,
        driver: &mut Driver,
        stop: Stop,
        tracing: &Tracing,
        gather: &mut Gather,
    ) -> Result<(Round, Traced)> {
        let settings = Settings {
            processes: self.target.family(),
            ports: vec![self.target.port()],
            probes: tracing.probes.clone(),
            keeps_query: tracing.keeps_query,
            joins_samples: true,
        };
        let window = Window::open(&settings, std::mem::take(gather))?;
        let samples = window.samples();
        let (load, used) = self.accounted(|| driver.run_sending_samples(stop, samples))?;
        let (traced, back) = window.close(Some(load.sent()))?;
        *gather = back;
        let other_requests = traced.tally.ledger.other_clients;
        Ok((Round { other_requests, ..round(true, load, used) }, traced))
    }

    /// A load, and the CPU and run-queue time of the server meanwhile.
    fn accounted(&self, load: impl FnOnce() -> Result<LoadResult>) -> Result<(LoadResult, CpuTimes)> {
        let mut account = CpuAccount::new(&[self.target.pid()]);
        let before = account.sample();
        let load = load()?;
        Ok((load, account.sample().since(before)))
    }
}

/// On the server's core, as the user who called.
pub(super) fn spawn_options(placement: &Placement) -> SpawnOptions {
    SpawnOptions { core: placement.server.first().copied(), run_as: invoking_user() }
}

fn round(traced: bool, load: LoadResult, used: CpuTimes) -> Round {
    Round {
        traced,
        load: load.totals,
        server_cpu_ns: used.cpu_ns,
        server_run_delay_ns: used.run_delay_ns,
        other_requests: 0,
    }
}

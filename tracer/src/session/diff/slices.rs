//! Slices: load on one side for a fraction of a second, without and with probes.

use std::time::Duration;

use anyhow::Result;
use hdrhistogram::Histogram;

use super::launch::{Serving, refuse_errors};
use crate::{
    diff::{Design, Figures, Side, Slice, figures},
    load::{Driver, LoadResult, Stop},
    probe,
    recording::{Request, Run},
    session::{interrupt, put_traced},
    stats::Invariants,
    target::cpu::page_faults,
    window::{Settings, Sink, Traced, Window},
};

/// Measures slices of the servers of one launch.
pub struct Slicer<'a> {
    pub design: Design,
    pub probes: &'a probe::Options,
    pub servers: &'a mut [Serving; 3],
}

/// An untraced slice and its latencies.
pub struct Loaded {
    pub slice: Slice,
    pub latency: Histogram<u64>,
}

impl Slicer<'_> {
    /// Load whose figures are not kept.
    pub fn load(&mut self, side: Side, driver: &mut Driver, stop: Stop) -> Result<LoadResult> {
        let load = driver.run(stop)?;
        refuse_errors(side, &load)?;
        Ok(load)
    }

    /// One slice without probes.
    pub fn untraced(&mut self, side: Side, turn: u32, driver: &mut Driver) -> Result<Loaded> {
        let stop = self.stop();
        let family = self.servers[side as usize].target.family();
        let faults = page_faults(&family);
        let before = self.servers[side as usize].account.sample();
        let load = self.load(side, driver, stop)?;
        let used = self.servers[side as usize].account.sample().since(before);
        let slice = Slice {
            side,
            turn,
            requests: load.totals.requests,
            due: load.paced.as_ref().map(|paced| paced.asked),
            elapsed_ns: load.totals.elapsed_ns,
            server_cpu_ns: used.cpu_ns,
            run_delay_ns: used.run_delay_ns,
            client_cpu_ns: load.totals.client_cpu_ns,
            page_faults: page_faults(&family).saturating_sub(faults),
        };
        let latency = load.paced.map_or(load.latency, |paced| paced.response);
        Ok(Loaded { slice, latency })
    }

    /// The traced slices of A and of B, there and back; `None` when none were asked for, or it was interrupted.
    pub fn traced(&mut self, number: usize, drivers: &mut [Driver; 3]) -> Result<Option<[Figures; 2]>> {
        let mut seen = [Seen::default(), Seen::default()];
        for turn in 0..self.design.traced_slices as usize {
            let mut order = [Side::A, Side::B];
            if (number + turn.div_ceil(2)) % 2 == 1 {
                order.reverse();
            }
            for side in order {
                let (traced, requests) = self.traced_slice(side, &mut drivers[side as usize])?;
                if interrupt::requested() {
                    return Ok(None);
                }
                seen[side as usize].add(traced, requests);
            }
        }
        Ok((self.design.traced_slices > 0).then(|| seen.map(Seen::figures)))
    }

    fn traced_slice(&mut self, side: Side, driver: &mut Driver) -> Result<(Traced, Vec<Request>)> {
        let target = &self.servers[side as usize].target;
        let settings = Settings {
            processes: target.family(),
            ports: vec![target.port()],
            probes: self.probes.clone(),
            keeps_query: false,
            joins_samples: true,
        };
        let window = Window::open(&settings, Kept::default())?;
        let load = driver.run_sending_samples(self.stop(), window.samples())?;
        let (traced, kept) = window.close(Some(load.sent()))?;
        refuse_errors(side, &load)?;
        Ok((traced, kept.0))
    }

    fn stop(&self) -> Stop {
        Stop::After(Duration::from_nanos(self.design.slice_ns))
    }
}

/// Every request of a slice.
#[derive(Default)]
struct Kept(Vec<Request>);

impl Sink for Kept {
    fn take(&mut self, request: Request) -> Result<()> {
        self.0.push(request);
        Ok(())
    }
}

/// The sound traced slices of one side.
#[derive(Default)]
struct Seen {
    traced: Option<Traced>,
    requests: Vec<Request>,
    left_out: Vec<String>,
}

impl Seen {
    /// Adds a slice, unless a promise about its own numbers is broken.
    fn add(&mut self, traced: Traced, requests: Vec<Request>) {
        let mut invariants = Invariants::default();
        requests.iter().for_each(|request| invariants.observe(request));
        let violated = invariants.violated(&run_of(traced.clone()));
        if !violated.is_empty() {
            self.left_out.push(violated.join("; "));
            return;
        }
        self.requests.extend(requests);
        match &mut self.traced {
            Some(all) => all.merge(traced),
            None => self.traced = Some(traced),
        }
    }

    fn figures(self) -> Figures {
        let run = run_of(self.traced.unwrap_or_default());
        Figures { left_out: self.left_out, ..figures(&run, &self.requests) }
    }
}

fn run_of(traced: Traced) -> Run {
    let mut run = Run::default();
    put_traced(&mut run, traced);
    run
}

//! Run-queue wait that is not the server's doing: the load driver took its core, or its cgroup was throttled.

use super::{Answer, Rule};
use crate::{
    recording::{Request, Run},
    report::{percent, us},
};

/// A smaller share of the wall time is no matter.
const MATTERS: f64 = 0.05;
/// The driver, or throttling, is to blame from this share of the wait on.
const BLAMED: f64 = 0.2;

/// Sums up what requests waited for a core.
#[derive(Default)]
pub struct RunQueue {
    wall_ns: u64,
    waited_ns: u64,
    waiting: u64,
}

impl Rule for RunQueue {
    fn name(&self) -> &'static str {
        "core-taken-away"
    }

    fn observe(&mut self, request: &Request) {
        let waited_ns: u64 = request.states.iter().map(|states| states.run_queue_ns).sum();
        self.wall_ns += request.wall_ns();
        self.waited_ns += waited_ns;
        self.waiting += u64::from(waited_ns as f64 > request.wall_ns() as f64 * MATTERS);
    }

    fn answer(&self, run: &Run, requests: u64) -> Answer {
        let queue_ns = run.conservation.traced_run_queue_ns;
        let share_of_wall = self.waited_ns as f64 / self.wall_ns.max(1) as f64;
        if share_of_wall < MATTERS || queue_ns == 0 {
            let evidence =
                format!("requests spend {} of their time waiting for a core", percent(share_of_wall));
            return Answer::NotFound { evidence };
        }
        let by = |held: &dyn Fn(bool) -> bool| -> f64 {
            let ns: u64 = run.holders.iter().filter(|h| held(h.is_tracer)).map(|holder| holder.held_ns).sum();
            ns as f64 / queue_ns as f64
        };
        let driver = by(&|is_tracer| is_tracer);
        let throttled = run.throttled_ns.map(|ns| ns as f64 / queue_ns as f64);
        let found = |evidence: String, blamed: f64, examples: Vec<String>| Answer::Found {
            evidence,
            share: self.waiting as f64 / requests as f64,
            cost_ns: Some(self.waited_ns as f64 * blamed.min(1.0) / requests as f64),
            examples,
        };
        let waits = format!("{} of the requests' time is waiting for a core", percent(share_of_wall));
        if let Some(share) = throttled.filter(|share| *share >= BLAMED) {
            let throttled_us = us(run.throttled_ns.unwrap_or(0) as f64);
            let evidence = format!(
                "{waits}; the server's cgroup was throttled for {throttled_us} us: raise its cpu.max"
            );
            return found(evidence, share, Vec::new());
        }
        if driver >= BLAMED {
            let evidence = format!(
                "{waits}; for {} of that wait the load driver or tracer held the core: give them another",
                percent(driver)
            );
            let holders = run.holders.iter().filter(|holder| holder.is_tracer);
            let examples =
                holders.map(|h| format!("{} (thread {}): {} us", h.name, h.tid, us(h.held_ns as f64)));
            return found(evidence, driver, examples.collect());
        }
        let held = by(&|_| true);
        if throttled.is_none() && held < 1.0 - BLAMED {
            let missing = format!(
                "{waits}, for {} of it nobody is known to have held the core, and the cgroup's throttling could not be \
                 read",
                percent(1.0 - held)
            );
            return Answer::NotEnough { missing };
        }
        Answer::NotFound { evidence: format!("{waits}, but neither the driver nor throttling is to blame") }
    }
}

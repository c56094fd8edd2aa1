//! The event loop held for longer than a limit: while one request computes or blocks, every other one waits.

use std::collections::BTreeMap;

use super::{Answer, Rule, called};
use crate::{
    recording::{Phase, Request, Run, syscall_number},
    report::{percent, us},
};

/// Blocking in one of these is what an event loop is for: others are served meanwhile.
const WAITING: [&str; 8] =
    ["epoll_wait", "epoll_pwait", "epoll_pwait2", "poll", "ppoll", "select", "pselect6", "io_uring_enter"];
/// Routes told.
const ROUTES_TOLD: usize = 3;

/// Requests that hold their thread for longer than a limit.
pub struct HeldLoop {
    limit_ns: u64,
    held: u64,
    held_ns: u64,
    /// Requests in which something else ran on their thread for as long: those that had to wait.
    waited: u64,
    waited_ns: u64,
    unknown: u64,
    longest: Option<(u64, String)>,
    by_route: BTreeMap<String, u64>,
}

impl HeldLoop {
    /// Longer than `limit_ns`.
    pub fn new(limit_ns: u64) -> Self {
        Self {
            limit_ns,
            held: 0,
            held_ns: 0,
            waited: 0,
            waited_ns: 0,
            unknown: 0,
            longest: None,
            by_route: BTreeMap::new(),
        }
    }
}

/// How long the request kept its thread from others: its own CPU, and what it blocked in unless others ran meanwhile.
fn held_ns(request: &Request) -> u64 {
    let app = request.states[Phase::App as usize];
    let waits = WAITING.iter().filter_map(|name| syscall_number(name));
    let blocked_in = request.blocked_call_plus_one.checked_sub(1);
    let yields = blocked_in.is_none_or(|call| waits.into_iter().any(|wait| wait == call));
    app.own_cpu_ns + if yields || app.other_cpu_ns > 0 { 0 } else { app.blocked_ns }
}

impl Rule for HeldLoop {
    fn name(&self) -> &'static str {
        "event-loop-held"
    }

    fn observe(&mut self, request: &Request) {
        let app = request.states[Phase::App as usize];
        self.unknown += u64::from(app.unknown_ns > self.limit_ns);
        let waited_ns = request.states[Phase::Queue as usize].other_cpu_ns;
        if waited_ns > self.limit_ns {
            self.waited += 1;
            self.waited_ns += waited_ns;
        }
        let held_ns = held_ns(request);
        if held_ns <= self.limit_ns {
            return;
        }
        self.held += 1;
        self.held_ns += held_ns;
        *self.by_route.entry(format!("{} {}", request.method, request.path)).or_default() += 1;
        if self.longest.as_ref().is_none_or(|(longest_ns, _)| held_ns > *longest_ns) {
            self.longest = Some((held_ns, called(request)));
        }
    }

    fn answer(&self, _: &Run, requests: u64) -> Answer {
        let limit = us(self.limit_ns as f64);
        let Some((longest_ns, longest)) = &self.longest else {
            if self.unknown > 0 {
                let missing = format!(
                    "{} requests moved between threads, so what held them for over {limit} us is not known",
                    self.unknown
                );
                return Answer::NotEnough { missing };
            }
            return Answer::NotFound { evidence: format!("no request held its thread for over {limit} us") };
        };
        let mut routes: Vec<(&String, &u64)> = self.by_route.iter().collect();
        routes.sort_by(|a, b| b.1.cmp(a.1));
        let mut examples: Vec<String> = routes
            .iter()
            .take(ROUTES_TOLD)
            .map(|(route, held)| format!("{}: {held} times", route.trim()))
            .collect();
        examples.push(format!("longest: {} us, {longest}", us(*longest_ns as f64)));
        let share = self.held as f64 / requests as f64;
        Answer::Found {
            evidence: format!(
                "{} of the requests held their thread for over {limit} us, {} us on average; {} requests waited as long \
                 for others",
                percent(share),
                us(self.held_ns as f64 / self.held as f64),
                self.waited
            ),
            share,
            cost_ns: Some(self.waited_ns as f64 / requests as f64),
            examples,
        }
    }
}

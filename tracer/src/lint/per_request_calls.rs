//! epoll_ctl or setsockopt per request: what is set up once per connection is set up again and again.

use super::{Answer, Rule};
use crate::{
    recording::{Run, SyscallTotals},
    report::{decimals, us},
    stats::answered_requests,
};

/// Calls that a connection needs once or twice, but no request.
const CALLS: [&str; 2] = ["epoll_ctl", "setsockopt"];
/// So many for each connection are in order: made known, set up, taken away.
const PER_CONNECTION: u64 = 4;
/// Fewer per request are no habit.
const HABIT_PER_REQUEST: f64 = 0.1;
/// With fewer requests per connection, calls per connection and per request look alike.
const REQUESTS_PER_CONNECTION: f64 = 20.0;

/// Looks at the syscall totals.
pub struct PerRequestCalls;

impl Rule for PerRequestCalls {
    fn name(&self) -> &'static str {
        "set-up-per-request"
    }

    fn answer(&self, run: &Run, _: u64) -> Answer {
        let requests = answered_requests(run) as f64;
        if requests < run.connections as f64 * REQUESTS_PER_CONNECTION {
            let missing = format!(
                "{requests} requests on {} connections: calls per connection cannot be told from calls per request; \
                 use keep-alive load",
                run.connections
            );
            return Answer::NotEnough { missing };
        }
        if run.syscalls.is_empty() {
            return Answer::NotEnough { missing: "no syscall was counted: record for longer".to_owned() };
        }
        let in_order = run.connections * PER_CONNECTION;
        let beyond = |call: &SyscallTotals| call.calls.saturating_sub(in_order) as f64 / requests;
        let calls: Vec<&SyscallTotals> =
            run.syscalls.iter().filter(|call| CALLS.contains(&call.name.as_str())).collect();
        let found: Vec<&&SyscallTotals> =
            calls.iter().filter(|call| beyond(call) >= HABIT_PER_REQUEST).collect();
        if found.is_empty() {
            let counts: Vec<String> = CALLS
                .iter()
                .map(|name| {
                    let calls = calls.iter().find(|call| call.name == *name).map_or(0, |call| call.calls);
                    format!("{name} {calls}")
                })
                .collect();
            let evidence = format!("{} calls for {requests} requests", counts.join(", "));
            return Answer::NotFound { evidence };
        }
        let each: Vec<String> = found
            .iter()
            .map(|call| format!("{} {} times per request", call.name, decimals(beyond(call), 2)))
            .collect();
        let cost_ns: f64 =
            found.iter().map(|call| call.cpu_ns as f64 / call.calls.max(1) as f64 * beyond(call)).sum();
        Answer::Found {
            evidence: each.join(", "),
            share: found.iter().map(|call| beyond(call)).fold(0.0, f64::max).min(1.0),
            cost_ns: Some(cost_ns),
            examples: found
                .iter()
                .map(|call| {
                    let each_ns = call.cpu_ns as f64 / call.calls.max(1) as f64;
                    format!("{}: {} calls, {} us of CPU each", call.name, call.calls, us(each_ns))
                })
                .collect(),
        }
    }
}

//! Reads that end in EAGAIN: the server reads until nothing is left, although a short read said so already.

use tracer_common::calls::{CallClass, class_of};

use super::{Answer, Rule};
use crate::{
    recording::{Run, SyscallTotals, syscall_number},
    report::{decimals, percent},
    stats::answered_requests,
};

/// Fewer of them per request happen to everybody, at the edges of bursts.
const HABIT_PER_REQUEST: f64 = 0.1;

/// Looks at the syscall totals.
pub struct ReadsEagain;

impl Rule for ReadsEagain {
    fn name(&self) -> &'static str {
        "reads-until-eagain"
    }

    fn answer(&self, run: &Run, _: u64) -> Answer {
        let reads: Vec<&SyscallTotals> = run.syscalls.iter().filter(|call| is_read(&call.name)).collect();
        if reads.is_empty() {
            let missing =
                "no read call was counted: bytes came by io_uring, or the window was too short".to_owned();
            return Answer::NotEnough { missing };
        }
        let requests = answered_requests(run).max(1) as f64;
        let empty: u64 = reads.iter().map(|call| call.eagain).sum();
        let per_request = empty as f64 / requests;
        let shown = decimals(per_request, 3);
        if per_request < HABIT_PER_REQUEST {
            return Answer::NotFound { evidence: format!("{shown} reads per request end in EAGAIN") };
        }
        // What such a call costs is known only together with those that read something: an upper bound.
        let cost_ns: f64 =
            reads.iter().map(|call| call.cpu_ns as f64 / call.calls.max(1) as f64 * call.eagain as f64).sum();
        let calls: u64 = reads.iter().map(|call| call.calls).sum();
        Answer::Found {
            evidence: format!(
                "{shown} reads per request end in EAGAIN, {} of all reads; a read shorter than its buffer says as much",
                percent(empty as f64 / calls.max(1) as f64)
            ),
            share: per_request.min(1.0),
            cost_ns: Some(cost_ns / requests),
            examples: reads
                .iter()
                .filter(|call| call.eagain > 0)
                .map(|call| format!("{}: {} of {} calls", call.name, call.eagain, call.calls))
                .collect(),
        }
    }
}

fn is_read(name: &str) -> bool {
    syscall_number(name).is_some_and(|number| class_of(number.into()) == CallClass::Read)
}

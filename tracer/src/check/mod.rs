//! Promises a server keeps or breaks: pure, from a run and its requests.

mod budget;
mod shape;
mod text;

use serde::Serialize;

use crate::recording::{Request, Run, syscall_name};
use crate::report::{LOSS_LIMIT, counted, decimals, percent, thousands, us};
use crate::stats::{self, Invariants, answered_requests};

pub use budget::Budget;
pub use shape::Shape;
pub use text::{json, text};

/// Version of the JSON of a [`Verdict`].
pub const CHECK_SCHEMA: u32 = 1;

/// Something a server shall keep to.
#[derive(Clone, Debug, PartialEq)]
pub enum Promise {
    /// No response takes more write calls than this; failed calls (EAGAIN) do not count.
    WritesPerResponse {
        /// Most writes that move bytes.
        max: u32,
        /// Each of them is this call ("writev").
        call: Option<String>,
    },
    /// Syscalls of the server over requests.
    MaxSyscallsPerRequest(f64),
    /// Server CPU over requests, microseconds.
    MaxCpuUsPerRequest(f64),
}

impl Promise {
    fn broken_by(&self, request: &Request) -> bool {
        let Self::WritesPerResponse { max, call } = self else {
            return false;
        };
        let other_call = |call: &String| {
            request.writes_that_moved_bytes().any(|write| syscall_name(write.call.into()) != *call)
        };
        request.writes > *max || call.as_ref().is_some_and(other_call)
    }

    /// In the words of the command line.
    fn name(&self) -> String {
        match self {
            Self::WritesPerResponse { max, call: None } => format!("writes per response <= {max}"),
            Self::WritesPerResponse { max, call: Some(call) } => {
                format!("writes per response <= {max}, each by {call}")
            }
            Self::MaxSyscallsPerRequest(max) => format!("syscalls per request <= {max}"),
            Self::MaxCpuUsPerRequest(max) => format!("CPU us per request <= {max}"),
        }
    }
}

/// Watches requests go by and judges in the end.
pub struct Checker {
    promises: Vec<Watched>,
    invariants: Invariants,
    budget: Option<budget::Watch>,
    golden: Option<Shape>,
    shape: shape::Gathering,
}

/// A promise and the requests that broke it.
struct Watched {
    promise: Promise,
    offending: u64,
    sample: Option<Request>,
}

impl Checker {
    /// Of these promises.
    pub fn new(promises: impl IntoIterator<Item = Promise>) -> Self {
        let watched = |promise| Watched { promise, offending: 0, sample: None };
        let promises = promises.into_iter().map(watched).collect();
        let (invariants, shape) = (Invariants::default(), shape::Gathering::default());
        Self { promises, invariants, budget: None, golden: None, shape }
    }

    /// A budget too; `baseline` is what it may compare CPU with.
    pub fn with_budget(self, budget: Budget, baseline: Option<&Run>) -> Self {
        Self { budget: Some(budget::Watch::new(budget, baseline)), ..self }
    }

    /// A golden shape too.
    pub fn with_shape(self, golden: Shape) -> Self {
        Self { golden: Some(golden), ..self }
    }

    /// The shape of what was seen.
    pub fn shape(&self, run: &Run) -> Shape {
        self.shape.shape(run)
    }

    /// Looks at one request.
    pub fn observe(&mut self, request: &Request) {
        self.invariants.observe(request);
        self.shape.add(request);
        if let Some(budget) = &mut self.budget {
            budget.observe(request);
        }
        for watched in &mut self.promises {
            if watched.promise.broken_by(request) {
                watched.offending += 1;
                watched.sample.get_or_insert_with(|| request.clone());
            }
        }
    }

    /// The verdict on the run whose requests were observed.
    pub fn verdict(&self, run: &Run) -> Verdict {
        let mut findings: Vec<Finding> =
            self.promises.iter().map(|watched| watched.finding(run, self.invariants.requests)).collect();
        findings.extend(self.budget.iter().flat_map(|budget| budget.findings(run)));
        findings.extend(self.golden.iter().map(|golden| golden.finding(&self.shape(run))));
        findings.extend(failed_responses(run));
        Verdict {
            schema: CHECK_SCHEMA,
            held: findings.iter().all(|finding| finding.held),
            no_verdict: self.no_verdict(run),
            requests: self.invariants.requests,
            findings,
        }
    }

    fn no_verdict(&self, run: &Run) -> Option<String> {
        let loss = run.ledger.loss_share();
        if self.invariants.requests == 0 {
            return Some("no request was traced: send some (--url), or attach for longer".to_owned());
        }
        if loss > LOSS_LIMIT {
            let (loss, limit) = (percent(loss), percent(LOSS_LIMIT));
            return Some(format!("{loss} of the requests were lost, more than {limit}: use less load"));
        }
        if !run.ended_early.is_empty() {
            return Some(format!("the run ended early ({}): run it again", run.ended_early));
        }
        let violated = self.invariants.violated(run);
        (!violated.is_empty())
            .then(|| format!("the measurement itself is not sound: {}", violated.join("; ")))
    }
}

impl Watched {
    fn finding(&self, run: &Run, requests: u64) -> Finding {
        match &self.promise {
            Promise::WritesPerResponse { .. } => self.writes_finding(requests),
            Promise::MaxSyscallsPerRequest(max) => {
                self.figure_finding(stats::syscalls_per_request(run), *max, |per_request| {
                    let requests = counted(answered_requests(run), "request");
                    format!("{} syscalls per request over {requests}", decimals(per_request, 3))
                })
            }
            Promise::MaxCpuUsPerRequest(max) => {
                let cpu = stats::cpu_per_request_ns(run);
                let how = match cpu {
                    Some(cpu) if !cpu.traced => {
                        format!("untraced, {}", counted(cpu.ns.rounds as u64, "round"))
                    }
                    _ => "while traced, which costs CPU of its own".to_owned(),
                };
                self.figure_finding(cpu.map(|cpu| cpu.ns.median / 1000.0), *max, |cpu_us| {
                    format!("{} us of server CPU per request ({how})", us(cpu_us * 1000.0))
                })
            }
        }
    }

    fn writes_finding(&self, requests: u64) -> Finding {
        let all = counted(requests, "response");
        let says = match self.offending {
            0 => format!("all of {all}"),
            offending => {
                let share = percent(offending as f64 / requests.max(1) as f64);
                format!("{} of {all} ({share}) broke it", thousands(offending))
            }
        };
        Finding {
            promise: self.promise.name(),
            held: self.offending == 0,
            says,
            measured: None,
            offending: Some(self.offending),
            sample: self.sample.as_ref().map(Sample::of),
        }
    }

    fn figure_finding(&self, measured: Option<f64>, max: f64, says: impl Fn(f64) -> String) -> Finding {
        Finding {
            promise: self.promise.name(),
            held: measured.is_some_and(|measured| measured <= max),
            says: measured.map_or("nothing was measured".to_owned(), says),
            measured,
            offending: None,
            sample: None,
        }
    }
}

fn failed_responses(run: &Run) -> Option<Finding> {
    let (failed, first) = stats::failed_responses(run);
    (failed > 0).then(|| Finding {
        promise: "responses as expected".to_owned(),
        held: false,
        says: format!("{} failed: {}", counted(failed, "response"), first.unwrap_or("no reason was kept")),
        measured: None,
        offending: Some(failed),
        sample: None,
    })
}

/// What a check found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// [`CHECK_SCHEMA`].
    pub schema: u32,
    /// Every promise was kept, by what was seen.
    pub held: bool,
    /// Why nothing may be concluded, whatever the findings.
    pub no_verdict: Option<String>,
    /// Requests looked at.
    pub requests: u64,
    /// One per promise.
    pub findings: Vec<Finding>,
}

impl Verdict {
    /// 0: held. 1: broken. 3: no verdict.
    pub fn exit_code(&self) -> u8 {
        match (&self.no_verdict, self.held) {
            (Some(_), _) => 3,
            (None, true) => 0,
            (None, false) => 1,
        }
    }
}

/// What became of one promise.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// The promise.
    pub promise: String,
    /// It was kept.
    pub held: bool,
    /// In words.
    pub says: String,
    /// The figure that was compared, in the promise's unit.
    pub measured: Option<f64>,
    /// Requests that broke it.
    pub offending: Option<u64>,
    /// The first of them.
    pub sample: Option<Sample>,
}

/// A request that broke a promise, with its writes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sample {
    /// Method, as sent.
    pub method: String,
    /// Path.
    pub path: String,
    /// Status; zero: not seen.
    pub status: u16,
    /// Its connection.
    pub connection_id: u64,
    /// Its ordinal there.
    pub index: u32,
    /// Response bytes.
    pub bytes_out: u64,
    /// Writes that moved bytes, those not kept included.
    pub writes: u32,
    /// The first eight write calls, failed ones included.
    pub calls: Vec<SampleWrite>,
}

/// One write call of a [`Sample`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SampleWrite {
    /// Its name.
    pub call: String,
    /// Bytes, or a negative errno.
    pub result: i64,
    /// Buffers given; zero for sendfile and splice.
    pub iovecs: u32,
    /// The call before it returned EAGAIN: the send buffer was full.
    pub after_eagain: bool,
}

impl Sample {
    fn of(request: &Request) -> Self {
        let mut after_eagain = false;
        let calls = request.kept_writes().iter().map(|write| SampleWrite {
            call: syscall_name(write.call.into()).into_owned(),
            result: write.result,
            iovecs: write.iovecs,
            after_eagain: std::mem::replace(&mut after_eagain, write.is_eagain()),
        });
        Self {
            method: request.method.to_string(),
            path: request.path.to_string(),
            status: request.status,
            connection_id: request.connection_id,
            index: request.index,
            bytes_out: request.bytes_out,
            writes: request.writes,
            calls: calls.collect(),
        }
    }
}

#[cfg(test)]
mod tests;

//! Known ways to waste time, looked for in a recording. One rule, one file. Pure.

mod event_loop;
mod per_request_calls;
mod reads_eagain;
mod run_queue;
mod split_writes;
#[cfg(test)]
mod tests;
mod text;

use serde::Serialize;

use crate::recording::{Request, Run};

pub use event_loop::HeldLoop;
pub use text::{json, text};

/// Version of the JSON of a [`Report`].
pub const LINT_SCHEMA: u32 = 1;

/// Fewer requests are no evidence of a habit.
const ENOUGH_REQUESTS: u64 = 100;

/// One known way to waste time.
pub trait Rule {
    /// Its name, as one word.
    fn name(&self) -> &'static str;

    /// Looks at one request.
    fn observe(&mut self, _request: &Request) {}

    /// What the run and the requests seen say.
    fn answer(&self, run: &Run, requests: u64) -> Answer;
}

/// What a rule says. There are three answers: silence is none of them.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "answer")]
pub enum Answer {
    /// It happens.
    Found {
        /// What was seen, in words.
        evidence: String,
        /// Share of requests it happens to, 0..=1.
        share: f64,
        /// What it costs, nanoseconds per request, mean over all; `None`: not to be told.
        cost_ns: Option<f64>,
        /// Which requests or threads, for example.
        examples: Vec<String>,
    },
    /// It does not happen.
    NotFound {
        /// By what that is known.
        evidence: String,
    },
    /// The recording cannot tell.
    NotEnough {
        /// What is missing, and how to get it.
        missing: String,
    },
}

/// All rules and their answers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// [`LINT_SCHEMA`].
    pub schema: u32,
    /// Requests looked at.
    pub requests: u64,
    /// In the order of the rules.
    pub findings: Vec<Finding>,
}

/// One rule's answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// The rule.
    pub rule: &'static str,
    /// What it says.
    #[serde(flatten)]
    pub answer: Answer,
}

impl Report {
    /// 1: something was found. 3: nothing was, but a rule had too little evidence. 0: nothing is there.
    pub fn exit_code(&self) -> u8 {
        let any = |is: fn(&Answer) -> bool| self.findings.iter().any(|finding| is(&finding.answer));
        if any(|answer| matches!(answer, Answer::Found { .. })) {
            1
        } else if any(|answer| matches!(answer, Answer::NotEnough { .. })) {
            3
        } else {
            0
        }
    }
}

/// Lets requests go past every rule.
pub struct Linter {
    rules: Vec<Box<dyn Rule>>,
    requests: u64,
}

impl Linter {
    /// Every rule; `held_ns` is how long a request may hold its event loop.
    pub fn new(held_ns: u64) -> Self {
        let rules: Vec<Box<dyn Rule>> = vec![
            Box::<split_writes::SplitWrites>::default(),
            Box::new(reads_eagain::ReadsEagain),
            Box::new(per_request_calls::PerRequestCalls),
            Box::new(HeldLoop::new(held_ns)),
            Box::<run_queue::RunQueue>::default(),
        ];
        Self { rules, requests: 0 }
    }

    /// Looks at one request.
    pub fn observe(&mut self, request: &Request) {
        self.requests += 1;
        self.rules.iter_mut().for_each(|rule| rule.observe(request));
    }

    /// What every rule says of the run.
    pub fn report(&self, run: &Run) -> Report {
        let too_few = self.requests < ENOUGH_REQUESTS;
        let answer = |rule: &dyn Rule| {
            if too_few {
                let missing = format!(
                    "{} requests were traced; it takes {ENOUGH_REQUESTS}: record for longer",
                    self.requests
                );
                return Answer::NotEnough { missing };
            }
            rule.answer(run, self.requests)
        };
        let findings = self.rules.iter().map(|rule| Finding { rule: rule.name(), answer: answer(&**rule) });
        Report { schema: LINT_SCHEMA, requests: self.requests, findings: findings.collect() }
    }
}

/// A request as an example.
fn called(request: &Request) -> String {
    let route = format!("{} {}", request.method, request.path);
    format!("{}, connection {} request {}", route.trim(), request.connection_id, request.index)
}

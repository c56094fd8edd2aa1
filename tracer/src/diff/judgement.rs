//! What a comparison says. Every format shows this and nothing else.

use serde::Serialize;

use super::{Metric, WriteStep};
use crate::stats::paired::{Rule, Verdict};

/// Version of the JSON of a [`Judgement`].
pub const JUDGEMENT_SCHEMA: u32 = 1;

/// The verdict on a comparison, and where a difference comes from.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Judgement {
    /// [`JUDGEMENT_SCHEMA`].
    pub schema: u32,
    /// Version of `tracer`.
    pub tracer_version: String,
    /// Names of A and B.
    pub names: [String; 2],
    /// The answer in one sentence.
    pub answer: String,
    /// Of all routes together.
    pub verdict: Verdict,
    /// Threshold and strictness.
    pub rule: Rule,
    /// Launches judged.
    pub launches: usize,
    /// Looks taken so far, this one included.
    pub looks: usize,
    /// Probability that an interval misses the truth, on each side; `None`: too few launches for intervals.
    pub level: Option<f64>,
    /// One for each route.
    pub routes: Vec<RouteJudgement>,
    /// Cold start and memory, which belong to no route.
    pub processes: Vec<Compared>,
    /// Things the reader must know.
    pub notes: Vec<String>,
}

impl Judgement {
    /// 0: same or improved. 1: regression. 3: inconclusive or withheld.
    pub fn exit_code(&self) -> u8 {
        match self.verdict {
            Verdict::Same | Verdict::Improved => 0,
            Verdict::Regression => 1,
            Verdict::Inconclusive { .. } | Verdict::Withheld { .. } => 3,
        }
    }
}

/// One route.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RouteJudgement {
    /// Its name.
    pub route: String,
    /// The answer in one sentence.
    pub answer: String,
    /// Its verdict: the worst of its gates.
    pub verdict: Verdict,
    /// Server CPU per request, untraced.
    pub cpu: Compared,
    /// A against A: the control.
    pub control: Option<Control>,
    /// Throughput and latency, untraced.
    pub beside: Vec<Compared>,
    /// Where CPU per request went.
    pub cpu_ledger: Ledger,
    /// Where latency went.
    pub latency_ledger: Ledger,
    /// The same of the slowest hundredth of the requests.
    pub slowest_ledger: Ledger,
    /// Counts per request that changed.
    pub counts: Vec<Line>,
    /// What did not change, in words.
    pub ruled_out: Vec<String>,
    /// Changes of kind, in words: they need no interval.
    pub kinds: Vec<String>,
    /// How most responses left, of A and of B.
    pub writes: [Vec<WriteStep>; 2],
    /// What else was going on.
    pub surroundings: Surroundings,
}

/// One metric of both builds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Compared {
    /// Which.
    pub metric: Metric,
    /// It takes part in the verdict.
    pub gates: bool,
    /// Its own verdict, when it gates.
    pub verdict: Option<Verdict>,
    /// Median over launches of A.
    pub a: Option<f64>,
    /// Median over launches of B.
    pub b: Option<f64>,
    /// B - A, in the metric's unit.
    pub difference: Option<Difference>,
    /// B / A - 1.
    pub change: Option<Difference>,
}

/// A Hodges-Lehmann estimate over launches.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// The estimate.
    pub estimate: f64,
    /// Its interval; `None`: too few launches.
    pub interval: Option<[f64; 2]>,
}

impl Difference {
    /// The interval is known and does not hold zero.
    pub fn is_sure(&self) -> bool {
        self.interval.is_some_and(|[low, high]| low > 0.0 || high < 0.0)
    }
}

/// A against A in the same session.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Control {
    /// Its change, which is chance.
    pub change: Difference,
    /// Its interval holds zero.
    pub held: bool,
    /// Half the width of its interval: the smallest change this session could see.
    pub smallest_change: Option<f64>,
}

/// Lines that add up, with what they do not explain.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Ledger {
    /// The difference to be explained, untraced, nanoseconds per request; `None`: not measured.
    pub total: Option<Difference>,
    /// The lines, largest difference first, nanoseconds per request.
    pub lines: Vec<Line>,
    /// `total` less all lines: what tracing itself changes, and what estimates of parts leave over.
    pub unexplained: Option<Difference>,
}

/// One line: means over launches, and the estimate of their difference.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Line {
    /// What.
    pub name: String,
    /// Of A, per request.
    pub a: f64,
    /// Of B, per request.
    pub b: f64,
    /// B - A.
    pub difference: Difference,
}

/// What may explain noise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Surroundings {
    /// At a constant rate, the share of the requests due that A and B answered in time.
    pub rate_reached: Option<[f64; 2]>,
    /// Share of time the server's core was busy with it, of A and of B.
    pub server_busy: [f64; 2],
    /// Share of time the driver was busy.
    pub client_busy: f64,
    /// Wait for a CPU over CPU used, of A and of B.
    pub run_delay: [f64; 2],
    /// Nanoseconds the hypervisor took from all CPUs, over all launches.
    pub stolen_ns: u64,
    /// Page faults per request, of A and of B.
    pub page_faults: [f64; 2],
    /// CPU per request traced over untraced, of A and of B; `None`: nothing was traced.
    pub tracing_ratio: Option<[f64; 2]>,
    /// Traced slices used and left out.
    pub traced_slices: [u64; 2],
    /// Largest share of requests lost in a launch.
    pub loss_share: f64,
}

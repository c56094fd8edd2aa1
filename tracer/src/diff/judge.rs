//! From launches to a verdict.

mod attribution;
mod kinds;
mod limits;

pub(super) use self::kinds::steps_words;
use self::{attribution::ledgers, kinds::kinds, limits::withheld};
use super::{
    Compared, Comparison, Control, Difference, JUDGEMENT_SCHEMA, Judgement, Launch, Metric, RouteJudgement,
    Side, words::answers,
};
use crate::stats::paired::{self, Interval, LOOKS, Rule, Verdict, hodges_lehmann, holm, median};

/// Judges what was measured so far. CPU per request always takes part in the verdict, `gates` as well.
pub fn judge(comparison: &Comparison, rule: Rule, gates: &[Metric]) -> Judgement {
    let judge = Judge::new(comparison, rule, gates);
    let mut routes = judge.routes();
    let processes = judge.processes();
    for route in &mut routes {
        route.answer = answers::of_route(route, rule);
    }
    let verdicts = routes.iter().map(|route| &route.verdict);
    let verdict = worst(verdicts.chain(processes.iter().filter_map(|compared| compared.verdict.as_ref())));
    let mut judgement = Judgement {
        schema: JUDGEMENT_SCHEMA,
        tracer_version: env!("CARGO_PKG_VERSION").to_owned(),
        names: comparison.names.clone(),
        answer: String::new(),
        verdict,
        rule,
        launches: comparison.launches.len(),
        looks: comparison.looks.len(),
        level: judge.level,
        routes,
        processes,
        notes: comparison.notes.clone(),
    };
    judgement.answer = answers::of_all(&judgement);
    judgement
}

/// The level of the last look; intervals of launches that no look has judged yet get that of the next.
fn level(comparison: &Comparison) -> Option<f64> {
    let look = match comparison.looks.last() {
        Some(launches) if *launches == comparison.launches.len() => comparison.looks.len() - 1,
        _ => comparison.looks.len().min(LOOKS.len() - 1),
    };
    (comparison.launches.len() >= LOOKS[0].launches).then_some(LOOKS[look].level)
}

/// One comparison being judged.
struct Judge<'c> {
    comparison: &'c Comparison,
    rule: Rule,
    gates: Vec<Metric>,
    level: Option<f64>,
    /// Gated rows, with the interval of each.
    gated: Vec<(Option<usize>, Metric, Option<Interval>)>,
}

impl<'c> Judge<'c> {
    fn new(comparison: &'c Comparison, rule: Rule, more_gates: &[Metric]) -> Self {
        let mut gates = vec![Metric::Cpu];
        gates.extend(more_gates.iter().filter(|metric| **metric != Metric::Cpu));
        let level = level(comparison);
        let mut judge = Self { comparison, rule, gates, level, gated: Vec::new() };
        judge.gated = judge.gated_rows();
        judge
    }

    fn launches(&self) -> &'c [Launch] {
        &self.comparison.launches
    }

    /// Every gated metric of every route (or of the processes), corrected for how many they are.
    fn gated_rows(&self) -> Vec<(Option<usize>, Metric, Option<Interval>)> {
        let mut rows = Vec::new();
        for &metric in &self.gates {
            if metric.of_process() {
                rows.push((None, metric));
            } else {
                rows.extend((0..self.comparison.routes.len()).map(|route| (Some(route), metric)));
            }
        }
        let values: Vec<Vec<f64>> =
            rows.iter().map(|(route, metric)| self.logs(*metric, route.unwrap_or(0), Side::B)).collect();
        let intervals = self.level.map_or_else(|| vec![None; rows.len()], |level| holm(&values, level));
        rows.into_iter().zip(intervals).map(|((route, metric), interval)| (route, metric, interval)).collect()
    }

    fn logs(&self, metric: Metric, route: usize, side: Side) -> Vec<f64> {
        self.launches().iter().filter_map(|launch| metric.log_ratio(launch, route, side)).collect()
    }

    fn difference(&self, values: &[f64]) -> Option<Difference> {
        let interval = self.level.and_then(|level| Interval::of(values, level));
        Some(Difference {
            estimate: hodges_lehmann(values)?,
            interval: interval.map(|interval| [interval.low, interval.high]),
        })
    }

    fn compared(&self, metric: Metric, route: usize) -> Compared {
        let of_route = (!metric.of_process()).then_some(route);
        let gated = self.gated.iter().find(|row| row.0 == of_route && row.1 == metric);
        let logs = self.logs(metric, route, Side::B);
        let plain = self.level.and_then(|level| Interval::of(&logs, level));
        let interval = gated.map_or(plain, |(_, _, interval)| *interval);
        let side = |side| {
            let of_launches = self.launches().iter().filter_map(|launch| metric.value(launch, route, side));
            median(&of_launches.collect::<Vec<_>>())
        };
        let differences: Vec<f64> =
            self.launches().iter().filter_map(|launch| metric.difference(launch, route)).collect();
        let change = hodges_lehmann(&logs).map(|estimate| Difference {
            estimate: estimate.exp_m1(),
            interval: interval.map(|interval| [interval.low.exp_m1(), interval.high.exp_m1()]),
        });
        Compared {
            metric,
            gates: gated.is_some(),
            verdict: gated.map(|_| self.verdict(metric, interval)),
            a: side(Side::A),
            b: side(Side::B),
            difference: self.difference(&differences),
            change,
        }
    }

    fn verdict(&self, metric: Metric, interval: Option<Interval>) -> Verdict {
        let Some(interval) = interval else {
            let next = LOOKS.iter().find(|look| look.launches > self.launches().len());
            return Verdict::Inconclusive {
                more_launches: next.map(|look| look.launches - self.launches().len()),
            };
        };
        let mirrored =
            Interval { estimate: -interval.estimate, low: -interval.high, high: -interval.low, ..interval };
        paired::judge(if metric.less_is_worse() { &mirrored } else { &interval }, self.rule)
    }

    fn routes(&self) -> Vec<RouteJudgement> {
        (0..self.comparison.routes.len()).map(|route| self.route(route)).collect()
    }

    fn route(&self, route: usize) -> RouteJudgement {
        let cpu = self.compared(Metric::Cpu, route);
        let beside: Vec<Compared> = Metric::BESIDE_CPU
            .into_iter()
            .filter(|metric| !metric.of_process())
            .map(|metric| self.compared(metric, route))
            .collect();
        let control = self.control(route);
        let surroundings = limits::surroundings(self.comparison, route, &cpu);
        let reasons = withheld(self.comparison, route, control.as_ref(), &surroundings);
        let verdict = if reasons.is_empty() {
            worst(beside.iter().chain([&cpu]).filter_map(|compared| compared.verdict.as_ref()))
        } else {
            Verdict::Withheld { reasons }
        };
        let mean = beside.iter().find(|compared| compared.metric == Metric::Mean);
        let ledgers = ledgers(self, route, cpu.difference, mean.and_then(|compared| compared.difference));
        let kinds = kinds(self.launches(), route);
        RouteJudgement {
            route: self.comparison.routes[route].name.clone(),
            answer: String::new(),
            verdict,
            cpu,
            control,
            beside,
            cpu_ledger: ledgers.cpu,
            latency_ledger: ledgers.latency,
            slowest_ledger: ledgers.slowest,
            counts: ledgers.counts_changed,
            ruled_out: ledgers.ruled_out,
            kinds: kinds.words,
            writes: kinds.writes,
            surroundings,
        }
    }

    fn control(&self, route: usize) -> Option<Control> {
        let logs = self.logs(Metric::Cpu, route, Side::Control);
        let difference = self.difference(&logs)?;
        let change = Difference {
            estimate: difference.estimate.exp_m1(),
            interval: difference.interval.map(|interval| interval.map(f64::exp_m1)),
        };
        let smallest_change = change.interval.map(|[low, high]| (high - low) / 2.0);
        Some(Control { change, held: !change.is_sure(), smallest_change })
    }

    fn processes(&self) -> Vec<Compared> {
        let of_process = Metric::BESIDE_CPU.into_iter().filter(|metric| metric.of_process());
        of_process.map(|metric| self.compared(metric, 0)).collect()
    }
}

/// Of several verdicts: what is withheld anywhere is withheld; else a regression anywhere is one.
fn worst<'v>(verdicts: impl Iterator<Item = &'v Verdict>) -> Verdict {
    let mut reasons: Vec<String> = Vec::new();
    let mut advised: Option<Option<usize>> = None;
    let (mut regression, mut improved) = (false, false);
    for verdict in verdicts {
        match verdict {
            Verdict::Withheld { reasons: more } => {
                reasons.extend(
                    more.iter().filter(|reason| !reasons.contains(*reason)).cloned().collect::<Vec<_>>(),
                );
            }
            Verdict::Inconclusive { more_launches } => {
                advised = Some(match (advised, more_launches) {
                    (None, more) => *more,
                    (Some(Some(known)), Some(more)) => Some(known.max(*more)),
                    _ => None,
                });
            }
            Verdict::Regression => regression = true,
            Verdict::Improved => improved = true,
            Verdict::Same => {}
        }
    }
    match (reasons.is_empty(), regression, advised, improved) {
        (false, ..) => Verdict::Withheld { reasons },
        (_, true, ..) => Verdict::Regression,
        (_, _, Some(more_launches), _) => Verdict::Inconclusive { more_launches },
        (_, _, _, true) => Verdict::Improved,
        _ => Verdict::Same,
    }
}

//! When nothing may be concluded, whatever the interval says.

use super::super::{
    Compared, Comparison, Control, Launch, Origin, Side, Slice, Surroundings, words::launches_words,
};
use crate::{
    report::{LOSS_LIMIT, decimals, percent, thousands},
    stats::paired::{LOOKS, median},
};

/// A core this busy is the limit.
const BUSY: f64 = 0.95;
/// Tracing that costs more than this times the server's own CPU shows another server.
const TRACING_RATIO_LIMIT: f64 = 2.0;
/// Share of the requests due at a constant rate that must be answered.
const RATE_REACHED_LIMIT: f64 = 0.99;
/// Largest share of traced slices that may be left out.
const LEFT_OUT_LIMIT: f64 = 0.25;

/// Why there is no verdict, one sentence each; empty: there is one.
pub fn withheld(
    comparison: &Comparison,
    route: usize,
    control: Option<&Control>,
    surroundings: &Surroundings,
) -> Vec<String> {
    let mut reasons = Vec::new();
    let launches = comparison.launches.len();
    if !comparison.ended_early.is_empty() {
        let so_far = launches_words(launches);
        reasons.push(format!("it ended early, after {so_far}: {}", comparison.ended_early));
    } else if comparison.looks.is_empty() && matches!(comparison.origin, Origin::Recordings { .. }) {
        let (so_far, first) = (launches_words(launches), LOOKS[0].launches);
        reasons.push(format!(
            "the recordings hold {so_far} of each build, too few for a verdict, which needs {first}: compare live"
        ));
    } else if comparison.looks.is_empty() {
        let first = LOOKS[0].launches;
        reasons.push(format!("too few launches: {launches}, and the first look is at {first}"));
    }
    let unequal = &comparison.routes[route].unequal_work;
    if !unequal.is_empty() {
        reasons.push(format!("unequal work: {unequal}"));
    }
    if let Some(control) = control.filter(|control| !control.held) {
        let change = percent(control.change.estimate.abs());
        reasons.push(format!(
            "the control failed: A differed from A by {change}, so this session shows differences that are none; repeat it on a quieter machine"
        ));
    }
    let busiest_server = surroundings.server_busy[0].max(surroundings.server_busy[1]);
    if surroundings.client_busy >= BUSY && surroundings.client_busy >= busiest_server {
        let busy = percent(surroundings.client_busy);
        reasons.push(format!("the load driver was the limit ({busy} busy): use fewer connections"));
    }
    if let Some((rate, reached)) = comparison.design.rate_per_s.zip(surroundings.rate_reached)
        && reached.iter().any(|share| *share < RATE_REACHED_LIMIT)
    {
        let [a, b] = reached.map(percent);
        reasons.push(format!(
            "of {} requests/s A answered {a} and B {b}, so they did not have the same load: lower --rate, or use more \
             connections",
            thousands(rate as u64)
        ));
    }
    if surroundings.loss_share > LOSS_LIMIT {
        let (loss, limit) = (percent(surroundings.loss_share), percent(LOSS_LIMIT));
        reasons.push(format!("{loss} of the traced requests were lost, more than {limit}: use less load"));
    }
    if let Some(ratio) = surroundings.tracing_ratio.map(|[a, b]| a.max(b))
        && ratio > TRACING_RATIO_LIMIT
    {
        let (ratio, limit) = (decimals(ratio, 2), decimals(TRACING_RATIO_LIMIT, 1));
        reasons.push(format!("tracing made a request {ratio} times as dear, above the limit of {limit}"));
    }
    let [used, left_out] = surroundings.traced_slices;
    if left_out as f64 > (used + left_out) as f64 * LEFT_OUT_LIMIT {
        reasons.push(format!("{left_out} of {} traced slices were not sound", used + left_out));
    }
    reasons
}

/// What was going on during the launches of one route.
pub fn surroundings(comparison: &Comparison, route: usize, cpu: &Compared) -> Surroundings {
    let launches: &[Launch] = &comparison.launches;
    let slices: Vec<&Slice> =
        launches.iter().filter_map(|launch| launch.routes.get(route)).flat_map(|r| &r.slices).collect();
    let of = |side: Side, share: &dyn Fn(&Slice) -> f64| {
        let values: Vec<f64> =
            slices.iter().filter(|slice| slice.side == side).map(|slice| share(slice)).collect();
        median(&values).unwrap_or(0.0)
    };
    let both = |share: &dyn Fn(&Slice) -> f64| [of(Side::A, share), of(Side::B, share)];
    let client = both(&|slice| slice.client_cpu_ns as f64 / slice.elapsed_ns.max(1) as f64);
    let traced: Vec<_> =
        launches.iter().filter_map(|launch| launch.routes.get(route)?.traced.as_ref()).collect();
    let traced_cpu = |index: usize| {
        let totals: Vec<f64> = traced
            .iter()
            .filter(|pair| pair[index].requests > 0)
            .map(|pair| pair[index].cpu_ns.values().sum())
            .collect();
        median(&totals)
    };
    let ratio = |index: usize, untraced: Option<f64>| Some(traced_cpu(index)? / untraced?);
    let left_out: usize = traced.iter().flat_map(|pair| pair.iter()).map(|f| f.left_out.len()).sum();
    let all_slices = traced.len() * 2 * comparison.design.traced_slices as usize;
    let used = all_slices.saturating_sub(left_out);
    let reached = |slice: &Slice| Some(slice.requests as f64 / slice.due?.max(1) as f64);
    Surroundings {
        rate_reached: comparison.design.rate_per_s.map(|_| both(&|slice| reached(slice).unwrap_or(1.0))),
        server_busy: both(&|slice| slice.server_cpu_ns as f64 / slice.elapsed_ns.max(1) as f64),
        client_busy: client[0].max(client[1]),
        run_delay: both(&|slice| slice.run_delay_ns as f64 / slice.server_cpu_ns.max(1) as f64),
        stolen_ns: launches.iter().map(|launch| launch.stolen_ns).sum(),
        page_faults: both(&|slice| slice.page_faults as f64 / slice.requests.max(1) as f64),
        tracing_ratio: ratio(0, cpu.a).zip(ratio(1, cpu.b)).map(|(a, b)| [a, b]),
        traced_slices: [used as u64, left_out as u64],
        loss_share: traced.iter().flat_map(|pair| pair.iter()).map(|f| f.loss_share).fold(0.0, f64::max),
    }
}

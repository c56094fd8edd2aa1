//! What a write-up says of its mechanisms, held against the rows.

use serde::{Deserialize, Serialize};

use super::{Findings, Row};
use crate::report::{decimals, percent, us};
use crate::scenario::{Claim, ClaimMeaning, RowName};
use crate::stats::Spread;

/// A claim, and what was seen of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimSeen {
    /// The claim.
    pub says: String,
    /// What was seen, with its interval.
    pub seen: String,
    /// Whether it holds.
    pub held: Held,
}

/// Whether a claim holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Held {
    /// In every round.
    Yes,
    /// In no round.
    No,
    /// Some rounds say so, some not; or there are fewer than three.
    NotResolved,
    /// Its rows were not measured.
    NotMeasured,
}

impl Held {
    /// In words.
    pub fn label(self) -> &'static str {
        match self {
            Self::Yes => "held",
            Self::No => "NOT held",
            Self::NotResolved => "not resolved",
            Self::NotMeasured => "not measured",
        }
    }

    /// Of a difference that is to be above zero.
    fn above_zero(difference: &Spread) -> Self {
        match () {
            // One or two rounds have no spread to speak of.
            () if difference.rounds < 3 => Self::NotResolved,
            () if difference.min > 0.0 => Self::Yes,
            () if difference.max <= 0.0 => Self::No,
            () => Self::NotResolved,
        }
    }
}

pub(super) fn seen(claim: &Claim, findings: &Findings) -> ClaimSeen {
    let seen = match &claim.means {
        ClaimMeaning::CostsMore(more, less) => costs_more(findings, more, less),
        ClaimMeaning::GrowsMost { server, workload, over } => grows_most(findings, server, workload, over),
        ClaimMeaning::OneWrite(row) => {
            findings.named(row).filter(|row| row.traced_requests > 0).map(one_write)
        }
    };
    let (held, seen) = seen.unwrap_or((Held::NotMeasured, "its rows were not measured".to_owned()));
    ClaimSeen { says: claim.says.clone(), seen, held }
}

fn costs_more(findings: &Findings, more: &RowName, less: &RowName) -> Option<(Held, String)> {
    let difference = findings.named(more)?.cpu_over(findings.named(less)?)?;
    Some((Held::above_zero(&difference), format!("{more} over {less}: {}", interval(&difference))))
}

/// What a server's CPU per request grows by under `workload`, round by round.
fn growth(findings: &Findings, server: &str, workload: &str, over: &str) -> Option<Vec<f64>> {
    let (more, less) = (findings.row(server, workload)?, findings.row(server, over)?);
    let sound = more.failed == 0 && less.failed == 0;
    sound.then(|| more.rounds.iter().zip(&less.rounds).map(|(a, b)| a.cpu_ns - b.cpu_ns).collect())
}

/// Against the server that comes nearest to it.
fn grows_most(findings: &Findings, server: &str, workload: &str, over: &str) -> Option<(Held, String)> {
    let mine = growth(findings, server, workload, over)?;
    let others = findings.rows.iter().filter(|row| row.workload == workload && row.server != server);
    let nearest = others
        .filter_map(|row| {
            let theirs = growth(findings, &row.server, workload, over)?;
            let lead = Spread::of(mine.iter().zip(&theirs).map(|(mine, theirs)| mine - theirs))?;
            Some((row.server.as_str(), lead))
        })
        .min_by(|a, b| a.1.median.total_cmp(&b.1.median));
    let own = Spread::of(mine.iter().copied())?;
    let (other, lead) = nearest?;
    let seen = format!(
        "{server} {workload} over {over}: {}; that is over {other}'s by {}",
        interval(&own),
        interval(&lead)
    );
    Some((Held::above_zero(&lead), seen))
}

fn one_write(row: &Row) -> (Held, String) {
    let calls = row.one_write_calls.join(", ");
    let seen = format!(
        "{} {}: {} of the responses in one write ({calls}), {} writes per response",
        row.server,
        row.workload,
        percent(row.one_write_share),
        decimals(row.writes_per_response, 2)
    );
    (if row.one_write_share >= 1.0 { Held::Yes } else { Held::No }, seen)
}

/// Median and extremes with their sign and unit.
fn interval(spread: &Spread) -> String {
    let signed = |ns: f64| format!("{}{}", if ns > 0.0 { "+" } else { "" }, us(ns));
    match spread.rounds {
        1 => format!("{} us (one round)", signed(spread.median)),
        rounds => format!(
            "{} us ({} .. {}, {rounds} rounds)",
            signed(spread.median),
            signed(spread.min),
            signed(spread.max)
        ),
    }
}

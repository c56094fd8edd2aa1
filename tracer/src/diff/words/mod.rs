//! A judgement in words: one outline, rendered as text or Markdown; and as JSON.

pub(super) mod answers;
mod markdown;
mod outline;
mod text;

pub use markdown::markdown;
pub use text::text;

use super::{Difference, Judgement, Metric};
use crate::report::{decimals, us};

/// The judgement as JSON, indented, with a line end.
pub fn json(judgement: &Judgement) -> String {
    let mut json = serde_json::to_string_pretty(judgement).expect("a judgement has only string keys");
    json.push('\n');
    json
}

/// `1 launch`, `8 launches`.
pub fn launches_words(launches: usize) -> String {
    format!("{launches} launch{}", if launches == 1 { "" } else { "es" })
}

/// `+1.90`; nothing in front of zero and of negative numbers.
fn signed(number: String) -> String {
    let is_zero = !number.contains(|c: char| ('1'..='9').contains(&c));
    if is_zero || number.starts_with('-') { number } else { format!("+{number}") }
}

/// `+1.90 [+1.40, +2.50]`, each through `shown`.
fn with_interval(difference: Difference, shown: impl Fn(f64) -> String) -> String {
    let estimate = signed(shown(difference.estimate));
    match difference.interval {
        Some([low, high]) => format!("{estimate} [{}, {}]", signed(shown(low)), signed(shown(high))),
        None => estimate,
    }
}

/// A share as per cent with one decimal, without the sign.
fn percent_points(share: f64) -> String {
    decimals(share * 100.0, 1)
}

/// `+12.3 % [+9.0, +16.1]`.
fn change_words(change: Difference) -> String {
    let interval = change
        .interval
        .map(|[low, high]| format!(" [{}, {}]", signed(percent_points(low)), signed(percent_points(high))));
    format!("{} %{}", signed(percent_points(change.estimate)), interval.unwrap_or_default())
}

impl Metric {
    /// Unit of its figures in tables.
    fn unit(self) -> &'static str {
        match self {
            Self::Cpu | Self::Mean | Self::P50 | Self::P99 => "us",
            Self::ColdStart => "ms",
            Self::Rss | Self::Heap => "MiB",
            Self::Rate => "1/s",
        }
    }

    /// A figure in that unit.
    fn shown(self, value: f64) -> String {
        match self {
            Self::Cpu | Self::Mean | Self::P50 | Self::P99 => us(value),
            Self::ColdStart => decimals(value / 1e6, 1),
            Self::Rss | Self::Heap => decimals(value / f64::from(1 << 20), 2),
            Self::Rate => decimals(value, 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_stand_where_there_is_something() {
        assert_eq!(
            [1.9, 0.0, -0.001, -2.0].map(|us| signed(decimals(us, 2))).join(" "),
            "+1.90 0.00 0.00 -2.00"
        );
        let change = Difference { estimate: 0.123, interval: Some([-0.01, 0.2]) };
        assert_eq!(change_words(change), "+12.3 % [-1.0, +20.0]");
        assert_eq!(with_interval(Difference { estimate: 1900.0, interval: None }, us), "+1.90");
    }
}

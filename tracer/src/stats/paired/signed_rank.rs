//! The Hodges-Lehmann estimate of a paired difference and the interval that inverts Wilcoxon's exact signed-rank test.

use serde::{Deserialize, Serialize};

/// An estimate with its interval, in the unit of the differences.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Hodges-Lehmann estimate.
    pub estimate: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Differences it rests on.
    pub launches: usize,
}

impl Interval {
    /// Of one difference per launch. The truth lies below `low` with a probability of at most `level`, and above
    /// `high` likewise. `None` when so few differences can support no such statement.
    pub fn of(differences: &[f64], level: f64) -> Option<Self> {
        let rank = tail_rank(differences.len(), level)?;
        let walsh = walsh_averages(differences);
        Some(Self {
            estimate: median_of_sorted(&walsh)?,
            low: walsh[rank],
            high: walsh[walsh.len() - 1 - rank],
            launches: differences.len(),
        })
    }

    /// Zero is not in it.
    pub fn excludes_zero(&self) -> bool {
        self.low > 0.0 || self.high < 0.0
    }

    /// Half of its width.
    pub fn half_width(&self) -> f64 {
        (self.high - self.low) / 2.0
    }

    /// Each figure through `change`, which must be increasing.
    pub fn map(self, change: impl Fn(f64) -> f64) -> Self {
        Self {
            estimate: change(self.estimate),
            low: change(self.low),
            high: change(self.high),
            launches: self.launches,
        }
    }
}

/// Median of all pairwise means; `None` of nothing.
pub fn hodges_lehmann(differences: &[f64]) -> Option<f64> {
    median_of_sorted(&walsh_averages(differences))
}

/// The middle value, or the mean of the two middle ones; `None` of nothing.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    median_of_sorted(&sorted)
}

fn median_of_sorted(sorted: &[f64]) -> Option<f64> {
    let count = sorted.len();
    (count > 0).then(|| (sorted[(count - 1) / 2] + sorted[count / 2]) / 2.0)
}

/// The means of every pair, each value paired with itself too, ascending.
fn walsh_averages(differences: &[f64]) -> Vec<f64> {
    let pairs = differences
        .iter()
        .enumerate()
        .flat_map(|(index, a)| differences[index..].iter().map(move |b| (a + b) / 2.0));
    let mut walsh: Vec<f64> = pairs.collect();
    walsh.sort_by(f64::total_cmp);
    walsh
}

/// The largest rank sum that chance alone reaches or stays below with a probability of at most `level`, for so many
/// differences that are symmetric about zero. `None`: even the smallest is likelier.
fn tail_rank(count: usize, level: f64) -> Option<usize> {
    let mut below = 0.0;
    let mut rank = None;
    for (sum, probability) in rank_sums(count).into_iter().enumerate() {
        below += probability;
        if below > level {
            break;
        }
        rank = Some(sum);
    }
    rank
}

/// The probability of each sum of the ranks 1..=count whose sign is positive, when every sign is a fair coin.
fn rank_sums(count: usize) -> Vec<f64> {
    let mut probabilities = vec![1.0];
    for rank in 1..=count {
        let mut next = vec![0.0; probabilities.len() + rank];
        for (sum, probability) in probabilities.iter().enumerate() {
            next[sum] += probability / 2.0;
            next[sum + rank] += probability / 2.0;
        }
        probabilities = next;
    }
    probabilities
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ranks_are_those_of_the_tables() {
        // Lower critical values of the signed-rank sum, one-sided.
        for (count, level, rank) in
            [(8, 0.025, 3), (8, 0.005, 0), (10, 0.025, 8), (14, 0.025, 21), (20, 0.025, 52), (20, 0.005, 37)]
        {
            assert_eq!(tail_rank(count, level), Some(rank), "{count} at {level}");
        }
        assert_eq!(tail_rank(7, 0.005), None);
        assert_eq!(tail_rank(0, 0.9), None);
    }

    #[test]
    fn the_level_is_exact() {
        // Every assignment of signs to eight magnitudes is as likely as the other when nothing changed.
        let magnitudes = [0.3, 0.7, 1.1, 1.9, 2.3, 3.1, 4.9, 7.7];
        let excluding = |level: f64| {
            (0u32..256)
                .filter(|signs| {
                    let signed = |(bit, value): (usize, &f64)| {
                        if signs >> bit & 1 == 1 { *value } else { -value }
                    };
                    let differences: Vec<f64> = magnitudes.iter().enumerate().map(signed).collect();
                    Interval::of(&differences, level).unwrap().low > 0.0
                })
                .count()
        };
        assert_eq!((excluding(0.005), excluding(0.012), excluding(0.025)), (1, 3, 5));
    }

    #[test]
    fn nothing_has_no_median() {
        assert_eq!((median(&[]), hodges_lehmann(&[])), (None, None));
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), Some(2.5));
        assert_eq!(hodges_lehmann(&[1.0, 2.0, 9.0]), Some(3.5));
    }

    proptest! {
        #[test]
        fn the_estimate_lies_inside_and_follows_shift_and_sign(
            values in vec(-1.0f64..1.0, 8..24), shift in -2.0f64..2.0
        ) {
            let interval = Interval::of(&values, 0.005).unwrap();
            prop_assert!(interval.low <= interval.estimate && interval.estimate <= interval.high);
            let shifted: Vec<f64> = values.iter().map(|value| value + shift).collect();
            let moved = Interval::of(&shifted, 0.005).unwrap();
            prop_assert!((moved.estimate - interval.estimate - shift).abs() < 1e-9);
            prop_assert!((moved.low - interval.low - shift).abs() < 1e-9);
            let mirrored: Vec<f64> = values.iter().map(|value| -value).collect();
            let mirrored = Interval::of(&mirrored, 0.005).unwrap();
            prop_assert!((mirrored.low + interval.high).abs() < 1e-9);
            prop_assert!((mirrored.estimate + interval.estimate).abs() < 1e-9);
        }

        #[test]
        fn a_stricter_level_never_narrows(values in vec(-1.0f64..1.0, 8..24), level in 0.004f64..0.2) {
            let strict = Interval::of(&values, level).unwrap();
            let lax = Interval::of(&values, level * 1.5).unwrap();
            prop_assert!(strict.low <= lax.low && lax.high <= strict.high);
        }

        #[test]
        fn one_wild_launch_does_not_move_the_estimate_far(values in vec(-1.0f64..1.0, 7..20)) {
            let mut wild = values.clone();
            wild.push(1e9);
            prop_assert!(hodges_lehmann(&wild).unwrap() <= 1.0);
        }

        #[test]
        fn probabilities_add_up_to_one(count in 0usize..40) {
            prop_assert!((rank_sums(count).iter().sum::<f64>() - 1.0).abs() < 1e-9);
        }
    }
}

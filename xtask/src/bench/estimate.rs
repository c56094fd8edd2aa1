//! Hodges-Lehmann estimate of a paired difference, with the Wilcoxon signed-rank interval.

/// An estimate and its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    pub middle: f64,
    pub low: f64,
    pub high: f64,
}

impl Estimate {
    /// Of the differences of pairs; `None` for fewer than ten, where the normal approximation does not hold.
    pub fn of(differences: &[f64]) -> Option<Self> {
        let count = differences.len();
        if count < 10 {
            return None;
        }
        let mut walsh: Vec<f64> = differences
            .iter()
            .enumerate()
            .flat_map(|(index, a)| differences[index..].iter().map(move |b| (a + b) / 2.0))
            .collect();
        walsh.sort_by(f64::total_cmp);
        let n = count as f64;
        let half_width = 1.96 * (n * (n + 1.0) * (2.0 * n + 1.0) / 24.0).sqrt();
        let rank = (n * (n + 1.0) / 4.0 - half_width).floor().max(0.0) as usize;
        Some(Self { middle: median(&walsh), low: walsh[rank], high: walsh[walsh.len() - 1 - rank] })
    }

    /// Each figure through `change`, which must be monotonic.
    pub fn map(self, change: impl Fn(f64) -> f64) -> Self {
        Self { middle: change(self.middle), low: change(self.low), high: change(self.high) }
    }
}

/// Of sorted values; zero of none.
pub fn median(sorted: &[f64]) -> f64 {
    match sorted.len() {
        0 => 0.0,
        count if count % 2 == 1 => sorted[count / 2],
        count => (sorted[count / 2 - 1] + sorted[count / 2]) / 2.0,
    }
}

/// Median of values in any order.
pub fn median_of(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    median(&values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_the_exact_one_for_twenty() {
        // Walsh averages of 1..=20: the signed-rank table gives rank 53 of 210 for n = 20 at 5 %.
        let differences: Vec<f64> = (1..=20).map(f64::from).collect();
        let estimate = Estimate::of(&differences).unwrap();
        assert_eq!(estimate.middle, 10.5);
        let mut walsh: Vec<f64> =
            (1..=20).flat_map(|a| (a..=20).map(move |b| f64::from(a + b) / 2.0)).collect();
        walsh.sort_by(f64::total_cmp);
        assert!((estimate.low - walsh[52]).abs() <= 0.5 && (estimate.high - walsh[210 - 53]).abs() <= 0.5);
    }

    #[test]
    fn few_pairs_give_none() {
        assert_eq!(Estimate::of(&[1.0; 9]), None);
    }
}

//! A distribution of durations.

use hdrhistogram::Histogram;

use crate::recording::Percentiles;

/// Samples that must lie beyond a percentile for it to be told.
const SAMPLES_BEYOND: f64 = 10.0;

/// Durations in nanoseconds: exact count, sum and largest; quantiles to three digits.
#[derive(Clone, Debug, PartialEq)]
pub struct Distribution {
    histogram: Histogram<u64>,
    sum_ns: u64,
    max_ns: u64,
}

impl Distribution {
    /// Adds one duration.
    pub fn record(&mut self, ns: u64) {
        // The histogram grows to what it meets; only values of centuries are clamped.
        let clamped = ns.min(i64::MAX as u64);
        self.histogram
            .record(clamped)
            .expect("an auto-resizing histogram takes every value");
        self.sum_ns = self.sum_ns.saturating_add(ns);
        self.max_ns = self.max_ns.max(ns);
    }

    /// Adds everything `other` holds.
    pub fn merge(&mut self, other: &Self) {
        self.histogram
            .add(&other.histogram)
            .expect("an auto-resizing histogram takes every other");
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// Samples.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// Sum of all samples, exact.
    pub fn sum_ns(&self) -> u64 {
        self.sum_ns
    }

    /// Mean; zero without samples.
    pub fn mean_ns(&self) -> f64 {
        self.sum_ns as f64 / self.count().max(1) as f64
    }

    /// Mean, percentiles and largest.
    pub fn percentiles(&self) -> Percentiles {
        Percentiles {
            mean_ns: self.mean_ns(),
            max_ns: self.max_ns,
            ..percentiles(&self.histogram)
        }
    }
}

impl Default for Distribution {
    fn default() -> Self {
        let histogram = Histogram::new(3).expect("three digits are allowed");
        Self {
            histogram,
            sum_ns: 0,
            max_ns: 0,
        }
    }
}

/// Percentiles of a histogram of nanoseconds; p99 and p99.9 only with ten samples or more beyond them.
pub fn percentiles(histogram: &Histogram<u64>) -> Percentiles {
    let count = histogram.len();
    let max_ns = histogram.max();
    let quantile = |q: f64| histogram.value_at_quantile(q).min(max_ns);
    let told = |q: f64| {
        // Rounded, for 1000 * (1 - 0.99) is a little less than 10.
        let beyond = (count as f64 * (1.0 - q) * 1e6).round() / 1e6;
        (beyond >= SAMPLES_BEYOND).then(|| quantile(q))
    };
    Percentiles {
        count,
        mean_ns: if count == 0 { 0.0 } else { histogram.mean() },
        p50_ns: quantile(0.5),
        p90_ns: quantile(0.9),
        p99_ns: told(0.99),
        p999_ns: told(0.999),
        max_ns,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uniform(samples: u64) -> Distribution {
        let mut distribution = Distribution::default();
        (1..=samples).for_each(|n| distribution.record(n * 1000));
        distribution
    }

    #[test]
    fn a_percentile_needs_ten_samples_beyond_it() {
        assert_eq!(uniform(999).percentiles().p99_ns, None);
        assert!(uniform(1000).percentiles().p99_ns.is_some());
        assert_eq!(uniform(9999).percentiles().p999_ns, None);
        assert!(uniform(10_000).percentiles().p999_ns.is_some());
    }

    #[test]
    fn mean_and_largest_are_exact_and_quantiles_to_a_thousandth() {
        let told = uniform(10_001).percentiles();
        assert_eq!((told.mean_ns, told.max_ns), (5_001_000.0, 10_001_000));
        assert!(told.p50_ns.abs_diff(5_001_000) < 6_000, "{}", told.p50_ns);
        assert!(told.p99_ns.unwrap().abs_diff(9_901_000) < 10_000);
    }

    #[test]
    fn merged_is_as_recorded_together() {
        let mut merged = uniform(10);
        merged.merge(&uniform(20));
        let mut together = uniform(10);
        (1..=20).for_each(|n| together.record(n * 1000));
        assert_eq!(merged, together);
    }

    #[test]
    fn extremes_and_nothing_are_taken() {
        let mut distribution = Distribution::default();
        assert_eq!(distribution.percentiles().p50_ns, 0);
        distribution.record(0);
        distribution.record(u64::MAX);
        assert_eq!(distribution.percentiles().max_ns, u64::MAX);
    }
}

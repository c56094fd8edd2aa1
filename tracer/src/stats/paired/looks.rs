//! When the launches so far may be judged. Judging after each one "until significant" gave 17 % false alarms; three
//! planned looks share 2.5 % on each side.

/// One planned look.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Look {
    /// Launches after which it is taken.
    pub launches: usize,
    /// Probability, on each side, of an interval that misses the truth.
    pub level: f64,
}

/// Every look, in order. Their levels add up to 0.025.
pub const LOOKS: [Look; 3] = [
    Look { launches: 8, level: 0.005 },
    Look { launches: 14, level: 0.008 },
    Look { launches: 20, level: 0.012 },
];

/// The look to take next, when `taken` were; `None`: all are spent.
pub fn next_look(taken: usize) -> Option<Look> {
    LOOKS.get(taken).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_looks_together_spend_two_and_a_half_per_cent_on_each_side() {
        let spent: f64 = LOOKS.iter().map(|look| look.level).sum();
        assert!((spent - 0.025).abs() < 1e-12);
        assert!(LOOKS.is_sorted_by_key(|look| look.launches));
        assert_eq!((next_look(0), next_look(3)), (Some(LOOKS[0]), None));
    }
}

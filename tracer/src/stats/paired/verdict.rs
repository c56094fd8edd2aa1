//! What an interval says about a threshold.

use serde::{Deserialize, Serialize};

use super::{Interval, LOOKS};

/// More launches than this are no advice.
const MOST_ADVISED: f64 = 500.0;

/// How an interval is judged.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rule {
    /// Smallest change that counts, as a share (0.02: 2 %).
    pub threshold: f64,
    /// A change counts only when its whole interval lies beyond the threshold.
    pub strict: bool,
}

impl Default for Rule {
    fn default() -> Self {
        Self { threshold: 0.02, strict: false }
    }
}

/// The verdict on one metric.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Verdict {
    /// B is worse.
    Regression,
    /// B is better.
    Improved,
    /// The whole interval is smaller than the threshold.
    Same,
    /// The interval leaves it open.
    Inconclusive {
        /// About so many launches more would decide it, if they come out like these; `None`: too many to advise.
        more_launches: Option<usize>,
    },
    /// Nothing may be concluded, whatever the interval says.
    Withheld {
        /// Why, one sentence each.
        reasons: Vec<String>,
    },
}

/// Judges ln(B/A) where more is worse.
pub fn judge(interval: &Interval, rule: Rule) -> Verdict {
    // A threshold of 2 % is a factor of 1.02 one way and of 1/1.02 the other.
    let threshold = rule.threshold.ln_1p();
    let worse =
        |low: f64, estimate: f64| low > if rule.strict { threshold } else { 0.0 } && estimate >= threshold;
    if worse(interval.low, interval.estimate) {
        Verdict::Regression
    } else if worse(-interval.high, -interval.estimate) {
        Verdict::Improved
    } else if interval.low > -threshold && interval.high < threshold {
        Verdict::Same
    } else {
        Verdict::Inconclusive { more_launches: more_launches(interval, threshold, rule.strict) }
    }
}

/// Judges one row of launches at the planned looks, and stops at the first that decides. Gives the verdict and the
/// launches it took; `None`: fewer than the first look needs.
pub fn judge_at_looks(launches: &[f64], rule: Rule) -> Option<(Verdict, usize)> {
    let mut last = None;
    for look in LOOKS.iter().filter(|look| look.launches <= launches.len()) {
        let verdict = judge(&Interval::of(&launches[..look.launches], look.level)?, rule);
        let decided = !matches!(verdict, Verdict::Inconclusive { .. });
        last = Some((verdict, look.launches));
        if decided {
            break;
        }
    }
    last
}

/// The width shrinks with the root of the number of launches.
fn more_launches(interval: &Interval, threshold: f64, strict: bool) -> Option<usize> {
    let size = interval.estimate.abs();
    let room = if size < threshold {
        threshold - size
    } else if strict {
        size - threshold
    } else {
        size
    };
    let launches = interval.launches as f64;
    let needed = launches * (interval.half_width() / room).powi(2);
    let more = (needed - launches).ceil().max(1.0);
    (more <= MOST_ADVISED).then_some(more as usize)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const RULE: Rule = Rule { threshold: 0.02, strict: false };

    fn interval(low: f64, estimate: f64, high: f64) -> Interval {
        Interval { estimate, low, high, launches: 8 }
    }

    #[test]
    fn each_verdict_by_its_definition() {
        assert_eq!(judge(&interval(0.01, 0.05, 0.09), RULE), Verdict::Regression);
        assert_eq!(judge(&interval(-0.09, -0.05, -0.01), RULE), Verdict::Improved);
        assert_eq!(judge(&interval(-0.01, 0.0, 0.01), RULE), Verdict::Same);
        // Sure to be dearer, and sure to be below the threshold.
        assert_eq!(judge(&interval(0.005, 0.01, 0.015), RULE), Verdict::Same);
        // Sure to be dearer, but perhaps by less than counts.
        assert!(matches!(judge(&interval(0.005, 0.015, 0.03), RULE), Verdict::Inconclusive { .. }));
        assert!(matches!(judge(&interval(-0.01, 0.05, 0.09), RULE), Verdict::Inconclusive { .. }));
    }

    #[test]
    fn strict_asks_for_the_whole_interval() {
        let strict = Rule { strict: true, ..RULE };
        assert_eq!(judge(&interval(0.03, 0.05, 0.09), strict), Verdict::Regression);
        assert!(matches!(judge(&interval(0.01, 0.05, 0.09), strict), Verdict::Inconclusive { .. }));
        assert_eq!(judge(&interval(-0.09, -0.05, -0.03), strict), Verdict::Improved);
    }

    #[test]
    fn advice_follows_the_root_of_the_number() {
        // Half as wide again as it may be: (0.06 / 0.04)^2 of eight launches are 18.
        let verdict = judge(&interval(-0.02, 0.04, 0.10), RULE);
        assert_eq!(verdict, Verdict::Inconclusive { more_launches: Some(10) });
        let hopeless = judge(&interval(-0.2, 0.0198, 0.2), RULE);
        assert_eq!(hopeless, Verdict::Inconclusive { more_launches: None });
    }

    #[test]
    fn the_first_look_that_decides_is_the_last() {
        let clear: Vec<f64> = (0..20).map(|launch| 0.2 + f64::from(launch % 5) * 0.001).collect();
        assert_eq!(judge_at_looks(&clear, RULE), Some((Verdict::Regression, 8)));
        assert_eq!(judge_at_looks(&clear[..7], RULE), None);
        let noisy: Vec<f64> = (0..20).map(|launch| if launch % 2 == 0 { 0.1 } else { -0.1 }).collect();
        let (verdict, launches) = judge_at_looks(&noisy, RULE).unwrap();
        assert!(matches!(verdict, Verdict::Inconclusive { .. }) && launches == 20);
    }

    proptest! {
        #[test]
        fn mirrored_builds_get_mirrored_verdicts(
            low in -0.1f64..0.1, middle in 0.0f64..0.1, width in 0.0f64..0.1, strict: bool
        ) {
            let rule = Rule { strict, ..RULE };
            let (estimate, high) = (low + middle, low + middle + width);
            let verdict = judge(&interval(low, estimate, high), rule);
            let mirrored = judge(&interval(-high, -estimate, -low), rule);
            let expected = match verdict {
                Verdict::Regression => Verdict::Improved,
                Verdict::Improved => Verdict::Regression,
                other => other,
            };
            prop_assert_eq!(mirrored, expected);
        }
    }
}

//! In which order several routes are asked for.

/// Longest cycle of the order: weights beyond it are rounded.
const CYCLE_MAX: u64 = 10_000;

/// An endless order in which each route has its share, spread as evenly as can be.
#[derive(Clone, Debug)]
pub(super) struct Mix {
    cycle: Vec<u32>,
    next: usize,
}

impl Mix {
    /// Of weights, at least one of them above zero.
    pub fn new(weights: &[u32]) -> Self {
        let total: u64 = weights.iter().copied().map(u64::from).sum();
        let divisor =
            weights.iter().copied().map(u64::from).fold(0, gcd).max(total.div_ceil(CYCLE_MAX)).max(1);
        let shares: Vec<i64> = weights.iter().map(|&weight| (u64::from(weight) / divisor) as i64).collect();
        let cycle_length: i64 = shares.iter().sum();
        // Smooth weighted round robin: who has waited for the largest part of its share comes next.
        let mut waited = vec![0_i64; shares.len()];
        let mut cycle = Vec::new();
        for _ in 0..cycle_length {
            waited.iter_mut().zip(&shares).for_each(|(waited, share)| *waited += share);
            let next = (0..shares.len()).max_by_key(|&route| (waited[route], std::cmp::Reverse(route)));
            let next = next.unwrap_or_default();
            waited[next] -= cycle_length;
            cycle.push(next as u32);
        }
        if cycle.is_empty() {
            cycle.push(0);
        }
        Self { cycle, next: 0 }
    }

    /// The route of the next request.
    pub fn next(&mut self) -> usize {
        let route = self.cycle[self.next];
        self.next += 1;
        if self.next == self.cycle.len() {
            self.next = 0;
        }
        route as usize
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_exact_and_spread() {
        let mut mix = Mix::new(&[4, 2, 0]);
        let order: Vec<_> = (0..6).map(|_| mix.next()).collect();
        assert_eq!(order, [0, 1, 0, 0, 1, 0]);
        let mut mix = Mix::new(&[7]);
        assert_eq!((mix.cycle.len(), mix.next(), mix.next()), (1, 0, 0));
    }

    #[test]
    fn huge_weights_make_no_huge_cycle() {
        let mix = Mix::new(&[u32::MAX, u32::MAX / 3]);
        assert!(mix.cycle.len() <= CYCLE_MAX as usize);
        let second = mix.cycle.iter().filter(|&&route| route == 1).count() as f64;
        assert!((second / mix.cycle.len() as f64 - 0.25).abs() < 0.001);
    }
}

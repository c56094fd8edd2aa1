//! Holm's correction for several rows judged at once, told as intervals.

use super::Interval;

/// The interval of each row's differences, such that the chance of any false alarm among all of them stays at `level` on
/// each side: every row at a share of it, and once some are sure, the others at a larger share.
pub fn holm(rows: &[Vec<f64>], level: f64) -> Vec<Option<Interval>> {
    let mut intervals: Vec<Option<Interval>> = vec![None; rows.len()];
    let mut sure = vec![false; rows.len()];
    loop {
        let left = sure.iter().filter(|sure| !**sure).count();
        let mut newly_sure = false;
        for (index, row) in rows.iter().enumerate().filter(|(index, _)| !sure[*index]).collect::<Vec<_>>() {
            intervals[index] = Interval::of(row, level / left as f64);
            if intervals[index].is_some_and(|interval| interval.excludes_zero()) {
                sure[index] = true;
                newly_sure = true;
            }
        }
        if !newly_sure {
            return intervals;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(centre: f64) -> Vec<f64> {
        (0..14).map(|launch| centre + f64::from(launch - 7) * 0.003).collect()
    }

    #[test]
    fn one_row_is_not_corrected() {
        assert_eq!(holm(&[row(0.01)], 0.008), [Interval::of(&row(0.01), 0.008)]);
        assert_eq!(holm(&[], 0.008), []);
    }

    #[test]
    fn what_is_sure_leaves_its_share_to_the_others() {
        let rows = [row(0.1), row(0.0), row(0.001)];
        let intervals = holm(&rows, 0.008);
        assert_eq!(intervals[0], Interval::of(&rows[0], 0.008 / 3.0));
        assert_eq!(intervals[1], Interval::of(&rows[1], 0.008 / 2.0));
        assert_eq!(intervals[2], Interval::of(&rows[2], 0.008 / 2.0));
    }

    #[test]
    fn a_share_too_small_for_the_launches_gives_no_interval() {
        let short = row(0.1)[..8].to_vec();
        assert_eq!(holm(&[short.clone(), short], 0.005), [None, None]);
    }
}

//! Medians with their range, percentiles, and ratios within a round.

use serde::Serialize;

/// The median of some values, and their range.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

impl Spread {
    /// Of `values`; `None` if there are none. With an even number, the median is the mean of the
    /// middle two.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (&min, &max) = (values.first()?, values.last()?);
        let upper = values[values.len() / 2];
        let lower = values[(values.len() - 1) / 2];
        Some(Self { median: f64::midpoint(lower, upper), min, max })
    }
}

/// The smallest value that at least `share` of the values do not exceed.
pub fn percentile(mut values: Vec<f64>, share: f64) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let rank = (values.len() as f64 * share).ceil() as usize;
    values.get(rank.max(1) - 1).copied()
}

/// The ratios of two figures measured in the same round; rounds that lack one are left out. Factors
/// that vary from round to round, such as other load on the machine, cancel out.
pub fn paired_ratios(numerators: &[(usize, f64)], denominators: &[(usize, f64)]) -> Vec<f64> {
    let of = |round: usize| denominators.iter().find(|(other, _)| *other == round);
    numerators.iter().filter_map(|(round, value)| of(*round).map(|(_, other)| value / other)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_does_not_depend_on_the_order() {
        assert_eq!(Spread::of([3.0, 1.0, 2.0]), Some(Spread { median: 2.0, min: 1.0, max: 3.0 }));
        assert_eq!(Spread::of([4.0, 1.0, 2.0, 3.0]), Some(Spread { median: 2.5, min: 1.0, max: 4.0 }));
        assert_eq!(Spread::of([7.0]), Some(Spread { median: 7.0, min: 7.0, max: 7.0 }));
        assert_eq!(Spread::of([]), None);
    }

    #[test]
    fn percentiles_are_values_that_occurred() {
        let values: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        assert_eq!(percentile(values.clone(), 0.05), Some(5.0));
        assert_eq!(percentile(values, 0.0), Some(1.0));
        assert_eq!(percentile(vec![3.0], 0.05), Some(3.0));
        assert_eq!(percentile(vec![], 0.05), None);
    }

    #[test]
    fn ratios_pair_what_was_measured_in_the_same_round() {
        // Twice as fast in each round, though the second round was slow for both; the third has no
        // partner.
        let (ours, theirs) = ([(0, 20.0), (1, 2.0), (2, 50.0)], [(1, 1.0), (0, 10.0)]);
        assert_eq!(paired_ratios(&ours, &theirs), [2.0, 2.0]);
    }
}

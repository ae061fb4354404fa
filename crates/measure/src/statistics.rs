//! Means with confidence intervals.

use serde::Serialize;

/// The mean of a number of runs with its confidence interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Estimate {
    /// The mean.
    pub mean: f64,
    /// Half the width of the confidence interval. `None` for a single run.
    pub plus_minus: Option<f64>,
}

impl Estimate {
    /// Returns the mean of `values` with Student's interval at the level `confidence`, between 0
    /// and 1. The mean of no values is zero.
    pub fn of(values: &[f64], confidence: f64) -> Self {
        let count = values.len() as f64;
        if values.is_empty() {
            return Self { mean: 0.0, plus_minus: None };
        }
        let mean = values.iter().sum::<f64>() / count;
        let plus_minus = (values.len() > 1).then(|| {
            let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0);
            student(values.len() as u32 - 1, confidence) * (variance / count).sqrt()
        });
        Self { mean, plus_minus }
    }

    /// Returns the lower and the upper end of the interval.
    pub fn range(&self) -> (f64, f64) {
        let half = self.plus_minus.unwrap_or(0.0);
        (self.mean - half, self.mean + half)
    }
}

/// Returns the quantile `t` such that a value of Student's distribution with this number of degrees
/// of freedom lies in `-t..=t` with this probability, between 0 and 1.
fn student(degrees: u32, confidence: f64) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    while within(degrees, high) < confidence && high < 1e9 {
        high *= 2.0;
    }
    // 100 bisection steps exceed the precision of a double.
    for _ in 0..100 {
        let middle = f64::midpoint(low, high);
        if within(degrees, middle) < confidence {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}

/// Returns the probability of a value in `-t..=t` (Abramowitz and Stegun, 26.7.3 and 26.7.4).
fn within(degrees: u32, t: f64) -> f64 {
    let angle = (t / f64::from(degrees).sqrt()).atan();
    let (sine, cosine) = angle.sin_cos();
    let square = cosine * cosine;
    let is_odd = degrees % 2 == 1;
    let mut term = if is_odd { cosine } else { 1.0 };
    let mut sum = if is_odd && degrees == 1 { 0.0 } else { term };
    let mut step = if is_odd { 3 } else { 2 };
    while step < degrees {
        term *= square * f64::from(step - 1) / f64::from(step);
        sum += term;
        step += 2;
    }
    if is_odd { 2.0 / std::f64::consts::PI * (angle + sine * sum) } else { sine * sum }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quantiles_match_published_tables() {
        // Two-sided quantiles from a table of Student's distribution.
        let table = [
            (1, 0.90, 6.314),
            (2, 0.90, 2.920),
            (3, 0.95, 3.182),
            (4, 0.90, 2.132),
            (5, 0.99, 4.032),
            (9, 0.90, 1.833),
            (9, 0.95, 2.262),
            (10, 0.95, 2.228),
            (30, 0.90, 1.697),
            (120, 0.95, 1.980),
        ];
        for (degrees, confidence, t) in table {
            let found = student(degrees, confidence);
            assert!((found - t).abs() < 0.0006, "{degrees} {confidence}: {found}, not {t}");
        }
    }

    #[test]
    fn intervals_narrow_with_more_runs_and_one_run_has_none() {
        let estimate = Estimate::of(&[9.0, 10.0, 11.0], 0.90);
        assert!((estimate.mean - 10.0).abs() < 1e-12);
        // 2.920 times 1 / sqrt(3).
        assert!((estimate.plus_minus.unwrap() - 1.686).abs() < 0.001, "{estimate:?}");
        let longer = Estimate::of(&[9.0, 10.0, 11.0, 9.0, 10.0, 11.0], 0.90);
        assert!(longer.plus_minus < estimate.plus_minus);
        assert_eq!(Estimate::of(&[5.0], 0.90), Estimate { mean: 5.0, plus_minus: None });
        assert_eq!(Estimate::of(&[5.0], 0.90).range(), (5.0, 5.0));
    }
}

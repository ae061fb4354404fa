//! Range and ticks of an axis.

/// Approximate number of ticks per axis.
const TICKS: f64 = 6.0;

/// A horizontal or vertical axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Axis {
    /// The lower end: zero, unless a value is less.
    pub(super) low: f64,
    /// The upper end, at a tick.
    pub(super) high: f64,
    step: f64,
}

impl Axis {
    /// Creates an axis whose range includes all of `values`.
    pub(super) fn over(values: impl Iterator<Item = f64>) -> Self {
        Self::with_step_min(values, 0.0)
    }

    /// Creates an axis like [`over`](Self::over) for counts: its ticks are whole numbers.
    pub(super) fn of_counts(values: impl Iterator<Item = f64>) -> Self {
        Self::with_step_min(values, 1.0)
    }

    fn with_step_min(values: impl Iterator<Item = f64>, step_min: f64) -> Self {
        let (mut low, mut high) = (0.0_f64, 0.0_f64);
        for value in values {
            low = low.min(value);
            high = high.max(value);
        }
        if high <= low {
            high = low + 1.0;
        }
        let step = round_up((high - low) / TICKS).max(step_min);
        // The small tolerance avoids an additional tick if a value is exactly on a tick.
        let outwards = |value: f64| (value / step - 1e-9).ceil() * step;
        Self { low: -outwards(-low) + 0.0, high: outwards(high), step }
    }

    /// Returns the relative position of a value on the axis, from 0 to 1.
    pub(super) fn share(&self, value: f64) -> f64 {
        (value - self.low) / (self.high - self.low)
    }

    /// Returns tick values and their labels.
    pub(super) fn ticks(&self) -> Vec<(f64, String)> {
        let count = ((self.high - self.low) / self.step).round() as usize;
        let digits = (-self.step.log10().floor()).max(0.0) as usize;
        (0..=count)
            .map(|index| {
                let value = self.low + self.step * index as f64;
                (value, label(value, digits))
            })
            .collect()
    }
}

fn label(value: f64, digits: usize) -> String {
    if value.abs() >= 1e7 || digits > 6 { format!("{value:.2e}") } else { format!("{value:.digits$}") }
}

/// Returns the smallest of 1, 2, 5, 10, 20... times a power of ten that is not below `value`.
fn round_up(value: f64) -> f64 {
    let power = 10_f64.powf(value.log10().floor());
    let factor = [1.0, 2.0, 5.0].into_iter().find(|factor| value <= factor * power * (1.0 + 1e-9));
    factor.unwrap_or(10.0) * power
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticks(values: &[f64]) -> Vec<String> {
        Axis::over(values.iter().copied()).ticks().into_iter().map(|(_, label)| label).collect()
    }

    #[test]
    fn ticks_are_round_numbers_from_zero_past_the_last_value() {
        assert_eq!(ticks(&[3.0, 12.0]), ["0", "2", "4", "6", "8", "10", "12"]);
        assert_eq!(ticks(&[0.07]), ["0.00", "0.02", "0.04", "0.06", "0.08"]);
        assert_eq!(ticks(&[323.0]), ["0", "100", "200", "300", "400"]);
        assert_eq!(ticks(&[-3.0, 2.0]), ["-3", "-2", "-1", "0", "1", "2"]);
    }

    #[test]
    fn an_axis_without_values_or_with_zeros_is_valid() {
        for values in [&[][..], &[0.0]] {
            let axis = Axis::over(values.iter().copied());
            assert_eq!((axis.low, axis.share(1.0)), (0.0, 1.0));
        }
    }
}

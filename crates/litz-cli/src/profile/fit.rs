//! Fits lines to measured points.

use serde::Serialize;

/// A cost with a fixed part and a part per byte: `packet_ns + byte_ns * bytes`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Fit {
    /// Nanoseconds per packet, regardless of its size.
    pub(crate) packet_ns: f64,
    /// Nanoseconds per byte of the datagram.
    pub(crate) byte_ns: f64,
    /// Largest deviation of a point from the line, in nanoseconds.
    pub(crate) residual_ns: f64,
}

impl Fit {
    /// The least-squares line through `(bytes, ns)`. With fewer than two different sizes, the whole
    /// cost is fixed.
    pub(crate) fn through(points: &[(f64, f64)]) -> Self {
        let count = points.len().max(1) as f64;
        let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
        let (mean_x, mean_y) = (mean(|point| point.0), mean(|point| point.1));
        let spread: f64 = points.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
        let shared: f64 = points.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
        let byte_ns = if spread > 0.0 { shared / spread } else { 0.0 };
        let packet_ns = mean_y - byte_ns * mean_x;
        let off = |(x, y): &(f64, f64)| (y - packet_ns - byte_ns * x).abs();
        Self { packet_ns, byte_ns, residual_ns: points.iter().map(off).fold(0.0, f64::max) }
    }
}

/// The median: for an even number of values, the mean of the middle two; zero without values.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        len if len % 2 == 1 => sorted[len / 2],
        len => f64::midpoint(sorted[len / 2 - 1], sorted[len / 2]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9
    }

    #[test]
    fn points_on_a_line_have_no_residual() {
        let points: Vec<_> = [1200.0, 1472.0, 4096.0, 8972.0].map(|x| (x, 30.0 + 0.25 * x)).to_vec();
        let fit = Fit::through(&points);
        assert!(close(fit.packet_ns, 30.0) && close(fit.byte_ns, 0.25) && fit.residual_ns < 1e-9, "{fit:?}");
    }

    #[test]
    fn points_off_the_line_have_a_residual() {
        // Computed by hand: mean (2, 3), slope (-1 * -3 + 1 * 3) / 2 = 3 with the middle point off
        // the line.
        let fit = Fit::through(&[(1.0, 0.0), (2.0, 3.0 + 3.0), (3.0, 6.0)]);
        assert!(close(fit.byte_ns, 3.0) && close(fit.packet_ns, -2.0) && close(fit.residual_ns, 2.0), "{fit:?}");
    }

    #[test]
    fn one_size_has_no_slope() {
        let fit = Fit::through(&[(1472.0, 100.0), (1472.0, 110.0)]);
        assert!(close(fit.packet_ns, 105.0) && close(fit.byte_ns, 0.0) && close(fit.residual_ns, 5.0), "{fit:?}");
    }

    #[test]
    fn the_median_ignores_an_outlier() {
        assert!(close(median(&[3.0, 1000.0, 1.0]), 3.0) && close(median(&[4.0, 2.0]), 3.0) && close(median(&[]), 0.0));
    }
}

//! Formatting of numbers: four significant digits, or as many as the interval justifies.

use measure::Estimate;

/// Significant digits of a number without an interval.
const SIGNIFICANT: i32 = 4;

/// Maximum number of characters that a paper prints for a number.
const PRINTED_MAX: usize = 8;

/// Maximum number of decimals.
const DECIMALS_MAX: i32 = 6;

/// Formats a value with four significant digits.
pub fn value(value: f64) -> String {
    if !value.is_finite() {
        return "-".to_owned();
    }
    // Counts have no decimals.
    if value.fract() == 0.0 {
        return with_decimals(value, 0);
    }
    with_decimals(value, decimals(value, SIGNIFICANT))
}

/// Formats a number as printed in a paper, with all digits. A number derived from printed ones has
/// four significant digits.
pub fn printed(number: f64) -> String {
    let digits = number.to_string();
    if digits.len() > PRINTED_MAX { value(number) } else { digits }
}

/// Formats a mean and its interval. The interval has two significant digits and is omitted below a
/// hundred-thousandth of the mean.
pub fn estimate(estimate: &Estimate) -> String {
    match estimate.plus_minus {
        None => value(estimate.mean),
        Some(half) if !half.is_finite() || !estimate.mean.is_finite() => value(estimate.mean),
        Some(half) => {
            // Identical runs have an interval of zero, up to rounding errors.
            let is_exact = half <= estimate.mean.abs() * 1e-9;
            let most = decimals(estimate.mean, if is_exact { SIGNIFICANT } else { SIGNIFICANT + 1 });
            let decimals = if is_exact { most } else { decimals(half, 2).min(most) };
            let half = if is_exact { 0.0 } else { half };
            format!("{} ± {}", with_decimals(estimate.mean, decimals), with_decimals(half, decimals))
        }
    }
}

/// Formats a fraction as a signed percentage.
pub fn difference(share: f64) -> String {
    if share.is_finite() { format!("{:+.1} %", share * 100.0) } else { "-".to_owned() }
}

/// Formats a fraction as a percentage without trailing zeros.
pub fn percent(share: f64) -> String {
    // Rounded to a thousandth of a percent, so that 0.05 gives 5 and not 5.000000000000001.
    format!("{} %", (share * 1e5).round() / 1e3)
}

/// Returns the number of decimals for `count` significant digits.
fn decimals(value: f64, count: i32) -> i32 {
    if value == 0.0 {
        return 0;
    }
    (count - 1 - value.abs().log10().floor() as i32).clamp(0, DECIMALS_MAX)
}

fn with_decimals(value: f64, decimals: i32) -> String {
    let decimals = usize::try_from(decimals).unwrap_or(0);
    let text = format!("{value:.decimals$}");
    // Zero has no sign.
    if text.trim_start_matches('-').chars().all(|digit| matches!(digit, '0' | '.')) {
        text.trim_start_matches('-').to_owned()
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_four_significant_digits_and_large_numbers_all() {
        let texts: Vec<_> = [0.0, 1.0, 0.012_3, 323.456, 4097.2, 123_456.7, -2.5, -1e-9].map(value).into();
        assert_eq!(texts, ["0", "1", "0.01230", "323.5", "4097", "123457", "-2.500", "0.000000"]);
        assert_eq!(value(f64::NAN), "-");
    }

    #[test]
    fn the_interval_determines_the_number_of_digits() {
        let text = |mean, half| estimate(&Estimate { mean, plus_minus: half });
        assert_eq!(text(322.123_4, Some(0.456)), "322.12 ± 0.46");
        assert_eq!(text(322.123_4, Some(45.6)), "322 ± 46");
        assert_eq!(text(322.123_4, Some(0.0)), "322.1 ± 0.0");
        assert_eq!(text(1.7, None), "1.700");
    }

    #[test]
    fn shares_are_percentages() {
        assert_eq!((difference(0.0512), difference(-0.001)), ("+5.1 %".to_owned(), "-0.1 %".to_owned()));
        assert_eq!((percent(0.05), percent(0.125), percent(0.07)), ("5 %".into(), "12.5 %".into(), "7 %".into()));
        assert_eq!((printed(301.0), printed(5.8), printed(457.0 / 3.0)), ("301".into(), "5.8".into(), "152.3".into()));
    }
}

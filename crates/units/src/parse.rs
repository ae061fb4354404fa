//! Parses rates, sizes and durations with units: `400Mb/s`, `64KiB`, `30ms`.
//!
//! A unit is required, except for zero. Without one, a megabyte and a megabit could not be
//! distinguished on a command line.

use core::str::FromStr;
use std::error::Error;
use std::fmt;

use crate::{ByteSize, Duration, Rate};

/// A quantity that could not be parsed. The message shows the input and an example of the expected
/// form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseQuantityError {
    input: String,
    expected: &'static str,
}

impl fmt::Display for ParseQuantityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot read {:?}: expected {}", self.input, self.expected)
    }
}

impl Error for ParseQuantityError {}

/// Splits the input into a decimal number in millionths and its unit. The number is an integer, so
/// that `0.1` is exactly one tenth.
fn split_micro(input: &str) -> Option<(u128, &str)> {
    let input = input.trim();
    let end = input.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(input.len());
    let (number, unit) = (&input[..end], input[end..].trim());
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') || fraction.len() > 6 || whole.len() > 20 {
        return None;
    }
    let whole: u128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let fraction_micro: u128 = if fraction.is_empty() { 0 } else { format!("{fraction:0<6}").parse().ok()? };
    Some((whole * 1_000_000 + fraction_micro, unit))
}

fn scaled(
    input: &str,
    expected: &'static str,
    factor: impl Fn(&str) -> Option<u64>,
) -> Result<u64, ParseQuantityError> {
    let error = || ParseQuantityError { input: input.to_owned(), expected };
    let (micro, unit) = split_micro(input).ok_or_else(error)?;
    if micro == 0 && unit.is_empty() {
        return Ok(0);
    }
    let factor = factor(unit).ok_or_else(error)?;
    // Twenty digits of days overflow even 128 bits.
    let scaled = micro.checked_mul(u128::from(factor)).ok_or_else(error)?;
    u64::try_from(scaled / 1_000_000).map_err(|_| error())
}

impl FromStr for Rate {
    type Err = ParseQuantityError;

    fn from_str(input: &str) -> Result<Self, Self::Err> {
        let factor = |unit: &str| {
            let unit =
                unit.strip_suffix("/s").or_else(|| unit.strip_suffix("ps")).or_else(|| unit.strip_suffix("it"))?;
            Some(match unit {
                "b" => 1,
                "kb" | "Kb" => 1_000,
                "Mb" | "mb" => 1_000_000,
                "Gb" | "gb" => 1_000_000_000,
                "B" => 8,
                "kB" | "KB" => 8_000,
                "MB" => 8_000_000,
                "GB" => 8_000_000_000,
                _ => return None,
            })
        };
        scaled(input, "a rate such as 400Mb/s, 1.5Gb/s or 20MB/s (b is bit, B is byte)", factor).map(Self::from_bps)
    }
}

impl FromStr for ByteSize {
    type Err = ParseQuantityError;

    fn from_str(input: &str) -> Result<Self, Self::Err> {
        let factor = |unit: &str| {
            Some(match unit {
                "B" => 1,
                "kB" | "KB" => 1_000,
                "MB" => 1_000_000,
                "GB" => 1_000_000_000,
                "TB" => 1_000_000_000_000,
                "KiB" => 1 << 10,
                "MiB" => 1 << 20,
                "GiB" => 1 << 30,
                "TiB" => 1 << 40,
                _ => return None,
            })
        };
        scaled(input, "a size such as 64KiB, 1.5MB or 2GiB", factor).map(Self::from_bytes)
    }
}

impl FromStr for Duration {
    type Err = ParseQuantityError;

    fn from_str(input: &str) -> Result<Self, Self::Err> {
        let factor = |unit: &str| {
            Some(match unit {
                "ns" => 1,
                "us" | "µs" => 1_000,
                "ms" => 1_000_000,
                "s" => 1_000_000_000,
                "min" | "m" => 60_000_000_000,
                "h" => 3_600_000_000_000,
                "d" => 86_400_000_000_000,
                _ => return None,
            })
        };
        scaled(input, "a time such as 30ms, 1.5s, 10min or 24h", factor).map(Self::from_nanos)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_with_units_are_parsed() {
        assert_eq!("400Mb/s".parse(), Ok(Rate::from_mbps(400)));
        assert_eq!("1.5 Gbit".parse(), Ok(Rate::from_mbps(1500)));
        assert_eq!("20MB/s".parse(), Ok(Rate::from_mbps(160)));
        assert_eq!("9600bps".parse(), Ok(Rate::from_bps(9600)));
        assert_eq!("64KiB".parse(), Ok(ByteSize::from_bytes(65536)));
        assert_eq!("0.1s".parse(), Ok(Duration::from_millis(100)));
        assert_eq!("0".parse(), Ok(Duration::ZERO));
    }

    #[test]
    fn invalid_quantities_are_rejected_with_an_example() {
        for bad in ["", "fast", "12", "1.2.3s", "-3ms", "5 parsecs", "99999999999999999999GB", "1e3s", "."] {
            assert!(bad.parse::<Duration>().is_err(), "{bad:?} as a time");
            assert!(bad.parse::<Rate>().is_err(), "{bad:?} as a rate");
            assert!(bad.parse::<ByteSize>().is_err(), "{bad:?} as a size");
        }
        // 3938453320844195179 days are slightly more than 2^128 millionths of a nanosecond. If the
        // product wrapped, the text would parse as about half an hour.
        for unit in ["ns", "s", "h", "d"] {
            for number in ["99999999999999999999", "99999999999999999999.999999", "3938453320844195179"] {
                let text = format!("{number}{unit}");
                let (read, fits) = (text.parse::<Duration>(), unit == "ns" && number.len() < 20);
                assert_eq!(read.is_ok(), fits, "{text} as a time: {read:?}");
            }
        }
        let shown = "12".parse::<Rate>().unwrap_err().to_string();
        assert!(shown.contains("400Mb/s"), "{shown}");
    }
}

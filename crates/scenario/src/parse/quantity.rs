//! Parses probabilities and shares. Rates, sizes and times are parsed by `units`.

use units::Ratio;

/// Parses a probability in percent, with a resolution of one millionth: `"0.1%"`, `"0"`, `"100%"`.
pub(super) fn parse_ratio(text: &str) -> Result<Ratio, String> {
    let error = || format!("cannot read {text:?}: expected a percentage from 0% to 100% such as 0.5%");
    if text.trim() == "0" {
        return Ok(Ratio::ZERO);
    }
    let number = text.trim().strip_suffix('%').ok_or_else(error)?.trim();
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let is_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || fraction.len() > 4 || whole.len() > 3 || !is_digits(whole) || !is_digits(fraction) {
        return Err(error());
    }
    let millionths: u64 = format!("{whole}{fraction:0<4}").parse().map_err(|_| error())?;
    if millionths > 1_000_000 { Err(error()) } else { Ok(Ratio::from_millionths(millionths)) }
}

/// Parses a share in percent, which may exceed 100%: `"97%"`.
pub(super) fn parse_share(text: &str) -> Result<f64, String> {
    let number = text.trim().strip_suffix('%').and_then(|number| number.trim().parse::<f64>().ok());
    number
        .map(|percent| percent / 100.0)
        .ok_or_else(|| format!("cannot read {text:?}: expected a share such as 0.97 without quotes, or \"97%\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_are_exact() {
        assert_eq!(parse_ratio("0.5%"), Ok(Ratio::from_millionths(5_000)));
        assert_eq!(parse_ratio(" 30 % "), Ok(Ratio::from_millionths(300_000)));
        assert_eq!(parse_ratio("0.0001%"), Ok(Ratio::from_millionths(1)));
        assert_eq!(parse_ratio("0"), Ok(Ratio::ZERO));
        for bad in ["", "%", "-1%", "101%", "1", "x%", "1.23456%", "1.2.3%", "1e1%", "+5%"] {
            let message = parse_ratio(bad).expect_err(bad);
            assert!(message.contains("percentage"), "{message}");
        }
    }

    #[test]
    fn shares_may_exceed_one() {
        assert_eq!(parse_share("97%"), Ok(0.97));
        assert_eq!(parse_share("150%"), Ok(1.5));
        assert!(parse_share("0.97").is_err());
    }
}

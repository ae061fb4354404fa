//! Values of settings that can also be changed by a schedule.

use netem::{BurstLoss, Change, Distribution, Jitter, LineState};
use units::{Duration, Rate, Ratio};

/// Value that removes a setting.
pub(super) const NONE: &str = "none";

/// The parsed value, or a description of the permitted values.
type Value<T> = Result<T, String>;

/// Parses the change that sets `key` to `value`; returns `None` if there is no such key.
pub(super) fn change(key: &str, value: &str) -> Option<Value<Change>> {
    Some(match key {
        "rate" => optional(value, |value| value.parse::<Rate>().map_err(|error| error.to_string())).map(Change::Rate),
        "delay" => value.parse().map(Change::Delay).map_err(|error| format!("{error}")),
        "jitter" => optional(value, jitter).map(Change::Jitter),
        "loss" => ratio(value).map(Change::Loss),
        "bursts" => optional(value, bursts).map(Change::BurstLoss),
        "duplicate" => ratio(value).map(Change::Duplicate),
        "corrupt" => ratio(value).map(Change::Corrupt),
        "reorder" => reorder(value),
        "state" => state(value).map(Change::State),
        _ => return None,
    })
}

fn optional<T>(value: &str, read: impl FnOnce(&str) -> Value<T>) -> Value<Option<T>> {
    if value == NONE { Ok(None) } else { read(value).map(Some) }
}

/// Parses the state of the line.
pub(super) fn state(value: &str) -> Value<LineState> {
    match value {
        "up" => Ok(LineState::Up),
        "silent" => Ok(LineState::Silent),
        "held" => Ok(LineState::Held),
        _ => Err("expected `up`, `silent` (packets are dropped) or `held` (packets wait)".to_owned()),
    }
}

/// Parses a percentage with up to four decimal places: `1%`, `0.05%`.
fn ratio(value: &str) -> Value<Ratio> {
    let read = || {
        let number = value.strip_suffix('%')?;
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if whole.is_empty() || !is_number(whole) || !is_number(fraction) || fraction.len() > 4 {
            return None;
        }
        let millionths: u64 = format!("{whole}{fraction:0<4}").parse().ok()?;
        (millionths <= 1_000_000).then(|| Ratio::from_millionths(millionths))
    };
    read().ok_or_else(|| "expected a percentage from 0% to 100%, such as 0.5%, with at most four decimal places".into())
}

fn reorder(value: &str) -> Value<Change> {
    const EXPECTED: &str = "expected a probability and an additional delay, such as 1% 5ms, or none";
    match value.split_whitespace().collect::<Vec<_>>()[..] {
        [NONE] => Ok(Change::Reorder(Ratio::ZERO, Duration::ZERO)),
        [share, by] => match (ratio(share), by.parse()) {
            (Ok(share), Ok(by)) => Ok(Change::Reorder(share, by)),
            _ => Err(EXPECTED.to_owned()),
        },
        _ => Err(EXPECTED.to_owned()),
    }
}

fn jitter(value: &str) -> Value<Jitter> {
    let mut words: Vec<_> = value.split_whitespace().collect();
    let reorders = words.last() == Some(&"reorders");
    if reorders {
        words.pop();
    }
    distribution(&words).map(|distribution| Jitter { distribution, reorders }).ok_or_else(|| {
        "expected `uniform MAX`, `normal DEVIATION` or `pareto SCALE SHAPE CAP`, such as normal 5ms or pareto 1ms 1.5 100ms, \
         with a final `reorders` if packets may overtake, or none"
            .to_owned()
    })
}

fn distribution(words: &[&str]) -> Option<Distribution> {
    let time = |word: &str| word.parse::<Duration>().ok();
    match *words {
        ["uniform", max] => Some(Distribution::Uniform { max: time(max)? }),
        ["normal", deviation] => Some(Distribution::Normal { deviation: time(deviation)? }),
        ["pareto", scale, shape, cap] => {
            Some(Distribution::Pareto { scale: time(scale)?, shape_hundredths: hundredths(shape)?, cap: time(cap)? })
        }
        _ => None,
    }
}

/// Parses `1.5` as 150.
fn hundredths(word: &str) -> Option<u32> {
    let (whole, fraction) = word.split_once('.').unwrap_or((word, ""));
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !is_number(whole) || !is_number(fraction) || fraction.len() > 2 {
        return None;
    }
    format!("{whole}{fraction:0<2}").parse().ok()
}

fn bursts(value: &str) -> Value<BurstLoss> {
    let ratios: Option<Vec<_>> = value.split_whitespace().map(|word| ratio(word).ok()).collect();
    let loss =
        |good_to_bad, bad_to_good, loss_bad, loss_good| BurstLoss { good_to_bad, bad_to_good, loss_good, loss_bad };
    match ratios.as_deref() {
        Some(&[enter, leave]) => Ok(loss(enter, leave, Ratio::ONE, Ratio::ZERO)),
        Some(&[enter, leave, bad]) => Ok(loss(enter, leave, bad, Ratio::ZERO)),
        Some(&[enter, leave, bad, good]) => Ok(loss(enter, leave, bad, good)),
        _ => Err("expected two to four percentages: the probability per packet to turn bad and to turn good, the loss while bad and \
                  while good, such as 1% 25% 80% 0.1%, or none"
            .to_owned()),
    }
}

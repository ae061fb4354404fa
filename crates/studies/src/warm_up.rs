//! Whether a warm-up is long enough: what is counted after it must be as it stays.

use sim::replicate::mser5;
use units::{Duration, Instant};

use crate::outcome::Check;

/// What a run without a warm-up gave, value by value: when, and how much.
pub(crate) type Series = Vec<(Instant, f64)>;

/// Holds a warm-up against where the rule MSER-5 would end it in each of `runs`, which begin with an empty model and whose `what` is
/// looked at.
pub(crate) fn check(what: &str, warm_up: Duration, runs: &[Series]) -> Check {
    let ends: Vec<Option<Duration>> = runs.iter().map(end).collect();
    let shown = |end: &Option<Duration>| match end {
        Some(end) => format!("{:.1}", end.as_secs_f64() * 1e3),
        None => "none".to_owned(),
    };
    Check::new(
        format!("the warm-up of {warm_up} suffices: MSER-5 would end it no later, by {what}"),
        !ends.is_empty() && ends.iter().all(|end| end.is_some_and(|end| end <= warm_up)),
        format!("after {} ms in {} runs", ends.iter().map(shown).collect::<Vec<_>>().join(", "), runs.len()),
    )
}

/// When the first value comes that the rule keeps; `None` if the run is too short to tell.
fn end(run: &Series) -> Option<Duration> {
    let values: Vec<f64> = run.iter().map(|(_, value)| *value).collect();
    let (at, _) = run.get(mser5(&values)?)?;
    Some(at.saturating_since(Instant::ZERO))
}

#[cfg(test)]
mod tests {
    use sim::Stream;

    use super::*;

    /// A value a millisecond, of which the first ones are too high.
    fn run(too_high: u64) -> Series {
        let mut stream = Stream::new(1, 0, "values");
        let value = |at: u64| if at < too_high { 30.0 } else { 10.0 };
        (0..400).map(|at| (Instant::from_nanos(at * 1_000_000), value(at) + stream.unit())).collect()
    }

    #[test]
    fn a_warm_up_holds_if_nothing_after_it_is_unlike_the_rest() {
        let of = |too_high| check("values", Duration::from_millis(40), &[run(too_high)]);
        assert!(of(30).holds, "{}", of(30).detail);
        assert!(!of(60).holds, "{}", of(60).detail);
        assert!(!of(390).holds, "a run that never settles shows no end: {}", of(390).detail);
        assert!(!check("values", Duration::from_millis(40), &[]).holds);
    }
}

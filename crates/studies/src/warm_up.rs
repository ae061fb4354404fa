//! Checks that a warm-up is long enough: values after it must be in steady state.

use sim::replicate::mser5;
use units::{Duration, Instant};

use crate::outcome::Check;

/// Largest accepted change of a figure when the warm-up is doubled.
const TWICE: f64 = 0.005;

/// The values of a run without a warm-up, with their times.
pub(crate) type Series = Vec<(Instant, f64)>;

/// Compares warm-ups with the truncation point of the rule MSER-5 for `runs`, which begin with an
/// empty model and record `what`.
pub(crate) fn check(what: &str, runs: &[(Duration, Series)]) -> Check {
    let ends: Vec<(Duration, Option<Duration>)> = runs.iter().map(|(warm_up, run)| (*warm_up, end(run))).collect();
    let shown = |(warm_up, end): &(Duration, Option<Duration>)| match end {
        Some(end) => format!("{:.0} ms of {warm_up}", end.as_secs_f64() * 1e3),
        None => format!("no end for {warm_up}"),
    };
    Check::new(
        format!("warm-ups are long enough: MSER-5 would end them no later, judged by {what}"),
        !ends.is_empty() && ends.iter().all(|(warm_up, end)| end.is_some_and(|end| end <= *warm_up)),
        ends.iter().map(shown).collect::<Vec<_>>().join(", "),
    )
}

/// Checks the same for deterministic models with one figure per run: names with the figure after a
/// warm-up and after one twice as long.
pub(crate) fn check_twice(what: &str, pairs: &[(&str, [f64; 2])]) -> Check {
    let changes: Vec<f64> = pairs.iter().map(|(_, [once, twice])| (twice / once - 1.0).abs()).collect();
    let shown = pairs.iter().zip(&changes).map(|((name, _), change)| format!("{name} {:.3} %", change * 100.0));
    Check::new(
        format!("warm-ups are long enough: doubling them changes {what} by less than {} %", TWICE * 100.0),
        !pairs.is_empty() && changes.iter().all(|&change| change < TWICE),
        shown.collect::<Vec<_>>().join(", "),
    )
}

/// Returns the time of the first value that the rule keeps; `None` if the run is too short.
fn end(run: &Series) -> Option<Duration> {
    let values: Vec<f64> = run.iter().map(|(_, value)| *value).collect();
    let (at, _) = run.get(mser5(&values)?)?;
    Some(at.saturating_since(Instant::ZERO))
}

#[cfg(test)]
mod tests {
    use sim::Stream;

    use super::*;

    /// Returns one value per millisecond.
    fn run(value: impl Fn(u64) -> f64) -> Series {
        let mut stream = Stream::new(1, 0, "values");
        (0..400).map(|at| (Instant::from_nanos(at * 1_000_000), value(at) + stream.unit())).collect()
    }

    #[test]
    fn a_warm_up_is_long_enough_if_the_rest_is_stationary() {
        let of = |run| check("values", &[(Duration::from_millis(40), run)]);
        let too_high = |until: u64| run(move |at| if at < until { 30.0 } else { 10.0 });
        let [short, long, endless] = [of(too_high(30)), of(too_high(60)), of(run(|at| at as f64))];
        assert!(short.holds, "{}", short.detail);
        assert!(!long.holds, "{}", long.detail);
        assert!(!endless.holds && endless.detail.contains("no end"), "{}", endless.detail);
        assert!(!check("values", &[]).holds, "no values were given");
    }

    #[test]
    fn a_figure_that_changes_with_a_longer_warm_up_is_detected() {
        assert!(check_twice("rates", &[("one", [100.0, 100.2]), ("two", [50.0, 49.9])]).holds);
        assert!(!check_twice("rates", &[("one", [100.0, 100.2]), ("two", [50.0, 51.0])]).holds);
        assert!(!check_twice("rates", &[]).holds, "no values were given");
    }
}

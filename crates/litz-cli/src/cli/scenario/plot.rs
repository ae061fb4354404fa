//! `--plot`: the rate of each part of the workload over time.

use measure::Estimate;
use measure::plot::{Curve, Panel};
use scenario::model::Scenario;
use scenario::outcome::{BIN, Outcome, PartOutcome};
use units::{Duration, Instant};

/// Number of values of a curve: more cannot be told apart in a panel.
const POINTS: u64 = 150;

/// The deliveries of a run over time.
pub(super) fn panel(scenario: &Scenario, outcome: &Outcome) -> Panel {
    let curves = scenario.parts.iter().zip(&outcome.parts);
    let curves = curves.map(|(part, measured)| Curve {
        has_marks: false,
        ..Curve::measured(part.name.clone(), rates(measured, outcome.ended_at))
    });
    Panel {
        title: format!("{}: rate over time", scenario.name),
        subtitle: format!("seed {}, paths {}", outcome.seed, outcome.path_names(scenario)),
        x_label: "time, s".to_owned(),
        y_label: "goodput, MB/s".to_owned(),
        curves: curves.collect(),
        is_never_negative: true,
        ..Panel::default()
    }
}

/// The goodput in each of equal intervals until `end`, by the middle of the interval.
fn rates(part: &PartOutcome, end: Instant) -> Vec<(f64, Estimate)> {
    let span = end.since_start().as_nanos();
    // Deliveries are recorded in bins: within one the rate is not known.
    let step = BIN.as_nanos() * span.div_ceil(POINTS * BIN.as_nanos()).max(1);
    let points = (0..span.div_ceil(step)).map(|index| {
        let (from, until) = (index * step, ((index + 1) * step).min(span));
        let by = |nanos| part.delivered.bytes_by(Instant::from_nanos(nanos));
        let seconds = Duration::from_nanos(until - from).as_secs_f64();
        let mean = by(until).saturating_sub(by(from)) as f64 / seconds / 1e6;
        (f64::midpoint(from as f64, until as f64) / 1e9, Estimate { mean, plus_minus: None })
    });
    points.collect()
}

#[cfg(test)]
mod tests {
    use scenario::outcome::Deliveries;

    use super::*;

    #[test]
    fn the_rate_of_an_interval_is_what_was_delivered_in_it() {
        // 1 MB in the first second, nothing in the second one, 2 MB in the third one.
        let cumulative_bytes: Vec<u64> =
            (1..=300).map(|bin: u64| bin.min(100) * 10_000 + bin.saturating_sub(200) * 20_000).collect();
        let delivered = Deliveries { bytes: 3_000_000, cumulative_bytes, ..Deliveries::default() };
        let part = PartOutcome { delivered, ..PartOutcome::default() };
        let points = rates(&part, Instant::from_nanos(3_000_000_000));
        assert_eq!(points.len(), 150);
        for (at, rate) in points {
            let expected = [1.0, 0.0, 2.0][at as usize];
            assert!((rate.mean - expected).abs() < 1e-9, "{at} s: {rate:?}");
        }
        assert_eq!(rates(&part, Instant::ZERO), []);
    }
}

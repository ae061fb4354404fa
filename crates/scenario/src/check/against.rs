//! Compares several paths with the best single path.

use super::one::{always, goodput};
use super::{Bound, Value, Verdict};
use crate::model::{Check, CheckKind, Scenario};
use crate::outcome::{Outcome, PartOutcome};

/// Returns the verdicts of [`CheckKind::AgainstBestPath`] on a run with several paths, given the
/// runs over each single path; and the verdicts that apply to every run, except those on faults,
/// because a run over a subset may complete before a fault begins.
///
/// The value is the goodput of all paths divided by the best goodput of a single path; for messages
/// and requests, the best latency of a single path divided by the latency of all. Latencies of
/// single-path runs that did not deliver everything are ignored.
pub fn against_best(scenario: &Scenario, together: &Outcome, alone: &[&Outcome]) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    always(scenario, together, &mut verdicts);
    for check in &scenario.checks {
        let CheckKind::AgainstBestPath { at_least, percentile_hundredths } = check.kind else { continue };
        for index in parts_of(scenario, check) {
            let ratio = if scenario.parts[index].work.is_bulk() {
                bulk_ratio(together, alone, index)
            } else {
                latency_ratio(together, alone, index, percentile_hundredths)
            };
            let bound = Bound::at_least(Value::Share(at_least));
            let name = &scenario.parts[index].name;
            verdicts.push(Verdict::new("against-best-path", name, ratio.map(Value::Share), bound, Some(check.line)));
        }
    }
    verdicts
}

fn parts_of(scenario: &Scenario, check: &Check) -> impl Iterator<Item = usize> {
    let of = check.of;
    (0..scenario.parts.len()).filter(move |index| of.is_none_or(|of| of == *index))
}

fn bulk_ratio(together: &Outcome, alone: &[&Outcome], index: usize) -> Option<f64> {
    let bps = |outcome: &Outcome| goodput(outcome, &outcome.parts[index]).map(|rate| rate.as_bps() as f64);
    let best = alone.iter().filter_map(|outcome| bps(outcome)).fold(0.0, f64::max);
    // Without a goodput to compare with, any goodput passes.
    let together = bps(together)?;
    Some(if best > 0.0 { together / best } else { 1.0 })
}

fn latency_ratio(together: &Outcome, alone: &[&Outcome], index: usize, percentile_hundredths: u32) -> Option<f64> {
    let whole = |part: &&PartOutcome| part.missing_bytes() == 0;
    let seconds = |outcome: &Outcome| {
        let part = outcome.parts.get(index).filter(whole)?;
        part.latency(percentile_hundredths).map(|latency| latency.as_secs_f64())
    };
    let together = seconds(together)?;
    let best = alone.iter().filter_map(|outcome| seconds(outcome)).fold(f64::INFINITY, f64::min);
    Some(if best.is_finite() { best / together } else { 1.0 })
}

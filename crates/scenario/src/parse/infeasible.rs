//! Refuses settings that no run can satisfy or violate: beginnings and windows after the end of the
//! run, limits beyond its duration, counters that cannot increase.

use netem::{Change, Discipline, LineState, LinkConfig};

use super::problem::Problem;
use crate::model::{Check, CheckKind, Counter, Scenario, Window};

/// Returns the infeasible settings of an otherwise valid scenario.
pub(super) fn problems(scenario: &Scenario) -> Vec<Problem> {
    let end = scenario.duration;
    let late = scenario.parts.iter().filter(|part| part.start >= end);
    let starts = late.map(|part| Problem {
        line: part.line,
        key: "workload.start".to_owned(),
        message: format!("must be before the end of the run, which is {end}"),
    });
    let checks = scenario.checks.iter().filter_map(|check| {
        let (key, message) = impossible(scenario, check)?;
        Some(Problem { line: check.line, key: format!("check.{key}"), message })
    });
    starts.chain(checks).collect()
}

/// Returns the infeasible key of a check, and the reason.
fn impossible(scenario: &Scenario, check: &Check) -> Option<(&'static str, String)> {
    let end = scenario.duration;
    match check.kind {
        CheckKind::ShareOfCapacity { window, .. }
        | CheckKind::Goodput { window, .. }
        | CheckKind::Gap { window, .. } => match window {
            Window { from: Some(from), .. } if from >= end => {
                Some(("from", format!("must be before the end of the run, which is {end}")))
            }
            Window { until: Some(until), .. } if until > end => {
                Some(("until", format!("must not be after the end of the run, which is {end}")))
            }
            _ => None,
        },
        CheckKind::Complete { within } if within > end => {
            Some(("within", format!("must not exceed {end}, the duration of the run")))
        }
        CheckKind::Happened { link, counter, .. } if !can_count(scenario, link, counter) => {
            let (link, counter) = (&scenario.links[link].name, counter.name());
            Some((
                "counter",
                format!("{counter} can never increase on link {link:?}: neither its settings nor a fault cause it"),
            ))
        }
        _ => None,
    }
}

/// Returns whether a link can increase a counter, in either direction, by its settings or by a
/// fault.
fn can_count(scenario: &Scenario, link: usize, counter: Counter) -> bool {
    let configs = [&scenario.links[link].forward, &scenario.links[link].back];
    let is = |of: fn(&LinkConfig) -> bool| configs.into_iter().any(of);
    let faults = scenario.faults.iter().filter(|fault| fault.link == link);
    let mut changes = faults.flat_map(|fault| &fault.changes);
    let mut becomes = |of: fn(&Change) -> bool| changes.any(of);
    match counter {
        // Every queue is bounded.
        Counter::Overflowed => true,
        Counter::Lost => {
            is(|config| !config.loss.is_zero())
                || becomes(|change| matches!(change, Change::Loss(loss) if !loss.is_zero()))
        }
        Counter::LostInBursts => {
            is(|config| config.burst_loss.is_some()) || becomes(|change| matches!(change, Change::BurstLoss(Some(_))))
        }
        Counter::Vanished => becomes(|change| matches!(change, Change::State(LineState::Silent))),
        // No fault changes the discipline.
        Counter::DroppedByCodel => is(|config| matches!(config.discipline, Discipline::CoDel(_))),
        Counter::Reordered => {
            is(|config| !config.reorder.is_zero())
                || becomes(|change| matches!(change, Change::Reorder(share, _) if !share.is_zero()))
        }
        Counter::Duplicated => {
            is(|config| !config.duplicate.is_zero())
                || becomes(|change| matches!(change, Change::Duplicate(share) if !share.is_zero()))
        }
        Counter::Corrupted => {
            is(|config| !config.corrupt.is_zero())
                || becomes(|change| matches!(change, Change::Corrupt(share) if !share.is_zero()))
        }
    }
}

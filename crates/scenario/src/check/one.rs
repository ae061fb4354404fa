//! The checks on a single run.

use units::{Duration, Instant, Rate};

use super::{Bound, Value, Verdict};
use crate::capacity::capacity_bytes;
use crate::model::{Check, CheckKind, Counter, Scenario, Window, Work};
use crate::outcome::{Outcome, PartOutcome};

/// Returns the verdicts on a run: first those that apply to every run, then the file's in order.
/// [`CheckKind::AgainstBestPath`] needs other runs: see [`super::against_best`]. Checks of unused
/// paths and links are omitted.
pub fn verdicts(scenario: &Scenario, outcome: &Outcome) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    always(scenario, outcome, &mut verdicts);
    faults(scenario, outcome, &mut verdicts);
    for check in &scenario.checks {
        evaluate(scenario, outcome, check, &mut verdicts);
    }
    verdicts
}

/// Adds the verdicts that apply to every run.
pub(super) fn always(scenario: &Scenario, outcome: &Outcome, verdicts: &mut Vec<Verdict>) {
    let failures = Some(Value::Count(u64::from(outcome.failure.is_some())));
    verdicts.push(Verdict::new("connection", "", failures, Bound::at_most(Value::Count(0)), None));
    for (part, measured) in scenario.parts.iter().zip(&outcome.parts) {
        let took = took(measured).map(Value::Time);
        verdicts.push(Verdict::new("complete", &part.name, took, Bound::default(), None));
    }
    let wrong: u64 = outcome.parts.iter().map(|part| part.misplaced_bytes + part.surplus_bytes).sum();
    let wrong = Some(Value::Count(wrong + outcome.foreign_streams));
    verdicts.push(Verdict::new("content", "", wrong, Bound::at_most(Value::Count(0)), None));
}

/// Adds one verdict for each fault of the links in use: it must have affected packets.
fn faults(scenario: &Scenario, outcome: &Outcome, verdicts: &mut Vec<Verdict>) {
    for met in &outcome.fault_outcomes {
        let fault = &scenario.faults[met.fault];
        let of = format!("{} (line {})", scenario.links[fault.link].name, fault.line);
        let packets = Some(Value::Count(met.packets));
        verdicts.push(Verdict::new("fault", of, packets, Bound::at_least(Value::Count(1)), None));
    }
}

fn took(part: &PartOutcome) -> Option<Duration> {
    Some(part.finished_at?.saturating_since(part.started_at?))
}

fn evaluate(scenario: &Scenario, outcome: &Outcome, check: &Check, verdicts: &mut Vec<Verdict>) {
    let line = Some(check.line);
    match &check.kind {
        CheckKind::PathShare { path, at_least, at_most } => {
            let all: u64 = outcome.path_outcomes.iter().map(|path| path.bytes[0]).sum();
            if let Some(one) = outcome.path_outcomes.iter().find(|outcome| outcome.path == *path) {
                let share = (all > 0).then(|| Value::Share(one.bytes[0] as f64 / all as f64));
                let bound = Bound { at_least: Some(Value::Share(*at_least)), at_most: Some(Value::Share(*at_most)) };
                verdicts.push(Verdict::new("path-share", &scenario.paths[*path].name, share, bound, line));
            }
        }
        CheckKind::Happened { link, counter, at_least } => {
            if let Some(one) = outcome.link_outcomes.iter().find(|outcome| outcome.link == *link) {
                let count: u64 = one.stats.iter().map(|stats| counter.of(stats)).sum();
                let of = format!("{} {}", scenario.links[*link].name, Counter::name(*counter));
                let bound = Bound::at_least(Value::Count(*at_least));
                verdicts.push(Verdict::new("happened", of, Some(Value::Count(count)), bound, line));
            }
        }
        CheckKind::AgainstBestPath { .. } => {}
        kind => {
            for (index, part) in outcome.parts.iter().enumerate() {
                if check.of.is_none_or(|of| of == index)
                    && let Some((name, value, bound)) = evaluate_part(scenario, outcome, index, part, kind)
                {
                    verdicts.push(Verdict::new(name, of(&scenario.parts[index].name, kind), value, bound, line));
                }
            }
        }
    }
}

/// Returns the name of the part, and the percentile or window that distinguishes checks of one
/// kind.
fn of(part: &str, kind: &CheckKind) -> String {
    match kind {
        CheckKind::Latency { percentile_hundredths, .. } => {
            format!("{part} p{}", f64::from(*percentile_hundredths) / 100.0)
        }
        CheckKind::ShareOfCapacity { window, .. }
        | CheckKind::Goodput { window, .. }
        | CheckKind::Gap { window, .. } => {
            let from = window.from.map(|from| format!(" from {from}")).unwrap_or_default();
            let until = window.until.map(|until| format!(" until {until}")).unwrap_or_default();
            format!("{part}{from}{until}")
        }
        _ => part.to_owned(),
    }
}

type Evaluated = (&'static str, Option<Value>, Bound);

/// Evaluates a check on a part; returns `None` if the check does not apply to such parts.
fn evaluate_part(
    scenario: &Scenario,
    outcome: &Outcome,
    index: usize,
    part: &PartOutcome,
    kind: &CheckKind,
) -> Option<Evaluated> {
    let work = &scenario.parts[index].work;
    Some(match kind {
        CheckKind::ShareOfCapacity { at_least, window } if work.is_bulk() => {
            let value = span(outcome, part, *window).and_then(|(from, until)| {
                let capacity = capacity_bytes(scenario, &outcome.paths, from.since_start(), until.since_start());
                let capacity = capacity.filter(|bytes| *bytes > 0)?;
                Some(Value::Share(bytes_between(part, from, until) as f64 / capacity as f64))
            });
            ("share-of-capacity", value, Bound::at_least(Value::Share(*at_least)))
        }
        CheckKind::Goodput { at_least, window } if work.is_bulk() => {
            let value = span(outcome, part, *window).and_then(|(from, until)| {
                Rate::from_transfer(bytes_between(part, from, until), until - from).map(Value::Rate)
            });
            ("goodput", value, Bound::at_least(Value::Rate(*at_least)))
        }
        CheckKind::Gap { at_most, window } if work.is_bulk() => {
            // An empty span has no gap, which is not evidence: the check fails.
            let value = span(outcome, part, *window).and_then(|_| part.delivered.longest_gap(*window)).map(Value::Time);
            ("gap", value, Bound::at_most(Value::Time(*at_most)))
        }
        CheckKind::Latency { percentile_hundredths, at_most } if work.times().is_some() => {
            // A message that did not arrive has no latency: the check fails.
            let value = if part.missing_bytes() > 0 { None } else { part.latency(*percentile_hundredths) };
            ("latency", value.map(Value::Time), Bound::at_most(Value::Time(*at_most)))
        }
        CheckKind::NothingLost if work.has_end() => {
            let missing = part.started_at.map(|_| Value::Count(part.missing_bytes()));
            ("nothing-lost", missing, Bound::at_most(Value::Count(0)))
        }
        CheckKind::OrderKept if matches!(work, Work::Stream { .. }) => {
            let wrong = part.delivered.last_at.map(|_| Value::Count(part.misplaced_bytes + part.surplus_bytes));
            ("order-kept", wrong, Bound::at_most(Value::Count(0)))
        }
        CheckKind::Complete { within } if work.has_end() => {
            ("complete", took(part).map(Value::Time), Bound::at_most(Value::Time(*within)))
        }
        _ => return None,
    })
}

/// Returns the intersection of the part's time and the window; `None` if it is empty.
fn span(outcome: &Outcome, part: &PartOutcome, window: Window) -> Option<(Instant, Instant)> {
    let at = |since: Duration| Instant::ZERO + since;
    let end = part.finished_at.unwrap_or(outcome.ended_at);
    let from = window.from.map_or(part.started_at?, at).max(part.started_at?);
    let until = window.until.map_or(end, at).min(end);
    (from < until).then_some((from, until))
}

fn bytes_between(part: &PartOutcome, from: Instant, until: Instant) -> u64 {
    let delivered = &part.delivered;
    // At the end of the part, use the exact total instead of interpolating within the last bin.
    let by_end = if part.finished_at.is_some_and(|at| at <= until) {
        delivered.timeline.bytes
    } else {
        delivered.timeline.bytes_by(until)
    };
    by_end.saturating_sub(if part.started_at == Some(from) { 0 } else { delivered.timeline.bytes_by(from) })
}

/// Returns the goodput of a part from its beginning to its end.
pub(super) fn goodput(outcome: &Outcome, part: &PartOutcome) -> Option<Rate> {
    let (from, until) = span(outcome, part, Window::default())?;
    Rate::from_transfer(bytes_between(part, from, until), until - from)
}

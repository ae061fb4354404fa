//! Compiles faults into schedules of the links, and lists their occurrences.
//!
//! A fault with an end restores, when it ends, the settings that were in force when it began. A
//! fault without an end lasts until another fault changes the same setting. Overlapping faults of
//! the same setting are refused.

use netem::{CHANGES_MAX as SCHEDULE_CHANGES_MAX, Change, ConfigError, LinkConfig, Schedule};
use units::Duration;

use crate::model::{CHANGES_MAX, Fault, OCCURRENCES_MAX, Scenario};
use crate::parse::{Problem, explain};

/// One occurrence of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Occurrence {
    /// The index of the fault in the scenario.
    pub fault: usize,
    /// The beginning.
    pub from: Duration,
    /// The end; at most the end of the run.
    pub to: Duration,
}

/// Returns the settings of one direction of a link, with all faults as its schedule. Direction 0 is
/// towards the receiving host.
///
/// # Panics
/// Panics if [`parse`](crate::parse::parse) would refuse the scenario.
pub fn scheduled(scenario: &Scenario, link: usize, direction: usize) -> LinkConfig {
    let base = base(scenario, link, direction);
    let compiled = compile(scenario, link, direction).unwrap_or_else(|problem| panic!("{}", problem.message));
    if compiled.is_empty() {
        return base.clone();
    }
    let schedule = Schedule::once(compiled.into_iter().map(|step| (step.at, step.change)));
    LinkConfig { schedule: Some(schedule.unwrap_or_else(|error| panic!("{error}"))), ..base.clone() }
}

/// Returns all occurrences of all faults before the end of the run, by their beginning.
pub fn occurrences(scenario: &Scenario) -> Vec<Occurrence> {
    let mut all = Vec::new();
    for (index, fault) in scenario.faults.iter().enumerate() {
        for (from, until) in times(fault, scenario.duration) {
            let to = until.unwrap_or_else(|| end_of(scenario, index, from));
            all.push(Occurrence { fault: index, from, to: to.min(scenario.duration) });
        }
    }
    all.sort_by_key(|occurrence| occurrence.from);
    all
}

/// Returns the end of a fault without `until`: when another fault changes one of its settings.
fn end_of(scenario: &Scenario, index: usize, from: Duration) -> Duration {
    let fault = &scenario.faults[index];
    let ends = |other: &Fault| {
        let meets = (0..2).any(|direction| fault.directions[direction] && other.directions[direction]);
        let same = |change: &Change| other.changes.iter().any(|other| is_same_kind(change, other));
        other.link == fault.link && meets && fault.changes.iter().any(same)
    };
    let others = scenario.faults.iter().filter(|other| ends(other));
    others
        .flat_map(|other| times(other, scenario.duration))
        .map(|(at, _)| at)
        .filter(|at| *at > from)
        .min()
        .unwrap_or(scenario.duration)
}

/// Returns the problems of the faults in an otherwise valid scenario.
pub(crate) fn problems(scenario: &Scenario) -> Vec<Problem> {
    let mut problems = Vec::new();
    for fault in &scenario.faults {
        if fault.at >= scenario.duration {
            let message = format!("must be before the end of the run, which is {}", scenario.duration);
            problems.push(Problem { line: fault.line, key: "fault.at".to_owned(), message });
        }
        if fault.every.is_some_and(|every| scenario.duration.as_nanos() / every.as_nanos() >= OCCURRENCES_MAX) {
            let message = format!("would happen more than {OCCURRENCES_MAX} times");
            problems.push(Problem { line: fault.line, key: "fault.every".to_owned(), message });
        }
    }
    if !problems.is_empty() {
        return problems;
    }
    // Count before any list of changes is allocated.
    if let Err(problem) = check_counts(scenario) {
        return vec![problem];
    }
    for link in 0..scenario.links.len() {
        for direction in 0..2 {
            if let Err(problem) = validated(scenario, link, direction)
                && !problems.contains(&problem)
            {
                problems.push(problem);
            }
        }
    }
    problems
}

/// Checks that the number of changes is within bounds: for each direction of a link, and in total.
fn check_counts(scenario: &Scenario) -> Result<(), Problem> {
    let mut all = 0;
    let mut by_direction = vec![[0; 2]; scenario.links.len()];
    for fault in &scenario.faults {
        let edges = if fault.until.is_some() { 2 } else { 1 };
        let changes = count(fault, scenario.duration) * fault.changes.len() as u64 * edges;
        let key = if fault.every.is_some() { "fault.every" } else { "fault" };
        let refuse = |message| Err(Problem { line: fault.line, key: key.to_owned(), message });
        for direction in (0..2).filter(|&direction| fault.directions[direction]) {
            let here = &mut by_direction[fault.link][direction];
            (*here, all) = (*here + changes, all + changes);
            if *here > SCHEDULE_CHANGES_MAX as u64 {
                let name = &scenario.links[fault.link].name;
                return refuse(format!(
                    "with this fault, link {name:?} changes more than {SCHEDULE_CHANGES_MAX} times"
                ));
            }
        }
        if all > CHANGES_MAX {
            return refuse(format!("with this fault, the links change more than {CHANGES_MAX} times together"));
        }
    }
    Ok(())
}

fn validated(scenario: &Scenario, link: usize, direction: usize) -> Result<(), Problem> {
    let steps = compile(scenario, link, direction)?;
    let schedule =
        Schedule::once(steps.iter().map(|step| (step.at, step.change.clone()))).map_err(|error| Problem {
            line: scenario.links[link].line,
            key: "fault".to_owned(),
            message: format!("too many changes of link {:?}: {error}", scenario.links[link].name),
        })?;
    let config = LinkConfig { schedule: Some(schedule), ..base(scenario, link, direction).clone() };
    config.validate().map_err(|error| match error {
        ConfigError::Scheduled { index, error } => {
            let (key, message) = explain(&error);
            Problem {
                line: scenario.faults[steps[index].fault].line,
                key: format!("fault.{key}"),
                message: format!("link {:?} would be invalid: {message}", scenario.links[link].name),
            }
        }
        other => Problem { line: scenario.links[link].line, key: "link".to_owned(), message: other.to_string() },
    })
}

/// A change of a schedule and its fault.
#[derive(Clone, Debug)]
struct Step {
    at: Duration,
    fault: usize,
    change: Change,
}

/// The beginning or the end of an occurrence, before the restored setting is known.
struct Edge {
    at: Duration,
    is_begin: bool,
    fault: usize,
    /// The index of the change within the fault.
    change: usize,
}

/// Returns the changes of one direction of a link, by time.
fn compile(scenario: &Scenario, link: usize, direction: usize) -> Result<Vec<Step>, Problem> {
    let mut edges = Vec::new();
    for (fault, settings) in scenario.faults.iter().enumerate() {
        if settings.link != link || !settings.directions[direction] {
            continue;
        }
        for (from, until) in times(settings, scenario.duration) {
            for change in 0..settings.changes.len() {
                edges.push(Edge { at: from, is_begin: true, fault, change });
                edges.extend(until.map(|at| Edge { at, is_begin: false, fault, change }));
            }
        }
    }
    // At the same time, an end precedes a beginning, so that faults can follow each other.
    edges.sort_by_key(|edge| (edge.at, edge.is_begin));
    let mut config = base(scenario, link, direction).clone();
    let mut steps = Vec::with_capacity(edges.len());
    // The settings to restore, by fault and change.
    let mut open: Vec<(usize, usize, Change)> = Vec::new();
    for Edge { at, is_begin, fault, change: index } in edges {
        let change = &scenario.faults[fault].changes[index];
        let change = if is_begin {
            if let Some((other, ..)) = open.iter().find(|(_, _, back)| is_same_kind(back, change)) {
                let line = scenario.faults[*other].line;
                let message =
                    format!("overlaps the fault in line {line}, which changes the same setting and has not ended");
                return Err(Problem { line: scenario.faults[fault].line, key: "fault.at".to_owned(), message });
            }
            if scenario.faults[fault].until.is_some() {
                open.push((fault, index, change.undo(&config)));
            }
            change.clone()
        } else {
            let place = open.iter().position(|(by, which, _)| (*by, *which) == (fault, index));
            let Some(place) = place else { continue };
            open.swap_remove(place).2
        };
        change.apply(&mut config);
        steps.push(Step { at, fault, change });
    }
    Ok(steps)
}

/// Returns the beginning and the end of each occurrence that begins before `end`.
fn times(fault: &Fault, end: Duration) -> impl Iterator<Item = (Duration, Option<Duration>)> {
    let (at, until, every) = (fault.at, fault.until, fault.every);
    (0..).map_while(move |round| {
        let later = every.map_or(Duration::ZERO, |every| every * round);
        let happens = at + later < end && (every.is_some() || round == 0) && round < OCCURRENCES_MAX;
        happens.then(|| (at + later, until.map(|until| until + later)))
    })
}

/// Returns the number of items of [`times`].
fn count(fault: &Fault, end: Duration) -> u64 {
    match fault.every {
        _ if fault.at >= end => 0,
        Some(every) => (end - fault.at).as_nanos().div_ceil(every.as_nanos()).min(OCCURRENCES_MAX),
        None => 1,
    }
}

fn is_same_kind(one: &Change, other: &Change) -> bool {
    core::mem::discriminant(one) == core::mem::discriminant(other)
}

fn base(scenario: &Scenario, link: usize, direction: usize) -> &LinkConfig {
    let link = &scenario.links[link];
    if direction == 0 { &link.forward } else { &link.back }
}

#[cfg(test)]
mod tests;

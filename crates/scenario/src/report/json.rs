//! Results as JSON.

use netem::LinkStats;
use serde::Serialize;
use serde_json::{Value as Json, json};

use crate::check::Verdict;
use crate::components::Component;
use crate::model::{Scenario, Transport};
use crate::outcome::{Outcome, PartOutcome};
use crate::suite::RunVerdicts;
use crate::timeline::BIN;

/// The value of `format`.
pub const FORMAT: &str = "litz-scenario-result";
/// The value of `version`.
pub const FORMAT_VERSION: u32 = 1;

/// A result file.
#[derive(Debug, Serialize)]
pub struct ResultFile {
    format: &'static str,
    version: u32,
    world: &'static str,
    passes: bool,
    scenarios: Vec<Json>,
}

impl ResultFile {
    /// Creates a result file without scenarios.
    pub const fn new(world: &'static str) -> Self {
        Self { format: FORMAT, version: FORMAT_VERSION, world, passes: true, scenarios: Vec::new() }
    }

    /// Adds the value that [`scenario_json`] returned.
    pub fn push(&mut self, scenario: Json) {
        self.passes &= scenario["passes"].as_bool().unwrap_or(false);
        self.scenarios.push(scenario);
    }
}

/// Returns one scenario of the result: its verdicts and the measurements of every run.
pub fn scenario_json<'a>(
    scenario: &Scenario,
    file: &str,
    run_verdicts: &[RunVerdicts],
    outcomes: impl IntoIterator<Item = &'a Outcome>,
) -> Json {
    let checks = run_verdicts.iter().flat_map(|of_run| {
        let paths = scenario.path_names(&of_run.plan.paths);
        of_run.verdicts.iter().map(move |verdict| check_json(verdict, of_run.plan.seed, &paths))
    });
    json!({
        "name": scenario.name,
        "file": file,
        "duration_ns": scenario.duration.as_nanos(),
        "transport": transport_json(&scenario.transport),
        "passes": run_verdicts.iter().all(|of_run| of_run.verdicts.iter().all(|verdict| verdict.passes)),
        "checks": checks.collect::<Vec<_>>(),
        "runs": outcomes.into_iter().map(|outcome| run_json(scenario, outcome)).collect::<Vec<_>>(),
    })
}

/// Returns the effective transport settings, including defaults.
fn transport_json(transport: &Transport) -> Json {
    json!({
        "scheduler": transport.scheduler.to_string(),
        "congestion": transport.congestion.to_string(),
        "policy": transport.policy.to_string(),
        "datagram_bytes": transport.datagram_size,
        "idle_timeout_ns": transport.idle_timeout.as_nanos(),
    })
}

fn check_json(verdict: &Verdict, seed: u64, paths: &[String]) -> Json {
    let any = verdict.value.or(verdict.bound.at_least).or(verdict.bound.at_most);
    json!({
        "check": verdict.kind,
        "of": verdict.of,
        "seed": seed,
        "paths": paths,
        "value": verdict.value.map(|value| value.number()),
        "unit": any.map(|value| value.unit()),
        "at_least": verdict.bound.at_least.map(|value| value.number()),
        "at_most": verdict.bound.at_most.map(|value| value.number()),
        "passes": verdict.passes,
        "line": verdict.line,
    })
}

fn run_json(scenario: &Scenario, outcome: &Outcome) -> Json {
    let nanos = |at: Option<units::Instant>| at.map(units::Instant::as_nanos);
    let paths = outcome.path_outcomes.iter().map(|path| {
        json!({
            "name": scenario.paths[path.path].name,
            "forward_datagrams": path.datagrams[0], "forward_bytes": path.bytes[0],
            "back_datagrams": path.datagrams[1], "back_bytes": path.bytes[1],
        })
    });
    let links = outcome.link_outcomes.iter().map(|link| {
        let [forward, back] = &link.stats;
        json!({
            "name": scenario.links[link.link].name,
            "forward": link_json(forward),
            "back": link_json(back),
        })
    });
    let faults = outcome.fault_outcomes.iter().map(|met| {
        let fault = &scenario.faults[met.fault];
        json!({
            "line": fault.line, "link": scenario.links[fault.link].name,
            "occurrences": met.occurrences, "effective": met.effective, "packets": met.packets,
        })
    });
    let parts = scenario.parts.iter().zip(&outcome.parts).map(|(part, measured)| {
        part_json(&part.name, part.work.kind(), measured, outcome.paths.len() == scenario.paths.len())
    });
    json!({
        "seed": outcome.seed,
        "paths": scenario.path_names(&outcome.paths),
        "connected_ns": nanos(outcome.connected_at),
        "ended_ns": outcome.ended_at.as_nanos(),
        "failure": outcome.failure,
        "foreign_streams": outcome.foreign_streams,
        "workload": parts.collect::<Vec<_>>(),
        "path_use": paths.collect::<Vec<_>>(),
        "links": links.collect::<Vec<_>>(),
        "faults": faults.collect::<Vec<_>>(),
        "components": outcome.components.iter().map(Component::json).collect::<Vec<_>>(),
        "events_digest": outcome.events_digest.map(|digest| format!("{digest:016x}")),
        "notes": outcome.notes,
    })
}

fn part_json(name: &str, kind: &str, part: &PartOutcome, with_timeline: bool) -> Json {
    let latency = |hundredths| part.latency(hundredths).map(|latency| latency.as_nanos());
    let longest = part.delivered.gaps.first();
    let mut json = json!({
        "name": name,
        "kind": kind,
        "started_ns": part.started_at.map(units::Instant::as_nanos),
        "finished_ns": part.finished_at.map(units::Instant::as_nanos),
        "sent_bytes": part.sent_bytes,
        "due_bytes": part.due_bytes,
        "delivered_bytes": part.delivered.timeline.bytes,
        "missing_bytes": part.missing_bytes(),
        "misplaced_bytes": part.misplaced_bytes,
        "surplus_bytes": part.surplus_bytes,
        "items_delivered": part.items_delivered,
        "items_overtaken": part.items_overtaken,
        "longest_gap_ns": longest.map(|gap| gap.length.as_nanos()),
        "longest_gap_from_ns": longest.map(|gap| gap.from.as_nanos()),
        "latency_count": part.latencies.len(),
        "latency_p50_ns": latency(5_000),
        "latency_p90_ns": latency(9_000),
        "latency_p99_ns": latency(9_900),
        "latency_max_ns": latency(10_000),
    });
    if with_timeline {
        json["bin_ns"] = BIN.as_nanos().into();
        json["cumulative_bytes"] = part.delivered.timeline.cumulative_bytes.clone().into();
    }
    json
}

fn link_json(stats: &LinkStats) -> Json {
    json!({
        "offered": stats.offered, "offered_bytes": stats.offered_bytes,
        "delivered": stats.delivered, "delivered_bytes": stats.delivered_bytes,
        "lost": stats.lost, "lost_in_bursts": stats.lost_in_bursts, "vanished": stats.vanished,
        "overflowed": stats.overflowed, "dropped_by_codel": stats.dropped_by_codel,
        "reordered": stats.reordered, "duplicated": stats.duplicated, "corrupted": stats.corrupted,
        "queue_bytes_max": stats.queue_bytes_max,
        "queue_delay_mean_ns": stats.queue_delay_mean().as_nanos(),
        "queue_delay_max_ns": stats.queue_delay_max.as_nanos(),
    })
}

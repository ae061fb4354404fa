//! The simulated runs.

use scenario::model::Scenario;
use scenario::outcome::Outcome;
use scenario::parse::parse;
use scenario::simulated::{Machine, SimulatedRun, simulate_several};
use scenario::world::{RunPlan, WorldError};
use serde::Serialize;
use transfer::CancelToken;
use units::Duration;

use crate::profile::{Failure, WARM_UP, WINDOW};

/// Width of the time bins of deliveries in an outcome.
const BIN: Duration = scenario::timeline::BIN;

/// Seed of the simulated runs.
pub(super) const SEED: u64 = 1;

/// Goodput and CPU use.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Figures {
    /// Goodput: application data received, in bits per second.
    pub(super) goodput_bps: f64,
    /// Average number of busy processors of the sending and of the receiving host.
    pub(super) processors: [f64; 2],
    /// CPU time of both hosts, in seconds per 10^9 bytes; none if no data arrived.
    pub(super) cpu_s_per_gb: Option<f64>,
}

/// CPU seconds per 10^9 bytes; none without goodput.
pub(super) fn cpu_s_per_gb(processors: f64, goodput_bps: f64) -> Option<f64> {
    (goodput_bps > 0.0).then(|| processors * 8e9 / goodput_bps)
}

/// Bulk data from memory to memory over loopback, as a scenario: the simulated counterpart of
/// [`profile::run`].
pub(super) fn bulk(datagram_size: usize, time: Duration) -> Result<Scenario, String> {
    let duration_us = (WARM_UP + time).as_micros();
    // A stream gets half of a host's receive window.
    let window = 2 * WINDOW;
    let text = format!(
        "version = 1\n[scenario]\nname = 'bulk'\nabout = 'From memory to memory over loopback.'\n\
         duration = '{duration_us}us'\n[hosts.b]\nreceive-window = '{window}B'\n[[link]]\nname = 'loopback'\n\
         [transport]\ndatagram-size = '{datagram_size}B'\ncongestion = 'cubic'\n[[workload]]\nkind = 'stream'\n"
    );
    parse("bulk", &text, &|_| Err("there is none".to_owned())).map_err(|error| error.to_string())
}

/// Simulates `connections` connections. The first `skipped` of the time does not count. Also
/// returns the notes of the runs.
///
/// # Errors
/// If a run fails.
pub(super) fn predict(
    scenario: &Scenario,
    machine: &Machine,
    connections: usize,
    skipped: Duration,
    cancel: &CancelToken,
) -> Result<(Figures, Vec<String>), Failure> {
    let plan = RunPlan { paths: (0..scenario.paths.len()).collect(), seed: SEED };
    let simulated = simulate_several(scenario, &plan, machine, connections, &mut |_| !cancel.is_cancelled());
    let simulated = simulated.map_err(|error| match error {
        WorldError::Stopped => Failure::Interrupted,
        error => Failure::Error(error.to_string()),
    })?;
    if let Some(failure) = simulated.iter().find_map(|one| one.outcome.failure.as_ref()) {
        return Err(Failure::Error(format!("the connection failed: {failure}")));
    }
    let figures = figures(&simulated, skipped);
    Ok((figures, simulated.into_iter().flat_map(|one| one.outcome.notes).collect()))
}

fn figures(simulated: &[SimulatedRun], skipped: Duration) -> Figures {
    let busy = |one: &SimulatedRun, host: usize| {
        let wall = one.outcome.ended_at.since_start().as_secs_f64();
        one.busy[host].iter().map(|busy| busy.as_secs_f64()).sum::<f64>() / wall
    };
    let processors = [0, 1].map(|host| simulated.iter().map(|one| busy(one, host)).sum::<f64>());
    let goodput_bps = simulated.iter().map(|one| goodput_bps(&one.outcome, skipped)).sum();
    Figures { goodput_bps, processors, cpu_s_per_gb: cpu_s_per_gb(processors.iter().sum(), goodput_bps) }
}

/// Goodput in bits per second, without the first `skipped` of the time.
pub(super) fn goodput_bps(outcome: &Outcome, skipped: Duration) -> f64 {
    let wall = outcome.ended_at.since_start().as_secs_f64();
    let bin = (skipped.as_nanos() / BIN.as_nanos()) as usize;
    let before = |part: &scenario::outcome::PartOutcome| {
        let bins = &part.delivered.timeline.cumulative_bytes;
        bin.checked_sub(1).and_then(|last| bins.get(last.min(bins.len().max(1) - 1))).copied().unwrap_or(0)
    };
    let bytes: u64 = outcome.parts.iter().map(|part| part.delivered.timeline.bytes - before(part)).sum();
    let time = wall - (bin as u64 * BIN.as_nanos()) as f64 / 1e9;
    if time > 0.0 { bytes as f64 * 8.0 / time } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use scenario::simulated::{Costs, Placement};

    use super::*;
    use crate::profile;

    #[test]
    fn goodput_follows_from_ten_microseconds_per_packet() {
        let rows = "{\"points\":[{\"datagram_bytes\":1472,\"ns\":{\"plan\":10000}}]}";
        let text = format!(
            "{{\"format\":\"litz-profile\",\"version\":1,\"memory\":{{\"sending\":{rows},\"receiving\":{rows}}}}}"
        );
        let costs = Costs::from_profile(&text).expect("a valid profile");
        let machine = Machine { costs, placements: [Placement::Inline; 2], processors: [1; 2], is_shared: false };
        let scenario = bulk(1472, Duration::from_millis(300)).expect("a valid scenario");
        let (figures, notes) =
            predict(&scenario, &machine, 1, WARM_UP, &CancelToken::default()).unwrap_or_else(|_| panic!("it runs"));
        assert_eq!(notes, Vec::<String>::new());
        let expected = profile::payload_len(1472) as f64 * 8.0 / 10e-6;
        assert!((figures.goodput_bps / expected - 1.0).abs() < 0.02, "{figures:?}, not {expected}");
        assert!((figures.processors[0] - 1.0).abs() < 0.02, "{figures:?}");
    }
}

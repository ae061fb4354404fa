//! The simulated runs.

use litz::transfer::CancelToken;
use scenario::model::Scenario;
use scenario::outcome::Outcome;
use scenario::parse::parse;
use scenario::simulated::{Machine, Simulated, simulate_several};
use scenario::world::{Order, WorldError};
use serde::Serialize;
use units::Duration;

use crate::profile::{Failure, WARM_UP, WINDOW};

/// The step of what an outcome says of deliveries.
const BIN: Duration = scenario::outcome::BIN;

/// Of what is random in a simulated run.
pub(super) const SEED: u64 = 1;

/// What a machine carries, and what it takes.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Figures {
    /// Application bytes that arrived, in bits a second.
    pub(super) goodput_bps: f64,
    /// Processors that were busy, on average: of the sending host, of the receiving one.
    pub(super) processors: [f64; 2],
    /// Processor time of both hosts, in seconds for each 10^9 bytes; none if nothing arrived.
    pub(super) cpu_s_per_gb: Option<f64>,
}

/// Processor seconds for 10^9 bytes; none of none.
pub(super) fn cpu_s_per_gb(processors: f64, goodput_bps: f64) -> Option<f64> {
    (goodput_bps > 0.0).then(|| processors * 8e9 / goodput_bps)
}

/// Bulk from memory to memory over loopback, as a scenario: what [`profile::run`] does live.
pub(super) fn bulk(datagram_size: usize, time: Duration) -> Result<Scenario, String> {
    let duration_us = (WARM_UP + time).as_micros();
    // A stream gets half of a host's window.
    let window = 2 * WINDOW;
    let text = format!(
        "version = 1\n[scenario]\nname = 'bulk'\nabout = 'From memory to memory over loopback.'\n\
         duration = '{duration_us}us'\n[hosts.b]\nreceive-window = '{window}B'\n[[link]]\nname = 'loopback'\n\
         [transport]\ndatagram-size = '{datagram_size}B'\ncongestion = 'cubic'\n[[workload]]\nkind = 'stream'\n"
    );
    parse("bulk", &text, &|_| Err("there is none".to_owned())).map_err(|error| error.to_string())
}

/// Simulates so many connections; `skipped` of the beginning does not count. With it comes what the run noted, in words.
///
/// # Errors
/// Why there is no outcome.
pub(super) fn predict(
    scenario: &Scenario,
    machine: &Machine,
    connections: usize,
    skipped: Duration,
    cancel: &CancelToken,
) -> Result<(Figures, Vec<String>), Failure> {
    let order = Order { paths: (0..scenario.paths.len()).collect(), seed: SEED };
    let simulated = simulate_several(scenario, &order, machine, connections, &mut |_| !cancel.is_cancelled());
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

fn figures(simulated: &[Simulated], skipped: Duration) -> Figures {
    let busy = |one: &Simulated, host: usize| {
        let wall = one.outcome.ended_at.since_start().as_secs_f64();
        one.busy[host].iter().map(|busy| busy.as_secs_f64()).sum::<f64>() / wall
    };
    let processors = [0, 1].map(|host| simulated.iter().map(|one| busy(one, host)).sum::<f64>());
    let goodput_bps = simulated.iter().map(|one| goodput_bps(&one.outcome, skipped)).sum();
    Figures { goodput_bps, processors, cpu_s_per_gb: cpu_s_per_gb(processors.iter().sum(), goodput_bps) }
}

/// Application bytes that arrived, in bits a second; `skipped` of the beginning does not count.
pub(super) fn goodput_bps(outcome: &Outcome, skipped: Duration) -> f64 {
    let wall = outcome.ended_at.since_start().as_secs_f64();
    let bin = (skipped.as_nanos() / BIN.as_nanos()) as usize;
    let before = |part: &scenario::outcome::PartOutcome| {
        let bins = &part.delivered.cumulative_bytes;
        bin.checked_sub(1).and_then(|last| bins.get(last.min(bins.len().max(1) - 1))).copied().unwrap_or(0)
    };
    let bytes: u64 = outcome.parts.iter().map(|part| part.delivered.bytes - before(part)).sum();
    let time = wall - (bin as u64 * BIN.as_nanos()) as f64 / 1e9;
    if time > 0.0 { bytes as f64 * 8.0 / time } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use scenario::simulated::{Costs, Placement};

    use super::*;
    use crate::profile;

    #[test]
    fn a_profile_of_ten_microseconds_a_packet_predicts_what_that_carries() {
        let rows = "{\"points\":[{\"datagram_bytes\":1472,\"ns\":{\"plan\":10000}}]}";
        let text = format!(
            "{{\"format\":\"litz-profile\",\"version\":1,\"memory\":{{\"sending\":{rows},\"receiving\":{rows}}}}}"
        );
        let costs = Costs::from_profile(&text).expect("it is one");
        let machine = Machine { costs, placements: [Placement::Inline; 2], processors: [1; 2], is_shared: false };
        let scenario = bulk(1472, Duration::from_millis(300)).expect("it is right");
        let (figures, notes) =
            predict(&scenario, &machine, 1, WARM_UP, &CancelToken::default()).unwrap_or_else(|_| panic!("it runs"));
        assert_eq!(notes, Vec::<String>::new());
        let expected = profile::payload_len(1472) as f64 * 8.0 / 10e-6;
        assert!((figures.goodput_bps / expected - 1.0).abs() < 0.02, "{figures:?}, not {expected}");
        assert!((figures.processors[0] - 1.0).abs() < 0.02, "{figures:?}");
    }
}

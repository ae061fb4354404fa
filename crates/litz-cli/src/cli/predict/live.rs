//! The live runs that a prediction is compared with.

use rustix::time::{ClockId, clock_gettime};
use scenario::simulated::Placement;
use serde::Serialize;
use transfer::CancelToken;
use units::Duration;

use super::case::Case;
use super::work::cpu_s_per_gb;
use crate::profile::{self, Failure, RunPlan};

/// The result of one live run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    goodput_bps: f64,
    /// Average number of busy processors, both ends together; none if other work than that of the
    /// ends is included.
    processors: Option<f64>,
}

/// The medians of the live runs.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Measured {
    /// Goodput: application data received, in bits per second.
    pub(super) goodput_bps: f64,
    /// Goodput of the slowest and the fastest run.
    pub(super) range_bps: [f64; 2],
    /// Average number of busy processors, both ends together. None for a scenario, because this
    /// machine also emulates the links.
    pub(super) processors: Option<f64>,
    /// CPU time of both ends, in seconds per 10^9 bytes. Other programs affect it less than the
    /// goodput.
    pub(super) cpu_s_per_gb: Option<f64>,
}

/// The medians; none without runs.
pub(super) fn median(samples: &[Sample]) -> Option<Measured> {
    let sorted = |of: &dyn Fn(&Sample) -> Option<f64>| {
        let mut figures: Vec<f64> = samples.iter().filter_map(of).collect();
        figures.sort_by(f64::total_cmp);
        figures
    };
    let middle = |figures: &[f64]| (!figures.is_empty()).then(|| profile::median(figures));
    let goodputs = sorted(&|sample| Some(sample.goodput_bps));
    let costs = sorted(&|sample| cpu_s_per_gb(sample.processors?, sample.goodput_bps));
    Some(Measured {
        goodput_bps: middle(&goodputs)?,
        range_bps: [*goodputs.first()?, *goodputs.last()?],
        processors: middle(&sorted(&|sample| sample.processors)),
        cpu_s_per_gb: middle(&costs),
    })
}

/// Checks that the cases can run live, as far as this is known in advance.
///
/// # Errors
/// A message for the user.
pub(super) fn check(cases: &[Case]) -> Result<(), String> {
    let of_scenario = |case: &&Case| case.datagram_bytes.is_none();
    if cases.iter().filter(of_scenario).any(|case| case.placement == Placement::Inline) {
        return Err(
            "--verify runs a scenario's applications on a separate thread, which the placement inline does not \
             support: use other placements, such as --placement thread,split"
                .to_owned(),
        );
    }
    if cases.iter().any(|case| of_scenario(&case)) {
        #[cfg(target_os = "linux")]
        crate::cli::scenario::check_machine().map_err(|message| format!("--verify with a scenario: {message}"))?;
        #[cfg(not(target_os = "linux"))]
        return Err("--verify with a scenario needs network namespaces, which only Linux has".to_owned());
    }
    Ok(())
}

/// Makes the live run number `round` of a case.
///
/// # Errors
/// If the run fails.
pub(super) fn measure(case: &Case, time: Duration, round: usize, cancel: &CancelToken) -> Result<Sample, Failure> {
    match case.datagram_bytes {
        Some(size) => bulk(size, time, case, cancel),
        None => between_namespaces(case, round, cancel),
    }
}

fn bulk(datagram_size: usize, time: Duration, case: &Case, cancel: &CancelToken) -> Result<Sample, Failure> {
    let placement = case.placement;
    let plan = RunPlan { datagram_size, time, metered: false, placement };
    let clock = net::MonotonicClock::start();
    let (mut from, mut cpu_from) = (clock.now(), process_time());
    let runs = match case.connections() {
        1 => vec![profile::run(&plan, cancel)?],
        // Connecting repeats until each processor has a connection; this is not part of the run.
        count => profile::run_several(&plan, count, cancel, || (from, cpu_from) = (clock.now(), process_time()))?,
    };
    let (wall, cpu) = (clock.now().saturating_since(from), process_time().saturating_sub(cpu_from));
    let payload = profile::payload_len(datagram_size) as f64;
    let goodput_bps =
        runs.iter().map(|run| run.receiving.packets * payload * 8.0 / run.receiving.wall.as_secs_f64()).sum();
    Ok(Sample { goodput_bps, processors: Some(cpu.as_secs_f64() / wall.as_secs_f64()) })
}

/// CPU time of this process so far.
fn process_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::from_secs(time.tv_sec as u64) + Duration::from_nanos(time.tv_nsec as u64)
}

#[cfg(target_os = "linux")]
fn between_namespaces(case: &Case, round: usize, cancel: &CancelToken) -> Result<Sample, Failure> {
    use scenario::world::{RunPlan, World, WorldError};

    let mut world = crate::cli::scenario::Netns { placement: Some(case.placement) };
    let plan = RunPlan { paths: (0..case.scenario.paths.len()).collect(), seed: 1 + round as u64 };
    let outcome = world.run(&case.scenario, &plan, &mut |_| !cancel.is_cancelled());
    let outcome = outcome.map_err(|error| match error {
        WorldError::Stopped => Failure::Interrupted,
        error => Failure::Error(error.to_string()),
    })?;
    if let Some(failure) = &outcome.failure {
        return Err(Failure::Error(format!("{}: the live connection failed: {failure}", case.placement)));
    }
    let goodput_bps = super::work::goodput_bps(&outcome, Duration::ZERO);
    if goodput_bps <= 0.0 {
        return Err(Failure::Error(format!("{}: no data arrived in the live run", case.placement)));
    }
    Ok(Sample { goodput_bps, processors: None })
}

#[cfg(not(target_os = "linux"))]
fn between_namespaces(_case: &Case, _round: usize, _cancel: &CancelToken) -> Result<Sample, Failure> {
    unreachable!("`check` refuses this")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_slow_run_does_not_change_the_median() {
        let sample = |goodput_bps| Sample { goodput_bps, processors: Some(2.0) };
        let measured = median(&[sample(8e9), sample(1e9), sample(9e9)]).expect("runs");
        assert_eq!((measured.goodput_bps, measured.range_bps), (8e9, [1e9, 9e9]));
        assert_eq!((measured.processors, measured.cpu_s_per_gb), (Some(2.0), Some(2.0)));
        let even = median(&[sample(8e9), sample(9e9)]).expect("runs");
        assert_eq!(even.goodput_bps, 8.5e9);
        assert!(median(&[]).is_none());
        let linked = median(&[Sample { goodput_bps: 1e6, processors: None }]).expect("a run");
        assert_eq!((linked.processors, linked.cpu_s_per_gb), (None, None));
    }
}

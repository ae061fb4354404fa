//! The cost of a segment of our TCP by the jobs of document 002, on one processor, beside the paper's.
//!
//! ```text
//!   run (one thread, device in memory) ── ns for activities ──┐
//!   alone ── ns for parts of them ────────────────────────┴▶ jobs ──▶ report
//!   serial ── ns of the steps that must be in order ─────────────────▶
//! ```
//! | module | contents |
//! |---|---|
//! | `run` | a stack whose peer is a script, with the meter |
//! | `alone` | parts of activities, measured separately |
//! | `serial` | the serial step |
//! | `jobs` | the processes of the paper |

mod alone;
mod jobs;
mod run;
pub(crate) mod serial;

use measure::Program;
use serde::Serialize;
use transfer::CancelToken;
use units::Duration;

use self::alone::Alone;
use super::failure::Failure;
use super::row::End;
use crate::provenance::{Machine, PROGRAM};

pub(crate) use self::jobs::{Job, Jobs};
pub(crate) use self::serial::SerialStep;

/// The targets of the serial step: a lone segment, and a super-segment of 64 KiB.
pub(crate) const LONE_TARGET_NS: f64 = 100.0;
pub(crate) const SUPER_TARGET_NS: f64 = 300.0;

/// The version of the JSON format.
const VERSION: u32 = 1;

/// If other programs had the processor for a larger share of the time, they also disturbed the caches.
const TAKEN_AWAY_SHARE_MAX: f64 = 0.1;

/// The longest IP packet, without headers.
const DATA_MAX: usize = 65_535 - 52;

/// The measurements to make.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TcpSettings {
    /// Bytes of data in a segment.
    pub(crate) segment: usize,
    /// Duration of each run.
    pub(crate) time: Duration,
    /// Number of runs of each end.
    pub(crate) runs: usize,
}

impl TcpSettings {
    /// Number of steps, for a progress bar.
    pub(crate) const fn steps(&self) -> usize {
        2 * self.runs + 2
    }
}

/// The result, in the format of `docs/spec/profile.md`.
#[derive(Debug, Serialize)]
pub(crate) struct TcpReport {
    format: &'static str,
    version: u32,
    #[serde(flatten)]
    program: Program,
    pub(crate) machine: Machine,
    pub(crate) segment_bytes: usize,
    run_ns: u64,
    pub(crate) runs: usize,
    pub(crate) sending: Jobs,
    pub(crate) receiving: Jobs,
    /// Jobs that do not run for each segment.
    pub(crate) events: Vec<Job>,
    /// Upper bound on the gain of one processor for each side over one for both, with data in both directions.
    pub(crate) duplex_gain_max: f64,
    /// The paper's gain.
    pub(crate) paper_duplex_gain: f64,
    pub(crate) serial: Serial,
    /// Reasons to doubt the figures.
    pub(crate) warnings: Vec<String>,
}

/// The serial step.
#[derive(Debug, Serialize)]
pub(crate) struct Serial {
    pub(crate) lone: SerialStep,
    pub(crate) lone_target_ns: f64,
    pub(crate) super_segment: SerialStep,
    pub(crate) super_segment_target_ns: f64,
}

/// Measures; calls `progress` before each step.
pub(crate) fn measure_tcp(
    settings: &TcpSettings,
    cancel: &CancelToken,
    progress: &dyn Fn(&str),
) -> Result<TcpReport, Failure> {
    progress("parts alone");
    let alone = Alone::measure(settings.segment).map_err(Failure::Error)?;
    progress("the serial step");
    let serial = Serial::measure(settings.segment).map_err(Failure::Error)?;
    let (mut sent, mut received) = (Vec::new(), Vec::new());
    for number in 1..=settings.runs {
        // In turn, so that the drift of the machine affects both.
        for (end, runs) in [(End::Sending, &mut sent), (End::Receiving, &mut received)] {
            progress(&format!("{}, run {number}", end.label()));
            runs.push(run::run(end, settings.segment, settings.time, cancel)?);
        }
    }
    let (sending, receiving) = (Jobs::new(End::Sending, &sent, &alone), Jobs::new(End::Receiving, &received, &alone));
    let machine = Machine::here(net::processors::count());
    Ok(TcpReport {
        format: "litz-profile-tcp",
        version: VERSION,
        program: PROGRAM,
        segment_bytes: settings.segment,
        run_ns: settings.time.as_nanos(),
        runs: settings.runs,
        duplex_gain_max: duplex_gain(&sending, &receiving),
        paper_duplex_gain: studies::printed_duplex_gain(),
        warnings: warnings(&machine, &[&sending, &receiving]),
        machine,
        sending,
        receiving,
        events: jobs::events(&alone),
        serial,
    })
}

impl Serial {
    fn measure(segment: usize) -> Result<Self, String> {
        Ok(Self {
            lone: serial::measure(segment, 1)?,
            lone_target_ns: LONE_TARGET_NS,
            super_segment: serial::measure(segment, (DATA_MAX / segment).max(1))?,
            super_segment_target_ns: SUPER_TARGET_NS,
        })
    }
}

/// Each side has a processor, which also does what the other direction needs of it.
fn duplex_gain(sending: &Jobs, receiving: &Jobs) -> f64 {
    let transmit_ns = sending.total_ns - sending.other_side_ns + receiving.other_side_ns;
    let receive_ns = receiving.total_ns - receiving.other_side_ns + sending.other_side_ns;
    (transmit_ns + receive_ns) / transmit_ns.max(receive_ns).max(1.0)
}

fn warnings(machine: &Machine, sides: &[&Jobs]) -> Vec<String> {
    let mut warnings = Vec::new();
    if !machine.optimised {
        warnings.push("this is a debug build: only a release build has realistic costs".to_owned());
    }
    let taken_away = sides.iter().map(|jobs| jobs.taken_away_share).fold(0.0, f64::max);
    if taken_away > TAKEN_AWAY_SHARE_MAX {
        let percent = taken_away * 100.0;
        warnings.push(format!("other programs used the processor for {percent:.0} % of a run: stop them and repeat"));
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gain_of_two_processors_is_that_of_the_longer_side() {
        let jobs = |total_ns, other_side_ns| Jobs {
            rows: Vec::new(),
            total_ns,
            other_side_ns,
            segments_per_second: 0.0,
            taken_away_share: 0.0,
        };
        // The paper's: 187 us to send, 267 to receive.
        assert!((duplex_gain(&jobs(187.0, 0.0), &jobs(267.0, 0.0)) - 1.70).abs() < 0.01);
        // Acknowledgements are work of the other processor.
        assert!((duplex_gain(&jobs(200.0, 50.0), &jobs(150.0, 50.0)) - 1.75).abs() < 1e-9);
    }
}

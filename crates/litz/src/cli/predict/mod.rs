//! `litz predict`: what a machine would carry, by simulation with the costs of a profile, and what it does carry.

mod options;
mod table;
mod work;

use std::path::Path;
use std::process::ExitCode;

use litz::transfer::CancelToken;
use measure::Program;
use scenario::simulated::{Costs, Machine, PROCESSORS_MAX, PROFILE_BYTES_MAX, Placement};
use serde::Serialize;
use units::Duration;

use super::bounded::read_text;
use super::{exit, out, scenario::read_one, signals};
use crate::profile::{Failure, WARM_UP};
use crate::provenance::{self, PROGRAM};
use work::{Figures, Measured};

pub(crate) use options::{HELP, PredictOptions};

/// One line of the result.
#[derive(Debug, Serialize)]
struct Row {
    placement: String,
    /// Of bulk.
    datagram_bytes: Option<usize>,
    predicted: Figures,
    /// With `--verify`.
    measured: Option<Measured>,
    /// By how much the predicted goodput is above the measured one, as a share of that.
    error: Option<f64>,
}

/// The result, as JSON has it.
#[derive(Debug, Serialize)]
struct Report {
    format: &'static str,
    version: u32,
    #[serde(flatten)]
    program: Program,
    /// Where it was measured, if it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    machine: Option<provenance::Machine>,
    /// Of what is random in the simulated runs.
    seed: u64,
    scenario: String,
    /// Of the scenario's file, if it is one: see `docs/spec/scenario.md`.
    file_blake3: Option<String>,
    /// Of bulk: how long each run takes, and how much of its beginning does not count.
    time_ns: Option<u64>,
    warm_up_ns: Option<u64>,
    processors: usize,
    /// Both hosts are one machine.
    is_shared: bool,
    hand_over_ns: f64,
    costs: Costs,
    rows: Vec<Row>,
}

pub(crate) fn run(options: &PredictOptions) -> ExitCode {
    let fail = |status, message: &str| exit::fail(options.json, status, message);
    let cancel = match signals::cancel_token() {
        Ok(cancel) => cancel,
        Err(error) => return fail(exit::FAILED, &format!("cannot handle interrupts: {error}")),
    };
    match report(options, &cancel) {
        Ok(report) if options.json => match serde_json::to_string(&report) {
            Ok(line) => out::print(&format!("{line}\n")),
            Err(error) => return fail(exit::FAILED, &format!("the result has no JSON form: {error}")),
        },
        Ok(report) => out::print(&table::render(&report)),
        Err(Failure::Interrupted) => return fail(exit::INTERRUPTED, "interrupted"),
        Err(Failure::Error(message)) => return fail(exit::FAILED, &message),
    }
    ExitCode::from(exit::DONE)
}

fn report(options: &PredictOptions, cancel: &CancelToken) -> Result<Report, Failure> {
    options.check().map_err(Failure::Error)?;
    let mut costs = read_costs(&options.profile).map_err(Failure::Error)?;
    costs.hand_over_ns = options.hand_over;
    let processors = options.processors.map_or_else(|| default_processors(net::processors::count()), usize::from);
    let machine = |placement: Placement| Machine {
        costs: costs.clone(),
        placements: [placement; 2],
        processors,
        is_shared: options.bulk,
    };
    let mut rows = Vec::new();
    let mut name = "bulk".to_owned();
    let mut file_blake3 = None;
    if let Some(path) = &options.scenario {
        let (scenario, digest) = read_one(path).map_err(Failure::Error)?;
        name.clone_from(&scenario.name);
        file_blake3 = Some(digest);
        for placement in &options.placement {
            let predicted = work::predict(&scenario, &machine(*placement), Duration::ZERO, cancel)?;
            rows.push(Row::new(*placement, None, predicted, None));
        }
    } else {
        for size in &options.datagram_size {
            check_size(&costs, *size, &options.profile).map_err(Failure::Error)?;
        }
        for size in &options.datagram_size {
            let scenario = work::bulk(*size, options.time).map_err(Failure::Error)?;
            for placement in &options.placement {
                let predicted = work::predict(&scenario, &machine(*placement), WARM_UP, cancel)?;
                let measured = if options.verify {
                    Some(work::measure(*size, options.time, *placement, options.runs, cancel)?)
                } else {
                    None
                };
                rows.push(Row::new(*placement, Some(*size), predicted, measured));
            }
        }
    }
    Ok(Report {
        format: "litz-prediction",
        version: 1,
        program: PROGRAM,
        machine: options.verify.then(|| provenance::Machine::here(net::processors::count())),
        seed: work::SEED,
        scenario: name,
        file_blake3,
        time_ns: options.bulk.then(|| options.time.as_nanos()),
        warm_up_ns: options.bulk.then(|| WARM_UP.as_nanos()),
        processors,
        is_shared: options.bulk,
        hand_over_ns: options.hand_over,
        costs,
        rows,
    })
}

/// What is simulated if nobody says, on a machine with so many processors.
fn default_processors(present: usize) -> usize {
    present.min(PROCESSORS_MAX)
}

/// Nothing but costs limits bulk over loopback: without any, no time would pass.
///
/// # Errors
/// In words for the user, if they do not.
fn check_size(costs: &Costs, datagram_size: usize, profile: &Path) -> Result<(), String> {
    if !costs.are_nothing_at(datagram_size) {
        return Ok(());
    }
    Err(format!(
        "{}: by its figures a datagram of {datagram_size} bytes takes no time at either end: profile that size, too \
         (`litz profile --sizes`), or leave it out of --datagram-size",
        profile.display()
    ))
}

/// The costs of a profile.
///
/// # Errors
/// In words for the user.
pub(crate) fn read_costs(path: &Path) -> Result<Costs, String> {
    let text = read_text(path, PROFILE_BYTES_MAX as u64);
    let text = text.map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    Costs::from_profile(&text).map_err(|error| format!("{}: {error}", path.display()))
}

impl Row {
    fn new(
        placement: Placement,
        datagram_bytes: Option<usize>,
        predicted: Figures,
        measured: Option<Measured>,
    ) -> Self {
        let error = measured.map(|measured| predicted.goodput_bps / measured.goodput_bps - 1.0);
        Self { placement: placement.to_string(), datagram_bytes, predicted, measured, error }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_with_more_processors_than_are_simulated_is_simulated_with_as_many_as_can_be() {
        assert_eq!([1, 64, 65, 384].map(default_processors), [1, 64, 64, 64]);
        let costs = Costs::default();
        let processors = default_processors(384);
        let machine = Machine { costs, placements: [Placement::Inline; 2], processors, is_shared: true };
        assert_eq!(machine.validate(), Ok(()));
    }
}

//! `litz predict`: predicts goodput and CPU use by simulation with the costs of a profile, and
//! compares with live runs.

mod case;
mod choice;
mod gather;
mod live;
mod options;
mod table;
mod work;

use std::process::ExitCode;

use measure::Program;
use scenario::simulated::{Costs, Machine, PROCESSORS_MAX, Placement};
use serde::Serialize;
use transfer::CancelToken;
use units::Duration;

use super::{exit, out, scenario::read_one, signals};
use crate::profile::{Failure, WARM_UP, halves};
use crate::provenance::{self, PROGRAM};
use case::{Case, named};
use live::Measured;
use work::Figures;

pub(crate) use options::{HELP, PredictOptions};

/// One line of the result.
#[derive(Debug, Serialize)]
struct Row {
    /// The requested placement.
    placement: String,
    /// The placements of both hosts: the requested one, unless it is `auto`.
    placements: [String; 2],
    connections: usize,
    /// Datagram size of bulk data.
    datagram_bytes: Option<usize>,
    predicted: Figures,
    /// With `--verify`.
    measured: Option<Measured>,
    /// Relative error of the predicted goodput: positive if it exceeds the measured one.
    error: Option<f64>,
}

/// The result, as serialized to JSON.
#[derive(Debug, Serialize)]
struct PredictionReport {
    format: &'static str,
    version: u32,
    #[serde(flatten)]
    program: Program,
    /// The machine of the live runs and of the profile, if any were made.
    #[serde(skip_serializing_if = "Option::is_none")]
    machine: Option<provenance::Machine>,
    /// Seed of the simulated runs.
    seed: u64,
    scenario: String,
    /// Hash of the scenario file, if there is one: see `docs/spec/scenario.md`.
    file_blake3: Option<String>,
    /// For bulk data: the duration of each run and of its warm-up.
    time_ns: Option<u64>,
    warm_up_ns: Option<u64>,
    /// Numbers of processors of the sending and of the receiving host.
    processors: [usize; 2],
    /// Both hosts share the processors of the first.
    is_shared: bool,
    hand_over_ns: f64,
    costs: Costs,
    rows: Vec<Row>,
    /// Reasons to doubt the figures.
    warnings: Vec<String>,
}

/// The request: what to predict.
struct Request {
    name: String,
    file_blake3: Option<String>,
    cases: Vec<Case>,
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
            Err(error) => return fail(exit::FAILED, &format!("cannot write the result as JSON: {error}")),
        },
        Ok(report) => out::print(&table::render(&report)),
        Err(Failure::Interrupted) => return fail(exit::INTERRUPTED, "interrupted"),
        Err(Failure::Error(message)) => return fail(exit::FAILED, &message),
    }
    ExitCode::from(exit::DONE)
}

fn report(options: &PredictOptions, cancel: &CancelToken) -> Result<PredictionReport, Failure> {
    options.check().map_err(Failure::Error)?;
    let Request { name, file_blake3, cases } = request(options).map_err(Failure::Error)?;
    if options.verify {
        live::check(&cases).map_err(Failure::Error)?;
    }
    let (mut costs, measured) = gather::gather(options, &cases, cancel)?;
    costs.wake_ns = options.hand_over.unwrap_or(costs.wake_ns);
    let machine = |placements: [Placement; 2]| {
        let present = options.processors.map_or_else(net::processors::count, usize::from);
        Machine { costs: costs.clone(), placements, ..machine_of(options.bulk, present) }
    };
    let (mut rows, mut notes) = (Vec::new(), Vec::new());
    for (case, measured) in cases.iter().zip(measured) {
        let skipped = if case.datagram_bytes.is_some() { WARM_UP } else { Duration::ZERO };
        let processors = machine([Placement::Inline; 2]).processors;
        let sockets = case.scenario.paths.len();
        let placements = choice::resolve(case.placement, &costs, processors, sockets);
        let (predicted, noted) =
            work::predict(&case.scenario, &machine(placements), case.connections(), skipped, cancel)?;
        if predicted.goodput_bps <= 0.0 {
            notes.push(format!("{}: no data arrived in the simulated run", case.name()));
        }
        notes.extend(noted.iter().map(|note| format!("{}: {note}", case.name())));
        rows.push(Row::new(case, placements, predicted, measured));
    }
    let Machine { processors, is_shared, .. } = machine([Placement::Inline; 2]);
    let mut warnings = options.differences(net::processors::count());
    warnings.extend(costs.warnings.iter().map(|warning| format!("the profile: {warning}")));
    warnings.extend(notes);
    warnings.extend(rows.iter().filter_map(Row::warning));
    let is_measured = options.verify || options.profile.is_none();
    Ok(PredictionReport {
        format: "litz-prediction",
        version: 1,
        program: PROGRAM,
        machine: is_measured.then(|| provenance::Machine::here(net::processors::count())),
        seed: work::SEED,
        scenario: name,
        file_blake3,
        time_ns: options.bulk.then(|| options.time().as_nanos()),
        warm_up_ns: options.bulk.then(|| WARM_UP.as_nanos()),
        processors,
        is_shared,
        hand_over_ns: costs.wake_ns,
        costs,
        rows,
        warnings,
    })
}

/// If live runs differ by more than this, other programs have disturbed them.
const RANGE_MAX: f64 = 0.3;

fn request(options: &PredictOptions) -> Result<Request, String> {
    let mut cases = Vec::new();
    if let Some(path) = &options.scenario {
        let (scenario, digest) = read_one(path)?;
        for placement in options.placements() {
            cases.push(Case { scenario: scenario.clone(), placement, datagram_bytes: None });
        }
        return Ok(Request { name: scenario.name, file_blake3: Some(digest), cases });
    }
    for size in options.datagram_sizes() {
        let scenario = work::bulk(*size, options.time())?;
        for placement in options.placements() {
            cases.push(Case { scenario: scenario.clone(), placement, datagram_bytes: Some(*size) });
        }
    }
    Ok(Request { name: "bulk".to_owned(), file_blake3: None, cases })
}

/// A machine with this number of processors. Each host of a scenario is such a machine. The two
/// ends of bulk data over loopback have half of the processors each, as in the profile and in the
/// live runs, or share a single processor.
fn machine_of(is_bulk: bool, processors: usize) -> Machine {
    let counts = if is_bulk { halves(processors) } else { [processors; 2] };
    Machine {
        costs: Costs::default(),
        placements: [Placement::Inline; 2],
        processors: counts.map(|count| count.min(PROCESSORS_MAX)),
        is_shared: is_bulk && processors < 2,
    }
}

/// Checks that a datagram of this size costs time. Only costs limit bulk data over loopback:
/// without them, no time would pass.
///
/// # Errors
/// A message for the user if it costs nothing.
fn check_size(costs: &Costs, datagram_size: usize, profile: &str) -> Result<(), String> {
    if !costs.are_zero_at(datagram_size) {
        return Ok(());
    }
    Err(format!(
        "{profile}: according to this profile a datagram of {datagram_size} bytes takes no time at either end: add the \
         size to the profile (`litz profile --sizes`), or remove it from --datagram-size"
    ))
}

impl Row {
    fn new(case: &Case, placements: [Placement; 2], predicted: Figures, measured: Option<Measured>) -> Self {
        let error = measured.map(|measured| predicted.goodput_bps / measured.goodput_bps - 1.0);
        let Case { placement, datagram_bytes, .. } = *case;
        let placements = placements.map(|placement| placement.to_string());
        let connections = case.connections();
        Self { placement: placement.to_string(), placements, connections, datagram_bytes, predicted, measured, error }
    }

    /// A warning if the live runs differ too much.
    fn warning(&self) -> Option<String> {
        let [low, high] = self.measured?.range_bps;
        let differ = high / low - 1.0;
        let name = named(&self.placement, self.datagram_bytes);
        let percent = differ * 100.0;
        (differ > RANGE_MAX)
            .then(|| format!("{name}: the live runs differ by {percent:.0} %: stop other programs and repeat"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_simulated_processors_is_limited() {
        assert_eq!([1, 2, 3, 384].map(|count| machine_of(true, count).processors), [[1, 1], [1, 1], [1, 2], [64, 64]]);
        assert_eq!([1, 64, 65].map(|count| machine_of(false, count).processors), [[1, 1], [64, 64], [64, 64]]);
        assert_eq!([1, 2].map(|count| machine_of(true, count).is_shared), [true, false]);
        assert_eq!(machine_of(true, 384).validate(), Ok(()));
    }
}

//! Collects the costs, from a file or by profiling this machine, and the live results. Both are
//! measured in turn, so that speed drift affects both equally.

use indicatif::ProgressBar;
use scenario::simulated::Costs;
use scenario::zero_time::check_time;
use transfer::CancelToken;

use super::case::Case;
use super::check_size;
use super::live::{Measured, Sample, measure, median};
use super::options::PredictOptions;
use crate::cli::costs::read_costs;
use crate::cli::profile::bar;
use crate::profile::{Failure, Session, Settings};

/// Datagram sizes to profile for a scenario: common path MTUs, and others to separate the cost per
/// packet from the cost per byte.
const SCENARIO_SIZES: [usize; 4] = [1200, 1472, 4096, 8972];

/// A single size is profiled together with the first of these that differs from it.
const SECOND_SIZES: [usize; 2] = [1200, 4096];

/// Returns the costs and, with `--verify`, the live results of each case.
pub(super) fn gather(
    options: &PredictOptions,
    cases: &[Case],
    cancel: &CancelToken,
) -> Result<(Costs, Vec<Option<Measured>>), Failure> {
    let runs = usize::from(options.runs);
    let settings = settings(options, runs);
    let given = match &options.profile {
        Some(path) => {
            let costs = read_costs(path).map_err(Failure::Error)?;
            check_sizes(&costs, cases, &path.display().to_string())?;
            Some(costs)
        }
        None => None,
    };
    let live = if options.verify { runs * cases.len() } else { 0 };
    let bar = bar(live + if given.is_some() { 0 } else { settings.steps() }, options.json);
    let done = in_turn(options, given, &settings, cases, cancel, &bar);
    bar.finish_and_clear();
    done
}

/// Runs in rounds: one step of the profile, then each case once.
fn in_turn(
    options: &PredictOptions,
    given: Option<Costs>,
    settings: &Settings,
    cases: &[Case],
    cancel: &CancelToken,
    bar: &ProgressBar,
) -> Result<(Costs, Vec<Option<Measured>>), Failure> {
    let progress = |step: &str| {
        bar.set_message(step.to_owned());
        bar.inc(1);
    };
    let mut session = match &given {
        Some(_) => None,
        None => Some(Session::begin(settings, cancel, &progress)?),
    };
    let mut samples: Vec<Vec<Sample>> = cases.iter().map(|_| Vec::new()).collect();
    let rounds = if options.verify || session.is_some() { settings.runs } else { 0 };
    for round in 0..rounds {
        if let Some(session) = &mut session {
            session.round(cancel, &progress)?;
        }
        for (case, samples) in cases.iter().zip(&mut samples).filter(|_| options.verify) {
            progress(&format!("{}, live", case.placement));
            samples.push(measure(case, options.time(), round, cancel)?);
        }
    }
    let costs = match (given, session) {
        (Some(costs), _) => costs,
        (None, Some(session)) => costs_of_this_machine(session, cases)?,
        (None, None) => unreachable!("without a profile there is a session"),
    };
    Ok((costs, samples.iter().map(|samples| median(samples)).collect()))
}

/// Converts the profile through its JSON format, as a profile from a file.
fn costs_of_this_machine(session: Session<'_>, cases: &[Case]) -> Result<Costs, Failure> {
    let report = session.report()?;
    let text = serde_json::to_string(&report);
    let text = text.map_err(|error| Failure::Error(format!("cannot write the profile as JSON: {error}")))?;
    let what = "this machine's profile";
    let costs = Costs::from_profile(&text).map_err(|error| Failure::Error(format!("{what}: {error}")))?;
    check_sizes(&costs, cases, what)?;
    Ok(costs)
}

/// Checks the datagram sizes before the simulation and, with a profile from a file, before the live
/// runs.
fn check_sizes(costs: &Costs, cases: &[Case], profile: &str) -> Result<(), Failure> {
    let check = |case: &Case| match case.datagram_bytes {
        Some(size) => check_size(costs, size, profile),
        None => check_time(&case.scenario, &case.scenario.all_paths(), Some(costs))
            .map_err(|message| format!("{}: {message}", case.scenario.name)),
    };
    cases.iter().try_for_each(check).map_err(Failure::Error)
}

/// The settings of the profile.
fn settings(options: &PredictOptions, runs: usize) -> Settings {
    let mut sizes = if options.bulk { options.datagram_sizes().to_vec() } else { SCENARIO_SIZES.to_vec() };
    sizes.sort_unstable();
    sizes.dedup();
    if let [one] = sizes[..] {
        sizes.extend(SECOND_SIZES.into_iter().find(|size| *size != one));
    }
    sizes.sort_unstable();
    let time = options.time();
    Settings { datagram_size: sizes[0], sizes, time, runs, file: false, dir: None }
}

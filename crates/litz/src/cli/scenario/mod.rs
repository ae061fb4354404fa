//! `litz scenario`: links, faults, workload and checks from files, run and judged.

mod files;
mod listing;
#[cfg(target_os = "linux")]
mod netns;
mod options;
mod runs;
mod worlds;

use std::path::Path;
use std::process::ExitCode;

use litz::transfer::CancelToken;
use scenario::model::Scenario;
use scenario::report::{Report, scenario_json, table};
use scenario::simulated::Machine;
use scenario::suite::Suite;

use super::out::print;
use super::{exit, signals};
use files::{ScenarioFile, read_all};
use options::{Command, RunOptions};
use runs::{Runs, Stop};

pub(crate) use files::read_one;
#[cfg(target_os = "linux")]
pub(super) use netns::{Netns, check_machine};
pub(crate) use options::{HELP, ScenarioOptions};

/// Where `list` looks, and the shipped files are.
const FOLDER: &str = "scenarios";

/// A failure: the status and what to say.
type Failure = (u8, String);

pub(crate) fn run(options: &ScenarioOptions) -> ExitCode {
    let done = match &options.command {
        Command::Run(options) => run_files(options),
        Command::Check { files, json } => {
            listing::show(read_all(files.iter().map(AsRef::as_ref)), *json, listing::check)
        }
        Command::List { folder, json } => {
            listing::show(read_all([folder.as_deref().unwrap_or(Path::new(FOLDER))]), *json, listing::list)
        }
    };
    match done {
        Ok(status) => ExitCode::from(status),
        Err((status, message)) => exit::fail(false, status, &message),
    }
}

fn failed(message: impl Into<String>) -> Failure {
    (exit::FAILED, message.into())
}

fn run_files(options: &RunOptions) -> Result<u8, Failure> {
    options.world.check().map_err(failed)?;
    let files = read_all(options.files.iter().map(AsRef::as_ref)).all().map_err(failed)?;
    let cancel = signals::cancel_token().map_err(|error| failed(format!("cannot handle interrupts: {error}")))?;
    let machine = options.machine().map_err(failed)?;
    let mut report = Report::new(options.world.make(None).name());
    let mut failures = Vec::new();
    for ScenarioFile { path, mut scenario } in files {
        options.change(&mut scenario);
        let (text, json, passes) = run_one(options, &path, &scenario, machine.as_ref(), &cancel)?;
        if !options.json_to_stdout() {
            print(&text);
        }
        report.push(json);
        if !passes {
            failures.push(scenario.name);
        }
    }
    write_json(options, &report)?;
    if failures.is_empty() {
        return Ok(exit::DONE);
    }
    Err((exit::INCOMPLETE, format!("checks failed: {}", failures.join(", "))))
}

/// The table, the JSON, and whether all is well.
fn run_one(
    options: &RunOptions,
    path: &Path,
    scenario: &Scenario,
    machine: Option<&Machine>,
    cancel: &CancelToken,
) -> Result<(String, serde_json::Value, bool), Failure> {
    let mut suite = Suite::new(scenario, options.seeds(scenario));
    if !options.paths.is_empty() {
        let names = options.paths.iter().map(String::as_str);
        let paths = scenario.paths_named(names).map_err(|error| failed(format!("{}: {error}", path.display())))?;
        suite = suite.with_paths(paths);
    }
    let orders = suite.orders();
    let runs = Runs { scenario, world: options.world, machine, orders, quiet: options.quiet, cancel };
    let jobs = if options.world.is_live() { Some(1) } else { options.jobs };
    let outcomes = runs.make(jobs).map_err(|stop| match stop {
        Stop::Interrupted => (exit::INTERRUPTED, "interrupted".to_owned()),
        Stop::Error(words) => failed(format!("{}: {words}", path.display())),
    })?;
    let judgements = suite.judge(&outcomes);
    let json = scenario_json(scenario, &path.display().to_string(), &judgements, outcomes.values());
    let passes = json["passes"].as_bool().unwrap_or(false);
    let seeds = options.seeds(scenario);
    let seeds = if seeds.start() == seeds.end() {
        format!("seed {}", seeds.start())
    } else {
        format!("seeds {} to {}", seeds.start(), seeds.end())
    };
    let mut text = format!("{} {}, {seeds}\n{}", scenario.name, options.world.place(), table(scenario, &judgements));
    for outcome in outcomes.values() {
        let paths = outcome.path_names(scenario);
        if let Some(failure) = &outcome.failure {
            text.push_str(&format!("  note: seed {}, {paths}: the connection failed: {failure}\n", outcome.seed));
        }
        text.extend(outcome.notes.iter().map(|note| format!("  note: seed {}, {paths}: {note}\n", outcome.seed)));
    }
    Ok((text + "\n", json, passes))
}

fn write_json(options: &RunOptions, report: &Report) -> Result<(), Failure> {
    let Some(target) = &options.json else { return Ok(()) };
    let text = serde_json::to_string(report).map_err(|error| failed(format!("no JSON form: {error}")))?;
    if options.json_to_stdout() {
        print(&format!("{text}\n"));
        return Ok(());
    }
    std::fs::write(target, text + "\n").map_err(|error| failed(format!("cannot write {}: {error}", target.display())))
}

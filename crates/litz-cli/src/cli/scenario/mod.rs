//! `litz scenario`: runs scenario files (links, faults, workload) and evaluates their checks.

mod files;
mod listing;
#[cfg(target_os = "linux")]
mod netns;
mod options;
mod output_file;
mod plot;
mod progress;
mod record;
mod runs;
mod worlds;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Mutex;

use measure::Program;
use measure::plot::Panel;
use scenario::components::components_table;
use scenario::model::Scenario;
use scenario::report::{ResultFile, scenario_json, table};
use scenario::shipped;
use scenario::simulated::Machine;
use scenario::suite::Suite;
use scenario::world::RunPlan;
use serde::Serialize;
use transfer::CancelToken;

use super::out::print;
use super::{exit, signals};
use crate::provenance::{self, PROGRAM};
use files::{ScenarioFile, read_all, read_shipped};
use options::{Command, RunOptions, WorldName};
use output_file::OutputFile;
use record::RecordFiles;
use runs::{Runs, Stop};

pub(crate) use files::read_one;
#[cfg(target_os = "linux")]
pub(super) use netns::{Netns, check_machine};
pub(crate) use options::{HELP, ScenarioOptions};

/// The exit status and the message of an error.
type Failure = (u8, String);

pub(crate) fn run(options: &ScenarioOptions) -> ExitCode {
    let done = match &options.command {
        Command::Run(options) => run_files(options),
        Command::Check { files, json } => {
            listing::show(read_all(files.iter().map(AsRef::as_ref)), *json, listing::check)
        }
        Command::List { folder, json } => {
            let found = folder.as_deref().map_or_else(read_shipped, |folder| read_all([folder]));
            listing::show(found, *json, listing::list)
        }
        Command::Show { name } => show(name),
    };
    match done {
        Ok(status) => ExitCode::from(status),
        Err((status, message)) => exit::fail(has_no_result(&options.command, status), status, &message),
    }
}

/// Whether an error with this status is all that standard output gets of what `--json` asks for. Failed
/// checks are in the result, which is one object.
const fn has_no_result(command: &Command, status: u8) -> bool {
    matches!(command, Command::Run(options) if options.json) && status != exit::INCOMPLETE
}

fn failed(message: impl Into<String>) -> Failure {
    (exit::FAILED, message.into())
}

/// Prints the file of a shipped scenario.
fn show(name: &str) -> Result<u8, Failure> {
    let unknown = || failed(format!("there is no shipped scenario {name:?}; `litz scenario list` names them"));
    print(shipped::find(name).ok_or_else(unknown)?.text);
    Ok(exit::DONE)
}

fn run_files(options: &RunOptions) -> Result<u8, Failure> {
    options.world.check().map_err(failed)?;
    let files = read_all(options.files.iter().map(AsRef::as_ref)).all().map_err(failed)?;
    let cancel = signals::cancel_token().map_err(|error| failed(format!("cannot handle interrupts: {error}")))?;
    let machine = options.machine().map_err(failed)?;
    options.check_recording(files.len()).map_err(failed)?;
    let file = options.result_file().map_err(failed)?.as_deref().map(OutputFile::begin).transpose().map_err(failed)?;
    let plot = options.plot.as_deref().map(OutputFile::begin).transpose().map_err(failed)?;
    let mut panels = Vec::new();
    let mut report = ResultFile::new(options.world.make(None).name());
    let mut failures = Vec::new();
    for ScenarioFile { path, mut scenario, digest } in files {
        options.change(&mut scenario);
        let OneResult { text, mut json, passes, panel } =
            run_one(options, &path, &scenario, machine.as_ref(), &cancel)?;
        panels.extend(panel);
        json["file_blake3"] = digest.into();
        if !options.json {
            print(&text);
        }
        report.push(json);
        if !passes {
            failures.push(scenario.name);
        }
    }
    let text = json_text(&ResultDocument::new(options, machine.as_ref(), &report))?;
    if options.json {
        print(&text);
    }
    if let Some(file) = file {
        file.write(&text).map_err(failed)?;
    }
    if let Some(plot) = plot {
        plot.write(&measure::plot::svg(&panels)).map_err(failed)?;
    }
    if failures.is_empty() {
        return Ok(exit::DONE);
    }
    Err((exit::INCOMPLETE, format!("checks failed: {}", failures.join(", "))))
}

/// The result of one scenario.
struct OneResult {
    /// The table.
    text: String,
    json: serde_json::Value,
    /// Whether all checks hold.
    passes: bool,
    /// The rate over time of the first seed on all paths.
    panel: Option<Panel>,
}

/// Runs one scenario.
fn run_one(
    options: &RunOptions,
    path: &Path,
    scenario: &Scenario,
    machine: Option<&Machine>,
    cancel: &CancelToken,
) -> Result<OneResult, Failure> {
    let mut suite = Suite::new(scenario, options.seeds(scenario));
    if !options.paths.is_empty() {
        let names = options.paths.iter().map(String::as_str);
        let paths = scenario.paths_named(names).map_err(|error| failed(format!("{}: {error}", path.display())))?;
        suite = suite.with_paths(paths);
    }
    let plans = suite.plans();
    let first = plans[0].clone();
    let files = RecordFiles::begin(options).map_err(failed)?;
    let recording = files.as_ref().map(|files| files.recording(about(scenario, &first, machine)));
    let recording = Mutex::new(recording.transpose().map_err(failed)?);
    let (records_keys, quiet) = (options.keys_in_pcapng, options.quiet);
    let runs = Runs { scenario, world: options.world, machine, plans, recording, records_keys, quiet, cancel };
    let jobs = if options.world.is_live() { Some(1) } else { options.jobs };
    let outcomes = runs.make(jobs).map_err(|stop| match stop {
        Stop::Interrupted => (exit::INTERRUPTED, "interrupted".to_owned()),
        Stop::Error(reason) => failed(format!("{}: {reason}", path.display())),
    })?;
    files.map_or(Ok(()), RecordFiles::keep).map_err(failed)?;
    let run_verdicts = suite.evaluate(&outcomes);
    let json = scenario_json(scenario, &path.display().to_string(), &run_verdicts, outcomes.values());
    let passes = json["passes"].as_bool().unwrap_or(false);
    let seeds = options.seeds(scenario);
    let seeds = if seeds.start() == seeds.end() {
        format!("seed {}", seeds.start())
    } else {
        format!("seeds {} to {}", seeds.start(), seeds.end())
    };
    let mut text = format!(
        "{} {}, {seeds}, {} congestion control\n{}",
        scenario.name,
        options.world.place(),
        scenario.transport.congestion,
        table(scenario, &run_verdicts)
    );
    for outcome in outcomes.values() {
        let paths = outcome.path_names(scenario);
        if let Some(failure) = &outcome.failure {
            text.push_str(&format!("  note: seed {}, {paths}: the connection failed: {failure}\n", outcome.seed));
        }
        text.extend(outcome.notes.iter().map(|note| format!("  note: seed {}, {paths}: {note}\n", outcome.seed)));
    }
    if let Some(outcome) = outcomes.get(&first).filter(|_| options.world == WorldName::Sim) {
        let recorded = if options.is_recorded() { ", recorded" } else { "" };
        text.push_str(&format!("\n  seed {}, {}{recorded}\n", first.seed, outcome.path_names(scenario)));
        text.push_str(&components_table(&outcome.components));
    }
    let panel = outcomes.get(&first).map(|outcome| plot::panel(scenario, outcome));
    Ok(OneResult { text: text + "\n", json, passes, panel })
}

/// The description in the files of a recorded run.
fn about(scenario: &Scenario, plan: &RunPlan, machine: Option<&Machine>) -> String {
    let paths = scenario.path_names(&plan.paths).join("+");
    let machine = machine.map_or_else(String::new, |machine| format!(", machine {}", machine.json()));
    format!("{}, scenario {}, seed {}, paths {paths}, world sim{machine}", PROGRAM.summary(), scenario.name, plan.seed)
}

/// A result, with everything that it depends on besides the scenarios.
#[derive(Serialize)]
struct ResultDocument<'a> {
    #[serde(flatten)]
    program: Program,
    /// The machine that made live runs, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    machine: Option<provenance::Machine>,
    /// The simulated machines of the hosts, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    simulated_machine: Option<serde_json::Value>,
    #[serde(flatten)]
    report: &'a ResultFile,
}

impl<'a> ResultDocument<'a> {
    fn new(options: &RunOptions, machine: Option<&Machine>, report: &'a ResultFile) -> Self {
        Self {
            program: PROGRAM,
            // In virtual time the result is the same on every machine, to the byte.
            machine: options.world.is_live().then(|| provenance::Machine::here(net::processors::count())),
            simulated_machine: machine.map(Machine::json),
            report,
        }
    }
}

fn json_text(report: &ResultDocument<'_>) -> Result<String, Failure> {
    let text = serde_json::to_string(report);
    text.map(|text| text + "\n").map_err(|error| failed(format!("cannot write the result as JSON: {error}")))
}

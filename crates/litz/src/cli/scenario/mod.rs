//! `litz scenario`: links, faults, workload and checks from files, run and judged.

mod files;
mod options;
mod runs;

use std::path::Path;
use std::process::ExitCode;

use litz::transfer::CancelToken;
use scenario::model::Scenario;
use scenario::report::{Report, scenario_json, table};
use scenario::suite::Suite;

use super::{exit, signals};
use files::{ScenarioFile, read_all};
use options::{Command, RunOptions, WorldName};
use runs::{Runs, Stop};

pub(crate) use options::{HELP, ScenarioOptions};

/// Where `list` looks, and the shipped files are.
const FOLDER: &str = "scenarios";

/// A failure: the status and what to say.
type Failure = (u8, String);

pub(crate) fn run(options: &ScenarioOptions) -> ExitCode {
    let done = match &options.command {
        Command::Run(options) => run_files(options),
        Command::Check { files } => check(files.iter().map(AsRef::as_ref)),
        Command::List { folder } => list(folder.as_deref().unwrap_or(Path::new(FOLDER))),
    };
    match done {
        Ok(status) => ExitCode::from(status),
        Err((status, message)) => exit::fail(false, status, &message),
    }
}

fn failed(message: impl Into<String>) -> Failure {
    (exit::FAILED, message.into())
}

#[expect(clippy::print_stdout, reason = "this is where the command speaks")]
fn print(text: &str) {
    print!("{text}");
}

fn check<'a>(files: impl IntoIterator<Item = &'a Path>) -> Result<u8, Failure> {
    for ScenarioFile { path, scenario } in read_all(files).map_err(failed)? {
        let (links, faults, checks) = (scenario.links.len(), scenario.faults.len(), scenario.checks.len());
        print(&format!("{}: {links} links, {faults} faults, {checks} checks\n", path.display()));
    }
    Ok(exit::DONE)
}

fn list(folder: &Path) -> Result<u8, Failure> {
    let files = read_all([folder]).map_err(failed)?;
    let width = files.iter().map(|file| file.scenario.name.len()).max().unwrap_or(0);
    for ScenarioFile { scenario, .. } in &files {
        print(&format!("{:<width$}  {}\n", scenario.name, scenario.about));
    }
    Ok(exit::DONE)
}

fn run_files(options: &RunOptions) -> Result<u8, Failure> {
    if options.world == WorldName::Netns {
        let words =
            "--world netns is not built yet: the same files will run between network namespaces. Use --world memory";
        return Err(failed(words));
    }
    let files = read_all(options.files.iter().map(AsRef::as_ref)).map_err(failed)?;
    let cancel = signals::cancel_token().map_err(|error| failed(format!("cannot handle interrupts: {error}")))?;
    let mut report = Report::new("memory");
    let mut failures = Vec::new();
    for ScenarioFile { path, mut scenario } in files {
        options.change(&mut scenario);
        let (text, json, passes) = run_one(options, &path, &scenario, &cancel)?;
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
    cancel: &CancelToken,
) -> Result<(String, serde_json::Value, bool), Failure> {
    let mut suite = Suite::new(scenario, options.seeds(scenario));
    if !options.paths.is_empty() {
        let names = options.paths.iter().map(String::as_str);
        let paths = scenario.paths_named(names).map_err(|error| failed(format!("{}: {error}", path.display())))?;
        suite = suite.with_paths(paths);
    }
    let runs = Runs { scenario, orders: suite.orders(), quiet: options.quiet, cancel };
    let outcomes = runs.make(options.jobs).map_err(|stop| match stop {
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
    let text = format!("{} in memory, {seeds}\n{}\n", scenario.name, table(scenario, &judgements));
    Ok((text, json, passes))
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

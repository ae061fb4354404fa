//! Lists the contents of scenario files without running them, as text or as JSON
//! (`docs/spec/scenario.md`).

use serde_json::{Value, json};

use super::super::{exit, out};
use super::files::{FileError, LoadedFiles, ScenarioFile};
use super::{Failure, failed};

/// Value of `format`.
const FORMAT: &str = "litz-scenario-list";
/// Value of `version`.
const FORMAT_VERSION: u32 = 1;

/// Prints the loaded files, as `text` or completely as JSON, and their errors.
///
/// # Errors
/// With text, all errors of all files. JSON contains the errors, so there only the exit status
/// repeats them.
pub(super) fn show(found: LoadedFiles, json: bool, text: fn(&[ScenarioFile]) -> String) -> Result<u8, Failure> {
    if !json {
        out::print(&text(&found.all().map_err(failed)?));
        return Ok(exit::DONE);
    }
    out::json(&json!({
        "format": FORMAT,
        "version": FORMAT_VERSION,
        "scenarios": found.files.iter().map(scenario_json).collect::<Vec<_>>(),
        "problems": found.errors.iter().flat_map(problems_json).collect::<Vec<_>>(),
    }));
    Ok(if found.errors.is_empty() { exit::DONE } else { exit::FAILED })
}

/// One line per file: a summary of its contents.
pub(super) fn check(files: &[ScenarioFile]) -> String {
    let line = |ScenarioFile { path, scenario, .. }: &ScenarioFile| {
        let (links, faults, checks) = (scenario.links.len(), scenario.faults.len(), scenario.checks.len());
        format!("{}: {links} links, {faults} faults, {checks} checks\n", path.display())
    };
    files.iter().map(line).collect()
}

/// One line per scenario: its name and its description.
pub(super) fn list(files: &[ScenarioFile]) -> String {
    let width = files.iter().map(|file| file.scenario.name.len()).max().unwrap_or(0);
    files.iter().map(|file| format!("{:<width$}  {}\n", file.scenario.name, file.scenario.about)).collect()
}

fn scenario_json(ScenarioFile { path, scenario, .. }: &ScenarioFile) -> Value {
    json!({
        "file": path.display().to_string(),
        "name": scenario.name,
        "about": scenario.about,
        "duration_ns": scenario.duration.as_nanos(),
        "seeds": scenario.seeds,
        "paths": scenario.path_names(&scenario.all_paths()),
        "links": scenario.links.len(),
        "workload": scenario.parts.len(),
        "faults": scenario.faults.len(),
        "checks": scenario.checks.len(),
    })
}

fn problems_json(error: &FileError) -> Vec<Value> {
    match error {
        FileError::Unreadable { path, message } => {
            vec![json!({ "file": path.display().to_string(), "line": null, "key": null, "message": message })]
        }
        FileError::Result { path, .. } => {
            let message = error.to_string();
            vec![json!({ "file": path.display().to_string(), "line": null, "key": null, "message": message })]
        }
        FileError::Wrong(error) => {
            let problem = |problem: &scenario::parse::Problem| {
                let key = (!problem.key.is_empty()).then_some(&problem.key);
                json!({ "file": error.file, "line": problem.line, "key": key, "message": problem.message })
            };
            error.problems.iter().map(problem).collect()
        }
    }
}

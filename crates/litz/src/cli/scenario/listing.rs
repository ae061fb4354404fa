//! What files say, without running them: for people, or as JSON (`docs/spec/scenario.md`).

use serde_json::{Value, json};

use super::super::{exit, out};
use super::files::{FileError, Found, ScenarioFile};
use super::{Failure, failed};

/// What `format` says.
const FORMAT: &str = "litz-scenario-list";
/// What `version` says.
const FORMAT_VERSION: u32 = 1;

/// Shows what was found: `text` for people, all of it as JSON; and what is wrong.
///
/// # Errors
/// For people, all that is wrong with any file. As JSON that is among the rest, and only the status says it again.
pub(super) fn show(found: Found, json: bool, text: fn(&[ScenarioFile]) -> String) -> Result<u8, Failure> {
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

/// A line for each file: what is in it.
pub(super) fn check(files: &[ScenarioFile]) -> String {
    let line = |ScenarioFile { path, scenario, .. }: &ScenarioFile| {
        let (links, faults, checks) = (scenario.links.len(), scenario.faults.len(), scenario.checks.len());
        format!("{}: {links} links, {faults} faults, {checks} checks\n", path.display())
    };
    files.iter().map(line).collect()
}

/// A line for each scenario: its name and what it is about.
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
        FileError::Unreadable { path, words } => {
            vec![json!({ "file": path.display().to_string(), "line": null, "key": null, "message": words })]
        }
        FileError::Wrong(error) => {
            let problem = |problem: &scenario::parse::Problem| {
                let key = (!problem.key.is_empty()).then_some(&problem.key);
                json!({ "file": error.file, "line": problem.line, "key": key, "message": problem.words })
            };
            error.problems.iter().map(problem).collect()
        }
    }
}

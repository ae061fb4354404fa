//! Scenario files and the traces beside them.

use std::path::{Path, PathBuf};

use netem::Trace;
use scenario::model::Scenario;
use scenario::parse::{FILE_BYTES_MAX, parse};

/// A file and what it says.
pub(super) struct ScenarioFile {
    pub(super) path: PathBuf,
    pub(super) scenario: Scenario,
}

/// The scenarios of these files, and of all `.toml` files in these folders, by name.
///
/// # Errors
/// All that is wrong with any of them, in words, a line each.
pub(super) fn read_all<'a>(paths: impl IntoIterator<Item = &'a Path>) -> Result<Vec<ScenarioFile>, String> {
    let mut files = Vec::new();
    for path in paths {
        if path.is_dir() {
            files.extend(in_folder(path)?);
        } else {
            files.push(path.to_owned());
        }
    }
    let mut errors = Vec::new();
    let mut read = Vec::new();
    for path in files {
        match read_file(&path) {
            Ok(scenario) => read.push(ScenarioFile { path, scenario }),
            Err(error) => errors.push(error),
        }
    }
    if errors.is_empty() { Ok(read) } else { Err(errors.join("\n")) }
}

fn in_folder(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let error = |error| format!("cannot read the folder {}: {error}", folder.display());
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(error)? {
        let path = entry.map_err(error)?.path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            found.push(path);
        }
    }
    if found.is_empty() {
        return Err(format!("there is no scenario (a .toml file) in the folder {}", folder.display()));
    }
    found.sort();
    Ok(found)
}

fn read_file(path: &Path) -> Result<Scenario, String> {
    let text = read_text(path, FILE_BYTES_MAX as u64)?;
    let beside = path.parent().unwrap_or(Path::new(""));
    let trace = |name: &str| -> Result<Trace, String> {
        let path = beside.join(name);
        let text = read_text(&path, TRACE_BYTES_MAX)?;
        text.parse().map_err(|error| format!("{}: {error}", path.display()))
    };
    parse(&path.display().to_string(), &text, &trace).map_err(|error| error.to_string())
}

/// Longer than any trace that is taken.
const TRACE_BYTES_MAX: u64 = 11 * netem::OPPORTUNITIES_MAX as u64;

fn read_text(path: &Path, len_max: u64) -> Result<String, String> {
    let error = |error| format!("cannot read {}: {error}", path.display());
    if std::fs::metadata(path).map_err(error)?.len() > len_max {
        return Err(format!("{} is longer than {len_max} bytes", path.display()));
    }
    std::fs::read_to_string(path).map_err(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_that_is_wrong_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let good = "version = 1\n[scenario]\nname = 'x'\nabout = 'x'\nduration = '1s'\n\
                    [[link]]\nname = 'a'\ntrace = 'a.trace'\n[[workload]]\nkind = 'stream'\n";
        std::fs::write(folder.path().join("good.toml"), good).expect("written");
        std::fs::write(folder.path().join("other.txt"), "no scenario").expect("written");
        std::fs::write(folder.path().join("a.trace"), "1\n2\n").expect("written");
        let read = read_all([folder.path()]).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!((read.len(), read[0].scenario.name.as_str()), (1, "x"));

        std::fs::write(folder.path().join("bad.toml"), good.replace("kind", "kin")).expect("written");
        std::fs::write(folder.path().join("a.trace"), "1\nx\n").expect("written");
        let error = read_all([folder.path()]).err().expect("both are wrong");
        for words in ["bad.toml:10: workload.kin: unknown key", "good.toml:8: link.trace: ", "line 2 of the trace"] {
            assert!(error.contains(words), "{error}");
        }
        let error = read_all([Path::new("/nowhere/x.toml")]).err().expect("it is not there");
        assert!(error.contains("/nowhere/x.toml"), "{error}");
    }
}

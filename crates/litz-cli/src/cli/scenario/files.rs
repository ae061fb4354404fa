//! Scenario files and the link traces that they name; the shipped scenarios, by their names.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use netem::Trace;
use scenario::model::Scenario;
use scenario::parse::{FILE_BYTES_MAX, ParseError, parse};
use scenario::shipped::{self, Shipped};

use super::super::bounded::{read_text, read_trace};

/// A scenario file and its contents.
pub(super) struct ScenarioFile {
    /// The path, or the name of a shipped scenario.
    pub(super) path: PathBuf,
    pub(super) scenario: Scenario,
    /// BLAKE3 hash of the file and of the traces that it names, each once, in the order of their
    /// first mention.
    pub(super) digest: String,
}

/// Why a file could not be loaded.
pub(super) enum FileError {
    /// The file cannot be read.
    Unreadable { path: PathBuf, message: String },
    /// The contents are invalid.
    Wrong(ParseError),
    /// The file is a result of this command: the format, if it is named.
    Result { path: PathBuf, format: Option<String> },
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { path, message } => write!(f, "cannot read {}: {message}", path.display()),
            Self::Wrong(error) => error.fmt(f),
            Self::Result { path, format } => {
                let path = path.display();
                match format.as_deref() {
                    Some("litz-profile") => write!(
                        f,
                        "{path} is a profile, not a scenario: name it with --profile {path}, and a scenario before it"
                    ),
                    Some(format) => write!(f, "{path} is a result ({format}), not a scenario file"),
                    None => write!(f, "{path} is JSON: a scenario file is TOML (docs/spec/scenario.md)"),
                }
            }
        }
    }
}

/// The loaded scenarios, and the errors of the other files.
pub(super) struct LoadedFiles {
    pub(super) files: Vec<ScenarioFile>,
    pub(super) errors: Vec<FileError>,
}

impl LoadedFiles {
    /// The scenarios, if all files could be loaded.
    ///
    /// # Errors
    /// All errors of all files, one per line.
    pub(super) fn all(self) -> Result<Vec<ScenarioFile>, String> {
        if self.errors.is_empty() {
            return Ok(self.files);
        }
        let messages: Vec<_> = self.errors.iter().map(FileError::to_string).collect();
        Err(messages.join("\n"))
    }

    fn read(&mut self, path: PathBuf) {
        match read_file(&path) {
            Ok((scenario, digest)) => self.files.push(ScenarioFile { path, scenario, digest }),
            Err(error) => self.errors.push(error),
        }
    }
}

/// Loads all shipped scenarios.
pub(super) fn read_shipped() -> LoadedFiles {
    read_all(shipped::SHIPPED.iter().map(|shipped| Path::new(shipped.name)))
}

/// Loads these files, and all `.toml` files in these folders, sorted by name. A name without a file
/// is that of a shipped scenario.
pub(super) fn read_all<'a>(paths: impl IntoIterator<Item = &'a Path>) -> LoadedFiles {
    let mut found = LoadedFiles { files: Vec::new(), errors: Vec::new() };
    for path in paths {
        match if path.is_dir() { in_folder(path) } else { Ok(vec![path.to_owned()]) } {
            Ok(paths) => paths.into_iter().for_each(|path| found.read(path)),
            Err(error) => found.errors.push(error),
        }
    }
    found
}

fn in_folder(folder: &Path) -> Result<Vec<PathBuf>, FileError> {
    let unreadable = |message: String| FileError::Unreadable { path: folder.to_owned(), message };
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(|error| unreadable(error.to_string()))? {
        let path = entry.map_err(|error| unreadable(error.to_string()))?.path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            found.push(path);
        }
    }
    if found.is_empty() {
        return Err(unreadable("this folder contains no scenario (.toml file)".to_owned()));
    }
    found.sort();
    Ok(found)
}

/// Loads a scenario; also returns the hash of the file.
///
/// # Errors
/// A message for the user.
pub(crate) fn read_one(path: &Path) -> Result<(Scenario, String), String> {
    read_file(path).map_err(|error| error.to_string())
}

fn read_file(path: &Path) -> Result<(Scenario, String), FileError> {
    if let Some(shipped) = shipped_at(path) {
        let trace = |name: &str| shipped::trace(name).map(str::to_owned).ok_or_else(|| format!("there is no {name}"));
        return read_scenario(shipped.name, shipped.text, trace);
    }
    let text = read_text(path, FILE_BYTES_MAX as u64).map_err(|error| {
        let hint = if error.kind() == ErrorKind::NotFound { hint(path) } else { String::new() };
        FileError::Unreadable { path: path.to_owned(), message: format!("{error}{hint}") }
    })?;
    // Results begin like this. No scenario does.
    if text.trim_start().starts_with('{') {
        let json: Option<serde_json::Value> = serde_json::from_str(&text).ok();
        let format = json.and_then(|json| json["format"].as_str().map(str::to_owned));
        return Err(FileError::Result { path: path.to_owned(), format });
    }
    let folder = path.parent().unwrap_or(Path::new(""));
    let trace = |name: &str| {
        let path = folder.join(name);
        read_trace(&path).map_err(|error| format!("cannot read {}: {error}", path.display()))
    };
    read_scenario(&path.display().to_string(), &text, trace)
}

/// The shipped scenario with this name, unless a file has it.
fn shipped_at(path: &Path) -> Option<&'static Shipped> {
    if path.exists() {
        return None;
    }
    // A path with a folder is not equal to any name.
    path.to_str().and_then(shipped::find)
}

/// How to name a shipped scenario, for the error about a file that is not there.
fn hint(path: &Path) -> String {
    let named = path.file_stem().and_then(|stem| stem.to_str()).and_then(shipped::find);
    named.map_or_else(
        || "; `litz scenario list` names the shipped scenarios".to_owned(),
        |shipped| format!("; a shipped scenario has the name {}", shipped.name),
    )
}

/// Parses a scenario; also returns the hash of its text and of the traces that it names, which `read`
/// reads.
fn read_scenario(
    file: &str,
    text: &str,
    read: impl Fn(&str) -> Result<String, String>,
) -> Result<(Scenario, String), FileError> {
    let digest = RefCell::new(blake3::Hasher::new());
    digest.borrow_mut().update(text.as_bytes());
    // Clones of a trace share its data, so each trace is in memory once.
    let known: RefCell<BTreeMap<String, Trace>> = RefCell::default();
    let trace = |name: &str| -> Result<Trace, String> {
        if let Some(trace) = known.borrow().get(name) {
            return Ok(trace.clone());
        }
        let text = read(name)?;
        digest.borrow_mut().update(text.as_bytes());
        let trace: Trace = text.parse().map_err(|error| format!("{name}: {error}"))?;
        known.borrow_mut().insert(name.to_owned(), trace.clone());
        Ok(trace)
    };
    let scenario = parse(file, text, &trace).map_err(FileError::Wrong)?;
    let digest = digest.borrow().finalize().to_hex().to_string();
    Ok((scenario, digest))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "version = 1\n[scenario]\nname = 'x'\nabout = 'x'\nduration = '1s'\n\
                        [[link]]\nname = 'a'\ntrace = 'a.trace'\n[[workload]]\nkind = 'stream'\n";

    fn wrong(path: &Path) -> String {
        read_all([path]).all().err().expect("an error")
    }

    #[test]
    fn every_invalid_file_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("good.toml"), GOOD).expect("written");
        std::fs::write(folder.path().join("other.txt"), "no scenario").expect("written");
        std::fs::write(folder.path().join("a.trace"), "1\n2\n").expect("written");
        let read = read_all([folder.path()]).all().unwrap_or_else(|error| panic!("{error}"));
        assert_eq!((read.len(), read[0].scenario.name.as_str()), (1, "x"));

        std::fs::write(folder.path().join("bad.toml"), GOOD.replace("kind", "kin")).expect("written");
        std::fs::write(folder.path().join("a.trace"), "1\nx\n").expect("written");
        let error = wrong(folder.path());
        for message in ["bad.toml:10: workload.kin: unknown key", "good.toml:8: link.trace: ", "line 2 of the trace"] {
            assert!(error.contains(message), "{error}");
        }
        assert!(wrong(Path::new("/nowhere/x.toml")).contains("/nowhere/x.toml"));
    }

    /// Reading a pipe without a writer, or a device without an end, would hang this test.
    #[test]
    fn special_files_are_refused_without_reading() {
        let folder = tempfile::tempdir().expect("a folder");
        let pipe = folder.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo runs").success());
        for path in [Path::new("/dev/zero"), &pipe] {
            assert!(wrong(path).contains("it is not a regular file"), "{}", wrong(path));
        }
        let file = folder.path().join("x.toml");
        std::fs::write(&file, GOOD.replace("a.trace", "pipe")).expect("written");
        let error = wrong(&file);
        assert!(error.contains("x.toml:8: link.trace: ") && error.contains("it is not a regular file"), "{error}");
        std::fs::write(&file, GOOD.replace("a.trace", "/dev/zero")).expect("written");
        let error = wrong(&file);
        assert!(
            error.contains("x.toml:8: link.trace: \"/dev/zero\" must name a file in this file's folder"),
            "{error}"
        );
    }
}

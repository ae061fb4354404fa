//! Runs commands to their end, and reads their results.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

/// Runs a command to its end; returns its output, and the text of both streams, standard output
/// first.
pub(crate) fn run(command: &mut Command) -> (Output, String) {
    let output = command.output().expect("the command starts");
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    (output, text)
}

/// Runs a measurement with increasing values of `--time`, because on a busy machine a short run may
/// end before the handshake or before data is transferred. Any other error is a failure.
pub(crate) fn run_long_enough(times: &[&str], measure: impl Fn(&str) -> Output) -> Output {
    let attempt = |time: &&str| {
        let output = measure(&format!("--time={time}"));
        let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let is_too_short = text.contains("a run was too short to ") || text.contains("not established in time");
        assert!(output.status.success() || is_too_short, "{time}: {text}");
        output.status.success().then_some(output)
    };
    times.iter().find_map(attempt).unwrap_or_else(|| panic!("no run of {times:?} transferred data"))
}

/// The names of the files in a folder, sorted.
pub(crate) fn names(folder: &Path) -> Vec<String> {
    let entries = folder.read_dir().expect("a folder").map(|entry| entry.expect("an entry").file_name());
    let mut names: Vec<_> = entries.map(|name| name.into_string().expect("a plain name")).collect();
    names.sort();
    names
}

/// The JSON value in a command's output or in a file.
pub(crate) fn json(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).expect("it is JSON")
}

pub(crate) fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("not a number: {value}"))
}

pub(crate) fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap_or_else(|| panic!("not a list: {value}"))
}

/// Whether two numbers are equal but for rounding.
pub(crate) fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-6 * (1.0 + a.abs().max(b.abs()))
}

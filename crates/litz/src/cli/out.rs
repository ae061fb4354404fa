//! Where the command speaks: results on standard output, words about them on standard error.
//!
//! Neither may take the command down. A reader that has gone (`litz paths ... | head -1`) wants no more: nothing more is
//! written, and nothing is said. Any other failure, such as a full disk, is told and ends the command with status 2, once
//! its work is done: see [`conclude`].

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::OnceLock;

use serde_json::Value;

use super::exit;

/// The first failure of standard output. There is one standard output, so there is one of these.
static FAILURE: OnceLock<io::Error> = OnceLock::new();

/// Writes text to standard output, as it is and at once.
pub(crate) fn print(text: &str) {
    if FAILURE.get().is_none() {
        note_failure(write_all(text));
    }
}

/// Remembers that something could not be written, if so.
pub(crate) fn note_failure(written: io::Result<()>) {
    if let Err(error) = written {
        // Another thread's failure is as good as ours.
        let _first = FAILURE.set(error);
    }
}

/// Writes a line to standard output.
pub(crate) fn line(text: &str) {
    print(&format!("{text}\n"));
}

/// Writes a JSON value as a line to standard output.
pub(crate) fn json(value: &Value) {
    line(&value.to_string());
}

/// Writes a line to standard error. If that fails, there is nobody left to tell.
pub(crate) fn note(text: &str) {
    let _written = io::stderr().lock().write_all(format!("{text}\n").as_bytes());
}

/// Whether standard output takes no more: what only writes to it may as well end.
pub(crate) fn has_failed() -> bool {
    FAILURE.get().is_some()
}

/// Why standard output takes no more, for those who cannot go on without it.
///
/// # Errors
/// In words for the user.
pub(crate) fn check() -> Result<(), String> {
    FAILURE.get().map_or(Ok(()), |error| Err(words(error)))
}

/// The command's last step: its own status, unless some of its output is lost to another fault than a reader that has gone.
pub(crate) fn conclude(status: ExitCode) -> ExitCode {
    match FAILURE.get() {
        Some(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            note(&format!("litz: {}", words(error)));
            ExitCode::from(exit::FAILED)
        }
        _ => status,
    }
}

fn words(error: &io::Error) -> String {
    format!("cannot write to standard output: {error}")
}

fn write_all(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

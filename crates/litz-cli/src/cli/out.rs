//! Output: results go to standard output, messages about them to standard error. A failing stream
//! must not crash the command. If the reader has closed the pipe (`litz paths ... | head -1`), the
//! rest of the output is discarded without a message. Any other failure, such as a full disk, is
//! reported, and the command ends with status 2 once its work is done: see [`conclude`].

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;

use super::exit;

/// The first failure of standard output. It is global, as standard output is.
static FAILURE: OnceLock<io::Error> = OnceLock::new();

/// Results go to standard error, because received data goes to standard output.
static IS_REDIRECTED: AtomicBool = AtomicBool::new(false);

/// From now on, results go to standard error.
pub(crate) fn redirect() {
    IS_REDIRECTED.store(true, Ordering::Relaxed);
}

/// Writes text to standard output unchanged and flushes it.
pub(crate) fn print(text: &str) {
    if FAILURE.get().is_none() {
        note_failure(write_all(text));
    }
}

/// Records the failure if a write failed.
pub(crate) fn note_failure(written: io::Result<()>) {
    if let Err(error) = written {
        // If another thread has recorded a failure, that one is kept.
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

/// Writes a line to standard error. A failure cannot be reported and is ignored.
pub(crate) fn note(text: &str) {
    let _written = io::stderr().lock().write_all(format!("{text}\n").as_bytes());
}

/// Whether standard output has failed. A command that only writes to it may end.
pub(crate) fn has_failed() -> bool {
    FAILURE.get().is_some()
}

/// Checks standard output, for callers that cannot continue without it.
///
/// # Errors
/// A message for the user.
pub(crate) fn check() -> Result<(), String> {
    FAILURE.get().map_or(Ok(()), |error| Err(to_message(error)))
}

/// The last step of the command: returns `status`, or a failure if output was lost for another
/// reason than a closed pipe.
pub(crate) fn conclude(status: ExitCode) -> ExitCode {
    match FAILURE.get() {
        Some(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            note(&format!("litz: {}", to_message(error)));
            ExitCode::from(exit::FAILED)
        }
        _ => status,
    }
}

fn to_message(error: &io::Error) -> String {
    format!("cannot write to standard output: {error}")
}

fn write_all(text: &str) -> io::Result<()> {
    if IS_REDIRECTED.load(Ordering::Relaxed) {
        return io::stderr().lock().write_all(text.as_bytes());
    }
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

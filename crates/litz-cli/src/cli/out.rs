//! Output: results go to standard output, messages about them to standard error. A failing stream
//! must not crash the command. If the reader has closed the pipe (`litz paths ... | head -1`), the
//! rest of the output is discarded without a message. Any other failure, such as a full disk, is
//! reported, and the command ends with status 2 once its work is done: see [`conclude`].

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;

use super::exit;
use super::standard_streams::{Log, Stream};

/// The first failure of standard output. It is global, as standard output is.
static FAILURE: OnceLock<io::Error> = OnceLock::new();

/// Results go to standard error, because received data goes to standard output.
static IS_REDIRECTED: AtomicBool = AtomicBool::new(false);

/// Only errors are written, and nothing is waited for: the reader may be a connection that has died silently.
static IS_ERRORS_ONLY: AtomicBool = AtomicBool::new(false);

/// From now on, results go to standard error.
pub(crate) fn redirect() {
    IS_REDIRECTED.store(true, Ordering::Relaxed);
}

/// From now on, the only JSON values that are written are errors, and whatever the reader does not take
/// within a second is lost.
pub(crate) fn only_errors() {
    IS_ERRORS_ONLY.store(true, Ordering::Relaxed);
}

fn is_errors_only() -> bool {
    IS_ERRORS_ONLY.load(Ordering::Relaxed)
}

/// Writes text to standard output unchanged. Waits for a slow reader.
pub(crate) fn print(text: &str) {
    if is_errors_only() {
        stream().offer_text(text);
    } else if FAILURE.get().is_none()
        && let Err(error) = stream().write_text(text)
    {
        // If another thread has recorded a failure, that one is kept.
        let _first = FAILURE.set(error);
    }
}

/// Whether a result can be written without waiting for its reader. A result that the next one replaces
/// is left out otherwise.
pub(crate) fn is_ready() -> bool {
    !is_errors_only() && stream().is_ready()
}

/// Whether results go to a terminal.
pub(crate) fn is_terminal() -> bool {
    match stream() {
        Stream::Output => io::stdout().is_terminal(),
        Stream::Error => io::stderr().is_terminal(),
    }
}

/// Writes a line to standard output.
pub(crate) fn line(text: &str) {
    print(&format!("{text}\n"));
}

/// Writes a JSON value as a line to standard output.
pub(crate) fn json(value: &Value) {
    if !is_errors_only() || value["event"] == "error" {
        line(&value.to_string());
    }
}

/// Writes a line to standard error. A failure cannot be reported and is ignored. If the reader takes
/// nothing, the line is lost.
pub(crate) fn note(text: &str) {
    Stream::Error.offer_text(&format!("{text}\n"));
}

/// As [`note`], and waits for the reader: the last line of a command that fails.
pub(crate) fn last_note(text: &str) {
    if is_errors_only() {
        return note(text);
    }
    let _written = Stream::Error.write_text(&format!("{text}\n"));
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
    Log::flush();
    match FAILURE.get() {
        // After an interrupt, a reader that takes nothing is not waited for.
        Some(error) if !matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::TimedOut) => {
            last_note(&format!("litz: {}", to_message(error)));
            ExitCode::from(exit::FAILED)
        }
        _ => status,
    }
}

fn to_message(error: &io::Error) -> String {
    format!("cannot write to standard output: {error}")
}

fn stream() -> Stream {
    if IS_REDIRECTED.load(Ordering::Relaxed) { Stream::Error } else { Stream::Output }
}

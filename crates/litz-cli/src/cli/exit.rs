//! Exit statuses, as the help text documents them.

use std::process::ExitCode;

use super::out;

/// All files are complete and verified.
pub(crate) const DONE: u8 = 0;
/// The transfer finished, but some files failed or were skipped.
pub(crate) const INCOMPLETE: u8 = 1;
/// The command failed, or the transfer was aborted.
pub(crate) const FAILED: u8 = 2;
/// Ended by Ctrl-C or a termination signal: the status that shells report.
pub(crate) const INTERRUPTED: u8 = 130;

/// The end of the help text.
pub(crate) const HELP: &str = "\
Exit status:
  0    all files are complete and verified
  1    the transfer finished, but some files failed or were skipped
  2    an error: bad arguments, no connection, refused ticket, aborted transfer
  130  interrupted; run the same command again to resume

Environment:
  LITZ_TICKET     the ticket, if no argument gives one
  XDG_STATE_HOME  keys and tickets are in its folder litz [default: ~/.local/state]
  SSLKEYLOGFILE   write TLS secrets to this file, for Wireshark
  RUST_LOG        log filter, with -v";

/// Prints the error as the last line on standard error, or as the last JSON event, and returns the
/// exit code.
pub(crate) fn fail(json: bool, status: u8, message: &str) -> ExitCode {
    report(json, status, message);
    ExitCode::from(status)
}

pub(crate) fn report(json: bool, status: u8, message: &str) {
    if json {
        out::json(&serde_json::json!({ "event": "error", "status": status, "message": message }));
    } else {
        out::note(&format!("litz: {message}"));
    }
}

/// Prints advice: a setting that the user may want to change.
pub(crate) fn advise(quiet: bool, text: &str) {
    if !quiet {
        out::note(&format!("note: {text}"));
    }
}

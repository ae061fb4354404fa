//! Exit statuses, as the help text documents them.

use std::process::ExitCode;

use super::out;

/// Everything is in place.
pub(crate) const DONE: u8 = 0;
/// The transfer ran to its end, and something in it failed or was skipped.
pub(crate) const INCOMPLETE: u8 = 1;
/// Nothing could be done, or the transfer broke off.
pub(crate) const FAILED: u8 = 2;
/// Ended by Ctrl-C or a termination signal, as shells number it.
pub(crate) const INTERRUPTED: u8 = 130;

/// For the end of the help text.
pub(crate) const HELP: &str = "\
Exit status:
  0    everything is in place, verified
  1    the transfer ran to its end, but something in it failed or was skipped
  2    an error: bad arguments, no connection, refused ticket, broken off
  130  interrupted; the same command goes on from there

Environment:
  XDG_STATE_HOME   keys and tickets live in its folder litz (default ~/.local/state/litz)
  SSLKEYLOGFILE    write TLS secrets there, so that Wireshark can decrypt captures
  RUST_LOG         which traces to print, with -v";

/// The error as the last line on standard error (and as the last JSON event), and the status.
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

/// Something the user may want to change, for the way things are.
pub(crate) fn advise(quiet: bool, text: &str) {
    if !quiet {
        out::note(&format!("note: {text}"));
    }
}

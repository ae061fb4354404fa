//! Exit statuses, as the help text documents them.

use std::process::ExitCode;

use super::out;

/// All is done. Of a transfer: all files are complete and verified.
pub(crate) const DONE: u8 = 0;
/// The command finished, but with less than it should. Of a transfer: some files failed or were skipped.
pub(crate) const INCOMPLETE: u8 = 1;
/// The command failed, or the transfer was aborted.
pub(crate) const FAILED: u8 = 2;
/// Ended by Ctrl-C or a termination signal: the status that shells report.
pub(crate) const INTERRUPTED: u8 = 130;

macro_rules! environment {
    () => {
        "

Environment:
  LITZ_TICKET     the ticket, if no argument gives one
  XDG_STATE_HOME  keys and tickets are in its folder litz [default: ~/.local/state]
  SSLKEYLOGFILE   write TLS secrets to this file, for Wireshark
  RUST_LOG        log filter, with -v"
    };
}

/// The end of the help text of all commands together.
pub(crate) const HELP: &str = concat!(
    "\
Exit status, as the help of each command says in detail:
  0    done
  1    done in part, or a check does not hold
  2    an error: bad arguments, no connection, refused ticket
  130  interrupted",
    environment!()
);

/// The end of the help text of transfers.
pub(crate) const TRANSFER_HELP: &str = concat!(
    "\
Exit status:
  0    all files are complete and verified
  1    the transfer finished, but some files failed or were skipped
  2    an error: bad arguments, no connection, refused ticket, aborted transfer
  130  interrupted; run the same command again to resume",
    environment!()
);

/// Prints the error as the last line on standard error, or as the last JSON event, and returns the
/// exit code.
pub(crate) fn fail(json: bool, status: u8, message: &str) -> ExitCode {
    if json {
        report(json, status, message);
    } else {
        out::last_note(&format!("litz: {message}"));
    }
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

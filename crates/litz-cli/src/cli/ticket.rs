//! The ticket as a command-line argument.

use std::ffi::OsStr;

use transfer::Ticket;

use super::host;

/// Reads the ticket from the last argument.
///
/// # Errors
/// A message for the user.
pub(crate) fn read(argument: &OsStr) -> Result<Ticket, String> {
    let text = argument.to_str().ok_or_else(|| "the last argument must be the ticket".to_owned())?;
    text.parse().map_err(|error| format!("the last argument must be the ticket that `litz recv` printed: {error}"))
}

/// Refuses an expired ticket before connecting.
///
/// # Errors
/// If the ticket has expired: a message for the user.
pub(crate) fn refuse_expired(ticket: &Ticket) -> Result<(), String> {
    if ticket.is_expired(host::now_unix()) {
        return Err("the ticket has expired: ask the receiver for a new one".to_owned());
    }
    Ok(())
}

//! The ticket as a user pastes it.

use std::ffi::OsStr;

use litz::identity::Ticket;

use super::host;

/// Reads the ticket from the last argument.
///
/// # Errors
/// In words for the user.
pub(crate) fn read(argument: &OsStr) -> Result<Ticket, String> {
    let text = argument.to_str().ok_or_else(|| "the last argument must be the ticket".to_owned())?;
    text.parse().map_err(|error| format!("the last argument must be the ticket that `litz recv` printed: {error}"))
}

/// Tells early what the receiver would say.
///
/// # Errors
/// If the ticket has expired; in words for the user.
pub(crate) fn refuse_expired(ticket: &Ticket) -> Result<(), String> {
    if ticket.is_expired(host::now_unix()) {
        return Err("the ticket has expired: ask the receiver for a new one".to_owned());
    }
    Ok(())
}

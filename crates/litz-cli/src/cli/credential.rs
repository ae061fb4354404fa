//! How a command authenticates to the host that it connects to: by a ticket's secret, or by its own key.

use std::ffi::OsStr;
use std::path::PathBuf;

use clap::Args;
use transfer::Ticket;

use super::heading;
use super::ticket::TicketOptions;

#[derive(Args, Debug, Clone, Default)]
pub(crate) struct CredentialOptions {
    #[command(flatten)]
    pub(crate) ticket: TicketOptions,

    /// Authenticate with this host's key, which `litz id` prints, instead of with a ticket secret; for
    /// a host that runs with --allow
    #[arg(long, help_heading = heading::SECURITY)]
    pub(crate) by_key: bool,
}

impl CredentialOptions {
    /// The ticket and the paths of the arguments, of which the last may be the ticket.
    ///
    /// # Errors
    /// A message for the user.
    pub(crate) fn split<'a>(&self, arguments: &'a [PathBuf]) -> Result<(Ticket, &'a [PathBuf]), String> {
        self.ticket.split(arguments)
    }

    /// The ticket of a command whose only argument it is. `printed_by` is the command that prints such
    /// tickets.
    ///
    /// # Errors
    /// As [`split`](Self::split).
    pub(crate) fn only(&self, argument: Option<&OsStr>, printed_by: &str) -> Result<Ticket, String> {
        self.ticket.only(argument, printed_by)
    }
}

//! The server of a client, and the right to use it.

use forward::policy::Policy;
use transfer::Ticket;

use crate::cli::forward::daemon::servers::{ListedServer, PRINTED_BY};
use crate::cli::forward::options::ServerOptions;

/// The server, and the right to use it.
pub(in crate::cli::forward) struct Access {
    /// For the user, if it is one of a list.
    pub(in crate::cli::forward) name: Option<String>,
    pub(super) ticket: Ticket,
    /// The server knows this host's key, and no secret is proven.
    pub(super) by_key: bool,
}

impl Access {
    /// That of the options.
    pub(in crate::cli::forward) fn of(server: &ServerOptions) -> Result<Self, String> {
        let credential = &server.credential;
        let ticket = credential.only(server.ticket.as_deref(), PRINTED_BY)?;
        Ok(Self { name: None, ticket, by_key: credential.by_key })
    }

    /// That of a list, and what goes there.
    pub(in crate::cli::forward) fn listed(server: ListedServer) -> (Self, Option<Policy>) {
        let ListedServer { name, ticket, by_key, rules } = server;
        (Self { name: Some(name), ticket, by_key }, Some(rules))
    }

    /// Whether it is one of a list.
    pub(super) const fn is_listed(&self) -> bool {
        self.name.is_some()
    }
}

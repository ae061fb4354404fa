//! How a receiver authorises senders: by a ticket that it serves, or by a list of keys.

use std::path::Path;
use std::sync::Arc;

use transfer::StoreError;
use transfer::store::{Issued, Serving};

use super::admission::Visitors;
use super::allowed::AllowedKeys;
use super::served_ticket::ServedTicket;
use crate::cli::args::RecvOptions;
use crate::cli::host::HostState;
use crate::cli::warning::Warning;

/// How senders are authorised.
pub(crate) enum Admission {
    Ticket(Box<ServedTicket>),
    Keys(Arc<AllowedKeys>),
}

impl Admission {
    /// By the list of keys, the unfinished ticket or a new ticket.
    pub(crate) fn prepare(
        options: &RecvOptions,
        state: &HostState,
        now: u64,
        directory: &Path,
        port: u16,
        unfinished: Option<(Issued, Serving)>,
    ) -> Result<Self, String> {
        if let Some(path) = &options.allow {
            let keys = AllowedKeys::load(path)?;
            if let Some(note) = keys.emptiness_note() {
                Warning::AllowedKeys.print(options.transport.json, options.transport.quiet, &note);
            }
            return Ok(Self::Keys(Arc::new(keys)));
        }
        let failed = |error: StoreError| error.to_string();
        let store = &state.store;
        let (issued, serving) = match unfinished {
            Some((issued, serving)) => {
                store.set_port(&issued.id, port).map_err(failed)?;
                (issued, serving)
            }
            None => {
                // Otherwise a sender with an old ticket could still send into this directory.
                if options.output.is_none() {
                    store.revoke_unfinished(now, directory).map_err(failed)?;
                }
                let expires = now.saturating_add(options.expires.as_millis().div_ceil(1000));
                let issued = store.issue(now, directory, port, expires).map_err(failed)?;
                let serving = store.serve(&issued.id).map_err(failed)?;
                (issued, serving)
            }
        };
        Ok(Self::Ticket(Box::new(ServedTicket::new(store.clone(), issued, serving))))
    }

    pub(crate) fn visitors(&self) -> Visitors {
        match self {
            Self::Ticket(_) => Visitors::of_ticket(),
            Self::Keys(_) => Visitors::of_keys(),
        }
    }
}

/// The unfinished ticket of this directory, which this receiver serves from now on; none with
/// --allow or --new-ticket.
pub(crate) fn unfinished_ticket(
    options: &RecvOptions,
    state: &HostState,
    now: u64,
    directory: &Path,
) -> Result<Option<(Issued, Serving)>, String> {
    if options.allow.is_some() || options.new_ticket || options.output.is_some() {
        return Ok(None);
    }
    let newest = state.store.usable(now, directory).map_err(|error| error.to_string())?.pop();
    let serve = |issued: Issued| state.store.serve(&issued.id).map(|serving| (issued, serving));
    newest.map(serve).transpose().map_err(|error| error.to_string())
}

//! The ticket that a receiver serves, and what happens to it in the store meanwhile.

use std::sync::{Mutex, MutexGuard, PoisonError};

use litz::identity::PublicKey;
use transfer::TicketStore;
use transfer::store::{Issued, Serving};

use super::file_watch::FileWatch;
use crate::cli::host;

/// A ticket that this process serves.
pub(crate) struct ServedTicket {
    /// As it was when the receiver started.
    pub(crate) issued: Issued,
    store: TicketStore,
    state: Mutex<State>,
    /// While it exists, no other receiver serves the ticket.
    _serving: Serving,
}

struct State {
    watch: FileWatch,
    bound: Option<PublicKey>,
    is_revoked: bool,
}

impl ServedTicket {
    pub(crate) fn new(store: TicketStore, issued: Issued, serving: Serving) -> Self {
        let watch = FileWatch::new(store.path().to_owned());
        let state = State { watch, bound: issued.bound, is_revoked: false };
        Self { issued, store, state: Mutex::new(state), _serving: serving }
    }

    /// The only key that may use the ticket; none before its first use.
    pub(crate) fn bound(&self) -> Option<PublicKey> {
        self.refreshed().bound
    }

    /// Whether the ticket was removed from the store before it expired. Expired tickets are
    /// removed in any case.
    pub(crate) fn is_revoked(&self) -> bool {
        self.refreshed().is_revoked && !self.is_expired()
    }

    pub(crate) fn is_expired(&self) -> bool {
        self.issued.is_expired(host::ticket_clock())
    }

    /// The state, read again if the store's file may have changed. While the file cannot be read,
    /// the last state stays: a proof is refused then.
    fn refreshed(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.watch.take_change()
            && let Ok(found) = self.store.find(&self.issued.id)
        {
            state.is_revoked = found.is_none();
            state.bound = found.and_then(|ticket| ticket.bound);
        }
        state
    }
}

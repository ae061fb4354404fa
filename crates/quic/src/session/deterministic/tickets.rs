//! Tickets of deterministic sessions: what TLS keeps in the two stores of client and server.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use wire::quic::{Side, TransportParameters};

use crate::control::early::kept_limits;

/// The most tickets that are kept on each side; the oldest goes first.
const TICKETS_MAX: usize = 64;

/// The tickets of a client and the sessions that its server remembers.
#[derive(Clone, Default)]
pub struct Tickets(Arc<Mutex<Stores>>);

#[derive(Default)]
struct Stores {
    /// The client's: identifier, secret and the server's parameters.
    held: VecDeque<(u64, u64, Vec<u8>)>,
    /// The server's: identifier, secret and its parameters.
    known: VecDeque<(u64, u64, Vec<u8>)>,
}

fn push(store: &mut VecDeque<(u64, u64, Vec<u8>)>, id: u64, secret: u64, parameters: &[u8]) {
    if store.len() == TICKETS_MAX {
        store.pop_front();
    }
    store.push_back((id, secret, parameters.to_vec()));
}

impl Tickets {
    fn with<T>(&self, run: impl FnOnce(&mut Stores) -> T) -> T {
        run(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A ticket as from an earlier connection. The client remembers the server's parameters as
    /// `held`, the server as `known`: they are the same unless a test wants a server that breaks its
    /// word.
    pub fn issue(&self, id: u64, held: &[u8], known: &[u8]) {
        self.remember(id, id, known);
        self.keep(id, id, held);
    }

    /// The server forgets all sessions.
    pub fn forget(&self) {
        self.with(|stores| stores.known.clear());
    }

    /// How many tickets the client has.
    pub fn held_count(&self) -> usize {
        self.with(|stores| stores.held.len())
    }

    /// The client gets a ticket.
    pub(super) fn keep(&self, id: u64, secret: u64, parameters: &[u8]) {
        self.with(|stores| push(&mut stores.held, id, secret, parameters));
    }

    /// The client uses its latest ticket.
    pub(super) fn take(&self) -> Option<(u64, u64, Vec<u8>)> {
        self.with(|stores| stores.held.pop_back())
    }

    /// The server gives a ticket.
    pub(super) fn remember(&self, id: u64, secret: u64, parameters: &[u8]) {
        self.with(|stores| push(&mut stores.known, id, secret, parameters));
    }

    /// The secret of a ticket, once, if the server's parameters of today permit as much as those of
    /// the ticket (RFC 9000, section 7.4.1).
    pub(super) fn redeem(&self, id: u64, parameters: &[u8]) -> Option<u64> {
        let (_, secret, then) = self.with(|stores| {
            let at = stores.known.iter().position(|(known, ..)| *known == id)?;
            stores.known.remove(at)
        })?;
        let limits = |bytes: &[u8]| TransportParameters::parse(bytes, Side::Server).ok().map(|own| kept_limits(&own));
        let (then, now) = (limits(&then)?, limits(parameters)?);
        then.iter().zip(&now).all(|(then, now)| then <= now).then_some(secret)
    }
}

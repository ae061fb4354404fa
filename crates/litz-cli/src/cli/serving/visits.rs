//! The connections of a receiver's visitors, and the messages about those that were refused.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use litz::Connection;
use litz::identity::PublicKey;
use net::MonotonicClock;
use transfer::{Authoriser, CLOSE_CODE, Proof, ProofContext, Refusal};
use units::{Duration, Instant};

use super::admission::{NoPlace, VisitorId, Visitors};
use super::refusals::RefusalLimit;
use crate::cli::takeover::SUPERSEDED;

/// Why the receiver closes a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Closing {
    /// The visitor lost its place to a newer one.
    Displaced,
    /// The visitor gave no proof in time.
    Overdue,
    /// The sender got no place.
    Busy,
    /// The sender's key is not on the list any more.
    KeyRemoved,
    /// The sender has a later connection.
    Superseded,
    /// Nothing arrived from the sender.
    Silent,
    /// The receiver ends.
    Ending,
}

impl Closing {
    /// What the other host is told by `host`: a receiver, for instance.
    pub(crate) fn reason(self, host: &str) -> String {
        match self {
            Self::Displaced => format!("the {host} is busy: too many connections without a proof"),
            Self::Overdue => "no complete Hello in time".to_owned(),
            Self::Busy => format!("the {host} is busy: all its places for this sender are taken"),
            Self::KeyRemoved => format!("the {host} no longer allows this key"),
            Self::Superseded => SUPERSEDED.to_owned(),
            Self::Silent => "nothing has arrived for some time".to_owned(),
            Self::Ending => format!("the {host} ends"),
        }
    }

    /// What the receiver's user is told.
    pub(crate) const fn note(self) -> &'static str {
        match self {
            Self::Displaced => "closed for newer connections: it gave no proof yet",
            Self::Overdue => "closed: it gave no proof in time",
            Self::Busy => "all places for this sender are taken by its other transfers, or by other senders",
            Self::KeyRemoved => "ended its transfer, because its key was taken off the list",
            Self::Superseded => "a later connection of the same sender has taken over",
            Self::Silent => "closed: nothing has arrived for some time",
            Self::Ending => "closed, because this receiver ends",
        }
    }
}

/// All visitors. Shared by the threads that serve them.
pub(crate) struct Visits {
    state: Mutex<State>,
    clock: MonotonicClock,
}

struct State {
    visitors: Visitors,
    /// The connections of the visitors.
    connections: BTreeMap<VisitorId, Connection>,
    /// How many packets of each had arrived, and since when: only while silence is looked for.
    heard: BTreeMap<VisitorId, (u64, Instant)>,
    /// Of these, those that the receiver has closed.
    closings: BTreeMap<VisitorId, Closing>,
    refusals: RefusalLimit,
    /// What this host is called: see [`Closing::reason`].
    host: &'static str,
}

impl Visits {
    pub(crate) fn new(visitors: Visitors, host: &'static str) -> Self {
        let (connections, closings) = (BTreeMap::new(), BTreeMap::new());
        let heard = BTreeMap::new();
        let state = State { visitors, connections, heard, closings, refusals: RefusalLimit::default(), host };
        Self { state: Mutex::new(state), clock: MonotonicClock::start() }
    }

    /// Whether another connection may be accepted now.
    pub(crate) fn has_space(&self) -> bool {
        self.lock().visitors.has_space()
    }

    /// Gives the connection a place, if need be that of another visitor. Needs
    /// [`has_space`](Self::has_space).
    pub(crate) fn admit(&self, connection: &Connection, key: PublicKey, is_known: bool) -> VisitorId {
        let mut state = self.lock();
        let address = connection.remote_addr().ip();
        let (id, displaced) = state.visitors.on_accepted(self.clock.now(), address, key, is_known);
        state.connections.insert(id, connection.clone());
        state.close(displaced, Closing::Displaced);
        id
    }

    /// The visitor has proven its right and gets a place, unless none is left.
    pub(crate) fn prove(&self, id: VisitorId) -> Result<(), NoPlace> {
        let mut state = self.lock();
        let proven = state.visitors.on_proven(id);
        if proven == Err(NoPlace::Busy) {
            state.close([id], Closing::Busy);
        }
        proven
    }

    /// The visitor's connection has ended.
    pub(crate) fn end(&self, id: VisitorId) {
        let mut state = self.lock();
        state.visitors.on_ended(id);
        state.connections.remove(&id);
        state.heard.remove(&id);
        state.closings.remove(&id);
    }

    /// Why the receiver has closed the visitor, if it has and the visitor's thread has not ended.
    pub(crate) fn closing(&self, id: VisitorId) -> Option<Closing> {
        self.lock().closings.get(&id).copied()
    }

    /// Closes the visitors whose Hello is late.
    pub(crate) fn close_overdue(&self) {
        let mut state = self.lock();
        let overdue = state.visitors.poll_overdue(self.clock.now());
        state.close(overdue, Closing::Overdue);
    }

    /// Closes the visitors of which nothing has arrived for `silence_max`. The first call begins to look.
    pub(crate) fn close_silent(&self, silence_max: Duration) {
        let now = self.clock.now();
        let mut state = self.lock();
        let mut silent = Vec::new();
        let State { connections, heard, .. } = &mut *state;
        for (id, connection) in connections.iter() {
            let packets = connection.stats().receive.packets_received;
            let last = heard.entry(*id).or_insert((packets, now));
            if last.0 != packets {
                *last = (packets, now);
            } else if now.saturating_since(last.1) >= silence_max {
                silent.push(*id);
            }
        }
        state.close(silent, Closing::Silent);
    }

    /// Closes the visitors whose key lost the right to send.
    pub(crate) fn close_unless(&self, is_allowed: impl Fn(&PublicKey) -> bool) {
        let mut state = self.lock();
        let removed = state.visitors.on_keys_changed(is_allowed);
        state.close(removed, Closing::KeyRemoved);
    }

    /// Closes all visitors but senders, because the receiver ends.
    pub(crate) fn close_unproven(&self) {
        let mut state = self.lock();
        let unproven = state.visitors.on_end();
        state.close(unproven, Closing::Ending);
    }

    /// The number of senders that are served.
    pub(crate) fn senders(&self) -> usize {
        self.lock().visitors.senders()
    }

    /// Whether no connection is served.
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().visitors.is_empty()
    }

    /// Whether to print the message about a refused visitor.
    pub(crate) fn prints_refusal(&self) -> bool {
        let now = self.clock.now();
        self.lock().refusals.on_refusal(now)
    }

    /// The number of refusals that were not printed, when it is time to print it. With `is_end`, it
    /// is.
    pub(crate) fn unprinted_refusals(&self, is_end: bool) -> Option<u64> {
        let now = self.clock.now();
        let refusals = &mut self.lock().refusals;
        if is_end { refusals.take_count() } else { refusals.poll_count(now) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn close(&mut self, ids: impl IntoIterator<Item = VisitorId>, closing: Closing) {
        for id in ids {
            let Some(connection) = self.connections.get(&id) else { continue };
            let reason = closing.reason(self.host);
            tracing::info!(peer = %connection.remote_addr(), reason, "a visitor is closed");
            self.closings.insert(id, closing);
            connection.close(CLOSE_CODE, &reason);
        }
    }
}

/// An authoriser that gives a sender a place once `inner` has accepted its proof.
pub(crate) struct PlacingAuthoriser {
    pub(crate) inner: Box<dyn Authoriser>,
    pub(crate) visits: Arc<Visits>,
    pub(crate) id: VisitorId,
}

impl Authoriser for PlacingAuthoriser {
    fn authorise(&mut self, context: &ProofContext, proof: Option<&Proof>) -> Result<Option<Proof>, Refusal> {
        let answer = self.inner.authorise(context, proof)?;
        // The connection is closed if it has no place, so this answer is not sent, and the sender tries
        // again.
        self.visits.prove(self.id).map_err(|_| Refusal::Unavailable)?;
        Ok(answer)
    }

    fn complete(&mut self) -> Result<(), String> {
        self.inner.complete()
    }

    fn release(&mut self) -> Result<(), String> {
        // Another transfer of the same sender may rely on the binding.
        if self.visits.senders() > 1 { Ok(()) } else { self.inner.release() }
    }
}

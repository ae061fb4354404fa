//! Stateless resets: a peer that has lost the state of the connection says so (RFC 9000, section
//! 10.3).

use aws_lc_rs::constant_time::verify_slices_are_equal;
use units::{Duration, Instant};
use wire::quic::{ConnectionId, PathId};

use super::ids::ResetToken;
use super::{ConnectionState, Control, close_span};
use crate::error::ConnectionError;
use crate::event::{Event, Events};

impl Control {
    /// The peer's connection IDs to which this side sends are these, by path. Their tokens are
    /// valid, those of other IDs are not (section 10.3.1).
    pub(crate) fn set_ids_in_use(&mut self, ids: impl Iterator<Item = (PathId, ConnectionId)>) {
        let mut tokens: Vec<ResetToken> = Vec::new();
        for (path, id) in ids {
            tokens.extend(self.remote_ids_of(path).and_then(|ids| ids.token_of(id)));
        }
        tokens.shrink_to_fit();
        self.ids.replace_tokens(tokens);
    }

    /// Whether a datagram may reset the connection.
    pub(crate) fn knows_tokens(&self) -> bool {
        !self.ids.reset_tokens.is_empty()
    }

    /// A datagram that cannot be attributed or opened ends in these bytes. If they are a token, the
    /// peer has lost the connection's state, and nothing more may be sent (section 10.3.1).
    pub(super) fn on_trailer(&mut self, now: Instant, trailer: &ResetToken, pto: Duration, events: &mut Events) {
        // Every comparison takes as long as any other, so that an attacker learns nothing of a
        // token that it guesses.
        let matches = |known: &ResetToken| verify_slices_are_equal(known, trailer).is_ok();
        let is_reset = self.ids.reset_tokens.iter().fold(false, |found, known| matches(known) | found);
        if is_reset && self.is_open() {
            tracing::debug!("the peer has lost the connection's state");
            events.push(Event::Closed(ConnectionError::Reset));
            self.state = ConnectionState::Draining { until: now + close_span(pto) };
        }
    }
}

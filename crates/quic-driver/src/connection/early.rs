//! 0-RTT: streams that the server has rejected, and connections that the application gets before
//! the handshake is complete.

use quic::{EarlyState, Event};

use super::Connection;
use crate::cells::send::SendEnd;
use crate::packets::Packets;

impl<K: Packets> Connection<K> {
    /// Handles the server's rejection of 0-RTT: all streams so far are gone, and their IDs are
    /// reused.
    pub(super) fn on_early_rejected(&mut self) {
        for cell in std::mem::take(&mut self.writers).into_values() {
            cell.end(SendEnd::EarlyRejected);
        }
        if let Some(delivery) = &mut self.delivery {
            delivery.reject_early();
        }
    }

    /// Returns whether this event makes the connection available to the application.
    pub(super) fn becomes_available(&mut self, event: &Event) -> bool {
        let has_early = || self.cell.shared.limits.accepts_early && self.quic.early_state() == EarlyState::Accepted;
        let is_available = match event {
            Event::Connected => true,
            Event::Opened(_) => has_early(),
            _ => false,
        };
        is_available && !std::mem::replace(&mut self.is_available, true)
    }
}

//! What the send half hands over when a script takes its place.

use wire::quic::{ConnectionId, Space};

use super::SendHalf;
use super::path::Addresses;
use crate::session::DirectionKeys;
use crate::spaces::DATA;

/// What is left of the send half of a connection with one path that has nothing to send.
pub(crate) struct SendRemains {
    pub(crate) seal: DirectionKeys,
    pub(crate) remote_id: ConnectionId,
    pub(crate) addresses: Addresses,
    pub(crate) next_number: u64,
}

impl SendHalf {
    /// Everything that was said has arrived, and nothing waits to be said.
    pub(crate) fn is_at_rest(&mut self) -> bool {
        !self.has_anything_due() && self.spaces.iter().all(|space| space.log.run_count() == 0) && self.close.is_none()
    }

    /// The end of the send half; none if there are several paths, or no keys.
    pub(crate) fn into_remains(self) -> Option<SendRemains> {
        let [path] = &self.paths[..] else { return None };
        Some(SendRemains {
            seal: self.keys[DATA].clone()?,
            remote_id: path.remote_id,
            addresses: path.addresses,
            next_number: self.spaces[Space::Data.index()].next_number,
        })
    }
}

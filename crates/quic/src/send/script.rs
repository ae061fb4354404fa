//! What the send half hands over when a script takes its place.

use wire::quic::{ConnectionId, PathId};

use super::SendHalf;
use super::path::{Addresses, SendPath};
use crate::session::DirectionKeys;
use crate::spaces::DATA;

/// What is left of the send half of a connection that has nothing to send.
pub(crate) struct SendRemains {
    pub(crate) seal: DirectionKeys,
    /// In the order in which they were opened.
    pub(crate) paths: Vec<PathRemains>,
}

/// One path of it.
pub(crate) struct PathRemains {
    pub(crate) id: PathId,
    pub(crate) remote_id: ConnectionId,
    pub(crate) addresses: Addresses,
    pub(crate) next_number: u64,
}

impl SendHalf {
    /// Everything that was said has arrived, nothing waits to be said, and every path works.
    pub(crate) fn is_at_rest(&mut self) -> bool {
        !self.has_anything_due()
            && self.spaces.iter().all(|space| space.log.run_count() == 0)
            && self.paths.iter().all(SendPath::is_active)
            && self.close.is_none()
    }

    /// How many paths there are.
    pub(crate) fn path_count(&self) -> usize {
        self.paths.len()
    }

    /// The end of the send half; none without keys.
    pub(crate) fn into_remains(self) -> Option<SendRemains> {
        let paths = self.paths.iter().enumerate().map(|(at, path)| PathRemains {
            id: path.id,
            remote_id: path.remote_id,
            addresses: path.addresses,
            next_number: self.spaces[DATA + at].next_number,
        });
        Some(SendRemains { paths: paths.collect(), seal: self.keys[DATA].clone()? })
    }
}

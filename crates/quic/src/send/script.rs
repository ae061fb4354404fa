//! The state that the send half passes to a scripted peer that replaces it.

use wire::quic::{ConnectionId, PathId};

use super::SendHalf;
use super::path::SendPath;
use crate::addresses::Addresses;
use crate::session::DirectionKeys;
use crate::spaces::DATA;

/// The state left from the send half of a connection that has nothing to send.
pub(crate) struct IdleSendHalf {
    pub(crate) seal: DirectionKeys,
    /// In the order in which they were opened.
    pub(crate) paths: Vec<IdlePath>,
}

/// The state of one path.
pub(crate) struct IdlePath {
    pub(crate) id: PathId,
    pub(crate) remote_id: ConnectionId,
    pub(crate) addresses: Addresses,
    pub(crate) next_number: u64,
}

impl SendHalf {
    /// Everything sent is acknowledged, nothing is due, and every path is active.
    pub(crate) fn is_at_rest(&mut self) -> bool {
        !self.has_anything_due()
            && self.spaces.iter().all(|space| space.log.run_count() == 0)
            && self.paths.iter().all(SendPath::is_active)
            && !self.closing.is_begun()
    }

    /// The number of paths.
    pub(crate) fn path_count(&self) -> usize {
        self.paths.len()
    }

    /// Consumes the send half; `None` without 1-RTT keys.
    pub(crate) fn into_remains(self) -> Option<IdleSendHalf> {
        let paths = self.paths.iter().enumerate().map(|(at, path)| IdlePath {
            id: path.id,
            remote_id: path.link.remote_id,
            addresses: path.link.addresses,
            next_number: self.spaces[DATA + at].next_number,
        });
        Some(IdleSendHalf { paths: paths.collect(), seal: self.seal.by_space[DATA].clone()? })
    }
}

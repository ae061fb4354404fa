//! What is known of the peer and of the handshake once it has progressed.

use std::sync::Arc;

use units::{Duration, Instant};
use wire::quic::{ConnectionId, PathId, Version};

use crate::config::PreferredAddresses;
use crate::session::SessionSummary;

/// The start of the handshake and its results. Which keys may be used, and the timeout of the
/// handshake, depend on whether it is complete.
pub(super) struct HandshakeRecord {
    pub(super) started_at: Instant,
    /// How long our side of it took; none before.
    pub(super) duration: Option<Duration>,
    pub(super) summary: Arc<SessionSummary>,
    pub(super) peer_identity: Arc<[Vec<u8>]>,
}

impl HandshakeRecord {
    pub(super) fn new(started_at: Instant) -> Self {
        Self { started_at, duration: None, summary: Arc::default(), peer_identity: Arc::default() }
    }

    /// Our side of the handshake is complete, or was before the connection closed.
    pub(super) fn is_complete(&self) -> bool {
        self.duration.is_some()
    }

    /// When the handshake must be complete, `timeout` after its start; none once it is, and none for a zero
    /// timeout.
    pub(super) fn until(&self, timeout: Duration) -> Option<Instant> {
        (!self.is_complete() && !timeout.is_zero()).then(|| self.started_at + timeout)
    }
}

/// The version of QUIC in use, and that of the client's first packet.
#[derive(Debug)]
pub(super) struct Versions {
    pub(super) current: Version,
    pub(super) original: Version,
}

/// The peer's transport parameters, as far as control needs them later.
#[derive(Debug, Default)]
pub(super) struct PeerTerms {
    /// They have arrived.
    pub(super) are_known: bool,
    /// The peer's limit of path IDs.
    pub(super) max_path: Option<PathId>,
    /// The peer's transport parameter disable_active_migration.
    pub(super) disables_migration: bool,
    /// Where the server wants a client to move, and the connection ID for it, until the handshake is
    /// confirmed.
    pub(super) preferred: Option<Box<(PreferredAddresses, ConnectionId)>>,
}

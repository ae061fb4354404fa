//! The values that a connection begins with.

use std::sync::Arc;

use wire::quic::{ConnectionId, Side, Version};

use crate::addresses::Addresses;
use crate::config::TransportConfig;
use crate::journal::session::AnySession;
use crate::secret::SecretSource;
use crate::session::DirectionKeys;

/// The values that a connection begins with. The [`Endpoint`](crate::endpoint::Endpoint) makes
/// them.
pub(crate) struct ConnectionSeed {
    pub(crate) config: Arc<TransportConfig>,
    pub(crate) addresses: Addresses,
    /// The peer's address is validated: this side chose it, or the client has proved it.
    pub(crate) is_validated: bool,
    pub(crate) control: ControlSeed,
    pub(crate) seal: DirectionKeys,
    /// The seed of its generator.
    pub(crate) seed: u64,
}

/// The values that control begins with.
pub(crate) struct ControlSeed {
    pub(crate) side: Side,
    pub(crate) session: AnySession,
    /// The version of the client's first packet.
    pub(crate) version: Version,
    pub(crate) initial: DirectionKeys,
    /// At a client that offers several versions: for Initial packets of the other one.
    pub(crate) other_initial: Option<DirectionKeys>,
    pub(crate) local_id: ConnectionId,
    /// At a server that prefers other addresses: the ID for packets to them, number one (RFC 9000,
    /// section 5.1.1).
    pub(crate) preferred_id: Option<ConnectionId>,
    pub(crate) remote_id: ConnectionId,
    /// The destination of the client's packet with which the connection begins: of its first one,
    /// or at a server of the one that responds to a Retry packet.
    pub(crate) original_destination: ConnectionId,
    pub(crate) secrets: SecretSource,
}

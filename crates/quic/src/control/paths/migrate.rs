//! Moving the only path of a client to other addresses (RFC 9000, section 9.2), and the connection
//! IDs of the peer that this takes and leaves.

use wire::quic::{ConnectionId, ErrorCode, PathId, Side, TransportParameters};

use crate::config::PreferredAddresses;
use crate::control::Control;
use crate::control::ids::RemoteIds;
use crate::control::record::PeerTerms;
use crate::error::TransportError;
use crate::exchange::{Exchange, ToPath, ToSend};
use crate::send::frames::ControlFrame;

/// Why a connection does not migrate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum MigrateError {
    /// This side is the server, and servers do not migrate (RFC 9000, section 9).
    NotClient,
    /// The handshake is not confirmed (RFC 9000, section 9):
    /// [`Event::Confirmed`](crate::Event::Confirmed) reports when it is.
    TooEarly,
    /// The peer forbids it: its transport parameter disable_active_migration (RFC 9000, section
    /// 18.2).
    Forbidden,
    /// The connection has several paths: open another one instead.
    SeveralPaths,
    /// The peer has issued no connection ID for another address (RFC 9000, section 9.5). It issues
    /// one about a round trip after an earlier one was used up.
    NoConnectionId,
    /// The connection is over.
    Closed,
    /// Too many requests wait.
    TooMany,
}

impl std::fmt::Display for MigrateError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::NotClient => "this side accepted the connection, and only the side that connected migrates",
            Self::TooEarly => "the handshake is not confirmed yet: migrate when it is",
            Self::Forbidden => "the peer does not support migration: connect again",
            Self::SeveralPaths => "the connection has several paths: open another one instead",
            Self::NoConnectionId => "the peer has issued no connection ID for another address: try again",
            Self::TooMany => "too many path requests wait: try again",
            Self::Closed => "the connection is closed",
        })
    }
}

impl std::error::Error for MigrateError {}

impl PeerTerms {
    /// The server prefers other addresses, and has issued a connection ID for them (RFC 9000, section
    /// 9.6).
    pub(in crate::control) fn take_preferred_address(
        &mut self,
        parameters: &TransportParameters,
        remote: &mut RemoteIds,
        paths_max: u32,
    ) -> Result<(), TransportError> {
        let Some(preferred) = &parameters.preferred_address else { return Ok(()) };
        // Section 18.2.
        if remote.current().is_some_and(|id| id.is_empty()) {
            let reason = "a preferred address of a server without connection IDs";
            return Err(TransportError::new(ErrorCode::TRANSPORT_PARAMETER_ERROR, reason));
        }
        remote.on_new(1, 0, preferred.id, preferred.reset_token)?;
        // With several paths, the application says where they lead.
        let has_one_path = paths_max <= 1 || self.max_path.is_none_or(|max| max == PathId::ZERO);
        if has_one_path {
            let addresses = PreferredAddresses { ipv4: preferred.ipv4, ipv6: preferred.ipv6 };
            self.preferred = Some(Box::new((addresses, preferred.id)));
        }
        Ok(())
    }

    /// The handshake is confirmed (section 9.6.1). A server that forbids other migrations does not
    /// forbid this one (section 18.2).
    pub(in crate::control) fn move_to_preferred_address(&mut self, remote: &RemoteIds, exchange: &mut Exchange) {
        let Some(preferred) = self.preferred.take() else { return };
        let (addresses, remote_id) = *preferred;
        // The server may have retired the ID meanwhile.
        if remote.contains(remote_id) {
            exchange.to_send.push_back(ToSend::Path(ToPath::MoveToPreferred { addresses, remote_id }));
        }
    }
}

impl Control {
    /// Whether this side may migrate.
    pub(crate) fn check_migration(&self) -> Result<(), MigrateError> {
        if !self.is_open() {
            return Err(MigrateError::Closed);
        }
        if self.side != Side::Client {
            return Err(MigrateError::NotClient);
        }
        if !self.is_confirmed() {
            return Err(MigrateError::TooEarly);
        }
        if self.peer.disables_migration {
            return Err(MigrateError::Forbidden);
        }
        Ok(())
    }

    /// The peer's connection IDs for `path`, if it is known.
    pub(crate) fn remote_ids_of(&self, path: PathId) -> Option<&RemoteIds> {
        if path == PathId::ZERO {
            return Some(&self.ids.remote);
        }
        let others = &self.paths.as_ref()?.others;
        others.iter().find(|known| known.id == path).map(|known| &known.remote)
    }

    /// Nothing is sent to this connection ID of the peer any more (RFC 9000, section 5.1.2).
    pub(in crate::control) fn retire_remote_id(&mut self, path: PathId, id: ConnectionId, exchange: &mut Exchange) {
        let named = self.is_multipath().then_some(path);
        let ids = match path {
            PathId::ZERO => Some(&mut self.ids.remote),
            path => self.paths.as_mut().and_then(|paths| paths.get_mut(path)).map(|known| &mut known.remote),
        };
        if let Some(sequence) = ids.and_then(|ids| ids.retire(id)) {
            let frame = ControlFrame::RetireConnectionId { path: named, sequence };
            exchange.to_send.push_back(ToSend::Control(frame));
        }
    }
}

//! The negotiated version: how a server changes it, and how a client follows (RFC 9368, section 2.3;
//! RFC 9369, section 4.1).
//!
//! Packet numbers and CRYPTO streams go on. Only the constants of the long headers and of the keys
//! change.

use wire::quic::{ErrorCode, Side, TransportParameters, Version};

use super::Control;
use crate::error::TransportError;
use crate::exchange::{Exchange, HandshakeStep, NegotiatedVersion, ToSend};

impl Control {
    /// The version in use.
    pub(crate) fn version(&self) -> Version {
        self.versions.current
    }

    /// A server's session has read the client's hello, and may have chosen another version.
    pub(super) fn follow_session(&mut self, exchange: &mut Exchange) {
        let chosen = self.session.get().version();
        if self.side == Side::Server && chosen != self.versions.current {
            self.change_version(chosen, exchange);
        }
    }

    /// An authentic long header of the server has this version: it continues in it. Only the first
    /// change counts, and none after the keys of Handshake packets were made.
    pub(crate) fn on_peer_version(&mut self, version: Version, exchange: &mut Exchange) {
        let may_change = self.versions.current == self.versions.original && self.keys.other_initial.is_some();
        if self.side == Side::Client && version != self.versions.current && may_change && self.keys.levels[1].is_none()
        {
            self.session.get_mut().set_version(version);
            self.change_version(version, exchange);
        }
    }

    /// Initial packets leave in `version` from now on. Those of the peer may still have the other one.
    fn change_version(&mut self, version: Version, exchange: &mut Exchange) {
        let destination = self.ids.retry_source.as_deref().copied().unwrap_or(self.ids.original_destination);
        let Some(keys) = self.session.get().initial_keys(&destination, version) else { return };
        self.versions.current = version;
        self.keys.other_initial = self.keys.levels[0].replace(keys.open).map(Box::new);
        exchange.to_send.push_back(ToSend::Handshake(HandshakeStep::Version(Box::new(NegotiatedVersion {
            version,
            keys: keys.seal,
        }))));
    }

    /// The version information of the peer, which TLS has authenticated, must fit what was seen (RFC
    /// 9368, section 4).
    pub(super) fn check_version(&self, parameters: &TransportParameters) -> Result<(), TransportError> {
        let Some(theirs) = &parameters.version_information else {
            if self.side == Side::Client && self.versions.current != self.versions.original {
                return Err(mismatch("the server changed the version and does not confirm it"));
            }
            return Ok(());
        };
        match self.side {
            Side::Client if theirs.chosen != self.versions.current.number() => {
                Err(mismatch("the server's packets have another version than it has chosen"))
            }
            Side::Server if theirs.chosen != self.versions.original.number() => {
                Err(mismatch("the client's first packet has another version than it has chosen"))
            }
            Side::Server if !theirs.available.contains(&theirs.chosen) => Err(TransportError::new(
                ErrorCode::TRANSPORT_PARAMETER_ERROR,
                "the client's chosen version is not among its available ones",
            )),
            _ => Ok(()),
        }
    }
}

fn mismatch(reason: &'static str) -> TransportError {
    TransportError::new(ErrorCode::VERSION_NEGOTIATION_ERROR, reason)
}

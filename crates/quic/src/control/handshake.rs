//! The handshake: CRYPTO bytes in and out, new keys, and the peer's transport parameters.

use std::sync::Arc;

use bytes::Bytes;
use units::{Duration, Instant};
use wire::quic::{ConnectionId, ErrorCode, Side, Space, TransportParameters, Version};

use super::{ConnectionState, Control};
use crate::error::TransportError;
use crate::event::{Event, Events};
use crate::exchange::{Exchange, HandshakeStep, Retry, ToControl, ToPath, ToReceive, ToSend};
use crate::send::frames::ControlFrame;
use crate::session::NewKeys;

impl Control {
    /// Starts the handshake: a client sends its first flight.
    pub(crate) fn start(&mut self, exchange: &mut Exchange) {
        self.flush_session(exchange);
        self.begin_early(exchange);
    }

    /// CRYPTO.
    pub(super) fn on_crypto(
        &mut self,
        now: Instant,
        space: Space,
        offset: u64,
        bytes: Bytes,
        exchange: &mut Exchange,
        events: &mut Events,
    ) -> Result<(), TransportError> {
        if !self.crypto.insert(self.spaces, space, offset, bytes)? {
            return Ok(());
        }
        self.advance(now, exchange, events)
    }

    /// Passes the CRYPTO bytes that are in order to the session.
    fn advance(&mut self, now: Instant, exchange: &mut Exchange, events: &mut Events) -> Result<(), TransportError> {
        while let Some(bytes) = self.crypto.read(self.spaces) {
            self.session.handle_crypto(&bytes)?;
            self.follow_session(exchange);
            self.take_parameters(exchange, events)?;
            self.flush_session(exchange);
            let wanted = self.wanted_space();
            self.crypto.move_read_space(&mut self.spaces, wanted)?;
            if self.state == ConnectionState::Handshaking && !self.session.get().is_handshaking() {
                self.complete(now, exchange, events)?;
            }
        }
        Ok(())
    }

    /// The session reads at the highest level it has keys for; a server stays with Handshake until
    /// the client's Finished.
    fn wanted_space(&self) -> Space {
        if !self.session.get().is_handshaking() {
            Space::Data
        } else if self.keys.levels[1].is_some() {
            Space::Handshake
        } else {
            Space::Initial
        }
    }

    /// Takes the session's output and its new keys.
    fn flush_session(&mut self, exchange: &mut Exchange) {
        loop {
            let mut bytes = Vec::new();
            let keys = self.session.poll_crypto(&mut bytes);
            if !bytes.is_empty() {
                self.note_hello(exchange);
                exchange.to_send.push_back(ToSend::Crypto { space: self.spaces.write, bytes: bytes.into() });
            }
            match keys {
                Some(NewKeys::Handshake(keys)) => {
                    self.spaces.write = Space::Handshake;
                    self.keys.levels[1] = Some(keys.open);
                    exchange.to_send.push_back(ToSend::InstallKeys { space: Space::Handshake, keys: keys.seal });
                }
                Some(NewKeys::OneRtt(keys)) => {
                    self.spaces.write = Space::Data;
                    self.keys.install_data(keys.open);
                    exchange.to_send.push_back(ToSend::InstallKeys { space: Space::Data, keys: keys.seal });
                    self.answer_early(exchange);
                }
                None => return,
            }
        }
    }

    /// Reads the peer's transport parameters once they are there.
    fn take_parameters(&mut self, exchange: &mut Exchange, events: &mut Events) -> Result<(), TransportError> {
        if self.peer.are_known {
            return Ok(());
        }
        let Some(bytes) = self.session.get().peer_parameters() else { return Ok(()) };
        let parameters = TransportParameters::parse(bytes, self.side.peer())
            .map_err(|error| TransportError::new(ErrorCode::TRANSPORT_PARAMETER_ERROR, error.to_string()))?;
        self.check_ids(&parameters)?;
        self.check_version(&parameters)?;
        self.peer.are_known = true;
        self.ids.peer_limit = parameters.active_connection_id_limit;
        self.peer.max_path = parameters.initial_max_path_id;
        self.ids.remote.set_first_token(parameters.stateless_reset_token);
        self.peer.disables_migration = parameters.disable_active_migration;
        self.peer.take_preferred_address(&parameters, &mut self.ids.remote, self.config.max_paths)?;
        // Paths are distinguished by connection IDs (multipath draft-21, section 2.1).
        if self.peer.max_path.is_some() && self.ids.peer_first.is_some_and(|id| id.is_empty()) {
            return Err(TransportError::violation("multipath without connection IDs"));
        }
        self.idle.limit(Duration::from_millis(parameters.max_idle_timeout_ms));
        let is_early_accepted = match &mut self.early {
            Some(early) => early.decide(&mut self.session, &parameters, exchange, events)?,
            None => false,
        };
        let accepted = is_early_accepted.then(|| Box::new(parameters.clone()));
        exchange.to_receive.push_back(ToReceive::PeerParameters(Box::new(parameters.clone())));
        exchange.to_send.push_back(ToSend::PeerParameters(Box::new(parameters)));
        exchange.to_send.extend(accepted.map(|parameters| ToSend::Handshake(HandshakeStep::EarlyAccepted(parameters))));
        if self.side == Side::Server {
            self.begin_early(exchange);
        } else {
            // The reset token of the ID in use has arrived.
            exchange.to_control.push_back(ToControl::RemoteIdsChanged);
        }
        Ok(())
    }

    /// The connection IDs of the handshake must be those TLS has authenticated (RFC 9000, section
    /// 7.3).
    fn check_ids(&self, parameters: &TransportParameters) -> Result<(), TransportError> {
        if !self.ids.match_parameters(self.side, parameters) {
            return Err(TransportError::new(
                ErrorCode::TRANSPORT_PARAMETER_ERROR,
                "the handshake's connection IDs are not those of its packets",
            ));
        }
        Ok(())
    }

    /// A Retry packet may be accepted (RFC 9000, section 17.2.5.2): the first one, before any other
    /// packet of the server, from another connection ID than the one that the client chose, and of
    /// the version of its first packet (RFC 9369, section 4.1).
    pub(crate) fn takes_retry(&self, version: Version, dcid: ConnectionId, scid: ConnectionId) -> bool {
        let is_first = self.ids.retry_source.is_none() && self.ids.peer_first.is_none();
        is_first
            && version == self.versions.current
            && self.is_handshaking()
            && self.ids.local.contains(dcid.as_slice())
            && scid != self.ids.original_destination
    }

    /// The server wants the client to prove its address: Initial packets go to `source` from now
    /// on, with other keys (RFC 9000, section 17.2.5.2; RFC 9001, section 5.2) and with `token`
    /// (section 8.1.2).
    pub(crate) fn on_retry(&mut self, source: ConnectionId, token: &[u8], exchange: &mut Exchange) {
        let initial = |version| self.session.get().initial_keys(&source, version);
        let Some(keys) = initial(self.versions.current) else { return };
        if self.keys.other_initial.is_some() {
            self.keys.other_initial = initial(self.versions.current.other()).map(|keys| Box::new(keys.open));
        }
        self.ids.retry_source = Some(Box::new(source));
        self.ids.remote.replace_first(source);
        self.keys.levels[0] = Some(keys.open);
        let retry = Retry { remote_id: source, token: token.to_vec(), keys: keys.seal };
        exchange.to_send.push_back(ToSend::Handshake(HandshakeStep::Retry(Box::new(retry))));
    }

    /// The server's first packet names the ID to use from now on (RFC 9000, section 7.2).
    pub(crate) fn on_peer_first_id(&mut self, id: wire::quic::ConnectionId, exchange: &mut Exchange) {
        if self.ids.on_peer_first(id) {
            exchange.to_send.push_back(ToSend::Path(ToPath::RemoteId { path: wire::quic::PathId::ZERO, id }));
        }
    }

    /// The ID a peer's long headers must keep naming, once known.
    pub(crate) fn peer_first_id(&self) -> Option<wire::quic::ConnectionId> {
        self.ids.peer_first
    }

    /// Our side of the handshake is complete.
    fn complete(&mut self, now: Instant, exchange: &mut Exchange, events: &mut Events) -> Result<(), TransportError> {
        if !self.peer.are_known {
            // missing_extension(109), RFC 9001, section 8.2.
            return Err(TransportError::new(ErrorCode::crypto(109), "the peer sent no transport parameters"));
        }
        self.state = ConnectionState::Established;
        self.record.duration = Some(now.saturating_since(self.record.started_at));
        self.record.summary = Arc::new(self.session.summary());
        self.record.peer_identity = self.session.get().peer_identity().into();
        if let Some(early) = &mut self.early {
            early.close();
        }
        exchange.to_send.push_back(ToSend::Handshake(HandshakeStep::Complete));
        events.push(Event::Connected);
        self.begin_multipath(exchange);
        if self.side == Side::Server {
            exchange.to_send.push_back(ToSend::Control(ControlFrame::HandshakeDone));
            self.confirm(exchange, events);
        }
        self.issue_ids(exchange);
        self.issue_path_ids(exchange);
        Ok(())
    }

    /// Both sides know that the handshake is complete: Handshake keys are discarded (RFC 9001,
    /// section 4.9.2).
    pub(super) fn confirm(&mut self, exchange: &mut Exchange, events: &mut Events) {
        if self.state != ConnectionState::Established {
            return;
        }
        self.state = ConnectionState::Confirmed;
        self.discard(Space::Initial, exchange);
        self.discard(Space::Handshake, exchange);
        exchange.to_send.push_back(ToSend::Handshake(HandshakeStep::Confirmed));
        events.push(Event::Confirmed);
        self.peer.move_to_preferred_address(&self.ids.remote, exchange);
    }
}

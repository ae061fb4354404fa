//! The handshake: CRYPTO bytes in and out, new keys, and the peer's transport parameters.

use std::sync::Arc;

use bytes::Bytes;
use units::{Duration, Instant};
use wire::quic::{ConnectionId, ErrorCode, Side, Space, TransportParameters, Version};

use super::{CRYPTO_BUFFER_MAX, ConnectionState, Control, KEEP_ALIVES_PER_IDLE_TIMEOUT};
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
        let buffer = &mut self.crypto[space.index()];
        let end = offset + bytes.len() as u64;
        if end > buffer.read_offset() + CRYPTO_BUFFER_MAX {
            return Err(TransportError::new(
                ErrorCode::CRYPTO_BUFFER_EXCEEDED,
                "too many handshake bytes out of order",
            ));
        }
        if space < self.read_space {
            // Only repetitions may still arrive at a level that TLS has left (RFC 9001, section
            // 4.1.3).
            if end > buffer.ready_end() {
                return Err(TransportError::violation("new handshake bytes at an old level"));
            }
            return Ok(());
        }
        buffer.insert(offset, bytes.into(), false);
        buffer.pending().check_crypto().map_err(|_| {
            TransportError::new(ErrorCode::CRYPTO_BUFFER_EXCEEDED, "handshake bytes in too many small pieces")
        })?;
        self.advance(now, exchange, events)
    }

    /// Passes the CRYPTO bytes that are in order to the session.
    fn advance(&mut self, now: Instant, exchange: &mut Exchange, events: &mut Events) -> Result<(), TransportError> {
        while let Some(bytes) = self.crypto[self.read_space.index()].read(usize::MAX) {
            self.session.handle_crypto(&bytes.to_bytes())?;
            self.follow_session(exchange);
            self.take_parameters(exchange, events)?;
            self.flush_session(exchange);
            self.move_read_space()?;
            if self.state == ConnectionState::Handshaking && !self.session.get().is_handshaking() {
                self.complete(now, exchange, events)?;
            }
        }
        Ok(())
    }

    /// The session reads at the highest level it has keys for; a server stays with Handshake until
    /// the client's Finished.
    fn move_read_space(&mut self) -> Result<(), TransportError> {
        let wanted = if !self.session.get().is_handshaking() {
            Space::Data
        } else if self.levels[1].is_some() {
            Space::Handshake
        } else {
            Space::Initial
        };
        if wanted > self.read_space {
            let left = &self.crypto[self.read_space.index()];
            // Also beyond a gap, which nothing may fill any more (RFC 9001, section 4.1.3).
            if left.is_ready() || !left.pending().is_empty() {
                return Err(TransportError::violation("handshake bytes left over at the end of their level"));
            }
            self.read_space = wanted;
        }
        Ok(())
    }

    /// Takes the session's output and its new keys.
    fn flush_session(&mut self, exchange: &mut Exchange) {
        loop {
            let mut bytes = Vec::new();
            let keys = self.session.poll_crypto(&mut bytes);
            if !bytes.is_empty() {
                self.note_hello(exchange);
                exchange.to_send.push_back(ToSend::Crypto { space: self.write_space, bytes: bytes.into() });
            }
            match keys {
                Some(NewKeys::Handshake(keys)) => {
                    self.write_space = Space::Handshake;
                    self.levels[1] = Some(keys.open);
                    exchange.to_send.push_back(ToSend::InstallKeys { space: Space::Handshake, keys: keys.seal });
                }
                Some(NewKeys::OneRtt(keys)) => {
                    self.write_space = Space::Data;
                    self.install_data_keys(keys.open);
                    exchange.to_send.push_back(ToSend::InstallKeys { space: Space::Data, keys: keys.seal });
                    self.answer_early(exchange);
                }
                None => return,
            }
        }
    }

    /// Reads the peer's transport parameters once they are there.
    fn take_parameters(&mut self, exchange: &mut Exchange, events: &mut Events) -> Result<(), TransportError> {
        if self.parameters_done {
            return Ok(());
        }
        let Some(bytes) = self.session.get().peer_parameters() else { return Ok(()) };
        let parameters = TransportParameters::parse(bytes, self.side.peer())
            .map_err(|error| TransportError::new(ErrorCode::TRANSPORT_PARAMETER_ERROR, error.to_string()))?;
        self.check_ids(&parameters)?;
        self.check_version(&parameters)?;
        self.parameters_done = true;
        self.peer_id_limit = parameters.active_connection_id_limit;
        self.peer_max_path = parameters.initial_max_path_id;
        self.remote_ids.set_first_token(parameters.stateless_reset_token);
        self.peer_disables_migration = parameters.disable_active_migration;
        self.take_preferred_address(&parameters)?;
        // Paths are distinguished by connection IDs (multipath draft-21, section 2.1).
        if self.peer_max_path.is_some() && self.peer_first_id.is_some_and(|id| id.is_empty()) {
            return Err(TransportError::violation("multipath without connection IDs"));
        }
        let theirs = Duration::from_millis(parameters.max_idle_timeout_ms);
        if !theirs.is_zero() && (self.idle_timeout.is_zero() || theirs < self.idle_timeout) {
            self.idle_timeout = theirs;
        }
        // Several chances before the idle timer, whatever the peer's timeout (RFC 9000, section
        // 10.1.2).
        if !self.idle_timeout.is_zero() {
            self.keep_alive =
                self.keep_alive.map(|interval| interval.min(self.idle_timeout / KEEP_ALIVES_PER_IDLE_TIMEOUT));
        }
        let accepted = self.decide_early(&parameters, exchange, events)?.then(|| Box::new(parameters.clone()));
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
        let original = (self.side == Side::Client).then_some(self.original_destination);
        let matches = parameters.initial_source_connection_id == self.peer_first_id
            && parameters.original_destination_connection_id == original
            && parameters.retry_source_connection_id == self.retry_source.as_deref().copied();
        if !matches {
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
        let is_first = self.retry_source.is_none() && self.peer_first_id.is_none();
        is_first
            && version == self.version
            && self.is_handshaking()
            && self.local_ids.contains(dcid.as_slice())
            && scid != self.original_destination
    }

    /// The server wants the client to prove its address: Initial packets go to `source` from now
    /// on, with other keys (RFC 9000, section 17.2.5.2; RFC 9001, section 5.2) and with `token`
    /// (section 8.1.2).
    pub(crate) fn on_retry(&mut self, source: ConnectionId, token: &[u8], exchange: &mut Exchange) {
        let initial = |version| self.session.get().initial_keys(&source, version);
        let Some(keys) = initial(self.version) else { return };
        if self.other_initial.is_some() {
            self.other_initial = initial(self.version.other()).map(|keys| Box::new(keys.open));
        }
        self.retry_source = Some(Box::new(source));
        self.remote_ids.replace_first(source);
        self.levels[0] = Some(keys.open);
        let retry = Retry { remote_id: source, token: token.to_vec(), keys: keys.seal };
        exchange.to_send.push_back(ToSend::Handshake(HandshakeStep::Retry(Box::new(retry))));
    }

    /// The server's first packet names the ID to use from now on (RFC 9000, section 7.2).
    pub(crate) fn on_peer_first_id(&mut self, id: wire::quic::ConnectionId, exchange: &mut Exchange) {
        if self.peer_first_id.is_none() {
            self.peer_first_id = Some(id);
            self.remote_ids.replace_first(id);
            exchange.to_send.push_back(ToSend::Path(ToPath::RemoteId { path: wire::quic::PathId::ZERO, id }));
        }
    }

    /// The ID a peer's long headers must keep naming, once known.
    pub(crate) fn peer_first_id(&self) -> Option<wire::quic::ConnectionId> {
        self.peer_first_id
    }

    /// Our side of the handshake is complete.
    fn complete(&mut self, now: Instant, exchange: &mut Exchange, events: &mut Events) -> Result<(), TransportError> {
        if !self.parameters_done {
            // missing_extension(109), RFC 9001, section 8.2.
            return Err(TransportError::new(ErrorCode::crypto(109), "the peer sent no transport parameters"));
        }
        self.state = ConnectionState::Established;
        self.handshake_time = Some(now.saturating_since(self.started_at));
        self.summary = Arc::new(self.session.summary());
        self.peer_identity = self.session.get().peer_identity().into();
        self.close_early();
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
        self.move_to_preferred_address(exchange);
    }
}

//! 0-RTT (RFC 9001, section 4.6): what control knows of it, on both sides.
//!
//! ```text
//!   client: Offered ──▶ Accepted        server: Taken
//!              └──────▶ Rejected
//! ```
//!
//! A server that does not take 0-RTT has no state for it and drops the packets.

use std::collections::BTreeSet;

use wire::quic::{ErrorCode, Side, StreamId, TransportParameters};

use super::{ConnectionState, Control};
use crate::error::TransportError;
use crate::event::{Event, Events};
use crate::exchange::{self, Exchange, HandshakeStep, ToReceive, ToSend};
use crate::journal::session::AnySession;
use crate::session::DirectionKeys;

/// The state of 0-RTT.
pub(super) enum Early {
    /// A client that may send it, within these limits.
    Offered(Box<TransportParameters>),
    /// The server has taken what the client has sent, or would have.
    Accepted,
    Rejected,
    /// A server that takes it.
    Taken {
        /// Until the handshake is complete. RFC 9001, section 4.9.3, permits to discard them with
        /// the first 1-RTT packet, and a server opens none before. What comes later is lost, and
        /// leaves again in 1-RTT packets.
        keys: Option<DirectionKeys>,
        /// The streams of which a 0-RTT packet had data. At most as many as our parameters permit:
        /// see [`Control::note_early_stream`].
        streams: BTreeSet<StreamId>,
    },
}

/// The parameters of an earlier connection that limit what a client sends in 0-RTT. All others are
/// those of the protocol until the server's new ones arrive (RFC 9000, section 7.4.1; multipath
/// draft-21, section 2.1). 0-RTT packets have STREAM frames only, so that no others matter.
fn remembered(parameters: &TransportParameters) -> TransportParameters {
    TransportParameters {
        initial_max_data: parameters.initial_max_data,
        initial_max_stream_data_bidi_local: parameters.initial_max_stream_data_bidi_local,
        initial_max_stream_data_bidi_remote: parameters.initial_max_stream_data_bidi_remote,
        initial_max_stream_data_uni: parameters.initial_max_stream_data_uni,
        initial_max_streams_bidi: parameters.initial_max_streams_bidi,
        initial_max_streams_uni: parameters.initial_max_streams_uni,
        active_connection_id_limit: parameters.active_connection_id_limit,
        max_datagram_frame_size: parameters.max_datagram_frame_size,
        max_udp_payload_size: parameters.max_udp_payload_size,
        ..TransportParameters::default()
    }
}

/// The limits that a server must not reduce when it takes 0-RTT (RFC 9000, section 7.4.1; RFC 9221,
/// section 3).
pub(crate) fn kept_limits(parameters: &TransportParameters) -> [u64; 8] {
    [
        parameters.active_connection_id_limit,
        parameters.initial_max_data,
        parameters.initial_max_stream_data_bidi_local,
        parameters.initial_max_stream_data_bidi_remote,
        parameters.initial_max_stream_data_uni,
        parameters.initial_max_streams_bidi,
        parameters.initial_max_streams_uni,
        parameters.max_datagram_frame_size,
    ]
}

impl Early {
    /// The handshake is complete: no more 0-RTT packets are opened.
    pub(super) fn close(&mut self) {
        if let Self::Taken { keys, .. } = self {
            *keys = None;
        }
    }

    /// The server's parameters have arrived at a client, and with them whether it has taken 0-RTT.
    /// Returns whether it has.
    pub(super) fn decide(
        &mut self,
        session: &mut AnySession,
        parameters: &TransportParameters,
        exchange: &mut Exchange,
        events: &mut Events,
    ) -> Result<bool, TransportError> {
        let Self::Offered(limits) = self else { return Ok(false) };
        if !session.is_early_accepted() {
            *self = Self::Rejected;
            exchange.to_send.push_back(ToSend::Handshake(HandshakeStep::EarlyRejected));
            exchange.to_receive.push_back(ToReceive::EarlyRejected);
            events.push(Event::EarlyRejected);
            return Ok(false);
        }
        let (then, now) = (kept_limits(limits), kept_limits(parameters));
        if then.iter().zip(&now).any(|(then, now)| now < then) {
            let reason = "the server has accepted 0-RTT and reduced its limits";
            return Err(TransportError::new(ErrorCode::PROTOCOL_VIOLATION, reason));
        }
        *self = Self::Accepted;
        Ok(true)
    }
}

impl Control {
    /// Takes the 0-RTT keys of TLS, if it has any: at a client once its first message is written, at
    /// a server once it is read.
    pub(super) fn begin_early(&mut self, exchange: &mut Exchange) {
        if self.side == Side::Server && !self.peer.are_known {
            return;
        }
        let Some((keys, parameters)) = self.session.take_early() else { return };
        self.early = Some(Box::new(match self.side {
            Side::Server => Early::Taken { keys: Some(keys), streams: BTreeSet::new() },
            Side::Client => {
                // They were valid when they came. An application may have a store that alters them.
                let Ok(parameters) = TransportParameters::parse(&parameters, Side::Server) else { return };
                let limits = remembered(&parameters);
                exchange.to_send.push_back(ToSend::Handshake(HandshakeStep::Early(Box::new(exchange::Early {
                    keys,
                    limits: limits.clone(),
                }))));
                Early::Offered(Box::new(limits))
            }
        }));
    }

    /// TLS writes a message. If a client writes another first one, the server has asked for it
    /// (HelloRetryRequest) and takes no 0-RTT (RFC 8446, section 4.2.10).
    pub(super) fn note_hello(&self, exchange: &mut Exchange) {
        if self.spaces.write == wire::quic::Space::Initial && matches!(self.early.as_deref(), Some(Early::Offered(_))) {
            exchange.to_send.push_back(ToSend::Handshake(HandshakeStep::EarlyOver));
        }
    }

    /// A server that takes 0-RTT has 1-RTT keys: it may answer before the handshake is complete. TLS
    /// has verified that the client knows the secret of an earlier session, and only that client can
    /// read the answer.
    pub(super) fn answer_early(&self, exchange: &mut Exchange) {
        if matches!(self.early.as_deref(), Some(Early::Taken { .. })) {
            exchange.to_send.push_back(ToSend::Handshake(HandshakeStep::Complete));
        }
    }

    /// The keys that open 0-RTT packets.
    pub(crate) fn early_keys(&self) -> Option<DirectionKeys> {
        match self.early.as_deref() {
            Some(Early::Taken { keys, .. }) => keys.clone(),
            _ => None,
        }
    }

    /// A server does not know yet whether it takes 0-RTT: the client's first message is incomplete.
    pub(crate) fn may_take_early(&self) -> bool {
        self.side == Side::Server && self.state == ConnectionState::Handshaking && !self.peer.are_known
    }

    /// A 0-RTT packet has data of this stream. False if these are more streams than a client may
    /// open under the limits that it remembers.
    pub(crate) fn note_early_stream(&mut self, id: StreamId) -> bool {
        let limit = self.config.max_concurrent_bidi_streams + self.config.max_concurrent_uni_streams;
        match self.early.as_deref_mut() {
            Some(Early::Taken { streams, .. }) => {
                streams.insert(id);
                streams.len() as u64 <= limit
            }
            _ => true,
        }
    }

    /// Whether data of this stream came in a 0-RTT packet.
    pub(crate) fn is_early_stream(&self, id: StreamId) -> bool {
        matches!(self.early.as_deref(), Some(Early::Taken { streams, .. }) if streams.contains(&id))
    }

    /// A client may send 0-RTT now.
    pub(crate) fn offers_early(&self) -> bool {
        self.is_handshaking() && matches!(self.early.as_deref(), Some(Early::Offered(_)))
    }

    /// Streams may be opened: the handshake is complete on our side, or this is a server that has
    /// taken 0-RTT.
    pub(crate) fn may_send(&self) -> bool {
        self.is_established() || (self.is_handshaking() && matches!(self.early.as_deref(), Some(Early::Taken { .. })))
    }

    /// Streams may be written: as [`may_send`](Self::may_send), or those of a client that sends
    /// 0-RTT.
    pub(crate) fn may_write(&self) -> bool {
        self.is_established() || (self.is_handshaking() && self.early.is_some())
    }

    /// Whether 0-RTT was accepted; none where there was none, or it is not known yet.
    pub(crate) fn is_early_accepted(&self) -> Option<bool> {
        match self.early.as_deref()? {
            Early::Offered(_) => None,
            Early::Accepted | Early::Taken { .. } => Some(true),
            Early::Rejected => Some(false),
        }
    }
}

//! 0-RTT: data in the client's first flight, under keys of an earlier session (RFC 9001, section
//! 4.6).
//!
//! An attacker can record 0-RTT packets and send them again, so that the server does twice what the
//! client has asked for once (RFC 9001, section 9.2). So nothing is sent in 0-RTT unless the
//! application opens a stream for it, and a server's application can ask which streams may be
//! replayed. TLS decides whether a client may send 0-RTT at all, and whether a server takes it: see
//! [`TlsClient`](crate::session::tls::TlsClient) and [`TlsServer`](crate::session::tls::TlsServer).

use bytes::BytesMut;
use units::{Ecn, Instant};
use wire::quic::{Dir, ErrorCode, PathId, ProtectedHeader, Side, Space, StreamId};

use super::{Connection, EARLY_PACKETS_MAX};
use crate::early_state::EarlyState;
use crate::error::TransportError;
use crate::journal::outcome::Answer;
use crate::open::early::open_early_packet;
use crate::open::opened::Record;

impl Connection {
    /// Opens a stream for a request that may be repeated without harm (RFC 9110, section 9.2.2, calls
    /// it idempotent): **an attacker may deliver it again, on another connection, and the server does
    /// what it asks for each time.**
    ///
    /// While the handshake is in progress, what is written to the stream leaves in 0-RTT packets. If
    /// the server does not take them, [`Event::EarlyRejected`](crate::Event::EarlyRejected) follows
    /// and the stream is gone. Once the handshake is complete this is [`open`](Self::open).
    ///
    /// None if 0-RTT is not possible ([`early_state`](Self::early_state)) or the limits that are
    /// remembered from the earlier connection allow no other stream: wait for
    /// [`Event::Connected`](crate::Event::Connected) and open the stream then.
    pub fn open_early(&mut self, dir: Dir) -> Option<StreamId> {
        self.record(|journal| journal.open_early(dir));
        let may_open = self.control.may_send() || self.control.offers_early();
        let id = if may_open { self.create_stream(dir) } else { None };
        self.record_answer(|| Answer::optional(id.map(StreamId::raw)));
        id
    }

    /// Whether 0-RTT is possible on this connection, or was accepted.
    pub fn early_state(&self) -> EarlyState {
        match self.control.is_early_accepted() {
            Some(true) => EarlyState::Accepted,
            Some(false) => EarlyState::Rejected,
            None if self.control.offers_early() => EarlyState::Possible,
            None => EarlyState::Unavailable,
        }
    }

    /// At a server: whether data of the client's stream came in a 0-RTT packet, so that an attacker
    /// may have sent it, once more or instead of the client. Once
    /// [`is_established`](Self::is_established) the client is there itself, but what was done before
    /// may have been done twice.
    pub fn may_be_replayed(&self, id: StreamId) -> bool {
        self.control.is_early_stream(id)
    }

    /// A 0-RTT packet has arrived. It is kept while a server does not know whether it takes 0-RTT,
    /// and otherwise dropped where there are no keys (RFC 9001, section 4.6.2).
    pub(super) fn open_early_packet(
        &mut self,
        now: Instant,
        mut packet: BytesMut,
        ecn: Option<Ecn>,
        header: &ProtectedHeader,
    ) {
        let keys = self.control.early_keys().filter(|_| self.side == Side::Server && header.fixed_bit);
        let Some(keys) = keys else {
            if self.control.may_take_early() && self.early.len() < EARLY_PACKETS_MAX {
                self.early.push((packet, ecn));
            } else {
                self.receive.half.stats.packets_dropped += 1;
            }
            return;
        };
        let largest = self.receive.half.largest(Space::Data, PathId::ZERO);
        let mut job = self.scratch.take().unwrap_or_default();
        let opened = &mut job.opened;
        opened.clear();
        opened.ecn = ecn;
        open_early_packet(&keys, header, largest, &mut packet, opened);
        let mut is_within_limits = true;
        for record in &opened.records {
            if let Record::Stream { id, .. } | Record::ResetStream { id, .. } = record
                && id.initiator() == Side::Client
            {
                is_within_limits &= self.control.note_early_stream(*id);
            }
        }
        if let Some(opened) = opened.packets.first_mut().filter(|_| !is_within_limits) {
            let reason = "more streams in 0-RTT than the client remembers";
            opened.error.get_or_insert(TransportError::new(ErrorCode::STREAM_LIMIT_ERROR, reason));
        }
        let limit = if opened.unauthentic_count == 0 { u64::MAX } else { self.integrity_limit };
        let buffer = packet.freeze();
        self.record(|journal| journal.single(now, None, opened, &buffer, limit));
        self.absorb_single(now, None, opened, &buffer, limit);
        self.scratch = Some(job);
    }
}

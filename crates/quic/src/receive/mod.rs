//! The receive half: the state of what has arrived.
//!
//! It owns acknowledgement ranges, reassembly and flow-control credit. It takes packets that the
//! open stage has opened and parsed ([`crate::open`]), and passes the frames for other owners on as
//! values.
//!
//! | file | content |
//! |---|---|
//! | `acks` | what to acknowledge and when; the snapshot the send half always sees fresh |
//! | `streams`, `assembler` | receiving sides of streams, and putting bytes in order |
//! | `window` | flow-control windows that grow |

pub(crate) mod acks;
pub(crate) mod assembler;
pub(crate) mod streams;
pub(crate) mod window;

use std::ops::Range;

use bytes::{Bytes, BytesMut};
use units::{Duration, Instant};
use wire::quic::{PathId, Side, Space, TransportParameters};

pub(crate) use acks::snapshot::Snapshot;

use crate::config::TransportConfig;
use crate::error::TransportError;
use crate::event::{Event, Events};
use crate::exchange::{Elsewhere, Exchange, ToControl, ToPath, ToReceive, ToSend};
use crate::open::opened::{Opened, OpenedPacket, Record};
use crate::plan::Receipt;
use crate::queue::Queue;
use crate::received_datagram::ReceivedDatagram;
use crate::stats::ReceiveStats;
use crate::strided_bytes::StridedBytes;
use acks::Acks;
use streams::RecvStreams;

/// Received datagrams are copied into pieces of memory of this length. A larger value saves allocations; a
/// smaller one keeps less alive while a datagram is held.
const DATAGRAM_MEMORY_BYTES: usize = 16 << 10;

/// Datagrams held until the application takes them, at most. Empty ones would not count against the
/// bytes of the buffer.
const DATAGRAMS_HELD_MAX: usize = 8192;

/// The receive half of a connection.
pub(crate) struct ReceiveHalf {
    acks: Acks,
    pub(crate) streams: RecvStreams,
    datagrams: Queue<ReceivedDatagram>,
    /// Memory for the next datagrams; none before the first, and none at rest.
    datagram_memory: Option<Box<BytesMut>>,
    datagram_bytes: u64,
    datagram_bytes_max: u64,
    datagrams_reported: bool,
    /// The exponent of the peer's ACK delays (RFC 9000, section 18.2).
    peer_ack_delay_exponent: u8,
    /// While a batch is absorbed that came from another address than that of its path.
    pub(crate) elsewhere: Option<Box<Elsewhere>>,
    pub(crate) stats: ReceiveStats,
}

impl ReceiveHalf {
    pub(crate) fn new(side: Side, config: &TransportConfig) -> Self {
        Self {
            acks: Acks::new(config.policy.acknowledges_centrally()),
            streams: RecvStreams::new(side, config),
            datagrams: Queue::new(),
            datagram_memory: None,
            datagram_bytes: 0,
            datagram_bytes_max: config.datagram_receive_buffer,
            datagrams_reported: false,
            peer_ack_delay_exponent: TransportParameters::default().ack_delay_exponent,
            elsewhere: None,
            stats: ReceiveStats::default(),
        }
    }

    /// A stand-in while the receive half is detached. It knows only what to acknowledge.
    pub(crate) fn stand_in(&self, side: Side, config: &TransportConfig) -> Self {
        Self { acks: self.acks.stand_in(), ..Self::new(side, config) }
    }

    /// Updates a stand-in with the snapshot of the detached receive half.
    pub(crate) fn refresh(&mut self, snapshot: &Snapshot) {
        self.acks.refresh(snapshot);
    }

    /// Takes from a stand-in which acknowledgements have left.
    pub(crate) fn take_acknowledged(&mut self, stand_in: &Self) {
        self.acks.take_acknowledged(stand_in.snapshot());
    }

    /// The packets to acknowledge now.
    pub(crate) fn snapshot(&self) -> &Snapshot {
        &self.acks.snapshot
    }

    /// The largest number received: the open stage decodes the next one with it.
    pub(crate) fn largest(&self, space: Space, path: PathId) -> Option<u64> {
        self.acks.largest(space, path)
    }

    /// Takes one value of the exchange.
    pub(crate) fn handle(&mut self, value: ToReceive, exchange: &mut Exchange) {
        match value {
            ToReceive::LocalOpened(id) => self.streams.local_opened(id),
            ToReceive::SendSideDone(id) => self.streams.send_side_done(id, exchange),
            ToReceive::AckSent { space, path, eliciting } => self.acks.on_ack_sent(space, path, eliciting),
            ToReceive::AckFloor { space, path, largest } => self.acks.raise_floor(space, path, largest),
            ToReceive::DiscardSpace(space) => self.acks.discard(space),
            ToReceive::ForgetPath(path) => self.acks.forget_path(path),
            ToReceive::PeerParameters(parameters) => self.peer_ack_delay_exponent = parameters.ack_delay_exponent,
            ToReceive::EarlyRejected => self.streams.forget_local(),
            ToReceive::RoundTrip(round_trip) => self.streams.set_round_trip(round_trip),
        }
    }

    /// Takes one opened packet, or a packet run. `opened` holds its records.
    pub(crate) fn absorb(
        &mut self,
        now: Instant,
        packet: &OpenedPacket,
        opened: &Opened,
        buffer: &Bytes,
        exchange: &mut Exchange,
        events: &mut Events,
    ) -> Result<(), TransportError> {
        if packet.phase_advanced {
            exchange.to_control.push_back(ToControl::PhaseAdvanced(opened.epoch));
        }
        let records = &opened.records[packet.records.clone()];
        if packet.count > 1 && !self.acks.is_ahead(packet.space, packet.path, packet.number) {
            return self.absorb_run_by_packet(now, packet, &records[0], opened, buffer, exchange, events);
        }
        if !self.acks.on_packets(now, packet.space, packet.path, packet.number, packet.count, packet.eliciting) {
            self.stats.packets_duplicate += 1;
            return Ok(());
        }
        self.acks.on_codepoint(packet.space, packet.path, packet.count, opened.ecn);
        self.stats.packets_received += u64::from(packet.count);
        exchange.to_control.push_back(ToControl::PacketAccepted { space: packet.space });
        for record in records {
            self.absorb_record(now, packet, record, opened, buffer, exchange, events)?;
        }
        packet.error.clone().map_or(Ok(()), Err)
    }

    /// Takes the packets of a run one by one, because some may be duplicates.
    #[expect(clippy::too_many_arguments, reason = "one run's context; a struct would only rename them")]
    fn absorb_run_by_packet(
        &mut self,
        now: Instant,
        packet: &OpenedPacket,
        record: &Record,
        opened: &Opened,
        buffer: &Bytes,
        exchange: &mut Exchange,
        events: &mut Events,
    ) -> Result<(), TransportError> {
        let &Record::Stream { id, offset, fin, data } = record else {
            unreachable!("only STREAM frames make runs");
        };
        for index in 0..packet.count {
            let number = packet.number + u64::from(index);
            if !self.acks.on_packets(now, packet.space, packet.path, number, 1, packet.eliciting) {
                self.stats.packets_duplicate += 1;
                continue;
            }
            self.acks.on_codepoint(packet.space, packet.path, 1, opened.ecn);
            self.stats.packets_received += 1;
            exchange.to_control.push_back(ToControl::PacketAccepted { space: packet.space });
            let offset = offset + u64::from(index) * data.len as u64;
            let record = Record::Stream { id, offset, fin, data: data.piece(index as usize) };
            self.absorb_record(now, packet, &record, opened, buffer, exchange, events)?;
        }
        Ok(())
    }

    #[expect(clippy::too_many_arguments, reason = "one packet's context; a struct would only rename them")]
    fn absorb_record(
        &mut self,
        now: Instant,
        packet: &OpenedPacket,
        record: &Record,
        opened: &Opened,
        buffer: &Bytes,
        exchange: &mut Exchange,
        events: &mut Events,
    ) -> Result<(), TransportError> {
        match record {
            Record::Stream { id, offset, fin, data } => {
                let data = StridedBytes::new(buffer.clone(), data);
                self.streams.on_data(now, *id, *offset, data, *fin, exchange, events)?;
            }
            Record::Ack { path, delay, ranges, ecn } => {
                let delay = Duration::from_micros(delay.saturating_mul(1 << self.peer_ack_delay_exponent.min(20)));
                let start = exchange.ranges.len();
                exchange.ranges.extend_from_slice(&opened.ack_ranges[ranges.clone()]);
                let ranges = start..exchange.ranges.len();
                let (space, path, via) = (packet.space, *path, packet.path);
                exchange.to_send.push_back(ToSend::Acknowledged { space, path, via, delay, ranges, ecn: *ecn });
            }
            Record::Crypto { offset, data } => {
                let bytes = buffer.slice(data.clone());
                exchange.to_control.push_back(ToControl::Crypto { space: packet.space, offset: *offset, bytes });
            }
            Record::Datagram { data } => self.on_datagram(packet.path, buffer, data.clone(), events)?,
            control => self.absorb_control(now, packet, control, buffer, exchange, events)?,
        }
        Ok(())
    }

    /// Takes a frame without application data; most are for other owners.
    fn absorb_control(
        &mut self,
        now: Instant,
        packet: &OpenedPacket,
        record: &Record,
        buffer: &Bytes,
        exchange: &mut Exchange,
        events: &mut Events,
    ) -> Result<(), TransportError> {
        match record {
            Record::Stream { .. } | Record::Ack { .. } | Record::Crypto { .. } | Record::Datagram { .. } => {
                unreachable!("absorbed before")
            }
            Record::ResetStream { id, code, final_size } => {
                self.streams.on_reset(now, *id, *code, *final_size, exchange, events)?;
            }
            Record::StopSending { id, code } => {
                self.streams.touch_sending(*id, exchange, events)?;
                exchange.to_send.push_back(ToSend::StopSending { id: *id, code: *code });
            }
            Record::MaxData(max) => exchange.to_send.push_back(ToSend::MaxData(*max)),
            Record::MaxStreamData { id, max } => {
                self.streams.touch_sending(*id, exchange, events)?;
                exchange.to_send.push_back(ToSend::MaxStreamData { id: *id, max: *max });
            }
            Record::MaxStreams { dir, max } => {
                exchange.to_send.push_back(ToSend::MaxStreams { dir: *dir, max: *max });
            }
            &Record::DataBlocked(limit) => self.streams.on_data_blocked(limit, exchange),
            &Record::StreamDataBlocked { id, limit } => {
                self.streams.on_stream_data_blocked(id, limit, exchange, events)?;
            }
            Record::NewToken { token } => {
                exchange.to_control.push_back(ToControl::NewToken(buffer.slice(token.clone())));
            }
            &Record::PathChallenge(data) => {
                let from = self.elsewhere.clone();
                if let Some(elsewhere) = &mut self.elsewhere {
                    // Credited once.
                    elsewhere.bytes = 0;
                }
                exchange.to_send.push_back(ToSend::Path(ToPath::Challenge { path: packet.path, data, from }));
            }
            &Record::PathResponse(data) => exchange.to_send.push_back(ToSend::Path(ToPath::Response(data))),
            &Record::NewConnectionId { path, sequence, retire_prior_to, id, reset_token } => {
                let value = ToControl::NewConnectionId { path, sequence, retire_prior_to, id, reset_token };
                exchange.to_control.push_back(value);
            }
            &Record::RetireConnectionId { path, sequence } => {
                exchange.to_control.push_back(ToControl::RetireConnectionId { path, sequence });
            }
            &Record::Multipath(frame) => exchange.to_control.push_back(ToControl::Multipath(frame)),
            &Record::AckFrequency { sequence, threshold, max_delay, reordering } => {
                self.acks.on_frequency(packet.path, sequence, threshold, max_delay, reordering)?;
            }
            Record::ImmediateAck => self.acks.ask_at_once(packet.path),
            Record::HandshakeDone => exchange.to_control.push_back(ToControl::HandshakeDone),
            Record::Close { code, frame_type, reason } => {
                let reason = Bytes::copy_from_slice(&buffer[reason.clone()]);
                let text = String::from_utf8_lossy(&reason).into_owned();
                let error =
                    TransportError { code: *code, frame_type: frame_type.unwrap_or_default(), reason: text.into() };
                exchange.to_control.push_back(ToControl::Closed { error, application: frame_type.is_none(), reason });
            }
        }
        Ok(())
    }

    fn on_datagram(
        &mut self,
        path: PathId,
        buffer: &Bytes,
        data: Range<usize>,
        events: &mut Events,
    ) -> Result<(), TransportError> {
        if self.datagram_bytes_max == 0 {
            return Err(TransportError::violation("a datagram though we take none"));
        }
        let len = data.len() as u64;
        if len > self.datagram_bytes_max {
            self.stats.datagrams_dropped += 1;
            return Ok(());
        }
        while self.datagram_bytes + len > self.datagram_bytes_max || self.datagrams.len() >= DATAGRAMS_HELD_MAX {
            let oldest = self.datagrams.pop_front().expect("something is held, so a datagram is");
            self.datagram_bytes -= oldest.data.len() as u64;
            self.stats.datagrams_dropped += 1;
        }
        self.datagram_bytes += len;
        // A copy, so that a datagram that waits long does not keep a receive buffer alive. Several share
        // their memory.
        let memory = self.datagram_memory.get_or_insert_default();
        if memory.capacity() < data.len() {
            **memory = BytesMut::with_capacity(DATAGRAM_MEMORY_BYTES.max(data.len()));
        }
        memory.extend_from_slice(&buffer[data]);
        self.datagrams.push_back(ReceivedDatagram::new(path, memory.split().freeze()));
        if !std::mem::replace(&mut self.datagrams_reported, true) {
            events.push(Event::DatagramReceived);
        }
        Ok(())
    }

    /// The oldest datagram received.
    pub(crate) fn recv_datagram(&mut self) -> Option<ReceivedDatagram> {
        match self.datagrams.pop_front() {
            Some(datagram) => {
                self.datagram_bytes -= datagram.data.len() as u64;
                Some(datagram)
            }
            None => {
                self.datagrams_reported = false;
                None
            }
        }
    }

    /// Notes the arrival of `count` datagrams, together `bytes` long.
    pub(crate) fn on_arrivals(&mut self, count: u64, bytes: u64) {
        self.stats.datagrams_received += count;
        self.stats.bytes_received += bytes;
    }

    /// A plan never left: the acknowledgements it carried are due again.
    pub(crate) fn on_not_emitted(&mut self, receipt: &Receipt) {
        for space in Space::ALL {
            if receipt.acks[space.index()] {
                self.acks.renew(space);
            }
        }
    }

    /// When [`ReceiveHalf::on_timeout`] has something to do.
    pub(crate) fn timeout(&self) -> Option<Instant> {
        self.acks.timeout()
    }

    /// Does what is due at `now`; does nothing if called early.
    pub(crate) fn on_timeout(&mut self, now: Instant) {
        self.acks.on_timeout(now);
    }

    /// Frees unused memory.
    pub(crate) fn shrink(&mut self) {
        self.datagrams.shrink();
        self.datagram_memory = None;
        self.streams.shrink();
    }

    /// Counters for people and tests.
    pub(crate) fn stats(&self) -> ReceiveStats {
        ReceiveStats { streams_open: self.streams.open_count(), ..self.stats.clone() }
    }
}

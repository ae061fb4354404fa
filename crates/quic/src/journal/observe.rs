//! What a replayed connection sent, received and declared lost, packet by packet: for logs in other
//! formats, such as qlog.
//!
//! A journal has the inputs of a connection; its packets are in none of its entries. A replay makes
//! the plans again, so their headers and frames can be read there. The observer collects them with
//! what arrives, and [`Replay::take_observations`](super::Replay::take_observations) passes them on
//! after each step. A live connection has no observer.

mod frames;

use std::collections::VecDeque;

use units::Ecn;
use wire::quic::frame::Frame;
use wire::quic::{PathId, Reader, Side, Space, TransportParameters};

use super::entry::Input;
use super::records::ReadRecords;
use super::session::SessionEntry;
use crate::observed::LostPackets;
use crate::open::opened::OpenedPacket;
use crate::plan::{PacketRun, Plan, Planned, PlannedPacket, Receipt, RunFrame};
use crate::session::{SessionSummary, TAG_LEN};

pub use frames::FrameSummary;

/// Packets of plans that were not reported as sent yet. Pipelines hold a few plans of 64 packets; a
/// log that exceeds this has lost reports, and the oldest packets are not shown.
const PLANNED_MAX: usize = 1 << 14;

/// One thing that a replayed connection did or that happened to it, at the time of its step.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Observation {
    /// The peer's transport parameters have arrived.
    PeerParameters(Box<TransportParameters>),
    /// Keys of this space were installed for both directions.
    KeysInstalled(Space),
    /// The result of the handshake.
    Session(Box<SessionSummary>),
    /// The packet was passed to the socket.
    Sent(PacketSummary),
    /// The packet arrived and was authentic. It may be a duplicate.
    Received(PacketSummary),
    /// Datagrams of one path arrived together.
    Arrived {
        /// Their path.
        path: PathId,
        /// Their number.
        datagrams: u64,
        /// Their payload.
        bytes: u64,
    },
    /// Packets arrived that were not read.
    Dropped {
        /// Their path, if it is known.
        path: Option<PathId>,
        /// Packets that were not authentic.
        unauthentic: u64,
        /// Packets without keys, or that were none of this connection's.
        unexpected: u64,
    },
    /// The packets were declared lost.
    Lost(LostPackets),
}

/// One packet.
#[derive(Debug, Clone)]
pub struct PacketSummary {
    /// The path.
    pub path: PathId,
    /// The packet number space.
    pub space: Space,
    /// Its number.
    pub number: u64,
    /// Its bytes, header and tag included. Of packets received together the sizes are known only if
    /// they are equal.
    pub size_bytes: Option<u64>,
    /// The codepoint in the IP header.
    pub ecn: Option<Ecn>,
    /// The key phase bit changes with this packet.
    pub begins_key_phase: bool,
    /// Its frames. Those of a received packet are without PADDING, PING and STREAMS_BLOCKED, which
    /// have no effect and so are not in a journal.
    pub frames: Vec<FrameSummary>,
}

/// Collects observations between two steps of a replay.
#[derive(Debug, Default)]
pub(super) struct Observer {
    pub(super) seen: Vec<Observation>,
    /// Packets of plans that were not reported yet.
    planned: VecDeque<PacketSummary>,
    /// The key phase of the last 1-RTT packet sent.
    key_phase: bool,
}

impl Observer {
    /// A plan was made again.
    pub(super) fn on_plan(&mut self, plan: &Plan) {
        for item in &plan.items {
            match item {
                Planned::Packet(packet) => self.plan_packet(plan, packet),
                Planned::Run(run) => self.plan_run(plan, run),
            }
        }
        while self.planned.len() > PLANNED_MAX {
            self.planned.pop_front();
        }
    }

    fn plan_packet(&mut self, plan: &Plan, packet: &PlannedPacket) {
        let mut bytes = Vec::new();
        for piece in &plan.pieces[packet.pieces_from as usize..packet.pieces_to as usize] {
            bytes.extend_from_slice(plan.bytes_of(piece));
        }
        let mut frames = Vec::new();
        let mut reader = Reader::new(&bytes[usize::from(packet.header_len)..]);
        while !reader.is_empty() {
            let frame = Frame::parse(&mut reader).expect("a connection writes valid frames");
            frames.push(FrameSummary::of_frame(&frame));
        }
        if packet.padding > 0 {
            frames.push(FrameSummary::Padding { len_bytes: u64::from(packet.padding) });
        }
        // RFC 9000, section 17.3.1: the key phase bit of a short header.
        let begins_key_phase = packet.space == Space::Data && self.note_phase(bytes[0] & 0x04 != 0);
        self.planned.push_back(PacketSummary {
            path: plan.path,
            space: packet.space,
            number: packet.number,
            size_bytes: Some((bytes.len() + usize::from(packet.padding) + TAG_LEN) as u64),
            ecn: plan.ecn,
            begins_key_phase,
            frames,
        });
    }

    fn plan_run(&mut self, plan: &Plan, run: &PacketRun) {
        let header = 1 + run.dcid.len() + usize::from(run.number_len);
        for index in 0..u64::from(run.count) {
            let len = u64::from(run.stride);
            let frame = match run.frame {
                RunFrame::Stream { id, offset } => {
                    FrameSummary::Stream { id, offset: offset + index * len, len_bytes: len, fin: false }
                }
                RunFrame::Datagram => FrameSummary::Datagram { len_bytes: len },
            };
            let begins_key_phase = self.note_phase(run.key_phase);
            self.planned.push_back(PacketSummary {
                path: plan.path,
                space: Space::Data,
                number: run.number + index,
                size_bytes: Some((header + run.frame.header_len() + TAG_LEN) as u64 + len),
                ecn: plan.ecn,
                begins_key_phase,
                frames: vec![frame],
            });
        }
    }

    /// Whether the key phase has changed.
    fn note_phase(&mut self, key_phase: bool) -> bool {
        std::mem::replace(&mut self.key_phase, key_phase) != key_phase
    }

    /// TLS was called.
    pub(super) fn on_session(&mut self, side: Side, entries: &[SessionEntry]) {
        for entry in entries {
            if let Some(parameters) = entry.peer_parameters()
                && let Ok(parameters) = TransportParameters::parse(parameters, side.peer())
            {
                self.seen.push(Observation::PeerParameters(Box::new(parameters)));
            }
            self.seen.extend(entry.new_keys().map(Observation::KeysInstalled));
            self.seen.extend(entry.summary().map(|summary| Observation::Session(Box::new(summary.clone()))));
        }
    }

    /// An entry is applied next.
    pub(super) fn on_input(&mut self, input: &Input) {
        match input {
            Input::Emitted(receipt) => self.on_reported(receipt, true),
            Input::NotEmitted(receipt) => self.on_reported(receipt, false),
            Input::Arrival { path, count, len, .. } => {
                self.seen.push(Observation::Arrived { path: *path, datagrams: *count, bytes: *len });
            }
            Input::Opened { batch, records } => self.on_opened(Some((batch.path, batch.len)), records),
            Input::Single { records, .. } => self.on_opened(None, records),
            _ => {}
        }
    }

    /// A plan left or did not. Plans are reported in any order, those of one path in their own.
    fn on_reported(&mut self, receipt: &Receipt, is_sent: bool) {
        let is_of_it = |packet: &PacketSummary| {
            let numbers = receipt.numbers[packet.space.index()];
            packet.path == receipt.path && numbers.is_some_and(|(first, last)| (first..=last).contains(&packet.number))
        };
        let Some(first) = self.planned.iter().position(is_of_it) else { return };
        let mut at = first;
        while at < self.planned.len() {
            if !is_of_it(&self.planned[at]) {
                at += 1;
            } else if let Some(packet) = self.planned.remove(at)
                && is_sent
            {
                self.seen.push(Observation::Sent(packet));
            }
        }
    }

    /// Packets arrived: in a batch of a path and so many bytes, or one packet of the handshake.
    fn on_opened(&mut self, batch: Option<(PathId, u64)>, records: &ReadRecords) {
        let opened = &records.opened;
        let (unauthentic, unexpected) = (opened.unauthentic_count, opened.dropped_count);
        if unauthentic + unexpected > 0 {
            let path = batch.map(|(path, _)| path);
            self.seen.push(Observation::Dropped { path, unauthentic, unexpected });
        }
        // Datagrams that were received with one call have equal sizes but for the last (UDP_GRO). So
        // the packets of a single run, which have equal frames, have equal sizes if they fill it.
        let only = match &opened.packets[..] {
            [only] if unauthentic + unexpected == 0 => Some(u64::from(only.count)),
            _ => None,
        };
        let size = batch.zip(only).and_then(|((_, len), count)| (len % count == 0).then_some(len / count));
        for packet in &opened.packets {
            self.on_opened_packet(packet, size, records);
        }
    }

    fn on_opened_packet(&mut self, packet: &OpenedPacket, size_bytes: Option<u64>, records: &ReadRecords) {
        for index in 0..packet.count {
            let record = |record| FrameSummary::of_record(record, index as usize, records);
            self.seen.push(Observation::Received(PacketSummary {
                path: packet.path,
                space: packet.space,
                number: packet.number + u64::from(index),
                size_bytes,
                ecn: records.opened.ecn,
                begins_key_phase: packet.phase_advanced && index == 0,
                frames: records.opened.records[packet.records.clone()].iter().map(record).collect(),
            }));
        }
    }
}

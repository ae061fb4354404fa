//! A dismantled connection, for a program that continues one end of it in a simpler way.
//!
//! The crate `scripted-peer` measures one end of a connection against another end that costs almost
//! nothing. It completes a real handshake, takes the keys and packet numbers of one end
//! ([`Connection::dismantle`]) and then makes plans of its own with them. This module holds what
//! that takes: types that expose no more of the protocol than keys, numbers and finished plans. It
//! is public for that crate and hidden from the documentation, because applications have no use for
//! it.
//!
//! [`Connection::dismantle`]: crate::Connection::dismantle

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use wire::quic::frame::stream_header_len;
use wire::quic::{ConnectionId, PathId, Space, StreamId, Version, emit_short};

use crate::addresses::Addresses;
use crate::batch_meta::BatchMeta;
use crate::control::ids::LOCAL_ID_LEN;
use crate::open::keys::OneRttKeys;
use crate::open::opened::Record;
use crate::open::{OpenContext, OpenJob};
use crate::plan::{PLAN_BYTES_MAX, PLAN_DATAGRAMS_MAX, PacketRun, Plan, Planned, PlannedPacket, RunFrame};
use crate::session::{DirectionKeys, HeaderKey, Session, TAG_LEN};

/// Packet numbers always have four bytes, so they decode however far the peer is behind.
const NUMBER_LEN: usize = 4;

/// The parts of one end of a confirmed connection that outlive it.
pub struct Dismantled {
    /// Derives the keys of later phases.
    pub session: Box<dyn Session>,
    /// Seals 1-RTT packets to the peer.
    pub seal: DirectionKeys,
    /// Opens the peer's 1-RTT packets.
    pub open: OpenKeys,
    /// Key updates that both ends have made.
    pub phase: u64,
    /// Acknowledgements name their path (multipath draft-21, section 2.3).
    pub is_multipath: bool,
    /// In the order in which the paths were opened.
    pub paths: Vec<DismantledPath>,
}

/// One path of it.
#[derive(Debug, Clone, Copy)]
pub struct DismantledPath {
    /// Its ID.
    pub id: PathId,
    /// The connection ID of the peer.
    pub remote_id: ConnectionId,
    /// Its addresses.
    pub addresses: Addresses,
    /// The number of the next packet to the peer.
    pub next_number: u64,
    /// The largest number that came from the peer.
    pub largest_received: Option<u64>,
}

/// The keys that open the peer's 1-RTT packets, as of the time when the connection was dismantled.
#[derive(Clone)]
pub struct OpenKeys(pub(crate) OneRttKeys);

impl OpenKeys {
    /// Removes header protection. Never changes.
    pub fn header(&self) -> Arc<dyn HeaderKey> {
        Arc::clone(&self.0.header)
    }

    /// The key phase that they begin with.
    pub fn phase(&self) -> u64 {
        self.0.epoch
    }

    /// A reader of what arrives on a path after the packet `largest`. It does not follow key
    /// updates.
    pub fn reader(&self, path: PathId, is_multipath: bool, largest: Option<u64>) -> PacketReader {
        let context = OpenContext {
            local_id_len: LOCAL_ID_LEN,
            levels: [None, None],
            version: Version::V1,
            other_initial: None,
            data: Some(self.0.clone()),
            largest: Space::ALL.map(|space| largest.filter(|_| space == Space::Data)),
            path,
            max_path: is_multipath.then_some(PathId(u32::MAX)),
            ignore_fixed_bit: true,
        };
        PacketReader { job: OpenJob { context: Some(context), ..OpenJob::default() } }
    }
}

/// Opens packets and shows the stream data in them.
pub struct PacketReader {
    job: OpenJob,
}

impl PacketReader {
    /// Opens the datagrams of a batch, all `stride` bytes long but the last, in place. Calls `each`
    /// for the stream data in them, in their order: stream, offset, bytes, and whether they are the
    /// last of their stream. Returns how many packets did not open or hold no valid frames.
    pub fn read(&mut self, batch: &mut [u8], stride: usize, mut each: impl FnMut(StreamId, u64, &[u8], bool)) -> u64 {
        self.job.meta = Some(BatchMeta::from(stride).checked());
        self.job.open(batch);
        let opened = &self.job.opened;
        for record in &opened.records {
            let Record::Stream { id, offset, fin, data } = record else { continue };
            let mut at = *offset;
            for index in 0..data.count {
                let start = data.piece(index).start;
                let is_last = index + 1 == data.count;
                each(*id, at, &batch[start..start + data.len], *fin && is_last);
                at += data.len as u64;
            }
        }
        let broken = opened.packets.iter().filter(|packet| packet.error.is_some()).count() as u64;
        opened.unauthentic_count + opened.dropped_count + broken
    }
}

/// The common settings of all packets of a plan.
#[derive(Debug, Clone, Copy)]
pub struct PacketSettings<'a> {
    /// The path that they travel on.
    pub path: PathId,
    /// Its addresses.
    pub addresses: Addresses,
    /// The connection ID that they are sent to.
    pub remote_id: ConnectionId,
    /// Seals them.
    pub seal: &'a DirectionKeys,
    /// The key phase bit.
    pub key_phase: bool,
}

impl PacketSettings<'_> {
    fn begin(&self, plan: &mut Plan, size: usize) {
        plan.clear();
        plan.path = self.path;
        plan.addresses = Some(self.addresses);
        plan.segment_size = size;
        plan.keys[Space::Data.index()] = Some(self.seal.clone());
    }

    /// Fills `plan` with the packet `number`, which holds the frames that `put` writes.
    pub fn plan_packet(&self, number: u64, plan: &mut Plan, put: impl FnOnce(&mut Vec<u8>)) {
        self.begin(plan, 0);
        emit_short(&self.remote_id, number, NUMBER_LEN, self.key_phase, false, true, &mut plan.head);
        let header_len = plan.head.len();
        put(&mut plan.head);
        plan.push_head_piece(0, true);
        plan.items.push(Planned::Packet(PlannedPacket {
            space: Space::Data,
            number,
            number_len: NUMBER_LEN as u8,
            header_len: header_len as u16,
            pieces_from: 0,
            pieces_to: 1,
            padding: 0,
        }));
        plan.packet_count = 1;
        plan.datagram_count = 1;
        plan.size_bytes = plan.head.len() + TAG_LEN;
        plan.segment_size = plan.size_bytes;
        plan.note_numbers(Space::Data, number, number);
    }

    /// Fills `plan` with at most `data.packets` full datagrams, numbered from `number` on. Returns
    /// how many they are and how many bytes of the stream they hold. They are fewer where the
    /// frame's header would grow.
    ///
    /// # Panics
    /// If there are no data, or none fit into a datagram.
    pub fn plan_data(&self, number: u64, data: &StreamData<'_>, plan: &mut Plan) -> (u64, u64) {
        let StreamData { id, offset, packets, size, pattern } = *data;
        let header_len = stream_header_len(id, offset, 0, true);
        let overhead = TAG_LEN + 1 + self.remote_id.len() + NUMBER_LEN + header_len;
        assert!(packets > 0 && size > overhead && !pattern.is_empty(), "a run has data");
        let stride = (size - overhead) as u64;
        let max = packets.min(PLAN_DATAGRAMS_MAX).min((PLAN_BYTES_MAX / size).max(1)) as u64;
        let is_uniform = |count: &u64| stream_header_len(id, offset + (count - 1) * stride, 0, true) == header_len;
        let count = (1..=max).rev().find(is_uniform).unwrap_or(1);
        self.begin(plan, size);
        let mut at = (offset % pattern.len() as u64) as usize;
        let mut missing = (count * stride) as usize;
        while missing > 0 {
            let len = missing.min(pattern.len() - at);
            plan.push_chunk_piece(pattern, at, len);
            missing -= len;
            at = 0;
        }
        plan.items.push(Planned::Run(PacketRun {
            number,
            count: count as u32,
            number_len: NUMBER_LEN as u8,
            key_phase: self.key_phase,
            fixed_bit: true,
            dcid: self.remote_id,
            frame: RunFrame::Stream { id, offset },
            stride: stride as u32,
            pieces_from: 0,
            pieces_to: plan.pieces.len() as u32,
        }));
        plan.packet_count = count as usize;
        plan.datagram_count = count as usize;
        plan.size_bytes = count as usize * size;
        plan.note_numbers(Space::Data, number, number + count - 1);
        (count, count * stride)
    }
}

/// Stream data for full datagrams.
#[derive(Debug, Clone, Copy)]
pub struct StreamData<'a> {
    /// The stream.
    pub id: StreamId,
    /// Their offset in the stream.
    pub offset: u64,
    /// The most datagrams.
    pub packets: usize,
    /// The size of each datagram, in bytes of UDP payload.
    pub size: usize,
    /// The byte at stream offset n is the one at n modulo the length of this.
    pub pattern: &'a Bytes,
}

impl fmt::Debug for Dismantled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dismantled").field("phase", &self.phase).field("paths", &self.paths).finish_non_exhaustive()
    }
}

impl fmt::Debug for OpenKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenKeys").field("phase", &self.0.epoch).finish_non_exhaustive()
    }
}

impl fmt::Debug for PacketReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PacketReader").finish_non_exhaustive()
    }
}

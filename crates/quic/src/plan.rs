//! Plans: the decisions of the send half, which the seal stage turns into datagrams.
//!
//! A plan names the path, the keys, the packet numbers, the headers and the byte ranges of the
//! application's data. It shares nothing with the connection that made it, so any processor can
//! seal it ([`mod@crate::seal`]). The caller keeps one plan and has it filled again and again: in
//! steady state nothing is allocated.
//!
//! ```text
//! plan     ── datagrams: all of `segment_size` bytes but the last
//!   packet ── keys, number ── pieces ── head bytes (header, frame headers, control frames): in `head`
//!                                    └─ payload: a range of an application chunk, untouched so far
//!   run    ── full packets of one stream that differ in number and offset only, or with a datagram each: one entry,
//!             whose headers the seal stage writes; its pieces are the payload of all of them
//! ```
//!
//! Bulk data is handled as packet runs: forty full packets of one stream, or forty datagrams of one
//! length, cost the connection as much as one.

use bytes::Bytes;
use units::{Ecn, Instant};
use wire::quic::frame::{datagram_header_len, emit_datagram_header, emit_stream_header, stream_header_len};
use wire::quic::{ConnectionId, PathId, Space, StreamId};

use crate::addresses::Addresses;
use crate::session::DirectionKeys;

/// The most datagrams a plan holds: as many as the kernel takes in one segmented send
/// (UDP_MAX_SEGMENTS before Linux 6.9).
pub const PLAN_DATAGRAMS_MAX: usize = 64;

/// The largest plan in bytes: the whole batch is one UDP payload with a 16-bit length until it is
/// segmented.
pub const PLAN_BYTES_MAX: usize = 65_000;

/// A batch of datagrams on one path, decided but not yet sealed.
#[derive(Debug, Default, Clone)]
pub struct Plan {
    /// The path of all its datagrams.
    pub path: PathId,
    /// The addresses of the path; none while the plan is empty.
    pub addresses: Option<Addresses>,
    /// The size of every datagram but the last, in bytes, which may be smaller.
    pub segment_size: usize,
    /// The ECN codepoint of every datagram.
    pub ecn: Option<Ecn>,
    /// When it was made.
    pub planned_at: Instant,
    pub(crate) datagram_count: usize,
    pub(crate) size_bytes: usize,
    pub(crate) items: Vec<Planned>,
    pub(crate) packet_count: usize,
    pub(crate) pieces: Vec<Piece>,
    pub(crate) head: Vec<u8>,
    pub(crate) chunks: Vec<Bytes>,
    pub(crate) keys: [Option<DirectionKeys>; 3],
    /// Per number space, the packet numbers in this plan, for the emit report.
    pub(crate) numbers: [Option<(u64, u64)>; 3],
    /// Per number space, whether the plan contains an acknowledgement.
    pub(crate) acks: [bool; 3],
    /// It has stream data, all of it of streams in the background.
    pub(crate) is_background: bool,
    /// It goes to an address that is not the one of its path.
    pub(crate) is_off_path: bool,
}

/// An entry of a plan.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Planned {
    Packet(PlannedPacket),
    Run(PacketRun),
}

/// A packet run: consecutive 1-RTT packets of one size, each with one frame that fills it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PacketRun {
    /// The first packet's number.
    pub(crate) number: u64,
    pub(crate) count: u32,
    pub(crate) number_len: u8,
    pub(crate) key_phase: bool,
    pub(crate) fixed_bit: bool,
    pub(crate) dcid: ConnectionId,
    pub(crate) frame: RunFrame,
    /// Payload of each packet, in bytes.
    pub(crate) stride: u32,
    /// The payload of all packets.
    pub(crate) pieces_from: u32,
    pub(crate) pieces_to: u32,
}

/// The frames of a packet run. None has a length field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunFrame {
    /// Bytes of one stream; the first packet's begin at `offset`.
    Stream { id: StreamId, offset: u64 },
    /// A datagram each (RFC 9221).
    Datagram,
}

impl RunFrame {
    /// The length of the frame header, which is the same in all packets of the run.
    pub(crate) fn header_len(self) -> usize {
        match self {
            Self::Stream { id, offset } => stream_header_len(id, offset, 0, true),
            Self::Datagram => datagram_header_len(0, true),
        }
    }

    /// Appends the frame header of packet `index`, with `stride` bytes of payload.
    pub(crate) fn emit_header(self, index: u64, stride: u32, out: &mut Vec<u8>) {
        match self {
            Self::Stream { id, offset } => {
                emit_stream_header(id, offset + index * u64::from(stride), stride as usize, false, true, out);
            }
            Self::Datagram => emit_datagram_header(stride as usize, true, out),
        }
    }
}

/// One packet of a plan.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PlannedPacket {
    pub(crate) space: Space,
    pub(crate) number: u64,
    pub(crate) number_len: u8,
    /// Bytes of the header, which is authenticated but not encrypted.
    pub(crate) header_len: u16,
    pub(crate) pieces_from: u32,
    pub(crate) pieces_to: u32,
    /// PADDING frames after the last piece, in bytes.
    pub(crate) padding: u16,
}

/// Consecutive bytes of a packet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Piece {
    /// Index into `chunks`, or [`Piece::HEAD`].
    pub(crate) chunk: u32,
    pub(crate) start: u32,
    pub(crate) len: u32,
}

impl Piece {
    /// The bytes lie in the plan's own `head`.
    pub(crate) const HEAD: u32 = u32::MAX;
}

impl Plan {
    /// An empty plan, to be filled.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many datagrams it holds.
    pub fn datagram_count(&self) -> usize {
        self.datagram_count
    }

    /// Whether it holds as many datagrams as a plan of at most `datagrams_max` can.
    pub fn is_full(&self, datagrams_max: usize) -> bool {
        self.datagram_count > 0 && self.datagram_count >= datagrams_max.min(PLAN_BYTES_MAX / self.segment_size)
    }

    /// Whether it has stream data, all of it of streams in the
    /// [background](crate::Connection::set_background). Other data should not have to wait for
    /// several such plans.
    pub fn is_background(&self) -> bool {
        self.is_background
    }

    /// Its size in bytes once sealed.
    pub fn size_bytes(&self) -> usize {
        self.size_bytes
    }

    /// How many packets it holds; more than datagrams while handshake packets are coalesced.
    pub fn packet_count(&self) -> usize {
        self.packet_count
    }

    /// The receipt to report that it leaves, or that it could not.
    pub fn receipt(&self) -> Receipt {
        Receipt { path: self.path, numbers: self.numbers, acks: self.acks, is_off_path: self.is_off_path }
    }

    /// Drops the application's bytes and the keys, and keeps the memory for the next plan.
    pub fn release(&mut self) {
        self.clear();
    }

    /// [Clears](Self::clear) it unless it is clear.
    #[inline]
    pub(crate) fn clear_once(&mut self) {
        if self.addresses.is_some() || self.segment_size != 0 {
            self.clear();
        }
    }

    pub(crate) fn clear(&mut self) {
        self.addresses = None;
        self.ecn = None;
        self.segment_size = 0;
        self.datagram_count = 0;
        self.size_bytes = 0;
        self.items.clear();
        self.packet_count = 0;
        self.pieces.clear();
        self.head.clear();
        self.chunks.clear();
        for keys in &mut self.keys {
            if keys.is_some() {
                *keys = None;
            }
        }
        self.numbers = [None; 3];
        self.acks = [false; 3];
        self.is_background = false;
        self.is_off_path = false;
    }

    /// Packets `first..=last` of `space` are in the plan; they follow those before them.
    pub(crate) fn note_numbers(&mut self, space: Space, first: u64, last: u64) {
        let numbers = &mut self.numbers[space.index()];
        *numbers = Some((numbers.map_or(first, |(first, _)| first), last));
    }

    /// Makes a piece of the bytes written to `head` since `start`. Adjacent bytes become one piece
    /// unless it must be `fresh`.
    pub(crate) fn push_head_piece(&mut self, start: usize, fresh: bool) {
        let len = self.head.len() - start;
        if len == 0 {
            return;
        }
        if !fresh
            && let Some(last) = self.pieces.last_mut()
            && last.chunk == Piece::HEAD
            && (last.start + last.len) as usize == start
        {
            last.len += len as u32;
            return;
        }
        self.pieces.push(Piece { chunk: Piece::HEAD, start: start as u32, len: len as u32 });
    }

    /// Adds `len` bytes of `chunk` from `start` as a piece. The chunk of the last piece is not held
    /// twice.
    pub(crate) fn push_chunk_piece(&mut self, chunk: &Bytes, start: usize, len: usize) {
        let same = self.chunks.last().is_some_and(|last| last.as_ptr() == chunk.as_ptr() && last.len() == chunk.len());
        if !same {
            self.chunks.push(chunk.clone());
        }
        self.pieces.push(Piece { chunk: self.chunks.len() as u32 - 1, start: start as u32, len: len as u32 });
    }
}

/// The packets of a plan. The driver passes it back with the time of the system call, or to report
/// that nothing left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Receipt {
    pub(crate) path: PathId,
    /// First and last number, per space.
    pub(crate) numbers: [Option<(u64, u64)>; 3],
    pub(crate) acks: [bool; 3],
    is_off_path: bool,
}

impl Receipt {
    /// The receipt of a plan in a journal. What it reports does not depend on its address.
    pub(crate) fn recorded(path: PathId) -> Self {
        Self { path, numbers: [None; 3], acks: [false; 3], is_off_path: false }
    }

    /// Whether the plan only probes an address that is not the one of its path. An error of the
    /// system says nothing about the path then.
    pub fn is_off_path(&self) -> bool {
        self.is_off_path
    }

    /// The path of the plan.
    pub fn path(&self) -> PathId {
        self.path
    }
}

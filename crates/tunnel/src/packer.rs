//! Packs packets into the payloads of DATAGRAM frames.
//!
//! ```text
//!  small packets   [p][p][p]                    ──▶ one datagram with three items
//!  a packet        [p]                          ──▶ one datagram
//!  super-packet    [headers][s][s][s][s][s]     ──▶ [headers s s] [headers s s] [headers s]
//!  too large       [p            ]              ──▶ [piece] [piece]
//! ```
//!
//! A datagram with a part of a super-packet has all its headers, so that a lost one costs the segments
//! in it and no others.

use std::collections::VecDeque;

use bytes::{BufMut, Bytes, BytesMut};

use crate::arena::Arena;
use crate::inner::Inner;
use crate::item::{FLOWS_MAX, ITEM_HEADER_BYTES, ItemHeader, Kind, LENGTH_BYTES, SPLIT_HEADER_BYTES};
use crate::meter::data_bytes;

/// Packets up to this length share datagrams. Two larger ones rarely fit into one.
const SMALL_BYTES_MAX: usize = 640;

/// Datagrams shorter than this are useless, and a path with this size does not exist: QUIC needs 1200
/// bytes.
const DATAGRAM_BYTES_MIN: usize = 1000;

/// A packet on its way into the tunnel.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// The IP packet.
    pub ip: &'a [u8],
    /// Its headers.
    pub inner: Inner,
    /// Whether its transport checksum is partial.
    pub is_partial: bool,
    /// For a super-packet, the payload of each segment in bytes; not zero. Its checksum is partial.
    pub segment: Option<u16>,
}

impl Packet<'_> {
    /// The bytes with which it [counts](data_bytes) for a rate.
    #[must_use]
    pub fn data_bytes(&self) -> usize {
        let header_bytes = self.inner.header_bytes();
        data_bytes(header_bytes, self.ip.len() - header_bytes, self.segment)
    }
}

/// What a [`Packet`] is, without its bytes.
#[derive(Clone, Copy, Debug)]
pub struct PacketHead {
    /// As in [`Packet`].
    pub inner: Inner,
    /// As in [`Packet`].
    pub is_partial: bool,
    /// As in [`Packet`].
    pub segment: Option<u16>,
}

impl PacketHead {
    /// The packet of which `ip` has the bytes.
    #[must_use]
    pub const fn with<'a>(&self, ip: &'a [u8]) -> Packet<'a> {
        Packet { ip, inner: self.inner, is_partial: self.is_partial, segment: self.segment }
    }
}

/// Numbers items and packs them into datagrams.
#[derive(Debug)]
pub struct Packer {
    /// The next sequence number of each flow.
    next: Box<[u32]>,
    /// The datagram that further small packets may join.
    open: BytesMut,
    /// The flows of the packets in it.
    open_flows: Vec<u16>,
    arena: Arena,
    /// Whether all datagrams leave on one path.
    is_pinned: bool,
    /// Flows that have come from another path lately: few.
    moving: Vec<u16>,
}

impl Default for Packer {
    fn default() -> Self {
        Self::new()
    }
}

impl Packer {
    /// Without items.
    #[must_use]
    pub fn new() -> Self {
        let next = vec![0; usize::from(FLOWS_MAX)].into_boxed_slice();
        Self {
            next,
            open: BytesMut::new(),
            open_flows: Vec::new(),
            arena: Arena::default(),
            is_pinned: false,
            moving: Vec::new(),
        }
    }

    /// Without items, for datagrams that all leave on one path, but for those with a packet
    /// [alone](Self::pack_alone).
    #[must_use]
    pub fn pinned() -> Self {
        Self { is_pinned: true, ..Self::new() }
    }

    /// Goes on with a flow of `other`, whose next packets are packed here.
    ///
    /// # Panics
    /// If there is no such flow.
    pub fn continue_flow(&mut self, flow: u16, other: &Self) {
        self.next[usize::from(flow)] = other.next[usize::from(flow)];
    }

    /// Whether the items of a flow say that it keeps to one path, if those of other flows do.
    pub(crate) fn set_pinned(&mut self, flow: u16, is_pinned: bool) {
        self.moving.retain(|other| *other != flow);
        if !is_pinned {
            self.moving.push(flow);
        }
    }

    fn is_pinned(&self, flow: u16) -> bool {
        self.is_pinned && !self.moving.contains(&flow)
    }

    /// Whether a packet may share its datagram with others, and stay for them.
    pub(crate) fn shares(packet: &Packet<'_>) -> bool {
        packet.ip.len() <= SMALL_BYTES_MAX && packet.segment.is_none()
    }

    /// Packs `packet` of `flow` into datagrams of at most `len_max` bytes, which are added to `out`. A
    /// small packet may stay for others until [`flush`](Self::flush).
    ///
    /// # Panics
    /// If there is no such flow.
    pub fn push(&mut self, flow: u16, packet: &Packet<'_>, len_max: usize, out: &mut VecDeque<Bytes>) {
        let len_max = len_max.clamp(DATAGRAM_BYTES_MIN, usize::from(u16::MAX));
        let bytes = packet.ip.len();
        if !Self::shares(packet) && self.open_flows.contains(&flow) {
            // The packets of a flow keep their order.
            self.flush(out);
        }
        match (packet.segment, packet.inner.transport) {
            (Some(segment), Some((_, header_bytes))) if bytes > header_bytes => {
                let room = len_max.saturating_sub(ITEM_HEADER_BYTES + SPLIT_HEADER_BYTES + header_bytes);
                let segments = room / usize::from(segment);
                if segments > 0 {
                    self.push_segments(flow, packet, (segment, segments, header_bytes), out);
                } else {
                    self.push_cut_segments(flow, packet, (segment, header_bytes), len_max, out);
                }
            }
            _ if bytes <= SMALL_BYTES_MAX => self.push_small(flow, packet, len_max, out),
            _ => self.push_large(flow, packet.ip, packet.is_partial, len_max, out),
        }
    }

    /// A datagram with this packet alone, which waits for no others. None if `len_max` bytes do not hold it,
    /// or it is a super-packet.
    ///
    /// # Panics
    /// If there is no such flow.
    pub fn pack_alone(&mut self, flow: u16, packet: &Packet<'_>, len_max: usize) -> Option<Bytes> {
        if packet.segment.is_some() || ITEM_HEADER_BYTES + packet.ip.len() > len_max {
            return None;
        }
        let item = self.header(flow, Kind::Packet { is_partial: packet.is_partial });
        // It passes others, and may leave on another path.
        Some(self.alone(ItemHeader { is_pinned: false, ..item }, packet.ip))
    }

    /// Adds the datagram with small packets, if there is one.
    pub fn flush(&mut self, out: &mut VecDeque<Bytes>) {
        if !self.open.is_empty() {
            out.push_back(self.open.split().freeze());
            self.open_flows.clear();
        }
    }

    fn header(&mut self, flow: u16, kind: Kind) -> ItemHeader {
        ItemHeader { flow, sequence: self.take_numbers(flow, 1), is_pinned: self.is_pinned(flow), kind }
    }

    /// The first of the next `count` sequence numbers of a flow.
    fn take_numbers(&mut self, flow: u16, count: u32) -> u32 {
        let next = &mut self.next[usize::from(flow)];
        let first = *next;
        *next = next.wrapping_add(count);
        first
    }

    /// A datagram of at most `bytes` in memory that it shares with others.
    fn datagram(&mut self, bytes: usize, fill: impl FnOnce(&mut BytesMut)) -> Bytes {
        let buffer = self.arena.with_space(bytes);
        fill(buffer);
        buffer.split().freeze()
    }

    /// A datagram with one item.
    fn alone(&mut self, item: ItemHeader, bytes: &[u8]) -> Bytes {
        self.datagram(item.len(false) + bytes.len(), |out| {
            item.emit(None, out);
            out.put_slice(bytes);
        })
    }

    fn push_small(&mut self, flow: u16, packet: &Packet<'_>, len_max: usize, out: &mut VecDeque<Bytes>) {
        let bytes = ITEM_HEADER_BYTES + LENGTH_BYTES + packet.ip.len();
        if self.open.len() + bytes > len_max {
            self.flush(out);
        }
        let item = self.header(flow, Kind::Packet { is_partial: packet.is_partial });
        self.open.reserve(bytes);
        item.emit(Some(packet.ip.len() as u16), &mut self.open);
        self.open.put_slice(packet.ip);
        self.open_flows.push(flow);
    }

    /// A super-packet, `segments` of it in each datagram.
    fn push_segments(
        &mut self,
        flow: u16,
        packet: &Packet<'_>,
        (segment, segments, header_bytes): (u16, usize, usize),
        out: &mut VecDeque<Bytes>,
    ) {
        let (headers, payload) = packet.ip.split_at(header_bytes);
        let step = segments * usize::from(segment);
        let overhead = ITEM_HEADER_BYTES + SPLIT_HEADER_BYTES + header_bytes;
        let count = payload.len().div_ceil(step);
        // All of them lie in one piece of memory, so that it is taken once, and divided once all is written: to
        // count a reference, a processor waits for what it has written before.
        let sequence = self.take_numbers(flow, count as u32);
        let is_pinned = self.is_pinned(flow);
        let buffer = self.arena.with_space(payload.len() + count * overhead);
        for (index, part) in payload.chunks(step).enumerate() {
            let kind = Kind::Segments { segment, offset: (index * step) as u16 };
            ItemHeader { flow, sequence: sequence.wrapping_add(index as u32), is_pinned, kind }.emit(None, buffer);
            buffer.extend_from_slice(headers);
            buffer.extend_from_slice(part);
        }
        let mut all = buffer.split().freeze();
        while !all.is_empty() {
            let len = all.len().min(overhead + step);
            out.push_back(all.split_to(len));
        }
    }

    /// A super-packet whose segments do not fit into datagrams: each is cut into pieces.
    fn push_cut_segments(
        &mut self,
        flow: u16,
        packet: &Packet<'_>,
        (segment, header_bytes): (u16, usize),
        len_max: usize,
        out: &mut VecDeque<Bytes>,
    ) {
        let (total, segment) = (packet.ip.len() - header_bytes, usize::from(segment));
        let mut ip = Vec::new();
        for from in (0..total).step_by(segment) {
            let to = (from + segment).min(total);
            ip.clear();
            ip.extend_from_slice(&packet.ip[..header_bytes]);
            crate::inner::fit_headers(&mut ip, &packet.inner, crate::inner::Part { from, to, total, segment });
            ip.extend_from_slice(&packet.ip[header_bytes + from..header_bytes + to]);
            self.push_large(flow, &ip, true, len_max, out);
        }
    }

    /// A packet in a datagram of its own, or in pieces.
    fn push_large(&mut self, flow: u16, ip: &[u8], is_partial: bool, len_max: usize, out: &mut VecDeque<Bytes>) {
        if ITEM_HEADER_BYTES + ip.len() <= len_max {
            let item = self.header(flow, Kind::Packet { is_partial });
            out.push_back(self.alone(item, ip));
            return;
        }
        let room = len_max - ITEM_HEADER_BYTES - SPLIT_HEADER_BYTES;
        // Pieces of about one length: datagrams of one length leave together.
        let step = ip.len().div_ceil(ip.len().div_ceil(room));
        for (index, piece) in ip.chunks(step).enumerate() {
            let kind = Kind::Fragment { is_partial, total: ip.len() as u16, offset: (index * step) as u16 };
            let item = self.header(flow, kind);
            out.push_back(self.alone(item, piece));
        }
    }
}

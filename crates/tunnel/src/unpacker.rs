//! Turns received datagrams into packets: parses items, puts them in order, joins segments of one
//! super-packet, pieces of one packet and packets of one flow that follow each other, and refuses packets
//! from addresses that their sender does not have.

use std::collections::BTreeMap;

use bytes::{Buf, Bytes, BytesMut};
use units::{Duration, Instant};

use crate::arena::Arena;
use crate::inner::{HEADERS_BYTES_MAX, Inner, Part, fit_headers};
use crate::item::{Body, Item, take_item};
use crate::meter::data_bytes;
use crate::resequencer::{Resequencer, ResequencerStats};
use crate::run::Run;
use crate::runs::Runs;

/// Parts of what is delivered, at most: packets of 520 bytes that are joined to 64 KiB.
pub const PARTS_MAX: usize = 126;

/// Packets of which some pieces have arrived, at most: a packet of each of so many flows, in at most 7 MiB of memory.
const PIECES_MAX: usize = 64;

/// A packet that leaves the tunnel.
#[derive(Debug)]
pub struct Arrived<'a> {
    /// Its headers.
    pub inner: Inner,
    /// All headers of a super-packet; none of other packets.
    pub headers: &'a [u8],
    /// The packet, or the payload of a super-packet, in order.
    pub parts: &'a [Bytes],
    /// Whether its transport checksum is partial.
    pub is_partial: bool,
    /// For a super-packet, the payload of each segment in bytes.
    pub segment: Option<u16>,
    /// Packets that were joined; 1 for others, and for a super-packet that came as one.
    pub packets: usize,
}

impl Arrived<'_> {
    /// The bytes with which it [counts](data_bytes) for a rate.
    #[must_use]
    pub fn data_bytes(&self) -> usize {
        let (bytes, header_bytes) = (self.parts.iter().map(Bytes::len).sum::<usize>(), self.inner.header_bytes());
        data_bytes(header_bytes, bytes + self.headers.len() - header_bytes, self.segment)
    }
}

/// Takes packets that leave the tunnel.
pub trait Sink {
    /// Whether the peer may send from this address.
    fn allows(&self, inner: &Inner) -> bool;

    /// Takes a packet.
    fn deliver(&mut self, packet: &Arrived<'_>);
}

/// Counters.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct UnpackerStats {
    /// Packets and super-packets delivered, as they came: not joined.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Datagrams with bytes that are no items.
    pub malformed: u64,
    /// Packets with an address that their sender does not have.
    pub spoofed: u64,
    /// Pieces of packets of which another piece is missing.
    pub incomplete: u64,
}

/// The receiving end of one peer's packets.
#[derive(Debug, Default)]
pub struct Unpacker {
    order: Resequencer,
    joiner: Joiner,
}

impl Unpacker {
    /// Expects the first item of each flow.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// As [`new`](Self::new). UDP packets of one length that follow each other are delivered as one
    /// super-packet, as TCP packets always are, if `joins_udp`: if the device takes those.
    #[must_use]
    pub fn with_udp_runs(joins_udp: bool) -> Self {
        Self { joiner: Joiner { runs: Runs::new(joins_udp), ..Joiner::default() }, ..Self::default() }
    }

    /// Sets which paths the sender may use, with their round trips.
    pub fn set_open_paths(&mut self, round_trips: impl Iterator<Item = (usize, Duration)> + Clone) {
        self.order.set_open_paths(round_trips);
    }

    /// Takes a datagram that arrived on `path`. What is delivered may wait for the datagrams that arrived
    /// together with it, until [`flush`](Self::flush).
    pub fn push(&mut self, now: Instant, path: usize, mut datagram: Bytes, sink: &mut impl Sink) {
        let Self { order, joiner } = self;
        loop {
            match take_item(&mut datagram) {
                Ok(None) => return,
                Ok(Some(item)) => order.push(now, path, item, &mut |item| joiner.push(item, sink)),
                Err(_) => {
                    joiner.stats.malformed += 1;
                    return;
                }
            }
        }
    }

    /// Delivers what waits for more segments or packets. Called after the datagrams that arrived together.
    pub fn flush(&mut self, sink: &mut impl Sink) {
        self.joiner.flush(sink);
    }

    /// When to call [`handle_timeout`](Self::handle_timeout).
    #[must_use]
    pub fn timeout(&self) -> Option<Instant> {
        self.order.timeout()
    }

    /// Delivers what has waited too long for earlier items.
    pub fn handle_timeout(&mut self, now: Instant, sink: &mut impl Sink) {
        let Self { order, joiner } = self;
        order.handle_timeout(now, &mut |item| joiner.push(item, sink));
        joiner.flush(sink);
    }

    /// Counters.
    #[must_use]
    pub const fn stats(&self) -> UnpackerStats {
        self.joiner.stats
    }

    /// Counters of the order.
    #[must_use]
    pub const fn order(&self) -> &Resequencer {
        &self.order
    }

    /// Counters of the order.
    #[must_use]
    pub const fn order_stats(&self) -> ResequencerStats {
        self.order.stats()
    }
}

/// Joins segments and pieces that are in order.
#[derive(Debug, Default)]
struct Joiner {
    segments: Option<Segments>,
    /// The payload of the segments.
    parts: Vec<Bytes>,
    runs: Runs,
    /// The first pieces of packets, by flow.
    pieces: BTreeMap<u16, Pieces>,
    /// For the bytes of such packets.
    memory: Arena,
    stats: UnpackerStats,
}

/// Consecutive segments of one super-packet.
#[derive(Debug)]
struct Segments {
    flow: u16,
    headers: Bytes,
    inner: Inner,
    segment: u16,
    from: usize,
    to: usize,
    total: usize,
}

/// The first pieces of a packet.
#[derive(Debug)]
struct Pieces {
    is_partial: bool,
    total: usize,
    bytes: BytesMut,
}

impl Joiner {
    fn push(&mut self, item: Item, sink: &mut impl Sink) {
        let Item { flow, body, .. } = item;
        if !self.pieces.is_empty() && !matches!(body, Body::Fragment { .. }) && self.pieces.remove(&flow).is_some() {
            // The pieces of a packet follow each other.
            self.stats.incomplete += 1;
        }
        match body {
            Body::Segments { segment, offset, bytes } => {
                self.flush_run(flow, sink);
                self.push_segments(flow, segment, offset, bytes, sink);
            }
            Body::Packet { is_partial, packet } => {
                self.flush_segments_of(flow, sink);
                self.push_packet(flow, is_partial, packet, sink);
            }
            Body::Fragment { is_partial, total, offset, bytes } => {
                self.flush_segments_of(flow, sink);
                self.push_piece(flow, is_partial, usize::from(total), usize::from(offset), &bytes, sink);
            }
        }
    }

    fn flush(&mut self, sink: &mut impl Sink) {
        self.flush_segments(sink);
        while let Some(run) = self.runs.take_first() {
            self.deliver_run(run, sink);
        }
    }

    fn push_packet(&mut self, flow: u16, is_partial: bool, mut packet: Bytes, sink: &mut impl Sink) {
        if let Some(run) = self.runs.of(flow) {
            match run.push(is_partial, packet) {
                Ok(()) if !run.is_complete => return,
                Ok(()) => return self.flush_run(flow, sink),
                Err(other) => packet = other,
            }
            self.flush_run(flow, sink);
        }
        let inner = match Inner::parse(&packet) {
            Ok(inner) if !is_partial || inner.transport.is_some() => inner,
            _ => {
                self.stats.malformed += 1;
                return;
            }
        };
        if !self.runs.may_begin(&inner, is_partial, &packet) {
            self.deliver_packet(inner, is_partial, packet, sink);
        } else if let Some(first) = self.runs.begin(flow, is_partial, inner, packet) {
            self.deliver_run(first, sink);
        }
    }

    fn flush_run(&mut self, flow: u16, sink: &mut impl Sink) {
        if let Some(run) = self.runs.take(flow) {
            self.deliver_run(run, sink);
        }
    }

    fn deliver_run(&mut self, run: Run, sink: &mut impl Sink) {
        let packets = run.len() as u64;
        let memory = if sink.allows(run.inner()) {
            self.stats.packets += packets;
            self.stats.bytes += run.bytes() as u64;
            run.deliver(sink)
        } else {
            self.stats.spoofed += packets;
            run.drop_packets()
        };
        self.runs.recycle(memory);
    }

    fn push_segments(&mut self, flow: u16, segment: u16, offset: u16, mut bytes: Bytes, sink: &mut impl Sink) {
        let from = usize::from(offset);
        if let Some(open) = &mut self.segments {
            let header_bytes = open.headers.len();
            if open.flow == flow
                && open.segment == segment
                && open.to == from
                && self.parts.len() < PARTS_MAX
                && bytes.len() > header_bytes
                && bytes[..header_bytes] == open.headers[..]
                && from + bytes.len() - header_bytes <= open.total
            {
                bytes.advance(header_bytes);
                open.to += bytes.len();
                self.parts.push(bytes);
                // A part that is no whole number of segments is the last.
                if open.to == open.total || !(open.to - from).is_multiple_of(usize::from(segment)) {
                    self.flush_segments(sink);
                }
                return;
            }
            self.flush_segments(sink);
        }
        let Some((inner, total)) = super_packet(&bytes) else {
            self.stats.malformed += 1;
            return;
        };
        let header_bytes = inner.transport.map_or(0, |(_, bytes)| bytes);
        let len = bytes.len() - header_bytes;
        if len == 0 || from + len > total {
            self.stats.malformed += 1;
            return;
        }
        let headers = bytes.split_to(header_bytes);
        let to = from + len;
        self.parts.push(bytes);
        self.segments = Some(Segments { flow, headers, inner, segment, from, to, total });
        if to == total || !len.is_multiple_of(usize::from(segment)) {
            self.flush_segments(sink);
        }
    }

    /// Flushes the segments if they are of this flow.
    fn flush_segments_of(&mut self, flow: u16, sink: &mut impl Sink) {
        if self.segments.as_ref().is_some_and(|open| open.flow == flow) {
            self.flush_segments(sink);
        }
    }

    fn flush_segments(&mut self, sink: &mut impl Sink) {
        let Some(Segments { headers, inner, segment, from, to, total, .. }) = self.segments.take() else { return };
        if sink.allows(&inner) {
            let mut fitted = [0; HEADERS_BYTES_MAX];
            let fitted = &mut fitted[..headers.len()];
            fitted.copy_from_slice(&headers);
            if (from, to) != (0, total) {
                let part = Part { from, to, total, segment: segment.into() };
                fit_headers(fitted, &inner, part);
            }
            self.stats.packets += 1;
            self.stats.bytes += (headers.len() + to - from) as u64;
            let segment = (to - from > usize::from(segment)).then_some(segment);
            let parts = &self.parts;
            sink.deliver(&Arrived { inner, headers: fitted, parts, is_partial: true, segment, packets: 1 });
        } else {
            self.stats.spoofed += 1;
        }
        self.parts.clear();
    }

    fn deliver_packet(&mut self, inner: Inner, is_partial: bool, packet: Bytes, sink: &mut impl Sink) {
        if !sink.allows(&inner) {
            self.stats.spoofed += 1;
            return;
        }
        self.stats.packets += 1;
        self.stats.bytes += packet.len() as u64;
        sink.deliver(&Arrived { inner, headers: &[], parts: &[packet], is_partial, segment: None, packets: 1 });
    }

    fn push_piece(
        &mut self,
        flow: u16,
        is_partial: bool,
        total: usize,
        offset: usize,
        bytes: &[u8],
        sink: &mut impl Sink,
    ) {
        if let Some(mut open) = self.pieces.remove(&flow) {
            if open.is_partial == is_partial && open.total == total && open.bytes.len() == offset {
                open.bytes.extend_from_slice(bytes);
                if open.bytes.len() == total {
                    self.push_packet(flow, is_partial, open.bytes.freeze(), sink);
                } else {
                    self.pieces.insert(flow, open);
                }
                return;
            }
            self.stats.incomplete += 1;
        }
        if offset == 0 && bytes.len() < total && self.pieces.len() < PIECES_MAX {
            let mut whole = self.memory.take(total);
            whole.extend_from_slice(bytes);
            self.pieces.insert(flow, Pieces { is_partial, total, bytes: whole });
        } else {
            self.stats.incomplete += 1;
        }
    }
}

/// The headers of a super-packet of which `bytes` has the headers and a part of the payload, and the
/// bytes of the whole payload. None if they are not that.
fn super_packet(bytes: &Bytes) -> Option<(Inner, usize)> {
    let inner = Inner::parse_super_packet(bytes).ok()?;
    let (_, header_bytes) = inner.transport?;
    let whole = Inner::whole_bytes(bytes)?;
    Some((inner, whole.checked_sub(header_bytes).filter(|total| *total > 0)?))
}

#[cfg(test)]
mod tests;

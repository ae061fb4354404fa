//! The receive half: what has arrived, what is acknowledged, and how much more the peer may send.
//!
//! It sees sequence numbers, lengths and references to the data, never the bytes.

mod acks;
mod assembler;
mod tuner;

use bytes::{Buf, Bytes};
use units::{Duration, Instant, Seq32};
use wire::tcp::{Flags, SackBlocks};

use self::acks::Acks;
use self::assembler::Assembler;
use self::tuner::Tuner;
use crate::budget::BufferSize;
use crate::config::{TcpConfig, WindowGrowth};
use crate::position::{FIRST_BYTE, SequenceSpace};

/// The receive half of a connection.
#[derive(Debug)]
pub(crate) struct ReceiveHalf {
    space: SequenceSpace,
    assembler: Assembler,
    /// The next position in order: RCV.NXT.
    nxt: u64,
    /// The position after the last that the peer may send, as announced.
    edge: u64,
    /// What was acknowledged last (RFC 7323, section 4.3, Last.ACK.sent).
    acked: u64,
    /// The position of the FIN, if it was received in order or beyond a hole.
    fin: Option<u64>,
    /// Bytes that may be received and not read.
    buffer: BufferSize,
    tuner: Tuner,
    /// The window is announced in units of this power of two (RFC 7323, section 2.3).
    scale: u8,
    /// Bytes of data in the largest segment that has arrived.
    segment: u64,
    acks: Acks,
    growth: WindowGrowth,
    has_sack: bool,
    /// The position after the urgent data; zero if there were none.
    urgent_end: u64,
    /// A congestion mark was received that the peer has not reacted to (RFC 3168, section 6.1.3).
    is_marked: bool,
    stats: ReceiveStats,
}

/// Counters of the receive half.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReceiveStats {
    /// Bytes of data received in order.
    pub bytes_received: u64,
    /// Bytes received that were there already.
    pub bytes_duplicate: u64,
    /// Segments beyond a hole.
    pub out_of_order: u64,
    /// Segments with a congestion mark.
    pub marked: u64,
}

/// A segment's place in the stream of the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Acceptance {
    /// Part of it lies in the window: `position` is that of its sequence number.
    Acceptable { position: u64 },
    /// Nothing of it does (RFC 9293, section 3.10.7.4).
    Outside,
}

/// What a plan says about the peer's data: always the latest.
#[derive(Debug, Clone)]
pub(crate) struct Snapshot {
    pub(crate) ack: Seq32,
    pub(crate) window: u16,
    pub(crate) sack: SackBlocks,
    /// The peer learns of a mark (RFC 3168, section 6.1.3).
    pub(crate) is_marked: bool,
}

impl ReceiveHalf {
    /// A half that has received the SYN with this sequence number.
    pub(crate) fn new(config: &TcpConfig, initial: Seq32, scale: u8, segment: u64, has_sack: bool) -> Self {
        let buffer = BufferSize::new(config.buffers_initial, config.receive_buffer, &config.budget);
        let mut half = Self {
            space: SequenceSpace::new(initial),
            assembler: Assembler::new(buffer.bytes()),
            nxt: FIRST_BYTE,
            edge: FIRST_BYTE,
            acked: FIRST_BYTE,
            fin: None,
            buffer,
            tuner: Tuner::default(),
            scale,
            segment,
            acks: Acks::new(config.acks),
            growth: config.window_growth,
            has_sack,
            urgent_end: 0,
            is_marked: false,
            stats: ReceiveStats::default(),
        };
        half.edge = half.nxt + u64::from(half.unscaled_window());
        half
    }

    pub(crate) fn stats(&self) -> ReceiveStats {
        self.stats
    }

    /// The peer's initial sequence number.
    pub(crate) fn initial(&self) -> Seq32 {
        self.space.wire(0)
    }

    pub(crate) fn nxt_on_wire(&self) -> Seq32 {
        self.space.wire(self.nxt)
    }

    pub(crate) const fn nxt(&self) -> u64 {
        self.nxt
    }

    pub(crate) const fn acked(&self) -> u64 {
        self.acked
    }

    /// The FIN and everything before it were received.
    pub(crate) const fn is_fin_received(&self) -> bool {
        matches!(self.fin, Some(fin) if self.nxt > fin)
    }

    /// Whether blocks beyond holes, or something received twice, are to be reported.
    pub(crate) fn has_blocks(&self) -> bool {
        self.has_sack && self.acks.blocks().next().is_some()
    }

    /// Whether the application has read everything and nothing follows.
    pub(crate) fn is_drained(&self) -> bool {
        self.is_fin_received() && self.assembler.ready_len() == 0
    }

    pub(crate) const fn readable(&self) -> usize {
        self.assembler.ready_len()
    }

    /// Whether a segment with this sequence number, which takes `len` positions, lies in the window
    /// (RFC 9293, section 3.10.7.4, the table). A FIN without data takes no space in the buffer, so it is
    /// welcome in a closed window, too: its sender would give up otherwise.
    pub(crate) fn acceptance(&self, seq: Seq32, data_len: u64, len: u64) -> Acceptance {
        let Some(position) = self.space.position(seq, self.nxt) else { return Acceptance::Outside };
        // A FIN at the edge has its position beyond it.
        let window = self.edge.saturating_sub(self.nxt);
        let is_in_window = |at: u64| self.nxt <= at && at < self.edge;
        let is_acceptable = match (len, window) {
            (_, 0) => data_len == 0 && position == self.nxt,
            (0, _) => is_in_window(position),
            _ => is_in_window(position) || is_in_window(position + len - 1),
        };
        if is_acceptable { Acceptance::Acceptable { position } } else { Acceptance::Outside }
    }

    /// Whether `seq` is the number of the peer's SYN.
    pub(crate) fn is_syn(&self, seq: Seq32) -> bool {
        seq == self.space.wire(0)
    }

    /// Whether `seq` is the next expected sequence number.
    pub(crate) fn is_next(&self, seq: Seq32) -> bool {
        seq == self.nxt_on_wire()
    }

    /// A segment outside the window was received. What was received before is reported once more (RFC
    /// 2883, section 4): the peer learns that it need not have been sent.
    pub(crate) fn note_repeated(&mut self, seq: Seq32, len: u64) {
        let Some(position) = self.space.position(seq, self.nxt) else { return };
        if len > 0 && position + len <= self.nxt {
            self.stats.bytes_duplicate += len;
            self.acks.on_duplicate(position..position + len);
        }
    }

    /// Takes the data of an acceptable segment, which came in packets of `segment` bytes. True if there is something new to read, or the stream
    /// has ended.
    pub(crate) fn take(&mut self, now: Instant, position: u64, mut data: Bytes, flags: Flags, segment: u64) -> bool {
        let mut start = position + u64::from(flags.contains(Flags::SYN));
        let mut end = start + data.len() as u64;
        let mut has_fin = flags.contains(Flags::FIN);
        if end > self.edge {
            // What lies beyond the window is cut off (RFC 9293, section 3.10.7.4).
            data.truncate(data.len() - (end - self.edge).min(data.len() as u64) as usize);
            (end, has_fin) = (start + data.len() as u64, false);
        }
        if start < self.nxt {
            let known = (self.nxt - start).min(data.len() as u64);
            if known > 0 {
                self.stats.bytes_duplicate += known;
                self.acks.on_duplicate(start..start + known);
                self.acks.set_due();
            }
            data.advance(known as usize);
            start += known;
        }
        self.segment = self.segment.max(segment);
        if has_fin && self.fin.is_none() && end >= self.nxt {
            self.fin = Some(end);
            self.assembler.cut(end);
        }
        if let Some(fin) = self.fin.filter(|fin| start + data.len() as u64 > *fin) {
            // Nothing follows a FIN.
            data.truncate(fin.saturating_sub(start) as usize);
        }
        self.place(now, start, data, has_fin)
    }

    fn place(&mut self, now: Instant, start: u64, data: Bytes, has_fin: bool) -> bool {
        let (before, had_hole) = (self.nxt, self.assembler.has_hole());
        if !data.is_empty() {
            let len = data.len() as u64;
            if start > self.nxt {
                self.stats.out_of_order += 1;
                // What was there already is reported once more (RFC 2883, section 4).
                let known = self.assembler.block_around(start).filter(|block| block.end >= start + len);
                if known.is_some() {
                    self.stats.bytes_duplicate += len;
                    self.acks.on_duplicate(start..start + len);
                }
            }
            self.nxt = self.assembler.insert(self.nxt, start, data);
            if let Some(block) = self.assembler.block_around(start) {
                self.acks.on_block(block);
            }
        }
        if self.fin == Some(self.nxt) {
            self.nxt += 1;
        }
        let received = self.nxt - before;
        if received > 0 {
            self.acks.on_in_order(self.nxt);
            self.stats.bytes_received += received - u64::from(self.is_fin_received());
            self.acks.on_data(now, received, self.segment, self.window_max());
        }
        // A hole, its filling and the end are acknowledged at once (RFC 5681, section 4.2).
        if had_hole || self.assembler.has_hole() || has_fin || (received == 0 && start != self.nxt) {
            self.acks.set_due();
        }
        received > 0
    }

    /// The buffer grows with what the application reads in a round trip, so that the window does not
    /// limit the peer. `rtt` is the round trip as the send half knows it.
    pub(crate) fn tune(&mut self, now: Instant, rtt: Duration) {
        // An acknowledgement without news must not change the window: it would not count as a duplicate
        // (RFC 5681, section 2).
        if self.assembler.has_hole() {
            return;
        }
        let read = self.read_end() - FIRST_BYTE;
        if let Some(wanted) = self.tuner.on_data(now, rtt, self.nxt, read, self.edge)
            && self.buffer.grow_to(wanted)
        {
            self.assembler.set_limit(self.buffer.bytes());
        }
    }

    /// The size of the buffer.
    pub(crate) const fn buffer(&self) -> u64 {
        self.buffer.bytes()
    }

    /// A segment with this sequence number says that urgent data end `pointer` bytes after it (RFC 9293,
    /// section 3.8.5). They stay in the stream, where they are (RFC 6093, section 4). True if more of the
    /// data are urgent than before.
    pub(crate) fn note_urgent(&mut self, position: u64, pointer: u16) -> bool {
        let end = position + u64::from(pointer);
        let has_advanced = end > self.urgent_end.max(self.read_end());
        if has_advanced {
            self.urgent_end = end;
        }
        has_advanced
    }

    /// Bytes to be read until the end of the urgent data.
    pub(crate) const fn urgent_left(&self) -> u64 {
        self.urgent_end.saturating_sub(self.read_end())
    }

    /// The position after the last byte that was read.
    const fn read_end(&self) -> u64 {
        let fin = if self.is_fin_received() { 1 } else { 0 };
        self.nxt - fin - self.assembler.ready_len() as u64
    }

    /// A congestion mark was received, or the peer has reacted to one.
    pub(crate) fn note_marks(&mut self, is_marked: bool, is_cwr: bool) {
        if is_cwr {
            self.is_marked = false;
        }
        if is_marked {
            self.is_marked = true;
            self.stats.marked += 1;
        }
    }

    /// The next bytes, at most `len_max`.
    pub(crate) fn read(&mut self, len_max: usize) -> Option<Bytes> {
        let bytes = self.assembler.read(len_max)?;
        // A wider window is worth a segment if the peer may soon need it, and it is wider by two segments or
        // half the buffer. Otherwise the next acknowledgement of data says it.
        let is_half_used = self.acks.is_by_reading() || 2 * self.edge.saturating_sub(self.nxt) <= self.window_max();
        let is_worth = self.gained() >= (2 * self.segment).min(self.buffer.bytes() / 2).max(1);
        if is_half_used && is_worth && !self.is_fin_received() {
            self.acks.set_due();
        }
        Some(bytes)
    }

    /// An acknowledgement is due at once.
    pub(crate) fn set_ack_due(&mut self) {
        self.acks.set_due();
    }

    pub(crate) const fn is_ack_due(&self) -> bool {
        self.acks.is_due()
    }

    pub(crate) const fn poll_timeout(&self) -> Option<Instant> {
        self.acks.due_at()
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        self.acks.handle_timeout(now);
    }

    /// What a segment says that leaves now. `blocks_max` fit into its options.
    pub(crate) fn snapshot(&mut self, blocks_max: usize) -> Snapshot {
        // The edge never moves back (RFC 9293, section 3.8.6), and forward only by a segment or half the
        // buffer: a peer that fills every small gap would go on with small segments (section 3.8.6.2.2).
        let remaining = self.edge.saturating_sub(self.nxt);
        let is_worth = match self.growth {
            WindowGrowth::Segment => self.gained() >= self.segment.min(self.buffer.bytes() / 2),
            WindowGrowth::Any => self.announceable() >= self.segment.min(self.buffer.bytes() / 4),
        };
        let announced = if is_worth { self.announceable().max(remaining) } else { remaining };
        let window = (announced >> self.scale).min(u64::from(u16::MAX));
        self.edge = self.edge.max(self.nxt + (window << self.scale));
        let mut sack = SackBlocks::default();
        if self.has_sack {
            for block in self.acks.blocks().take(blocks_max) {
                sack.push(self.space.wire(block.start), self.space.wire(block.end));
            }
        }
        self.on_ack_sent();
        Snapshot { ack: self.nxt_on_wire(), window: window as u16, sack, is_marked: self.is_marked }
    }

    /// What a segment with a SYN acknowledges; its window is [`unscaled_window`](Self::unscaled_window).
    pub(crate) fn snapshot_of_syn(&mut self) -> Seq32 {
        self.on_ack_sent();
        self.nxt_on_wire()
    }

    fn on_ack_sent(&mut self) {
        self.acked = self.nxt;
        self.acks.on_sent();
    }

    /// The window of a segment with a SYN, which is not scaled (RFC 7323, section 2.2).
    pub(crate) fn unscaled_window(&self) -> u16 {
        self.buffer.bytes().min(u64::from(u16::MAX)) as u16
    }

    /// How much further than announced the peer may send.
    fn gained(&self) -> u64 {
        (self.nxt + self.announceable()).saturating_sub(self.edge)
    }

    /// Bytes that may be announced: the free part of the buffer.
    fn announceable(&self) -> u64 {
        let free = self.buffer.bytes().saturating_sub(self.assembler.ready_len() as u64);
        free.min(self.window_max()) >> self.scale << self.scale
    }

    /// The buffer, as far as a window can announce it.
    fn window_max(&self) -> u64 {
        self.buffer.bytes().min(u64::from(u16::MAX) << self.scale)
    }
}

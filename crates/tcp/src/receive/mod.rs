//! The receive half: the received data, their acknowledgement, and the window granted to the peer.
//!
//! It sees sequence numbers, lengths and references to the data, never the bytes. It can be
//! [detached](crate::detached) from its connection; a stand-in then takes its place there.
//!
//! | module | content |
//! |---|---|
//! | `segment` | checks of segments and their acknowledgements |
//! | [`acks`] | time and contents of acknowledgements |
//! | `assembler` | received data, in order and beyond holes |
//! | [`challenges`] | the limit on answers to unacceptable segments |
//! | `marks` | congestion marks: echoed or counted |
//! | `growth`, `tuner` | growth of the buffer with its use |
//! | `urgent` | urgent data |
//! | `detached` | the stand-in, and its exchange with the detached half |

pub(crate) mod acks;
mod assembler;
pub(crate) mod challenges;
mod detached;
mod growth;
mod marks;
mod segment;
mod tuner;
mod urgent;

use std::ops::Range;

use bytes::{Buf, Bytes};
use units::{Instant, Seq32};
use wire::tcp::{Flags, Header, SackBlocks};

use self::acks::{Announced, Received};
use self::assembler::Assembler;
use self::challenges::Challenges;
use self::growth::Growth;
pub(crate) use self::segment::Judgement;
use self::segment::SentBounds;
use crate::accurate_ecn::CountersDue;
use crate::config::{AckPolicy, TcpConfig, WindowGrowth};
use crate::negotiated::Negotiated;
use crate::position::{FIRST_BYTE, SequenceSpace};
use crate::results::{CloseReason, Read};
use crate::timestamps::TimestampClock;

/// Number of consecutive segments dropped for their timestamps before the application is notified.
/// A few are usual after reordering; within a minute a peer repeats unacknowledged data at least
/// this often.
const OLD_SEGMENTS_MAX: u8 = 8;

/// The receive half of a connection.
#[derive(Debug)]
pub(crate) struct ReceiveHalf {
    space: SequenceSpace,
    terms: Negotiated,
    policy: AckPolicy,
    window_growth: WindowGrowth,
    /// Maximum segment size that we announced.
    announced_mss: u16,
    received: Received,
    announced: Announced,
    /// Growth of the buffer; held by the half that makes plans.
    growth: Option<Growth>,
    assembler: Assembler,
    /// Position of the FIN, if it was received in order or beyond a hole.
    fin: Option<u64>,
    /// Position after the urgent data; zero if there were none.
    urgent_end: u64,
    /// Whether a delayed acknowledgement is due now.
    is_expired: bool,
    /// Number of consecutive segments dropped for their timestamps, without data between them.
    old_segments: u8,
    /// Schedule of the option with the counters of marks. Held by the half that makes plans.
    counters_due: CountersDue,
    sent: SentBounds,
    challenges: Challenges,
    stats: ReceiveStats,
}

/// Counters of the receive half.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReceiveStats {
    /// Bytes of data received in order.
    pub bytes_received: u64,
    /// Bytes received that were present already.
    pub bytes_duplicate: u64,
    /// Segments beyond a hole.
    pub out_of_order: u64,
    /// Segments with a congestion mark.
    pub marked: u64,
    /// Segments dropped because their timestamp was older than the latest (PAWS; RFC 7323, section 5).
    pub dropped_by_paws: u64,
}

/// The latest receive state in the form of header fields.
#[derive(Debug, Clone)]
pub(crate) struct Snapshot {
    pub(crate) ack: Seq32,
    pub(crate) window: u16,
    pub(crate) sack: SackBlocks,
    /// Flags that report marks to the peer (RFC 3168, section 6.1.3; RFC 9768, section 3.2.2).
    pub(crate) marks: Flags,
}

impl ReceiveHalf {
    /// Creates a half that has received this SYN. `ours` are the sequence numbers of this side,
    /// `segment` is the number of data bytes in a full segment.
    pub(crate) fn new(
        config: &TcpConfig,
        syn: &Header,
        terms: Negotiated,
        clock: TimestampClock,
        ours: SequenceSpace,
        (segment, announced_mss): (u64, u16),
    ) -> Self {
        let growth = Growth::new(config);
        let buffer = growth.bytes();
        Self {
            space: SequenceSpace::new(syn.seq),
            terms,
            policy: config.acks,
            window_growth: config.window_growth,
            announced_mss,
            received: Received::new(segment.min(u16::MAX.into()) as u16, clock),
            announced: Announced::new(FIRST_BYTE + buffer.min(u16::MAX.into()), buffer),
            growth: Some(growth),
            assembler: Assembler::new(buffer),
            fin: None,
            urgent_end: 0,
            is_expired: false,
            old_segments: 0,
            counters_due: CountersDue::default(),
            sent: SentBounds::new(ours),
            challenges: Challenges::default(),
            stats: ReceiveStats::default(),
        }
    }

    pub(crate) fn stats(&self) -> ReceiveStats {
        self.stats
    }

    /// Returns the peer's initial sequence number.
    pub(crate) fn initial(&self) -> Seq32 {
        self.space.wire(0)
    }

    pub(crate) const fn old_segments(&self) -> u8 {
        self.old_segments
    }

    /// Returns whether consecutive segments were dropped for their timestamps.
    pub(crate) const fn has_only_old_segments(&self) -> bool {
        self.old_segments >= OLD_SEGMENTS_MAX
    }

    pub(crate) const fn nxt(&self) -> u64 {
        self.received.nxt
    }

    /// Returns our timestamp clock with the peer's latest timestamp.
    pub(crate) const fn clock(&self) -> &TimestampClock {
        &self.received.clock
    }

    pub(crate) fn nxt_on_wire(&self) -> Seq32 {
        self.space.wire(self.received.nxt)
    }

    /// Returns whether the FIN and everything before it were received.
    pub(crate) fn is_fin_received(&self) -> bool {
        self.fin.is_some_and(|fin| self.received.nxt > fin)
    }

    /// Returns whether the FIN was received, perhaps beyond a hole.
    pub(crate) const fn has_fin(&self) -> bool {
        self.fin.is_some()
    }

    /// Returns whether blocks beyond holes, or a range received twice, should be reported.
    pub(crate) fn has_blocks(&self) -> bool {
        self.terms.sack && self.received.blocks(&self.announced).next().is_some()
    }

    /// Returns whether the application has read everything and nothing follows.
    fn is_drained(&self) -> bool {
        self.is_fin_received() && self.assembler.ready_len() == 0
    }

    pub(crate) const fn readable(&self) -> usize {
        self.assembler.ready_len()
    }

    /// Takes the data of an acceptable segment. Returns true if there are new data to read, or the
    /// stream has ended.
    pub(crate) fn take(&mut self, now: Instant, position: u64, mut data: Bytes, flags: Flags, segment: u64) -> bool {
        let (nxt, edge) = (self.received.nxt, self.announced.edge);
        let mut start = position + u64::from(flags.contains(Flags::SYN));
        let mut end = start + data.len() as u64;
        let mut has_fin = flags.contains(Flags::FIN);
        if end > edge {
            // The part beyond the window is cut off (RFC 9293, section 3.10.7.4).
            data.truncate(data.len() - (end - edge).min(data.len() as u64) as usize);
            (end, has_fin) = (start + data.len() as u64, false);
        }
        let is_partly_known = start < nxt && !data.is_empty();
        if start < nxt {
            let known = (nxt - start).min(data.len() as u64);
            if known > 0 {
                self.stats.bytes_duplicate += known;
                self.received.on_duplicate(start..start + known);
                self.received.demand();
            }
            data.advance(known as usize);
            start += known;
        }
        // No segment is larger than announced; if it is, others have joined it without a note.
        self.received.segment = self.received.segment.max(segment.min(self.announced_mss.into()) as u16);
        if has_fin && self.fin.is_none() && end >= nxt {
            self.fin = Some(end);
            self.assembler.cut(end);
        }
        if let Some(fin) = self.fin.filter(|fin| start + data.len() as u64 > *fin) {
            // Nothing follows a FIN.
            data.truncate(fin.saturating_sub(start) as usize);
        }
        self.place(now, start, data, has_fin, is_partly_known)
    }

    /// Notes data beyond a hole that arrive again, also as part of a larger segment, to be reported
    /// once more; the first range if there are several (RFC 2883, sections 4.1 and 4.2). A
    /// duplicate of data in order that came with them takes precedence.
    fn note_known(&mut self, range: &Range<u64>, is_reported: bool) {
        if let Some(known) = self.assembler.first_known(range) {
            self.stats.bytes_duplicate += known.end - known.start;
            if !is_reported {
                self.received.on_duplicate(known);
            }
        }
    }

    fn place(&mut self, now: Instant, start: u64, data: Bytes, has_fin: bool, is_partly_known: bool) -> bool {
        let (before, had_hole) = (self.received.nxt, self.assembler.has_hole());
        let mut nxt = before;
        if !data.is_empty() {
            let len = data.len() as u64;
            self.stats.out_of_order += u64::from(start > before);
            if had_hole {
                self.note_known(&(start..start + len), is_partly_known);
            }
            nxt = self.assembler.insert(before, start, data);
            if let Some(block) = self.assembler.block_around(start) {
                self.received.on_block(block);
            }
        }
        if self.fin == Some(nxt) {
            nxt += 1;
        }
        (self.received.unread, self.received.has_hole) = (self.assembler.ready_len() as u32, self.assembler.has_hole());
        let received = nxt - before;
        if received > 0 {
            self.old_segments = 0;
            self.received.on_data(now, nxt, &self.policy);
            self.stats.bytes_received += received - u64::from(self.is_fin_received());
        }
        // A hole, its filling and the FIN are acknowledged at once (RFC 5681, section 4.2).
        if had_hole || self.received.has_hole || has_fin || (received == 0 && start != nxt) {
            self.received.demand();
        }
        received > 0
    }

    /// Returns up to `len_max` bytes, or the reason why there are none: the connection may be
    /// closed.
    pub(crate) fn read_or_end(&mut self, len_max: usize, closed: Option<CloseReason>) -> Read {
        if let Some(bytes) = self.read(len_max) {
            return Read::Bytes(bytes);
        }
        if self.is_drained() { Read::End } else { closed.map_or(Read::Blocked, Read::Closed) }
    }

    fn read(&mut self, len_max: usize) -> Option<Bytes> {
        let bytes = self.assembler.read(len_max)?;
        self.received.unread = self.assembler.ready_len() as u32;
        // A wider window is worth a segment if the peer may soon need it and it is wider by two
        // segments or half the buffer. Otherwise the next acknowledgement of data announces it.
        let is_half_used = self.policy.is_by_reading() || 2 * self.remaining() <= self.window_max();
        let is_worth = self.gained() >= (2 * self.segment()).min(self.buffer() / 2).max(1);
        if is_half_used && is_worth && !self.is_fin_received() {
            self.received.demand();
        }
        Some(bytes)
    }

    /// Demands an immediate acknowledgement.
    pub(crate) fn set_ack_due(&mut self) {
        self.received.demand();
    }

    pub(crate) fn is_ack_due(&self) -> bool {
        self.is_expired || self.received.is_due(&self.announced, &self.policy, self.window_max())
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.received.due_at(&self.announced)
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        self.is_expired |= self.poll_timeout().is_some_and(|at| at <= now);
    }

    /// Returns the receive state for a segment that leaves now. `blocks_max` is the number of
    /// blocks that fit into its options.
    pub(crate) fn snapshot(&mut self, blocks_max: usize) -> Snapshot {
        // The edge never moves back (RFC 9293, section 3.8.6), and forward only by a segment or
        // half the buffer: a peer that fills every small gap would keep sending small segments
        // (section 3.8.6.2.2).
        let remaining = self.remaining();
        let is_worth = match self.window_growth {
            WindowGrowth::Segment => self.gained() >= self.segment().min(self.buffer() / 2),
            WindowGrowth::Any => self.announceable() >= self.segment().min(self.buffer() / 4),
        };
        let announced = if is_worth { self.announceable().max(remaining) } else { remaining };
        let window = (announced >> self.terms.scale).min(u64::from(u16::MAX));
        let mut sack = SackBlocks::default();
        if self.terms.sack {
            for block in self.received.blocks(&self.announced).take(blocks_max) {
                sack.push(self.space.wire(block.start), self.space.wire(block.end));
            }
        }
        let marks = self.mark_flags();
        self.announce(self.announced.edge.max(self.received.nxt + (window << self.terms.scale)));
        Snapshot { ack: self.nxt_on_wire(), window: window as u16, sack, marks }
    }

    /// Returns the acknowledgement of a segment with a SYN; its window is
    /// [`unscaled_window`](Self::unscaled_window).
    pub(crate) fn snapshot_of_syn(&mut self) -> Seq32 {
        self.announce(self.announced.edge);
        self.nxt_on_wire()
    }

    fn announce(&mut self, edge: u64) {
        self.announced = self.received.announce(edge, self.buffer());
        self.received.on_announced(&self.announced);
        self.is_expired = false;
    }

    /// Returns the window of a segment with a SYN, which is not scaled (RFC 7323, section 2.2).
    pub(crate) fn unscaled_window(&self) -> u16 {
        self.buffer().min(u64::from(u16::MAX)) as u16
    }

    /// Returns the size of the buffer.
    pub(crate) const fn buffer(&self) -> u64 {
        self.announced.buffer
    }

    fn segment(&self) -> u64 {
        self.received.segment.into()
    }

    /// Returns how many bytes of the announced window remain.
    const fn remaining(&self) -> u64 {
        self.announced.edge.saturating_sub(self.received.nxt)
    }

    /// Returns by how many bytes the window can grow beyond the announced one.
    fn gained(&self) -> u64 {
        (self.received.nxt + self.announceable()).saturating_sub(self.announced.edge)
    }

    /// Returns the number of bytes that may be announced: the free part of the buffer.
    fn announceable(&self) -> u64 {
        let free = self.buffer().saturating_sub(self.received.unread.into());
        free.min(self.window_max()) >> self.terms.scale << self.terms.scale
    }

    /// Returns the buffer size, as far as a window can announce it.
    fn window_max(&self) -> u64 {
        self.buffer().min(u64::from(u16::MAX) << self.terms.scale)
    }
}

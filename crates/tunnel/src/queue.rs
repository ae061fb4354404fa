//! The packets that wait for a connection: a queue for each flow, served in turn, each with CoDel (RFC
//! 8290). A flow that sends little is served first, so that it does not wait for others. Packets of lower effort
//! are served when no others wait (RFC 8622).

use std::collections::VecDeque;
use std::ops::Range;

use units::{Duration, Instant, Rate};

use crate::codel::{Bounds, Codel};
use crate::inner::{Inner, Part, fit_headers};
use crate::item::FLOWS_MAX;
use crate::packer::{Packet, PacketHead};

/// Bytes that wait, at most: 64 ms at 1 Gb/s. Beyond it the longest queue loses packets.
pub const QUEUED_BYTES_MAX: usize = 8 << 20;

/// With a rate, what leaves in this time may wait: enough for a window of a controller that has found a rate of twice
/// as much, over a long round trip.
const QUEUED_TIME_MAX: Duration = Duration::from_millis(400);

/// But always this much: two super-packets.
const QUEUED_BYTES_MAX_LEAST: usize = 128 << 10;

/// Packets that wait, at most.
pub const QUEUED_PACKETS_MAX: usize = 10_240;

/// Bytes that a flow may send in its turn (RFC 8290, section 4.1): a packet of the usual size.
const QUANTUM_BYTES: i64 = 1514;

/// New flows that are looked at for a packet that passes others, at most.
const SPARSE_LOOKED_AT: usize = 16;

/// Buffers that are kept for later packets, at most: the memory of this many super-packets.
const SPARE_MAX: usize = 64;

/// A packet that waits.
#[derive(Debug)]
pub struct Queued {
    flow: u16,
    entered: Instant,
    buffer: Vec<u8>,
    /// Where the packet begins in the buffer.
    start: usize,
    inner: Inner,
    is_partial: bool,
    segment: Option<u16>,
}

impl Queued {
    /// The number of the flow.
    #[must_use]
    pub const fn flow(&self) -> u16 {
        self.flow
    }

    /// The packet.
    #[must_use]
    pub fn packet(&self) -> Packet<'_> {
        Packet { ip: &self.buffer[self.start..], inner: self.inner, is_partial: self.is_partial, segment: self.segment }
    }

    fn len(&self) -> usize {
        self.buffer.len() - self.start
    }

    /// The payload bytes of each segment, of the whole payload, and of the headers, if it is a super-packet of several
    /// segments.
    fn segments(&self) -> Option<(usize, usize, usize)> {
        let (segment, (_, header_bytes)) = (usize::from(self.segment?), self.inner.transport?);
        let total = self.len() - header_bytes;
        (segment > 0 && total > segment).then_some((segment, total, header_bytes))
    }

    /// The packets that it is on a link.
    fn count(&self) -> usize {
        self.segments().map_or(1, |(segment, total, _)| total.div_ceil(segment))
    }

    /// Removes the first segment of a super-packet; false if nothing else is left.
    fn drop_segment(&mut self) -> bool {
        let Some((segment, total, header_bytes)) = self.segments() else { return false };
        self.drop_payload(segment, Part { from: segment, to: total, total, segment }, header_bytes);
        true
    }

    /// Removes the first `bytes` of the payload. `rest` is what is left.
    fn drop_payload(&mut self, bytes: usize, rest: Part, header_bytes: usize) {
        let start = self.start;
        fit_headers(&mut self.buffer[start..start + header_bytes], &self.inner, rest);
        // The headers move to where the rest of the payload begins.
        self.buffer.copy_within(start..start + header_bytes, start + bytes);
        self.start += bytes;
    }

    /// Moves the first segments of a super-packet into `buffer`, as many as fit into `len_max` bytes, but at least one.
    /// None if all of it fits, or it is no super-packet.
    fn split(&mut self, len_max: usize, mut buffer: Vec<u8>) -> Result<Self, Vec<u8>> {
        let Some((segment, total, header_bytes)) = self.segments().filter(|_| self.len() > len_max) else {
            return Err(buffer);
        };
        // A segment has its headers on a link.
        let count = (len_max / (segment + header_bytes)).max(1);
        let bytes = count * segment;
        if bytes >= total {
            return Err(buffer);
        }
        let start = self.start;
        buffer.clear();
        buffer.extend_from_slice(&self.buffer[start..start + header_bytes + bytes]);
        fit_headers(&mut buffer[..header_bytes], &self.inner, Part { from: 0, to: bytes, total, segment });
        self.drop_payload(bytes, Part { from: bytes, to: total, total, segment }, header_bytes);
        let first = Self { flow: self.flow, entered: self.entered, buffer, start: 0, inner: self.inner, ..*self };
        Ok(first)
    }

    /// Marks congestion if the flow understands it (RFC 3168, section 5).
    fn mark(&mut self) -> bool {
        self.inner.mark_congestion(&mut self.buffer[self.start..])
    }
}

/// The queues.
#[derive(Debug)]
pub struct FlowQueues {
    flows: Box<[Flow]>,
    /// Flows that became active, and those that have had a turn (RFC 8290, section 4.2).
    new: VecDeque<u16>,
    old: VecDeque<u16>,
    /// Flows of which only packets of lower effort wait.
    lower: VecDeque<u16>,
    bytes: usize,
    packets: usize,
    /// Flows with packets that wait. The lists also have empty ones.
    waiting_flows: usize,
    spare: Vec<Vec<u8>>,
    stats: QueueStats,
    bytes_max: usize,
    bounds: Bounds,
}

/// Counters. Each segment of a super-packet is a packet.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct QueueStats {
    /// Packets that CoDel dropped.
    pub dropped: u64,
    /// Packets that CoDel marked.
    pub marked: u64,
    /// Packets dropped because too much waited.
    pub overflowed: u64,
}

impl QueueStats {
    /// The sum of both.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            dropped: self.dropped + other.dropped,
            marked: self.marked + other.marked,
            overflowed: self.overflowed + other.overflowed,
        }
    }
}

#[derive(Debug, Default)]
struct Flow {
    packets: VecDeque<Queued>,
    bytes: usize,
    /// Those of the packets that are not of lower effort.
    usual: usize,
    deficit: i64,
    codel: Codel,
    listed: Listed,
}

/// The list that a flow is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Listed {
    #[default]
    Nowhere,
    /// New or old.
    Usual,
    Lower,
}

impl Default for FlowQueues {
    fn default() -> Self {
        Self::new()
    }
}

impl FlowQueues {
    /// Empty queues.
    #[must_use]
    pub fn new() -> Self {
        Self::with_rate(None)
    }

    /// Empty queues. What leaves them keeps to `rate`, if there is one.
    #[must_use]
    pub fn with_rate(rate: Option<Rate>) -> Self {
        let within = |rate: Rate| usize::try_from(rate.bytes_in(QUEUED_TIME_MAX)).unwrap_or(usize::MAX);
        Self {
            bytes_max: rate
                .map_or(QUEUED_BYTES_MAX, |rate| within(rate).clamp(QUEUED_BYTES_MAX_LEAST, QUEUED_BYTES_MAX)),
            bounds: Bounds::new(rate),
            flows: (0..FLOWS_MAX).map(|_| Flow::default()).collect(),
            new: VecDeque::new(),
            old: VecDeque::new(),
            lower: VecDeque::new(),
            bytes: 0,
            packets: 0,
            waiting_flows: 0,
            spare: Vec::new(),
            stats: QueueStats::default(),
        }
    }

    /// The packets go where a round trip takes so long, at least.
    pub fn set_round_trip(&mut self, round_trip: Duration) {
        self.bounds.set_round_trip(round_trip);
    }

    /// Whether nothing waits.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.packets == 0
    }

    /// Whether packets of this flow wait.
    ///
    /// # Panics
    /// If there is no such flow.
    #[must_use]
    pub fn holds(&self, flow: u16) -> bool {
        !self.flows[usize::from(flow)].packets.is_empty()
    }

    /// Bytes that wait.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Flows with packets that wait.
    #[must_use]
    pub const fn waiting_flows(&self) -> usize {
        self.waiting_flows
    }

    /// Counters.
    #[must_use]
    pub const fn stats(&self) -> QueueStats {
        self.stats
    }

    /// Adds a copy of a packet.
    ///
    /// # Panics
    /// If there is no such flow.
    pub fn push(&mut self, now: Instant, flow: u16, packet: &Packet<'_>) {
        let mut buffer = self.spare.pop().unwrap_or_default();
        buffer.clear();
        buffer.extend_from_slice(packet.ip);
        let (inner, is_partial, segment) = (packet.inner, packet.is_partial, packet.segment);
        self.add(Queued { flow, entered: now, buffer, start: 0, inner, is_partial, segment });
    }

    /// Adds the packet with these headers that `buffer` has at `place`. If the packet fills most of the memory,
    /// the queue keeps it instead of a copy, and `buffer` gets other memory of the same length.
    ///
    /// # Panics
    /// If there is no such flow.
    pub fn push_from(&mut self, now: Instant, flow: u16, buffer: &mut Vec<u8>, place: Range<usize>, head: &PacketHead) {
        if place.len() < buffer.len() / 2 {
            return self.push(now, flow, &head.with(&buffer[place]));
        }
        let len = buffer.len();
        let mut other = self.spare.pop().unwrap_or_default();
        other.resize(len, 0);
        std::mem::swap(buffer, &mut other);
        other.truncate(place.end);
        let PacketHead { inner, is_partial, segment } = *head;
        self.add(Queued { flow, entered: now, buffer: other, start: place.start, inner, is_partial, segment });
    }

    fn add(&mut self, queued: Queued) {
        let (flow, len, is_lower) = (queued.flow, queued.len(), queued.inner.is_lower_effort());
        let queue = &mut self.flows[usize::from(flow)];
        self.waiting_flows += usize::from(queue.packets.is_empty());
        queue.packets.push_back(queued);
        queue.bytes += len;
        queue.usual += usize::from(!is_lower);
        (self.bytes, self.packets) = (self.bytes + len, self.packets + 1);
        match (queue.listed, is_lower) {
            (Listed::Nowhere, false) => {
                (queue.listed, queue.deficit) = (Listed::Usual, QUANTUM_BYTES);
                self.new.push_back(flow);
            }
            (Listed::Nowhere, true) => {
                (queue.listed, queue.deficit) = (Listed::Lower, QUANTUM_BYTES);
                self.lower.push_back(flow);
            }
            // The packets of a flow keep their order, so those before this one get its class.
            (Listed::Lower, false) => {
                queue.listed = Listed::Usual;
                self.lower.retain(|other| *other != flow);
                self.old.push_back(flow);
            }
            (Listed::Usual, _) | (Listed::Lower, true) => {}
        }
        while self.bytes > self.bytes_max || self.packets > QUEUED_PACKETS_MAX {
            self.drop_from_longest();
        }
    }

    /// Takes all packets of a flow, the oldest first.
    pub(crate) fn take_flow(&mut self, flow: u16) -> Vec<Queued> {
        std::iter::from_fn(|| self.remove_first(flow)).collect()
    }

    /// Adds a packet that was taken from other queues.
    pub(crate) fn put(&mut self, queued: Queued) {
        self.add(queued);
    }

    /// Takes the next packet.
    pub fn pop(&mut self, now: Instant) -> Option<Queued> {
        self.pop_within(now, usize::MAX)
    }

    /// Takes the next packet. Of a super-packet of more than `len_max` bytes, only as many segments as fit, but at
    /// least one; the rest is the next packet of its flow.
    pub fn pop_within(&mut self, now: Instant, len_max: usize) -> Option<Queued> {
        loop {
            let is_new = !self.new.is_empty();
            let number = *self.turn().front()?;
            let flow = &mut self.flows[usize::from(number)];
            // An empty one leaves the old flows at its turn, as always.
            let is_lower = flow.usual == 0 && !flow.packets.is_empty();
            if flow.deficit <= 0 || (is_lower && flow.listed == Listed::Usual) {
                if flow.deficit <= 0 {
                    flow.deficit += QUANTUM_BYTES;
                }
                flow.listed = if is_lower { Listed::Lower } else { Listed::Usual };
                self.turn().pop_front();
                let list = if is_lower { &mut self.lower } else { &mut self.old };
                list.push_back(number);
                continue;
            }
            match self.take(now, number, len_max) {
                Some(queued) => {
                    self.flows[usize::from(number)].deficit -= queued.len() as i64;
                    return Some(queued);
                }
                // A new flow that is empty gets a turn as an old one, so that it cannot be new again at
                // once (RFC 8290, section 4.2).
                None if is_new && !self.old.is_empty() => {
                    self.new.pop_front();
                    self.old.push_back(number);
                }
                None => {
                    self.turn().pop_front();
                    self.flows[usize::from(number)].listed = Listed::Nowhere;
                }
            }
        }
    }

    /// The list whose first flow has its turn.
    fn turn(&mut self) -> &mut VecDeque<u16> {
        if !self.new.is_empty() {
            &mut self.new
        } else if !self.old.is_empty() {
            &mut self.old
        } else {
            &mut self.lower
        }
    }

    /// Takes a packet of at most `len_max` bytes of a flow that sends little: one that has waited for no turn, and has
    /// not used its first. Only of a flow that `may_pass`. If CoDel drops that packet, the next one of the flow is taken,
    /// whatever it is.
    pub fn pop_sparse(&mut self, now: Instant, len_max: usize, may_pass: impl Fn(u16) -> bool) -> Option<Queued> {
        let is_sparse = |number: &&u16| {
            let flow = &self.flows[usize::from(**number)];
            let fits = |first: &Queued| first.segment.is_none() && first.len() <= len_max;
            flow.deficit > 0 && flow.usual > 0 && flow.packets.front().is_some_and(fits) && may_pass(**number)
        };
        let number = *self.new.iter().take(SPARSE_LOOKED_AT).find(is_sparse)?;
        let queued = self.take(now, number, usize::MAX)?;
        self.flows[usize::from(number)].deficit -= queued.len() as i64;
        Some(queued)
    }

    /// Keeps the memory of a packet that was taken.
    pub fn recycle(&mut self, queued: Queued) {
        if self.spare.len() < SPARE_MAX {
            self.spare.push(queued.buffer);
        }
    }

    /// Takes the first packet of a flow that CoDel does not drop, or its first segments.
    fn take(&mut self, now: Instant, number: u16, len_max: usize) -> Option<Queued> {
        loop {
            let Some(mut queued) = self.remove_first(number) else {
                self.flows[usize::from(number)].codel.on_empty();
                return None;
            };
            if queued.len() > len_max {
                queued = self.split(queued, len_max);
            }
            let (flow, mut len) = (&mut self.flows[usize::from(number)], queued.len());
            while flow.codel.signals(now, queued.entered, flow.bytes, self.bounds) {
                if queued.mark() {
                    self.stats.marked += 1;
                    break;
                }
                self.stats.dropped += 1;
                if !queued.drop_segment() {
                    len = 0;
                    break;
                }
            }
            if len > 0 {
                return Some(queued);
            }
            self.recycle(queued);
        }
    }

    /// Returns the first segments of a super-packet, and puts the rest back.
    fn split(&mut self, mut queued: Queued, len_max: usize) -> Queued {
        let buffer = self.spare.pop().unwrap_or_default();
        match queued.split(len_max, buffer) {
            Ok(first) => {
                self.put_back(queued);
                first
            }
            Err(buffer) => {
                self.spare.push(buffer);
                queued
            }
        }
    }

    /// Puts a packet back that was the first of its flow.
    fn put_back(&mut self, queued: Queued) {
        let (flow, len) = (&mut self.flows[usize::from(queued.flow)], queued.len());
        self.waiting_flows += usize::from(flow.packets.is_empty());
        flow.usual += usize::from(!queued.inner.is_lower_effort());
        flow.bytes += len;
        flow.packets.push_front(queued);
        (self.bytes, self.packets) = (self.bytes + len, self.packets + 1);
    }

    /// Removes the first packet of a flow.
    fn remove_first(&mut self, number: u16) -> Option<Queued> {
        let flow = &mut self.flows[usize::from(number)];
        let queued = flow.packets.pop_front()?;
        let len = queued.len();
        flow.bytes -= len;
        flow.usual -= usize::from(!queued.inner.is_lower_effort());
        self.waiting_flows -= usize::from(flow.packets.is_empty());
        (self.bytes, self.packets) = (self.bytes - len, self.packets - 1);
        Some(queued)
    }

    /// Drops the first packet of the flow with the most bytes (RFC 8290, section 4.1), of lower effort if there is
    /// one. Of a super-packet, only the segments that do not fit.
    fn drop_from_longest(&mut self) {
        let bytes = |flow: &u16| self.flows[usize::from(*flow)].bytes;
        let lower = self.lower.iter().copied().filter(|flow| bytes(flow) > 0).max_by_key(bytes);
        let longest = lower.or_else(|| self.new.iter().chain(&self.old).copied().max_by_key(bytes));
        let Some(mut queued) = longest.and_then(|flow| self.remove_first(flow)) else { return };
        while self.packets < QUEUED_PACKETS_MAX && self.bytes + queued.len() > self.bytes_max && queued.drop_segment() {
            self.stats.overflowed += 1;
        }
        if self.packets < QUEUED_PACKETS_MAX && self.bytes + queued.len() <= self.bytes_max {
            return self.put_back(queued);
        }
        self.stats.overflowed += queued.count() as u64;
        self.recycle(queued);
    }
}

#[cfg(test)]
mod tests;

//! What waits for one peer: packets in flow queues, and the next datagrams of its connection.
//!
//! ```text
//!  packet ─▶ [FlowQueues] ─▶ [Packer] ─▶ batch ─▶ connection
//!      └── nothing waits ───────▶┘
//! ```
//!
//! A packet of a flow that sends little passes all that (RFC 8290, section 4.2), unless the flow itself has
//! packets on the way: their order stays.
//!
//! The queues choose between flows, and what has left them waits for all that left before. So the batch is
//! no longer than what the connection takes at a time, and each has all small packets that were taken.

use std::collections::VecDeque;
use std::ops::Range;

use bytes::Bytes;
use units::{Duration, Instant, Rate};

use crate::item::{FLOWS_MAX, ITEM_HEADER_BYTES};
use crate::meter::Turn;
use crate::packer::{Packer, Packet, PacketHead};
use crate::queue::{FlowQueues, QueueStats, Queued};

/// Datagrams in a batch, at most, but for those of the last packet: about what a connection sends with one
/// system call.
const BATCH_MAX: usize = 64;

/// The shortest limit of a batch.
const BATCH_MIN: usize = 8;

/// What waits for one peer.
#[derive(Debug)]
pub struct Outbox {
    queue: FlowQueues,
    packer: Packer,
    turn: Option<Turn>,
    batch: VecDeque<Bytes>,
    /// The limit of `batch`: what the connection takes.
    batch_max: usize,
    /// Datagrams that the connection has taken from batches.
    handed_over: u64,
    /// For each flow, `handed_over` once its last packet that passed none is handed over.
    in_line_until: Box<[u64]>,
}

impl Outbox {
    /// Empty. Its queues are for what keeps to `rate`, if there is one.
    #[must_use]
    pub fn new(rate: Option<Rate>) -> Self {
        Self {
            queue: FlowQueues::with_rate(rate),
            packer: Packer::new(),
            turn: None,
            batch: VecDeque::new(),
            batch_max: BATCH_MAX,
            handed_over: 0,
            in_line_until: vec![0; usize::from(FLOWS_MAX)].into_boxed_slice(),
        }
    }

    /// Empty, for what leaves on one path. Its datagrams say so. An earlier outbox of the path has handed over so
    /// many datagrams.
    #[must_use]
    pub fn pinned(rate: Option<Rate>, handed_over: u64) -> Self {
        Self { packer: Packer::pinned(), handed_over, ..Self::new(rate) }
    }

    /// The round trip of the path, or of the longest one.
    pub(crate) fn set_round_trip(&mut self, round_trip: Duration) {
        self.queue.set_round_trip(round_trip);
    }

    /// Datagrams that the connection has taken from batches.
    pub(crate) const fn handed_over(&self) -> u64 {
        self.handed_over
    }

    /// What leaves waits for `turn`, which is taken back the same way.
    pub(crate) const fn swap_turn(&mut self, turn: &mut Option<Turn>) {
        std::mem::swap(&mut self.turn, turn);
    }

    /// Goes on with a flow of `other`, whose packets that wait in its queues come here.
    pub(crate) fn take_flow(&mut self, flow: u16, other: &mut Self) {
        self.packer.continue_flow(flow, &other.packer);
        other.queue.take_flow(flow).into_iter().for_each(|queued| self.queue.put(queued));
    }

    /// Whether the datagrams of a flow say that it keeps to one path.
    pub(crate) fn set_pinned(&mut self, flow: u16, is_pinned: bool) {
        self.packer.set_pinned(flow, is_pinned);
    }

    /// Takes all that waits in `other`, whose [flows](Self::take_flow) go on elsewhere. Returns the counters of
    /// its queues.
    pub(crate) fn take_over(&mut self, now: Instant, mut other: Self) -> QueueStats {
        other.packer.flush(&mut other.batch);
        self.batch.append(&mut other.batch);
        while let Some(queued) = other.queue.pop(now) {
            self.queue.push(now, queued.flow(), &queued.packet());
        }
        other.stats()
    }

    /// Takes the packet with these headers that `buffer` has at `place`, for datagrams of at most `len_max` bytes.
    /// Packets wait in the queues if others do, or if the connection `is_blocked`. Whether the batch is full
    /// now.
    ///
    /// # Panics
    /// If there is no such flow.
    #[expect(clippy::too_many_arguments, reason = "one packet's place; a struct would only rename them")]
    pub fn take(
        &mut self,
        now: impl FnOnce() -> Instant,
        flow: u16,
        buffer: &mut Vec<u8>,
        place: Range<usize>,
        head: &PacketHead,
        len_max: usize,
        is_blocked: bool,
    ) -> bool {
        if is_blocked || self.turn.is_some() || !self.queue.is_empty() || self.batch.len() >= self.batch_max {
            self.queue.push_from(now(), flow, buffer, place, head);
            return false;
        }
        self.packer.push(flow, &head.with(&buffer[place]), len_max, &mut self.batch);
        self.note_in_line(flow);
        self.batch.len() >= self.batch_max
    }

    /// A datagram with this packet alone, which passes all others. None if `len_max` bytes do not hold it.
    ///
    /// # Panics
    /// If there is no such flow.
    pub fn pack_alone(&mut self, flow: u16, packet: &Packet<'_>, len_max: usize) -> Option<Bytes> {
        self.packer.pack_alone(flow, packet, len_max)
    }

    /// Adds a datagram with a packet of this flow, which was to pass all others, to the batch: later packets of
    /// the flow do not pass it.
    ///
    /// # Panics
    /// If there is no such flow.
    pub fn put(&mut self, flow: u16, datagram: Bytes) {
        // Small packets may wait for others in a datagram that has its place in the line.
        self.packer.flush(&mut self.batch);
        self.note_in_line(flow);
        self.batch.push_back(datagram);
    }

    /// Fills the batch from the queues, with datagrams of at most `len_max` bytes, and returns it. The
    /// caller takes from its front, and tells [`on_taken`](Self::on_taken) how many.
    pub fn fill(&mut self, now: Instant, len_max: usize) -> &mut VecDeque<Bytes> {
        while self.batch.len() < self.batch_max {
            let available = self.available(now);
            if available == 0 {
                break;
            }
            let Some(queued) = self.queue.pop_within(now, available) else { break };
            self.spend(queued.packet().data_bytes());
            self.pack_in_line(queued, len_max);
        }
        // And they wait for no other batch: as long as large packets wait, there is always another.
        self.packer.flush(&mut self.batch);
        &mut self.batch
    }

    /// Bytes that the rate lets leave now, if packets wait.
    fn available(&mut self, now: Instant) -> usize {
        match &mut self.turn {
            _ if self.queue.is_empty() => 0,
            Some(turn) => turn.available(now),
            None => usize::MAX,
        }
    }

    fn spend(&mut self, bytes: usize) {
        if let Some(turn) = &mut self.turn {
            turn.spend(bytes);
        }
    }

    fn pack_in_line(&mut self, queued: Queued, len_max: usize) {
        if !Packer::shares(&queued.packet()) {
            // Small packets whose turn came first leave first.
            self.packer.flush(&mut self.batch);
        }
        self.packer.push(queued.flow(), &queued.packet(), len_max, &mut self.batch);
        self.note_in_line(queued.flow());
        self.queue.recycle(queued);
    }

    /// The last packet of this flow is in the batch, or in the datagram that joins it next.
    pub(crate) fn note_in_line(&mut self, flow: u16) {
        self.in_line_until[usize::from(flow)] = self.handed_over + self.batch.len() as u64 + 1;
    }

    /// Whether packets wait in the queues.
    #[must_use]
    pub const fn has_queued(&self) -> bool {
        !self.queue.is_empty()
    }

    /// A datagram that passes all others, with the packet of a flow that sends little, and that flow, if there is
    /// one. `departed` datagrams of those that the connection has taken have left it.
    pub fn pop_sparse(&mut self, now: Instant, len_max: usize, departed: u64) -> Option<(u16, Bytes)> {
        while self.available(now) > 0 {
            let in_line_until = &self.in_line_until;
            let packet_max = len_max.saturating_sub(ITEM_HEADER_BYTES);
            let may_pass = |flow| in_line_until[usize::from(flow)] <= departed;
            let queued = self.queue.pop_sparse(now, packet_max, may_pass)?;
            self.spend(queued.packet().data_bytes());
            let flow = queued.flow();
            if let Some(datagram) = self.packer.pack_alone(flow, &queued.packet(), len_max) {
                self.queue.recycle(queued);
                return Some((flow, datagram));
            }
            // CoDel dropped the packet that would have fitted, and this one does not pass others.
            self.pack_in_line(queued, len_max);
        }
        None
    }

    /// The connection has taken `count` datagrams of the batch.
    pub fn on_taken(&mut self, count: usize) {
        self.handed_over += count as u64;
        let most = if self.batch.is_empty() { 2 * self.batch_max } else { count };
        self.batch_max = most.clamp(BATCH_MIN, BATCH_MAX);
    }

    /// Bytes in the queues.
    #[must_use]
    pub const fn queued_bytes(&self) -> usize {
        self.queue.bytes()
    }

    /// Flows with packets in the queues.
    #[must_use]
    pub const fn queued_flows(&self) -> usize {
        self.queue.waiting_flows()
    }

    /// Bytes of datagrams that have left the queues and that the connection has not taken.
    #[must_use]
    pub fn batch_bytes(&self) -> usize {
        self.batch.iter().map(Bytes::len).sum()
    }

    /// Counters of the queues.
    #[must_use]
    pub const fn stats(&self) -> QueueStats {
        self.queue.stats()
    }
}

#[cfg(test)]
mod tests {
    use units::Duration;

    use super::*;
    use crate::item::take_item;
    use crate::samples::{Sample, transport_packet};

    const LEN_MAX: usize = 1400;
    const BULK: u16 = 1;

    fn put(outbox: &mut Outbox, now: Instant, flow: u16, sample: &Sample, is_blocked: bool) {
        let packet = sample.packet();
        let head = PacketHead { inner: packet.inner, is_partial: packet.is_partial, segment: packet.segment };
        let mut buffer = sample.ip.clone();
        let place = 0..buffer.len();
        outbox.take(|| now, flow, &mut buffer, place, &head, LEN_MAX, is_blocked);
    }

    /// The flows of the items in a datagram.
    fn flows(mut datagram: Bytes) -> Vec<u16> {
        std::iter::from_fn(|| take_item(&mut datagram).expect("items")).map(|item| item.flow).collect()
    }

    /// A connection takes `taken` datagrams each millisecond, and bulk packets always wait. A small packet comes
    /// after a second. Returns after how many datagrams it leaves.
    fn datagrams_before_a_small_packet(taken: usize) -> usize {
        let mut outbox = Outbox::new(None);
        let bulk = transport_packet(false, true, 1, &vec![1; 60_000], Some(1300));
        let small = transport_packet(false, false, 2, &[2; 64], None);
        let (mut now, mut before) = (Instant::ZERO, None);
        for round in 0..2000 {
            while outbox.queued_bytes() < 200_000 {
                put(&mut outbox, now, BULK, &bulk, true);
            }
            if round == 1000 {
                put(&mut outbox, now, 2, &small, true);
                before = Some(0);
            }
            let batch = outbox.fill(now, LEN_MAX);
            let count = taken.min(batch.len());
            for datagram in batch.drain(..count) {
                match (flows(datagram).contains(&2), &mut before) {
                    (true, Some(before)) => return *before,
                    (false, Some(before)) => *before += 1,
                    (has, None) => assert!(!has, "it has not been sent yet"),
                }
            }
            outbox.on_taken(count);
            now += Duration::from_millis(1);
        }
        usize::MAX
    }

    #[test]
    fn a_small_packet_waits_for_what_has_left_the_queues_and_that_is_little() {
        // A super-packet of bulk is 47 datagrams.
        for (taken, most) in [(1, 60), (9, 60), (64, 120)] {
            let before = datagrams_before_a_small_packet(taken);
            assert!(before < most, "{before} datagrams before it, if {taken} leave at a time");
        }
    }

    #[test]
    fn a_flow_that_sends_little_passes_all_but_its_own_packets() {
        let mut outbox = Outbox::new(None);
        let bulk = transport_packet(false, true, 1, &vec![1; 60_000], Some(1300));
        let small = transport_packet(false, false, 2, &[2; 64], None);
        let now = Instant::ZERO;
        // Nothing is blocked yet: the first packet joins those before it.
        put(&mut outbox, now, BULK, &bulk, false);
        put(&mut outbox, now, 2, &small, false);
        let departed = outbox.batch.len() as u64 + 1;
        (0..3).for_each(|_| put(&mut outbox, now, BULK, &bulk, true));
        let count = outbox.fill(now, LEN_MAX).drain(..).count();
        outbox.on_taken(count);
        put(&mut outbox, now, 2, &small, true);
        put(&mut outbox, now, 3, &small, true);
        let sparse = |outbox: &mut Outbox, departed: u64| -> Vec<u16> {
            std::iter::from_fn(|| outbox.pop_sparse(now, LEN_MAX, departed))
                .flat_map(|(_, datagram)| flows(datagram))
                .collect()
        };
        assert_eq!(sparse(&mut outbox, departed - 1), [3], "a packet of flow 2 may be in the connection");
        assert_eq!(sparse(&mut outbox, departed), [2], "it has left");
        // As many as in a turn, and then it waits for its turns.
        (0..100).for_each(|_| put(&mut outbox, now, 2, &small, true));
        let passed = sparse(&mut outbox, departed).len();
        assert!((5..20).contains(&passed), "{passed} packets of 92 bytes");
    }

    #[test]
    fn a_packet_that_follows_one_that_codel_dropped_is_not_lost() {
        let mut outbox = Outbox::new(None);
        let small = transport_packet(false, false, 2, &[2; 64], None);
        let large = transport_packet(false, true, 2, &[2; 20_000], Some(1300));
        let after = |ms| Instant::ZERO + Duration::from_millis(ms);
        (0..2).for_each(|_| put(&mut outbox, Instant::ZERO, 2, &small, true));
        put(&mut outbox, Instant::ZERO, 2, &large, true);
        put(&mut outbox, Instant::ZERO, 3, &small, true);
        let mut pop = |now| outbox.pop_sparse(now, LEN_MAX, 0).map(|(flow, _)| flow);
        assert_eq!(pop(after(50)), Some(2));
        // An interval later, CoDel drops the second packet, and the super-packet is next.
        assert_eq!(pop(after(200)), Some(3));
        assert_eq!((outbox.stats().dropped, outbox.queued_bytes()), (1, 0));
        let batch = outbox.fill(after(200), LEN_MAX);
        assert!(batch.iter().map(Bytes::len).sum::<usize>() > 20_000, "the super-packet leaves in its line");
        assert!(batch.drain(..).flat_map(flows).all(|flow| flow == 2));
    }

    #[test]
    fn a_packet_that_could_not_pass_others_is_not_passed_by_those_of_its_flow() {
        let mut outbox = Outbox::new(None);
        let small = transport_packet(false, false, 2, &[2; 64], None);
        let now = Instant::ZERO;
        // One of flow 4 waits for others in its datagram.
        put(&mut outbox, now, 4, &small, false);
        let datagram = outbox.pack_alone(2, &small.packet(), LEN_MAX).expect("it fits");
        outbox.put(2, datagram);
        let batch = outbox.fill(now, LEN_MAX);
        let line: Vec<u16> = batch.drain(..).flat_map(flows).collect();
        assert_eq!(line, [4, 2]);
        outbox.on_taken(2);
        [2, 3, 4].into_iter().for_each(|flow| put(&mut outbox, now, flow, &small, true));
        let mut pop = |departed| outbox.pop_sparse(now, LEN_MAX, departed).map(|(flow, _)| flow);
        assert_eq!([pop(0), pop(0), pop(1), pop(1), pop(2)], [Some(3), None, Some(4), None, Some(2)]);
    }

    #[test]
    fn the_limit_of_a_batch_follows_what_the_connection_takes() {
        let mut outbox = Outbox::new(None);
        let packet = transport_packet(false, false, 1, &[1; 1200], None);
        let put_many = |outbox: &mut Outbox| (0..500).for_each(|_| put(outbox, Instant::ZERO, BULK, &packet, true));
        put_many(&mut outbox);
        assert_eq!(outbox.fill(Instant::ZERO, LEN_MAX).len(), BATCH_MAX);
        outbox.batch.drain(..3);
        outbox.on_taken(3);
        outbox.batch.clear();
        assert_eq!(outbox.fill(Instant::ZERO, LEN_MAX).len(), BATCH_MIN);
        for expected in [16, 32, 64, 64] {
            let count = outbox.batch.drain(..).count();
            outbox.on_taken(count);
            assert_eq!(outbox.fill(Instant::ZERO, LEN_MAX).len(), expected);
        }
    }
}

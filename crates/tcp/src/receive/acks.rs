//! Acknowledgement of received data (RFC 9293, section 3.8.6.3; RFC 5681, section 4.2), and
//! selection of the blocks beyond holes to report (RFC 2018, section 4).
//!
//! ```text
//!   receive half ── Received ──▶ plans        received data, and the time of arrival
//!                ◀── Announced ──             the last plan's announcement to the peer
//! ```
//!
//! If the halves run on two processors, each has a copy of the other's value, which may be late.
//! Demands are numbered, so that a late copy neither repeats nor loses an acknowledgement.

use std::ops::Range;

use units::{Duration, Instant};

use crate::accurate_ecn::Feedback;
use crate::config::{AckPolicy, AckThreshold, AckTimer};
use crate::position::FIRST_BYTE;
use crate::timestamps::TimestampClock;

/// Number of remembered blocks: as many as fit into the options of a segment without timestamps.
const BLOCKS_MAX: usize = 4;

/// Receive state that acknowledgements report. Changed only by the receive half.
#[derive(Debug)]
pub(crate) struct Received {
    /// Next position in order: RCV.NXT.
    pub(crate) nxt: u64,
    /// Bytes in order that the application has not read: at most a window.
    pub(crate) unread: u32,
    /// Data bytes in the largest segment received.
    pub(crate) segment: u16,
    /// Whether there are data beyond a hole.
    pub(crate) has_hole: bool,
    /// Whether a congestion mark was received that the peer has not reacted to (RFC 3168, section
    /// 6.1.3).
    pub(crate) is_marked: bool,
    /// Counters of marks, if they are counted (RFC 9768).
    pub(super) feedback: Option<Box<Feedback>>,
    /// Timestamp to echo.
    pub(crate) clock: TimestampClock,
    /// Latest time for a delayed acknowledgement.
    delayed_until: Option<Instant>,
    /// Number of the latest demand or duplicate report.
    latest: u64,
    /// Number of the latest demand for an immediate acknowledgement.
    demand: u64,
    /// Blocks beyond holes; that of the latest segment first.
    blocks: Vec<Range<u64>>,
    /// Range received twice (RFC 2883), and the number of its report; zero if there is none.
    duplicate: (Range<u64>, u64),
}

/// State last announced to the peer. Changed only by plans.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Announced {
    /// Acknowledged position (RFC 7323, section 4.3, Last.ACK.sent).
    pub(crate) acked: u64,
    /// Position after the last one that the peer may send.
    pub(crate) edge: u64,
    /// Number of the latest demand that was answered.
    answered: u64,
    /// Size of the receive buffer: bytes that may be received and not read.
    pub(crate) buffer: u64,
}

impl Announced {
    /// Creates the state before the first plan: the peer may send up to `edge`.
    pub(crate) const fn new(edge: u64, buffer: u64) -> Self {
        Self { acked: FIRST_BYTE, edge, answered: 0, buffer }
    }

    /// Returns whether the demand with this number is not answered.
    pub(super) const fn is_unanswered(&self, number: u64) -> bool {
        number > self.answered
    }
}

impl Received {
    /// Creates the state after only the SYN was received.
    pub(crate) const fn new(segment: u16, clock: TimestampClock) -> Self {
        Self {
            nxt: FIRST_BYTE,
            unread: 0,
            segment,
            has_hole: false,
            is_marked: false,
            feedback: None,
            clock,
            delayed_until: None,
            latest: 0,
            demand: 0,
            blocks: Vec::new(),
            duplicate: (0..0, 0),
        }
    }

    /// Copies `other` into the memory of this value.
    pub(crate) fn copy(&mut self, other: &Self) {
        let (mut blocks, mut feedback) = (std::mem::take(&mut self.blocks), self.feedback.take());
        blocks.clone_from(&other.blocks);
        feedback.clone_from(&other.feedback);
        let (clock, duplicate) = (other.clock.clone(), other.duplicate.clone());
        *self = Self { blocks, feedback, clock, duplicate, ..*other };
    }

    /// Demands an immediate acknowledgement.
    pub(super) fn demand(&mut self) {
        self.latest += 1;
        self.demand = self.latest;
    }

    /// Returns the number of the latest demand.
    pub(super) const fn latest(&self) -> u64 {
        self.latest
    }

    /// Records data that complete the stream up to the position `nxt`.
    pub(super) fn on_data(&mut self, now: Instant, nxt: u64, policy: &AckPolicy) {
        self.nxt = nxt;
        self.blocks.retain(|block| block.start > nxt);
        if self.blocks.is_empty() {
            // Idle connections should not hold memory for blocks.
            self.blocks = Vec::new();
        }
        self.delayed_until.get_or_insert(policy.latest(now));
    }

    /// Records a segment beyond a hole, which is part of `block`.
    pub(super) fn on_block(&mut self, block: Range<u64>) {
        // A grown block replaces the one that it contains.
        self.blocks.retain(|known| known.end < block.start || block.end < known.start);
        self.blocks.insert(0, block);
        self.blocks.truncate(BLOCKS_MAX);
    }

    /// Records a range received twice.
    pub(super) fn on_duplicate(&mut self, range: Range<u64>) {
        self.latest += 1;
        self.duplicate = (range, self.latest);
    }

    /// Records an announcement to the peer. The delay restarts at the first byte that it did not
    /// cover.
    pub(super) fn on_announced(&mut self, announced: &Announced) {
        if announced.acked >= self.nxt {
            self.delayed_until = None;
        }
    }

    /// Returns whether an immediate acknowledgement is due. `buffer` is the largest window.
    pub(super) fn is_due(&self, announced: &Announced, policy: &AckPolicy, buffer: u64) -> bool {
        let unacked = self.nxt.saturating_sub(announced.acked);
        let threshold = match policy.threshold {
            AckThreshold::Segments(count) => u64::from(self.segment) * u64::from(count),
            AckThreshold::BufferPercent(percent) => buffer.saturating_mul(percent.into()) / 100,
            AckThreshold::Read => u64::MAX,
        };
        let is_enough = unacked > 0 && (unacked >= threshold || policy.delay_max == Duration::ZERO);
        is_enough || self.demand > announced.answered
    }

    /// Returns the time at which an acknowledgement becomes due without a further cause.
    pub(super) fn due_at(&self, announced: &Announced) -> Option<Instant> {
        self.delayed_until.filter(|_| self.nxt > announced.acked)
    }

    /// Returns the blocks in the order of their report: the range received twice comes first, and
    /// is reported once.
    pub(super) fn blocks(&self, announced: &Announced) -> impl Iterator<Item = &Range<u64>> {
        let (duplicate, number) = &self.duplicate;
        (*number > announced.answered).then_some(duplicate).into_iter().chain(&self.blocks)
    }

    /// Returns the announcement of the present state by a plan, which lets the peer send up to
    /// `edge`.
    pub(super) const fn announce(&self, edge: u64, buffer: u64) -> Announced {
        Announced { acked: self.nxt, edge, answered: self.latest, buffer }
    }
}

impl AckPolicy {
    /// Returns the latest time at which data arriving now must be acknowledged.
    fn latest(&self, now: Instant) -> Instant {
        let (delay, now_ns) = (self.delay_max, now.as_nanos());
        match self.timer {
            AckTimer::Periodic if delay > Duration::ZERO => {
                now + (delay - Duration::from_nanos(now_ns % delay.as_nanos()))
            }
            AckTimer::FromSegment | AckTimer::Periodic => now + delay,
        }
    }

    /// Returns whether acknowledgements follow the application's reads.
    pub(super) fn is_by_reading(&self) -> bool {
        self.threshold == AckThreshold::Read
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DELAY: Duration = Duration::from_millis(40);
    const BUFFER: u64 = 100_000;

    /// A receive half and its peer.
    struct Acks {
        received: Received,
        announced: Announced,
        policy: AckPolicy,
    }

    fn acks(threshold: AckThreshold) -> Acks {
        let received = Received::new(1000, TimestampClock::new(0));
        let policy = AckPolicy { threshold, delay_max: DELAY, timer: AckTimer::FromSegment };
        Acks { received, announced: Announced::new(BUFFER, BUFFER), policy }
    }

    impl Acks {
        fn on_data(&mut self, at: u64, bytes: u64) {
            let nxt = self.received.nxt + bytes;
            self.received.on_data(Instant::from_nanos(at), nxt, &self.policy);
        }

        fn is_due(&self) -> bool {
            self.received.is_due(&self.announced, &self.policy, BUFFER)
        }

        fn due_at(&self) -> Option<Instant> {
            self.received.due_at(&self.announced)
        }

        fn send(&mut self) {
            self.announced = self.received.announce(BUFFER, BUFFER);
            self.received.on_announced(&self.announced);
        }

        fn blocks(&self) -> Vec<Range<u64>> {
            self.received.blocks(&self.announced).cloned().collect()
        }
    }

    #[test]
    fn every_second_full_segment_is_acknowledged_and_a_lone_one_after_a_delay() {
        let mut acks = acks(AckThreshold::Segments(2));
        acks.on_data(0, 1000);
        assert_eq!((acks.is_due(), acks.due_at()), (false, Some(Instant::ZERO + DELAY)));
        acks.on_data(5, 1000);
        assert!(acks.is_due());
        acks.send();
        assert_eq!((acks.is_due(), acks.due_at()), (false, None));
        acks.on_data(7, 999);
        assert_eq!((acks.is_due(), acks.due_at()), (false, Some(Instant::from_nanos(7) + DELAY)));
    }

    #[test]
    fn a_periodic_timer_expires_at_multiples_of_its_period() {
        for (ms, due) in [(0, 40), (1, 40), (39, 40), (40, 80), (121, 160)] {
            let mut acks = acks(AckThreshold::Segments(2));
            acks.policy.timer = AckTimer::Periodic;
            acks.on_data(1_000_000 * ms, 1);
            assert_eq!(acks.due_at(), Some(Instant::ZERO + Duration::from_millis(due)), "{ms}");
        }
    }

    #[test]
    fn a_share_of_the_buffer_is_acknowledged_at_once() {
        let mut acks = acks(AckThreshold::BufferPercent(35));
        acks.on_data(0, 34_999);
        assert!(!acks.is_due());
        acks.on_data(0, 1);
        assert!(acks.is_due());
    }

    #[test]
    fn a_late_copy_neither_repeats_an_acknowledgement_nor_loses_one() {
        let mut acks = acks(AckThreshold::Segments(2));
        acks.received.demand();
        let mut late = Received::new(0, TimestampClock::new(0));
        late.copy(&acks.received);
        acks.send();
        assert!(!late.is_due(&acks.announced, &acks.policy, BUFFER), "it was answered");
        acks.received.demand();
        acks.on_data(3, 10);
        late.copy(&acks.received);
        assert!(late.is_due(&acks.announced, &acks.policy, BUFFER), "it was not");
        // Data not yet acknowledged keep their deadline, even if the half learns late which data
        // were.
        acks.announced = late.announce(BUFFER, BUFFER);
        acks.on_data(9, 10);
        acks.received.on_announced(&acks.announced);
        assert_eq!((acks.is_due(), acks.due_at()), (false, Some(Instant::from_nanos(3) + DELAY)));
    }

    #[test]
    fn the_latest_block_is_reported_first_and_contains_those_that_it_has_joined() {
        let mut acks = acks(AckThreshold::Segments(2));
        [10..20, 30..40, 50..60].into_iter().for_each(|block| acks.received.on_block(block));
        acks.received.on_block(30..50);
        acks.received.on_block(30..60);
        acks.received.on_duplicate(1..5);
        assert_eq!(acks.blocks(), [1..5, 30..60, 10..20]);
        acks.on_data(0, 24);
        acks.send();
        assert_eq!(acks.blocks(), std::slice::from_ref(&(30..60)));
        (0..9).for_each(|at| acks.received.on_block(100 + 10 * at..105 + 10 * at));
        assert_eq!(acks.blocks().len(), BLOCKS_MAX);
    }
}

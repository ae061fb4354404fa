//! When received data are acknowledged (RFC 9293, section 3.8.6.3; RFC 5681, section 4.2), and which
//! blocks beyond holes are reported (RFC 2018, section 4).

use std::ops::Range;

use units::{Duration, Instant};

use crate::config::{AckPolicy, AckThreshold, AckTimer};

/// Blocks that are remembered: what fits into the options of a segment without timestamps.
const BLOCKS_MAX: usize = 4;

#[derive(Debug)]
pub(super) struct Acks {
    policy: AckPolicy,
    /// An acknowledgement is due now.
    is_due: bool,
    /// At the latest then.
    due_at: Option<Instant>,
    /// Bytes received since the last acknowledgement.
    unacked: u64,
    /// The block of the latest segment beyond a hole first; a block of what was received twice before
    /// it (RFC 2883).
    blocks: Vec<Range<u64>>,
    duplicate: Option<Range<u64>>,
}

impl Acks {
    pub(super) const fn new(policy: AckPolicy) -> Self {
        Self { policy, is_due: false, due_at: None, unacked: 0, blocks: Vec::new(), duplicate: None }
    }

    /// Data in order were received: acknowledged at the threshold, or after the delay.
    pub(super) fn on_data(&mut self, now: Instant, bytes: u64, segment: u64, buffer: u64) {
        self.unacked += bytes;
        let threshold = match self.policy.threshold {
            AckThreshold::Segments(count) => segment.saturating_mul(count.into()),
            AckThreshold::BufferPercent(percent) => buffer.saturating_mul(percent.into()) / 100,
            AckThreshold::Read => u64::MAX,
        };
        if self.unacked >= threshold || self.policy.delay_max == Duration::ZERO {
            self.is_due = true;
        } else {
            self.due_at.get_or_insert(self.latest(now));
        }
    }

    /// When data that arrive now must be acknowledged.
    fn latest(&self, now: Instant) -> Instant {
        let (delay, now_ns) = (self.policy.delay_max, now.as_nanos());
        match self.policy.timer {
            AckTimer::FromSegment => now + delay,
            AckTimer::Periodic => now + (delay - Duration::from_nanos(now_ns % delay.as_nanos())),
        }
    }

    /// Whether data are acknowledged by what the application has read of them.
    pub(super) fn is_by_reading(&self) -> bool {
        self.policy.threshold == AckThreshold::Read
    }

    /// An acknowledgement is due now.
    pub(super) fn set_due(&mut self) {
        self.is_due = true;
    }

    pub(super) const fn is_due(&self) -> bool {
        self.is_due
    }

    pub(super) const fn due_at(&self) -> Option<Instant> {
        self.due_at
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        if self.due_at.is_some_and(|at| at <= now) {
            self.is_due = true;
        }
    }

    /// An acknowledgement leaves.
    pub(super) fn on_sent(&mut self) {
        (self.is_due, self.due_at, self.unacked, self.duplicate) = (false, None, 0, None);
    }

    /// A segment beyond a hole was received, which is in this block.
    pub(super) fn on_block(&mut self, block: Range<u64>) {
        // A block that has grown takes the place of the one that it contains.
        self.blocks.retain(|known| known.end < block.start || block.end < known.start);
        self.blocks.insert(0, block);
        self.blocks.truncate(BLOCKS_MAX);
    }

    /// Everything before `nxt` is in order.
    pub(super) fn on_in_order(&mut self, nxt: u64) {
        self.blocks.retain(|block| block.start > nxt);
        if self.blocks.is_empty() {
            // An idle connection needs no memory for them.
            self.blocks = Vec::new();
        }
    }

    /// This was received twice.
    pub(super) fn on_duplicate(&mut self, range: Range<u64>) {
        self.duplicate = Some(range);
    }

    /// The blocks in the order in which they are reported.
    pub(super) fn blocks(&self) -> impl Iterator<Item = &Range<u64>> {
        self.duplicate.iter().chain(&self.blocks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DELAY: Duration = Duration::from_millis(40);

    fn acks(threshold: AckThreshold) -> Acks {
        Acks::new(AckPolicy { threshold, delay_max: DELAY, timer: AckTimer::FromSegment })
    }

    #[test]
    fn a_periodic_timer_expires_at_multiples_of_its_period() {
        for (ms, due) in [(0, 40), (1, 40), (39, 40), (40, 80), (121, 160)] {
            let policy =
                AckPolicy { threshold: AckThreshold::Segments(2), delay_max: DELAY, timer: AckTimer::Periodic };
            let mut acks = Acks::new(policy);
            acks.on_data(Instant::ZERO + Duration::from_millis(ms), 1, 1000, 100_000);
            assert_eq!(acks.due_at(), Some(Instant::ZERO + Duration::from_millis(due)), "{ms}");
        }
    }

    #[test]
    fn every_second_full_segment_is_acknowledged_and_a_lone_one_after_a_delay() {
        let mut acks = acks(AckThreshold::Segments(2));
        acks.on_data(Instant::ZERO, 1000, 1000, 100_000);
        assert_eq!((acks.is_due(), acks.due_at()), (false, Some(Instant::ZERO + DELAY)));
        acks.on_data(Instant::from_nanos(5), 1000, 1000, 100_000);
        assert!(acks.is_due());
        acks.on_sent();
        assert_eq!((acks.is_due(), acks.due_at()), (false, None));
        acks.on_data(Instant::from_nanos(7), 999, 1000, 100_000);
        acks.handle_timeout(Instant::from_nanos(7) + DELAY);
        assert!(acks.is_due());
    }

    #[test]
    fn a_share_of_the_buffer_is_acknowledged_at_once() {
        let mut acks = acks(AckThreshold::BufferPercent(35));
        acks.on_data(Instant::ZERO, 34_999, 1000, 100_000);
        assert!(!acks.is_due());
        acks.on_data(Instant::ZERO, 1, 1000, 100_000);
        assert!(acks.is_due());
    }

    #[test]
    fn the_latest_block_is_reported_first_and_contains_those_that_it_has_joined() {
        let mut acks = acks(AckThreshold::Segments(2));
        [10..20, 30..40, 50..60].into_iter().for_each(|block| acks.on_block(block));
        acks.on_block(30..50);
        acks.on_block(30..60);
        acks.on_duplicate(1..5);
        assert_eq!(acks.blocks().cloned().collect::<Vec<_>>(), [1..5, 30..60, 10..20]);
        acks.on_in_order(25);
        acks.on_sent();
        assert_eq!(acks.blocks().next(), Some(&(30..60)));
        assert_eq!(acks.blocks().count(), 1);
        (0..9).for_each(|at| acks.on_block(100 + 10 * at..105 + 10 * at));
        assert_eq!(acks.blocks().count(), BLOCKS_MAX);
    }
}

use proptest::prelude::*;

use super::*;
use crate::packet::{Ecn, LengthOnly};

const BYTES: u64 = 1000;

/// Converts milliseconds to a time, with an offset of ten seconds, so that packets can have waited
/// before.
fn ms(millis: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(10_000 + millis)
}

/// A queue that never runs empty, in which every packet has waited for the given time when it is
/// taken.
struct StandingQueue {
    control: Control,
    settings: CoDel,
    queue: Queue<LengthOnly>,
    stats: LinkStats,
    packet: LengthOnly,
}

impl StandingQueue {
    fn new(settings: CoDel, packet: LengthOnly) -> Self {
        let stats = LinkStats::default();
        Self { control: Control::default(), settings, queue: Queue::new(), stats, packet }
    }

    fn dequeue(&mut self, now: Instant, waited: Duration) -> Option<Waiting<LengthOnly>> {
        while self.queue.pop().is_some() {}
        for _ in 0..100 {
            let since = now.saturating_sub(waited);
            self.queue.push(Waiting { since, line_bytes: BYTES, packet: self.packet });
        }
        self.control.dequeue(now, &self.settings, &mut self.queue, &mut self.stats)
    }

    /// Dequeues once per millisecond; returns the times in milliseconds at which packets were
    /// dropped or marked.
    fn signals(&mut self, millis: core::ops::Range<u64>, waited: Duration) -> Vec<u64> {
        let mut times = Vec::new();
        for millis in millis {
            let before = self.stats.dropped_by_codel + self.stats.marked;
            assert!(self.dequeue(ms(millis), waited).is_some());
            let signals = self.stats.dropped_by_codel + self.stats.marked - before;
            times.extend((0..signals).map(|_| millis));
        }
        times
    }
}

const LONG: Duration = Duration::from_millis(50);
const SHORT: Duration = Duration::from_millis(4);

#[test]
fn drops_begin_after_an_interval_and_follow_the_control_law() {
    let mut standing = StandingQueue::new(CoDel::default(), LengthOnly::new(1000));
    let times = standing.signals(1000..2000, LONG);
    // The first wait above the target is seen at 1000 ms. Then t += 100 / sqrt(count), each seen by
    // the next dequeue on a whole millisecond.
    let (mut due, mut expected) = (1100.0, Vec::new());
    for count in 1_u32.. {
        if due > 1999.0 {
            break;
        }
        expected.push(f64::ceil(due) as u64);
        due += 100.0 / f64::from(count).sqrt();
    }
    assert_eq!(times[..4], [1100, 1200, 1271, 1329]);
    assert_eq!(times, expected);
}

#[test]
fn a_wait_of_exactly_the_target_counts_as_too_long() {
    let mut standing = StandingQueue::new(CoDel::default(), LengthOnly::new(1000));
    assert_eq!(standing.signals(0..101, Duration::from_nanos(4_999_999)), [0; 0]);
    assert_eq!(standing.signals(101..202, Duration::from_millis(5)), [201]);
}

#[test]
fn a_wait_below_the_target_ends_dropping_and_restarts_the_interval() {
    let mut standing = StandingQueue::new(CoDel::default(), LengthOnly::new(1000));
    assert_eq!(standing.signals(0..250, LONG), [100, 200]);
    assert_eq!(standing.signals(250..251, SHORT), [0; 0]);
    assert_eq!(standing.signals(251..351, LONG), [0; 0], "an interval must pass again");
    assert_eq!(standing.signals(351..352, LONG), [351]);
}

#[test]
fn dropping_that_resumes_soon_begins_near_its_old_rate() {
    let mut standing = StandingQueue::new(CoDel::default(), LengthOnly::new(1000));
    let drops = standing.signals(0..1000, LONG).len() as u64;
    assert_eq!((standing.control.count, standing.control.count_at_start), (drops, 1));
    standing.signals(1000..1001, SHORT);
    // One interval before the first drop, then 100 / sqrt(drops - 1) to the second.
    let again = standing.signals(1001..1200, LONG);
    let step = 100.0 / ((drops - 1) as f64).sqrt();
    assert_eq!(again[..2], [1101, (1101.0 + step).ceil() as u64]);

    // After 16 intervals below the target, the old rate is discarded.
    standing.signals(1200..1201, SHORT);
    let late = standing.signals(3201..3450, LONG);
    assert_eq!(late, [3301, 3401]);
}

#[test]
fn one_remaining_packet_is_not_a_standing_queue() {
    let mut control = Control::default();
    let (mut queue, mut stats) = (Queue::new(), LinkStats::default());
    let old = |line_bytes| Waiting { since: Instant::ZERO, line_bytes, packet: LengthOnly::new(1000) };
    queue.push(old(BYTES));
    for millis in 0..1000 {
        queue.push(old(BYTES));
        assert!(control.dequeue(ms(millis), &CoDel::default(), &mut queue, &mut stats).is_some());
        assert_eq!(queue.len(), 1, "regardless of the waiting time");
    }
    assert_eq!(stats.dropped_by_codel, 0);
    // One byte more than the largest packet is a standing queue.
    queue.push(old(1));
    for millis in 1000..1101 {
        queue.push(old(BYTES));
        assert!(control.dequeue(ms(millis), &CoDel::default(), &mut queue, &mut stats).is_some());
    }
    assert_eq!(stats.dropped_by_codel, 1);
    while control.dequeue(ms(1101), &CoDel::default(), &mut queue, &mut stats).is_some() {}
    assert_eq!((queue.len(), stats.dropped_by_codel), (0, 1));
}

#[test]
fn ecn_capable_packets_are_marked_instead_of_dropped() {
    let marking = CoDel { ecn: true, ..CoDel::default() };
    let mut dropped = StandingQueue::new(marking, LengthOnly::new(1000));
    let mut marked = StandingQueue::new(marking, LengthOnly::ecn_capable(1000));
    let mut unmarked = StandingQueue::new(CoDel::default(), LengthOnly::ecn_capable(1000));
    let drops = dropped.signals(0..1000, LONG);
    assert_eq!(marked.signals(0..1000, LONG), drops);
    assert_eq!(unmarked.signals(0..1000, LONG), drops);
    assert_eq!((dropped.stats.marked, dropped.stats.dropped_by_codel), (0, drops.len() as u64));
    assert_eq!((marked.stats.marked, marked.stats.dropped_by_codel), (drops.len() as u64, 0));
    assert_eq!(unmarked.stats.marked, 0);
    assert_eq!(
        StandingQueue::new(marking, LengthOnly::ecn_capable(1)).dequeue(ms(0), LONG).unwrap().packet.ecn,
        Ecn::Capable
    );
}

#[test]
fn a_long_pause_makes_several_drops_due_at_once() {
    let mut standing = StandingQueue::new(CoDel::default(), LengthOnly::new(1000));
    assert_eq!(standing.signals(0..101, LONG), [100]);
    // Due at 200, 270.7, 328.4, 378.4: all four at the next dequeue.
    assert_eq!(standing.signals(400..401, LONG), [400; 4]);
}

proptest! {
    #[test]
    fn the_control_law_is_exact(at in 0..1_u64 << 62, interval in 1..u64::MAX / 4, count in 1..u64::MAX) {
        let settings = CoDel { target: Duration::from_nanos(1), interval: Duration::from_nanos(interval), ecn: false };
        let span = u128::from((settings.control_law(Instant::from_nanos(at), count) - Instant::from_nanos(at)).as_nanos());
        // The largest integer with span <= interval / sqrt(count), checked without a square root.
        let square = u128::from(interval) * u128::from(interval);
        prop_assert!(span * span <= square / u128::from(count));
        prop_assert!((span + 1) * (span + 1) > square / u128::from(count));
    }

    #[test]
    fn every_packet_leaves_the_queue_or_is_counted_as_dropped(
        steps in prop::collection::vec((0..60_u64, 0..4_usize, 1..1500_u64, any::<bool>()), 1..400),
        ecn: bool,
    ) {
        let settings = CoDel { target: Duration::from_millis(5), interval: Duration::from_millis(20), ecn };
        let mut control = Control::default();
        let (mut queue, mut stats) = (Queue::new(), LinkStats::default());
        let (mut now, mut pushed, mut passed) = (Instant::ZERO, 0_u64, 0_u64);
        for (wait, count, line_bytes, capable) in steps {
            now += Duration::from_millis(wait);
            for _ in 0..count {
                let packet = if capable { LengthOnly::ecn_capable(1) } else { LengthOnly::new(1) };
                queue.push(Waiting { since: now, line_bytes, packet });
                pushed += 1;
            }
            let was_empty = queue.is_empty();
            let out = control.dequeue(now, &settings, &mut queue, &mut stats);
            prop_assert_eq!(out.is_none(), was_empty, "drops alone never empty the queue");
            passed += u64::from(out.is_some());
            prop_assert_eq!(pushed, passed + stats.dropped_by_codel + queue.len() as u64);
        }
        prop_assert!(ecn || stats.marked == 0);
    }
}

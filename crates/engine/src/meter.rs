//! Measures a driver's time by activity.
//!
//! One processor runs a driver at a time. At the end of each activity the meter reads the clock
//! once and adds the time since the last reading to that activity. This happens a few times per
//! batch and never per packet. Other threads read each value atomically, but may see only some of
//! the values of a batch.

use std::sync::atomic::{AtomicU64, Ordering};

use driver::Activity;
use driver::protocol::Batch;
use units::{Duration, Instant};

use crate::clock::Clock;

/// Duration above which an activity was preempted. On a slow machine, a full batch takes a tenth of
/// this time in any activity. A preempted thread waits at least twice this time.
pub const LAP_MAX: Duration = Duration::from_millis(1);

/// The traffic of an engine's sockets in one direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Traffic {
    /// System calls, including those without a result.
    pub calls: u64,
    /// Batches: one segmented send, or one receive buffer.
    pub batches: u64,
    /// Datagrams in all batches, or packets of a protocol without datagrams.
    pub datagrams: u64,
    /// Bytes of all datagrams: their UDP payload.
    pub bytes: u64,
}

/// Time and traffic since an engine was started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Costs {
    spent_ns: [u64; Activity::ALL.len()],
    /// Readings of the clock. Multiplied by the cost of one reading, this is the cost of measuring.
    pub readings: u64,
    /// Sent traffic.
    pub sent: Traffic,
    /// Received traffic.
    pub received: Traffic,
}

impl Costs {
    /// Returns the time spent in `activity`.
    pub fn spent(&self, activity: Activity) -> Duration {
        Duration::from_nanos(self.spent_ns[activity as usize])
    }

    /// Returns the sum of these costs and those of another driver.
    #[must_use]
    pub(crate) fn and(&self, other: &Self) -> Self {
        let traffic = |one: &Traffic, other: &Traffic| Traffic {
            calls: one.calls + other.calls,
            batches: one.batches + other.batches,
            datagrams: one.datagrams + other.datagrams,
            bytes: one.bytes + other.bytes,
        };
        Self {
            spent_ns: std::array::from_fn(|index| self.spent_ns[index] + other.spent_ns[index]),
            readings: self.readings + other.readings,
            sent: traffic(&self.sent, &other.sent),
            received: traffic(&self.received, &other.received),
        }
    }

    /// Returns the difference to `earlier`, an earlier result of the same engine.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let traffic = |late: &Traffic, early: &Traffic| Traffic {
            calls: late.calls - early.calls,
            batches: late.batches - early.batches,
            datagrams: late.datagrams - early.datagrams,
            bytes: late.bytes - early.bytes,
        };
        Self {
            spent_ns: std::array::from_fn(|index| self.spent_ns[index] - earlier.spent_ns[index]),
            readings: self.readings - earlier.readings,
            sent: traffic(&self.sent, &earlier.sent),
            received: traffic(&self.received, &earlier.received),
        }
    }
}

/// A counter with one writer at a time: adding is a load and a store, not an atomic addition.
#[derive(Debug, Default)]
struct Counter(AtomicU64);

impl Counter {
    fn add(&self, amount: u64) {
        self.0.store(self.get() + amount, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[derive(Debug, Default)]
struct Direction {
    calls: Counter,
    batches: Counter,
    datagrams: Counter,
    bytes: Counter,
}

impl Direction {
    fn add(&self, batches: u64, datagrams: u64, bytes: u64) {
        self.calls.add(1);
        self.batches.add(batches);
        self.datagrams.add(datagrams);
        self.bytes.add(bytes);
    }

    fn read(&self) -> Traffic {
        Traffic {
            calls: self.calls.get(),
            batches: self.batches.get(),
            datagrams: self.datagrams.get(),
            bytes: self.bytes.get(),
        }
    }
}

/// Adds up time by activity. The thread that runs the driver writes it; any thread may read it.
#[derive(Debug)]
pub(crate) struct Meter {
    clock: Clock,
    /// End of the last activity, in nanoseconds.
    last_ns: AtomicU64,
    spent_ns: [Counter; Activity::ALL.len()],
    readings: Counter,
    sent: Direction,
    received: Direction,
}

impl Meter {
    pub(crate) fn new(clock: Clock) -> Self {
        Self {
            last_ns: AtomicU64::new(clock.now().as_nanos()),
            clock,
            spent_ns: Default::default(),
            readings: Counter::default(),
            sent: Direction::default(),
            received: Direction::default(),
        }
    }

    /// Ends `activity` now.
    pub(crate) fn lap(&self, activity: Activity) {
        self.readings.add(1);
        self.lap_at(activity, self.clock.now());
    }

    /// Ends `activity` at `now`.
    pub(crate) fn lap_at(&self, activity: Activity, now: Instant) {
        let now_ns = now.as_nanos();
        // Another thread that runs the driver now may have read the clock slightly earlier.
        let spent_ns = now_ns.saturating_sub(self.last_ns.load(Ordering::Relaxed));
        self.last_ns.store(now_ns, Ordering::Relaxed);
        let is_preempted = spent_ns > LAP_MAX.as_nanos() && activity != Activity::Waiting;
        let activity = if is_preempted { Activity::TakenAway } else { activity };
        self.spent_ns[activity as usize].add(spent_ns);
    }

    /// Counts a system call that sent a batch.
    pub(crate) fn count_sent(&self, datagrams: usize, bytes: usize) {
        self.sent.add(1, datagrams as u64, bytes as u64);
    }

    /// Counts a system call that received these batches.
    pub(crate) fn count_received<B: Batch>(&self, batches: &[B]) {
        let datagrams = batches.iter().map(Batch::packet_count).sum::<usize>();
        let bytes = batches.iter().map(Batch::len_bytes).sum::<usize>();
        self.received.add(batches.len() as u64, datagrams as u64, bytes as u64);
    }

    pub(crate) fn read(&self) -> Costs {
        Costs {
            spent_ns: std::array::from_fn(|index| self.spent_ns[index].get()),
            readings: self.readings.get(),
            sent: self.sent.read(),
            received: self.received.read(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A batch of packets without content.
    struct Packets {
        len_bytes: usize,
        count: usize,
    }

    impl Batch for Packets {
        fn len_bytes(&self) -> usize {
            self.len_bytes
        }

        fn packet_count(&self) -> usize {
            self.count
        }

        fn split_front(&mut self, _len_bytes: usize) -> Self {
            unreachable!("the meter only counts")
        }
    }

    #[test]
    fn activities_have_consecutive_indices_and_unique_ids() {
        for (index, activity) in Activity::ALL.into_iter().enumerate() {
            assert_eq!(activity as usize, index);
            assert_eq!(Activity::ALL.into_iter().filter(|other| other.id() == activity.id()).count(), 1);
        }
    }

    #[test]
    fn every_nanosecond_is_counted_once() {
        let meter = Meter::new(Clock::start());
        let start = meter.last_ns.load(Ordering::Relaxed);
        let at = |nanos| Instant::from_nanos(start + nanos);
        meter.lap_at(Activity::Plan, at(100));
        meter.lap_at(Activity::Seal, at(350));
        let earlier = meter.read();
        meter.lap_at(Activity::Plan, at(360));
        // A reading that is earlier than the last one adds nothing.
        meter.lap_at(Activity::Waiting, at(355));
        let costs = meter.read();
        assert_eq!(
            (costs.spent(Activity::Plan), costs.spent(Activity::Seal)),
            (Duration::from_nanos(110), Duration::from_nanos(250))
        );
        let late = costs.since(&earlier);
        assert_eq!(late.spent_ns.iter().sum::<u64>(), 10);
        assert_eq!(late.spent(Activity::Plan), Duration::from_nanos(10));
    }

    #[test]
    fn an_activity_that_lasts_too_long_counts_as_preempted_unless_it_is_waiting() {
        let meter = Meter::new(Clock::start());
        let mut now = Instant::from_nanos(meter.last_ns.load(Ordering::Relaxed));
        let mut lap = |activity, spent| {
            now += spent;
            meter.lap_at(activity, now);
        };
        lap(Activity::Plan, LAP_MAX);
        lap(Activity::Plan, LAP_MAX + Duration::from_nanos(1));
        lap(Activity::Waiting, LAP_MAX * 3);
        let costs = meter.read();
        assert_eq!(costs.spent(Activity::Plan), LAP_MAX);
        assert_eq!(costs.spent(Activity::TakenAway), LAP_MAX + Duration::from_nanos(1));
        assert_eq!(costs.spent(Activity::Waiting), LAP_MAX * 3);
    }

    #[test]
    fn calls_batches_packets_and_bytes_are_counted() {
        let meter = Meter::new(Clock::start());
        meter.count_received(&[Packets { len_bytes: 2500, count: 3 }, Packets { len_bytes: 50, count: 1 }]);
        meter.count_received::<Packets>(&[]);
        meter.count_sent(44, 60_000);
        let costs = meter.read();
        assert_eq!(costs.received, Traffic { calls: 2, batches: 2, datagrams: 4, bytes: 2550 });
        assert_eq!(costs.sent, Traffic { calls: 1, batches: 1, datagrams: 44, bytes: 60_000 });
    }
}

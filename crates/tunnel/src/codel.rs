//! CoDel: decides from the time that packets spend in a queue when to signal congestion (RFC 8289).

use units::{Duration, Instant, Rate};

/// The delay that a standing queue may have (RFC 8289, section 4.3).
const TARGET: Duration = Duration::from_millis(5);

/// Packets that may stand in a queue whatever their delay. With fewer, a sender that lost one has not enough on the way
/// to notice it before its timer expires.
const PACKETS_STANDING: u64 = 4;

/// How long a delay above the target may last, at least (RFC 8289, section 4.3).
const INTERVAL_MIN: Duration = Duration::from_millis(100);

/// And at most: if the round trip is longer, it is a queue that makes it so.
const INTERVAL_MAX: Duration = Duration::from_secs(1);

/// A queue of this length leaves within one batch, whatever its delay: no signal (RFC 8289, section 5.3,
/// has the MTU for it).
const BATCH_BYTES: usize = 1514;

/// When a queue is too long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Bounds {
    /// The delay that a standing queue may have.
    target: Duration,
    /// How long a delay above it may last.
    interval: Duration,
}

impl Bounds {
    /// For a queue of which what leaves keeps to `rate`, if there is one: the target is the time of some packets if that
    /// is longer (RFC 8289, section 4.3).
    pub(crate) fn new(rate: Option<Rate>) -> Self {
        let target = rate.map_or(TARGET, |rate| TARGET.max(rate.time_for(PACKETS_STANDING * BATCH_BYTES as u64)));
        Self { target, interval: INTERVAL_MIN }
    }

    /// The round trip of the connection is this, at least. Its senders answer a signal no earlier (RFC 8289, section
    /// 4.3), and in slow start it and they take twice as much in each: a burst stands that long.
    pub(crate) fn set_round_trip(&mut self, round_trip: Duration) {
        self.interval = (round_trip * 2).clamp(INTERVAL_MIN, INTERVAL_MAX);
    }
}

/// The state of one queue.
#[derive(Clone, Debug, Default)]
pub(crate) struct Codel {
    /// When the delay will have been above the target for an interval; none while it is below.
    first_above_at: Option<Instant>,
    /// When to signal next.
    signal_next: Instant,
    /// Signals since the state began.
    count: u32,
    /// The count when it began.
    last_count: u32,
    is_signalling: bool,
}

impl Codel {
    /// Whether the delay has been above the target for an interval. `backlog` counts the bytes in the
    /// queue after the packet was taken out that had waited since `entered`.
    fn is_above(&mut self, now: Instant, entered: Instant, backlog: usize, bounds: Bounds) -> bool {
        if now.saturating_since(entered) < bounds.target || backlog <= BATCH_BYTES {
            self.first_above_at = None;
            return false;
        }
        match self.first_above_at {
            None => {
                self.first_above_at = Some(now + bounds.interval);
                false
            }
            Some(at) => now >= at,
        }
    }

    /// The queue is empty.
    pub(crate) fn on_empty(&mut self) {
        (self.is_signalling, self.first_above_at) = (false, None);
    }

    /// Decides about the packet that leaves the queue: whether to signal congestion with it. Called again for the next packet if it is dropped (RFC 8289, section 5.5).
    pub(crate) fn signals(&mut self, now: Instant, entered: Instant, backlog: usize, bounds: Bounds) -> bool {
        let is_above = self.is_above(now, entered, backlog, bounds);
        if self.is_signalling {
            if !is_above {
                self.is_signalling = false;
                return false;
            }
            if now < self.signal_next {
                return false;
            }
            self.count = self.count.saturating_add(1);
            self.signal_next = after_interval(self.signal_next, bounds.interval, self.count);
            return true;
        }
        if !is_above {
            return false;
        }
        self.is_signalling = true;
        // A queue that builds up again soon continues near the rate of signals that controlled it.
        let delta = self.count.saturating_sub(self.last_count);
        let is_soon = now.saturating_since(self.signal_next) < bounds.interval * 16;
        self.count = if delta > 1 && is_soon { delta } else { 1 };
        self.last_count = self.count;
        self.signal_next = after_interval(now, bounds.interval, self.count);
        true
    }
}

/// The control law: an interval divided by the square root of the number of signals.
fn after_interval(at: Instant, interval: Duration, count: u32) -> Instant {
    // With 16 more bits, so that the root of a small number is exact enough.
    let root = (u64::from(count) << 32).isqrt();
    at + Duration::from_nanos((interval.as_nanos() << 16) / root.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: usize = 100_000;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    /// The times in ms at which packets with this delay are signalled, one packet each ms.
    fn signals(codel: &mut Codel, from: u64, to: u64, delay: u64) -> Vec<u64> {
        (from..to)
            .filter(|now| codel.signals(at(*now), at(now.saturating_sub(delay)), FULL, Bounds::new(None)))
            .collect()
    }

    #[test]
    fn a_delay_below_the_target_or_a_short_burst_is_not_signalled() {
        let mut codel = Codel::default();
        assert_eq!(signals(&mut codel, 1000, 3000, 4), [0_u64; 0]);
        assert_eq!(signals(&mut codel, 3000, 3099, 50), [0_u64; 0]);
        assert_eq!(signals(&mut codel, 3099, 3100, 4), [0_u64; 0], "the burst is over");
        assert_eq!(signals(&mut codel, 3100, 3199, 50), [0_u64; 0]);
        let mut small = Codel::default();
        assert!(
            (1000..2000).all(|now| !small.signals(at(now), at(now - 500), BATCH_BYTES, Bounds::new(None))),
            "one packet waits"
        );
    }

    #[test]
    fn signals_follow_the_control_law_of_rfc_8289() {
        let mut codel = Codel::default();
        let times = signals(&mut codel, 1000, 1500, 50);
        // After an interval, then at 100 ms / sqrt(n).
        let mut expected = vec![1100];
        let mut next = 1100.0;
        for count in 1_u32.. {
            next += 100.0 / f64::from(count).sqrt();
            if next >= 1499.0 {
                break;
            }
            expected.push(f64::ceil(next) as u64);
        }
        assert_eq!(times.len(), expected.len(), "{times:?} {expected:?}");
        assert!(times.iter().zip(&expected).all(|(is, should)| is.abs_diff(*should) <= 1), "{times:?} {expected:?}");
    }

    #[test]
    fn senders_far_away_have_the_time_to_answer() {
        let times = |round_trip_ms: u64| {
            let (mut codel, mut bounds) = (Codel::default(), Bounds::new(None));
            bounds.set_round_trip(Duration::from_millis(round_trip_ms));
            let mut signals = (1000..9000).filter(|now| codel.signals(at(*now), at(now - 50), FULL, bounds));
            [signals.next(), signals.next()].map(|signal| signal.map(|ms| ms - 1000))
        };
        assert_eq!(times(1), [Some(100), Some(200)]);
        assert_eq!(times(300), [Some(600), Some(1200)]);
        assert_eq!(times(20_000), [Some(1000), Some(2000)]);
    }

    #[test]
    fn a_queue_that_builds_up_again_soon_is_signalled_more_often_at_once() {
        let mut codel = Codel::default();
        let first = signals(&mut codel, 1000, 1600, 50);
        assert_eq!(signals(&mut codel, 1600, 1650, 1), [0_u64; 0]);
        let again = signals(&mut codel, 1650, 1950, 50);
        assert_eq!(again[0], 1750, "after an interval");
        let gap = again[1] - again[0];
        assert!(first.len() > 6 && gap < 60, "{first:?} {again:?}");
        // Long after, it begins anew.
        codel.on_empty();
        let late = signals(&mut codel, 10_000, 10_300, 50);
        assert!(late[1] - late[0] >= 99, "{late:?}");
    }
}

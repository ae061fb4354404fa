//! A window for bulk that must not make others wait: as much in flight as fills the path and leaves a short queue.
//!
//! Congestion control fills whatever queue the narrowest place of a path has, and all that comes later waits in it: on the same
//! connection or on others. What is in the background keeps to this window beside the controller's. Once in a round trip it looks
//! at how much longer the shortest of its round trips was than the shortest at all; that is the queue. If it is longer than
//! wanted, the window shrinks to what would leave a queue of that length, otherwise it grows: twofold until the first queue
//! was seen, then by an eighth. Compare LEDBAT (RFC 6817), which aims at a fixed queue of up to 100 ms by one-way delays.

use units::{Duration, Instant};

/// The queue that is wanted: half a round trip of the empty path, so that what goes in front of the background takes at most half
/// as long again; within these bounds. A shorter one cannot be told from timers and schedulers of the hosts: with
/// 50 us a transfer over loopback, 14 Gb/s, lost a third to nine tenths of its rate. A longer one would be felt.
const QUEUE_MIN: Duration = Duration::from_micros(100);
const QUEUE_MAX: Duration = Duration::from_millis(10);

/// The window has at least this many datagrams: enough to hear of the path in each round trip.
const DATAGRAMS_MIN: u64 = 4;

/// The shortest round trip is that of this long at least, and of twice as long at most: a path that has become longer would
/// look like a queue for ever. Then the window is halved for a moment: a queue that is always there would look like the path.
const BASE_KEPT_FOR: Duration = Duration::from_secs(10);

/// Rounds with half a window: in the first the queue runs empty, in the second the path is seen without it.
const DRAINED_ROUNDS: u8 = 2;

/// The window and what it goes by.
#[derive(Debug, Clone)]
pub(crate) struct ShortQueue {
    window: u64,
    datagram_bytes: u64,
    /// A queue was seen: it grows slowly.
    is_probing: bool,
    /// The shortest round trip of this span and of the one before.
    base: [Option<Duration>; 2],
    base_since: Instant,
    /// Rounds for which the window is halved still, and what it was before.
    drained_rounds: u8,
    undrained: u64,
    /// The shortest of this round.
    round: Option<Duration>,
    /// Something did not leave because of this window since the last round began.
    was_full: bool,
}

impl ShortQueue {
    /// Begins with what is in flight.
    pub(crate) fn new(in_flight: u64, datagram_bytes: u64) -> Self {
        Self {
            window: in_flight.max(datagram_bytes * DATAGRAMS_MIN),
            datagram_bytes,
            is_probing: false,
            base: [None; 2],
            base_since: Instant::ZERO,
            drained_rounds: 0,
            undrained: 0,
            round: None,
            was_full: false,
        }
    }

    pub(crate) fn window(&self) -> u64 {
        self.window
    }

    /// Bytes that the background may still send; less than a datagram is none.
    pub(crate) fn room(&mut self, in_flight: u64) -> u64 {
        let room = self.window.saturating_sub(in_flight);
        let is_full = room < self.datagram_bytes;
        self.was_full |= is_full;
        if is_full { 0 } else { room }
    }

    /// Packets were acknowledged, with this round trip; `round_ended`: a packet of the present round was among them.
    #[cold] // Out of the way of connections without a background, which are most.
    pub(crate) fn on_ack(&mut self, now: Instant, round_trip: Duration, round_ended: bool) {
        if now.saturating_since(self.base_since) >= BASE_KEPT_FOR {
            self.base = [None, self.base[0]];
            self.base_since = now;
            if self.drained_rounds == 0 {
                self.undrained = self.window;
                self.window = (self.window / 2).max(self.least());
                self.drained_rounds = DRAINED_ROUNDS;
            }
        }
        self.base[0] = self.base[0].into_iter().chain([round_trip]).min();
        self.round = self.round.into_iter().chain([round_trip]).min();
        if round_ended && let Some(shortest) = self.round.take() {
            self.on_round(shortest);
        }
    }

    fn least(&self) -> u64 {
        self.datagram_bytes * DATAGRAMS_MIN
    }

    fn on_round(&mut self, shortest: Duration) {
        if self.drained_rounds > 0 {
            self.drained_rounds -= 1;
            if self.drained_rounds == 0 {
                (self.window, self.was_full) = (self.undrained, false);
            }
            return;
        }
        let Some(base) = self.base.into_iter().flatten().min() else { return };
        let wanted = base + (base / 2).clamp(QUEUE_MIN, QUEUE_MAX);
        if shortest > wanted {
            // What is in flight is the rate times the round trip: so much less of it leaves so much less of a queue.
            let fitting = u128::from(self.window) * u128::from(wanted.as_nanos()) / u128::from(shortest.as_nanos());
            let fitting = u64::try_from(fitting).unwrap_or(u64::MAX);
            self.window = fitting.max(self.window / 2).max(self.least());
            self.is_probing = true;
        } else if self.was_full {
            self.window += if self.is_probing { (self.window / 8).max(self.datagram_bytes) } else { self.window };
        }
        self.was_full = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATAGRAM: u64 = 1_200;

    /// A path of `mbps` and `base_ms` that carries nothing else, for `rounds` round trips; the longest queue of the second half.
    fn run(queue: &mut ShortQueue, now: &mut Instant, mbps: u64, base_ms: u64, rounds: usize) -> (Duration, f64) {
        let base = Duration::from_millis(base_ms);
        let rate = units::Rate::from_mbps(mbps);
        let (mut longest, mut carried, mut lasted) = (Duration::ZERO, 0, Duration::ZERO);
        for round in 0..rounds {
            let window = queue.window();
            assert_eq!(queue.room(window), 0, "it is used");
            let round_trip = base.max(rate.time_for(window));
            *now += round_trip;
            queue.on_ack(*now, round_trip, true);
            if round >= rounds / 2 {
                longest = longest.max(round_trip - base);
                (carried, lasted) = (carried + window, lasted + round_trip);
            }
        }
        (longest, carried as f64 * 8_000.0 / lasted.as_nanos() as f64 / mbps as f64)
    }

    #[test]
    fn it_fills_the_path_and_leaves_a_short_queue() {
        for (mbps, base_ms, queue_ms) in [(10, 40, 10), (1_000, 2, 1), (100, 10, 5), (1, 100, 13)] {
            let (mut queue, mut now) = (ShortQueue::new(0, DATAGRAM), Instant::ZERO);
            let (longest, share) = run(&mut queue, &mut now, mbps, base_ms, 2_000);
            // An eighth more than wanted, before it shrinks again.
            let most = Duration::from_millis(queue_ms) + Duration::from_millis(base_ms + queue_ms) / 7;
            assert!(
                longest <= most && share > 0.95,
                "{mbps} Mb/s, {base_ms} ms: a queue of {longest}, {share} of the rate"
            );
        }
    }

    #[test]
    fn a_window_that_is_too_wide_shrinks_within_some_round_trips() {
        let (mut queue, mut now) = (ShortQueue::new(10_000_000, DATAGRAM), Instant::ZERO);
        // The empty path was seen before.
        queue.on_ack(now, Duration::from_millis(10), true);
        run(&mut queue, &mut now, 100, 10, 14);
        assert!(queue.window() < 250_000, "{}", queue.window());
    }

    #[test]
    fn a_path_that_becomes_longer_is_not_taken_for_a_queue_for_ever() {
        let (mut queue, mut now) = (ShortQueue::new(0, DATAGRAM), Instant::ZERO);
        run(&mut queue, &mut now, 100, 10, 100);
        let (_, share) = run(&mut queue, &mut now, 100, 50, 1_000);
        assert!(share > 0.95, "{share}");
    }

    #[test]
    fn it_never_closes_and_does_not_grow_unused() {
        let mut queue = ShortQueue::new(0, DATAGRAM);
        let mut now = Instant::ZERO;
        queue.on_ack(now, Duration::from_millis(1), true);
        for _ in 0..50 {
            now += Duration::from_millis(500);
            queue.on_ack(now, Duration::from_millis(500), true);
        }
        assert!(queue.window() >= DATAGRAM * DATAGRAMS_MIN && queue.room(0) > 0);
        let before = queue.window();
        for _ in 0..50 {
            now += Duration::from_millis(1);
            assert!(queue.room(0) > 0);
            queue.on_ack(now, Duration::from_millis(1), true);
        }
        assert_eq!(queue.window(), before);
    }
}

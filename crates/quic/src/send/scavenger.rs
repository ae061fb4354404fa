//! A scavenger window for background streams (less than best effort, RFC 6817): enough in flight to
//! fill the path, with a short queue.
//!
//! Loss-based congestion control fills the queue at a path's bottleneck, and all later data waits
//! in it, on the same connection or on others. Background streams obey this window in addition to
//! the controller's. Once per round trip it compares the shortest RTT of the round with the base
//! RTT; the difference is the queue delay. If that exceeds the target, the window shrinks to the
//! size that leaves a queue of the target's length. Otherwise it grows: by a factor of two until a
//! queue is first seen, then by an eighth. Compare LEDBAT (RFC 6817), whose target is a fixed queue
//! delay of up to 100 ms, measured one way.

use units::{Duration, Instant};

/// The target queue delay is half a round trip of the empty path, so that foreground data wait at
/// most half a round trip longer, within these bounds. A shorter delay cannot be distinguished from
/// jitter of timers and thread schedulers on the hosts: with 50 us, a transfer over loopback (14
/// Gb/s) lost a third to nine tenths of its rate. A longer delay would be noticed by interactive
/// data.
const QUEUE_MIN: Duration = Duration::from_micros(100);
const QUEUE_MAX: Duration = Duration::from_millis(10);

/// The smallest window in datagrams: enough for an RTT sample in each round trip.
const DATAGRAMS_MIN: u64 = 4;

/// The base RTT is the shortest RTT of at least this long and at most twice as long: otherwise a
/// path that became longer would look like a queue forever. At the end of each span the window is
/// halved for a moment: otherwise a queue that never drains would look like the path.
const BASE_KEPT_FOR: Duration = Duration::from_secs(10);

/// Rounds with half a window: in the first the queue drains, in the second the RTT is that of the
/// path without it.
const DRAINED_ROUNDS: u8 = 2;

/// The scavenger window and its state.
#[derive(Debug, Clone)]
pub(crate) struct ScavengerWindow {
    window: u64,
    datagram_bytes: u64,
    /// A queue was seen: the window grows slowly.
    is_probing: bool,
    /// The shortest RTT of this span and of the one before.
    base: [Option<Duration>; 2],
    base_since: Instant,
    /// Rounds for which the window is still halved, and its size before.
    drained_rounds: u8,
    undrained: u64,
    /// The shortest RTT of this round.
    round: Option<Duration>,
    /// This window blocked data since the last round began.
    was_full: bool,
}

impl ScavengerWindow {
    /// Starts with the bytes in flight.
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

    /// Bytes that background streams may still send; zero if less than a datagram.
    pub(crate) fn available(&mut self, in_flight: u64) -> u64 {
        let available = self.window.saturating_sub(in_flight);
        let is_full = available < self.datagram_bytes;
        self.was_full |= is_full;
        if is_full { 0 } else { available }
    }

    /// Packets were acknowledged, with this RTT; `round_ended`: a packet of the current round was
    /// among them.
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
            // Bytes in flight are rate times RTT: this reduction of the window leaves a queue of
            // the target length.
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

    /// A path of `mbps` and `base_ms` without other traffic, for `rounds` round trips. Returns the
    /// longest queue delay of the second half.
    fn run(
        scavenger: &mut ScavengerWindow,
        now: &mut Instant,
        mbps: u64,
        base_ms: u64,
        rounds: usize,
    ) -> (Duration, f64) {
        let base = Duration::from_millis(base_ms);
        let rate = units::Rate::from_mbps(mbps);
        let (mut longest, mut carried, mut lasted) = (Duration::ZERO, 0, Duration::ZERO);
        for round in 0..rounds {
            let window = scavenger.window();
            assert_eq!(scavenger.available(window), 0, "the window is used");
            let round_trip = base.max(rate.time_for(window));
            *now += round_trip;
            scavenger.on_ack(*now, round_trip, true);
            if round >= rounds / 2 {
                longest = longest.max(round_trip - base);
                (carried, lasted) = (carried + window, lasted + round_trip);
            }
        }
        (longest, carried as f64 * 8_000.0 / lasted.as_nanos() as f64 / mbps as f64)
    }

    #[test]
    fn the_window_fills_the_path_and_keeps_the_queue_short() {
        for (mbps, base_ms, queue_ms) in [(10, 40, 10), (1_000, 2, 1), (100, 10, 5), (1, 100, 13)] {
            let (mut scavenger, mut now) = (ScavengerWindow::new(0, DATAGRAM), Instant::ZERO);
            let (longest, share) = run(&mut scavenger, &mut now, mbps, base_ms, 2_000);
            // An eighth more than the target, before the window shrinks again.
            let most = Duration::from_millis(queue_ms) + Duration::from_millis(base_ms + queue_ms) / 7;
            assert!(
                longest <= most && share > 0.95,
                "{mbps} Mb/s, {base_ms} ms: a queue of {longest}, {share} of the rate"
            );
        }
    }

    #[test]
    fn a_window_that_is_too_large_shrinks_within_a_few_round_trips() {
        let (mut scavenger, mut now) = (ScavengerWindow::new(10_000_000, DATAGRAM), Instant::ZERO);
        // The base RTT was measured before.
        scavenger.on_ack(now, Duration::from_millis(10), true);
        run(&mut scavenger, &mut now, 100, 10, 14);
        assert!(scavenger.window() < 250_000, "{}", scavenger.window());
    }

    #[test]
    fn a_longer_path_becomes_the_new_base() {
        let (mut scavenger, mut now) = (ScavengerWindow::new(0, DATAGRAM), Instant::ZERO);
        run(&mut scavenger, &mut now, 100, 10, 100);
        let (_, share) = run(&mut scavenger, &mut now, 100, 50, 1_000);
        assert!(share > 0.95, "{share}");
    }

    #[test]
    fn the_window_keeps_a_minimum_and_does_not_grow_unused() {
        let mut scavenger = ScavengerWindow::new(0, DATAGRAM);
        let mut now = Instant::ZERO;
        scavenger.on_ack(now, Duration::from_millis(1), true);
        for _ in 0..50 {
            now += Duration::from_millis(500);
            scavenger.on_ack(now, Duration::from_millis(500), true);
        }
        assert!(scavenger.window() >= DATAGRAM * DATAGRAMS_MIN && scavenger.available(0) > 0);
        let before = scavenger.window();
        for _ in 0..50 {
            now += Duration::from_millis(1);
            assert!(scavenger.available(0) > 0);
            scavenger.on_ack(now, Duration::from_millis(1), true);
        }
        assert_eq!(scavenger.window(), before);
    }
}

//! A flow-control window that grows until it no longer limits the peer.

use units::{Duration, Instant};

/// If half a window is used up in less than this many round trips, the window is too small.
const ROUND_TRIPS_PER_HALF: u64 = 2;

/// Credit for one stream, or for a whole connection.
#[derive(Debug)]
pub(crate) struct Window {
    /// The offset the peer may send up to.
    granted: u64,
    /// How far the peer may send beyond the bytes that were read.
    size: u64,
    size_max: u64,
    granted_at: Option<Instant>,
    /// The peer has reported that it has used all its credit.
    blocked: bool,
}

impl Window {
    /// A window of `size` bytes that may grow to `size_max`.
    pub(crate) fn new(size: u64, size_max: u64) -> Self {
        Self { granted: size, size, size_max: size_max.max(size), granted_at: None, blocked: false }
    }

    /// The offset the peer may send up to.
    pub(crate) fn granted(&self) -> u64 {
        self.granted
    }

    /// How far the peer may send beyond the bytes that were read.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Makes the window at least `size` bytes, as far as it may grow.
    pub(crate) fn grow_to(&mut self, size: u64) {
        self.size = self.size.max(size.min(self.size_max));
    }

    /// The application has read up to `consumed`: returns a new limit if it is time to grant one.
    ///
    /// Credit is granted in steps of half a window: smaller steps cost frames, larger ones make the
    /// peer wait for a round trip. A blocked peer gets all credit there is.
    pub(crate) fn on_consumed(&mut self, now: Instant, consumed: u64, round_trip: Duration) -> Option<u64> {
        if self.granted.saturating_sub(consumed) > self.size / 2 {
            return if self.blocked { self.grant(consumed) } else { None };
        }
        let quick = self.granted_at.is_some_and(|at| now.saturating_since(at) < round_trip * ROUND_TRIPS_PER_HALF);
        if quick {
            self.size = (self.size * 2).min(self.size_max);
        }
        self.granted_at = Some(now);
        self.grant(consumed)
    }

    /// The peer has used all its credit up to `limit` and has more to send: returns a new limit if
    /// there is any.
    ///
    /// Other streams may hold their part of the window forever. Credit below half a window would
    /// then never be granted otherwise.
    pub(crate) fn on_blocked(&mut self, limit: u64, consumed: u64) -> Option<u64> {
        // The peer sent this before it received our last grant.
        if limit < self.granted {
            return None;
        }
        self.blocked = true;
        self.grant(consumed)
    }

    fn grant(&mut self, consumed: u64) -> Option<u64> {
        let limit = consumed.saturating_add(self.size).min(wire::quic::VARINT_MAX);
        (limit > self.granted).then(|| {
            self.granted = limit;
            self.blocked = false;
            limit
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(10);

    fn at_ms(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn credit_comes_in_steps_of_half_a_window() {
        let mut window = Window::new(1000, 8000);
        assert_eq!(window.on_consumed(at_ms(0), 499, RTT), None);
        assert_eq!(window.on_consumed(at_ms(0), 500, RTT), Some(1500));
    }

    #[test]
    fn a_window_that_limits_the_peer_doubles_up_to_its_limit() {
        let mut window = Window::new(1000, 4000);
        assert_eq!(window.on_consumed(at_ms(0), 500, RTT), Some(1500));
        assert_eq!(window.on_consumed(at_ms(5), 1000, RTT), Some(3000));
        assert_eq!(window.on_consumed(at_ms(10), 2000, RTT), Some(6000));
        assert_eq!(window.on_consumed(at_ms(15), 4000, RTT), Some(8000));
    }

    #[test]
    fn a_blocked_peer_gets_all_credit_there_is() {
        let mut window = Window::new(1000, 8000);
        assert_eq!(window.on_consumed(at_ms(0), 100, RTT), None);
        assert_eq!(window.on_blocked(999, 100), None, "it has credit still");
        assert_eq!(window.on_blocked(1000, 100), Some(1100));
        assert_eq!(window.on_blocked(1000, 150), None, "sent before the grant arrived");
        assert_eq!(window.on_consumed(at_ms(1), 150, RTT), None);
        assert_eq!(window.on_blocked(1100, 150), Some(1150));
        assert_eq!(window.on_blocked(1150, 150), None);
        assert_eq!(window.on_consumed(at_ms(2), 151, RTT), Some(1151), "it waits still");
    }

    #[test]
    fn a_slow_reader_gets_no_larger_window() {
        let mut window = Window::new(1000, 8000);
        assert_eq!(window.on_consumed(at_ms(0), 500, RTT), Some(1500));
        assert_eq!(window.on_consumed(at_ms(500), 1000, RTT), Some(2000));
    }
}

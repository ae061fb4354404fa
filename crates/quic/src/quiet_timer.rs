//! When a quiet connection frees memory.
//!
//! A server may hold ten thousand connections of which a few are busy. A connection without traffic
//! frees after a while the memory that only a busy one needs, and with
//! [`TransportConfig::park_after`](crate::TransportConfig::park_after) also its TLS session.

use units::{Duration, Instant};

/// A connection is quiet after this time without traffic. Allocating its memory again takes some
/// ten microseconds, so it may happen four times a second.
const QUIET_AFTER: Duration = Duration::from_millis(250);

/// An action that is due for a quiet connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Due {
    /// Free memory that only a busy connection needs.
    Shrink,
    /// Shrink, and drop the TLS session.
    Park,
}

/// The timer of a connection.
#[derive(Debug)]
pub(crate) struct QuietTimer {
    park_after: Option<Duration>,
    busy_at: Instant,
    /// When the timer fires. Traffic does not move it: it is set again when it fires.
    due_at: Option<Instant>,
    parked: bool,
}

impl QuietTimer {
    pub(crate) fn new(park_after: Option<Duration>) -> Self {
        Self { park_after, busy_at: Instant::ZERO, due_at: None, parked: false }
    }

    /// Something was sent or received.
    pub(crate) fn note_busy(&mut self, now: Instant) {
        self.busy_at = now;
        self.due_at.get_or_insert(now + QUIET_AFTER);
    }

    /// When [`on_timeout`](Self::on_timeout) has something to do.
    pub(crate) fn timeout(&self) -> Option<Instant> {
        self.due_at
    }

    /// The action that is due at `now`, if any. A connection that is not `confirmed` parks later.
    pub(crate) fn on_timeout(&mut self, now: Instant, confirmed: bool) -> Option<Due> {
        if self.due_at.is_none_or(|at| at > now) {
            return None;
        }
        let quiet = now.saturating_since(self.busy_at);
        if quiet < QUIET_AFTER {
            self.due_at = Some(self.busy_at + QUIET_AFTER);
            return None;
        }
        let park_after = self.park_after.filter(|_| !self.parked);
        if !confirmed {
            self.due_at = None;
            return Some(Due::Shrink);
        }
        if park_after.is_some_and(|after| quiet >= after) {
            (self.parked, self.due_at) = (true, None);
            return Some(Due::Park);
        }
        self.due_at = park_after.map(|after| self.busy_at + after);
        Some(Due::Shrink)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    #[test]
    fn it_shrinks_once_after_a_while_without_traffic() {
        let mut timer = QuietTimer::new(None);
        assert_eq!(timer.timeout(), None);
        timer.note_busy(at(0));
        timer.note_busy(at(150));
        assert_eq!(timer.timeout(), Some(at(250)), "traffic moves no timer");
        assert_eq!((timer.on_timeout(at(249), true), timer.on_timeout(at(250), true)), (None, None));
        assert_eq!(timer.timeout(), Some(at(400)));
        assert_eq!(timer.on_timeout(at(410), true), Some(Due::Shrink));
        assert_eq!((timer.timeout(), timer.on_timeout(at(9000), true)), (None, None));
        timer.note_busy(at(10_000));
        assert_eq!(timer.on_timeout(at(10_250), true), Some(Due::Shrink));
    }

    #[test]
    fn a_handshake_that_takes_its_time_parks_later() {
        let mut timer = QuietTimer::new(Some(Duration::from_millis(250)));
        timer.note_busy(at(0));
        assert_eq!(timer.on_timeout(at(250), false), Some(Due::Shrink));
        timer.note_busy(at(2000));
        assert_eq!(timer.on_timeout(at(2250), true), Some(Due::Park));
    }

    #[test]
    fn it_parks_once_in_its_life() {
        let mut timer = QuietTimer::new(Some(Duration::from_secs(5)));
        timer.note_busy(at(0));
        assert_eq!(timer.on_timeout(at(250), true), Some(Due::Shrink));
        assert_eq!(timer.timeout(), Some(at(5000)));
        assert_eq!(timer.on_timeout(at(5000), true), Some(Due::Park));
        timer.note_busy(at(6000));
        assert_eq!(timer.on_timeout(at(20_000), true), Some(Due::Shrink));
        assert_eq!(timer.timeout(), None);
    }
}

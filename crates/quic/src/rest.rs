//! What an idle connection gives back.
//!
//! A server may hold ten thousand connections of which a few are busy. One that has been quiet for a while frees the memory
//! that only a busy one needs; with [`TransportConfig::park_after`](crate::TransportConfig::park_after) also what TLS keeps.

use units::{Duration, Instant};

/// Quiet for so long, a connection rests. Waking costs some ten microseconds, so it may happen four times a second.
const REST_AFTER: Duration = Duration::from_millis(250);

/// What is due for a connection that has been quiet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Due {
    Rest,
    /// Rest, and let go of the TLS session.
    Park,
}

/// When a connection rests.
#[derive(Debug)]
pub(crate) struct RestTimer {
    park_after: Option<Duration>,
    busy_at: Instant,
    /// Looked at then; moves only when it fires, so that traffic costs no timer.
    due_at: Option<Instant>,
    parked: bool,
}

impl RestTimer {
    pub(crate) fn new(park_after: Option<Duration>) -> Self {
        Self { park_after, busy_at: Instant::ZERO, due_at: None, parked: false }
    }

    /// Something was sent or received.
    pub(crate) fn note_busy(&mut self, now: Instant) {
        self.busy_at = now;
        self.due_at.get_or_insert(now + REST_AFTER);
    }

    /// When [`on_timeout`](Self::on_timeout) has something to do.
    pub(crate) fn timeout(&self) -> Option<Instant> {
        self.due_at
    }

    /// What is due at `now`, if anything. A connection that is not `confirmed` parks later.
    pub(crate) fn on_timeout(&mut self, now: Instant, confirmed: bool) -> Option<Due> {
        if self.due_at.is_none_or(|at| at > now) {
            return None;
        }
        let quiet = now.saturating_since(self.busy_at);
        if quiet < REST_AFTER {
            self.due_at = Some(self.busy_at + REST_AFTER);
            return None;
        }
        let park_after = self.park_after.filter(|_| !self.parked);
        if !confirmed {
            self.due_at = None;
            return Some(Due::Rest);
        }
        if park_after.is_some_and(|after| quiet >= after) {
            (self.parked, self.due_at) = (true, None);
            return Some(Due::Park);
        }
        self.due_at = park_after.map(|after| self.busy_at + after);
        Some(Due::Rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    #[test]
    fn it_rests_once_after_a_while_without_traffic() {
        let mut timer = RestTimer::new(None);
        assert_eq!(timer.timeout(), None);
        timer.note_busy(at(0));
        timer.note_busy(at(150));
        assert_eq!(timer.timeout(), Some(at(250)), "traffic moves no timer");
        assert_eq!((timer.on_timeout(at(249), true), timer.on_timeout(at(250), true)), (None, None));
        assert_eq!(timer.timeout(), Some(at(400)));
        assert_eq!(timer.on_timeout(at(410), true), Some(Due::Rest));
        assert_eq!((timer.timeout(), timer.on_timeout(at(9000), true)), (None, None));
        timer.note_busy(at(10_000));
        assert_eq!(timer.on_timeout(at(10_250), true), Some(Due::Rest));
    }

    #[test]
    fn a_handshake_that_takes_its_time_parks_later() {
        let mut timer = RestTimer::new(Some(Duration::from_millis(250)));
        timer.note_busy(at(0));
        assert_eq!(timer.on_timeout(at(250), false), Some(Due::Rest));
        timer.note_busy(at(2000));
        assert_eq!(timer.on_timeout(at(2250), true), Some(Due::Park));
    }

    #[test]
    fn it_parks_once_in_its_life() {
        let mut timer = RestTimer::new(Some(Duration::from_secs(5)));
        timer.note_busy(at(0));
        assert_eq!(timer.on_timeout(at(250), true), Some(Due::Rest));
        assert_eq!(timer.timeout(), Some(at(5000)));
        assert_eq!(timer.on_timeout(at(5000), true), Some(Due::Park));
        timer.note_busy(at(6000));
        assert_eq!(timer.on_timeout(at(20_000), true), Some(Due::Rest));
        assert_eq!(timer.timeout(), None);
    }
}

//! The idle timer and the keep-alive timer (RFC 9000, section 10.1).

use units::{Duration, Instant};

use crate::earliest::Earliest;

/// Closing and draining last this many probe timeouts, and the idle timeout at least as many (RFC 9000, section 10.2).
pub(crate) const CLOSE_PTOS: u64 = 3;

/// A keep-alive interval is at most this part of the idle timeout.
pub(crate) const KEEP_ALIVES_PER_IDLE_TIMEOUT: u64 = 3;

/// Both timers.
#[derive(Debug)]
pub(super) struct IdleTimer {
    /// Zero for none.
    timeout: Duration,
    at: Option<Instant>,
    /// The interval in force: the configured one, or less if the idle timeout is short.
    keep_alive: Option<Duration>,
    keep_alive_at: Option<Instant>,
}

impl IdleTimer {
    pub(super) fn new(now: Instant, timeout: Duration, keep_alive: Option<Duration>) -> Self {
        let mut timer = Self { timeout, at: None, keep_alive, keep_alive_at: None };
        timer.restart(now, Duration::ZERO);
        timer
    }

    /// The peer's timeout counts if it is shorter; zero for none.
    pub(super) fn limit(&mut self, theirs: Duration) {
        if !theirs.is_zero() && (self.timeout.is_zero() || theirs < self.timeout) {
            self.timeout = theirs;
        }
        // Several chances before the idle timer, whatever the peer's timeout (RFC 9000, section
        // 10.1.2).
        if !self.timeout.is_zero() {
            self.keep_alive = self.keep_alive.map(|interval| interval.min(self.timeout / KEEP_ALIVES_PER_IDLE_TIMEOUT));
        }
    }

    /// The connection is in use. At least three probe timeouts, so that a lost packet does not end it (RFC
    /// 9000, section 10.1).
    pub(super) fn restart(&mut self, now: Instant, pto: Duration) {
        if !self.timeout.is_zero() {
            self.at = Some(now + self.timeout.max(pto * CLOSE_PTOS));
        }
        self.keep_alive_at = self.keep_alive.map(|interval| now + interval);
    }

    /// The idle timeout has passed.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        self.at.is_some_and(|at| at <= now)
    }

    /// Notes when one of the two timers fires.
    pub(super) fn note_timeout(&self, earliest: &mut Earliest) {
        earliest.note(self.at);
        earliest.note(self.keep_alive_at);
    }

    /// Whether a PING is due. With `may_send` it leaves, which restarts the timer; otherwise it is due again
    /// after an interval.
    pub(super) fn takes_keep_alive(&mut self, now: Instant, may_send: bool) -> bool {
        if self.keep_alive_at.is_none_or(|at| at > now) {
            return false;
        }
        self.keep_alive_at = if may_send { None } else { self.keep_alive.map(|interval| now + interval) };
        may_send
    }
}

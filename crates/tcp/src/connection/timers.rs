//! Timeouts of a connection.

use units::Instant;
use wire::tcp::Flags;

use super::{CloseReason, Connection};
use crate::config::KeepAlive;
use crate::event::SoftError;
use crate::plan::Plan;
use crate::state::State;

/// Consecutive timeouts after which the application is notified (RFC 9293, section 3.8.3, R1).
const SILENT_TIMEOUTS: u32 = 3;

#[derive(Debug, Default)]
pub(super) struct Timers {
    /// End of [`State::TimeWait`].
    time_wait: Option<Instant>,
    /// End of the wait for the peer's FIN after the application is gone.
    orphan: Option<Instant>,
    /// Time of the last sign of life from the peer.
    heard_at: Option<Instant>,
    keep_alives: u32,
    next_keep_alive: Option<Instant>,
    is_keep_alive_due: bool,
}

impl Timers {
    pub(super) fn start_time_wait(&mut self, until: Instant) {
        self.time_wait = Some(until);
    }

    pub(super) fn start_orphan(&mut self, until: Instant) {
        self.orphan.get_or_insert(until);
    }

    pub(super) const fn time_wait(&self) -> Option<Instant> {
        self.time_wait
    }

    pub(super) fn on_heard(&mut self, now: Instant) {
        self.heard_at = Some(now);
        (self.keep_alives, self.next_keep_alive) = (0, None);
    }

    pub(super) fn stop(&mut self) {
        *self = Self::default();
    }

    fn keep_alive_at(&self, keep_alive: &KeepAlive) -> Option<Instant> {
        self.next_keep_alive.or_else(|| Some(self.heard_at? + keep_alive.after))
    }
}

impl Connection {
    /// Returns the time at which [`handle_timeout`](Self::handle_timeout) must be called.
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.state == State::Closed {
            return None;
        }
        let keep_alive = self.keep_alive();
        let receive = self.receive.as_ref().filter(|receive| !receive.is_ack_due());
        let times = [
            self.send.poll_timeout(),
            receive.and_then(|receive| receive.poll_timeout()),
            self.timers.time_wait,
            self.timers.orphan,
            keep_alive.and_then(|keep_alive| self.timers.keep_alive_at(&keep_alive)),
        ];
        times.into_iter().flatten().min()
    }

    /// Handles timeouts. Early calls have no effect.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.record(|journal| journal.timeout(now));
        if self.state == State::Closed {
            return;
        }
        if self.timers.time_wait.is_some_and(|until| until <= now) {
            self.close(CloseReason::Finished);
            return;
        }
        if self.timers.orphan.is_some_and(|until| until <= now) && self.state == State::FinWait2 {
            self.close(CloseReason::TimedOut);
            return;
        }
        self.timers.orphan = self.timers.orphan.filter(|until| *until > now);
        self.send.handle_timeout(now);
        if let Some(receive) = &mut self.receive {
            receive.handle_timeout(now);
        }
        let limit = if self.state == State::SynSent || self.state == State::SynReceived {
            self.config.syn_attempts_max
        } else {
            self.config.timeouts_max
        };
        if self.send.timeouts() >= limit {
            return self.time_out();
        }
        // A router's report takes precedence.
        if self.send.timeouts() >= SILENT_TIMEOUTS && self.soft_error.is_none() {
            self.note_soft_error(SoftError::Silent);
        }
        self.handle_keep_alive(now);
    }

    /// Returns the keep-alive schedule of an idle connection: outstanding data, and data waiting
    /// for a window, have timers of their own (RFC 9293, section 3.8.4, MUST-25).
    fn keep_alive(&self) -> Option<KeepAlive> {
        self.config.keep_alive.filter(|_| self.state.is_synchronized() && self.send.is_idle())
    }

    fn handle_keep_alive(&mut self, now: Instant) {
        let Some(keep_alive) = self.keep_alive() else { return };
        if self.timers.keep_alive_at(&keep_alive).is_none_or(|at| at > now) {
            return;
        }
        if self.timers.keep_alives >= keep_alive.probes_max {
            return self.time_out();
        }
        self.timers.keep_alives += 1;
        self.timers.next_keep_alive = Some(now + keep_alive.interval);
        self.timers.is_keep_alive_due = true;
    }

    /// Fills `plan` with a due keep-alive probe: its sequence number was acknowledged already, so
    /// the peer answers (RFC 9293, section 3.8.4).
    pub(super) fn take_keep_alive(&mut self, now: Instant, plan: &mut Plan) -> bool {
        if !std::mem::take(&mut self.timers.is_keep_alive_due) {
            return false;
        }
        let seq = self.send.nxt_on_wire() - 1;
        self.fill_header(now, seq, Flags::default(), 0, plan);
        true
    }
}

//! Setting and expiry of the send half's timers.

use recovery::congestion::WINDOW_MAX;
use units::{Duration, Instant};

use super::SendHalf;
use super::log::{Judgement, Run, RunState};
use super::lost::Lost;
use super::timers::{Purpose, Timers};

/// Longest delay by the peer of an acknowledgement for a lone segment (RFC 8985, section 7.2,
/// TLP.max_ack_delay).
const ACK_DELAY_MAX: Duration = Duration::from_millis(200);

impl SendHalf {
    /// Returns the time at which [`handle_timeout`](Self::handle_timeout) must run.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let Timers { timer, reordering, release, .. } = &self.timers;
        [timer.map(|(_, at)| at), *reordering, *release].into_iter().flatten().min()
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        if self.timers.release.is_some_and(|at| at <= now) {
            self.timers.release = None;
        }
        if self.timers.reordering.is_some_and(|at| at <= now) {
            self.timers.reordering = None;
            self.detect_losses(now);
            self.advance_reduction(0, false);
        }
        match self.timers.take_expired(now) {
            Some(Purpose::Retransmit) => self.on_retransmission_timeout(now),
            Some(Purpose::Probe) => {
                self.timers.is_probe_due = true;
                self.stats.probes += 1;
                self.timers.start(Purpose::Retransmit, now + self.rto());
            }
            Some(Purpose::Window) => {
                self.timers.is_window_probe_due = true;
                self.timers.back_off();
                self.timers.start(Purpose::Window, now + self.timers.backed_off(self.rto()));
            }
            None => {}
        }
    }

    /// Handles a retransmission timeout (RFC 6298, sections 5.4 to 5.7): the first segment is
    /// resent, followed by everything after it with the smallest window, unless the first was only
    /// late.
    fn on_retransmission_timeout(&mut self, now: Instant) {
        self.stats.timeouts += 1;
        self.syn_timeouts += u32::from(!self.is_syn_acked());
        self.timers.back_off();
        self.timers.probe = None;
        self.suspect_black_hole();
        if !self.suspect() {
            self.lose_all(now);
        }
        self.timers.start(Purpose::Retransmit, now + self.timers.backed_off(self.rto()));
    }

    /// Declares everything outstanding lost.
    fn lose_all(&mut self, now: Instant) {
        // A peer that holds the first run would have acknowledged it: it has dropped data that it
        // acknowledged selectively (RFC 2018, section 8).
        if self.log.runs().next().is_some_and(|run| run.state == RunState::Sacked) {
            self.log.forget_sacks();
        }
        self.lose_until(now, self.nxt, Lost::default());
    }

    /// Declares lost everything outstanding before `end`, in addition to `lost`.
    pub(super) fn lose_until(&mut self, now: Instant, end: u64, mut lost: Lost) {
        self.suspicion = None;
        let probe = self.probe_number();
        let (delivery, probe) = (&mut self.delivery, probe);
        let judge = |run: &Run| if run.start < end { Judgement::Lost } else { Judgement::NoneFollows };
        self.log.lose(judge, |run| Self::count_lost(run, probe, &mut lost, delivery));
        if !self.is_syn_acked() {
            // The loss of a SYN says little about the path; the first window reflects it (RFC 5681,
            // section 3.1).
            return;
        }
        self.end_recovery();
        self.recovery_point = Some(self.nxt);
        self.on_lost(now, &lost, true);
        // The window is minimal, and grows again by slow start.
        self.reduction = None;
        self.timers.set_reordering(None);
    }

    /// Processes the acknowledgement of the SYN. If the SYN was lost, the first window is one
    /// segment (RFC 5681, section 3.1). A single repetition may be due to a long path, unless a
    /// timestamp shows that the first copy was lost (RFC 6928, section 2).
    pub(super) fn on_syn_acked(&mut self, echo: Option<Instant>) {
        let is_second = |run: &Run| run.is_retransmitted && echo.is_some_and(|echo| echo >= run.sent_at);
        let is_lost = self.syn_timeouts > 1 || self.log.runs().next().is_some_and(is_second);
        if is_lost && self.congestion.window() < WINDOW_MAX {
            self.first_window = self.segment;
        }
    }

    /// Restarts the timers after a transmission: the retransmission timer runs while anything is
    /// outstanding (RFC 6298, section 5.1), and a probe is due some time after the last
    /// transmission (RFC 8985, section 7.2).
    pub(super) fn on_timed_sent(&mut self, now: Instant) {
        if !matches!(self.timers.purpose(), Some(Purpose::Retransmit)) {
            self.restart_timer(now);
        }
    }

    /// Returns whether a tail loss probe may be sent (RFC 8985, section 7.2): not in a recovery,
    /// not after a timeout, and one at a time.
    pub(super) fn may_probe(&self) -> bool {
        self.has_sack
            && self.una > 0
            && !self.is_recovering()
            && self.timers.backoff == 0
            && self.timers.probe.is_none()
            && !self.timers.is_probe_due
            && self.log.sacked() == 0
    }

    /// Returns the delay of a tail loss probe (RFC 8985, section 7.2).
    pub(super) fn probe_timeout(&self) -> Duration {
        if !self.rtt.has_sample() {
            return self.rto();
        }
        let lone = if self.log.in_flight() <= self.segment { ACK_DELAY_MAX } else { Duration::ZERO };
        (self.rtt.smoothed() * 2 + lone).max(Duration::from_millis(1)).min(self.rto())
    }

    /// Sets the timer for a closed window with nothing outstanding and data waiting: only a probe
    /// shows when it opens, because the segment that opens it is not repeated. The same timer lets
    /// a silly window be used (RFC 9293, section 3.8.6.2.1, the override timeout).
    pub(super) fn update_window_timer(&mut self, now: Instant) {
        let has_data = self.is_syn_acked() && self.log.is_empty() && self.nxt < self.buffer.end();
        let waits = has_data && !self.is_granted();
        match self.timers.purpose() {
            None if waits => self.timers.start(Purpose::Window, now + self.timers.backed_off(self.rto())),
            Some(Purpose::Window) if !waits => {
                self.timers.stop();
                (self.timers.is_window_probe_due, self.timers.backoff) = (false, 0);
            }
            _ => {}
        }
    }

    /// Records an answer of the peer. A peer that keeps answering with a closed window is alive,
    /// and a connection must wait for it as long as it answers (RFC 9293, section 3.8.6.1).
    pub(crate) fn note_answer(&mut self) {
        if self.window.edge() <= self.una {
            self.timers.unanswered = 0;
        }
    }
}

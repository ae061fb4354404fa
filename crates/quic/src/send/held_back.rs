//! The peer's credit holds us back: saying so again, so that the connection lives for as long as we have something to send.

use units::{Duration, Instant};

use super::SendHalf;
use crate::control::KEEP_ALIVES_PER_IDLE_TIMEOUT;
use crate::spaces::DATA;

/// How long we wait before we say again that we are held back, at most.
const REPEAT_AFTER_MAX: Duration = Duration::from_secs(10);

impl SendHalf {
    /// Both sides' idle timeouts, in force from now on; zero is none.
    pub(super) fn set_idle_timeouts(&mut self, ours: Duration, theirs: Duration) {
        let shortest = [ours, theirs].into_iter().filter(|timeout| !timeout.is_zero()).min();
        self.repeat_blocked_after =
            shortest.map_or(REPEAT_AFTER_MAX, |timeout| REPEAT_AFTER_MAX.min(timeout / KEEP_ALIVES_PER_IDLE_TIMEOUT));
    }

    /// Something is in flight where somebody answers: what lies on a path that does not is asked about for ever.
    fn awaits_answers(&self) -> bool {
        let early = self.spaces.iter().take(DATA).any(|space| space.log.has_eliciting());
        early
            || (0..self.paths.len()).any(|at| self.paths[at].is_active() && self.spaces[DATA + at].log.has_eliciting())
    }

    /// When to say again that the peer's credit holds us back. RFC 9000, section 4.1: a sender that is flow control blocked
    /// should do so periodically when it has no ack-eliciting packets in flight; the peer's answers keep both idle timers
    /// from firing.
    pub(super) fn blocked_deadline(&self) -> Option<Instant> {
        let waits = self.streams.is_held_back()
            && self.handshake_confirmed
            && self.close.is_none()
            // What is due already waits for a packet, not for this timer.
            && !self.streams.has_control_due()
            && !self.awaits_answers();
        waits.then(|| {
            let anchor = self.paths.iter().map(|path| path.probe_anchor).max().unwrap_or(Instant::ZERO);
            anchor + self.repeat_blocked_after.max(self.pto_interval())
        })
    }
}

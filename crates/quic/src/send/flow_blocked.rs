//! Repeats the BLOCKED frames while the peer's flow-control credit blocks us, so that the
//! connection stays alive for as long as there is data to send.

use units::Instant;

use super::SendHalf;
use crate::spaces::DATA;

impl SendHalf {
    /// True if ack-eliciting packets are in flight on a path that responds. A path that does not
    /// respond is challenged without end, so its packets do not count.
    fn awaits_acknowledgements(&self) -> bool {
        let early = self.spaces.iter().take(DATA).any(|space| space.log.has_eliciting());
        early
            || (0..self.paths.len()).any(|at| self.paths[at].is_active() && self.spaces[DATA + at].log.has_eliciting())
    }

    /// When to repeat the BLOCKED frames. A sender that is flow control blocked should repeat them
    /// periodically while it has no ack-eliciting packets in flight (RFC 9000, section 4.1); the
    /// peer's acknowledgements keep both idle timers from firing.
    pub(super) fn blocked_deadline(&self) -> Option<Instant> {
        let waits = self.streams.is_flow_blocked()
            && self.progress.is_confirmed
            && !self.closing.is_begun()
            // A frame that is already due waits for a packet, not for this timer.
            && !self.streams.has_control_due()
            && !self.awaits_acknowledgements();
        waits.then(|| {
            let anchor = self.paths.iter().map(|path| path.recovery.probe_anchor).max().unwrap_or(Instant::ZERO);
            anchor + self.peer.blocked_repeat_interval.max(self.pto_interval())
        })
    }
}

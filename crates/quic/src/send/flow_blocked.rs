//! Repeats the BLOCKED frames while the peer's flow-control credit blocks us, so that the
//! connection stays alive for as long as there is data to send.

use units::{Duration, Instant};

use super::SendHalf;
use crate::control::KEEP_ALIVES_PER_IDLE_TIMEOUT;
use crate::spaces::DATA;

/// The longest interval between two repetitions of the BLOCKED frames.
const REPEAT_INTERVAL_MAX: Duration = Duration::from_secs(10);

/// The interval between repetitions, from the idle timeouts of both sides; zero means none.
pub(super) fn repeat_interval(ours: Duration, theirs: Duration) -> Duration {
    let shortest = [ours, theirs].into_iter().filter(|timeout| !timeout.is_zero()).min();
    shortest.map_or(REPEAT_INTERVAL_MAX, |timeout| REPEAT_INTERVAL_MAX.min(timeout / KEEP_ALIVES_PER_IDLE_TIMEOUT))
}

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

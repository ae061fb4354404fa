//! How often the peer is asked to acknowledge (draft-ietf-quic-ack-frequency-14).
//!
//! An acknowledgement costs both sides a system call and more work than a packet of data. A fast path needs a few each
//! round trip, not one for every second packet.

use units::Duration;
use wire::quic::frame::Frame;

use super::SentFrame;

/// Acknowledgements asked for in a window's worth of packets. Slow start wants to see the round trip rise (HyStart++ takes
/// at least eight samples a round, RFC 9406, section 4.3), and every controller paces by what it hears.
const ACKS_PER_WINDOW: u64 = 16;

/// The most packets without an acknowledgement: six batches, so that what an acknowledgement costs hardly counts.
const THRESHOLD_MAX: u64 = 256;

/// The threshold of a peer that was asked for nothing: it acknowledges every second packet (RFC 9000, section 13.2.2).
const THRESHOLD_DEFAULT: u64 = 1;

/// Packets of reordering that call for an acknowledgement at once: any, as in RFC 9000, section 13.2.1.
const REORDERING_THRESHOLD: u64 = 1;

/// What the peer was asked for.
#[derive(Debug)]
pub(crate) struct AckFrequency {
    /// The shortest delay the peer can promise; none if it does not speak the extension.
    peer_min_delay: Option<Duration>,
    next_sequence: u64,
    asked: Wish,
    /// The peer's own max_ack_delay, and the longest one it may be using now.
    delay_max: Duration,
    delay_in_force: Duration,
    due: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Wish {
    threshold: u64,
    delay: Duration,
}

impl AckFrequency {
    /// Before the peer's transport parameters are known (RFC 9000, section 18.2: 25 ms).
    pub(crate) fn new() -> Self {
        let delay = Duration::from_millis(25);
        Self {
            peer_min_delay: None,
            next_sequence: 0,
            asked: Wish { threshold: THRESHOLD_DEFAULT, delay },
            delay_max: delay,
            delay_in_force: delay,
            due: false,
        }
    }

    /// The peer's max_ack_delay and min_ack_delay.
    pub(crate) fn set_peer(&mut self, max: Duration, min: Option<Duration>) {
        self.peer_min_delay = min;
        (self.delay_max, self.delay_in_force, self.asked.delay) = (max, max, max);
    }

    /// The longest time the peer may take to acknowledge: what loss timers must allow for.
    pub(crate) fn max_ack_delay(&self) -> Duration {
        self.delay_in_force
    }

    /// The window has `window_packets` packets and the path takes `round_trip`: asks for another frequency if the one in
    /// force is far off, so that few frames are spent on it.
    pub(crate) fn tune(&mut self, window_packets: u64, round_trip: Duration) {
        let Some(min) = self.peer_min_delay else { return };
        let threshold = (window_packets / ACKS_PER_WINDOW).clamp(THRESHOLD_DEFAULT, THRESHOLD_MAX);
        // A quarter of a round trip, so that what is held back at the end of a burst costs little.
        let delay = (round_trip / 4).clamp(min, self.delay_max.max(min));
        let asked = self.asked;
        let is_far =
            |now: u64, then: u64| now != then && (now >= then.saturating_mul(2) || now.saturating_mul(2) <= then);
        if is_far(threshold, asked.threshold) || (is_far(delay.as_nanos(), asked.delay.as_nanos()) && threshold > 1) {
            self.asked = Wish { threshold, delay };
            self.due = true;
        }
    }

    /// True if a frame waits.
    pub(crate) fn is_due(&self) -> bool {
        self.due
    }

    /// The frame that is due.
    pub(crate) fn pop(&mut self) -> Option<(Frame<'static>, SentFrame)> {
        if !std::mem::take(&mut self.due) {
            return None;
        }
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        // Until the peer is known to have it, it may use either (draft-14, section 8.2).
        self.delay_in_force = self.delay_in_force.max(self.asked.delay);
        let frame = Frame::AckFrequency {
            sequence,
            ack_eliciting_threshold: self.asked.threshold,
            requested_max_ack_delay: self.asked.delay.as_micros(),
            reordering_threshold: REORDERING_THRESHOLD,
        };
        Some((frame, SentFrame::AckFrequency { sequence }))
    }

    /// The peer has frame `sequence`.
    pub(crate) fn on_acked(&mut self, sequence: u64) {
        if sequence + 1 == self.next_sequence && !self.due {
            self.delay_in_force = self.asked.delay;
        }
    }

    /// Frame `sequence` was lost: the latest wish is said again, unless a later frame says it (draft-14, section 4).
    pub(crate) fn on_lost(&mut self, sequence: u64) {
        self.due |= sequence + 1 == self.next_sequence;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER_MIN: Duration = Duration::from_millis(1);

    fn speaking() -> AckFrequency {
        let mut frequency = AckFrequency::new();
        frequency.set_peer(Duration::from_millis(25), Some(PEER_MIN));
        frequency
    }

    fn wish(frame: &Frame<'_>) -> (u64, u64, u64) {
        match *frame {
            Frame::AckFrequency { sequence, ack_eliciting_threshold, requested_max_ack_delay, .. } => {
                (sequence, ack_eliciting_threshold, requested_max_ack_delay)
            }
            _ => panic!("{frame:?}"),
        }
    }

    #[test]
    fn a_peer_without_the_extension_is_asked_nothing() {
        let mut frequency = AckFrequency::new();
        frequency.set_peer(Duration::from_millis(40), None);
        frequency.tune(100_000, Duration::from_millis(1));
        assert!(frequency.pop().is_none());
        assert_eq!(frequency.max_ack_delay(), Duration::from_millis(40));
    }

    #[test]
    fn the_wish_follows_the_window_in_steps_of_two() {
        let mut frequency = speaking();
        frequency.tune(20, Duration::from_millis(100));
        assert!(!frequency.is_due(), "a small window needs every acknowledgement");
        frequency.tune(64, Duration::from_millis(40));
        assert_eq!(frequency.pop().map(|(frame, _)| wish(&frame)), Some((0, 4, 10_000)));
        frequency.tune(100, Duration::from_millis(40));
        assert!(!frequency.is_due(), "6 is not far from 4");
        frequency.tune(1 << 20, Duration::from_micros(100));
        assert_eq!(frequency.pop().map(|(frame, _)| wish(&frame)), Some((1, THRESHOLD_MAX, 1000)));
        frequency.tune(10, Duration::from_micros(100));
        assert_eq!(frequency.pop().map(|(frame, _)| wish(&frame)), Some((2, 1, 1000)));
    }

    #[test]
    fn a_peer_without_any_delay_is_not_asked_again_and_again() {
        let mut frequency = AckFrequency::new();
        frequency.set_peer(Duration::ZERO, Some(Duration::ZERO));
        frequency.tune(1600, Duration::from_millis(8));
        assert!(frequency.pop().is_some());
        frequency.tune(1600, Duration::from_millis(8));
        assert!(frequency.pop().is_none());
    }

    #[test]
    fn a_shorter_delay_counts_once_it_is_acknowledged_and_a_longer_one_at_once() {
        let mut frequency = speaking();
        frequency.tune(1600, Duration::from_millis(8));
        let _sent = frequency.pop();
        assert_eq!(frequency.max_ack_delay(), Duration::from_millis(25));
        frequency.on_acked(0);
        assert_eq!(frequency.max_ack_delay(), Duration::from_millis(2));
        frequency.tune(1600, Duration::from_millis(40));
        let _sent = frequency.pop();
        assert_eq!(frequency.max_ack_delay(), Duration::from_millis(10));
    }

    #[test]
    fn only_the_last_frame_is_repeated() {
        let mut frequency = speaking();
        frequency.tune(1600, Duration::from_millis(8));
        let _first = frequency.pop();
        frequency.tune(160, Duration::from_millis(8));
        let _second = frequency.pop();
        frequency.on_lost(0);
        assert!(!frequency.is_due());
        frequency.on_lost(1);
        assert_eq!(frequency.pop().map(|(frame, _)| wish(&frame)), Some((2, 10, 2000)));
    }
}

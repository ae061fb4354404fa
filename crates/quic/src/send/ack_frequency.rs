//! How often the peer is requested to acknowledge (draft-ietf-quic-ack-frequency-14).
//!
//! An acknowledgement costs both sides a system call and more processor time than a data packet. A
//! fast path needs a few per round trip, not one for every second packet.

use units::Duration;
use wire::quic::frame::Frame;

use super::frames::SentFrame;
use super::path::SendPath;

/// Acknowledgements requested per congestion window. Slow start needs to see the round trip rise
/// (HyStart++ takes at least eight samples per round, RFC 9406, section 4.3), and every controller
/// paces by the acknowledgements it receives.
const ACKS_PER_WINDOW: u64 = 16;

/// The most packets without an acknowledgement: six batches, so that the cost of an acknowledgement
/// is negligible.
const THRESHOLD_MAX: u64 = 256;

/// The threshold in force before any request: a receiver acknowledges every second packet (RFC
/// 9000, section 13.2.2).
const THRESHOLD_DEFAULT: u64 = 1;

/// Packets of reordering that trigger an immediate acknowledgement: any, as in RFC 9000, section
/// 13.2.1.
const REORDERING_THRESHOLD: u64 = 1;

/// The ACK frequency requested from the peer.
#[derive(Debug)]
pub(crate) struct AckFrequency {
    /// The peer's min_ack_delay; `None` if the peer does not support the extension.
    peer_min_delay: Option<Duration>,
    next_sequence: u64,
    requested: Request,
    /// The peer's own max_ack_delay, and the longest delay it may be using now.
    delay_max: Duration,
    delay_in_force: Duration,
    due: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Request {
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
            requested: Request { threshold: THRESHOLD_DEFAULT, delay },
            delay_max: delay,
            delay_in_force: delay,
            due: false,
        }
    }

    /// The peer's max_ack_delay and min_ack_delay.
    pub(crate) fn set_peer(&mut self, max: Duration, min: Option<Duration>) {
        self.peer_min_delay = min;
        (self.delay_max, self.delay_in_force, self.requested.delay) = (max, max, max);
    }

    /// The longest delay the peer may add to an acknowledgement. Loss timers allow for it.
    pub(crate) fn max_ack_delay(&self) -> Duration {
        self.delay_in_force
    }

    /// Takes the window in packets and the round-trip time. Requests another frequency only if the
    /// one in force is off by a factor of two or more, so that few frames are spent on it.
    pub(crate) fn tune(&mut self, window_packets: u64, round_trip: Duration) {
        let Some(min) = self.peer_min_delay else { return };
        let threshold = (window_packets / ACKS_PER_WINDOW).clamp(THRESHOLD_DEFAULT, THRESHOLD_MAX);
        // A quarter of a round trip, so that a delayed acknowledgement at the end of a burst costs
        // little.
        let delay = (round_trip / 4).clamp(min, self.delay_max.max(min));
        let requested = self.requested;
        let is_far =
            |now: u64, then: u64| now != then && (now >= then.saturating_mul(2) || now.saturating_mul(2) <= then);
        if is_far(threshold, requested.threshold)
            || (is_far(delay.as_nanos(), requested.delay.as_nanos()) && threshold > 1)
        {
            self.requested = Request { threshold, delay };
            self.due = true;
        }
    }

    /// Makes one request for all paths: as few acknowledgements as the largest window needs, with a delay
    /// that suits the shortest path. `is_central` says that one path carries the acknowledgements of all.
    pub(super) fn tune_for(&mut self, paths: &[SendPath], is_central: bool) {
        let request = |path: &SendPath| {
            let recovery = &path.recovery;
            (recovery.window_in_use() / path.size.bytes() as u64, recovery.rtt.smoothed())
        };
        if let [path] = paths {
            let (packets, round_trip) = request(path);
            return self.tune(packets, round_trip);
        }
        let requests = paths.iter().filter(|path| path.is_active() && path.recovery.rtt.has_sample()).map(request);
        // Central acknowledgements count the packets of all paths together, so the windows add up.
        let both = |one: u64, other: u64| if is_central { one.saturating_add(other) } else { one.max(other) };
        let widest =
            requests.reduce(|(all, soonest), (packets, round_trip)| (both(all, packets), soonest.min(round_trip)));
        if let Some((packets, round_trip)) = widest {
            self.tune(packets, round_trip);
        }
    }

    /// True if an ACK_FREQUENCY frame is due.
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
        // The peer may use the old or the new delay until it acknowledges the frame (draft-14,
        // section 8.2).
        self.delay_in_force = self.delay_in_force.max(self.requested.delay);
        let frame = Frame::AckFrequency {
            sequence,
            ack_eliciting_threshold: self.requested.threshold,
            requested_max_ack_delay: self.requested.delay.as_micros(),
            reordering_threshold: REORDERING_THRESHOLD,
        };
        Some((frame, SentFrame::AckFrequency { sequence }))
    }

    /// The peer acknowledged frame `sequence`.
    pub(crate) fn on_acked(&mut self, sequence: u64) {
        if sequence + 1 == self.next_sequence && !self.due {
            self.delay_in_force = self.requested.delay;
        }
    }

    /// Frame `sequence` was lost: the latest request is repeated, unless a later frame carries it
    /// (draft-14, section 4).
    pub(crate) fn on_lost(&mut self, sequence: u64) {
        self.due |= sequence + 1 == self.next_sequence;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER_MIN: Duration = Duration::from_millis(1);

    fn with_extension() -> AckFrequency {
        let mut frequency = AckFrequency::new();
        frequency.set_peer(Duration::from_millis(25), Some(PEER_MIN));
        frequency
    }

    fn request(frame: &Frame<'_>) -> (u64, u64, u64) {
        match *frame {
            Frame::AckFrequency { sequence, ack_eliciting_threshold, requested_max_ack_delay, .. } => {
                (sequence, ack_eliciting_threshold, requested_max_ack_delay)
            }
            _ => panic!("{frame:?}"),
        }
    }

    #[test]
    fn a_peer_without_the_extension_gets_no_request() {
        let mut frequency = AckFrequency::new();
        frequency.set_peer(Duration::from_millis(40), None);
        frequency.tune(100_000, Duration::from_millis(1));
        assert!(frequency.pop().is_none());
        assert_eq!(frequency.max_ack_delay(), Duration::from_millis(40));
    }

    #[test]
    fn the_requested_threshold_changes_only_by_a_factor_of_two_or_more() {
        let mut frequency = with_extension();
        frequency.tune(20, Duration::from_millis(100));
        assert!(!frequency.is_due(), "a small window needs every acknowledgement");
        frequency.tune(64, Duration::from_millis(40));
        assert_eq!(frequency.pop().map(|(frame, _)| request(&frame)), Some((0, 4, 10_000)));
        frequency.tune(100, Duration::from_millis(40));
        assert!(!frequency.is_due(), "6 is not far from 4");
        frequency.tune(1 << 20, Duration::from_micros(100));
        assert_eq!(frequency.pop().map(|(frame, _)| request(&frame)), Some((1, THRESHOLD_MAX, 1000)));
        frequency.tune(10, Duration::from_micros(100));
        assert_eq!(frequency.pop().map(|(frame, _)| request(&frame)), Some((2, 1, 1000)));
    }

    #[test]
    fn a_peer_with_a_zero_delay_gets_one_request() {
        let mut frequency = AckFrequency::new();
        frequency.set_peer(Duration::ZERO, Some(Duration::ZERO));
        frequency.tune(1600, Duration::from_millis(8));
        assert!(frequency.pop().is_some());
        frequency.tune(1600, Duration::from_millis(8));
        assert!(frequency.pop().is_none());
    }

    #[test]
    fn a_shorter_delay_applies_when_acknowledged_and_a_longer_one_at_once() {
        let mut frequency = with_extension();
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
    fn only_the_latest_frame_is_retransmitted() {
        let mut frequency = with_extension();
        frequency.tune(1600, Duration::from_millis(8));
        let _first = frequency.pop();
        frequency.tune(160, Duration::from_millis(8));
        let _second = frequency.pop();
        frequency.on_lost(0);
        assert!(!frequency.is_due());
        frequency.on_lost(1);
        assert_eq!(frequency.pop().map(|(frame, _)| request(&frame)), Some((2, 10, 2000)));
    }
}

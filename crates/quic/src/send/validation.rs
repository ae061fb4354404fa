//! Path validation (RFC 9000, section 8.2): challenges, responses, and when to repeat a challenge.
//!
//! A new path is challenged until it responds, and so is a silent one: first at short intervals,
//! then at least once a second while the connection lives, so that a link that returns is detected
//! within a second. After a minute a server leaves most of this to the client.

use units::{Duration, Instant, Rng};
use wire::quic::Side;
use wire::quic::frame::Frame;

use super::draft::Draft;
use crate::plan::Plan;
use crate::queue::Queue;

/// Challenges whose response still counts: a response may arrive late, and each challenge has data
/// of its own.
const OUTSTANDING_MAX: usize = 8;

/// Packets that may leave between two challenges of ours although lost data fill the path's window:
/// enough for a peer that validates the path, and few enough for the log.
const BEYOND_WINDOW_MAX: u8 = 8;

/// Challenges sent on an active path for the peer's sake: see [`Validation::on_active`].
const CHALLENGES_FOR_PEER_MAX: u8 = 8;

/// Responses waiting to be sent, at most; beyond it the oldest are dropped. A path whose socket is
/// full for minutes is challenged every second, and the peer accepts responses only to its latest
/// challenges.
const RESPONSES_MAX: usize = 64;

/// The interval between the first challenges on a path whose round trip is not known.
pub(crate) const FIRST_INTERVAL: Duration = Duration::from_millis(250);

/// Unanswered challenges, about one a second, after which a server reduces the rate: the address
/// may belong to another host by now (RFC 9000, section 8.2.4). The client continues, and a packet
/// from it restores the server's rate.
const UNANSWERED_MAX: u8 = 60;
const SERVER_INTERVAL_MAX: Duration = Duration::from_secs(60);

/// The longest interval between two challenges.
pub(crate) const INTERVAL_MAX: Duration = Duration::from_secs(1);

/// Length of PATH_CHALLENGE and PATH_RESPONSE, at most: a type of at most two bytes, and eight bytes of
/// data.
pub(crate) const PROBING_FRAME_LEN_MAX: usize = 10;

/// A challenge that we sent.
#[derive(Debug, Clone, Copy)]
struct Challenge {
    data: [u8; 8],
    /// It was sent in a datagram of the minimum size, so its response shows that the path carries
    /// that size.
    is_expanded: bool,
}

/// The challenges of one path, in both directions.
#[derive(Debug, Default)]
pub(crate) struct Validation {
    /// A PATH_CHALLENGE is due.
    is_due: bool,
    outstanding: Queue<Challenge>,
    /// When to repeat the challenge, and the interval that ends then.
    next_at: Option<Instant>,
    interval: Duration,
    /// Responses to the peer's challenges, which must leave on this path (section 8.2.2).
    responses: Queue<[u8; 8]>,
    /// Packets sent beyond the window since our last challenge became due.
    beyond_window: u8,
    /// A response was sent and is not acknowledged.
    is_response_unacked: bool,
    /// Challenges still to be sent although the path works.
    challenges_for_peer: u8,
    /// Consecutive challenges without a response.
    unanswered: u8,
}

impl Validation {
    /// Sends a challenge now, again after `interval`, and then at growing intervals.
    pub(crate) fn start(&mut self, now: Instant, interval: Duration) {
        (self.is_due, self.beyond_window, self.challenges_for_peer, self.unanswered) = (true, 0, 0, 0);
        self.interval = interval.min(INTERVAL_MAX);
        self.next_at = Some(now + self.interval);
    }

    /// The response to a challenge in a small datagram validated the address: the
    /// anti-amplification limit allowed no larger one. That does not show which datagram size the
    /// path carries, so it is challenged again in full datagrams (RFC 9000, section 8.2.3).
    /// Responses to the small ones no longer count.
    pub(crate) fn start_expanded(&mut self, now: Instant) {
        let mut expanded = Queue::new();
        expanded.extend(self.outstanding.iter().filter(|outstanding| outstanding.is_expanded).copied());
        self.outstanding = expanded;
        self.start(now, FIRST_INTERVAL);
    }

    /// The path works: no more challenges.
    pub(crate) fn stop(&mut self) {
        self.is_due = false;
        self.next_at = None;
        self.outstanding = Queue::new();
    }

    /// The path leaves the address that was challenged. Returns the challenges that were sent there: a
    /// response to one of them validates that address and no other (RFC 9000, section 8.2.3).
    pub(crate) fn leave_address(&mut self) -> Self {
        Self { outstanding: std::mem::take(&mut self.outstanding), ..Self::default() }
    }

    /// The path is at an address to which challenges were sent before: their responses count.
    pub(crate) fn adopt_challenges(&mut self, earlier: Self) {
        self.outstanding = earlier.outstanding;
    }

    /// The path works as far as this side knows. The peer may still wait for our response. If that
    /// is lost, its anti-amplification limit may keep it from sending another challenge, so our
    /// challenges continue for a while, unless the peer has acknowledged the response.
    pub(crate) fn on_active(&mut self) {
        if !self.is_response_unacked {
            return self.stop();
        }
        (self.is_due, self.challenges_for_peer) = (false, CHALLENGES_FOR_PEER_MAX);
    }

    /// The peer acknowledged a response of ours, so an active path needs no more challenges for the
    /// peer's sake. Challenges to an address that this side validates (RFC 9000, section 8.2)
    /// continue until it responds.
    pub(crate) fn on_responses_acked(&mut self, is_active: bool) {
        self.is_response_unacked = false;
        if is_active && !self.awaits_response() {
            self.stop();
        }
    }

    /// Whether the challenges validate the path for this side, not for the peer.
    pub(crate) fn awaits_response(&self) -> bool {
        self.next_at.is_some() && self.challenges_for_peer == 0
    }

    /// Makes one more challenge due.
    pub(crate) fn request_challenge(&mut self) {
        self.is_due = true;
    }

    /// Consecutive challenges without a response.
    pub(crate) fn unanswered(&self) -> u8 {
        self.unanswered
    }

    /// When [`on_timeout`](Self::on_timeout) must run.
    pub(crate) fn timeout(&self) -> Option<Instant> {
        self.next_at
    }

    /// A packet of the peer arrived, so challenges may succeed again.
    fn on_peer_alive(&mut self, now: Instant) {
        if self.unanswered >= UNANSWERED_MAX && self.next_at.is_some() {
            self.start(now, FIRST_INTERVAL);
        }
    }

    /// Makes a challenge due if it is time; returns true if so.
    pub(crate) fn on_timeout(&mut self, now: Instant, side: Side) -> bool {
        if self.next_at.is_none_or(|at| at > now) {
            return false;
        }
        (self.is_due, self.beyond_window) = (true, 0);
        self.unanswered = self.unanswered.saturating_add(1);
        let is_reduced = side == Side::Server && self.unanswered >= UNANSWERED_MAX;
        self.interval = (self.interval * 2).min(if is_reduced { SERVER_INTERVAL_MAX } else { INTERVAL_MAX });
        self.next_at = Some(now + self.interval);
        if self.challenges_for_peer > 0 {
            self.challenges_for_peer -= 1;
            self.next_at = self.next_at.filter(|_| self.challenges_for_peer > 0);
        }
        true
    }

    /// True if a frame is due.
    pub(crate) fn has_due(&self) -> bool {
        self.is_due || !self.responses.is_empty()
    }

    /// Whether the frames that are due may leave although the window is full.
    pub(crate) fn may_exceed_window(&self) -> bool {
        self.is_due || self.beyond_window < BEYOND_WINDOW_MAX
    }

    /// A packet was sent although the window was full.
    pub(crate) fn on_window_exceeded(&mut self) {
        self.beyond_window = self.beyond_window.saturating_add(1);
    }

    /// The challenge that is due, with unpredictable data that is new each time (section 8.2.1).
    /// `is_expanded`: its datagram has the minimum size that every path must carry.
    fn take_challenge(&mut self, rng: &mut Rng, is_expanded: bool) -> Option<[u8; 8]> {
        if !std::mem::take(&mut self.is_due) {
            return None;
        }
        let data = rng.next_u64().to_be_bytes();
        if self.outstanding.len() == OUTSTANDING_MAX {
            self.outstanding.pop_front();
        }
        self.outstanding.push_back(Challenge { data, is_expanded });
        Some(data)
    }

    /// Whether `data` responds to a challenge of ours.
    pub(crate) fn is_response(&self, data: &[u8; 8]) -> bool {
        self.outstanding.iter().any(|outstanding| outstanding.data == *data)
    }

    /// Whether `data` responds to a challenge that was sent in a full datagram.
    pub(crate) fn proves_size(&self, data: &[u8; 8]) -> bool {
        self.outstanding.iter().any(|outstanding| outstanding.data == *data && outstanding.is_expanded)
    }

    /// The peer sent a challenge from the path's address.
    pub(crate) fn on_challenge(&mut self, now: Instant, data: [u8; 8]) {
        self.queue_response(data);
        self.on_peer_alive(now);
    }

    /// The peer sent a challenge.
    pub(crate) fn queue_response(&mut self, data: [u8; 8]) {
        if self.responses.len() == RESPONSES_MAX {
            self.responses.pop_front();
        }
        self.responses.push_back(data);
    }

    /// Adds the responses to the peer's challenges; false if there are none or none fits.
    pub(crate) fn fill_responses(&mut self, draft: &mut Draft, plan: &mut Plan) -> bool {
        let mut responded = false;
        while let Some(data) = self.peek_response()
            && draft.put(plan, &Frame::PathResponse(data))
        {
            self.pop_response();
            responded = true;
        }
        responded
    }

    /// Adds the challenge that is due; false if there is none or it does not fit. `is_expanded` as for
    /// [`take_challenge`](Self::take_challenge).
    pub(crate) fn fill_challenge(
        &mut self,
        rng: &mut Rng,
        is_expanded: bool,
        draft: &mut Draft,
        plan: &mut Plan,
    ) -> bool {
        if draft.bytes_left >= PROBING_FRAME_LEN_MAX
            && let Some(data) = self.take_challenge(rng, is_expanded)
        {
            let fits = draft.put(plan, &Frame::PathChallenge(data));
            debug_assert!(fits, "the length was checked");
            return true;
        }
        false
    }

    /// The oldest response waiting.
    fn peek_response(&self) -> Option<[u8; 8]> {
        self.responses.front().copied()
    }

    /// The response is sent. It is not retransmitted if lost: the peer sends another challenge (RFC
    /// 9000, section 13.3).
    fn pop_response(&mut self) {
        self.responses.pop_front();
        self.is_response_unacked = true;
    }

    /// Releases unused memory.
    pub(crate) fn shrink(&mut self) {
        self.outstanding.shrink();
        self.responses.shrink();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_path_is_challenged_at_growing_intervals_up_to_a_second() {
        let (mut validation, mut rng) = (Validation::default(), Rng::from_seed(1));
        validation.start(Instant::ZERO, Duration::from_millis(300));
        let (mut outstanding, mut now) = (Vec::new(), Instant::ZERO);
        while outstanding.len() < 6 {
            if validation.take_challenge(&mut rng, true).is_some() {
                outstanding.push(now.as_nanos() / 1_000_000);
            }
            now = validation.timeout().expect("challenges continue");
            assert!(validation.on_timeout(now, Side::Client) && !validation.on_timeout(now, Side::Client));
        }
        assert_eq!(outstanding, [0, 300, 900, 1900, 2900, 3900]);
    }

    #[test]
    fn only_responses_to_the_latest_challenges_count() {
        let (mut validation, mut rng) = (Validation::default(), Rng::from_seed(2));
        let mut outstanding = Vec::new();
        for _ in 0..=OUTSTANDING_MAX {
            validation.start(Instant::ZERO, INTERVAL_MAX);
            outstanding.extend(validation.take_challenge(&mut rng, true));
        }
        assert!(
            !validation.is_response(&outstanding[0])
                && outstanding[1..].iter().all(|data| validation.is_response(data))
        );
        validation.stop();
        assert!(!validation.is_response(&outstanding[1]) && !validation.has_due() && validation.timeout().is_none());
    }
}

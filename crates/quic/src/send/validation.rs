//! Asking whether a path works: challenges, their answers, and when to ask again (RFC 9000, section 8.2).
//!
//! A path that was opened is asked until it answers, and so is one that has fallen silent: first soon, then at least once a
//! second for as long as the connection lives, so that a link that comes back is found within a second. A server leaves most of
//! that to the client after a minute.

use units::{Duration, Instant, Rng};
use wire::quic::Side;

use crate::queue::Queue;

/// Challenges whose answer still counts: an answer may come late, and each challenge has bytes of its own.
const ASKED_MAX: usize = 8;

/// Packets between two questions of ours that may leave although the window of the path is full of what was lost there: as
/// many as a peer that asks in earnest needs, and few enough to be remembered.
const OVER_WINDOW_MAX: u8 = 8;

/// Questions to a path that works, for the peer's sake: see [`Validation::on_active`].
const COURTESIES_MAX: u8 = 8;

/// Answers that wait to be sent, at most. Beyond it the oldest are dropped: a path whose socket has no room for minutes is
/// asked every second, and the peer expects answers to its last questions only.
const ANSWERS_MAX: usize = 64;

/// The first questions to a path of which nothing is known follow each other after this long.
pub(crate) const FIRST_ASK_AGAIN: Duration = Duration::from_millis(250);

/// Questions without an answer, about one a second, after which a server asks rarely: the address may be somebody else's by
/// now (RFC 9000, section 8.2.4). The client asks on, and hearing it brings the server's own questions back.
const IN_VAIN_MAX: u8 = 60;
const ASK_RARELY_MAX: Duration = Duration::from_secs(60);

/// How often a path is asked at least.
pub(crate) const ASK_AGAIN_MAX: Duration = Duration::from_secs(1);

/// One path's challenges, both ways.
#[derive(Debug, Default)]
pub(crate) struct Validation {
    /// A challenge is to be sent.
    is_due: bool,
    asked: Queue<[u8; 8]>,
    /// When to ask again, and how long to wait then.
    again_at: Option<Instant>,
    interval: Duration,
    /// Answers to the peer's challenges, which must leave on this path (section 8.2.2).
    answers: Queue<[u8; 8]>,
    /// Packets that left beyond the window since our last question became due.
    over_window: u8,
    /// An answer is on its way, and the peer has not said that it came.
    is_unheard: bool,
    /// Questions still to be asked although the path works.
    courtesies: u8,
    /// Questions in a row that had no answer.
    in_vain: u8,
}

impl Validation {
    /// Asks now, again after `interval`, and then less and less often.
    pub(crate) fn start(&mut self, now: Instant, interval: Duration) {
        (self.is_due, self.over_window, self.courtesies, self.in_vain) = (true, 0, 0, 0);
        self.interval = interval.min(ASK_AGAIN_MAX);
        self.again_at = Some(now + self.interval);
    }

    /// The path works: no more questions.
    pub(crate) fn stop(&mut self) {
        self.is_due = false;
        self.again_at = None;
        self.asked = Queue::new();
    }

    /// The path works, as far as we are concerned. The peer may still wait for our answer, and if that is lost it may have
    /// nothing left to ask again with, being held to three times what it gets: so we go on for a while, unless it has said that
    /// the answer came.
    pub(crate) fn on_active(&mut self) {
        if !self.is_unheard {
            return self.stop();
        }
        (self.is_due, self.courtesies) = (false, COURTESIES_MAX);
    }

    /// The peer has an answer of ours.
    pub(crate) fn on_answers_acked(&mut self, is_active: bool) {
        self.is_unheard = false;
        if is_active {
            self.stop();
        }
    }

    /// Asks once more.
    pub(crate) fn ask(&mut self) {
        self.is_due = true;
    }

    /// Questions in a row that had no answer.
    pub(crate) fn in_vain(&self) -> u8 {
        self.in_vain
    }

    /// When [`on_timeout`](Self::on_timeout) has something to do.
    pub(crate) fn timeout(&self) -> Option<Instant> {
        self.again_at
    }

    /// The peer is there, so that questions may be worth the while.
    pub(crate) fn on_peer_heard(&mut self, now: Instant) {
        if self.in_vain >= IN_VAIN_MAX && self.again_at.is_some() {
            self.start(now, FIRST_ASK_AGAIN);
        }
    }

    /// Asks again if it is time; true if so.
    pub(crate) fn on_timeout(&mut self, now: Instant, side: Side) -> bool {
        if self.again_at.is_none_or(|at| at > now) {
            return false;
        }
        (self.is_due, self.over_window) = (true, 0);
        self.in_vain = self.in_vain.saturating_add(1);
        let is_tired = side == Side::Server && self.in_vain >= IN_VAIN_MAX;
        self.interval = (self.interval * 2).min(if is_tired { ASK_RARELY_MAX } else { ASK_AGAIN_MAX });
        self.again_at = Some(now + self.interval);
        if self.courtesies > 0 {
            self.courtesies -= 1;
            self.again_at = self.again_at.filter(|_| self.courtesies > 0);
        }
        true
    }

    /// True if a frame waits.
    pub(crate) fn has_due(&self) -> bool {
        self.is_due || !self.answers.is_empty()
    }

    /// Whether what is due may leave although the window is full.
    pub(crate) fn may_exceed_window(&self) -> bool {
        self.is_due || self.over_window < OVER_WINDOW_MAX
    }

    /// A packet left although the window was full.
    pub(crate) fn on_window_exceeded(&mut self) {
        self.over_window = self.over_window.saturating_add(1);
    }

    /// The challenge that is due: bytes nobody can guess, new ones each time (section 8.2.1).
    pub(crate) fn take_challenge(&mut self, rng: &mut Rng) -> Option<[u8; 8]> {
        if !std::mem::take(&mut self.is_due) {
            return None;
        }
        let data = rng.next_u64().to_be_bytes();
        if self.asked.len() == ASKED_MAX {
            self.asked.pop_front();
        }
        self.asked.push_back(data);
        Some(data)
    }

    /// Whether `data` answers a challenge of ours.
    pub(crate) fn is_answer(&self, data: &[u8; 8]) -> bool {
        self.asked.iter().any(|asked| asked == data)
    }

    /// The peer asks.
    pub(crate) fn queue_answer(&mut self, data: [u8; 8]) {
        if self.answers.len() == ANSWERS_MAX {
            self.answers.pop_front();
        }
        self.answers.push_back(data);
    }

    /// The answer that waits longest.
    pub(crate) fn peek_answer(&self) -> Option<[u8; 8]> {
        self.answers.front().copied()
    }

    /// It is on its way. Not repeated if lost: the peer asks again (RFC 9000, section 13.3).
    pub(crate) fn pop_answer(&mut self) {
        self.answers.pop_front();
        self.is_unheard = true;
    }

    /// Frees room that is not used.
    pub(crate) fn shrink(&mut self) {
        self.asked.shrink();
        self.answers.shrink();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_path_is_asked_less_and_less_often_but_once_a_second_at_least() {
        let (mut validation, mut rng) = (Validation::default(), Rng::from_seed(1));
        validation.start(Instant::ZERO, Duration::from_millis(300));
        let (mut asked, mut now) = (Vec::new(), Instant::ZERO);
        while asked.len() < 6 {
            if validation.take_challenge(&mut rng).is_some() {
                asked.push(now.as_nanos() / 1_000_000);
            }
            now = validation.timeout().expect("it goes on");
            assert!(validation.on_timeout(now, Side::Client) && !validation.on_timeout(now, Side::Client));
        }
        assert_eq!(asked, [0, 300, 900, 1900, 2900, 3900]);
    }

    #[test]
    fn only_answers_to_the_last_challenges_count() {
        let (mut validation, mut rng) = (Validation::default(), Rng::from_seed(2));
        let mut asked = Vec::new();
        for _ in 0..=ASKED_MAX {
            validation.start(Instant::ZERO, ASK_AGAIN_MAX);
            asked.extend(validation.take_challenge(&mut rng));
        }
        assert!(!validation.is_answer(&asked[0]) && asked[1..].iter().all(|data| validation.is_answer(data)));
        validation.stop();
        assert!(!validation.is_answer(&asked[1]) && !validation.has_due() && validation.timeout().is_none());
    }
}

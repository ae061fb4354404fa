//! One station: its queues, and what the standard's timers tell it.

use units::{Duration, Instant};

use super::{Class, Frame};
use crate::hardware::lane::{Lane, Queued};

/// The timers, as instants instead of counters.
#[derive(Clone, Copy)]
pub(super) struct Timers {
    /// When the token rotation timer (TRT) runs out for the first time since it was last set: then the late count is one.
    expires: Instant,
    last_token: Instant,
    pub(super) last_rotation: Duration,
}

impl Timers {
    pub(super) fn new(ttrt: Duration) -> Self {
        Self { expires: Instant::ZERO + ttrt, last_token: Instant::ZERO, last_rotation: Duration::ZERO }
    }

    /// The token comes at `at`. Returns how long asynchronous frames may begin (the token holding timer, THT): zero if it is late.
    pub(super) fn token(&mut self, at: Instant, ttrt: Duration) -> Duration {
        self.last_rotation = at.saturating_since(self.last_token);
        self.last_token = at;
        if at < self.expires {
            // Early: what is left of the rotation timer may be used, and the timer begins anew.
            let holding = self.expires.saturating_since(at);
            self.expires = at + ttrt;
            return holding;
        }
        // Late: the late count goes back to zero. The timer, which began anew when it ran out, runs on.
        self.expires += ttrt;
        assert!(at < self.expires, "no rotation takes twice the target");
        Duration::ZERO
    }

    /// As if the token had gone round for `span` with nobody using it, `rotation` at a time.
    pub(super) fn idle(&mut self, span: Duration, rotation: Duration) {
        self.expires += span;
        self.last_token += span;
        self.last_rotation = rotation;
    }
}

pub(super) struct Station<T> {
    pub(super) timers: Timers,
    /// How long it may send synchronous frames at each token.
    pub(super) allowance: Duration,
    /// By [`Class`].
    pub(super) lanes: [Lane<Frame<T>>; 2],
}

impl<T> Station<T> {
    pub(super) fn new(ttrt: Duration, allowance: Duration, queue_frames: usize) -> Self {
        Self { timers: Timers::new(ttrt), allowance, lanes: [Lane::new(queue_frames), Lane::new(queue_frames)] }
    }

    pub(super) fn has_frames(&self) -> bool {
        self.lanes.iter().any(|lane| !lane.is_empty())
    }

    pub(super) const fn lane(&mut self, class: Class) -> &mut Lane<Frame<T>> {
        &mut self.lanes[class as usize]
    }
}

impl<T> Queued for Frame<T> {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn enter(&mut self, now: Instant) {
        (self.queued, self.began) = (now, now);
    }
}

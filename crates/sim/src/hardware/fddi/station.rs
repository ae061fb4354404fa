//! A station: its queues and the standard's timers.

use units::{Duration, Instant};

use super::{Class, FddiFrame};
use crate::hardware::frame_queue::{FrameQueue, Queued};

/// The standard's timers, as instants instead of counters.
#[derive(Clone, Copy)]
pub(super) struct Timers {
    /// First expiry of the token rotation timer (TRT) since it was last set; the late count is then
    /// one.
    expires: Instant,
    last_token: Instant,
    pub(super) last_rotation: Duration,
}

impl Timers {
    pub(super) fn new(ttrt: Duration) -> Self {
        Self { expires: Instant::ZERO + ttrt, last_token: Instant::ZERO, last_rotation: Duration::ZERO }
    }

    /// Processes the arrival of the token at `at`. Returns how long asynchronous frames may start
    /// (the token holding timer, THT): zero if the token is late.
    pub(super) fn token(&mut self, at: Instant, ttrt: Duration) -> Duration {
        self.last_rotation = at.saturating_since(self.last_token);
        self.last_token = at;
        if at < self.expires {
            // Early: the remaining rotation time may be used, and the timer restarts.
            let holding = self.expires.saturating_since(at);
            self.expires = at + ttrt;
            return holding;
        }
        // Late: the late count is cleared. The timer restarted when it expired and keeps running.
        self.expires += ttrt;
        assert!(at < self.expires, "a rotation took more than twice the target");
        Duration::ZERO
    }

    /// Advances by `span` of idle rotations of `rotation` each.
    pub(super) fn idle(&mut self, span: Duration, rotation: Duration) {
        self.expires += span;
        self.last_token += span;
        self.last_rotation = rotation;
    }
}

pub(super) struct Station<T> {
    pub(super) timers: Timers,
    /// Time for which it may send synchronous frames at each token.
    pub(super) allowance: Duration,
    /// Queues by [`Class`].
    pub(super) queues: [FrameQueue<FddiFrame<T>>; 2],
}

impl<T> Station<T> {
    pub(super) fn new(ttrt: Duration, allowance: Duration, queue_frames: usize) -> Self {
        Self {
            timers: Timers::new(ttrt),
            allowance,
            queues: [FrameQueue::new(queue_frames), FrameQueue::new(queue_frames)],
        }
    }

    pub(super) fn has_frames(&self) -> bool {
        self.queues.iter().any(|queue| !queue.is_empty())
    }

    pub(super) const fn queue(&mut self, class: Class) -> &mut FrameQueue<FddiFrame<T>> {
        &mut self.queues[class as usize]
    }
}

impl<T> Queued for FddiFrame<T> {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn enter(&mut self, now: Instant) {
        (self.queued, self.began) = (now, now);
    }
}

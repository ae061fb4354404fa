//! One station: its queues, and what the standard's timers tell it.

use std::collections::VecDeque;

use units::{Duration, Instant};

use super::{Class, Frame};
use crate::Sim;
use crate::kernel::TaskId;

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

/// The frames of one class in one station.
pub(super) struct Lane<T> {
    pub(super) queue: VecDeque<Frame<T>>,
    /// Frames of processes that wait for room: at most one a process.
    outside: VecDeque<Frame<T>>,
    /// Processes that wait until their frame has left, by its number.
    waiters: VecDeque<(u64, TaskId)>,
    accepted: u64,
    sent: u64,
}

pub(super) struct Station<T> {
    pub(super) timers: Timers,
    /// How long it may send synchronous frames at each token.
    pub(super) allowance: Duration,
    /// By [`Class`].
    pub(super) lanes: [Lane<T>; 2],
}

impl<T> Station<T> {
    pub(super) fn new(ttrt: Duration, allowance: Duration) -> Self {
        Self { timers: Timers::new(ttrt), allowance, lanes: [Lane::new(), Lane::new()] }
    }

    pub(super) fn has_frames(&self) -> bool {
        self.lanes.iter().any(|lane| !lane.queue.is_empty())
    }

    pub(super) const fn lane(&mut self, class: Class) -> &mut Lane<T> {
        &mut self.lanes[class as usize]
    }
}

impl<T> Lane<T> {
    const fn new() -> Self {
        Self { queue: VecDeque::new(), outside: VecDeque::new(), waiters: VecDeque::new(), accepted: 0, sent: 0 }
    }

    pub(super) fn has_room(&self, queue_frames: usize) -> bool {
        self.outside.is_empty() && self.queue.len() < queue_frames
    }

    /// Takes `frame` in, or lets it wait outside for room. Returns its number, and whether it is in.
    pub(super) fn push(&mut self, frame: Frame<T>, queue_frames: usize) -> (u64, bool) {
        let number = self.accepted;
        self.accepted += 1;
        let has_room = self.has_room(queue_frames);
        if has_room {
            self.queue.push_back(frame);
        } else {
            self.outside.push_back(frame);
        }
        (number, has_room)
    }

    /// The first frame has left. Returns it, and whether one from outside has come in at `now` in its place.
    pub(super) fn complete(&mut self, now: Instant, sim: &Sim) -> (Frame<T>, bool) {
        let frame = self.queue.pop_front().expect("the frame that was sent");
        self.sent += 1;
        while self.waiters.front().is_some_and(|&(number, _)| number < self.sent) {
            let (_, task) = self.waiters.pop_front().expect("just seen");
            sim.wake(task);
        }
        let Some(mut next) = self.outside.pop_front() else { return (frame, false) };
        next.queued = now;
        self.queue.push_back(next);
        (frame, true)
    }

    /// True if frame `number` has left; otherwise `task` is woken when it has.
    pub(super) fn has_left(&mut self, number: u64, task: TaskId) -> bool {
        if number < self.sent {
            return true;
        }
        if !self.waiters.iter().any(|&(waiting, _)| waiting == number) {
            self.waiters.push_back((number, task));
        }
        false
    }

    /// Frames held and those that wait outside.
    pub(super) fn len(&self) -> usize {
        self.queue.len() + self.outside.len()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.queue.iter().chain(&self.outside).map(|frame| frame.bytes).sum()
    }
}

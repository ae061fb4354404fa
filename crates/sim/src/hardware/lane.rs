//! A bounded queue of frames, and the processes that wait until theirs has left.

use std::collections::VecDeque;

use units::Instant;

use crate::Sim;
use crate::kernel::TaskId;

/// What can stand in a lane.
pub(super) trait Queued {
    fn bytes(&self) -> u64;

    /// It comes into the queue at `now`.
    fn enter(&mut self, now: Instant);
}

/// Frames of one class or circuit, first come, first served.
pub(super) struct Lane<F> {
    /// The first one may be on its way out.
    queue: VecDeque<F>,
    frames_max: usize,
    /// Frames of processes that wait for room: at most one a process.
    outside: VecDeque<F>,
    /// Processes that wait until their frame has left, by its number.
    waiters: VecDeque<(u64, TaskId)>,
    accepted: u64,
    sent: u64,
}

impl<F: Queued> Lane<F> {
    pub(super) const fn new(frames_max: usize) -> Self {
        Self {
            queue: VecDeque::new(),
            frames_max,
            outside: VecDeque::new(),
            waiters: VecDeque::new(),
            accepted: 0,
            sent: 0,
        }
    }

    pub(super) fn has_room(&self) -> bool {
        self.outside.is_empty() && self.queue.len() < self.frames_max
    }

    /// Takes `frame` in at `now`, or lets it wait outside for room. Returns its number, and whether it is in.
    pub(super) fn push(&mut self, now: Instant, mut frame: F) -> (u64, bool) {
        let number = self.accepted;
        self.accepted += 1;
        let has_room = self.has_room();
        if has_room {
            frame.enter(now);
            self.queue.push_back(frame);
        } else {
            self.outside.push_back(frame);
        }
        (number, has_room)
    }

    pub(super) fn front(&self) -> Option<&F> {
        self.queue.front()
    }

    pub(super) fn front_mut(&mut self) -> Option<&mut F> {
        self.queue.front_mut()
    }

    /// True if no frame is in the queue; then none is outside.
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// The first frame has left. Returns it, and whether one from outside has come in at `now` in its place.
    pub(super) fn complete(&mut self, now: Instant, sim: &Sim) -> (F, bool) {
        let frame = self.queue.pop_front().expect("the frame that was sent");
        self.sent += 1;
        while let Some(&(_, task)) = self.waiters.front().filter(|&&(number, _)| number < self.sent) {
            self.waiters.pop_front();
            sim.wake(task);
        }
        let Some(mut next) = self.outside.pop_front() else { return (frame, false) };
        next.enter(now);
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
        self.queue.iter().chain(&self.outside).map(Queued::bytes).sum()
    }
}

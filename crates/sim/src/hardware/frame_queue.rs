//! A bounded queue of frames and the processes that wait for their transmission.

use std::collections::VecDeque;

use units::Instant;

use crate::kernel::Sim;
use crate::kernel::TaskId;

/// A frame that can be queued.
pub(super) trait Queued {
    fn bytes(&self) -> u64;

    /// Called when it enters the queue at `now`.
    fn enter(&mut self, now: Instant);
}

/// Frames of one class or circuit, first in, first out.
pub(super) struct FrameQueue<F> {
    /// The first frame may be in transmission.
    queue: VecDeque<F>,
    frames_max: usize,
    /// Frames of processes that wait for space: at most one per process.
    blocked: VecDeque<F>,
    /// Processes that wait for the transmission of their frame, by its number.
    waiters: VecDeque<(u64, TaskId)>,
    accepted: u64,
    sent: u64,
}

impl<F: Queued> FrameQueue<F> {
    pub(super) const fn new(frames_max: usize) -> Self {
        Self {
            queue: VecDeque::new(),
            frames_max,
            blocked: VecDeque::new(),
            waiters: VecDeque::new(),
            accepted: 0,
            sent: 0,
        }
    }

    pub(super) fn has_space(&self) -> bool {
        self.blocked.is_empty() && self.queue.len() < self.frames_max
    }

    /// Accepts `frame` at `now`, or holds it until there is space. Returns its number and whether
    /// it was accepted.
    pub(super) fn push(&mut self, now: Instant, mut frame: F) -> (u64, bool) {
        let number = self.accepted;
        self.accepted += 1;
        let has_space = self.has_space();
        if has_space {
            frame.enter(now);
            self.queue.push_back(frame);
        } else {
            self.blocked.push_back(frame);
        }
        (number, has_space)
    }

    pub(super) fn front(&self) -> Option<&F> {
        self.queue.front()
    }

    pub(super) fn front_mut(&mut self) -> Option<&mut F> {
        self.queue.front_mut()
    }

    /// Returns true if no frame is queued; then none waits for space either.
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Removes the first frame, which has been sent. Returns it, and whether a frame that waited
    /// for space was accepted at `now`.
    pub(super) fn complete(&mut self, now: Instant, sim: &Sim) -> (F, bool) {
        let frame = self.queue.pop_front().expect("a frame is in transmission");
        self.sent += 1;
        while let Some(&(_, task)) = self.waiters.front().filter(|&&(number, _)| number < self.sent) {
            self.waiters.pop_front();
            sim.wake(task);
        }
        let Some(mut next) = self.blocked.pop_front() else { return (frame, false) };
        next.enter(now);
        self.queue.push_back(next);
        (frame, true)
    }

    /// Returns true if frame `number` has been sent; otherwise `task` is woken when it has.
    pub(super) fn has_left(&mut self, number: u64, task: TaskId) -> bool {
        if number < self.sent {
            return true;
        }
        if !self.waiters.iter().any(|&(waiting, _)| waiting == number) {
            self.waiters.push_back((number, task));
        }
        false
    }

    /// Returns the number of frames, including those that wait for space.
    pub(super) fn len(&self) -> usize {
        self.queue.len() + self.blocked.len()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.queue.iter().chain(&self.blocked).map(Queued::bytes).sum()
    }
}

//! What has left a component and is on the way to its receiver.

use std::collections::VecDeque;

use units::Instant;

/// In the order of arrival; equal times in the order of departure. It holds what is between the ends of a fibre, no more than what
/// can be sent in its delay.
pub(super) struct Flight<F> {
    frames: VecDeque<(Instant, F)>,
}

impl<F> Flight<F> {
    pub(super) const fn new() -> Self {
        Self { frames: VecDeque::new() }
    }

    pub(super) fn push(&mut self, arrives: Instant, frame: F) {
        // Nearly always the last one.
        let index = self.frames.partition_point(|&(other, _)| other <= arrives);
        self.frames.insert(index, (arrives, frame));
    }

    pub(super) fn len(&self) -> usize {
        self.frames.len()
    }

    pub(super) fn next_arrival(&self) -> Option<Instant> {
        self.frames.front().map(|&(arrives, _)| arrives)
    }

    pub(super) fn pop(&mut self, now: Instant) -> Option<F> {
        if self.next_arrival()? > now {
            return None;
        }
        self.frames.pop_front().map(|(_, frame)| frame)
    }
}

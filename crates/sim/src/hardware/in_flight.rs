//! Frames that have been sent and have not arrived.

use std::collections::VecDeque;

use units::Instant;

/// Frames ordered by arrival; equal times in the order of sending. Its size is limited by the
/// number that can be sent in one propagation delay.
pub(super) struct InFlight<F> {
    frames: VecDeque<(Instant, F)>,
}

impl<F> InFlight<F> {
    pub(super) const fn new() -> Self {
        Self { frames: VecDeque::new() }
    }

    pub(super) fn push(&mut self, arrives: Instant, frame: F) {
        // Usually at the back.
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

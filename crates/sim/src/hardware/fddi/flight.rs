//! Frames that have left their station and are on the way to another.

use std::collections::VecDeque;

use units::Instant;

use super::Frame;

/// In the order of arrival; equal times in the order of departure. As many frames as the fibre holds: a few.
pub(super) struct Flight<T> {
    frames: VecDeque<(Instant, Frame<T>)>,
}

impl<T> Flight<T> {
    pub(super) const fn new() -> Self {
        Self { frames: VecDeque::new() }
    }

    pub(super) fn push(&mut self, arrives: Instant, frame: Frame<T>) {
        let index = self.frames.partition_point(|&(other, _)| other <= arrives);
        self.frames.insert(index, (arrives, frame));
    }

    pub(super) fn len(&self) -> usize {
        self.frames.len()
    }

    pub(super) fn next_arrival(&self) -> Option<Instant> {
        self.frames.front().map(|&(arrives, _)| arrives)
    }

    pub(super) fn pop(&mut self, now: Instant) -> Option<Frame<T>> {
        if self.next_arrival()? > now {
            return None;
        }
        self.frames.pop_front().map(|(_, frame)| frame)
    }
}

//! Which thing of a part is to be sent next, and when.

use std::collections::VecDeque;

use units::{Duration, Instant, Rng};

use crate::model::{Part, Work};
use crate::recorder::{DueTimes, Recorder};

/// The things of one part that are yet to be sent.
#[derive(Debug)]
pub(super) struct Items {
    part: usize,
    start: Duration,
    /// When the part begins; `None` before the connection does.
    start_at: Option<Instant>,
    has_started: bool,
    next: u64,
    count: Option<u64>,
    flow: Flow,
}

#[derive(Debug)]
enum Flow {
    /// As many at a time, the next when one is written.
    Bulk { parallel: usize, writing: usize },
    /// Each at its time; those due and not sent yet. Bounded by [`COUNT_MAX`](crate::model::COUNT_MAX).
    Timed { times: DueTimes, due: VecDeque<u64>, noted: u64 },
}

impl Items {
    pub(super) fn new(index: usize, part: &Part, rng: &Rng) -> Self {
        let rng = rng.split(&format!("arrivals {}", part.name));
        let flow = match DueTimes::new(&part.work, rng) {
            Some(times) => Flow::Timed { times, due: VecDeque::new(), noted: 0 },
            None => {
                let parallel = if let Work::File { parallel, .. } = part.work { parallel } else { 1 };
                Flow::Bulk { parallel, writing: 0 }
            }
        };
        Self {
            part: index,
            start: part.start,
            start_at: None,
            has_started: false,
            next: 0,
            count: part.work.item_count(),
            flow,
        }
    }

    pub(super) fn on_connected(&mut self, now: Instant) {
        self.start_at.get_or_insert(now + self.start);
    }

    /// When [`Items::pump`] has something to do.
    pub(super) fn timeout(&self) -> Option<Instant> {
        let start_at = self.start_at?;
        if !self.has_started {
            return Some(start_at);
        }
        match &self.flow {
            Flow::Bulk { .. } => None,
            Flow::Timed { times, .. } => times.peek().map(|due| start_at + due),
        }
    }

    /// Notes what is due by now.
    pub(super) fn pump(&mut self, now: Instant, recorder: &mut Recorder) {
        let Some(start_at) = self.start_at.filter(|start_at| *start_at <= now) else { return };
        if !self.has_started {
            self.has_started = true;
            recorder.on_started(now, self.part);
        }
        let Flow::Timed { times, due, noted } = &mut self.flow else { return };
        while let Some(at) = times.peek().map(|since| start_at + since).filter(|at| *at <= now) {
            recorder.on_due(self.part, *noted, at);
            due.push_back(*noted);
            *noted += 1;
            times.advance();
        }
    }

    /// Whether another thing may be sent now.
    pub(super) fn has_next(&self) -> bool {
        self.has_started
            && match &self.flow {
                Flow::Bulk { parallel, writing } => {
                    writing < parallel && self.count.is_none_or(|count| self.next < count)
                }
                Flow::Timed { due, .. } => !due.is_empty(),
            }
    }

    /// The number of the thing that is sent now. [`Items::has_next`] must have said so.
    pub(super) fn take_next(&mut self) -> u64 {
        match &mut self.flow {
            Flow::Bulk { writing, .. } => {
                *writing += 1;
                self.next += 1;
                self.next - 1
            }
            Flow::Timed { due, .. } => due.pop_front().expect("asked only when there is a next one"),
        }
    }

    /// One of them is whole in the connection.
    pub(super) fn on_written(&mut self) {
        if let Flow::Bulk { writing, .. } = &mut self.flow {
            *writing -= 1;
        }
    }
}

//! Schedules the items of a part.

use std::collections::VecDeque;

use units::{Duration, Instant, Rng};

use crate::measurements::{DueTimes, Measurements};
use crate::model::{Part, Work};

/// The items of one part that are not sent yet.
#[derive(Debug)]
pub(super) struct Items {
    part: usize,
    start: Duration,
    /// When the part begins; `None` before the handshake completes.
    start_at: Option<Instant>,
    has_started: bool,
    next: u64,
    count: Option<u64>,
    flow: Flow,
}

#[derive(Debug)]
enum Flow {
    /// Writes `parallel` items at a time; the next begins when one is written.
    Bulk { parallel: usize, writing: usize },
    /// Each item at its time. `due` holds items that are due and not sent, bounded by
    /// [`COUNT_MAX`](crate::model::COUNT_MAX).
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

    /// Returns when to call [`Items::pump`] next.
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

    /// Records the items that are due by `now`.
    pub(super) fn pump(&mut self, now: Instant, measurements: &mut Measurements) {
        let Some(start_at) = self.start_at.filter(|start_at| *start_at <= now) else { return };
        if !self.has_started {
            self.has_started = true;
            measurements.on_started(now, self.part);
        }
        let Flow::Timed { times, due, noted } = &mut self.flow else { return };
        while let Some(at) = times.peek().map(|since| start_at + since).filter(|at| *at <= now) {
            measurements.on_due(self.part, *noted, at);
            due.push_back(*noted);
            *noted += 1;
            times.advance();
        }
    }

    /// Returns whether another item may be sent now.
    pub(super) fn has_next(&self) -> bool {
        self.has_started
            && match &self.flow {
                Flow::Bulk { parallel, writing } => {
                    writing < parallel && self.count.is_none_or(|count| self.next < count)
                }
                Flow::Timed { due, .. } => !due.is_empty(),
            }
    }

    /// Takes the number of the next item. [`Items::has_next`] must have returned true.
    pub(super) fn take_next(&mut self) -> u64 {
        match &mut self.flow {
            Flow::Bulk { writing, .. } => {
                *writing += 1;
                self.next += 1;
                self.next - 1
            }
            Flow::Timed { due, .. } => due.pop_front().expect("`has_next` returned true"),
        }
    }

    /// Records that the connection has taken all bytes of one item.
    pub(super) fn on_written(&mut self) {
        if let Flow::Bulk { writing, .. } = &mut self.flow {
            *writing -= 1;
        }
    }
}

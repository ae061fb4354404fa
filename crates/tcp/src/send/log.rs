//! The log of unacknowledged data: runs of positions that were sent together.
//!
//! ```text
//!   una                                                        nxt
//!    │ outstanding │ sacked │ lost │ outstanding │ outstanding │
//! ```
//!
//! A run is one plan, up to 64 KiB: forty segments cost as much as one. A run is split where an
//! acknowledgement or a loss ends within it. Adjacent runs held by the peer are merged, so the
//! number of runs is about that of the plans in flight plus the holes in them.

use std::collections::VecDeque;
use std::ops::Range;

use recovery::SendStamp;
use units::Instant;

/// State of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunState {
    /// In flight.
    Outstanding,
    /// Held by the peer beyond a hole (RFC 2018).
    Sacked,
    /// Not in flight: to be retransmitted.
    Lost,
}

/// Positions that were sent together.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Run {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) state: RunState,
    /// Time of its last transmission.
    pub(crate) sent_at: Instant,
    /// Number of the plan that last sent it: later plans have higher numbers.
    pub(crate) transmission: u64,
    /// Whether it was sent more than once, so that an acknowledgement may belong to any
    /// transmission.
    pub(crate) is_retransmitted: bool,
    /// Whether the application or the peer's window limited sending.
    pub(crate) is_limited: bool,
    pub(crate) stamp: SendStamp,
}

impl Run {
    pub(crate) const fn len(&self) -> u64 {
        self.end - self.start
    }
}

/// Verdict on the loss of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Judgement {
    Kept,
    Lost,
    /// Neither this run nor any later one is lost.
    NoneFollows,
}

/// Limit on plans whose emission may still be reported. A driver that reports none must not make
/// the log grow.
const PLANNED_MAX: usize = 256;

/// The log of one connection.
#[derive(Debug, Default)]
pub(crate) struct SentLog {
    /// Runs in order of positions, without gaps.
    runs: VecDeque<Run>,
    /// Lower bound on the start of the first lost run.
    first_lost_from: u64,
    /// Numbers and positions of the latest plans, in order.
    planned: VecDeque<(u64, Range<u64>)>,
    /// Bytes in outstanding runs.
    in_flight: u64,
    /// Bytes in lost runs.
    lost: u64,
    /// Bytes in sacked runs.
    sacked: u64,
}

impl SentLog {
    pub(crate) const fn in_flight(&self) -> u64 {
        self.in_flight
    }

    pub(crate) const fn lost(&self) -> u64 {
        self.lost
    }

    pub(crate) const fn sacked(&self) -> u64 {
        self.sacked
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    pub(crate) fn runs(&self) -> impl DoubleEndedIterator<Item = &Run> + ExactSizeIterator {
        self.runs.iter()
    }

    /// Appends new data.
    pub(crate) fn push(&mut self, run: Run) {
        debug_assert!(self.runs.back().is_none_or(|last| last.end == run.start) && run.start < run.end);
        self.in_flight += run.len();
        self.note_planned(run.transmission, run.start..run.end);
        self.runs.push_back(run);
    }

    fn note_planned(&mut self, transmission: u64, range: Range<u64>) {
        if self.planned.len() == PLANNED_MAX {
            self.planned.pop_front();
        }
        self.planned.push_back((transmission, range));
    }

    /// Removes everything before `position`, acknowledged by the peer, and calls `each` with every
    /// run or part of one.
    pub(crate) fn acknowledge(&mut self, position: u64, mut each: impl FnMut(&Run)) {
        while let Some(first) = self.runs.front_mut().filter(|first| first.start < position) {
            let part = Run { end: first.end.min(position), ..*first };
            if part.end < first.end {
                first.start = part.end;
            } else {
                self.runs.pop_front();
            }
            self.discount(part.state, part.len());
            each(&part);
        }
        if self.runs.is_empty() {
            // Idle connections should not hold memory for data once in flight.
            (self.runs, self.planned) = (VecDeque::new(), VecDeque::new());
        }
    }

    /// Marks `range` as held by the peer, and calls `each` with every run, or part of one, that was
    /// not marked before. Only whole segments of `segment` bytes count, as they were sent:
    /// scattered bytes reported by a peer must not cut the runs into a million pieces. `data_end`
    /// is the end of the data: a FIN after them is held along with the last segment, and peers do
    /// not report it.
    pub(crate) fn sack(&mut self, range: Range<u64>, segment: u64, data_end: u64, mut each: impl FnMut(&Run)) {
        let mut index = self.index_of(range.start);
        let first = index;
        while index < self.runs.len() && self.runs[index].start < range.end {
            let run = &self.runs[index];
            let part = whole_segments(run, &range, segment, data_end);
            if run.state == RunState::Sacked || part.is_empty() {
                index += 1;
                continue;
            }
            if part.start == self.runs[index].start && index > 0 && self.runs[index - 1].state == RunState::Sacked {
                index = self.extend_sacked(index, part.end, &mut each);
                continue;
            }
            index = self.isolate(index, &part);
            let run = self.runs[index];
            self.set_state(index, RunState::Sacked);
            each(&run);
            index += 1;
        }
        self.merge_sacked(first.saturating_sub(1), index);
    }

    /// Extends the sacked run before `index` over the beginning of the run at `index`, up to `end`.
    /// Blocks grow at their ends, so this saves nearly all insertions. Returns the index of the
    /// remaining part.
    fn extend_sacked(&mut self, index: usize, end: u64, each: &mut impl FnMut(&Run)) -> usize {
        let part = Run { end, ..self.runs[index] };
        self.discount(part.state, part.len());
        self.sacked += part.len();
        self.runs[index - 1].end = end;
        if end == self.runs[index].end {
            self.runs.remove(index);
        } else {
            self.runs[index].start = end;
        }
        each(&part);
        index
    }

    /// Marks the outstanding runs that `judge` finds lost, and calls `each` with each of them.
    pub(crate) fn lose(&mut self, mut judge: impl FnMut(&Run) -> Judgement, mut each: impl FnMut(&Run)) {
        for index in 0..self.runs.len() {
            let run = self.runs[index];
            if run.state != RunState::Outstanding {
                continue;
            }
            match judge(&run) {
                Judgement::Kept => {}
                Judgement::Lost => {
                    self.set_state(index, RunState::Lost);
                    each(&run);
                }
                Judgement::NoneFollows => break,
            }
        }
    }

    /// Marks the part of an outstanding run that lies in `range` as lost.
    pub(crate) fn lose_range(&mut self, range: Range<u64>, mut each: impl FnMut(&Run)) {
        let mut index = self.index_of(range.start);
        while index < self.runs.len() && self.runs[index].start < range.end {
            if self.runs[index].state == RunState::Outstanding {
                index = self.isolate(index, &range);
                let run = self.runs[index];
                self.set_state(index, RunState::Lost);
                each(&run);
            }
            index += 1;
        }
    }

    /// Discards all selective acknowledgements: the peer may have dropped the data (RFC 2018,
    /// section 8).
    pub(crate) fn forget_sacks(&mut self) {
        for index in 0..self.runs.len() {
            if self.runs[index].state == RunState::Sacked {
                self.set_state(index, RunState::Lost);
            }
        }
    }

    /// Returns the first lost run.
    pub(crate) fn first_lost(&mut self) -> Option<&Run> {
        if self.lost == 0 {
            return None;
        }
        let from = self.index_of(self.first_lost_from);
        let run = self.runs.range(from..).find(|run| run.state == RunState::Lost)?;
        self.first_lost_from = run.start;
        Some(run)
    }

    /// Marks `range`, the beginning of a lost run, as resent.
    pub(crate) fn resend(&mut self, range: &Range<u64>, update: impl FnOnce(&mut Run)) {
        let index = self.index_of(range.start);
        let index = self.isolate(index, range);
        self.set_state(index, RunState::Outstanding);
        let run = &mut self.runs[index];
        run.is_retransmitted = true;
        update(run);
        let transmission = run.transmission;
        self.note_planned(transmission, range.clone());
    }

    /// Records that the plan `transmission` leaves at `now`, later than it was made.
    pub(crate) fn set_sent_at(&mut self, transmission: u64, now: Instant) {
        let Ok(at) = self.planned.binary_search_by_key(&transmission, |(number, _)| *number) else { return };
        // Plans leave in the order of their creation.
        let Some((_, range)) = self.planned.drain(..=at).next_back() else { return };
        let from = self.index_of(range.start);
        for run in self.runs.range_mut(from..).take_while(|run| run.start < range.end) {
            if run.transmission == transmission {
                run.sent_at = now;
            }
        }
    }

    /// Records that the plan `transmission` will not leave: its data are lost.
    pub(crate) fn lose_plan(&mut self, transmission: u64) {
        let range = match self.planned.binary_search_by_key(&transmission, |(number, _)| *number) {
            Ok(at) => self.planned.remove(at).map_or(0..u64::MAX, |(_, range)| range),
            // The plan is so old that its positions are no longer kept.
            Err(_) => 0..u64::MAX,
        };
        let mut index = self.index_of(range.start);
        while self.runs.get(index).is_some_and(|run| run.start < range.end) {
            let run = &self.runs[index];
            if run.transmission == transmission && run.state == RunState::Outstanding {
                self.set_state(index, RunState::Lost);
            }
            index += 1;
        }
    }

    /// Splits the run at `index` so that its part in `range` becomes one run, and returns the index
    /// of that run.
    fn isolate(&mut self, mut index: usize, range: &Range<u64>) -> usize {
        let run = self.runs[index];
        if run.start < range.start {
            self.runs[index].end = range.start;
            index += 1;
            self.runs.insert(index, Run { start: range.start, ..run });
        }
        if range.end < run.end {
            self.runs[index].end = range.end;
            self.runs.insert(index + 1, Run { start: range.end, ..run });
        }
        index
    }

    /// Returns the index of the run that contains `position`, or of the first run if `position`
    /// lies before it.
    fn index_of(&self, position: u64) -> usize {
        self.runs.partition_point(|run| run.end <= position)
    }

    /// Merges adjacent sacked runs from index `from` to `to`.
    fn merge_sacked(&mut self, from: usize, to: usize) {
        let mut index = (to + 1).min(self.runs.len());
        while index > from + 1 {
            index -= 1;
            let (before, after) = (self.runs[index - 1], self.runs[index]);
            if before.state == RunState::Sacked && after.state == RunState::Sacked {
                self.runs[index - 1].end = after.end;
                self.runs.remove(index);
            }
        }
    }

    fn set_state(&mut self, index: usize, state: RunState) {
        let (before, len) = (self.runs[index].state, self.runs[index].len());
        self.runs[index].state = state;
        if state == RunState::Lost {
            self.first_lost_from = self.first_lost_from.min(self.runs[index].start);
        }
        self.discount(before, len);
        *self.sum_of(state) += len;
    }

    fn discount(&mut self, state: RunState, len: u64) {
        *self.sum_of(state) -= len;
    }

    fn sum_of(&mut self, state: RunState) -> &mut u64 {
        match state {
            RunState::Outstanding => &mut self.in_flight,
            RunState::Sacked => &mut self.sacked,
            RunState::Lost => &mut self.lost,
        }
    }
}

/// Returns the segments of `run` that lie entirely in `range`; the last one may be shorter.
fn whole_segments(run: &Run, range: &Range<u64>, segment: u64, data_end: u64) -> Range<u64> {
    let before = range.start.saturating_sub(run.start).next_multiple_of(segment);
    let is_whole = range.end >= run.end.min(data_end);
    let end = if is_whole { run.end } else { run.start + (range.end - run.start) / segment * segment };
    run.start + before..end
}

#[cfg(test)]
mod tests;

//! Sets of `u64` as sorted, disjoint, non-adjacent half-open ranges.
//!
//! Used for packet numbers to acknowledge, stream bytes acknowledged out of order, and stream bytes
//! to send again. Ranges are in a deque: the common changes (grow the last range, shrink or drop
//! the first) cost no move, and a lookup is a binary search.

use std::collections::VecDeque;
use std::ops::Range;

#[cfg(test)]
mod tests;

/// A set of numbers as ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeSet {
    /// Ascending; `start < end`; each `end` is below the next `start`.
    ranges: VecDeque<Range<u64>>,
}

impl RangeSet {
    /// The empty set.
    pub const fn new() -> Self {
        Self { ranges: VecDeque::new() }
    }

    /// Becomes equal to `other`; keeps its memory.
    pub(crate) fn copy_from(&mut self, other: &Self) {
        self.ranges.clone_from(&other.ranges);
    }

    /// True if nothing is in the set.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The number of separate ranges, which determines the memory.
    pub fn range_count(&self) -> usize {
        self.ranges.len()
    }

    /// The ranges, ascending.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Range<u64>> + Clone + '_ {
        self.ranges.iter().cloned()
    }

    /// The lowest range.
    pub fn first(&self) -> Option<Range<u64>> {
        self.ranges.front().cloned()
    }

    /// The highest number.
    pub fn max(&self) -> Option<u64> {
        self.ranges.back().map(|range| range.end - 1)
    }

    /// True if `value` is in the set.
    pub fn contains(&self, value: u64) -> bool {
        let index = self.ranges.partition_point(|range| range.end <= value);
        self.ranges.get(index).is_some_and(|range| range.start <= value)
    }

    /// Adds one number; false if it was there already.
    pub fn insert_one(&mut self, value: u64) -> bool {
        // The common case, in order: the last range grows by one.
        if let Some(last) = self.ranges.back_mut()
            && last.end == value
        {
            last.end += 1;
            return true;
        }
        if self.contains(value) {
            return false;
        }
        self.insert(value..value + 1);
        true
    }

    /// Adds every number in `new`.
    pub fn insert(&mut self, new: Range<u64>) {
        if new.is_empty() {
            return;
        }
        // The ranges that overlap `new` or are adjacent to it become one.
        let from = self.ranges.partition_point(|range| range.end < new.start);
        let to = self.ranges.partition_point(|range| range.start <= new.end);
        if from == to {
            self.ranges.insert(from, new);
            return;
        }
        let start = new.start.min(self.ranges[from].start);
        let end = new.end.max(self.ranges[to - 1].end);
        self.ranges[from] = start..end;
        self.ranges.drain(from + 1..to);
    }

    /// Removes every number in `old`.
    pub fn remove(&mut self, old: Range<u64>) {
        if old.is_empty() {
            return;
        }
        let from = self.ranges.partition_point(|range| range.end <= old.start);
        let to = self.ranges.partition_point(|range| range.start < old.end);
        if from >= to {
            return;
        }
        let head = self.ranges[from].start..old.start;
        let tail = old.end..self.ranges[to - 1].end;
        match (head.is_empty(), tail.is_empty()) {
            (true, true) => drop(self.ranges.drain(from..to)),
            (false, true) => {
                self.ranges[from] = head;
                self.ranges.drain(from + 1..to);
            }
            (true, false) => {
                self.ranges[from] = tail;
                self.ranges.drain(from + 1..to);
            }
            (false, false) if to - from == 1 => {
                self.ranges[from] = head;
                self.ranges.insert(from + 1, tail);
            }
            (false, false) => {
                self.ranges[from] = head;
                self.ranges[from + 1] = tail;
                self.ranges.drain(from + 2..to);
            }
        }
    }

    /// Removes every number below `floor`.
    pub fn remove_below(&mut self, floor: u64) {
        while let Some(first) = self.ranges.front_mut() {
            if first.end <= floor {
                self.ranges.pop_front();
            } else {
                first.start = first.start.max(floor);
                return;
            }
        }
    }

    /// Removes the lowest numbers, at most `len`, and returns them as one range.
    pub fn pop_front(&mut self, len: u64) -> Option<Range<u64>> {
        let first = self.ranges.front_mut()?;
        let end = first.end.min(first.start.saturating_add(len));
        let taken = first.start..end;
        if end == first.end {
            self.ranges.pop_front();
        } else {
            first.start = end;
        }
        Some(taken)
    }

    /// Removes and returns the lowest range.
    pub fn pop_first_range(&mut self) -> Option<Range<u64>> {
        self.ranges.pop_front()
    }

    /// The parts of `range` that are not in the set, ascending.
    pub fn gaps_in(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let from = self.ranges.partition_point(|held| held.end <= range.start);
        let mut at = range.start;
        let mut held = self.ranges.range(from..);
        std::iter::from_fn(move || {
            while at < range.end {
                match held.next() {
                    Some(next) if next.start < range.end => {
                        let gap = at..next.start;
                        at = next.end;
                        if !gap.is_empty() {
                            return Some(gap);
                        }
                    }
                    _ => {
                        let gap = at..range.end;
                        at = range.end;
                        return Some(gap);
                    }
                }
            }
            None
        })
    }
}

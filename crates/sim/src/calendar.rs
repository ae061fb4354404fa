//! The event queue, in the total order of (time, insertion).
//!
//! A four-ary heap in one vector. It is half as deep as a binary heap, and four siblings share one
//! or two cache lines. Scheduling does not allocate once the vector has grown. Events cannot be
//! cancelled; a model ignores events that it no longer needs.

use units::Instant;

/// Children per heap node.
const ARITY: usize = 4;

/// Pending events of type `E`.
#[derive(Clone, Debug, Default)]
pub struct Calendar<E> {
    heap: Vec<Entry<E>>,
    /// Breaks ties: of two events at one time, the one scheduled first comes first.
    next_sequence: u64,
}

#[derive(Clone, Copy, Debug)]
struct Entry<E> {
    at_ns: u64,
    sequence: u64,
    event: E,
}

impl<E> Entry<E> {
    const fn is_before(&self, other: &Self) -> bool {
        self.at_ns < other.at_ns || self.at_ns == other.at_ns && self.sequence < other.sequence
    }
}

impl<E: Copy> Calendar<E> {
    /// Creates an empty calendar.
    pub const fn new() -> Self {
        Self { heap: Vec::new(), next_sequence: 0 }
    }

    /// Schedules `event` at `at`, after all events already scheduled for the same time.
    pub fn schedule(&mut self, at: Instant, event: E) {
        let entry = Entry { at_ns: at.as_nanos(), sequence: self.next_sequence, event };
        self.next_sequence += 1;
        let mut index = self.heap.len();
        self.heap.push(entry);
        while index > 0 {
            let parent = (index - 1) / ARITY;
            if !entry.is_before(&self.heap[parent]) {
                break;
            }
            self.heap[index] = self.heap[parent];
            index = parent;
        }
        self.heap[index] = entry;
    }

    /// Returns the time of the next event.
    pub fn next_at(&self) -> Option<Instant> {
        self.heap.first().map(|entry| Instant::from_nanos(entry.at_ns))
    }

    /// Removes and returns the next event.
    pub fn pop(&mut self) -> Option<(Instant, E)> {
        let last = self.heap.pop()?;
        let Some(&first) = self.heap.first() else {
            return Some((Instant::from_nanos(last.at_ns), last.event));
        };
        self.sink(last);
        Some((Instant::from_nanos(first.at_ns), first.event))
    }

    /// Removes and returns the next event if its time is at or before `until`.
    pub fn pop_until(&mut self, until: Instant) -> Option<(Instant, E)> {
        if self.heap.first()?.at_ns > until.as_nanos() {
            return None;
        }
        self.pop()
    }

    /// Returns the number of pending events.
    pub const fn len(&self) -> usize {
        self.heap.len()
    }

    /// Returns true if no event is pending.
    pub const fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    /// Returns the number of events ever scheduled.
    pub const fn scheduled(&self) -> u64 {
        self.next_sequence
    }

    /// Moves `entry` down from the empty root to its position.
    fn sink(&mut self, entry: Entry<E>) {
        let len = self.heap.len();
        let mut index = 0;
        loop {
            let first_child = index * ARITY + 1;
            if first_child >= len {
                break;
            }
            let mut least = first_child;
            for child in first_child + 1..(first_child + ARITY).min(len) {
                if self.heap[child].is_before(&self.heap[least]) {
                    least = child;
                }
            }
            if !self.heap[least].is_before(&entry) {
                break;
            }
            self.heap[index] = self.heap[least];
            index = least;
        }
        self.heap[index] = entry;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn events_at_one_time_occur_in_scheduling_order() {
        let mut calendar = Calendar::new();
        for event in 0..100_u32 {
            calendar.schedule(Instant::from_nanos(7), event);
        }
        calendar.schedule(Instant::from_nanos(6), 1000);
        assert_eq!(calendar.pop().unwrap().1, 1000);
        for event in 0..100 {
            assert_eq!(calendar.pop(), Some((Instant::from_nanos(7), event)));
        }
        assert!(calendar.pop().is_none());
    }

    proptest! {
        /// Compares with a simple oracle: a sorted map of (time, number).
        #[test]
        fn any_sequence_of_operations_matches_a_sorted_map(
            operations in prop::collection::vec((any::<bool>(), 0_u64..50), 0..400),
        ) {
            let mut calendar = Calendar::new();
            let mut oracle = BTreeMap::new();
            for (number, (take, at)) in (0_u64..).zip(operations) {
                if take {
                    let expected = oracle.pop_first().map(|((at, _), event)| (Instant::from_nanos(at), event));
                    prop_assert_eq!(calendar.pop(), expected);
                } else {
                    calendar.schedule(Instant::from_nanos(at), number);
                    oracle.insert((at, number), number);
                }
                prop_assert_eq!(calendar.len(), oracle.len());
                prop_assert_eq!(calendar.next_at(), oracle.keys().next().map(|&(at, _)| Instant::from_nanos(at)));
            }
        }
    }
}

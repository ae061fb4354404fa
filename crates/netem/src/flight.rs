//! Packets in propagation, ordered by arrival time, then by insertion.
//!
//! Nearly all packets arrive in the order in which they left, so these are kept in a FIFO queue.
//! Only packets that arrive before the last one in the queue go through a heap, which costs more.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use units::Instant;

#[derive(Clone, Debug)]
struct Entry<P> {
    at: Instant,
    /// Insertion number.
    number: u64,
    packet: P,
}

#[derive(Clone, Debug)]
pub(crate) struct Flight<P> {
    /// Sorted by `(at, number)`.
    in_order: VecDeque<Entry<P>>,
    /// The other packets.
    out_of_order: BinaryHeap<Reverse<Entry<P>>>,
    number_next: u64,
}

impl<P> Flight<P> {
    pub(crate) const fn new() -> Self {
        Self { in_order: VecDeque::new(), out_of_order: BinaryHeap::new(), number_next: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.in_order.len() + self.out_of_order.len()
    }

    /// Inserts a packet that is delayed beyond its order. It goes into the heap: at the end of the
    /// queue it would force every following packet into the heap.
    pub(crate) fn push_late(&mut self, at: Instant, packet: P) {
        let entry = self.entry(at, packet);
        self.out_of_order.push(Reverse(entry));
    }

    /// Inserts a packet that arrives at `at`.
    pub(crate) fn push(&mut self, at: Instant, packet: P) {
        let entry = self.entry(at, packet);
        if self.in_order.back().is_some_and(|last| last.at > at) {
            self.out_of_order.push(Reverse(entry));
        } else {
            self.in_order.push_back(entry);
        }
    }

    /// Returns the next arrival time.
    #[inline]
    pub(crate) fn next_arrival(&self) -> Option<Instant> {
        let queued = self.in_order.front().map(|entry| entry.at);
        if self.out_of_order.is_empty() {
            return queued;
        }
        let heaped = self.out_of_order.peek().map(|Reverse(entry)| entry.at);
        queued.into_iter().chain(heaped).min()
    }

    /// Returns the next packet, if it has arrived by `now`.
    #[inline]
    pub(crate) fn pop(&mut self, now: Instant) -> Option<P> {
        if self.out_of_order.is_empty() {
            // This is the usual case; the function is called for each link at every event.
            self.in_order.front().filter(|entry| entry.at <= now)?;
            return self.in_order.pop_front().map(|entry| entry.packet);
        }
        self.pop_either(now)
    }

    fn pop_either(&mut self, now: Instant) -> Option<P> {
        let queued = self.in_order.front().map(|entry| (entry.at, entry.number));
        let heaped = self.out_of_order.peek().map(|Reverse(entry)| (entry.at, entry.number));
        let from_heap = match (queued, heaped) {
            (Some(queued), Some(heaped)) => heaped < queued,
            (None, heaped) => heaped.is_some(),
            (Some(_), None) => false,
        };
        let (at, _) = if from_heap { heaped } else { queued }?;
        if at > now {
            return None;
        }
        if from_heap {
            self.out_of_order.pop().map(|Reverse(entry)| entry.packet)
        } else {
            self.in_order.pop_front().map(|entry| entry.packet)
        }
    }

    fn entry(&mut self, at: Instant, packet: P) -> Entry<P> {
        let number = self.number_next;
        self.number_next += 1;
        Entry { at, number, packet }
    }
}

impl<P> Ord for Entry<P> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

impl<P> PartialOrd for Entry<P> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

// The insertion number is unique within a flight, so equal keys mean the same entry.
impl<P> PartialEq for Entry<P> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<P> Eq for Entry<P> {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Compared with a stable sort by arrival time.
        #[test]
        fn packets_are_ordered_by_arrival_then_insertion(arrivals in prop::collection::vec((0..20_u64, any::<bool>()), 0..200)) {
            let mut flight = Flight::new();
            for (index, &(at, late)) in arrivals.iter().enumerate() {
                let at = Instant::from_nanos(at);
                if late { flight.push_late(at, index) } else { flight.push(at, index) }
            }
            let mut expected: Vec<usize> = (0..arrivals.len()).collect();
            expected.sort_by_key(|&index| arrivals[index].0);
            for index in expected {
                let at = Instant::from_nanos(arrivals[index].0);
                prop_assert_eq!(flight.next_arrival(), Some(at));
                if at > Instant::ZERO {
                    prop_assert_eq!(flight.pop(Instant::from_nanos(at.as_nanos() - 1)), None);
                }
                prop_assert_eq!(flight.pop(at), Some(index));
            }
            prop_assert_eq!(flight.len(), 0);
            prop_assert_eq!(flight.next_arrival(), None);
        }
    }
}

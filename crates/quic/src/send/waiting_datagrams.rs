//! The queue of DATAGRAM frames that take any path.
//!
//! ```text
//!  front [first][first] | [......][......][......] back
//!        those that pass others, in their order     the others
//! ```

use std::collections::VecDeque;

use bytes::Bytes;
use units::Instant;

use super::datagram_window::{DatagramWindow, WINDOW_FIRST};

/// Datagrams that wait. A connection that sends none holds a pointer.
#[derive(Debug, Default)]
pub(super) struct WaitingDatagrams(Option<Box<Waiting>>);

#[derive(Debug, Default)]
struct Waiting {
    queue: VecDeque<Bytes>,
    /// So many at the front pass the others.
    first: usize,
    /// Of all.
    bytes: u64,
    /// Bytes that were taken since the last plan.
    taken: u64,
    window: DatagramWindow,
}

impl WaitingDatagrams {
    pub(super) const fn new() -> Self {
        Self(None)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.front().is_none()
    }

    pub(super) fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |waiting| waiting.queue.len())
    }

    pub(super) fn bytes(&self) -> u64 {
        self.0.as_ref().map_or(0, |waiting| waiting.bytes)
    }

    /// Those that pass the others.
    pub(super) fn first_count(&self) -> usize {
        self.0.as_ref().map_or(0, |waiting| waiting.first)
    }

    /// The bytes that should wait.
    pub(super) fn window(&self) -> u64 {
        self.0.as_ref().map_or(WINDOW_FIRST, |waiting| waiting.window.bytes())
    }

    pub(super) fn push(&mut self, data: Bytes) {
        let waiting = self.0.get_or_insert_default();
        waiting.bytes += data.len() as u64;
        waiting.queue.push_back(data);
    }

    /// Adds one that passes all but those added so before.
    pub(super) fn push_first(&mut self, data: Bytes) {
        let waiting = self.0.get_or_insert_default();
        waiting.bytes += data.len() as u64;
        waiting.queue.insert(waiting.first, data);
        waiting.first += 1;
    }

    pub(super) fn front(&self) -> Option<&Bytes> {
        self.0.as_ref()?.queue.front()
    }

    pub(super) fn pop_front(&mut self) -> Option<Bytes> {
        let waiting = self.0.as_mut()?;
        let data = waiting.queue.pop_front()?;
        waiting.first = waiting.first.saturating_sub(1);
        waiting.bytes -= data.len() as u64;
        waiting.taken = waiting.taken.saturating_add(data.len() as u64);
        Some(data)
    }

    /// The one in front, if `wanted` says so.
    pub(super) fn pop_front_if(&mut self, wanted: impl FnOnce(&Bytes) -> bool) -> Option<Bytes> {
        if wanted(self.front()?) { self.pop_front() } else { None }
    }

    /// A plan was made, with those taken since the last one.
    pub(super) fn on_planned(&mut self, now: Instant) {
        let Some(waiting) = &mut self.0 else { return };
        let taken = std::mem::take(&mut waiting.taken);
        if taken > 0 || waiting.bytes > 0 {
            waiting.window.on_planned(now, taken, waiting.bytes);
        }
    }

    /// Frees unused memory.
    pub(super) fn shrink(&mut self) {
        match &mut self.0 {
            Some(waiting) if !waiting.queue.is_empty() => waiting.queue.shrink_to_fit(),
            empty => *empty = None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_pass_others_keep_their_order_and_bytes_are_counted() {
        let mut waiting = WaitingDatagrams::new();
        let data = |number: u8| Bytes::from(vec![number; usize::from(number)]);
        (1..=3).for_each(|number| waiting.push(data(number)));
        (4..=5).for_each(|number| waiting.push_first(data(number)));
        assert_eq!((waiting.len(), waiting.bytes(), waiting.first_count()), (5, 15, 2));
        assert_eq!(waiting.pop_front(), Some(data(4)));
        waiting.push_first(data(6));
        assert_eq!(waiting.pop_front_if(|front| front.len() != 5), None);
        let rest: Vec<_> = std::iter::from_fn(|| waiting.pop_front()).map(|data| data.len()).collect();
        assert_eq!(rest, [5, 6, 1, 2, 3]);
        assert_eq!((waiting.len(), waiting.bytes(), waiting.first_count()), (0, 0, 0));
        waiting.shrink();
        assert!(waiting.0.is_none() && waiting.is_empty());
    }
}

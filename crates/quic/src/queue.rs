//! A queue that is empty most of the time, and then takes the memory of a pointer.
//!
//! A connection has a dozen queues for rare things (limits reached, resets, answers to challenges),
//! and a server has thousands of connections.

use std::collections::VecDeque;

/// First in, first out.
#[derive(Debug)]
#[expect(clippy::box_collection, reason = "the box is the point: an empty deque takes four words, this takes one")]
pub(crate) struct Queue<T>(Option<Box<VecDeque<T>>>);

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Queue<T> {
    /// An empty queue without memory.
    pub(crate) const fn new() -> Self {
        Self(None)
    }

    /// The number of values.
    pub(crate) fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |queue| queue.len())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn push_back(&mut self, value: T) {
        self.0.get_or_insert_default().push_back(value);
    }

    /// Puts back what was taken from the front.
    pub(crate) fn push_front(&mut self, value: T) {
        self.0.get_or_insert_default().push_front(value);
    }

    pub(crate) fn front(&self) -> Option<&T> {
        self.0.as_ref()?.front()
    }

    pub(crate) fn back_mut(&mut self) -> Option<&mut T> {
        self.0.as_mut()?.back_mut()
    }

    pub(crate) fn pop_front(&mut self) -> Option<T> {
        self.0.as_mut()?.pop_front()
    }

    /// Adds several, in their order.
    pub(crate) fn extend(&mut self, values: impl IntoIterator<Item = T>) {
        values.into_iter().for_each(|value| self.push_back(value));
    }

    /// The values, the oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().flat_map(|queue| queue.iter())
    }

    /// Frees unused memory.
    pub(crate) fn shrink(&mut self) {
        match &mut self.0 {
            Some(queue) if !queue.is_empty() => queue.shrink_to_fit(),
            empty => *empty = None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_leave_in_order_and_an_empty_queue_holds_no_memory_once_shrunk() {
        let mut queue = Queue::new();
        assert_eq!((queue.len(), queue.front()), (0, None::<&u8>));
        assert_eq!(queue.pop_front(), None);
        (1..=3).for_each(|value| queue.push_back(value));
        assert_eq!(queue.pop_front(), Some(1));
        assert_eq!((queue.front(), queue.len()), (Some(&2), 2));
        queue.shrink();
        assert_eq!(queue.iter().copied().collect::<Vec<_>>(), [2, 3]);
        assert_eq!([queue.pop_front(), queue.pop_front(), queue.pop_front()], [Some(2), Some(3), None]);
        assert!(queue.is_empty());
        queue.shrink();
        assert!(queue.0.is_none());
    }
}

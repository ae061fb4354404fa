//! Messages on their way out that have no stream yet: the most urgent first, and no urgent one behind a heap of others.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use quic::Class;

use super::connection::{MESSAGE_OVERHEAD, MESSAGES_OUT_BYTES_MAX};

/// A message and what its stream asks for.
pub(crate) struct OutMessage {
    pub(crate) bytes: Bytes,
    pub(crate) class: Class,
}

/// Which messages wait for one another, and for no others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lane {
    /// Nothing but congestion control and the peer holds them back.
    Free,
    /// A rate of their own, their paths or the background may, and for ever.
    Restrained,
}

impl Lane {
    pub(crate) const ALL: [Self; 2] = [Self::Free, Self::Restrained];

    pub(crate) const fn index(self) -> usize {
        self as usize
    }

    fn of(class: &Class) -> Self {
        let is_free = class.rate.is_none() && class.paths.is_all() && !class.background;
        if is_free { Self::Free } else { Self::Restrained }
    }
}

/// A queue for each lane.
#[derive(Default)]
pub(crate) struct MessageQueues {
    lanes: [MessageQueue; 2],
}

impl MessageQueues {
    pub(crate) fn is_empty(&self) -> bool {
        self.lanes.iter().all(MessageQueue::is_empty)
    }

    /// Takes `message` if its lane has room for it.
    pub(crate) fn put(&mut self, message: &mut Option<OutMessage>) {
        if let Some(lane) = message.as_ref().map(|message| Lane::of(&message.class)) {
            self.lanes[lane.index()].put(message);
        }
    }

    /// The priority of the most urgent one of a lane.
    pub(crate) fn priority(&self, lane: Lane) -> Option<i32> {
        self.lanes[lane.index()].priority()
    }

    /// The most urgent one of a lane, the oldest of these.
    pub(crate) fn pop(&mut self, lane: Lane) -> Option<OutMessage> {
        self.lanes[lane.index()].pop()
    }

    /// Time to tell those that wait for room in a lane.
    pub(crate) fn has_worthwhile_room(&self, lane: Lane) -> bool {
        self.lanes[lane.index()].has_worthwhile_room()
    }
}

/// The queue of a lane. Holds [`MESSAGES_OUT_BYTES_MAX`], and as much again for those that are more urgent than the least urgent in it.
#[derive(Default)]
struct MessageQueue {
    by_priority: BTreeMap<Reverse<i32>, VecDeque<OutMessage>>,
    bytes: usize,
}

impl MessageQueue {
    fn is_empty(&self) -> bool {
        self.by_priority.is_empty()
    }

    /// Takes `message` if there is room for it; a queue that is empty has room for any.
    fn put(&mut self, message: &mut Option<OutMessage>) {
        let Some(OutMessage { bytes, class }) = message else { return };
        let least_urgent = self.by_priority.last_key_value().map(|(priority, _)| priority.0);
        let is_urgent = least_urgent.is_some_and(|least| class.priority > least);
        let bytes_max = if is_urgent { 2 * MESSAGES_OUT_BYTES_MAX } else { MESSAGES_OUT_BYTES_MAX };
        let cost = bytes.len() + MESSAGE_OVERHEAD;
        if self.bytes + cost <= bytes_max || self.is_empty() {
            self.bytes += cost;
            let queue = self.by_priority.entry(Reverse(class.priority)).or_default();
            queue.extend(message.take());
        }
    }

    /// The priority of the most urgent one.
    fn priority(&self) -> Option<i32> {
        self.by_priority.first_key_value().map(|(priority, _)| priority.0)
    }

    /// The most urgent one, the oldest of these.
    fn pop(&mut self) -> Option<OutMessage> {
        let mut first = self.by_priority.first_entry()?;
        let message = first.get_mut().pop_front();
        if first.get().is_empty() {
            first.remove();
        }
        self.bytes -= message.as_ref().map_or(0, |message| message.bytes.len() + MESSAGE_OVERHEAD);
        message
    }

    /// Time to tell those that wait for room: half of it is free.
    fn has_worthwhile_room(&self) -> bool {
        self.bytes <= MESSAGES_OUT_BYTES_MAX / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(queue: &mut MessageQueue, priority: i32, len: usize) -> bool {
        let mut message = Some(OutMessage { bytes: vec![0; len].into(), class: Class::of_priority(priority) });
        queue.put(&mut message);
        message.is_none()
    }

    #[test]
    fn urgent_messages_leave_first_and_equal_ones_in_their_order() {
        let mut queue = MessageQueue::default();
        for (priority, len) in [(0, 1), (3, 2), (0, 3), (-1, 4), (3, 5)] {
            assert!(put(&mut queue, priority, len));
        }
        let order: Vec<usize> = std::iter::from_fn(|| queue.pop()).map(|message| message.bytes.len()).collect();
        assert_eq!(order, [2, 5, 1, 3, 4]);
        assert!(queue.is_empty() && queue.has_worthwhile_room());
    }

    #[test]
    fn a_heap_of_messages_leaves_room_for_urgent_ones_but_not_without_end() {
        const LEN: usize = 1 << 16;
        let mut queue = MessageQueue::default();
        let fill =
            |queue: &mut MessageQueue, priority: i32| (0..1000).take_while(|_| put(queue, priority, LEN)).count();
        let ordinary = fill(&mut queue, 0);
        assert!((60..64).contains(&ordinary), "{ordinary}");
        assert_eq!(fill(&mut queue, -1), 0, "less urgent ones wait");
        let urgent = fill(&mut queue, 1);
        assert!((60..=64).contains(&urgent), "{urgent}");
        assert_eq!(fill(&mut queue, 2), 0, "and so do the most urgent in the end");
        assert!(!queue.has_worthwhile_room());
    }

    #[test]
    fn an_empty_queue_takes_a_message_of_any_length() {
        let mut queue = MessageQueue::default();
        assert!(put(&mut queue, 0, 3 * MESSAGES_OUT_BYTES_MAX));
        assert!(!put(&mut queue, 0, 1));
    }
}

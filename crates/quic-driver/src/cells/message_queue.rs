//! Queues of messages to be sent that have no stream yet, ordered by priority.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use quic::Class;

/// Limit in bytes of a queue of messages that have no stream yet. Senders wait while the queue is
/// full; an empty queue takes a message of any length. Messages more urgent than others in the
/// queue may use the same amount again. There are two such queues, see [`QueueKind`].
pub(crate) const MESSAGES_OUT_BYTES_MAX: usize = 4 << 20;

/// Bytes added to the length of each message in a queue, so that the number of empty messages is
/// bounded.
pub(crate) const MESSAGE_OVERHEAD: usize = 64;

/// A message and the class of service of its stream.
pub(crate) struct OutgoingMessage {
    pub(crate) bytes: Bytes,
    pub(crate) class: Class,
}

/// The queue that a message waits in. Messages with a rate limit, a set of paths or background
/// class may be blocked without a time limit, so they must not block the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QueueKind {
    /// Only congestion control and the peer's limits can block these messages.
    Unrestricted,
    /// A rate limit, the set of paths or the background class can block these messages.
    Restricted,
}

impl QueueKind {
    pub(crate) const ALL: [Self; 2] = [Self::Unrestricted, Self::Restricted];

    pub(crate) const fn index(self) -> usize {
        self as usize
    }

    fn of(class: &Class) -> Self {
        let is_unrestricted = class.rate.is_none() && class.paths.is_all() && !class.background;
        if is_unrestricted { Self::Unrestricted } else { Self::Restricted }
    }
}

/// The queues, one for each [`QueueKind`].
#[derive(Default)]
pub(crate) struct MessageQueues {
    queues: [MessageQueue; 2],
}

impl MessageQueues {
    pub(crate) fn is_empty(&self) -> bool {
        self.queues.iter().all(MessageQueue::is_empty)
    }

    /// Takes `message` if its queue has space for it.
    pub(crate) fn put(&mut self, message: &mut Option<OutgoingMessage>) {
        if let Some(kind) = message.as_ref().map(|message| QueueKind::of(&message.class)) {
            self.queues[kind.index()].put(message);
        }
    }

    /// Returns the highest priority in a queue.
    pub(crate) fn priority(&self, kind: QueueKind) -> Option<i32> {
        self.queues[kind.index()].priority()
    }

    /// Removes the oldest message of the highest priority from a queue.
    pub(crate) fn pop(&mut self, kind: QueueKind) -> Option<OutgoingMessage> {
        self.queues[kind.index()].pop()
    }

    /// Returns whether senders that wait for space in a queue should be woken.
    pub(crate) fn is_half_free(&self, kind: QueueKind) -> bool {
        self.queues[kind.index()].is_half_free()
    }
}

/// A priority queue that holds [`MESSAGES_OUT_BYTES_MAX`] bytes, and as many again of messages that
/// are more urgent than the least urgent one in it.
#[derive(Default)]
struct MessageQueue {
    by_priority: BTreeMap<Reverse<i32>, VecDeque<OutgoingMessage>>,
    bytes: usize,
}

impl MessageQueue {
    fn is_empty(&self) -> bool {
        self.by_priority.is_empty()
    }

    /// Takes `message` if there is space for it. An empty queue takes a message of any length.
    fn put(&mut self, message: &mut Option<OutgoingMessage>) {
        let Some(OutgoingMessage { bytes, class }) = message else { return };
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

    /// Returns the highest priority in the queue.
    fn priority(&self) -> Option<i32> {
        self.by_priority.first_key_value().map(|(priority, _)| priority.0)
    }

    /// Removes the oldest message of the highest priority.
    fn pop(&mut self) -> Option<OutgoingMessage> {
        let mut first = self.by_priority.first_entry()?;
        let message = first.get_mut().pop_front();
        if first.get().is_empty() {
            first.remove();
        }
        self.bytes -= message.as_ref().map_or(0, |message| message.bytes.len() + MESSAGE_OVERHEAD);
        message
    }

    /// Returns whether half of the queue is free. Waiting senders are woken then.
    fn is_half_free(&self) -> bool {
        self.bytes <= MESSAGES_OUT_BYTES_MAX / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(queue: &mut MessageQueue, priority: i32, len: usize) -> bool {
        let mut message = Some(OutgoingMessage { bytes: vec![0; len].into(), class: Class::of_priority(priority) });
        queue.put(&mut message);
        message.is_none()
    }

    #[test]
    fn messages_leave_by_priority_and_equal_priorities_in_order() {
        let mut queue = MessageQueue::default();
        for (priority, len) in [(0, 1), (3, 2), (0, 3), (-1, 4), (3, 5)] {
            assert!(put(&mut queue, priority, len));
        }
        let order: Vec<usize> = std::iter::from_fn(|| queue.pop()).map(|message| message.bytes.len()).collect();
        assert_eq!(order, [2, 5, 1, 3, 4]);
        assert!(queue.is_empty() && queue.is_half_free());
    }

    #[test]
    fn a_full_queue_still_takes_as_many_bytes_of_more_urgent_messages() {
        const LEN: usize = 1 << 16;
        let mut queue = MessageQueue::default();
        let fill =
            |queue: &mut MessageQueue, priority: i32| (0..1000).take_while(|_| put(queue, priority, LEN)).count();
        let normal = fill(&mut queue, 0);
        assert!((60..64).contains(&normal), "{normal}");
        assert_eq!(fill(&mut queue, -1), 0, "less urgent messages wait");
        let urgent = fill(&mut queue, 1);
        assert!((60..=64).contains(&urgent), "{urgent}");
        assert_eq!(fill(&mut queue, 2), 0, "and so do the most urgent messages beyond twice the limit");
        assert!(!queue.is_half_free());
    }

    #[test]
    fn an_empty_queue_takes_a_message_of_any_length() {
        let mut queue = MessageQueue::default();
        assert!(put(&mut queue, 0, 3 * MESSAGES_OUT_BYTES_MAX));
        assert!(!put(&mut queue, 0, 1));
    }
}

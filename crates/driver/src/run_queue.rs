//! [`RunQueue`]: the order of visits. Connections of a higher priority come first, and every
//! priority gets a minimum share.

use std::collections::VecDeque;

use crate::protocol::ConnectionKey;

/// Maximum number of consecutive visits of the highest priority while others wait; then a
/// connection of a lower priority is visited. The lowest of `n` priorities therefore gets at least
/// `1 / (n * (URGENT_VISITS_MAX + 1))` of the visits.
const URGENT_VISITS_MAX: u32 = 8;

/// Maximum number of empty queues that are kept, so that a few priorities need no allocation.
const IDLE_PRIORITIES_MAX: usize = 8;

/// Connections that wait for a visit. The caller ensures that each is queued at most once.
#[derive(Debug, Default)]
pub(crate) struct RunQueue {
    /// Queues by priority, highest first.
    queues: Vec<(i32, VecDeque<ConnectionKey>)>,
    len: usize,
    /// Number of consecutive visits of the highest priority while lower ones waited.
    urgent_visits: u32,
    /// Lower priority that was last visited before the highest.
    favoured: Option<i32>,
}

impl RunQueue {
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Adds a connection behind the others of its priority.
    pub(crate) fn push(&mut self, priority: i32, key: ConnectionKey) {
        let at = self.queues.partition_point(|(known, _)| *known > priority);
        if self.queues.get(at).is_none_or(|(known, _)| *known != priority) {
            if self.queues.len() >= IDLE_PRIORITIES_MAX {
                self.queues.retain(|(_, queue)| !queue.is_empty());
            }
            let at = self.queues.partition_point(|(known, _)| *known > priority);
            self.queues.insert(at, (priority, VecDeque::new()));
            self.queues[at].1.push_back(key);
        } else {
            self.queues[at].1.push_back(key);
        }
        self.len += 1;
    }

    /// Removes the connection to visit next.
    pub(crate) fn pop(&mut self) -> Option<ConnectionKey> {
        let highest = self.queues.iter().position(|(_, queue)| !queue.is_empty())?;
        let others_wait = self.queues[highest].1.len() < self.len;
        let mut at = highest;
        if !others_wait {
            self.urgent_visits = 0;
        } else if self.urgent_visits < URGENT_VISITS_MAX {
            self.urgent_visits += 1;
        } else {
            self.urgent_visits = 0;
            at = self.next_lower(highest);
            self.favoured = Some(self.queues[at].0);
        }
        self.len -= 1;
        self.queues[at].1.pop_front()
    }

    /// Returns the next queue with a waiting connection below `highest`, after the one that was
    /// last served.
    fn next_lower(&self, highest: usize) -> usize {
        let waiting = || (highest + 1..self.queues.len()).filter(|at| !self.queues[*at].1.is_empty());
        let after = |at: &usize| self.favoured.is_none_or(|favoured| self.queues[*at].0 < favoured);
        waiting().find(after).or_else(|| waiting().next()).unwrap_or(highest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Visits `visits` times; every connection is queued again after its visit.
    fn visits(priorities: &[i32], visits: usize) -> Vec<usize> {
        let mut queue = RunQueue::default();
        for (key, priority) in (0..).zip(priorities) {
            queue.push(*priority, ConnectionKey(key));
        }
        let mut counts = vec![0; priorities.len()];
        for _ in 0..visits {
            let key = queue.pop().expect("the queue is not empty");
            counts[key.0 as usize] += 1;
            queue.push(priorities[key.0 as usize], key);
        }
        assert_eq!(queue.len(), priorities.len());
        counts
    }

    #[test]
    fn equal_priorities_take_turns() {
        assert_eq!(visits(&[0; 4], 400), [100; 4]);
    }

    #[test]
    fn higher_priorities_go_first_and_the_others_get_their_share() {
        let counts = visits(&[-3, 5, 0, 5, 0], 9_000);
        assert_eq!(counts[1] + counts[3], 8_000, "{counts:?}");
        assert_eq!(counts[0], 500, "{counts:?}");
        assert_eq!(counts[2] + counts[4], 500, "{counts:?}");
    }

    #[test]
    fn connections_of_one_priority_keep_their_order() {
        let mut queue = RunQueue::default();
        for (key, priority) in [(1, 0), (2, 7), (3, 0), (4, 7), (5, -1)] {
            queue.push(priority, ConnectionKey(key));
        }
        let order: Vec<u32> = std::iter::from_fn(|| queue.pop()).map(|key| key.0).collect();
        assert_eq!(order, [2, 4, 1, 3, 5]);
        assert!(queue.is_empty());
    }

    #[test]
    fn queues_of_unused_priorities_are_removed() {
        let mut queue = RunQueue::default();
        for priority in 0..1000 {
            queue.push(priority, ConnectionKey(0));
            assert_eq!(queue.pop(), Some(ConnectionKey(0)));
        }
        assert!(queue.queues.len() <= IDLE_PRIORITIES_MAX, "{}", queue.queues.len());
    }
}

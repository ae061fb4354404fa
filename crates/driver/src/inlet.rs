//! [`Inlet`]: batches that the socket of another driver of the endpoint received.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::task::Waker;

use crate::sync::lock;

/// Maximum number of waiting batches: 16 MiB. Further batches are dropped, as a network would drop
/// them.
const MISROUTED_MAX: usize = 256;

/// A batch, and the index of the socket of another driver that received it.
pub(crate) struct MisroutedBatch<B> {
    pub(crate) socket: usize,
    pub(crate) batch: B,
}

/// A queue into which the other drivers of an endpoint put batches of this driver's connections.
pub struct Inlet<B> {
    waker: Waker,
    queue: Mutex<Queue<B>>,
}

struct Queue<B> {
    batches: VecDeque<MisroutedBatch<B>>,
    is_closed: bool,
}

impl<B> Inlet<B> {
    /// Creates the inlet of the driver that `waker` wakes.
    pub fn new(waker: Waker) -> Self {
        Self { waker, queue: Mutex::new(Queue { batches: VecDeque::new(), is_closed: false }) }
    }

    /// Passes a batch to the driver. The batch is dropped, and false returned, if too many wait or
    /// the driver has ended.
    pub(crate) fn push(&self, misrouted: MisroutedBatch<B>) -> bool {
        {
            let mut queue = lock(&self.queue);
            if queue.is_closed || queue.batches.len() >= MISROUTED_MAX {
                return false;
            }
            queue.batches.push_back(misrouted);
        }
        self.waker.wake_by_ref();
        true
    }

    /// Returns the next batch, and whether the one after it is from the same socket.
    pub(crate) fn pop(&self) -> Option<(MisroutedBatch<B>, bool)> {
        let mut queue = lock(&self.queue);
        let misrouted = queue.batches.pop_front()?;
        let has_more = queue.batches.front().is_some_and(|next| next.socket == misrouted.socket);
        Some((misrouted, has_more))
    }

    pub(crate) fn is_empty(&self) -> bool {
        lock(&self.queue).batches.is_empty()
    }

    /// Closes the inlet when the driver ends.
    pub(crate) fn close(&self) {
        let mut queue = lock(&self.queue);
        queue.is_closed = true;
        queue.batches.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_come_out_in_order_up_to_a_bound_and_not_after_the_end() {
        let inlet = Inlet::new(Waker::noop().clone());
        for number in 0..MISROUTED_MAX + 7 {
            inlet.push(MisroutedBatch { socket: number / 2, batch: number });
        }
        for number in 0..MISROUTED_MAX {
            let (misrouted, has_more) = inlet.pop().expect("as many as there may be");
            assert_eq!((misrouted.batch, has_more), (number, number % 2 == 0));
        }
        assert!(inlet.pop().is_none() && inlet.is_empty());
        inlet.close();
        inlet.push(MisroutedBatch { socket: 0, batch: 0 });
        assert!(inlet.is_empty());
    }
}

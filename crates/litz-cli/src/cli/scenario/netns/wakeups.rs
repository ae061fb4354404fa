//! The queue of wakeups of both hosts. Wakers fill it on the engines' threads, and the run's thread
//! empties it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Wake, Waker};

use quic::Event;
use units::Duration;

/// The reason for a wakeup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wakeup {
    /// The connection may be established.
    Begin,
    /// The connection may have ended.
    End,
    /// An event for the applications.
    Stream(Event),
}

/// The queue. Each wake source is in it at most once, so its length is bounded by the number of
/// streams.
#[derive(Debug, Default)]
pub(super) struct WakeQueue {
    queue: Mutex<VecDeque<Arc<WakeSource>>>,
    arrived: Condvar,
}

/// The source of a wakeup, behind a waker.
#[derive(Debug)]
struct WakeSource {
    /// Weak, because the queue holds strong references to its sources.
    wake_queue: Weak<WakeQueue>,
    host: usize,
    wakeup: Wakeup,
    /// Whether the source is in the queue.
    is_waiting: AtomicBool,
}

impl WakeQueue {
    /// A waker that queues this wakeup of `host`.
    pub(super) fn waker(self: &Arc<Self>, host: usize, wakeup: Wakeup) -> Waker {
        Arc::new(WakeSource { wake_queue: Arc::downgrade(self), host, wakeup, is_waiting: AtomicBool::new(false) })
            .into()
    }

    /// Removes the oldest wakeup; returns it with its host.
    pub(super) fn pop(&self) -> Option<(usize, Wakeup)> {
        let source = self.queue().pop_front()?;
        // Reset before the wakeup is handled, so that later events queue it again.
        source.is_waiting.store(false, Ordering::Release);
        Some((source.host, source.wakeup.clone()))
    }

    /// Sleeps until the queue is not empty, for at most `span`.
    pub(super) fn wait(&self, span: Duration) {
        let is_empty = |queue: &mut VecDeque<_>| queue.is_empty();
        // The caller checks both the time and the queue.
        drop(self.arrived.wait_timeout_while(self.queue(), span.into(), is_empty));
    }

    fn queue(&self) -> MutexGuard<'_, VecDeque<Arc<WakeSource>>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wake for WakeSource {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // The queue is gone after the run.
        let Some(wake_queue) = self.wake_queue.upgrade() else { return };
        if !self.is_waiting.swap(true, Ordering::AcqRel) {
            wake_queue.queue().push_back(Arc::clone(self));
            wake_queue.arrived.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_wakeups_are_queued_once_until_they_are_handled() {
        let wake_queue = Arc::new(WakeQueue::default());
        let (one, other) = (wake_queue.waker(0, Wakeup::Begin), wake_queue.waker(1, Wakeup::End));
        for waker in [&one, &other, &one] {
            waker.wake_by_ref();
        }
        wake_queue.wait(Duration::from_secs(100));
        assert_eq!(wake_queue.pop(), Some((0, Wakeup::Begin)));
        one.wake();
        assert_eq!([wake_queue.pop(), wake_queue.pop()], [Some((1, Wakeup::End)), Some((0, Wakeup::Begin))]);
        assert_eq!(wake_queue.pop(), None);
    }
}

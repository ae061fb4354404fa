//! What has happened at either host and nobody has looked at yet. Wakers put it there, from the threads of the engines.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Wake, Waker};

use quic::Event;
use units::Duration;

/// Something worth a look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Happening {
    /// The connection may be there.
    Begin,
    /// The connection may be over.
    End,
    /// What applications want to hear of.
    Stream(Event),
}

/// The queue. Each alarm is in it at most once, so its length is bounded by the streams that exist.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    queue: Mutex<VecDeque<Arc<Alarm>>>,
    arrived: Condvar,
}

/// What a waker stands for.
#[derive(Debug)]
struct Alarm {
    /// The queue holds alarms, so they may not hold the queue.
    inbox: Weak<Inbox>,
    host: usize,
    happening: Happening,
    /// It is in the queue.
    is_waiting: AtomicBool,
}

impl Inbox {
    /// A waker that says that this has happened at that host.
    pub(super) fn waker(self: &Arc<Self>, host: usize, happening: Happening) -> Waker {
        Arc::new(Alarm { inbox: Arc::downgrade(self), host, happening, is_waiting: AtomicBool::new(false) }).into()
    }

    /// The oldest, with its host.
    pub(super) fn pop(&self) -> Option<(usize, Happening)> {
        let alarm = self.queue().pop_front()?;
        // Before anybody looks: what happens from now on is another time.
        alarm.is_waiting.store(false, Ordering::Release);
        Some((alarm.host, alarm.happening.clone()))
    }

    /// Sleeps until there is something, for `span` at most.
    pub(super) fn wait(&self, span: Duration) {
        let is_empty = |queue: &mut VecDeque<_>| queue.is_empty();
        // Whether it was time or an arrival, whoever calls looks at both.
        drop(self.arrived.wait_timeout_while(self.queue(), span.into(), is_empty));
    }

    fn queue(&self) -> MutexGuard<'_, VecDeque<Arc<Alarm>>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // After the run nobody looks.
        let Some(inbox) = self.inbox.upgrade() else { return };
        if !self.is_waiting.swap(true, Ordering::AcqRel) {
            inbox.queue().push_back(Arc::clone(self));
            inbox.arrived.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happens_twice_before_anybody_looks_is_told_once_and_later_again() {
        let inbox = Arc::new(Inbox::default());
        let (one, other) = (inbox.waker(0, Happening::Begin), inbox.waker(1, Happening::End));
        for waker in [&one, &other, &one] {
            waker.wake_by_ref();
        }
        inbox.wait(Duration::from_secs(100));
        assert_eq!(inbox.pop(), Some((0, Happening::Begin)));
        one.wake();
        assert_eq!([inbox.pop(), inbox.pop()], [Some((1, Happening::End)), Some((0, Happening::Begin))]);
        assert_eq!(inbox.pop(), None);
    }
}

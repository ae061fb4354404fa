//! Wakes a thread that waits for the device.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

/// The event has not happened since it was taken, and the thread does not wait.
const NONE: u8 = 0;
/// The thread waits.
const WAITING: u8 = 1;
/// The event has happened.
const HAPPENED: u8 = 2;

/// An event that a thread waits for together with a descriptor. Clones are the same event. It costs a system call only
/// while the thread waits.
#[derive(Clone, Debug)]
pub(crate) struct WakeEvent {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    state: AtomicU8,
    /// Readable if the event has happened while the thread waited.
    event: OwnedFd,
}

impl WakeEvent {
    /// # Errors
    /// If the process has too many open files.
    pub(crate) fn new() -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Self { inner: Arc::new(Inner { state: AtomicU8::new(NONE), event }) })
    }

    pub(crate) fn wake(&self) {
        self.inner.happen();
    }

    /// Waits until `readable`, if there is one, can be read, the event has happened, or the time is over. One thread waits
    /// at a time.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn wait(&self, readable: Option<BorrowedFd<'_>>, timeout: Option<Duration>) -> io::Result<()> {
        let timeout = timeout.map(rustix::time::Timespec::try_from).transpose().map_err(io::Error::other)?;
        let Inner { state, event } = &*self.inner;
        if state.compare_exchange(NONE, WAITING, Ordering::SeqCst, Ordering::SeqCst).is_err() {
            // With what the event tells of, which a store alone would not show.
            state.swap(NONE, Ordering::SeqCst);
            return Ok(());
        }
        let own = PollFd::from_borrowed_fd(event.as_fd(), PollFlags::IN);
        let other = readable.map_or_else(|| own.clone(), |readable| PollFd::from_borrowed_fd(readable, PollFlags::IN));
        let mut polled = [other, own];
        let result = poll(&mut polled, timeout.as_ref());
        let has_happened = state.swap(NONE, Ordering::SeqCst) == HAPPENED;
        if has_happened || polled[1].revents().contains(PollFlags::IN) {
            // It may become readable a moment later. Then the next call returns at once, too.
            let mut count = [0; 8];
            match rustix::io::read(event, &mut count) {
                Ok(_) | Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        match result {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether the event has happened since it was last waited for or taken.
    pub(crate) fn take(&self) -> bool {
        self.inner.state.swap(NONE, Ordering::SeqCst) == HAPPENED
    }
}

impl Inner {
    fn happen(&self) {
        if self.state.swap(HAPPENED, Ordering::SeqCst) == WAITING {
            // It fails only when the counter is full: then the thread is woken already.
            let _full = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    #[test]
    fn no_event_is_lost_between_looking_and_waiting() {
        const ROUNDS: u64 = 20_000;
        let wake = WakeEvent::new().expect("an event");
        let never = WakeEvent::new().expect("an event");
        let (published, seen) = (AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 1..=ROUNDS {
                    published.store(round, Ordering::SeqCst);
                    wake.wake();
                    // In some rounds in step with the waiting thread, in others far ahead.
                    while round % 3 == 0 && seen.load(Ordering::SeqCst) < round {
                        std::hint::spin_loop();
                    }
                }
            });
            while seen.load(Ordering::SeqCst) < ROUNDS {
                // Without a time limit: a lost event hangs the test.
                wake.wait(Some(never.inner.event.as_fd()), None).expect("waits");
                seen.store(published.load(Ordering::SeqCst), Ordering::SeqCst);
            }
        });
    }

    #[test]
    fn an_event_is_taken_once_and_ends_one_wait() {
        let (wake, never) = (WakeEvent::new().expect("an event"), WakeEvent::new().expect("an event"));
        assert!(!wake.take());
        wake.wake();
        wake.wake();
        assert!(wake.take() && !wake.take());
        wake.wake();
        wake.wait(None, None).expect("it returns at once");
        assert!(!wake.take());
        wake.wait(Some(never.inner.event.as_fd()), Some(Duration::from_millis(1))).expect("it returns after the time");
        assert!(!wake.take());
    }
}

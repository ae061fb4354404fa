//! How a worker with nothing to do sleeps.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::thread::Thread;

/// Ends a worker's sleep. Whoever has work publishes it first and wakes second; the worker announces its sleep first and looks
/// for work second. A full fence lies between the two steps on both sides, so at least one of them sees the other.
#[derive(Debug, Default)]
pub(crate) struct Doze {
    asleep: AtomicBool,
    thread: OnceLock<Thread>,
}

impl Doze {
    /// The calling thread is the one that will sleep.
    #[expect(clippy::disallowed_methods, reason = "this is what is woken")]
    pub(crate) fn settle(&self) {
        // Set once: a worker has one thread.
        let _first = self.thread.set(std::thread::current());
    }

    /// Work was published.
    pub(crate) fn wake(&self) {
        fence(Ordering::SeqCst);
        if self.asleep.swap(false, Ordering::SeqCst)
            && let Some(thread) = self.thread.get()
        {
            thread.unpark();
        }
    }

    /// Sleeps until woken, unless `has_work`.
    pub(crate) fn sleep_unless(&self, has_work: impl Fn() -> bool) {
        self.asleep.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        while !has_work() && self.asleep.load(Ordering::SeqCst) {
            std::thread::park();
        }
        self.asleep.store(false, Ordering::SeqCst);
    }
}

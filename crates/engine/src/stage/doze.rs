//! How a worker with nothing to do sleeps.

use std::sync::OnceLock;

use crate::asleep::Asleep;
use crate::primitives::{Thread, current, park};

/// Ends a worker's sleep. Whoever has work publishes it first and wakes second; the worker announces its sleep first and looks
/// for work second: see [`Asleep`].
#[derive(Debug, Default)]
pub(crate) struct Doze {
    asleep: Asleep,
    thread: OnceLock<Thread>,
}

impl Doze {
    /// The calling thread is the one that will sleep.
    pub(crate) fn settle(&self) {
        // Set once: a worker has one thread.
        let _first = self.thread.set(current());
    }

    /// Work was published.
    pub(crate) fn wake(&self) {
        if self.asleep.take()
            && let Some(thread) = self.thread.get()
        {
            thread.unpark();
        }
    }

    /// Sleeps until woken, unless `has_work`.
    pub(crate) fn sleep_unless(&self, has_work: impl Fn() -> bool) {
        self.asleep.announce();
        while !has_work() && self.asleep.is_announced() {
            park();
        }
        self.asleep.withdraw();
    }
}

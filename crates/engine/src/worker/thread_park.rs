//! [`ThreadPark`]: parks and unparks a worker's thread.

use std::sync::OnceLock;

use crate::primitives::{Thread, current, park};
use crate::sleep_flag::SleepFlag;

/// Parks one thread until another one unparks it. Other threads publish work first and unpark
/// second. The thread announces its sleep first and checks for work second. See [`SleepFlag`].
#[derive(Debug, Default)]
pub(crate) struct ThreadPark {
    flag: SleepFlag,
    thread: OnceLock<Thread>,
}

impl ThreadPark {
    /// Registers the calling thread as the one that parks.
    pub(crate) fn register(&self) {
        // Set once: a worker has one thread.
        let _first = self.thread.set(current());
    }

    /// Ends an announced sleep after work was published.
    pub(crate) fn unpark(&self) {
        if self.flag.take()
            && let Some(thread) = self.thread.get()
        {
            thread.unpark();
        }
    }

    /// Sleeps until unparked, unless `has_work`.
    pub(crate) fn sleep_unless(&self, has_work: impl Fn() -> bool) {
        self.flag.announce();
        while !has_work() && self.flag.is_announced() {
            park();
        }
        self.flag.withdraw();
    }
}

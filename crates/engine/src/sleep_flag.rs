//! [`SleepFlag`]: synchronizes a thread that sleeps with the threads that wake it.
//!
//! ```text
//!   sleeper: announce ─▶ check for work ─▶ sleep if there is none
//!   waker:   publish work ─▶ take ─▶ end the sleep if one was announced
//! ```
//!
//! Every change of the flag is an exchange with acquire and release ordering. So all changes have
//! one order, and each change sees everything that happened before the earlier ones. If `take`
//! comes after the announcement, it ends the sleep. If it comes before, the sleeper finds the
//! published work. Plain stores would need a full fence between the two steps on both sides.
//! `tests/models.rs` explores every order of steps.

use crate::primitives::{AtomicBool, Ordering};

/// Whether a thread sleeps, or is about to.
#[derive(Debug, Default)]
pub(crate) struct SleepFlag(AtomicBool);

impl SleepFlag {
    /// Announces that the calling thread is about to sleep. The thread then checks for work once
    /// more before it sleeps.
    pub(crate) fn announce(&self) {
        self.0.swap(true, Ordering::AcqRel);
    }

    /// Returns whether a sleep is announced and no waker has ended it.
    pub(crate) fn is_announced(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Withdraws the announcement: the sleep has ended, or did not begin.
    pub(crate) fn withdraw(&self) {
        // With a store, the next announcement would not see the concurrent actions of wakers.
        self.0.swap(false, Ordering::AcqRel);
    }

    /// Ends an announced sleep after work was published. Returns true if a sleep was announced:
    /// then the caller, and no other waker, wakes the thread.
    pub(crate) fn take(&self) -> bool {
        self.0.swap(false, Ordering::AcqRel)
    }
}

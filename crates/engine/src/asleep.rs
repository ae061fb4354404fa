//! The flag between who sleeps and who wakes.
//!
//! ```text
//!   sleeper: announce ─▶ look for work ─▶ sleep if there is none      waker: publish work ─▶ take ─▶ end the sleep if it was set
//! ```
//!
//! Every change of the flag is an exchange that acquires and releases. So the changes of both sides have one order, and each sees
//! all that was done before the ones before it: a waker that comes after the announcement ends the sleep, and after one that
//! came before it the sleeper finds the work, however that was published. Plain stores would need a full fence between the two
//! steps on both sides. `tests/models.rs` tries every order of steps.

use crate::primitives::{AtomicBool, Ordering};

/// Whether somebody sleeps, or is about to.
#[derive(Debug, Default)]
pub(crate) struct Asleep(AtomicBool);

impl Asleep {
    /// The caller is about to sleep, and looks for work once more before it does.
    pub(crate) fn announce(&self) {
        self.0.swap(true, Ordering::AcqRel);
    }

    /// Whether nobody has ended the sleep that was announced.
    pub(crate) fn is_announced(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// The sleep is over, or did not begin.
    pub(crate) fn withdraw(&self) {
        // A store would hide from the next announcement what wakers did meanwhile.
        self.0.swap(false, Ordering::AcqRel);
    }

    /// Work was published. True if a sleep was announced, which the caller is to end then, and nobody else.
    pub(crate) fn take(&self) -> bool {
        self.0.swap(false, Ordering::AcqRel)
    }
}

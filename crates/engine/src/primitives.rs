//! Synchronization primitives for sleeping and waking. Modules that use only these and nothing of
//! `std` are also compiled into the loom models, which replace them by loom's (`tests/models.rs`).

pub(crate) use std::sync::atomic::{AtomicBool, Ordering};
pub(crate) use std::thread::{Thread, park};

/// Returns the calling thread.
#[expect(clippy::disallowed_methods, reason = "this is the thread to be unparked")]
pub(crate) fn current() -> Thread {
    std::thread::current()
}

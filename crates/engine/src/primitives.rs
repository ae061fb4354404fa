//! What sleeping and waking are made of. Code that names these and nothing of `std` runs in the models, too, which put
//! exhaustively explored ones in their place (`tests/models.rs`).

pub(crate) use std::sync::atomic::{AtomicBool, Ordering};
pub(crate) use std::thread::{Thread, park};

/// The calling thread.
#[expect(clippy::disallowed_methods, reason = "this is what is woken")]
pub(crate) fn current() -> Thread {
    std::thread::current()
}

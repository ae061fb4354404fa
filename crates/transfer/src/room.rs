//! Limit on the bytes that a receiver may still store for a sender.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Quota of bytes that may still be stored, shared by the transfers whose options have a clone of
/// it.
#[derive(Clone, Debug)]
pub struct Room(Arc<AtomicU64>);

impl Room {
    /// Creates a quota of `bytes`.
    pub fn new(bytes: u64) -> Self {
        Self(Arc::new(AtomicU64::new(bytes)))
    }

    /// Returns the remaining bytes.
    pub fn left(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Returns whether a transfer has a clone of it.
    pub fn is_shared(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    /// Takes `bytes`, if that many are left.
    pub(crate) fn take(&self, bytes: u64) -> bool {
        let taken = |left: u64| left.checked_sub(bytes);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, taken).is_ok()
    }
}

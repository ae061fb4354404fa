//! Counts bytes and decides when to report progress.

use std::sync::atomic::{AtomicU64, Ordering};

use super::events::{Events, TransferEvent};

/// Byte counts of one transfer, updated by many threads.
pub(crate) struct Progress<'a> {
    events: &'a dyn Events,
    total: AtomicU64,
    done: AtomicU64,
    moved: AtomicU64,
    resumed: AtomicU64,
}

impl<'a> Progress<'a> {
    pub(crate) fn new(events: &'a dyn Events) -> Self {
        Self {
            events,
            total: AtomicU64::new(0),
            done: AtomicU64::new(0),
            moved: AtomicU64::new(0),
            resumed: AtomicU64::new(0),
        }
    }

    pub(crate) fn set_total(&self, total: u64) {
        self.total.store(total, Ordering::Relaxed);
    }

    /// Adds `bytes` that were sent or received.
    pub(crate) fn add_moved(&self, bytes: u64) {
        self.moved.fetch_add(bytes, Ordering::Relaxed);
        self.add(bytes);
    }

    /// Adds `bytes` that the receiver held before.
    pub(crate) fn add_resumed(&self, bytes: u64) {
        self.resumed.fetch_add(bytes, Ordering::Relaxed);
        self.add(bytes);
    }

    /// Subtracts counted `bytes` that must be resent, or will never be sent.
    pub(crate) fn take_back(&self, bytes: u64) {
        self.done.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Does the same as [`Progress::take_back`] for bytes that seemed to be held before.
    pub(crate) fn take_back_resumed(&self, bytes: u64) {
        self.resumed.fetch_sub(bytes, Ordering::Relaxed);
        self.take_back(bytes);
    }

    /// Reports the progress.
    pub(crate) fn report(&self) {
        self.events.event(TransferEvent::Progress {
            bytes_done: self.done.load(Ordering::Relaxed),
            bytes_total: self.total.load(Ordering::Relaxed),
        });
    }

    pub(crate) fn moved(&self) -> u64 {
        self.moved.load(Ordering::Relaxed)
    }

    pub(crate) fn resumed(&self) -> u64 {
        self.resumed.load(Ordering::Relaxed)
    }

    fn add(&self, bytes: u64) {
        let before = self.done.fetch_add(bytes, Ordering::Relaxed);
        if before / STEP != (before + bytes) / STEP {
            self.report();
        }
    }
}

/// Bytes between two reports: small enough for a slow path, and a thousand reports per second on a
/// fast one.
const STEP: u64 = 1 << 20;

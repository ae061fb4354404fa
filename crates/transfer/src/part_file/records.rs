//! The records of a part file, and their durability after a power loss.
//!
//! After a failed sync, the system may regard the lost pages as written: they look right until they
//! leave the cache, and the next sync succeeds. So data written since the last successful sync no
//! longer count.

use std::collections::BTreeSet;
use std::io;

use crate::journal::{Journal, Recorded};

/// The journal of a part file, with the known state of its segments on the disk.
#[derive(Debug)]
pub(super) struct Records {
    /// `None` for a file of one segment: it is verified as a whole or not at all.
    journal: Option<Journal>,
    /// Recorded segments that a sync has brought to the disk.
    durable: BTreeSet<u32>,
    /// Segments recorded since the last sync began.
    recent: BTreeSet<u32>,
    /// Whether a sync has failed.
    is_lost: bool,
}

impl Records {
    /// Continues `journal`, whose records `synced` are on the disk.
    pub(super) fn new(journal: Option<Journal>, synced: &Recorded) -> Self {
        let durable = synced.keys().copied().collect();
        Self { journal, durable, recent: BTreeSet::new(), is_lost: false }
    }

    /// Records that `segment` is written and has `value`.
    pub(super) fn append(&mut self, segment: u32, value: &[u8; 32]) -> io::Result<()> {
        self.check()?;
        // It is recorded again because its bytes on the disk were wrong.
        self.durable.remove(&segment);
        self.recent.insert(segment);
        self.journal.as_mut().map_or(Ok(()), |journal| journal.append(segment, value))
    }

    /// Returns an error once a sync has failed.
    pub(super) fn check(&self) -> io::Result<()> {
        if self.is_lost { Err(io::Error::other("an earlier write to the disk failed")) } else { Ok(()) }
    }

    /// Begins a sync, and returns the segments that it covers.
    pub(super) fn begin_sync(&mut self) -> BTreeSet<u32> {
        std::mem::take(&mut self.recent)
    }

    /// Records the success of the sync that covered `segments`.
    pub(super) fn on_synced(&mut self, segments: BTreeSet<u32>) {
        self.durable.extend(segments);
    }

    /// Handles a failed sync: keeps the records of durable segments only. Returns false if there
    /// are none, or if that fails: then the part file is of no use.
    pub(super) fn on_sync_failed(&mut self) -> bool {
        self.is_lost = true;
        self.recent.clear();
        let retained = self.journal.as_mut().map(|journal| journal.retain(&self.durable));
        matches!(retained, Some(Ok(()))) && !self.durable.is_empty()
    }
}

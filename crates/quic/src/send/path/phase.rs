//! Which data a path may carry now: its state, and its status as a backup.

use crate::stats::PathState;

/// The state and the status of one path.
#[derive(Debug)]
pub(crate) struct PathPhase {
    pub(crate) state: PathState,
    /// Which side marked the path as backup, and the sequence number of our latest status frame.
    pub(crate) is_backup: bool,
    pub(crate) is_peers_backup: bool,
    pub(crate) status_sequence: u64,
}

impl PathPhase {
    pub(super) fn new() -> Self {
        Self { state: PathState::Active, is_backup: false, is_peers_backup: false, status_sequence: 0 }
    }

    /// One of the two sides has marked the path as backup.
    pub(crate) fn is_anyones_backup(&self) -> bool {
        self.is_backup || self.is_peers_backup
    }

    /// Sets our status, and returns the sequence number of the frame that states it.
    pub(crate) fn set_backup(&mut self, is_backup: bool) -> u64 {
        self.is_backup = is_backup;
        self.status_sequence += 1;
        self.status_sequence
    }
}

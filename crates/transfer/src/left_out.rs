//! Entries that a receiver leaves out at its user's request, and reasons to delete nothing.

use serde::Serialize;

/// Reason why the receiver leaves an entry out. The numbers are those on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
#[repr(u8)]
pub enum LeftOutReason {
    /// The receiver's file is newer.
    Newer = 1,
    /// A dry run: by size and time it is present already.
    Same = 2,
    /// A dry run: it would be received.
    WouldReceive = 3,
}

/// Reason why the receiver deletes nothing at all. The numbers are those on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
#[repr(u8)]
pub enum NothingDeletedReason {
    /// Something failed to arrive.
    Failed = 1,
    /// The sender has skipped entries, whose names the receiver does not know.
    Skipped = 2,
}

/// Counts of entries that a receiver has left out and deleted.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct LeftOutCounts {
    pub(crate) newer: u64,
    pub(crate) unchanged: u64,
    pub(crate) would_receive: u64,
    pub(crate) would_receive_bytes: u64,
}

impl LeftOutReason {
    pub(crate) const fn code(self) -> u8 {
        self as u8
    }

    pub(crate) const fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            1 => Self::Newer,
            2 => Self::Same,
            3 => Self::WouldReceive,
            _ => return None,
        })
    }
}

impl NothingDeletedReason {
    pub(crate) const fn code(self) -> u8 {
        self as u8
    }

    pub(crate) const fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            1 => Self::Failed,
            2 => Self::Skipped,
            _ => return None,
        })
    }
}

impl LeftOutCounts {
    /// Counts a file of `bytes`.
    pub(crate) fn count(&mut self, reason: LeftOutReason, bytes: u64) {
        match reason {
            LeftOutReason::Newer => self.newer += 1,
            LeftOutReason::Same => self.unchanged += 1,
            LeftOutReason::WouldReceive => {
                self.would_receive += 1;
                // The sum of a list fits.
                self.would_receive_bytes += bytes;
            }
        }
    }
}

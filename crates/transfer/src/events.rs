//! The events of a running transfer, for progress bars, log lines and JSON, and its final summary.

use serde::Serialize;

use super::error::FileError;
use super::left_out::{LeftOutReason, NothingDeletedReason};
use super::manifest::SkippedCounts;
use super::names::RelativePath;
use super::segment::FileHash;

/// One event. As JSON: an object whose `event` names the variant in snake case.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum TransferEvent<'a> {
    /// Both ends are authenticated and the list of files is known. Once, first.
    Started {
        /// Regular files in the transfer.
        files: u64,
        /// Bytes in them.
        bytes: u64,
    },
    /// The first byte of a file is about to be sent, or its place at the receiver is ready.
    FileStarted {
        /// Its name below the target directory.
        path: &'a RelativePath,
        /// Its length.
        bytes: u64,
        /// Of these, the bytes that the receiver holds already, which are not sent again.
        bytes_resumed: u64,
    },
    /// The receiver hashes the data that an earlier attempt left.
    Verifying {
        /// Its name below the target directory.
        path: &'a RelativePath,
        /// Bytes hashed so far.
        bytes_done: u64,
        /// Bytes to hash.
        bytes_total: u64,
    },
    /// At most once for each MiB and once for each file, at least; counts resumed bytes as done.
    Progress {
        /// Sent (or received) and verified bytes of all files.
        bytes_done: u64,
        /// As in `Started`. Not reached if files fail.
        bytes_total: u64,
    },
    /// A file is complete, verified and in its place.
    FileDone {
        /// Its name below the target directory.
        path: &'a RelativePath,
        /// BLAKE3 of its content, as `b3sum` prints it.
        hash: FileHash,
    },
    /// A file or directory will not arrive in this transfer.
    FileFailed {
        /// Its name below the target directory.
        path: &'a RelativePath,
        /// The reason and the remedy.
        error: &'a FileError,
    },
    /// A requested path is not sent. Before `Started`.
    Skipped {
        /// As named or found on the sender's disk.
        path: String,
        /// Why.
        error: &'a FileError,
    },
    /// The sender has found more than it sends. At the receiver, after `Started`; its user cannot see
    /// the sender's messages.
    NotSent {
        /// How much of what.
        skipped: SkippedCounts,
    },
    /// The receiver leaves an entry out, as its user wants.
    LeftOut {
        /// Its name below the target directory.
        path: &'a RelativePath,
        /// Its length, if it is a file; otherwise 0.
        bytes: u64,
        /// Why.
        reason: LeftOutReason,
    },
    /// The receiver has deleted something that the sender does not have.
    Deleted {
        /// Its name below the target directory.
        path: &'a RelativePath,
        /// It was not deleted, because this is a dry run.
        dry_run: bool,
    },
    /// The receiver cannot delete something that the sender does not have.
    NotDeleted {
        /// Its name below the target directory.
        path: &'a RelativePath,
        /// The reason.
        error: &'a FileError,
    },
    /// The receiver was to delete what the sender does not have, and deletes nothing.
    NothingDeleted {
        /// Why.
        reason: NothingDeletedReason,
    },
    /// The end, unless the transfer ended with an error. Once, last.
    Finished {
        /// As returned.
        summary: &'a Summary,
    },
}

/// A consumer of events. It is called from several threads and blocks the calling thread's part of
/// the transfer.
pub trait Events: Sync {
    /// Handles one event.
    fn event(&self, event: TransferEvent<'_>);
}

/// Ignores all events.
impl Events for () {
    fn event(&self, _event: TransferEvent<'_>) {}
}

/// The result of a completed transfer.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize)]
#[non_exhaustive]
pub struct Summary {
    /// Regular files in the list.
    pub files: u64,
    /// Bytes in them.
    pub bytes: u64,
    /// Files that are complete and in place, including those that were in place before.
    pub files_done: u64,
    /// Files and directories that failed.
    pub failed: u64,
    /// Entries on the sender's disk that were not sent: special files, symbolic links, unreadable
    /// directories. At the receiver 0 if the sender does not say it.
    pub skipped: u64,
    /// File bytes sent in this transfer; those of holes count, although they are not on the wire.
    pub bytes_moved: u64,
    /// File bytes that the receiver held from before.
    pub bytes_resumed: u64,
    /// Files that were left out because those of the receiver are newer.
    pub newer: u64,
    /// Whether this was a dry run: nothing was written or deleted.
    pub dry_run: bool,
    /// Files that a dry run found to be there, by size and time.
    pub unchanged: u64,
    /// Files that a dry run has left out, and that would be received.
    pub would_receive: u64,
    /// Bytes in them.
    pub would_receive_bytes: u64,
    /// What was deleted, directories included; in a dry run, what would be.
    pub deleted: u64,
    /// What should have been deleted and could not be.
    pub not_deleted: u64,
}

impl Summary {
    /// The exit status of a command whose transfer completed: 0 if everything is in place, 1 if
    /// something failed, was skipped or could not be deleted.
    pub fn exit_code(&self) -> u8 {
        u8::from(self.failed > 0 || self.skipped > 0 || self.not_deleted > 0)
    }

    /// Whether nothing failed: after a transfer that is no dry run, everything that was listed and not left out is in
    /// place.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.failed == 0
    }
}

impl<F: Fn(TransferEvent<'_>) + Sync> Events for F {
    fn event(&self, event: TransferEvent<'_>) {
        self(event);
    }
}

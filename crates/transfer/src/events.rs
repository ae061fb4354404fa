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
        /// Number of regular files.
        files: u64,
        /// Number of bytes in them.
        bytes: u64,
    },
    /// The first byte of a file is about to be sent, or its place at the receiver is ready.
    FileStarted {
        /// Its name below the target directory.
        path: &'a RelativePath,
        /// Its length.
        bytes: u64,
        /// The part of these bytes that the receiver holds already, which is not resent.
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
    /// At most once per MiB, and at least once per file; resumed bytes count as done.
    Progress {
        /// Sent (or received) and verified bytes of all files.
        bytes_done: u64,
        /// Same as in `Started`. Not reached if files fail.
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
        /// Path as named or found on the sender's disk.
        path: String,
        /// Reason.
        error: &'a FileError,
    },
    /// The sender has found more than it sends. At the receiver, after `Started`; its user cannot
    /// see the sender's messages.
    NotSent {
        /// Numbers of skipped entries by kind.
        skipped: SkippedCounts,
    },
    /// The receiver leaves an entry out, as its user requested.
    LeftOut {
        /// Its name below the target directory.
        path: &'a RelativePath,
        /// Its length, if it is a file; otherwise 0.
        bytes: u64,
        /// Reason.
        reason: LeftOutReason,
    },
    /// The receiver has deleted an entry that the sender does not have.
    Deleted {
        /// Its name below the target directory.
        path: &'a RelativePath,
        /// Whether this is a dry run, so that nothing was deleted.
        dry_run: bool,
    },
    /// The receiver cannot delete an entry that the sender does not have.
    NotDeleted {
        /// Its name below the target directory.
        path: &'a RelativePath,
        /// The reason.
        error: &'a FileError,
    },
    /// The receiver was asked to delete entries that the sender does not have, but deletes nothing.
    NothingDeleted {
        /// Reason.
        reason: NothingDeletedReason,
    },
    /// The end, unless the transfer ended with an error. Once, last.
    Finished {
        /// The returned summary.
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
    /// directories. At the receiver 0 if the sender does not report it.
    pub skipped: u64,
    /// File bytes sent in this transfer, including those of holes, although they are not on the
    /// wire.
    pub bytes_moved: u64,
    /// File bytes that the receiver held before.
    pub bytes_resumed: u64,
    /// Files left out because the receiver's are newer.
    pub newer: u64,
    /// Whether this was a dry run: nothing was written or deleted.
    pub dry_run: bool,
    /// Files that a dry run found present, by size and time.
    pub unchanged: u64,
    /// Files left out by a dry run that would be received.
    pub would_receive: u64,
    /// Bytes in them.
    pub would_receive_bytes: u64,
    /// Deleted entries, directories included; in a dry run, those that would be deleted.
    pub deleted: u64,
    /// Entries that should have been deleted and could not be.
    pub not_deleted: u64,
}

impl Summary {
    /// Returns the exit status of a command whose transfer completed: 0 if everything is in place,
    /// 1 if something failed, was skipped or could not be deleted.
    pub fn exit_code(&self) -> u8 {
        u8::from(self.failed > 0 || self.skipped > 0 || self.not_deleted > 0)
    }

    /// Returns whether nothing failed: after a transfer that is no dry run, every listed entry is
    /// in place unless it was left out.
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

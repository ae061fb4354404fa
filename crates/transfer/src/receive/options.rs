//! The options of a receiver.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::disk::{Disk, SystemDisk};
use crate::filter::Filter;
use crate::link::CancelToken;
use crate::names::RelativePath;
use crate::open_files::{FILES_AHEAD, OpenFiles};
use crate::room::Room;
use crate::send::default_threads;
use crate::stream_io::StreamOutput;
#[expect(unused_imports, reason = "named by the documentation")]
use crate::transport::STREAMS_MAX;

/// Options for receiving.
///
/// More fields may be added: begin with [`default`](Self::default), and set others with the `with_`
/// methods or by assignment.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ReceiveOptions {
    /// Number of threads that sync and rename. Default: the number of processors, 1 to 8. In
    /// addition [`STREAMS_MAX`] threads receive and write data, each with a buffer of 256 KiB.
    pub threads: usize,
    /// Whether a file may replace another of the same name. Default: no. A directory is never
    /// replaced, and the old file stays until the new one is complete and verified.
    pub overwrite: bool,
    /// Permission bits that are removed from every file and directory. Default: 022.
    pub umask: u32,
    /// Limit on the bytes that one transfer may announce. Default: limited by the disk only.
    pub bytes_max: Option<u64>,
    /// Limit on the growth of the files below the directory. Data already present, also of an
    /// interrupted transfer, are not counted again. Default: limited by the disk only.
    pub room: Option<Room>,
    /// Cancels the transfer.
    pub cancel: CancelToken,
    /// Limit on open files, shared with the transfers whose options have a clone of it. Default:
    /// 256 for each default.
    pub open_files: OpenFiles,
    /// Output that receives a stream instead of a file. Then the transfer must be one stream.
    /// Default: none.
    pub output: Option<StreamOutput>,
    /// Names, of one component each, permitted at the top of the sent tree. A list with another one
    /// ends the transfer before anything is written. Default: any.
    pub roots: Option<BTreeSet<RelativePath>>,
    /// Time to wait for a file that another transfer is writing, before it fails. Default: no
    /// waiting.
    pub busy_wait: Duration,
    /// Whether a file is left out if the receiver's file of that name is newer. Default: no.
    pub update: bool,
    /// Whether this is a dry run: writes nothing, and reports to the sender the outcome of each
    /// entry. Default: no.
    pub dry_run: bool,
    /// If present, unlisted entries in the listed directories are deleted, except for names that
    /// this filter excludes. This happens only if everything has arrived and the sender has skipped
    /// nothing. Default: deletes nothing.
    pub delete: Option<Filter>,
    /// Disk that files are written to.
    pub(crate) disk: Arc<dyn Disk>,
}

impl Default for ReceiveOptions {
    fn default() -> Self {
        Self {
            threads: default_threads(),
            overwrite: false,
            umask: 0o022,
            bytes_max: None,
            room: None,
            cancel: CancelToken::new(),
            open_files: OpenFiles::new(FILES_AHEAD),
            output: None,
            roots: None,
            busy_wait: Duration::ZERO,
            update: false,
            dry_run: false,
            delete: None,
            disk: Arc::new(SystemDisk),
        }
    }
}

impl ReceiveOptions {
    /// Sets [`threads`](Self::threads).
    #[must_use]
    pub fn with_threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// Sets [`overwrite`](Self::overwrite).
    #[must_use]
    pub fn with_overwrite(mut self, overwrite: bool) -> Self {
        self.overwrite = overwrite;
        self
    }

    /// Sets [`umask`](Self::umask).
    #[must_use]
    pub fn with_umask(mut self, umask: u32) -> Self {
        self.umask = umask;
        self
    }

    /// Sets [`bytes_max`](Self::bytes_max).
    #[must_use]
    pub fn with_bytes_max(mut self, bytes_max: impl Into<Option<u64>>) -> Self {
        self.bytes_max = bytes_max.into();
        self
    }

    /// Sets [`room`](Self::room).
    #[must_use]
    pub fn with_room(mut self, room: impl Into<Option<Room>>) -> Self {
        self.room = room.into();
        self
    }

    /// Sets [`open_files`](Self::open_files).
    #[must_use]
    pub fn with_open_files(mut self, open_files: OpenFiles) -> Self {
        self.open_files = open_files;
        self
    }

    /// Sets [`output`](Self::output).
    #[must_use]
    pub fn with_output(mut self, output: impl Into<Option<StreamOutput>>) -> Self {
        self.output = output.into();
        self
    }

    /// Sets [`roots`](Self::roots).
    #[must_use]
    pub fn with_roots(mut self, roots: impl Into<Option<BTreeSet<RelativePath>>>) -> Self {
        self.roots = roots.into();
        self
    }

    /// Sets [`busy_wait`](Self::busy_wait).
    #[must_use]
    pub fn with_busy_wait(mut self, busy_wait: Duration) -> Self {
        self.busy_wait = busy_wait;
        self
    }

    /// Sets [`update`](Self::update).
    #[must_use]
    pub fn with_update(mut self, update: bool) -> Self {
        self.update = update;
        self
    }

    /// Sets [`dry_run`](Self::dry_run).
    #[must_use]
    pub fn with_dry_run(mut self, dry_run: bool) -> Self {
        self.dry_run = dry_run;
        self
    }

    /// Sets [`delete`](Self::delete).
    #[must_use]
    pub fn with_delete(mut self, delete: impl Into<Option<Filter>>) -> Self {
        self.delete = delete.into();
        self
    }

    /// Sets [`cancel`](Self::cancel).
    #[must_use]
    pub fn with_cancel(mut self, cancel: CancelToken) -> Self {
        self.cancel = cancel;
        self
    }

    /// Returns whether the sender has to support [`Revision::LeftOut`](crate::Revision::LeftOut).
    pub(super) fn needs_left_out(&self) -> bool {
        self.update || self.dry_run || self.delete.is_some()
    }
}

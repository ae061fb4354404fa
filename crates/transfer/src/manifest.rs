//! The list of files to send: created from paths on the sender's disk, and checked on the
//! receiver's side as it arrives.

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::error::{FileError, FileErrorKind, TransferError};
use super::filter::Filter;
use super::keep::Keep;
pub use super::limits::ENTRIES_MAX;
use super::link::CancelToken;
use super::link_target::LinkTarget;
use super::measure::Content;
use super::names::{NameError, RelativePath};
use super::stream_io::StreamInput;

mod scan;

use scan::{Fault, Scan, roots};

/// A file or directory, as announced to the receiver.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Entry {
    /// Name below the target directory.
    pub path: RelativePath,
    /// File or directory.
    pub kind: EntryKind,
    /// Time of the last change of its content.
    pub modified: Modified,
    /// Permission bits: the lower nine of a Unix mode.
    pub mode: u16,
}

/// The kind of an entry.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum EntryKind {
    /// A regular file of `size` bytes.
    File {
        /// Its length in bytes.
        size: u64,
    },
    /// A regular file of `size` bytes with holes, which the receiver keeps.
    SparseFile {
        /// Length in bytes.
        size: u64,
        /// Space on disk, in bytes; at most `size`.
        data: u64,
    },
    /// A directory. Its content has separate entries later in the list.
    Directory,
    /// A file of unknown length: the only entry of its list.
    Stream,
    /// A symbolic link that stays in its tree.
    SymbolicLink {
        /// Target of the link.
        target: LinkTarget,
    },
    /// A further name of a file.
    HardLink {
        /// Index of the file in the list: an earlier entry.
        file: u32,
    },
}

/// Numbers of entries that a sender found but does not send, by kind.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize)]
#[non_exhaustive]
pub struct SkippedCounts {
    /// Symbolic links.
    pub links: u32,
    /// Devices, pipes and sockets.
    pub special: u32,
    /// Unreadable entries, and names that cannot be sent.
    pub unreadable: u32,
}

/// A time as stored by file systems.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Modified {
    /// Seconds since 1970 (UTC).
    pub seconds: i64,
    /// Nanoseconds, below 10^9.
    pub nanoseconds: u32,
}

/// The files to send, as found on disk. Uses about 150 bytes per entry, and at most 64 MiB for
/// files of unknown length to the file system, such as those of procfs.
#[derive(Debug)]
pub struct Source {
    entries: Vec<Entry>,
    /// For each entry, the index of its root in `roots`.
    root_of: Vec<u32>,
    /// The requested paths on disk.
    roots: Vec<PathBuf>,
    skipped: Vec<(PathBuf, FileError)>,
    skipped_counts: SkippedCounts,
    totals: Totals,
    /// Source of the bytes of files whose file system may report a wrong length.
    contents: BTreeMap<u32, Content>,
    /// Input of a stream, if that is the only entry.
    input: Option<StreamInput>,
}

/// Sums over a list.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Totals {
    pub(crate) files: u64,
    pub(crate) bytes: u64,
}

/// The list being sent or received, within its bounds.
#[derive(Default, Debug)]
pub(crate) struct Limits {
    entries: usize,
    path_bytes: usize,
    totals: Totals,
}

impl Source {
    /// Lists `paths` and everything below them. A path arrives under its last component (that of
    /// the resolved path for `.` and the like). A symbolic link among `paths` is followed; those
    /// below are skipped, as are special files and unreadable directories: see [`Source::skipped`].
    ///
    /// # Errors
    /// Fails if a path is missing or has no valid name, two paths have the same name, there are too
    /// many entries, nothing is left to send, or `cancel` is used.
    pub fn scan(paths: &[PathBuf], cancel: &CancelToken) -> Result<Self, TransferError> {
        Self::scan_keeping(paths, Keep::default(), cancel)
    }

    /// Does the same as [`scan`](Self::scan), and keeps the properties in `keep`. Links and holes
    /// need a receiver that supports [`Revision::Links`](crate::Revision::Links).
    ///
    /// # Errors
    /// Same errors as [`scan`](Self::scan).
    pub fn scan_keeping(paths: &[PathBuf], keep: Keep, cancel: &CancelToken) -> Result<Self, TransferError> {
        Self::scan_filtered(paths, keep, &Filter::default(), cancel)
    }

    /// Does the same as [`scan_keeping`](Self::scan_keeping), without the entries that `filter`
    /// excludes.
    ///
    /// # Errors
    /// Same errors as [`scan`](Self::scan).
    pub fn scan_filtered(
        paths: &[PathBuf],
        keep: Keep,
        filter: &Filter,
        cancel: &CancelToken,
    ) -> Result<Self, TransferError> {
        let mut scan = Scan::new(keep, filter, cancel);
        for (disk, relative) in roots(paths)? {
            scan.source.roots.push(disk.clone());
            scan.tree(disk, relative)?;
        }
        scan.finish()
    }

    /// Creates a source of one file of unknown length, which arrives as `name` with the permissions
    /// `mode` and the time `modified_unix` (seconds since 1970). It can be sent once, because
    /// `input` cannot be read again.
    ///
    /// # Errors
    /// Fails if the name cannot be sent.
    pub fn stream(name: &Path, mode: u16, modified_unix: i64, input: StreamInput) -> Result<Self, TransferError> {
        let path = RelativePath::from_components([name.as_os_str().as_bytes()])
            .map_err(|error| TransferError::Name(name.to_owned(), error))?;
        let modified = Modified { seconds: modified_unix, nanoseconds: 0 };
        let entry = Entry { path, kind: EntryKind::Stream, modified, mode: mode & 0o777 };
        let totals = Totals { files: 1, bytes: 0 };
        Ok(Self { entries: vec![entry], root_of: vec![0], totals, input: Some(input), ..Self::empty() })
    }

    /// Checks `paths` themselves like [`scan`](Self::scan), but nothing below them. Fast, and finds
    /// the faults of a mistyped command.
    ///
    /// # Errors
    /// Same errors as [`scan`](Self::scan) for the paths themselves.
    pub fn check(paths: &[PathBuf]) -> Result<(), TransferError> {
        let cancel = CancelToken::new();
        let filter = Filter::default();
        let mut scan = Scan::check(&filter, &cancel);
        for (disk, relative) in roots(paths)? {
            scan.source.roots.push(disk.clone());
            match scan.one(&disk, relative) {
                Ok(_) => {}
                Err(Fault::Skip(error)) => scan.skip(disk, error),
                Err(Fault::Fatal(error)) => return Err(error),
            }
        }
        scan.finish().map(|_| ())
    }

    /// Returns the entries in sending order: a directory before its contents.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Returns the entries found but not sent, with the reason: the first [`SKIPPED_KEPT_MAX`] of
    /// them.
    pub fn skipped(&self) -> &[(PathBuf, FileError)] {
        &self.skipped
    }

    /// Returns the number of entries found but not sent.
    pub fn skipped_count(&self) -> u64 {
        self.skipped_counts.total()
    }

    /// Returns their numbers by kind.
    pub(crate) fn skipped_counts(&self) -> SkippedCounts {
        self.skipped_counts
    }

    /// Returns whether the receiver has to support [`Revision::Links`](crate::Revision::Links).
    pub(crate) fn needs_links(&self) -> bool {
        self.entries.iter().any(Entry::needs_links)
    }

    pub(crate) fn totals(&self) -> Totals {
        self.totals
    }

    /// Returns the input of a stream, if that is the only entry.
    pub(crate) fn input(&self) -> Option<&StreamInput> {
        self.input.as_ref()
    }

    /// Returns the path on disk of entry `index`.
    pub(crate) fn disk_path(&self, index: u32) -> PathBuf {
        let mut path = self.roots[self.root_of[index as usize] as usize].clone();
        // The first component is the root's name on the wire; the root's path on disk replaces it.
        for component in self.entries[index as usize].path.components().skip(1) {
            path.push(std::ffi::OsStr::from_bytes(component));
        }
        path
    }

    /// Returns the source of the bytes of file `index`.
    pub(crate) fn content(&self, index: u32) -> Content {
        self.contents.get(&index).cloned().unwrap_or(Content::File)
    }

    /// Sends these entries with modes that differ from those on disk.
    #[cfg(test)]
    pub(crate) fn set_modes(&mut self, modes: &BTreeMap<String, u16>) {
        for entry in &mut self.entries {
            entry.mode = modes.get(&entry.path.to_string()).copied().unwrap_or(entry.mode);
        }
    }

    fn empty() -> Self {
        Self {
            entries: Vec::new(),
            root_of: Vec::new(),
            roots: Vec::new(),
            skipped: Vec::new(),
            skipped_counts: SkippedCounts::default(),
            totals: Totals::default(),
            contents: BTreeMap::new(),
            input: None,
        }
    }
}

impl Entry {
    /// Returns its length, if it is a file of known length.
    pub fn size(&self) -> Option<u64> {
        match self.kind {
            EntryKind::File { size } | EntryKind::SparseFile { size, .. } => Some(size),
            EntryKind::Directory | EntryKind::Stream | EntryKind::SymbolicLink { .. } | EntryKind::HardLink { .. } => {
                None
            }
        }
    }

    /// Returns whether it is a symbolic or a hard link.
    pub fn is_link(&self) -> bool {
        matches!(self.kind, EntryKind::SymbolicLink { .. } | EntryKind::HardLink { .. })
    }

    /// Returns its space on disk in bytes, if its holes are kept.
    pub fn data(&self) -> Option<u64> {
        if let EntryKind::SparseFile { data, .. } = self.kind { Some(data) } else { None }
    }

    pub(crate) fn needs_links(&self) -> bool {
        self.is_link() || self.data().is_some()
    }

    /// Returns whether it is a file of unknown length.
    pub fn is_stream(&self) -> bool {
        matches!(self.kind, EntryKind::Stream)
    }
}

impl SkippedCounts {
    /// Returns the sum over all kinds.
    pub fn total(&self) -> u64 {
        u64::from(self.links) + u64::from(self.special) + u64::from(self.unreadable)
    }

    fn count(&mut self, error: &FileError) {
        let count = match error.kind {
            FileErrorKind::Link => &mut self.links,
            FileErrorKind::Special => &mut self.special,
            _ => &mut self.unreadable,
        };
        *count = count.saturating_add(1);
    }
}

impl Modified {
    /// Returns the modification time of a file on disk.
    pub(crate) fn of(metadata: &Metadata) -> Self {
        Self { seconds: metadata.mtime(), nanoseconds: (metadata.mtime_nsec() as u32).min(999_999_999) }
    }

    /// Returns whether two times may be the same one after rounding by a file system: FAT stores
    /// every other second.
    pub(crate) fn is_near(self, other: Self) -> bool {
        let nanoseconds = |time: Self| i128::from(time.seconds) * NANOSECONDS + i128::from(time.nanoseconds);
        (nanoseconds(self) - nanoseconds(other)).unsigned_abs() <= ROUNDING_MAX.unsigned_abs()
    }

    /// Returns whether it is `exact`, or its rounding by a file system with steps of 2 s, 1 s, 10
    /// ms, 1 ms, 1 µs or 100 ns. All round down.
    pub(crate) fn is_rounded(self, exact: Self) -> bool {
        let nanoseconds = |time: Self| i128::from(time.seconds) * NANOSECONDS + i128::from(time.nanoseconds);
        let (kept, exact) = (nanoseconds(self), nanoseconds(exact));
        STEPS.into_iter().any(|step| kept == exact.div_euclid(step) * step)
    }

    /// Returns the modification time in the system's `stat` result.
    pub(crate) fn of_stat(stat: &rustix::fs::Stat) -> Self {
        Self { seconds: stat.st_mtime, nanoseconds: (stat.st_mtime_nsec as u32).min(999_999_999) }
    }
}

impl Limits {
    /// Adds `entry` to the sums.
    ///
    /// # Errors
    /// Fails if it exceeds a limit.
    pub(crate) fn admit(&mut self, entry: &Entry) -> Result<(), TransferError> {
        self.entries += 1;
        self.path_bytes += entry.path.len();
        if let EntryKind::SymbolicLink { target } = &entry.kind {
            self.path_bytes += target.as_bytes().len();
        }
        self.totals.files += u64::from(entry.is_stream());
        if let Some(size) = entry.size() {
            self.totals.files += 1;
            self.totals.bytes = self.totals.bytes.checked_add(size).ok_or(TransferError::TooMany)?;
        }
        if self.entries > ENTRIES_MAX || self.path_bytes > PATH_BYTES_MAX {
            return Err(TransferError::TooMany);
        }
        Ok(())
    }

    pub(crate) fn totals(&self) -> Totals {
        self.totals
    }
}

/// Returns the error for a name that cannot be sent.
pub(crate) fn name_error(error: NameError) -> FileError {
    FileError::new(FileErrorKind::Name, error)
}

const NANOSECONDS: i128 = 1_000_000_000;

/// Largest change of a time by a file system, in nanoseconds.
const ROUNDING_MAX: i128 = 2 * NANOSECONDS;

/// Steps of times in nanoseconds: exact ones, SMB, network file systems of other systems, exFAT,
/// ext3, FAT.
const STEPS: [i128; 7] = [1, 100, 1000, 1_000_000, 10_000_000, NANOSECONDS, ROUNDING_MAX];

/// The maximum number of bytes of all names in one transfer.
pub const PATH_BYTES_MAX: usize = 128 * 1024 * 1024;

/// Number of skipped entries kept with their reason; further ones are only counted.
pub const SKIPPED_KEPT_MAX: usize = 1000;

#[cfg(test)]
mod tests;

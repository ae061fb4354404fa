//! The walk through the directories to send.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::{Entry, EntryKind, Limits, Modified, SKIPPED_KEPT_MAX, Source, name_error};
use crate::disk_space::BLOCK_LEN;
use crate::error::{FileError, FileErrorKind, TransferError};
use crate::extent::data_len;
use crate::filter::Filter;
use crate::keep::Keep;
use crate::link::CancelToken;
use crate::link_target::LinkTarget;
use crate::measure::{Content, Measure};
use crate::names::RelativePath;
use crate::segment::CHUNK_LEN_MAX;

/// The state of a directory walk.
pub(super) struct Scan<'a> {
    pub(super) source: Source,
    keep: Keep,
    filter: &'a Filter,
    /// Files with several names: device and inode number, and the entry of the first name.
    files: HashMap<(u64, u64), u32>,
    limits: Limits,
    measure: Measure,
    /// Whether only the paths themselves are checked, so that no file is read.
    is_check: bool,
    cancel: &'a CancelToken,
}

/// Returns the location on disk of each of `paths`, and its name at the receiver.
pub(super) fn roots(paths: &[PathBuf]) -> Result<Vec<(PathBuf, RelativePath)>, TransferError> {
    let mut names = BTreeSet::new();
    let root = |path: &PathBuf| {
        let disk = fs::canonicalize(path).map_err(|error| match (error.kind(), fs::metadata(path)) {
            // The name of a descriptor, as in /dev/fd, whose target has no name itself.
            (io::ErrorKind::NotFound, Ok(_)) => TransferError::Nameless(path.clone()),
            _ => TransferError::Path(path.clone(), error),
        })?;
        let name = path.file_name().or_else(|| disk.file_name());
        let name = name.map_or(b"".as_slice(), |name| name.as_bytes());
        let relative =
            RelativePath::from_components([name]).map_err(|error| TransferError::Name(path.clone(), error))?;
        if !names.insert(relative.clone()) {
            return Err(TransferError::Duplicate(relative.to_string()));
        }
        Ok((disk, relative))
    };
    paths.iter().map(root).collect()
}

impl<'a> Scan<'a> {
    pub(super) fn new(keep: Keep, filter: &'a Filter, cancel: &'a CancelToken) -> Self {
        let (source, limits, measure) = (Source::empty(), Limits::default(), Measure::default());
        Self { source, keep, filter, files: HashMap::new(), limits, measure, is_check: false, cancel }
    }

    /// Creates the state for a check of the paths alone.
    pub(super) fn check(filter: &'a Filter, cancel: &'a CancelToken) -> Self {
        Self { is_check: true, ..Self::new(Keep::default(), filter, cancel) }
    }

    /// Returns the entries found, if any.
    pub(super) fn finish(self) -> Result<Source, TransferError> {
        let Self { mut source, limits, .. } = self;
        if source.entries.is_empty() {
            return Err(match source.skipped.pop() {
                Some((path, error)) => TransferError::Path(path, io::Error::other(error)),
                None => TransferError::NothingToSend,
            });
        }
        source.totals = limits.totals;
        Ok(source)
    }

    /// Lists the entry at `disk` and everything below. The walk is depth first and sorted, so that
    /// equal trees give equal lists.
    pub(super) fn tree(&mut self, disk: PathBuf, relative: RelativePath) -> Result<(), TransferError> {
        let mut waiting = vec![(disk, relative)];
        while let Some((disk, relative)) = waiting.pop() {
            if self.cancel.is_cancelled() {
                return Err(TransferError::Cancelled);
            }
            match self.one(&disk, relative) {
                Ok(Some(directory)) => waiting.extend(self.children(&disk, &directory)),
                Ok(None) => {}
                Err(Fault::Skip(error)) => self.skip(disk, error),
                Err(Fault::Fatal(error)) => return Err(error),
            }
        }
        Ok(())
    }

    /// Lists one entry; returns its name if it is a directory to descend into.
    pub(super) fn one(&mut self, disk: &Path, relative: RelativePath) -> Result<Option<RelativePath>, Fault> {
        let metadata = match fs::symlink_metadata(disk) {
            Ok(metadata) => metadata,
            Err(_) if !self.filter.admits_bytes(relative.as_bytes(), None) => return Ok(None),
            Err(error) => return Err(Fault::Skip(FileError::source(&error))),
        };
        if !self.filter.admits(&relative, metadata.is_dir()) {
            return Ok(None);
        }
        let kind = self.kind(disk, &relative, &metadata).map_err(Fault::Skip)?;
        let mode = self.keep.mode(metadata.mode(), metadata.is_dir());
        let entry = Entry { path: relative.clone(), kind, modified: Modified::of(&metadata), mode };
        self.limits.admit(&entry).map_err(Fault::Fatal)?;
        self.source.entries.push(entry);
        self.source.root_of.push(self.source.roots.len() as u32 - 1);
        Ok(metadata.is_dir().then_some(relative))
    }

    fn kind(&mut self, disk: &Path, relative: &RelativePath, metadata: &Metadata) -> Result<EntryKind, FileError> {
        if metadata.is_dir() {
            return Ok(EntryKind::Directory);
        }
        if metadata.is_symlink() {
            return self.symbolic_link(disk, relative);
        }
        if !metadata.is_file() {
            return Err(FileError::new(FileErrorKind::Special, "a device, pipe or socket"));
        }
        if self.keep.hard_links && metadata.nlink() > 1 {
            let index = self.source.entries.len() as u32;
            let file = *self.files.entry((metadata.dev(), metadata.ino())).or_insert(index);
            if file != index {
                return Ok(EntryKind::HardLink { file });
            }
        }
        let (size, content) = self.size(disk, metadata)?;
        if !matches!(content, Content::File) {
            self.source.contents.insert(self.source.entries.len() as u32, content);
            if size != metadata.len() {
                return Ok(EntryKind::File { size });
            }
        }
        Ok(match self.data_of_sparse(disk, metadata) {
            Some(data) => EntryKind::SparseFile { size, data },
            None => EntryKind::File { size },
        })
    }

    fn size(&mut self, disk: &Path, metadata: &Metadata) -> Result<(u64, Content), FileError> {
        if self.is_check {
            return Ok((metadata.len(), Content::File));
        }
        self.measure.measure(disk, metadata, self.cancel).map_err(|error| FileError::source(&error))
    }

    /// Returns how many bytes are not in holes, if the file has holes and they are kept.
    fn data_of_sparse(&self, disk: &Path, metadata: &Metadata) -> Option<u64> {
        let size = metadata.len();
        // A small file arrives at once and as a whole.
        if !self.keep.holes || size <= CHUNK_LEN_MAX as u64 {
            return None;
        }
        // A small number of blocks does not prove holes: the file may be compressed, or its blocks
        // may not be allocated yet.
        if metadata.blocks().saturating_mul(BLOCK_LEN) >= size {
            return None;
        }
        // A file that cannot be opened fails when it is sent.
        let data = data_len(&fs::File::open(disk).ok()?, size);
        (data < size).then_some(data)
    }

    fn symbolic_link(&self, disk: &Path, relative: &RelativePath) -> Result<EntryKind, FileError> {
        if !self.keep.links {
            return Err(FileError::new(FileErrorKind::Link, "links are not kept"));
        }
        let target = fs::read_link(disk).map_err(|error| FileError::source(&error))?;
        let target = LinkTarget::new(target.as_os_str().as_bytes()).filter(|target| target.stays_inside(relative));
        let outside =
            || FileError::new(FileErrorKind::Link, "it is absolute, has .. after a name, or leads out of what is sent");
        target.map(|target| EntryKind::SymbolicLink { target }).ok_or_else(outside)
    }

    /// Returns the entries of a directory in descending order, because the walk takes from the end.
    fn children(&mut self, disk: &Path, relative: &RelativePath) -> Vec<(PathBuf, RelativePath)> {
        let names = fs::read_dir(disk)
            .and_then(|listing| listing.map(|child| child.map(name_and_kind)).collect::<io::Result<Vec<_>>>());
        let mut names = match names {
            Ok(names) => names,
            Err(error) => {
                self.skip(disk.to_owned(), FileError::source(&error));
                return Vec::new();
            }
        };
        names.sort_unstable_by(|a, b| b.cmp(a));
        let mut children = Vec::with_capacity(names.len());
        for (name, is_directory) in names {
            match relative.join(name.as_bytes()) {
                Ok(child) => children.push((disk.join(&name), child)),
                Err(error) => {
                    // An excluded entry needs no name that can be sent.
                    let path = [relative.as_bytes(), b"/", name.as_bytes()].concat();
                    if self.filter.admits_bytes(&path, is_directory) {
                        self.skip(disk.join(&name), name_error(error));
                    }
                }
            }
        }
        children
    }

    pub(super) fn skip(&mut self, path: PathBuf, error: FileError) {
        self.source.skipped_counts.count(&error);
        if self.source.skipped.len() < SKIPPED_KEPT_MAX {
            self.source.skipped.push((path, error));
        }
    }
}

/// Returns the name of a directory entry, and whether it is a directory, if the system reports
/// that.
fn name_and_kind(child: fs::DirEntry) -> (OsString, Option<bool>) {
    (child.file_name(), child.file_type().ok().map(|kind| kind.is_dir()))
}

/// Reason why a path is not listed.
pub(super) enum Fault {
    Skip(FileError),
    Fatal(TransferError),
}

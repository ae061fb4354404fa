//! Part files of small files, which were verified before anything was written.

use std::os::fd::AsFd;

use super::{
    Arc, AtomicU64, Errno, File, FileError, Mutex, OFlags, OsStr, OwnedFd, PART_MODE, PartFile, Recorded, Records,
    TargetTree, io, lock, open_regular, part_and_journal_names,
};
use crate::manifest::Entry;

impl PartFile {
    /// Creates and locks the part file for `entry`, whose name in `directory` is `name`, with its
    /// whole content. The file is not synced.
    pub(crate) fn create_whole(
        tree: &TargetTree,
        directory: Arc<OwnedFd>,
        name: &OsStr,
        entry: &Entry,
        bytes: &[u8],
    ) -> Result<Self, FileError> {
        let target = |error: io::Error| FileError::target(&error);
        let (part_name, journal_name) = part_and_journal_names(name);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let (file, is_new) = match rustix::fs::openat(&*directory, &part_name, flags, PART_MODE) {
            Ok(file) => (File::from(file), true),
            Err(Errno::EXIST) => (open_regular(&directory, &part_name).map_err(target)?, false),
            Err(errno) => return Err(target(errno.into())),
        };
        lock(&directory, &part_name, &file)?;
        if !is_new {
            file.set_len(0).map_err(target)?;
        }
        let part = Self {
            directory,
            name: name.to_owned(),
            part_name,
            journal_name,
            file,
            disk: Arc::clone(tree.disk()),
            reservation: tree.disk_space().reserve_nothing(),
            records: Mutex::new(Records::new(None, &Recorded::new())),
            may_have_journal: !is_new,
            dirty_bytes: AtomicU64::new(0),
            syncing: Mutex::new(()),
        };
        let written = if bytes.is_empty() { Ok(()) } else { part.write_at(bytes, 0) };
        written.and_then(|()| tree.set_time(&part.file, entry.modified)).map_err(|error| {
            part.discard();
            target(error)
        })?;
        Ok(part)
    }
}

/// Syncs `parts` in the order of their creation. A file whose sync fails is removed.
pub(crate) fn sync_together(tree: &TargetTree, parts: &[&PartFile]) -> Vec<io::Result<()>> {
    let files: Vec<_> = parts.iter().map(|part| part.file.as_fd()).collect();
    let synced = tree.disk().sync_together(&files);
    for (part, _) in parts.iter().zip(&synced).filter(|(_, synced)| synced.is_err()) {
        part.discard();
    }
    synced
}

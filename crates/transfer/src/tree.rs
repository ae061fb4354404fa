//! The target directory and everything below it, accessed without following symbolic links.
//!
//! Each component is opened relative to the one above with `O_NOFOLLOW`, so neither an existing
//! link nor one that appears half-way can lead outside. The path of the target directory itself may
//! contain links, because the user chose it.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat, Timespec, Timestamps, UTIME_OMIT};
use rustix::io::Errno;

use super::directory_journal::{DirectoryJournal, Made};
use super::disk::Disk;
use super::disk_space::DiskSpace;
use super::error::{FileError, FileErrorKind};
use super::keep::is_kept;
use super::manifest::Modified;
use super::names::RelativePath;
use super::own_file::{chmod_at, is_changeable, is_own};
use super::part_file::part_and_journal_names;

/// A directory that files are received into.
pub(crate) struct TargetTree {
    root: Arc<OwnedFd>,
    umask: u32,
    disk: Arc<dyn Disk>,
    disk_space: DiskSpace,
    directories: Mutex<DirectoryJournal>,
    state: Mutex<TreeState>,
}

/// An existing entry.
pub(crate) struct Located {
    pub(crate) directory: Arc<OwnedFd>,
    pub(crate) name: OsString,
    /// State of the entry itself, if it is a symbolic link.
    pub(crate) stat: Stat,
}

#[derive(Default)]
struct TreeState {
    /// Directory opened last, with its path: the next file is usually in the same one.
    last: Option<(Vec<u8>, Arc<OwnedFd>)>,
    /// Directories whose entries changed and which must be synced. At most one for each entry of
    /// the transfer.
    changed: BTreeSet<Vec<u8>>,
    /// Directories made by an earlier attempt that this one continues with, and their previous
    /// modes.
    reopened: BTreeMap<Vec<u8>, u32>,
    /// Existing directories that get the modes and times of this transfer.
    updated: BTreeSet<Vec<u8>>,
    /// Announced directories that could not be made. Nothing below them is made either: it would
    /// remain with the modes and times of directories that were never announced.
    refused: BTreeMap<Vec<u8>, FileError>,
}

impl TargetTree {
    /// Opens `directory`, which must exist. New files and directories lose the permission bits in
    /// `umask`. Files are written to `disk`.
    pub(crate) fn open(directory: &Path, umask: u32, disk: Arc<dyn Disk>) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = Arc::new(rustix::fs::open(directory, flags, Mode::empty())?);
        Ok(Self {
            directories: Mutex::new(DirectoryJournal::new(Arc::clone(&root))?),
            root,
            umask,
            disk_space: DiskSpace::new(Arc::clone(&disk)),
            disk,
            state: Mutex::new(TreeState::default()),
        })
    }

    /// Returns the disk that its files are written to.
    pub(crate) fn disk(&self) -> &Arc<dyn Disk> {
        &self.disk
    }

    /// Returns the accounting of the disk space for its files.
    pub(crate) fn disk_space(&self) -> &DiskSpace {
        &self.disk_space
    }

    /// Returns the directory of `path`, created if it is missing, and the last component of `path`.
    pub(crate) fn parent<'p>(&self, path: &'p RelativePath) -> Result<(Arc<OwnedFd>, &'p OsStr), FileError> {
        let (parents, name) = path.split_last();
        Ok((self.descend(parents, true)?, name))
    }

    /// Returns the entry under the name `path`; `None` if there is none.
    pub(crate) fn locate(&self, path: &RelativePath) -> Result<Option<Located>, FileError> {
        let (parents, name) = path.split_last();
        let Some(directory) = self.locate_directory(parents)? else { return Ok(None) };
        let name = name.to_owned();
        match stat_of(&directory, &name)? {
            Some(stat) => Ok(Some(Located { directory, name, stat })),
            None => Ok(None),
        }
    }

    fn locate_directory<'p>(
        &self,
        components: impl Iterator<Item = &'p OsStr>,
    ) -> Result<Option<Arc<OwnedFd>>, FileError> {
        let components: Vec<&OsStr> = components.collect();
        let mut path = Vec::new();
        components.iter().for_each(|component| push_component(&mut path, component));
        if let Some((last, directory)) = &self.lock().last
            && *last == path
        {
            return Ok(Some(Arc::clone(directory)));
        }
        let mut directory = Arc::clone(&self.root);
        for component in components {
            if stat_of(&directory, component)?.is_none() {
                return Ok(None);
            }
            directory = Arc::new(open_directory(&directory, component)?);
        }
        self.lock().last = Some((path, Arc::clone(&directory)));
        Ok(Some(directory))
    }

    /// Returns the length of the file `path`, or of its part from an earlier attempt; zero if there
    /// is neither. Creates nothing.
    pub(crate) fn len_of(&self, path: &RelativePath) -> u64 {
        let (parents, name) = path.split_last();
        let Ok(directory) = self.descend(parents, false) else { return 0 };
        let (part_name, _) = part_and_journal_names(name);
        let len = |name: &OsStr| match rustix::fs::statat(&*directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode).is_file() => stat.st_size as u64,
            _ => 0,
        };
        len(name).max(len(&part_name))
    }

    /// Reopens those of the `listed` directories that an earlier attempt has made and completed:
    /// their owner needs to write to them again. Waits up to `busy_wait` for an attempt that is
    /// about to end.
    pub(crate) fn reopen_directories(&self, listed: &BTreeSet<&[u8]>, busy_wait: Duration) {
        let known = self.directories().take_over(listed, busy_wait);
        for (path, made) in known.into_iter().filter(|(path, _)| listed.contains(path.as_slice())) {
            // A directory that was changed since is not ours any more.
            if let Some(mode) = self.reopen_directory(&path, made) {
                self.lock().reopened.insert(path, mode);
            }
        }
    }

    /// Returns the mode that the directory had; `None` if it is not the one that was made.
    fn reopen_directory(&self, path: &[u8], made: Made) -> Option<u32> {
        let path = RelativePath::from_components(path.split(|byte| *byte == b'/')).ok()?;
        let (parents, name) = path.split_last();
        let parent = self.descend(parents, false).ok()?;
        // The process may have been killed before the number of a new directory was known. Then nothing
        // is in it.
        if made.is_none() && !is_empty(&parent, name) {
            return None;
        }
        let journal = self.directories();
        let is_it = |stat: &Stat| {
            let is_directory = FileType::from_raw_mode(stat.st_mode).is_dir();
            is_directory && is_own(stat) && made.is_none_or(|made| made == journal.identity(stat))
        };
        let before = chmod_at(&parent, name, |mode| mode | 0o700, is_it).ok()??;
        Some(before.st_mode & 0o777)
    }

    /// Restores the modes of reopened directories, because the transfer does not take place.
    pub(crate) fn close_directories(&self) {
        let reopened = std::mem::take(&mut self.lock().reopened);
        for (path, mode) in reopened.into_iter().rev() {
            let Ok(path) = RelativePath::from_components(path.split(|byte| *byte == b'/')) else { continue };
            let (parents, name) = path.split_last();
            if let Ok(parent) = self.descend(parents, false) {
                let _ = chmod_at(&parent, name, |_| mode, is_own);
            }
        }
    }

    /// Creates the directory `path` with the permissions `mode`, but writable for its owner until
    /// [`TargetTree::settle_directory`]. An existing directory is used, and counts as created if an
    /// earlier attempt made it; with `updates`, it may be settled, too. Returns whether it must be
    /// settled.
    pub(crate) fn make_directory(&self, path: &RelativePath, mode: u16, updates: bool) -> Result<bool, FileError> {
        self.try_make_directory(path, mode, updates).inspect_err(|error| {
            self.lock().refused.insert(path.as_bytes().to_vec(), error.clone());
        })
    }

    fn try_make_directory(&self, path: &RelativePath, mode: u16, updates: bool) -> Result<bool, FileError> {
        let target = |error: io::Error| FileError::target(&error);
        let (parent, name) = self.parent(path)?;
        if let Ok(stat) = rustix::fs::statat(&*parent, name, AtFlags::SYMLINK_NOFOLLOW) {
            if self.lock().reopened.contains_key(path.as_bytes()) {
                return open_directory(&parent, name).map(|_| true);
            }
            let is_updatable = |stat: &Stat| FileType::from_raw_mode(stat.st_mode).is_dir() && is_changeable(stat);
            let is_updated = updates && is_updatable(&stat);
            if is_updated {
                if is_kept(mode, true) {
                    // Like in rsync. If this is not permitted, the operations that need it fail and
                    // report it.
                    let _ = chmod_at(&parent, name, |mode| mode | 0o700, is_updatable);
                }
                self.lock().updated.insert(path.as_bytes().to_vec());
            }
            return open_directory(&parent, name).map(|_| is_updated);
        }
        let mut journal = self.directories();
        journal.intend(path).map_err(target)?;
        // Other users never get more access than the final mode gives, also if the transfer is
        // interrupted.
        let mode = u32::from(mode) & 0o777 & !self.umask | 0o700;
        match rustix::fs::mkdirat(&*parent, name, Mode::from_raw_mode(mode)) {
            Ok(()) => {}
            Err(Errno::EXIST) => {
                open_directory(&parent, name)?;
                return Ok(false);
            }
            Err(errno) => return Err(target(errno.into())),
        }
        let noted =
            rustix::fs::statat(&*parent, name, AtFlags::SYMLINK_NOFOLLOW).map_err(io::Error::from).and_then(|stat| {
                let identity = journal.identity(&stat);
                journal.made(path, identity)
            });
        if let Err(error) = noted {
            let _ = rustix::fs::unlinkat(&*parent, name, AtFlags::REMOVEDIR);
            return Err(target(error));
        }
        drop(journal);
        self.note_changed(path);
        Ok(true)
    }

    /// Sets the final permissions and time of the directory `path` after all its content, if
    /// [`make_directory`](Self::make_directory) requested it. Syncs it if its entries changed.
    pub(crate) fn settle_directory(&self, path: &RelativePath, mode: u16, modified: Modified) -> Result<(), FileError> {
        let (parent, name) = self.parent(path)?;
        let directory = open_directory(&parent, name)?;
        let (has_changed, is_updated) = {
            let mut state = self.lock();
            (state.changed.remove(path.as_bytes()), state.updated.contains(path.as_bytes()))
        };
        let applied = if is_updated {
            self.update_directory(&directory, mode, modified)
        } else {
            self.set_mode(&directory, mode).and_then(|()| self.set_time(&directory, modified))
        };
        let synced = applied.and_then(|()| if has_changed { self.disk.sync_all(directory.as_fd()) } else { Ok(()) });
        synced.map_err(|error| FileError::target(&error))
    }

    /// Makes the directory `path` writable for its owner, if this process may.
    pub(crate) fn open_up(&self, path: &RelativePath) -> Result<(), FileError> {
        let (parents, name) = path.split_last();
        let parent = self.descend(parents, false)?;
        let is_it = |stat: &Stat| FileType::from_raw_mode(stat.st_mode).is_dir() && is_changeable(stat);
        chmod_at(&parent, name, |mode| mode | 0o700, is_it).map(drop).map_err(|error| FileError::target(&error))
    }

    /// Returns whether entries of the directory `path` changed since it was synced.
    pub(crate) fn has_changed(&self, path: &RelativePath) -> bool {
        self.lock().changed.contains(path.as_bytes())
    }

    /// Sets the properties of an existing directory that differ. Its set-id and sticky bits stay:
    /// they are this host's, and are never sent.
    fn update_directory(&self, directory: &OwnedFd, mode: u16, modified: Modified) -> io::Result<()> {
        let stat = rustix::fs::fstat(directory)?;
        let wanted = stat.st_mode & 0o7000 | self.mode(mode);
        if is_kept(mode, true) && stat.st_mode & 0o7777 != wanted {
            rustix::fs::fchmod(directory, Mode::from_raw_mode(wanted))?;
        }
        if Modified::of_stat(&stat) == modified { Ok(()) } else { self.set_time(directory, modified) }
    }

    /// Forgets the directories `paths` of a complete transfer: a later one finds them as they are.
    pub(crate) fn forget_directories<'p>(&self, paths: impl Iterator<Item = &'p RelativePath>) {
        self.directories().settle(paths);
    }

    /// Sets the permissions of an open file or directory.
    pub(crate) fn set_mode(&self, file: impl rustix::fd::AsFd, mode: u16) -> io::Result<()> {
        Ok(rustix::fs::fchmod(&file, Mode::from_raw_mode(self.mode(mode)))?)
    }

    /// Returns the permissions that a file or directory gets.
    pub(crate) fn mode(&self, mode: u16) -> u32 {
        u32::from(mode) & 0o777 & !self.umask
    }

    /// Sets the time of an open file or directory.
    pub(crate) fn set_time(&self, file: impl rustix::fd::AsFd, modified: Modified) -> io::Result<()> {
        Ok(rustix::fs::futimens(&file, &timestamps(modified))?)
    }

    /// Sets the time of the file or symbolic link `name`; links are not followed.
    pub(crate) fn set_time_at(&self, directory: &OwnedFd, name: &OsStr, modified: Modified) -> io::Result<()> {
        Ok(rustix::fs::utimensat(directory, name, &timestamps(modified), AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// Records that an entry of the directory of `path` was added or removed.
    pub(crate) fn note_changed(&self, path: &RelativePath) {
        let mut parent = Vec::new();
        for component in path.split_last().0 {
            push_component(&mut parent, component);
        }
        self.lock().changed.insert(parent);
    }

    /// Syncs every directory noted except those that are settled later. Until then, a power loss
    /// may undo a rename, but never leaves a partial file.
    pub(crate) fn sync_but(&self, later: &BTreeSet<&[u8]>) -> Result<(), FileError> {
        let mut now = Vec::new();
        self.lock().changed.retain(|path| {
            let is_later = later.contains(path.as_slice());
            if !is_later {
                now.push(path.clone());
            }
            is_later
        });
        for path in now {
            let components = path.split(|byte| *byte == b'/').filter(|component| !component.is_empty());
            let directory = self.descend(components.map(os_str), false)?;
            self.disk.sync_all(directory.as_fd()).map_err(|error| FileError::target(&error))?;
        }
        Ok(())
    }

    fn descend<'p>(&self, components: impl Iterator<Item = &'p OsStr>, make: bool) -> Result<Arc<OwnedFd>, FileError> {
        let components: Vec<&OsStr> = components.collect();
        let mut path = Vec::new();
        components.iter().for_each(|component| push_component(&mut path, component));
        if let Some((last, directory)) = &self.lock().last
            && *last == path
        {
            return Ok(Arc::clone(directory));
        }
        let mut directory = Arc::clone(&self.root);
        let mut above = Vec::new();
        for component in components {
            let mut here = above.clone();
            push_component(&mut here, component);
            directory = Arc::new(match open_directory(&directory, component) {
                Err(error) if make && error.kind == FileErrorKind::Target => {
                    if let Some(reason) = self.lock().refused.get(&here) {
                        return Err(reason.clone());
                    }
                    self.make_missing(&directory, component, &above)?;
                    open_directory(&directory, component)?
                }
                outcome => outcome?,
            });
            above = here;
        }
        self.lock().last = Some((path, Arc::clone(&directory)));
        Ok(directory)
    }

    /// Creates a directory that no entry announced, with default permissions.
    fn make_missing(&self, parent: &OwnedFd, name: &OsStr, parent_path: &[u8]) -> Result<(), FileError> {
        match rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(0o777 & !self.umask | 0o700)) {
            Ok(()) => {
                self.lock().changed.insert(parent_path.to_vec());
                Ok(())
            }
            Err(Errno::EXIST) => Ok(()),
            Err(errno) => Err(FileError::target(&errno.into())),
        }
    }

    fn directories(&self) -> std::sync::MutexGuard<'_, DirectoryJournal> {
        self.directories.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, TreeState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the state of `name` itself; `None` if there is nothing.
fn stat_of(directory: &OwnedFd, name: &OsStr) -> Result<Option<Stat>, FileError> {
    match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(FileError::target(&errno.into())),
    }
}

/// Returns the names in `directory`, sorted.
pub(crate) fn names_in(directory: &OwnedFd) -> io::Result<Vec<OsString>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if !matches!(name, b"." | b"..") {
            names.push(OsString::from_vec(name.to_vec()));
        }
    }
    names.sort_unstable_by(|a, b| a.as_bytes().cmp(b.as_bytes()));
    Ok(names)
}

fn timestamps(modified: Modified) -> Timestamps {
    let last_modification = Timespec { tv_sec: modified.seconds, tv_nsec: modified.nanoseconds.into() };
    Timestamps { last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT }, last_modification }
}

/// Returns whether `name` in `parent` is a directory without entries.
fn is_empty(parent: &OwnedFd, name: &OsStr) -> bool {
    let entries = open_directory(parent, name).ok().and_then(|directory| Dir::read_from(directory).ok());
    let is_entry = |entry: Result<rustix::fs::DirEntry, Errno>| {
        entry.is_ok_and(|entry| !matches!(entry.file_name().to_bytes(), b"." | b".."))
    };
    entries.is_some_and(|mut entries| !entries.any(is_entry))
}

/// Opens the directory `name` in `parent`; a symbolic link is an error.
pub(crate) fn open_directory(parent: &OwnedFd, name: &OsStr) -> Result<OwnedFd, FileError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(parent, name, flags, Mode::empty()).map_err(|errno| match errno {
        // With O_DIRECTORY, Linux reports a link as ENOTDIR, other systems as ELOOP.
        Errno::NOTDIR | Errno::LOOP => match rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode).is_symlink() => {
                FileError::new(FileErrorKind::SymbolicLink, name.display())
            }
            _ => FileError::new(FileErrorKind::Blocked, name.display()),
        },
        errno => FileError::target(&errno.into()),
    })
}

fn push_component(path: &mut Vec<u8>, component: &OsStr) {
    if !path.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(component.as_bytes());
}

fn os_str(bytes: &[u8]) -> &OsStr {
    OsStr::from_bytes(bytes)
}

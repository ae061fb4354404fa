//! A file that is being received: written at any offset in the folder of its target, and moved
//! there once it is verified and synced.
//!
//! ```text
//!   (none) ──open──▶ NAME.litz-part + NAME.litz-journal ──commit──▶ NAME
//!                          ▲            │
//!                          └──restart───┘ discard (the source changed; nothing verified;
//!                                         a sync failed and none succeeded before)
//! ```
//!
//! An advisory lock on the part file excludes a second transfer; it ends with the process that
//! holds it.

use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::{Advice, AtFlags, FileType, FlockOperation, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;

use super::disk::Disk;
use super::disk_space::Reservation;
use super::error::{FileError, FileErrorKind};
use super::journal::{Journal, JournalKey, Recorded};
use super::keep::is_kept;
use super::manifest::{Entry, Modified};
use super::names::{COMPONENT_LEN_MAX, JOURNAL_SUFFIX, PART_SUFFIX};
use super::own_file::{chmod_at, is_changeable, is_own};
use super::segment::Layout;
use super::tree::TargetTree;

mod records;
mod whole;

pub(crate) use whole::sync_together;

use records::Records;

/// Limit on the bytes of a file in the page cache that are not on disk. Without a limit the system
/// collects gigabytes and then blocks all writers while it writes them. With it, disk and network
/// work at the same time.
const DIRTY_BYTES_MAX: u64 = 128 << 20;

/// Mode of part files and journals: for the owner only.
const PART_MODE: Mode = Mode::RUSR.union(Mode::WUSR);

/// Mode bit that lets the owner read.
const OWNER_READS: u32 = 0o400;

/// State of a file's name before it is received.
pub(crate) enum Found {
    /// Nothing, or something that may be overwritten.
    Free,
    /// A regular file of the same size, and of nearly the same time if it may be overwritten:
    /// perhaps this very file. Its content must be compared.
    Same(File),
}

/// An unfinished file, open and locked.
#[derive(Debug)]
pub(crate) struct PartFile {
    directory: Arc<OwnedFd>,
    name: OsString,
    part_name: OsString,
    journal_name: OsString,
    file: File,
    disk: Arc<dyn Disk>,
    reservation: Reservation,
    records: Mutex<Records>,
    /// Whether there may be a journal to remove.
    may_have_journal: bool,
    /// Bytes written since the last flush to the disk.
    dirty_bytes: AtomicU64,
    /// Held during a flush.
    syncing: Mutex<()>,
}

/// Checks what exists under `name`.
///
/// # Errors
/// Fails if something exists that must not be replaced.
pub(crate) fn look(directory: &OwnedFd, name: &OsStr, entry: &Entry, overwrite: bool) -> Result<Found, FileError> {
    let stat = match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => stat,
        Err(Errno::NOENT) => return Ok(Found::Free),
        Err(errno) => return Err(FileError::target(&errno.into())),
    };
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => {
            return Err(FileError::new(FileErrorKind::Blocked, "the receiver has a directory with this name"));
        }
        FileType::RegularFile if entry.size() == Some(stat.st_size as u64) => {
            if let Ok(file) = open_existing(directory, name, entry)
                && file
                    .metadata()
                    .is_ok_and(|found| found.is_file() && (!overwrite || Modified::of(&found).is_near(entry.modified)))
            {
                return Ok(Found::Same(file));
            }
        }
        _ => {}
    }
    if overwrite { Ok(Found::Free) } else { Err(FileError::new(FileErrorKind::Exists, "")) }
}

/// Opens a file for reading. If an earlier attempt has moved it here, its mode may deny that.
fn open_existing(directory: &OwnedFd, name: &OsStr, entry: &Entry) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let open = || rustix::fs::openat(directory, name, flags, Mode::empty()).map(File::from);
    match open() {
        Err(Errno::ACCESS) if u32::from(entry.mode) & OWNER_READS == 0 => {
            let is_it = |stat: &Stat| {
                let is_time = Modified::of_stat(stat).is_near(entry.modified);
                FileType::from_raw_mode(stat.st_mode).is_file() && is_own(stat) && is_time
            };
            let Some(before) = chmod_at(directory, name, |mode| mode | OWNER_READS, is_it)? else {
                return Err(Errno::ACCESS.into());
            };
            let opened = open();
            // If the process is killed before this, `complete_in_place` does it.
            let _ = chmod_at(directory, name, |_| before.st_mode & 0o777, is_own);
            Ok(opened?)
        }
        opened => Ok(opened?),
    }
}

/// Completes the file of `entry` that existed before the transfer: sets its mode and time if files
/// may be overwritten. Otherwise restores its mode if an earlier attempt was killed while the file
/// was temporarily readable.
///
/// # Errors
/// Fails if one cannot be set. Another user's file is left unchanged.
pub(crate) fn complete_in_place(
    directory: &OwnedFd,
    name: &OsStr,
    entry: &Entry,
    tree: &TargetTree,
    overwrite: bool,
) -> Result<(), FileError> {
    let target = |error: io::Error| FileError::target(&error);
    let wanted = tree.mode(entry.mode);
    let is_it = |stat: &Stat| FileType::from_raw_mode(stat.st_mode).is_file() && is_changeable(stat);
    if overwrite && is_kept(entry.mode, false) {
        chmod_at(directory, name, |_| wanted, is_it).map_err(target)?;
    }
    if overwrite {
        let stat =
            rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).map_err(|errno| target(errno.into()))?;
        // It may have nearly the right time.
        if is_it(&stat) && Modified::of_stat(&stat) != entry.modified {
            tree.set_time_at(directory, name, entry.modified).map_err(target)?;
        }
    } else if wanted & OWNER_READS == 0 {
        let is_left = |stat: &Stat| {
            FileType::from_raw_mode(stat.st_mode).is_file()
                && is_own(stat)
                && stat.st_mode & 0o777 == wanted | OWNER_READS
        };
        // Best effort, because the file is in place and verified.
        let _ = chmod_at(directory, name, |_| wanted, is_left);
    }
    Ok(())
}

impl PartFile {
    /// Opens or creates the part file for `name` in `directory`, which is below `tree`, locks it,
    /// and reserves the disk space of the whole file, or of its `data` bytes if it has holes, so
    /// that a full disk is reported before anything is sent. Also returns the journal's records,
    /// which the caller verifies.
    pub(crate) fn open(
        tree: &TargetTree,
        directory: Arc<OwnedFd>,
        name: &OsStr,
        key: &JournalKey,
        layout: Layout,
        data: Option<u64>,
    ) -> Result<(Self, Recorded), FileError> {
        let target = |error: io::Error| FileError::target(&error);
        let (part_name, journal_name) = part_and_journal_names(name);
        let file = open_regular(&directory, &part_name).map_err(target)?;
        lock(&directory, &part_name, &file)?;
        let (journal, recorded) = if layout.count() > 1 {
            let journal_file = open_regular(&directory, &journal_name).map_err(target)?;
            let (journal, recorded) =
                resume_or_create(&**tree.disk(), &file, journal_file, key, layout).map_err(target)?;
            (Some(journal), recorded)
        } else {
            file.set_len(0).map_err(target)?;
            (None, Recorded::new())
        };
        let reserved = match data {
            Some(data) => tree.disk_space().reserve_with_holes(&file, layout.size(), data),
            None => tree.disk_space().reserve(&file, layout.size()),
        };
        let reservation = reserved.map_err(|error| {
            if recorded.is_empty() {
                discard(&directory, &part_name, &journal_name);
            }
            target(error)
        })?;
        let part = Self {
            directory,
            name: name.to_owned(),
            part_name,
            journal_name,
            file,
            disk: Arc::clone(tree.disk()),
            reservation,
            records: Mutex::new(Records::new(journal, &recorded)),
            may_have_journal: true,
            dirty_bytes: AtomicU64::new(0),
            syncing: Mutex::new(()),
        };
        Ok((part, recorded))
    }

    /// Returns the part file, for reading.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Writes `bytes` at `offset`. The thread that reaches half the bound flushes to the disk.
    /// Other threads continue, and wait only if they fill the other half before the flush is done.
    pub(crate) fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.reservation.use_up(bytes.len() as u64);
        self.disk.write_all_at(&self.file, bytes, offset)?;
        let dirty = self.dirty_bytes.fetch_add(bytes.len() as u64, Ordering::SeqCst) + bytes.len() as u64;
        let turn = if dirty >= DIRTY_BYTES_MAX {
            Some(self.syncing.lock().unwrap_or_else(PoisonError::into_inner))
        } else if dirty >= DIRTY_BYTES_MAX / 2 {
            self.syncing.try_lock().ok()
        } else {
            None
        };
        // The previous holder of the lock may have flushed already.
        if turn.is_some() && self.dirty_bytes.load(Ordering::SeqCst) >= DIRTY_BYTES_MAX / 2 {
            let written = self.dirty_bytes.load(Ordering::SeqCst);
            self.sync(|disk, file| disk.sync_data(file))?;
            self.dirty_bytes.fetch_sub(written, Ordering::SeqCst);
        }
        Ok(())
    }

    /// Turns `len` bytes at `offset` into a hole, whatever an earlier attempt has written there.
    pub(crate) fn make_hole(&self, len: u64, offset: u64) -> io::Result<()> {
        self.disk.make_hole(&self.file, len, offset)
    }

    /// Records that `segment` is written and verified.
    pub(crate) fn record(&self, segment: u32, value: &[u8; 32]) -> io::Result<()> {
        self.records().append(segment, value)
    }

    /// Syncs the file, sets its metadata, and moves it to its name: completely or, on error, not at
    /// all.
    pub(crate) fn commit(&self, entry: &Entry, tree: &TargetTree, overwrite: bool) -> Result<(), FileError> {
        let target = |error: io::Error| FileError::target(&error);
        tree.set_time(&self.file, entry.modified).map_err(target)?;
        self.sync(|disk, file| disk.sync_all(file.as_fd())).map_err(target)?;
        self.publish(entry, tree, overwrite)
    }

    /// Moves a synced file to its name.
    pub(crate) fn publish(&self, entry: &Entry, tree: &TargetTree, overwrite: bool) -> Result<(), FileError> {
        let target = |error: io::Error| FileError::target(&error);
        // The content is complete only now, so others may read it. The mode is not set after the
        // rename: if the process were killed in between, the file would keep the mode of a part
        // file.
        tree.set_mode(&self.file, entry.mode).map_err(target)?;
        if let Err(error) = self.rename(overwrite) {
            let _ = rustix::fs::fchmod(&self.file, PART_MODE);
            return Err(target(error));
        }
        tree.note_changed(&entry.path);
        // From here on the file is in place. A leftover journal names a missing part file, which is
        // harmless.
        if self.may_have_journal {
            let _ = rustix::fs::unlinkat(&*self.directory, &self.journal_name, AtFlags::empty());
        }
        Ok(())
    }

    /// Brings written data to the disk. If that fails, only data that an earlier sync brought there
    /// are kept.
    fn sync(&self, sync: impl FnOnce(&dyn Disk, &File) -> io::Result<()>) -> io::Result<()> {
        let covered = self.records().begin_sync();
        let synced = sync(&*self.disk, &self.file);
        let mut records = self.records();
        match synced {
            // A sync of another thread may have failed in the meantime. The system reports that
            // error only once.
            Ok(()) => records.check().map(|()| records.on_synced(covered)),
            Err(error) => {
                if !records.on_sync_failed() {
                    self.discard();
                }
                Err(error)
            }
        }
    }

    fn records(&self) -> MutexGuard<'_, Records> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes the part file and the journal.
    pub(crate) fn discard(&self) {
        discard(&self.directory, &self.part_name, &self.journal_name);
    }

    fn rename(&self, overwrite: bool) -> io::Result<()> {
        let (from, to) = (&self.part_name, &self.name);
        if !overwrite {
            match rustix::fs::renameat_with(&*self.directory, from, &*self.directory, to, RenameFlags::NOREPLACE) {
                // Some file systems cannot guarantee this in one step. Then check first, and accept
                // the race.
                Err(Errno::INVAL | Errno::NOSYS) => {}
                outcome => return Ok(outcome?),
            }
            match rustix::fs::statat(&*self.directory, to, AtFlags::SYMLINK_NOFOLLOW) {
                Err(Errno::NOENT) => {}
                Ok(_) => return Err(io::ErrorKind::AlreadyExists.into()),
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(rustix::fs::renameat(&*self.directory, from, &*self.directory, to)?)
    }
}

fn discard(directory: &OwnedFd, part_name: &OsStr, journal_name: &OsStr) {
    // Best effort: the next attempt detects and discards leftovers.
    let _ = rustix::fs::unlinkat(directory, journal_name, AtFlags::empty());
    let _ = rustix::fs::unlinkat(directory, part_name, AtFlags::empty());
}

/// Removes the files that an earlier attempt left next to a complete file.
pub(crate) fn discard_remains(directory: &OwnedFd, name: &OsStr) {
    let (part_name, journal_name) = part_and_journal_names(name);
    let is_link = |stat: rustix::fs::Stat| FileType::from_raw_mode(stat.st_mode).is_symlink();
    if rustix::fs::statat(directory, &part_name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(is_link) {
        let _ = rustix::fs::unlinkat(directory, &part_name, AtFlags::empty());
    }
    // Removes a part file only if no other transfer holds its lock.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    if let Ok(file) = rustix::fs::openat(directory, &part_name, flags, Mode::empty()) {
        if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            return;
        }
        let _ = rustix::fs::unlinkat(directory, &part_name, AtFlags::empty());
    }
    let _ = rustix::fs::unlinkat(directory, &journal_name, AtFlags::empty());
}

/// Returns the names of part file and journal. A name too long for a suffix is replaced by its
/// hash.
pub(crate) fn part_and_journal_names(name: &OsStr) -> (OsString, OsString) {
    let stem = if name.len() + JOURNAL_SUFFIX.len() > COMPONENT_LEN_MAX {
        blake3::hash(name.as_bytes()).to_hex().as_bytes().to_vec()
    } else {
        name.as_bytes().to_vec()
    };
    let with = |suffix: &[u8]| OsString::from_vec([stem.as_slice(), suffix].concat());
    (with(PART_SUFFIX), with(JOURNAL_SUFFIX))
}

/// Continues the journal if it is for `key`; otherwise empties the part file and starts a journal.
fn resume_or_create(
    disk: &dyn Disk,
    part: &File,
    journal: File,
    key: &JournalKey,
    layout: Layout,
) -> io::Result<(Journal, Recorded)> {
    // An unreadable journal is treated as a missing one.
    if let Ok(Some(resumed)) = Journal::resume(journal.try_clone()?, key, layout)
        // An error not yet seen by any process is reported here: data in memory may not be on the
        // disk.
        && (resumed.1.is_empty() || disk.sync_data(part).is_ok())
    {
        // This makes the caller verify the data on the disk.
        let _ = rustix::fs::fadvise(part, 0, None, Advice::DontNeed);
        return Ok(resumed);
    }
    part.set_len(0)?;
    Ok((Journal::create(journal, key)?, Recorded::new()))
}

/// Opens or creates a part file or journal. It must be a regular file without other hard links,
/// which a write would change, too.
fn open_regular(directory: &OwnedFd, name: &OsStr) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = match rustix::fs::openat(directory, name, flags, PART_MODE) {
        // Its process was killed just before moving a file into place that its owner may not write
        // to or read.
        Err(Errno::ACCESS) => {
            let is_it = |stat: &Stat| FileType::from_raw_mode(stat.st_mode).is_file() && stat.st_nlink == 1;
            match chmod_at(directory, name, |_| PART_MODE.as_raw_mode(), is_it) {
                // There is none: the folder itself denies creating one.
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(Errno::ACCESS.into()),
                outcome => outcome?.ok_or_else(|| not_ours(name))?,
            };
            rustix::fs::openat(directory, name, flags, PART_MODE)
        }
        opened => opened,
    };
    let file = File::from(opened?);
    let metadata = check_regular(&file, name)?;
    if metadata.mode() & 0o777 != PART_MODE.as_raw_mode() {
        // Its process was killed just before moving the file into place.
        rustix::fs::fchmod(&file, PART_MODE)?;
    }
    Ok(file)
}

fn check_regular(file: &File, name: &OsStr) -> io::Result<Metadata> {
    let metadata = file.metadata()?;
    if !metadata.is_file() || metadata.nlink() > 1 {
        return Err(not_ours(name));
    }
    Ok(metadata)
}

fn not_ours(name: &OsStr) -> io::Error {
    let what = format!("{} is not a plain file of ours: move it away", name.display());
    io::Error::new(io::ErrorKind::InvalidInput, what)
}

/// Locks the part file, and makes sure that it is still the one under its name.
fn lock(directory: &OwnedFd, name: &OsStr, file: &File) -> Result<(), FileError> {
    let busy = || FileError::new(FileErrorKind::Busy, "");
    // Any other error means a file system without locks, where the user must avoid concurrent
    // transfers.
    if !try_lock(file) {
        return Err(busy());
    }
    let opened = file.metadata().map_err(|error| FileError::target(&error))?;
    // Between the open and the lock, the previous holder may have moved or removed the file.
    let named = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).map_err(|_| busy())?;
    if (named.st_ino, named.st_dev) == (opened.ino(), opened.dev()) { Ok(()) } else { Err(busy()) }
}

/// Locks the file; returns false if another transfer holds the lock. A lock belongs to all copies
/// of its descriptor: a process being started by this one has copies until it executes its program.
#[expect(clippy::disallowed_methods, reason = "the end of another process's lock is not signalled")]
fn try_lock(file: &File) -> bool {
    for _ in 0..LOCK_TRIES {
        match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => std::thread::sleep(LOCK_PAUSE),
            _ => return true,
        }
    }
    false
}

/// Number of tries: 100 ms in total, more than starting a process takes.
const LOCK_TRIES: u32 = 20;
const LOCK_PAUSE: std::time::Duration = std::time::Duration::from_millis(5);

#[cfg(test)]
mod tests;

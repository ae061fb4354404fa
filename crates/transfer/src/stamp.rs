//! The state of a file as reported by its file system, which reveals changes.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;

use rustix::event::{Timespec, poll};
use rustix::time::{ClockId, clock_gettime};

use crate::manifest::Modified;

/// Identity, length and times of a file. Programs cannot set the time of the last status change, so
/// it also reveals a write after which the modification time was set back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: Modified,
    status_changed: Modified,
}

/// Difference between two stamps of one file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Change {
    /// The file is the same.
    None,
    /// Only the status changed: its mode, owner or links; or the content changed, and the time was
    /// set back.
    Status,
    /// The content changed.
    Content,
}

impl Stamp {
    pub(crate) fn of(metadata: &Metadata) -> Self {
        let status_changed = Modified { seconds: metadata.ctime(), nanoseconds: metadata.ctime_nsec() as u32 };
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.len(),
            modified: Modified::of(metadata),
            status_changed,
        }
    }

    /// Takes a stamp that differs after every later change. A file system's clock moves in steps,
    /// so a change within the same step has the same time: the stamp is taken when that step is
    /// over. Returns `None` if the file changes all the time.
    pub(crate) fn settled(file: &File) -> io::Result<Option<Self>> {
        for _ in 0..=WAITS_MAX {
            let stamp = Self::of(&file.metadata()?);
            if !stamp.is_recent() {
                return Ok(Some(stamp));
            }
            let _interrupted = poll(&mut [], Some(&CLOCK_STEP));
        }
        Ok(None)
    }

    /// Returns whether the stamp belongs to a file with this length and time.
    pub(crate) fn is_listed(&self, size: u64, modified: Option<Modified>) -> bool {
        self.size == size && modified.is_none_or(|modified| self.modified == modified)
    }

    /// Returns the change from this stamp to a later one.
    pub(crate) fn change_to(&self, later: &Self) -> Change {
        if self == later {
            Change::None
        } else if (Self { status_changed: self.status_changed, ..*later }) == *self {
            Change::Status
        } else {
            Change::Content
        }
    }

    /// Returns whether a further change may get the same time as the last one.
    fn is_recent(&self) -> bool {
        let now = clock_gettime(ClockId::Realtime);
        let ns = |seconds: i64, nanoseconds: i64| i128::from(seconds) * 1_000_000_000 + i128::from(nanoseconds);
        let changed = ns(self.status_changed.seconds, self.status_changed.nanoseconds.into());
        // The clock of a file server may be ahead.
        (ns(now.tv_sec, now.tv_nsec) - changed).unsigned_abs() < CLOCK_STEP.tv_nsec as u128
    }
}

/// Upper bound of a file system's clock step: 20 ms. The kernel stamps files with the time of its
/// last timer tick, and the slowest ticks come every 10 ms.
const CLOCK_STEP: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// Number of waits after which a file that keeps changing is given up.
const WAITS_MAX: u32 = 3;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{FileExt, PermissionsExt};

    use super::*;

    fn stamp(file: &File) -> Stamp {
        Stamp::settled(file).unwrap().unwrap()
    }

    #[test]
    fn changes_of_content_and_of_status_are_told_apart() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(b"content", 0).unwrap();
        let before = stamp(&file);
        assert_eq!(before.change_to(&stamp(&file)), Change::None);
        file.set_permissions(std::fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(before.change_to(&stamp(&file)), Change::Status);
        let modified = file.metadata().unwrap().modified().unwrap();
        file.write_all_at(b"C", 0).unwrap();
        assert_eq!(before.change_to(&stamp(&file)), Change::Content);
        file.set_modified(modified).unwrap();
        assert_eq!(before.change_to(&stamp(&file)), Change::Status);
        file.set_len(3).unwrap();
        file.set_modified(modified).unwrap();
        assert_eq!(before.change_to(&stamp(&file)), Change::Content);
    }

    #[test]
    fn a_write_right_after_the_stamp_has_another_time() {
        let file = tempfile::tempfile().unwrap();
        for round in 0..10 {
            file.write_all_at(&[round], 0).unwrap();
            let before = stamp(&file);
            file.write_all_at(&[round + 1], 0).unwrap();
            assert_ne!(before, Stamp::of(&file.metadata().unwrap()));
        }
    }
}

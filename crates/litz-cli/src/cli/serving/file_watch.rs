//! Notices that a small file has changed, without reading it.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::cli::host;

/// Two changes within the resolution of a file system's time stamps look like one. A file that
/// changed less than this many seconds ago therefore counts as changed again.
const RECENT_SECONDS: u64 = 2;

/// A file and its state at the last look.
pub(crate) struct FileWatch {
    path: PathBuf,
    seen: Option<Seen>,
}

/// None for a file that cannot be looked at.
#[derive(PartialEq, Eq)]
struct Seen {
    stamp: Option<Stamp>,
    is_recent: bool,
}

/// Values that change when the file is written, replaced, or given to others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Stamp {
    device: u64,
    inode: u64,
    bytes: u64,
    mode: u32,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl FileWatch {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, seen: None }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the file may have changed since the last call: always at the first. The caller then
    /// reads it, so a change between this look and the reading is noticed by the next call.
    pub(crate) fn take_change(&mut self) -> bool {
        let metadata = std::fs::metadata(&self.path).ok();
        let is_recent = metadata.as_ref().is_some_and(|metadata| {
            let changed = metadata.mtime().max(metadata.ctime());
            u64::try_from(changed).is_ok_and(|changed| host::now_unix() < changed.saturating_add(RECENT_SECONDS))
        });
        let seen = Seen { stamp: metadata.as_ref().map(Stamp::of), is_recent };
        let is_same = self.seen.as_ref().is_some_and(|before| before.stamp == seen.stamp && !before.is_recent);
        self.seen = Some(seen);
        !is_same
    }

    /// What the last look found.
    pub(crate) fn stamp(&self) -> Option<Stamp> {
        self.seen.as_ref().and_then(|seen| seen.stamp.clone())
    }
}

impl Stamp {
    fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            bytes: metadata.len(),
            mode: metadata.mode(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_noticed_and_an_old_unchanged_file_is_not_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let mut watch = FileWatch::new(path.clone());
        assert!(watch.take_change(), "the first look");
        assert!(!watch.take_change(), "there is no file");
        std::fs::write(&path, "one").unwrap();
        assert!(watch.take_change());
        // The change time cannot be set, so the test sets what the watch has seen.
        watch.seen.as_mut().unwrap().is_recent = false;
        assert!(!watch.take_change(), "nothing changed");
        assert!(watch.take_change(), "it changed a moment ago, so another change may look the same");
        std::fs::remove_file(&path).unwrap();
        assert!(watch.take_change());
        assert!(!watch.take_change());
    }

    #[test]
    fn a_file_that_was_given_to_others_has_changed() {
        use std::os::unix::fs::PermissionsExt;
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut watch = FileWatch::new(file.path().to_owned());
        assert!(watch.take_change());
        let before = watch.stamp();
        std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(0o666)).unwrap();
        assert!(watch.take_change());
        assert_ne!(watch.stamp(), before);
    }
}

//! Our own files and directories whose modes deny us access: those of a receiver that is not root.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags, Stat};

/// Sets the mode of `name` in `directory` if `is_it` confirms its identity. It need not be
/// readable, and a symbolic link is not followed. Returns its previous state; `None` if `is_it`
/// returned false.
pub(crate) fn chmod_at(
    directory: &OwnedFd,
    name: &OsStr,
    mode: impl FnOnce(u32) -> u32,
    is_it: impl FnOnce(&Stat) -> bool,
) -> io::Result<Option<Stat>> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let found = rustix::fs::openat(directory, name, flags, Mode::empty())?;
    let stat = rustix::fs::fstat(&found)?;
    if !is_it(&stat) {
        return Ok(None);
    }
    let (before, wanted) = (stat.st_mode & 0o777, mode(stat.st_mode & 0o777));
    if before != wanted {
        // The set-group-ID bit of a directory belongs to the receiver.
        let kept = if FileType::from_raw_mode(stat.st_mode).is_dir() { stat.st_mode & 0o7000 } else { 0 };
        // The descriptor grants no access, and fchmodat(2) would follow a link that took the name's
        // place.
        let path = format!("/proc/self/fd/{}", found.as_fd().as_raw_fd());
        rustix::fs::chmod(path, Mode::from_raw_mode(wanted | kept))?;
    }
    Ok(Some(stat))
}

/// Returns whether this process may set the mode and the time of the file.
pub(crate) fn is_changeable(stat: &Stat) -> bool {
    is_own(stat) || rustix::process::geteuid().is_root()
}

/// Returns whether the file belongs to the user of this process.
pub(crate) fn is_own(stat: &Stat) -> bool {
    stat.st_uid == rustix::process::geteuid().as_raw()
}

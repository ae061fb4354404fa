//! Files that only their owner may read. They are replaced atomically: after a crash there is the
//! old file or the new one.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use zeroize::Zeroizing;

use crate::base32;

/// Mode bits that give access to others than the owner.
const OTHERS: u32 = 0o077;

/// Mode bits that let others than the owner write.
const WRITE_BY_OTHERS: u32 = 0o022;

/// Flag for files that may turn out to be pipes, whose open call would block.
pub const NON_BLOCKING: i32 = OFlags::NONBLOCK.bits() as i32;

/// Replaces `path` by a file holding `bytes`, readable by the owner only, synced to the disk with
/// its directory.
///
/// # Errors
/// Fails if the file cannot be written or replaced, and then leaves the old file. Also fails if the
/// directory cannot be synced; then the new file is in place.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = write_temporary(path, bytes)?;
    fs::rename(&temporary, path).inspect_err(|_| discard(&temporary))?;
    sync_directory(path)
}

/// Does the same as [`replace`], but fails with [`io::ErrorKind::AlreadyExists`] if `path` exists.
///
/// # Errors
/// Same errors as [`replace`]; also fails if the file exists.
pub fn create_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = write_temporary(path, bytes)?;
    // A link, unlike a rename, never replaces: two processes that create the same file at once
    // cannot both succeed.
    let linked = fs::hard_link(&temporary, path);
    discard(&temporary);
    linked?;
    sync_directory(path)
}

/// Returns the content of `path`, at most `max_len` bytes, and whether others than the owner may
/// read it.
///
/// # Errors
/// Fails if it cannot be read. Returns [`io::ErrorKind::InvalidData`] if it is longer.
pub fn read_bounded(path: &Path, max_len: u64) -> io::Result<(Vec<u8>, bool)> {
    let file = File::open(path)?;
    let open_to_others = file.metadata()?.mode() & OTHERS != 0;
    let mut bytes = Vec::new();
    file.take(max_len + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max_len {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("the file is longer than {max_len} bytes")));
    }
    Ok((bytes, open_to_others))
}

/// Does the same as [`read_bounded`] for a file that this program wrote: a pipe, a device or a
/// directory is an error. Opening a pipe would block. The bytes are erased on drop.
///
/// # Errors
/// Same errors as [`read_bounded`], and [`io::ErrorKind::InvalidInput`] if it is not a regular
/// file.
pub fn read_own(path: &Path, max_len: u64) -> io::Result<(Zeroizing<Vec<u8>>, bool)> {
    let file = OpenOptions::new().read(true).custom_flags(NON_BLOCKING).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file: move it away"));
    }
    if metadata.len() > max_len {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("the file is longer than {max_len} bytes")));
    }
    // Enough capacity from the start leaves no copy behind in freed memory.
    let mut bytes = Zeroizing::new(Vec::with_capacity(metadata.len() as usize + 64));
    file.take(metadata.len()).read_to_end(&mut bytes)?;
    Ok((bytes, metadata.mode() & OTHERS != 0))
}

/// Returns whether others than the owner may create, replace or remove files in `directory`.
///
/// # Errors
/// Fails if that cannot be determined.
pub fn is_writable_by_others(directory: &Path) -> io::Result<bool> {
    Ok(fs::metadata(directory)?.mode() & WRITE_BY_OTHERS != 0)
}

/// Creates `directory` and its missing parents, for the owner only.
///
/// # Errors
/// Fails if it cannot be created. An existing directory is no error.
pub fn create_directory(directory: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)
}

fn write_temporary(path: &Path, bytes: &[u8]) -> io::Result<PathBuf> {
    let mut name = OsString::from(".");
    name.push(
        path.file_name().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the path has no file name"))?,
    );
    // The suffix is random, so that the name collides neither with another writer's file nor with
    // one left by a killed process.
    let mut suffix = [0; 5];
    #[expect(clippy::disallowed_methods, reason = "two processes must not choose one temporary name")]
    aws_lc_rs::rand::fill(&mut suffix).map_err(|_| io::Error::other("the system provided no randomness"))?;
    name.push(format!(".{}.new", base32::encode(&suffix)));
    let temporary = path.with_file_name(name);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
    file.write_all(bytes).and_then(|()| file.sync_all()).inspect_err(|_| discard(&temporary))?;
    Ok(temporary)
}

fn discard(path: &Path) {
    // Best effort: a leftover costs a few bytes and is never read.
    let _ = fs::remove_file(path);
}

fn sync_directory(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(parent)?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_is_its_owners_alone_and_made_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("secret");
        create_new(&path, b"first").unwrap();
        assert_eq!(create_new(&path, b"second").unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(read_bounded(&path, 5).unwrap(), (b"first".to_vec(), false));
        replace(&path, b"second").unwrap();
        assert_eq!(read_bounded(&path, 5).unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "no temporary file stays");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(read_bounded(&path, 6).unwrap().1, "the group may read it");
    }

    #[test]
    fn a_pipe_in_place_of_a_file_is_an_error_and_not_a_wait() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("secret");
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR).unwrap();
        assert_eq!(read_own(&path, 5).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert_eq!(read_own(directory.path(), 5).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        replace(&path, b"secret").unwrap();
        assert_eq!(read_own(&path, 5).unwrap_err().kind(), io::ErrorKind::InvalidData);
        let (bytes, open_to_others) = read_own(&path, 6).unwrap();
        assert_eq!((bytes.as_slice(), open_to_others), (b"secret".as_slice(), false));
    }

    #[test]
    fn a_directory_that_others_may_write_is_recognised() {
        let directory = tempfile::tempdir().unwrap();
        for (mode, expected) in [(0o700, false), (0o755, false), (0o770, true), (0o702, true), (0o1777, true)] {
            fs::set_permissions(directory.path(), fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(is_writable_by_others(directory.path()).unwrap(), expected, "{mode:o}");
        }
    }
}

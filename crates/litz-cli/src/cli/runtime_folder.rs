//! Where running commands of a user have their sockets, and what they have changed.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use credentials::private_file;

/// The folder of root.
pub(crate) const ROOTS: &str = "/run/litz";

/// The mode bits of a folder in which only the owner of a file may replace it, and of one that all users may write.
const STICKY: u32 = 0o1000;
const WRITE_BY_ALL: u32 = 0o002;

/// The folder for them: of root in `/run`, of other users where the system has one for each of them
/// (XDG_RUNTIME_DIR). `None` without that.
pub(crate) fn runtime_folder() -> Option<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return Some(PathBuf::from(ROOTS));
    }
    let parent = std::env::var_os("XDG_RUNTIME_DIR").filter(|folder| !folder.is_empty())?;
    Some(PathBuf::from(parent).join("litz"))
}

/// Makes the folder, for its owner only, if it is not there, and [checks](check) it.
///
/// # Errors
/// A message for the user.
pub(crate) fn prepare(folder: &Path) -> Result<(), String> {
    private_file::create_directory(folder).map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
    check(folder)
}

/// Refuses a folder in which another user could put a file: what is in it is done with the rights of this command. A
/// folder that is not there has none.
///
/// # Errors
/// A message for the user.
pub(crate) fn check(folder: &Path) -> Result<(), String> {
    let shown = folder.display();
    let path = match fs::canonicalize(folder) {
        Ok(path) => path,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(format!("cannot look at {shown}: {error}")),
    };
    let metadata =
        |path: &Path| fs::metadata(path).map_err(|error| format!("cannot look at {}: {error}", path.display()));
    let owner = metadata(&path)?.uid();
    let own = rustix::process::geteuid().as_raw();
    if ![0, own].contains(&owner) {
        return Err(format!(
            "{shown} belongs to the user {owner}, who could have this command undo other changes than its own: \
             remove it, or name another folder with RUNTIME_DIRECTORY"
        ));
    }
    if private_file::is_writable_by_others(&path).map_err(|error| format!("cannot look at {shown}: {error}"))? {
        return Err(format!(
            "other users may write to {shown}, and could have this command undo other changes than its own: look \
             at what is in it, and run `chmod go-w '{shown}'`"
        ));
    }
    for parent in path.ancestors().skip(1) {
        let mode = metadata(parent)?.mode();
        if mode & WRITE_BY_ALL != 0 && mode & STICKY == 0 {
            return Err(format!(
                "all users may write to {}, and could replace {shown}: run `chmod o-w '{}'`",
                parent.display(),
                parent.display()
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_folder_that_another_user_could_write_is_refused_with_what_to_do() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("run");
        assert_eq!(check(&folder), Ok(()), "it is not there");
        prepare(&folder).unwrap();
        let set = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        assert_eq!(fs::metadata(&folder).unwrap().mode() & 0o777, 0o700);
        for (mode, is_refused) in [(0o755, false), (0o770, true), (0o702, true), (0o1777, true), (0o700, false)] {
            set(&folder, mode);
            assert_eq!(prepare(&folder).is_err_and(|why| why.contains("chmod go-w")), is_refused, "{mode:o}");
        }
        for (mode, is_refused) in [(0o777, true), (0o1777, false)] {
            set(parent.path(), mode);
            assert_eq!(check(&folder).is_err_and(|why| why.contains("could replace")), is_refused, "{mode:o}");
        }
        // Only root can make a folder of another user.
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&folder, Some(12_345), None).unwrap();
            assert!(check(&folder).is_err_and(|why| why.contains("the user 12345")));
        }
    }
}

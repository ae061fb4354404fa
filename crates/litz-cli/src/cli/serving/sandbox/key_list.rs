//! Where a server may read the list of keys again, which editors replace by another file of its name.
//!
//! Landlock knows the file that was there, and not one that replaces it; a right in the folder holds for both, and
//! for all that is in the folder, now and later. So a server of root gets the folder only if nothing in it is kept
//! from other users of the host. Of those of others, the modes of files hold.

use std::fs::{DirEntry, Metadata, read_dir};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::folder_of;

/// The most files and folders that are looked at. A folder with more is not one for a list.
const ENTRIES_MAX: usize = 1000;

/// The mode bit that lets every user read.
const OTHERS_READ: u32 = 0o004;

/// The mode bits that let every user open what is in a folder.
const OTHERS_ENTER: u32 = 0o005;

/// The folder of the list at `path`, or for root the list alone if the folder holds what others may not read; the
/// same for the file that it is a link to.
pub(super) fn places(path: &Path) -> Vec<PathBuf> {
    let named = [Some(path.to_owned()), path.canonicalize().ok()];
    let is_root = rustix::process::geteuid().is_root();
    let exists = named.into_iter().flatten().filter(|list| list.exists());
    exists.map(|list| if !is_root || is_only_for_lists(&list) { folder_of(&list) } else { list }).collect()
}

/// Whether the folder of `list` holds only files that every user may read, the list, and what an editor makes of it.
fn is_only_for_lists(list: &Path) -> bool {
    let Some(name) = list.file_name().map(|name| name.to_string_lossy().into_owned()) else { return false };
    let mut left = ENTRIES_MAX;
    let is_of_list = |entry: &DirEntry| entry.file_name().to_string_lossy().contains(&name);
    holds_nothing_private(&folder_of(list), &is_of_list, &mut left).unwrap_or(false)
}

fn holds_nothing_private(folder: &Path, is_of_list: &dyn Fn(&DirEntry) -> bool, left: &mut usize) -> io::Result<bool> {
    for entry in read_dir(folder)? {
        let entry = entry?;
        let Some(rest) = left.checked_sub(1) else { return Ok(false) };
        *left = rest;
        // lstat: Landlock checks the file that a link leads to by its own place.
        let metadata = entry.metadata()?;
        let is_public = if metadata.is_dir() {
            has(&metadata, OTHERS_ENTER) && holds_nothing_private(&entry.path(), &|_| false, left)?
        } else {
            metadata.is_symlink() || metadata.is_file() && (has(&metadata, OTHERS_READ) || is_of_list(&entry))
        };
        if !is_public {
            return Ok(false);
        }
    }
    Ok(true)
}

fn has(metadata: &Metadata, bits: u32) -> bool {
    metadata.mode() & bits == bits
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, create_dir, set_permissions, write};
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn file(path: &Path, mode: u32) {
        write(path, "x").expect("ours");
        set_permissions(path, Permissions::from_mode(mode)).expect("ours");
    }

    #[test]
    fn the_folder_of_a_list_is_read_only_if_it_holds_nothing_private() {
        type Add = fn(&Path);
        let rows: [(&str, Add, bool); 8] = [
            ("the list alone", |_| {}, true),
            ("what an editor leaves", |folder| file(&folder.join(".keys.swp"), 0o600), true),
            ("public keys", |folder| file(&folder.join("id.pub"), 0o644), true),
            ("a private key", |folder| file(&folder.join("id"), 0o600), false),
            ("a folder", |folder| create_dir(folder.join("more")).expect("ours"), true),
            (
                "a private folder",
                |folder| {
                    create_dir(folder.join("ssh")).expect("ours");
                    set_permissions(folder.join("ssh"), Permissions::from_mode(0o700)).expect("ours");
                },
                false,
            ),
            (
                "a private file in a folder",
                |folder| {
                    create_dir(folder.join("more")).expect("ours");
                    file(&folder.join("more/keys"), 0o640);
                },
                false,
            ),
            ("a link", |folder| symlink("/etc/shadow", folder.join("link")).expect("ours"), true),
        ];
        for (what, add, is_given) in rows {
            let folder = tempfile::tempdir().expect("a folder");
            let list = folder.path().join("keys");
            file(&list, 0o600);
            add(folder.path());
            assert_eq!(is_only_for_lists(&list), is_given, "{what}");
        }
    }

    #[test]
    fn lists_in_folders_of_the_system_give_no_right_in_them() {
        for folder in ["/etc", "/", "/root", "/var", "/proc"] {
            let list = Path::new(folder).join("hostname");
            assert!(!is_only_for_lists(&list), "{folder}");
        }
    }
}

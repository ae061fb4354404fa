//! Where running commands of a user have their sockets.

use std::path::PathBuf;

/// The folder of root.
pub(crate) const ROOTS: &str = "/run/litz";

/// The folder for them: of root in `/run`, of other users where the system has one for each of them
/// (XDG_RUNTIME_DIR). `None` without that.
pub(crate) fn runtime_folder() -> Option<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return Some(PathBuf::from(ROOTS));
    }
    let parent = std::env::var_os("XDG_RUNTIME_DIR").filter(|folder| !folder.is_empty())?;
    Some(PathBuf::from(parent).join("litz"))
}

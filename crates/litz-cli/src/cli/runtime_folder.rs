//! Where running commands of a user have their sockets.

use std::path::PathBuf;

/// The folder for them: of root in `/run`, of other users where the system has one for each of them
/// (XDG_RUNTIME_DIR). `None` without that.
pub(crate) fn runtime_folder() -> Option<PathBuf> {
    let parent = match rustix::process::geteuid().is_root() {
        true => PathBuf::from("/run"),
        false => PathBuf::from(std::env::var_os("XDG_RUNTIME_DIR").filter(|folder| !folder.is_empty())?),
    };
    Some(parent.join("litz"))
}

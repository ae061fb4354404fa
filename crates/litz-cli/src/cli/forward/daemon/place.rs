//! Where the socket of the daemon is.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt};
use std::path::{Path, PathBuf};

use rings::packets::{connect_to, new_socket};
use rustix::fs::Mode;
use rustix::net::{SocketAddrUnix, SocketFlags, bind, listen};

/// Connections of programs that the kernel keeps while the daemon does not accept.
const BACKLOG: i32 = 128;

/// The socket of this user's daemon, if none is named. `None` without a folder for such sockets.
pub(in crate::cli::forward) fn default_path() -> Option<PathBuf> {
    litz::daemon::default_path()
}

/// The socket that is named, or the usual one.
///
/// # Errors
/// A message for the user.
pub(super) fn path(named: Option<&Path>) -> Result<PathBuf, String> {
    let usual = || {
        default_path().ok_or_else(|| {
            "the variable XDG_RUNTIME_DIR is not set: name the daemon's socket with --socket (`litz run`: --daemon)"
                .to_owned()
        })
    };
    named.map_or_else(usual, |path| Ok(path.to_owned()))
}

/// A socket that listens at a path, which is removed at the end.
pub(super) struct Bound {
    pub(super) socket: OwnedFd,
    pub(super) path: PathBuf,
}

impl Bound {
    /// Listens at `path`. Only this user may connect.
    ///
    /// # Errors
    /// A message for the user: another daemon listens there, or the path cannot be used.
    pub(super) fn open(path: PathBuf) -> Result<Self, String> {
        let shown = path.display().to_string();
        let cannot = |error: io::Error| format!("cannot listen on {shown}: {error}");
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(cannot)?;
        }
        match connect_to(&path, SocketFlags::NONBLOCK) {
            Ok(_) => return Err(format!("a daemon runs already on {shown}: `litz daemon stop` ends it")),
            // A daemon that was killed has left it.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused && is_socket(&path) => {
                std::fs::remove_file(&path).map_err(cannot)?;
            }
            Err(_) => {}
        }
        let bound = || {
            let socket = new_socket(SocketFlags::NONBLOCK)?;
            // Linux gives the path the mode of its socket.
            rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
            bind(&socket, &SocketAddrUnix::new(&path)?)?;
            listen(&socket, BACKLOG)?;
            Ok(socket)
        };
        let socket = bound().map_err(cannot)?;
        Ok(Self { socket, path })
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        // Someone else may have removed it.
        let _gone = std::fs::remove_file(&self.path);
    }
}

fn is_socket(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket())
}

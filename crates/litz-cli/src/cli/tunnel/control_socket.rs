//! The socket over which `litz tunnel status` and `litz tunnel down` talk to the command that runs. Only its
//! owner may connect.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use transfer::CancelToken;
use transfer::store::default_state_dir;

use crate::cli::runtime_folder::runtime_folder;

/// How long a request or an answer may take.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The longest request.
const REQUEST_BYTES_MAX: u64 = 64;

/// Where the state of running tunnels is: the folder that systemd gives to a service, or the usual one of
/// root, or of another user.
pub(super) fn folder() -> PathBuf {
    let in_state = || default_state_dir().map_or_else(|_| PathBuf::from("/run/litz"), |state| state.join("run"));
    let of_service = std::env::var_os("RUNTIME_DIRECTORY").filter(|folder| !folder.is_empty()).map(PathBuf::from);
    of_service.or_else(runtime_folder).unwrap_or_else(in_state)
}

fn path(device: &str) -> PathBuf {
    folder().join(format!("{device}.sock"))
}

/// Answers requests. It ends when this is dropped.
pub(super) struct ControlSocket {
    listener: UnixListener,
    path: PathBuf,
}

impl ControlSocket {
    /// # Errors
    /// A message for the user: another command uses the device, or the folder cannot be written.
    pub(super) fn open(device: &str) -> Result<Self, String> {
        let path = path(device);
        let cannot = |error: std::io::Error| format!("cannot listen on {}: {error}", path.display());
        std::fs::create_dir_all(folder()).map_err(cannot)?;
        if connect(&path).is_ok() {
            return Err(format!("a tunnel with the device {device} runs already: `litz tunnel down` ends it"));
        }
        // A command that was killed has left it.
        let _none = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).map_err(cannot)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).map_err(cannot)?;
        listener.set_nonblocking(true).map_err(cannot)?;
        Ok(Self { listener, path })
    }

    /// Answers the requests that wait: with the status, or by ending the command.
    pub(super) fn serve(&self, cancel: &CancelToken, status: impl Fn() -> Value) {
        while let Ok((stream, _)) = self.listener.accept() {
            if let Err(error) = answer(stream, cancel, &status) {
                tracing::debug!(%error, "a request for the status was not answered");
            }
        }
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        let _none = std::fs::remove_file(&self.path);
    }
}

fn answer(mut stream: UnixStream, cancel: &CancelToken, status: &impl Fn() -> Value) -> std::io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    let mut request = String::new();
    BufReader::new((&stream).take(REQUEST_BYTES_MAX)).read_line(&mut request)?;
    match request.trim() {
        "status" => writeln!(stream, "{}", status()),
        "down" => {
            cancel.cancel();
            writeln!(stream, "{{}}")
        }
        _ => Ok(()),
    }
}

#[expect(clippy::disallowed_methods, reason = "a socket of this host, between two commands")]
fn connect(path: &Path) -> std::io::Result<UnixStream> {
    UnixStream::connect(path)
}

/// Sends a request to the command that uses a device; none if there is no such command.
///
/// # Errors
/// A message for the user.
pub(super) fn request(device: &str, request: &str) -> Result<Option<Value>, String> {
    let path = path(device);
    let Ok(mut stream) = connect(&path) else { return Ok(None) };
    let cannot = |error: std::io::Error| format!("the tunnel does not answer on {}: {error}", path.display());
    stream.set_read_timeout(Some(TIMEOUT)).map_err(cannot)?;
    writeln!(stream, "{request}").map_err(cannot)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).map_err(cannot)?;
    serde_json::from_str(&answer).map(Some).map_err(|error| format!("the tunnel answered with something else: {error}"))
}

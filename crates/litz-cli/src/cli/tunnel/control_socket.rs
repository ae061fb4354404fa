//! The socket over which `litz tunnel status` and `litz tunnel down` talk to the command that runs. Only its
//! owner may connect.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::Value;
use transfer::CancelToken;
use transfer::store::default_state_dir;

use crate::cli::runtime_folder::{self, ROOTS, runtime_folder};

/// How long a command waits for the answer to its request.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a tunnel waits for a request. Others wait meanwhile, so it is shorter than what they wait for an answer.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(1);

/// Pause after an error of the system, such as too many open files.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// The end of the names of sockets.
const SOCKET: &str = "sock";

/// The longest request.
const REQUEST_BYTES_MAX: u64 = 64;

/// Where the state of running tunnels is: the folder that systemd gives to a service, or the usual one of
/// root, or of another user.
pub(super) fn folder() -> PathBuf {
    let in_state = || default_state_dir().map_or_else(|_| PathBuf::from(ROOTS), |state| state.join("run"));
    of_service().or_else(runtime_folder).unwrap_or_else(in_state)
}

/// Where root's tunnels are, if that is not [`folder`].
pub(super) fn folder_of_root() -> Option<PathBuf> {
    let roots = PathBuf::from(ROOTS);
    (of_service().is_none() && folder() != roots).then_some(roots)
}

fn of_service() -> Option<PathBuf> {
    std::env::var_os("RUNTIME_DIRECTORY").filter(|folder| !folder.is_empty()).map(PathBuf::from)
}

pub(super) fn path_in(folder: &Path, device: &str) -> PathBuf {
    folder.join(format!("{device}.{SOCKET}"))
}

/// The devices whose tunnels have, or had, a socket in this folder.
pub(super) fn devices_in(folder: &Path) -> Vec<String> {
    devices_with(folder, SOCKET)
}

/// The devices that have a file in this folder whose name ends so.
pub(super) fn devices_with(folder: &Path, wanted: &str) -> Vec<String> {
    let Ok(files) = std::fs::read_dir(folder) else { return Vec::new() };
    let device = |path: PathBuf| {
        path.extension().filter(|extension| *extension == wanted)?;
        path.file_stem()?.to_str().map(str::to_owned)
    };
    files.filter_map(|file| device(file.ok()?.path())).collect()
}

/// Answers requests, on a thread of its own, so that a tunnel answers whatever it waits for. It ends when this is
/// dropped.
pub(super) struct ControlSocket {
    listener: UnixListener,
    path: PathBuf,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl ControlSocket {
    /// Answers with `status`, and cancels `cancel` if the command is to end.
    ///
    /// # Errors
    /// A message for the user: another command uses the device, or the folder cannot be written.
    pub(super) fn open(
        device: &str,
        cancel: CancelToken,
        status: impl Fn() -> Value + Send + 'static,
    ) -> Result<Self, String> {
        Self::open_in(&folder(), device, cancel, status)
    }

    fn open_in(
        folder: &Path,
        device: &str,
        cancel: CancelToken,
        status: impl Fn() -> Value + Send + 'static,
    ) -> Result<Self, String> {
        let path = path_in(folder, device);
        let cannot = |error: std::io::Error| format!("cannot listen on {}: {error}", path.display());
        runtime_folder::prepare(folder)?;
        if connect(&path).is_ok() {
            return Err(format!("a tunnel with the device {device} runs already: `litz tunnel down` ends it"));
        }
        // A command that was killed has left it.
        let _none = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).map_err(cannot)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).map_err(cannot)?;
        let accepting = listener.try_clone().map_err(cannot)?;
        let is_over = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&is_over);
        #[expect(clippy::disallowed_methods, reason = "the command is above the engine: one thread for requests")]
        let thread = std::thread::spawn(move || serve(&accepting, &ends, &cancel, &status));
        Ok(Self { listener, path, is_over, thread: Some(thread) })
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        // First, as another command may listen there as soon as this one does not.
        let _none = std::fs::remove_file(&self.path);
        self.is_over.store(true, Ordering::Release);
        // It ends the wait for the next request. It cannot fail for a socket that listens.
        let _ended = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
        if let Some(Err(panic)) = self.thread.take().map(JoinHandle::join)
            && !std::thread::panicking()
        {
            std::panic::resume_unwind(panic);
        }
    }
}

/// Answers requests, with the status or by ending the command.
fn serve(listener: &UnixListener, is_over: &AtomicBool, cancel: &CancelToken, status: &impl Fn() -> Value) {
    loop {
        let answered = listener.accept().map(|(stream, _)| {
            if let Err(error) = answer(stream, cancel, status) {
                tracing::debug!(%error, "a request for the status was not answered");
            }
        });
        if is_over.load(Ordering::Acquire) {
            return;
        }
        if let Err(error) = answered {
            tracing::debug!(%error, "a request for the status was not accepted");
            #[expect(clippy::disallowed_methods, reason = "the command is above the engine: it tries again later")]
            std::thread::sleep(RETRY_INTERVAL);
        }
    }
}

fn answer(mut stream: UnixStream, cancel: &CancelToken, status: &impl Fn() -> Value) -> std::io::Result<()> {
    stream.set_read_timeout(Some(REQUEST_TIMEOUT))?;
    stream.set_write_timeout(Some(REQUEST_TIMEOUT))?;
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

/// What a tunnel has answered.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) value: Value,
    /// Its socket.
    pub(super) socket: PathBuf,
}

/// Sends a request to the command that uses a device, of this user or of root; none if there is no such command.
///
/// # Errors
/// A message for the user.
pub(super) fn request(device: &str, request: &str) -> Result<Option<Answer>, String> {
    for folder in [Some(folder()), folder_of_root()].into_iter().flatten() {
        let socket = path_in(&folder, device);
        if let Some(value) = ask(&socket, request)? {
            return Ok(Some(Answer { value, socket }));
        }
    }
    Ok(None)
}

/// Sends a request to the command that answers on this socket; none if there is no such command.
///
/// # Errors
/// A message for the user.
pub(super) fn ask(socket: &Path, request: &str) -> Result<Option<Value>, String> {
    let shown = socket.display();
    let mut stream = match connect(socket) {
        Ok(stream) => stream,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => return Ok(None),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => return Err(not_ours(socket)),
        Err(error) => return Err(format!("cannot connect to {shown}: {error}")),
    };
    let cannot = |error: std::io::Error| match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            format!("the tunnel has not answered on {shown} for {} s", ANSWER_TIMEOUT.as_secs())
        }
        _ => format!("the tunnel does not answer on {shown}: {error}"),
    };
    stream.set_read_timeout(Some(ANSWER_TIMEOUT)).map_err(cannot)?;
    writeln!(stream, "{request}").map_err(cannot)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).map_err(cannot)?;
    serde_json::from_str(&answer).map(Some).map_err(|error| format!("the tunnel answered with something else: {error}"))
}

/// Why this user may not use a socket.
fn not_ours(socket: &Path) -> String {
    let shown = socket.display();
    match std::fs::metadata(socket).map(|metadata| metadata.uid()) {
        Ok(0) => format!("the tunnel of {shown} is root's: run this command as root"),
        Ok(user) => format!("the tunnel of {shown} belongs to the user {user}: run this command as that user"),
        Err(_) => format!("only root can see whether there is a tunnel at {shown}: run this command as root"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn open(folder: &Path, cancel: &CancelToken) -> Result<ControlSocket, String> {
        ControlSocket::open_in(folder, "litz7", cancel.clone(), || json!({ "device": "litz7" }))
    }

    #[test]
    fn requests_are_answered_until_the_end_and_no_other_command_takes_the_device() {
        let folder = tempfile::tempdir().unwrap();
        let (socket, cancel) = (path_in(folder.path(), "litz7"), CancelToken::new());
        assert_eq!(ask(&socket, "status"), Ok(None), "there is no file");
        for _ in 0..2 {
            let running = open(folder.path(), &cancel).unwrap();
            assert_eq!(ask(&socket, "status"), Ok(Some(json!({ "device": "litz7" }))));
            assert!(open(folder.path(), &cancel).is_err_and(|error| error.contains("runs already")));
            drop(running);
            assert_eq!(ask(&socket, "status"), Ok(None));
        }
        // A command that was killed has left its file.
        drop(UnixListener::bind(&socket).unwrap());
        assert_eq!(ask(&socket, "status"), Ok(None));
        let _running = open(folder.path(), &cancel).unwrap();
        assert!(!cancel.is_cancelled());
        assert_eq!(ask(&socket, "down"), Ok(Some(json!({}))));
        assert!(cancel.is_cancelled());
    }

    #[test]
    fn a_file_that_is_no_socket_is_not_taken_for_a_tunnel_that_has_ended() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("file"), "").unwrap();
        let below_a_file = path_in(&folder.path().join("file"), "litz7");
        assert!(ask(&below_a_file, "status").is_err_and(|error| error.contains("cannot connect")));
    }
}

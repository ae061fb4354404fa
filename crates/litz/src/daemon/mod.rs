//! Connections through `litz daemon`: one Litz connection to a remote host, for all programs of a
//! user.
//!
//! A program requests a connection to a target that the remote host can reach from the daemon of
//! its user, and gets a [`Stream`]. Its bytes lie in memory that the program and the daemon share,
//! if the daemon supports that; otherwise in a socket. The interface is specified in
//! `docs/spec/daemon.md`.
//!
//! ```no_run
//! use std::io::{Read, Write};
//!
//! use litz::daemon::{self, Daemon};
//!
//! # fn main() -> std::io::Result<()> {
//! let path = daemon::default_path().expect("XDG_RUNTIME_DIR is set");
//! let daemon = Daemon::connect(&path, "example")?;
//! let mut stream = daemon.open("10.1.2.3:80")?;
//! stream.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
//! stream.finish()?;
//! let mut answer = String::new();
//! stream.read_to_string(&mut answer)?;
//! # Ok(())
//! # }
//! ```

mod link;
mod stream;
#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use driver::sync::lock;
use forward::address::Target;
use forward::daemon::{ProgramName, SocketFrom};
use forward::message::{Failure, Reason};

use self::link::{Ended, Link};
pub use self::stream::{ReadHalf, Stream, WriteHalf};

/// Number of consecutive connections that the daemon may end instead of giving the first answer
/// about rings. A daemon that does not support rings ends each; a daemon that restarts ends one of
/// them.
const UNANSWERED_MAX: usize = 2;

/// Returns the default path of this user's daemon: `litz/daemon.sock` in `$XDG_RUNTIME_DIR`, for
/// root in `/run`. Returns `None` if that variable is not set.
#[must_use]
pub fn default_path() -> Option<PathBuf> {
    let folder = match rustix::process::geteuid().is_root() {
        true => PathBuf::from("/run"),
        false => PathBuf::from(std::env::var_os("XDG_RUNTIME_DIR").filter(|folder| !folder.is_empty())?),
    };
    Some(folder.join("litz/daemon.sock"))
}

/// A program's interface to the daemon. Several threads may use it at the same time. Streams remain
/// open when it is dropped.
#[derive(Debug)]
pub struct Daemon {
    path: PathBuf,
    name: ProgramName,
    links: Mutex<Links>,
}

#[derive(Debug, Default)]
struct Links {
    /// The connection with the daemon. A restarted daemon gets a new one.
    current: Option<Arc<Link>>,
    /// Number of previous connections that ended instead of an answer about rings.
    unanswered: usize,
}

impl Daemon {
    /// Connects to the daemon at `path`. `program` is the name that `litz daemon status` shows,
    /// truncated to 64 bytes.
    ///
    /// # Errors
    /// If there is no daemon ([`NotFound`](io::ErrorKind::NotFound),
    /// [`ConnectionRefused`](io::ErrorKind::ConnectionRefused)), it runs as another user
    /// ([`PermissionDenied`](io::ErrorKind::PermissionDenied)), or it refuses the program.
    pub fn connect(path: &Path, program: &str) -> io::Result<Self> {
        let daemon = Self { path: path.to_owned(), name: ProgramName::new(program), links: Mutex::default() };
        daemon.link()?;
        Ok(daemon)
    }

    /// Connects to a target, `HOST:PORT` or the path of a UNIX socket of the remote host, over TCP.
    /// Waits for the answer of the remote host.
    ///
    /// After a restart of the daemon, later connections use the new one. Without memory to share,
    /// or if the daemon does not support it, the stream is a socket. A daemon that has twice ended
    /// its connection with this program instead of giving the first answer counts as one without
    /// that support, until that connection ends.
    ///
    /// # Errors
    /// The reason why there is no connection: the remote host says that the target refused
    /// ([`ConnectionRefused`](io::ErrorKind::ConnectionRefused)), is not allowed
    /// ([`PermissionDenied`](io::ErrorKind::PermissionDenied)), cannot be reached or does not
    /// answer; or the daemon has ended ([`ConnectionReset`](io::ErrorKind::ConnectionReset)). If it
    /// had ended before, the errors of [`connect`](Self::connect).
    /// [`InvalidInput`](io::ErrorKind::InvalidInput) if `target` is not a valid target.
    pub fn open(&self, target: &str) -> io::Result<Stream> {
        let invalid = |text: String| io::Error::new(io::ErrorKind::InvalidInput, text);
        let target: Target = target.parse().map_err(invalid)?;
        if target.is_udp() {
            return Err(invalid(format!("{target} is no target of a stream")));
        }
        let mut link = self.link()?;
        for _ in 0..=UNANSWERED_MAX {
            if !link.asks_for_rings {
                return open_socket(&link, &target);
            }
            match link.connect(SocketFrom::Rings, &target) {
                Ok(Ok(descriptors)) => return Stream::of_rings(descriptors),
                // There may be no memory to share.
                Ok(Err(failure)) if failure.reason == Reason::Busy => return open_socket(&link, &target),
                Ok(Err(failure)) => return Err(refused(&failure)),
                Err(Ended) if link.knows_rings() == Some(true) => break,
                // The daemon may not support rings.
                Err(Ended) => link = self.link().map_err(|_| Ended)?,
            }
        }
        Err(Ended.into())
    }

    /// Returns the connection with the daemon. Creates a new one if it has ended. The new
    /// connection requests rings, except after daemons that do not support them.
    fn link(&self) -> io::Result<Arc<Link>> {
        let mut links = lock(&self.links);
        let old = links.current.as_ref();
        if let Some(link) = old.filter(|link| !link.is_over()) {
            return Ok(Arc::clone(link));
        }
        let unanswered = match old.map(|link| (link.asks_for_rings, link.knows_rings())) {
            Some((true, Some(false))) => links.unanswered + 1,
            Some((true, None)) => links.unanswered,
            // The daemon has ended, and the next one may be another version.
            Some((true, Some(true)) | (false, _)) | None => 0,
        };
        let asks_for_rings = unanswered < UNANSWERED_MAX;
        let new = Link::open(&self.path, &self.name, asks_for_rings).map_err(|error| explain(&self.path, &error))?;
        let new = Arc::new(new);
        *links = Links { current: Some(Arc::clone(&new)), unanswered };
        Ok(new)
    }
}

/// Connects to a target, with a socket.
fn open_socket(link: &Link, target: &Target) -> io::Result<Stream> {
    match link.connect(SocketFrom::Daemon, target)? {
        Ok(descriptors) => Stream::of_socket(descriptors),
        Err(failure) => Err(refused(&failure)),
    }
}

/// Returns the descriptors of a reply, if there are exactly `N`.
fn exactly<const N: usize>(descriptors: Vec<OwnedFd>) -> io::Result<[OwnedFd; N]> {
    let other = |_| io::Error::new(io::ErrorKind::InvalidData, "the daemon has passed other descriptors");
    <[OwnedFd; N]>::try_from(descriptors).map_err(other)
}

/// Converts the reason for a refusal to an error.
fn refused(failure: &Failure) -> io::Error {
    let kind = match failure.reason {
        Reason::NotAllowed => io::ErrorKind::PermissionDenied,
        Reason::Refused => io::ErrorKind::ConnectionRefused,
        Reason::HostUnreachable | Reason::NameNotFound => io::ErrorKind::HostUnreachable,
        Reason::NetworkUnreachable => io::ErrorKind::NetworkUnreachable,
        Reason::TimedOut => io::ErrorKind::TimedOut,
        Reason::Busy => io::ErrorKind::ResourceBusy,
        // This includes reasons of later versions.
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, failure.to_string())
}

/// Explains to the user why there is no daemon.
fn explain(path: &Path, error: &io::Error) -> io::Error {
    let text = match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            format!("no daemon runs on {}: start one with `litz daemon TICKET`", path.display())
        }
        _ => format!("cannot use the daemon on {}: {error}", path.display()),
    };
    io::Error::new(error.kind(), text)
}

//! The input of the choice.

use std::io;
use std::net::SocketAddr;

use net::Interface;

use crate::paths::spec::PathSpec;

/// The input of the choice.
///
/// More fields may be added: begin with [`new`](Self::new), and set others with the `with_`
/// methods or by assignment.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Request<'a> {
    /// The interfaces of this host, in order of preference.
    pub interfaces: &'a [Interface],
    /// The receiver's resolved addresses in the ticket's order; only the first [`REMOTES_MAX`]
    /// count.
    pub remotes: &'a [SocketAddr],
    /// Values of `--path`; if empty, the rules choose the paths.
    pub paths: &'a [PathSpec],
    /// The value of `--paths`, 1 to [`PATHS_MAX`](crate::paths::PATHS_MAX); `None` chooses the
    /// useful paths, at most [`PATHS_DEFAULT`](crate::paths::PATHS_DEFAULT), or every `--path`.
    pub limit: Option<usize>,
}

impl<'a> Request<'a> {
    /// Requests the useful paths from `interfaces` to `remotes`.
    #[must_use]
    pub const fn new(interfaces: &'a [Interface], remotes: &'a [SocketAddr]) -> Self {
        Self { interfaces, remotes, paths: &[], limit: None }
    }

    /// Sets [`paths`](Self::paths).
    #[must_use]
    pub fn with_paths(mut self, paths: &'a [PathSpec]) -> Self {
        self.paths = paths;
        self
    }

    /// Sets [`limit`](Self::limit).
    #[must_use]
    pub fn with_limit(mut self, limit: impl Into<Option<usize>>) -> Self {
        self.limit = limit.into();
        self
    }
}

/// Returns whether a datagram can leave from an address over a device to an address:
/// [`net::reachable`] on a real host.
pub type Reachable<'a> = dyn FnMut(SocketAddr, Option<&str>, SocketAddr) -> io::Result<()> + 'a;

/// Maximum number of receiver addresses that are considered. A ticket has 16, and each may be a
/// name with several addresses.
pub const REMOTES_MAX: usize = 64;

//! Path requests and path events of a connection.

use std::net::SocketAddr;
use std::task::{Poll, Waker};

use quic::{Addresses, PathId};

use super::{ConnectionHandle, Runtime};
use crate::cells::connection::{Interest, PATH_REQUESTS_MAX, PathRequest};
use crate::error::Closed;
use crate::path_events::PathEvent;

impl<R: Runtime> ConnectionHandle<R> {
    /// Requests another path, from the socket with index `socket` to `remote`. Does not wait: the
    /// connection opens the path once the handshake is confirmed, if the peer accepts it, and
    /// repeats the request until the peer answers. [`poll_path_event`](Self::poll_path_event)
    /// reports whether it was opened, waits or was refused.
    ///
    /// # Errors
    /// If there is no such socket, too many path requests are waiting, or the connection is closed.
    pub fn open_path(&self, socket: usize, remote: SocketAddr, is_backup: bool) -> Result<(), Closed> {
        let addresses = self.addresses_on(socket, remote)?;
        self.submit_path_request(PathRequest::Open { addresses, is_backup })
    }

    /// Requests that the connection, which has one path, moves to the socket with index `socket` and
    /// to `remote` (RFC 9000, section 9.2). Does not wait: the peer is probed there, and the
    /// connection moves once it responds. A newer request replaces one that has not succeeded.
    /// [`poll_path_event`](Self::poll_path_event) reports that it moved or was refused.
    ///
    /// # Errors
    /// If there is no such socket, too many path requests are waiting, or the connection is closed.
    pub fn migrate(&self, socket: usize, remote: SocketAddr) -> Result<(), Closed> {
        let addresses = self.addresses_on(socket, remote)?;
        self.submit_path_request(PathRequest::Migrate { addresses })
    }

    fn addresses_on(&self, socket: usize, remote: SocketAddr) -> Result<Addresses, Closed> {
        if socket >= self.runtime().local_addrs().len() {
            return Err(Closed::NoSocket);
        }
        let socket = u16::try_from(socket).map_err(|_| Closed::NoSocket)?;
        Ok(Addresses { socket, ..Addresses::of(remote) })
    }

    /// Abandons a path with the error `code` (multipath draft-21, section 4.2.1). The last path is
    /// not abandoned.
    ///
    /// # Errors
    /// If too many path requests are waiting, or the connection is closed.
    pub fn abandon_path(&self, path: PathId, code: u64) -> Result<(), Closed> {
        self.submit_path_request(PathRequest::Abandon { path, code })
    }

    /// Sets whether both sides use a path only if no other path works.
    ///
    /// # Errors
    /// If too many path requests are waiting, or the connection is closed.
    pub fn set_path_backup(&self, path: PathId, is_backup: bool) -> Result<(), Closed> {
        self.submit_path_request(PathRequest::SetBackup { path, is_backup })
    }

    fn submit_path_request(&self, request: PathRequest) -> Result<(), Closed> {
        let mut is_taken = true;
        self.submit(|state| {
            is_taken = state.requests.paths.len() < PATH_REQUESTS_MAX;
            if is_taken {
                state.requests.paths.push(request);
            }
        })?;
        if is_taken { Ok(()) } else { Err(Closed::TooMany) }
    }

    /// Returns the next event of the connection's paths. If the application takes none, the newest
    /// 256 are kept.
    pub fn poll_path_event(&self, waker: &Waker) -> Poll<Result<PathEvent, Closed>> {
        let mut state = self.cell().lock();
        match (state.path_events.pop(), &state.closed) {
            (Some(event), _) => Poll::Ready(Ok(event)),
            (None, Some(closed)) => Poll::Ready(Err(closed.clone())),
            (None, None) => {
                state.add_waker(Interest::PathEvent, waker);
                Poll::Pending
            }
        }
    }
}

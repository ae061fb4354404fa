//! [`TcpListener`]: a port that accepts connections.

use std::fmt;
use std::future::poll_fn;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::task::{Poll, Waker};
use std::time::Duration;

use tcp_driver::{Closed, ListenerHandle, Runtime};

use crate::runtime::TcpRuntime;
use crate::stream::TcpStream;

/// A port that accepts connections, on all addresses of its [stack](crate::TcpStack). Clones share
/// the port; it is closed when the last one is dropped. Peers not accepted by then are reset.
#[derive(Clone)]
pub struct TcpListener {
    handle: ListenerHandle<TcpRuntime>,
}

impl fmt::Debug for TcpListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TcpListener").field("port", &self.handle.port()).finish()
    }
}

impl TcpListener {
    pub(crate) const fn new(handle: ListenerHandle<TcpRuntime>) -> Self {
        Self { handle }
    }

    /// Returns the next connection of a peer. Waits for one.
    ///
    /// # Errors
    /// [`Closed::NotListening`] if the listener or the stack is closed.
    pub fn accept(&self) -> Result<TcpStream, Closed> {
        let accepted = self.handle.runtime().block_on(None, |waker| self.poll_accept(waker));
        accepted.unwrap_or(Err(Closed::NotListening))
    }

    /// Does the same as [`accept`](Self::accept), for at most `timeout`; returns `None` if there
    /// was no connection.
    ///
    /// # Errors
    /// Same errors as [`accept`](Self::accept).
    pub fn accept_timeout(&self, timeout: Duration) -> Result<Option<TcpStream>, Closed> {
        let deadline = self.handle.runtime().deadline_after(timeout);
        self.handle.runtime().block_on(Some(deadline), |waker| self.poll_accept(waker)).transpose()
    }

    /// Does the same as [`accept`](Self::accept) for asynchronous callers, whatever their executor.
    ///
    /// # Errors
    /// Same errors as [`accept`](Self::accept); also fails if the placement is inline.
    pub async fn accept_async(&self) -> Result<TcpStream, Closed> {
        self.handle.runtime().can_async()?;
        poll_fn(|context| self.poll_accept(context.waker())).await
    }

    /// Returns an iterator over connections until the listener or the stack is closed.
    pub const fn incoming(&self) -> Incoming<'_> {
        Incoming { listener: self }
    }

    /// Returns the port, with the unspecified address: it listens on all addresses of the stack, of
    /// both families.
    pub fn local_addr(&self) -> SocketAddr {
        SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), self.handle.port())
    }

    /// Stops accepting connections, and resets the peers not accepted yet. Waiting calls get an
    /// error. Repeated calls have no effect.
    pub fn close(&self) {
        self.handle.close();
    }

    fn poll_accept(&self, waker: &Waker) -> Poll<Result<TcpStream, Closed>> {
        let accepted = self.handle.poll_accept(waker);
        accepted.map(|handle| handle.map(TcpStream::new).ok_or(Closed::NotListening))
    }
}

/// Iterator over the connections of a listener: see [`TcpListener::incoming`].
#[derive(Debug)]
pub struct Incoming<'a> {
    listener: &'a TcpListener,
}

impl Iterator for Incoming<'_> {
    type Item = TcpStream;

    fn next(&mut self) -> Option<TcpStream> {
        self.listener.accept().ok()
    }
}

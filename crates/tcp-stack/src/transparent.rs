//! [`Opening`]: a peer's attempt to connect through a [transparent stack](TcpStackConfig::transparent).

use std::fmt;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Poll, Waker};

use tcp::Tuple;
use tcp_driver::{Closed, Connect, OpeningHandle, Transparent};

use crate::runtime::TcpRuntime;
use crate::stack::TcpStack;
use crate::stream::TcpStream;

/// A peer's attempt to connect to any address and port: a transparent stack has its SYN, and has
/// not answered. The application decides by calling [`accept`](Self::accept),
/// [`refuse`](Self::refuse), [`report_unreachable`](Self::report_unreachable) or
/// [`ignore`](Self::ignore). Dropping it ignores the peer, which retries.
#[must_use = "dropping it leaves the peer without an answer"]
pub struct Opening {
    handle: OpeningHandle<TcpRuntime>,
}

impl fmt::Debug for Opening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.handle.fmt(f)
    }
}

impl Opening {
    /// Returns the peer's address.
    pub const fn source(&self) -> SocketAddr {
        self.handle.source()
    }

    /// Returns the address that the peer wants to connect to.
    pub const fn destination(&self) -> SocketAddr {
        self.handle.destination()
    }

    /// Returns whether the peer offers explicit congestion notification (RFC 3168).
    pub const fn asks_for_ecn(&self) -> bool {
        self.handle.asks_for_ecn()
    }

    /// Returns the differentiated services code point of the peer's SYN (RFC 2474).
    pub const fn dscp(&self) -> u8 {
        self.handle.dscp()
    }

    /// Answers the peer, and waits until it has completed the handshake.
    ///
    /// # Errors
    /// Fails if the peer has given up meanwhile, or the stack is closed.
    pub async fn accept(self) -> Result<TcpStream, Closed> {
        self.accept_with_dscp(0).await
    }

    /// Does the same as [`accept`](Self::accept), with this differentiated services code point in
    /// all packets from the answer on. [`TcpStream::set_dscp`] changes it.
    ///
    /// # Errors
    /// Same errors as [`accept`](Self::accept).
    ///
    /// # Panics
    /// Panics if it has more than six bits.
    pub async fn accept_with_dscp(self, dscp: u8) -> Result<TcpStream, Closed> {
        let handle = self.handle.accept_with_dscp(dscp);
        poll_fn(|context| handle.poll_connected(context.waker())).await?;
        Ok(TcpStream::new(handle))
    }

    /// Resets the peer, so that its connection is refused.
    pub fn refuse(self) {
        self.handle.refuse();
    }

    /// Reports to the peer that the host is unreachable.
    pub fn report_unreachable(self) {
        self.handle.report_unreachable();
    }

    /// Leaves the peer without an answer. It retries, as another attempt, until it gives up.
    pub fn ignore(self) {
        self.handle.ignore();
    }
}

/// Calls of a [transparent stack](crate::TcpStackConfig::transparent).
impl TcpStack {
    /// Returns the next attempt of a peer to connect. Waits for one.
    ///
    /// # Errors
    /// Fails if the stack is closed or not transparent, or the placement is inline.
    pub async fn next_opening(&self) -> Result<Opening, Closed> {
        TcpRuntime::new(&self.drivers).can_async()?;
        let transparent = self.transparent()?;
        poll_fn(|context| self.poll_opening(transparent, context.waker())).await
    }

    /// Returns whether a packet with these addresses and ports is for this stack: for one of its
    /// connections, or for a waiting attempt. The caller decides about a SYN that may begin one.
    /// Returns false if the stack is not transparent.
    pub fn owns(&self, source: SocketAddr, destination: SocketAddr) -> bool {
        let tuple = Tuple { local: destination, remote: source };
        self.transparent.as_ref().is_some_and(|transparent| transparent.owns(&tuple))
    }

    /// Does the same as [`owns`](Self::owns), and records the differentiated services code point of
    /// such a packet.
    pub fn takes(&self, source: SocketAddr, destination: SocketAddr, dscp: u8) -> bool {
        let tuple = Tuple { local: destination, remote: source };
        self.transparent.as_ref().is_some_and(|transparent| transparent.takes(&tuple, dscp))
    }

    /// Returns the code point of the last packet [taken](Self::takes) with these addresses. Returns
    /// `None` if they are not the stack's.
    pub fn dscp_of_peer(&self, source: SocketAddr, destination: SocketAddr) -> Option<u8> {
        self.transparent.as_ref()?.dscp_of_peer(&Tuple { local: destination, remote: source })
    }

    /// Returns whether one more attempt to connect is possible within the limits of a transparent
    /// stack.
    pub fn has_space_for_opening(&self) -> bool {
        self.transparent.as_ref().is_some_and(|transparent| transparent.has_space())
    }

    /// Does the same as [`connect_with`](Self::connect_with) for asynchronous callers, whatever
    /// their executor. If the future is dropped, no more SYNs are sent.
    ///
    /// # Errors
    /// Same errors as [`connect_with`](Self::connect_with); also fails if the placement is inline.
    pub async fn connect_with_async(&self, remote: SocketAddr, parameters: Connect) -> Result<TcpStream, Closed> {
        TcpRuntime::new(&self.drivers).can_async()?;
        let handle = self.begin_connect(remote, parameters)?;
        // Data written to a connection that is dropped before its handshake is complete would
        // otherwise be sent.
        let mut guard = AbortOnDrop(Some(handle.clone()));
        poll_fn(|context| handle.poll_connected(context.waker())).await?;
        guard.0 = None;
        Ok(TcpStream::new(handle))
    }

    fn transparent(&self) -> Result<&Arc<Transparent>, Closed> {
        let none = || Closed::Configuration("the stack is not transparent: begin with `transparent`".to_owned());
        self.transparent.as_ref().ok_or_else(none)
    }

    fn poll_opening(&self, transparent: &Arc<Transparent>, waker: &Waker) -> Poll<Result<Opening, Closed>> {
        let runtime = TcpRuntime::new(&self.drivers);
        let next = OpeningHandle::poll_next(&runtime, self.drivers.shared(0), transparent, waker);
        next.map(|handle| handle.map(|handle| Opening { handle }).ok_or(crate::stream::GONE))
    }
}

/// Ends an abandoned attempt to connect when it is dropped.
struct AbortOnDrop(Option<tcp_driver::StreamHandle<TcpRuntime>>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        if let Some(handle) = self.0.take() {
            handle.abort();
        }
    }
}

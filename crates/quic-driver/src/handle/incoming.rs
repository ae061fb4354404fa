//! [`IncomingHandle`]: a client's attempt to connect, before the handshake.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use driver::Flush;
use quic::ConnectionId;

use super::Runtime;
use crate::application::QuicShared;
use crate::incoming::{Decision, IncomingInfo, IncomingQueue};

/// A client's attempt to connect, before the handshake: the endpoint has its first packet and no
/// other state. The application decides with [`accept`](Self::accept), [`refuse`](Self::refuse),
/// [`retry`](Self::retry) or [`ignore`](Self::ignore). Dropping it refuses the client.
///
/// An attempt expires after the handshake timeout: the client is then refused, and later decisions
/// have no effect.
#[must_use = "dropping it refuses the client"]
pub struct IncomingHandle<R: Runtime> {
    runtime: R,
    shared: Arc<QuicShared>,
    queue: Arc<IncomingQueue>,
    info: IncomingInfo,
    is_decided: bool,
}

impl<R: Runtime> IncomingHandle<R> {
    /// Creates the handle of an attempt from `queue`, which a driver with the state `shared` holds.
    pub fn new(runtime: R, shared: Arc<QuicShared>, queue: Arc<IncomingQueue>, info: IncomingInfo) -> Self {
        Self { runtime, shared, queue, info, is_decided: false }
    }

    /// Returns the client's address. It may be forged unless it [is validated](Self::is_validated).
    pub fn remote_address(&self) -> SocketAddr {
        self.info.addresses.remote
    }

    /// Returns the address at which the client's packet arrived: with its IP address if the system
    /// reports it, otherwise the address to which the socket is bound.
    pub fn local_address(&self) -> SocketAddr {
        let mut local = self.shared.local_addrs[usize::from(self.info.addresses.socket)];
        if let Some(ip) = self.info.addresses.local_ip {
            local.set_ip(ip);
        }
        local
    }

    /// Returns whether the client has proved that it receives packets at its address: it responds
    /// to [`retry`](Self::retry), or has a token of an earlier connection (RFC 9000, section 8.1).
    pub fn is_validated(&self) -> bool {
        self.info.is_validated
    }

    /// Returns the destination connection ID of the first packet that the client sent, which it
    /// chose at random. Journals and qlog files of both sides identify the connection by it.
    pub fn original_destination(&self) -> ConnectionId {
        self.info.original_destination
    }

    /// Begins the handshake. `accept` of the endpoint returns the connection when it is complete.
    pub fn accept(mut self) {
        self.decide(Decision::Accept);
    }

    /// Refuses the client, whose connection ends at once with CONNECTION_REFUSED.
    pub fn refuse(mut self) {
        self.decide(Decision::Refuse);
    }

    /// Makes the client prove its address (RFC 9000, section 8.1.2): a round trip later it returns
    /// as another attempt, which is validated.
    ///
    /// # Errors
    /// If the client has already proved its address. The error contains the attempt.
    pub fn retry(mut self) -> Result<(), RetryError<R>> {
        if self.is_validated() {
            return Err(RetryError(Box::new(self)));
        }
        self.decide(Decision::Retry);
        Ok(())
    }

    /// Drops the attempt without an answer. The client tries again until it times out: each time as
    /// another attempt.
    pub fn ignore(mut self) {
        self.decide(Decision::Ignore);
    }

    fn decide(&mut self, decision: Decision) {
        if !std::mem::replace(&mut self.is_decided, true) {
            self.queue.decide(&self.info, decision);
            self.shared.note_decision();
            self.runtime.kick(&self.shared, Flush::Now);
        }
    }
}

impl<R: Runtime> Drop for IncomingHandle<R> {
    fn drop(&mut self) {
        self.decide(Decision::Refuse);
    }
}

impl<R: Runtime> fmt::Debug for IncomingHandle<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Incoming")
            .field("remote_address", &self.remote_address())
            .field("is_validated", &self.is_validated())
            .finish_non_exhaustive()
    }
}

/// Error of [`IncomingHandle::retry`] for a client that has already proved its address.
pub struct RetryError<R: Runtime>(Box<IncomingHandle<R>>);

impl<R: Runtime> RetryError<R> {
    /// Returns the attempt, which waits for another decision.
    pub fn into_incoming(self) -> IncomingHandle<R> {
        *self.0
    }
}

impl<R: Runtime> fmt::Debug for RetryError<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RetryError").field(&self.0).finish()
    }
}

impl<R: Runtime> fmt::Display for RetryError<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the client has already proved its address")
    }
}

impl<R: Runtime> std::error::Error for RetryError<R> {}

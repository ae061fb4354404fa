//! [`OpeningHandle`]: a peer's attempt to connect through a transparent stack, before any answer.

use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Poll, Waker};

use driver::Flush;
use tcp::DSCP_MAX;

use crate::application::{TcpCell, TcpShared};
use crate::handle::{Runtime, StreamHandle};
use crate::transparent::{Decision, Opening, Transparent};

/// A peer's attempt to connect: the stack has its SYN, and has not answered. The application
/// decides by calling [`accept`](Self::accept), [`refuse`](Self::refuse),
/// [`report_unreachable`](Self::report_unreachable) or [`ignore`](Self::ignore). Dropping it
/// ignores the peer.
#[must_use = "dropping it leaves the peer without an answer"]
pub struct OpeningHandle<R: Runtime> {
    runtime: R,
    shared: Arc<TcpShared>,
    transparent: Arc<Transparent>,
    opening: Opening,
    is_decided: bool,
}

impl<R: Runtime> OpeningHandle<R> {
    /// Returns the next attempt, in order of arrival. Returns `None` if the stack is closed.
    pub fn poll_next(
        runtime: &R,
        shared: &Arc<TcpShared>,
        transparent: &Arc<Transparent>,
        waker: &Waker,
    ) -> Poll<Option<Self>> {
        transparent.poll_opening(waker).map(|opening| {
            let (runtime, shared, transparent) = (runtime.clone(), Arc::clone(shared), Arc::clone(transparent));
            Some(Self { runtime, shared, transparent, opening: opening?, is_decided: false })
        })
    }

    /// Returns the peer's address.
    pub const fn source(&self) -> SocketAddr {
        self.opening.tuple.remote
    }

    /// Returns the address that the peer wants to connect to.
    pub const fn destination(&self) -> SocketAddr {
        self.opening.tuple.local
    }

    /// Returns whether the peer offers explicit congestion notification.
    pub const fn asks_for_ecn(&self) -> bool {
        self.opening.asks_for_ecn
    }

    /// Returns the differentiated services code point of the SYN (RFC 2474).
    pub const fn dscp(&self) -> u8 {
        self.opening.dscp
    }

    /// Answers the peer. Wait for the end of the handshake with
    /// [`poll_connected`](StreamHandle::poll_connected).
    pub fn accept(self) -> StreamHandle<R> {
        self.accept_with_dscp(0)
    }

    /// Does the same as [`accept`](Self::accept), with this differentiated services code point in
    /// all packets from the answer on. [`StreamHandle::set_dscp`] changes it.
    ///
    /// # Panics
    /// Panics if it has more than six bits.
    pub fn accept_with_dscp(mut self, dscp: u8) -> StreamHandle<R> {
        assert!(dscp <= DSCP_MAX, "a DSCP has six bits");
        let cell = TcpCell::new(Arc::clone(&self.shared), self.source());
        self.decide(Decision::Accept(Arc::clone(&cell), dscp));
        StreamHandle::new(cell, self.runtime.clone())
    }

    /// Resets the peer, so that its connection is refused.
    pub fn refuse(mut self) {
        self.decide(Decision::Refuse);
    }

    /// Reports to the peer that the host is unreachable.
    pub fn report_unreachable(mut self) {
        self.decide(Decision::Unreachable);
    }

    /// Leaves the peer without an answer. It retries, as another attempt, until it gives up.
    pub fn ignore(mut self) {
        self.decide(Decision::Ignore);
    }

    fn decide(&mut self, decision: Decision) {
        if !std::mem::replace(&mut self.is_decided, true) {
            self.transparent.decide(self.opening.tuple, decision);
            self.shared.note_decision();
            self.runtime.kick(&self.shared, Flush::Now);
        }
    }
}

impl<R: Runtime> Drop for OpeningHandle<R> {
    fn drop(&mut self) {
        self.decide(Decision::Ignore);
    }
}

impl<R: Runtime> std::fmt::Debug for OpeningHandle<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("OpeningHandle").field(&self.opening).finish()
    }
}

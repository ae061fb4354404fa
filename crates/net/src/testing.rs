//! Sockets for tests: a real one or its in-memory counterpart, whose calls a test intercepts.
//!
//! [`InterceptedSocket`] passes every call to an [`Intercept`], which by default passes it on to
//! the inner socket. The following intercepts are ready-made; a test with special needs overrides
//! one or two methods of the trait itself.
//!
//! | intercept | effect |
//! |---|---|
//! | [`Faults`] | panics, hangs, fails or refuses when a test requests it, and counts calls |
//! | [`RefuseSends`] | refuses single sends, chosen by their number |
//! | [`DropSends`] | loses every n-th batch |
//! | [`OneByOne`] | sends no batches |
//! | [`Coalesce`] | joins received datagrams into batches, as receive offload does |
//! | [`Alias`] | reports an address other than the one to which it is bound |
//!
//! Nothing outside tests uses this module, and a program that does not use it does not contain it.

mod faults;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;

pub use faults::Faults;

use crate::counters::SocketCounters;
use crate::datagram::{DatagramSocket, RECV_BUFFER_BYTES, RecvMeta, SendError, Transmit};

/// A test's changes to the calls of a socket. Each method passes the call on to `inner`.
pub trait Intercept: Send {
    /// See [`DatagramSocket::local_addr`].
    ///
    /// # Errors
    /// Same errors as [`DatagramSocket::local_addr`].
    fn local_addr(&self, inner: &dyn DatagramSocket) -> io::Result<SocketAddr> {
        inner.local_addr()
    }

    /// See [`DatagramSocket::max_gso_segments`].
    fn max_gso_segments(&self, inner: &dyn DatagramSocket) -> usize {
        inner.max_gso_segments()
    }

    /// See [`DatagramSocket::send`].
    ///
    /// # Errors
    /// Same errors as [`DatagramSocket::send`].
    fn send(&mut self, inner: &mut dyn DatagramSocket, transmit: &Transmit<'_>) -> Result<(), SendError> {
        inner.send(transmit)
    }

    /// See [`DatagramSocket::flush`].
    ///
    /// # Errors
    /// Same errors as [`DatagramSocket::flush`].
    fn flush(&mut self, inner: &mut dyn DatagramSocket) -> Result<(), SendError> {
        inner.flush()
    }

    /// See [`DatagramSocket::recv`].
    ///
    /// # Errors
    /// Same errors as [`DatagramSocket::recv`].
    fn recv(
        &mut self,
        inner: &mut dyn DatagramSocket,
        buffers: &mut [&mut [u8]],
        metas: &mut [RecvMeta],
    ) -> io::Result<usize> {
        inner.recv(buffers, metas)
    }

    /// Stores the waker with which a driver that takes over the socket is notified of arrivals.
    fn set_waker(&mut self, _waker: &Waker) {}
}

/// A socket with intercepted calls.
#[derive(Debug)]
pub struct InterceptedSocket<S, I> {
    /// The inner socket.
    pub inner: S,
    /// The changes to the calls.
    pub intercept: I,
}

impl<S, I> InterceptedSocket<S, I> {
    /// Creates a socket that intercepts the calls of `inner`.
    pub fn new(inner: S, intercept: I) -> Self {
        Self { inner, intercept }
    }
}

impl<S: DatagramSocket, I: Intercept> DatagramSocket for InterceptedSocket<S, I> {
    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.intercept.local_addr(&self.inner)
    }

    fn max_gso_segments(&self) -> usize {
        self.intercept.max_gso_segments(&self.inner)
    }

    fn max_gro_segments(&self) -> usize {
        self.inner.max_gro_segments()
    }

    fn send(&mut self, transmit: &Transmit<'_>) -> Result<(), SendError> {
        self.intercept.send(&mut self.inner, transmit)
    }

    fn flush(&mut self) -> Result<(), SendError> {
        self.intercept.flush(&mut self.inner)
    }

    fn recv(&mut self, buffers: &mut [&mut [u8]], metas: &mut [RecvMeta]) -> io::Result<usize> {
        self.intercept.recv(&mut self.inner, buffers, metas)
    }

    fn counters(&self) -> &SocketCounters {
        self.inner.counters()
    }
}

/// Refuses the sends selected by `choose`.
#[derive(Debug)]
pub struct RefuseSends {
    /// The error of send number n (from 1), if it is refused.
    choose: fn(u64) -> Option<SendError>,
    asked: u64,
    refused: Arc<Refusals>,
}

/// Number of refused sends.
#[derive(Debug, Default)]
pub struct Refusals {
    /// Refusals by the test's choice.
    pub chosen: AtomicU64,
    /// Refusals by the socket itself.
    pub by_socket: AtomicU64,
}

impl Refusals {
    /// Returns the number of refusals by the test's choice or by the socket.
    pub fn total(&self) -> u64 {
        self.chosen.load(Ordering::SeqCst) + self.by_socket.load(Ordering::SeqCst)
    }
}

impl RefuseSends {
    /// Creates an intercept that counts refusals in `refused`.
    pub fn new(choose: fn(u64) -> Option<SendError>, refused: &Arc<Refusals>) -> Self {
        Self { choose, asked: 0, refused: Arc::clone(refused) }
    }
}

impl Intercept for RefuseSends {
    fn send(&mut self, inner: &mut dyn DatagramSocket, transmit: &Transmit<'_>) -> Result<(), SendError> {
        self.asked += 1;
        if let Some(error) = (self.choose)(self.asked) {
            self.refused.chosen.fetch_add(1, Ordering::SeqCst);
            return Err(error);
        }
        inner.send(transmit).inspect_err(|_| {
            self.refused.by_socket.fetch_add(1, Ordering::SeqCst);
        })
    }
}

/// Drops every n-th batch that is sent.
#[derive(Debug)]
pub struct DropSends {
    every: u64,
    sent: u64,
    lost: Arc<AtomicU64>,
}

impl DropSends {
    /// Creates an intercept that drops one batch in `every` and counts the losses in `lost`.
    pub fn one_of(every: u64, lost: &Arc<AtomicU64>) -> Self {
        Self { every, sent: 0, lost: Arc::clone(lost) }
    }
}

impl Intercept for DropSends {
    fn send(&mut self, inner: &mut dyn DatagramSocket, transmit: &Transmit<'_>) -> Result<(), SendError> {
        self.sent += 1;
        if self.sent.is_multiple_of(self.every) {
            self.lost.fetch_add(1, Ordering::SeqCst);
            return Ok(());
        }
        inner.send(transmit)
    }
}

/// Sends no batches, but one datagram per call.
#[derive(Debug, Default)]
pub struct OneByOne;

impl Intercept for OneByOne {
    fn max_gso_segments(&self, _inner: &dyn DatagramSocket) -> usize {
        1
    }
}

/// Joins datagrams from one address into batches, regardless of their connections, as receive
/// offload does.
#[derive(Debug, Default)]
pub struct Coalesce {
    /// Number of datagrams that were appended to another one.
    pub joined: Arc<AtomicU64>,
}

impl Intercept for Coalesce {
    fn recv(
        &mut self,
        inner: &mut dyn DatagramSocket,
        buffers: &mut [&mut [u8]],
        metas: &mut [RecvMeta],
    ) -> io::Result<usize> {
        let count = inner.recv(buffers, metas)?;
        let mut kept = 0;
        for next in 1..count {
            let (into, from) = (metas[kept], metas[next]);
            let whole = into.len % into.stride == 0 && from.len <= into.stride;
            let (front, back) = buffers.split_at_mut(next);
            if whole && into.source == from.source && into.len + from.len <= RECV_BUFFER_BYTES {
                front[kept][into.len..into.len + from.len].copy_from_slice(&back[0][..from.len]);
                metas[kept].len += from.len;
                self.joined.fetch_add(1, Ordering::SeqCst);
            } else {
                kept += 1;
                if kept < next {
                    front[kept][..from.len].copy_from_slice(&back[0][..from.len]);
                }
                metas[kept] = from;
            }
        }
        // Report as many buffers as requested, so that the caller repeats the call; the buffers
        // after the joined ones are empty.
        for meta in &mut metas[kept + 1..count] {
            meta.len = 0;
        }
        Ok(count)
    }
}

/// Pretends to be bound to another address, like sockets of several processors that share a port.
#[derive(Debug)]
pub struct Alias(pub SocketAddr);

impl Intercept for Alias {
    fn local_addr(&self, _inner: &dyn DatagramSocket) -> io::Result<SocketAddr> {
        Ok(self.0)
    }

    fn send(&mut self, inner: &mut dyn DatagramSocket, transmit: &Transmit<'_>) -> Result<(), SendError> {
        inner.send(&Transmit { source_ip: Some(self.0.ip()), ..*transmit })
    }

    fn recv(
        &mut self,
        inner: &mut dyn DatagramSocket,
        buffers: &mut [&mut [u8]],
        metas: &mut [RecvMeta],
    ) -> io::Result<usize> {
        let count = inner.recv(buffers, metas)?;
        metas[..count].iter_mut().for_each(|meta| meta.destination_ip = Some(self.0.ip()));
        Ok(count)
    }
}

#[cfg(test)]
mod tests;

//! Sockets that a sleeping driver can be woken for.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Arc, Mutex};
use std::task::Waker;

use net::{DatagramSocket, MemorySocket, RecvMeta, SendError, SocketCounters, Transmit, UdpSocket};

use crate::sync::lock;

/// How a socket says that something has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readiness {
    /// By a file descriptor that can be polled. It must stay open as long as the socket lives.
    Descriptor(RawFd),
    /// By the waker it was given. Such a socket never answers `WouldBlock` to a send for long: it is asked again soon.
    Waker,
}

/// A [`DatagramSocket`] that can wake.
pub trait LiveSocket: DatagramSocket {
    /// How arrivals are announced; `waker` is for sockets that announce them by it. Called when a processor
    /// takes the socket over.
    fn readiness(&mut self, waker: &Waker) -> Readiness;

    /// Another handle on the same socket, for a processor that only receives while this one only sends. None if there is no such
    /// thing: the two processors take turns at the socket then.
    ///
    /// # Errors
    /// What the system reports.
    fn receiver(&mut self) -> io::Result<Option<Box<dyn LiveSocket>>> {
        Ok(None)
    }
}

impl LiveSocket for UdpSocket {
    fn readiness(&mut self, _waker: &Waker) -> Readiness {
        Readiness::Descriptor(self.as_raw_fd())
    }

    fn receiver(&mut self) -> io::Result<Option<Box<dyn LiveSocket>>> {
        Ok(Some(Box::new(self.try_clone()?)))
    }
}

impl LiveSocket for MemorySocket {
    fn readiness(&mut self, waker: &Waker) -> Readiness {
        self.set_waker(waker.clone());
        Readiness::Waker
    }

    fn receiver(&mut self) -> io::Result<Option<Box<dyn LiveSocket>>> {
        Ok(Some(Box::new(self.clone())))
    }
}

/// A socket that two processors take turns at.
pub(crate) struct SharedSocket {
    inner: Arc<Mutex<Box<dyn LiveSocket>>>,
    /// As of this handle's last call.
    counters: SocketCounters,
}

impl SharedSocket {
    /// Two handles on one socket.
    pub(crate) fn pair(socket: Box<dyn LiveSocket>) -> [Box<dyn LiveSocket>; 2] {
        let inner = Arc::new(Mutex::new(socket));
        let handle = |inner| Box::new(Self { inner, counters: SocketCounters::default() });
        [handle(Arc::clone(&inner)), handle(inner)]
    }

    fn with<T>(&mut self, call: impl FnOnce(&mut dyn LiveSocket) -> T) -> T {
        let mut inner = lock(&self.inner);
        let result = call(&mut **inner);
        self.counters = *inner.counters();
        result
    }
}

impl DatagramSocket for SharedSocket {
    fn local_addr(&self) -> io::Result<SocketAddr> {
        lock(&self.inner).local_addr()
    }

    fn max_gso_segments(&self) -> usize {
        lock(&self.inner).max_gso_segments()
    }

    fn max_gro_segments(&self) -> usize {
        lock(&self.inner).max_gro_segments()
    }

    fn send(&mut self, transmit: &Transmit<'_>) -> Result<(), SendError> {
        self.with(|socket| socket.send(transmit))
    }

    fn flush(&mut self) -> Result<(), SendError> {
        self.with(|socket| socket.flush())
    }

    fn recv(&mut self, buffers: &mut [&mut [u8]], metas: &mut [RecvMeta]) -> io::Result<usize> {
        self.with(|socket| socket.recv(buffers, metas))
    }

    fn counters(&self) -> &SocketCounters {
        &self.counters
    }
}

impl LiveSocket for SharedSocket {
    fn readiness(&mut self, waker: &Waker) -> Readiness {
        lock(&self.inner).readiness(waker)
    }
}

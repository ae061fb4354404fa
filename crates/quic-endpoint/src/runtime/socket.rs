//! [`LiveSocket`]: datagram sockets that announce arrivals to a sleeping thread.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex};
use std::task::Waker;

use driver::sync::lock;
use engine::Readiness;
use net::testing::{Intercept, InterceptedSocket};
use net::{DatagramSocket, MemorySocket, RecvMeta, SendError, SocketCounters, Transmit, UdpSocket};

/// A [`DatagramSocket`] that announces arrivals.
pub trait LiveSocket: DatagramSocket {
    /// Returns how arrivals are announced. `waker` serves [`Readiness::Waker`]. Called when a
    /// processor begins to receive from the socket.
    fn readiness(&mut self, waker: &Waker) -> Readiness;

    /// Creates another handle of the same socket, for a processor that only receives while this one
    /// only sends. `None` if that is not possible: the two processors then share this handle behind
    /// a lock.
    ///
    /// # Errors
    /// If the system reports an error.
    fn receiver(&mut self) -> io::Result<Option<Box<dyn LiveSocket>>> {
        Ok(None)
    }

    /// Returns how often the socket behind this handle was replaced. After a change, the caller
    /// queries [`readiness`](Self::readiness) again.
    fn replacements(&mut self) -> u64 {
        0
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

impl<S: LiveSocket + ?Sized> LiveSocket for Box<S> {
    fn readiness(&mut self, waker: &Waker) -> Readiness {
        (**self).readiness(waker)
    }

    fn receiver(&mut self) -> io::Result<Option<Box<dyn LiveSocket>>> {
        (**self).receiver()
    }

    fn replacements(&mut self) -> u64 {
        (**self).replacements()
    }
}

/// This implementation serves tests. There is no second handle, because the intercept must see all
/// calls.
impl<S: LiveSocket, I: Intercept> LiveSocket for InterceptedSocket<S, I> {
    fn readiness(&mut self, waker: &Waker) -> Readiness {
        self.intercept.set_waker(waker);
        self.inner.readiness(waker)
    }
}

/// A socket handle that two processors share behind a lock.
pub(crate) struct SharedSocket {
    inner: Arc<Mutex<Box<dyn LiveSocket>>>,
    /// Counters as of this handle's last call.
    counters: SocketCounters,
}

impl SharedSocket {
    /// Creates two handles of one socket.
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

    fn replacements(&mut self) -> u64 {
        lock(&self.inner).replacements()
    }
}

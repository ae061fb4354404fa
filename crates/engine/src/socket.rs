//! Sockets that a sleeping driver can be woken for.

use std::os::fd::{AsRawFd, RawFd};
use std::task::Waker;

use net::{DatagramSocket, MemorySocket, UdpSocket};

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
    /// How arrivals are announced; `waker` is for sockets that announce them by it. Called once.
    fn readiness(&mut self, waker: &Waker) -> Readiness;
}

impl LiveSocket for UdpSocket {
    fn readiness(&mut self, _waker: &Waker) -> Readiness {
        Readiness::Descriptor(self.as_raw_fd())
    }
}

impl LiveSocket for MemorySocket {
    fn readiness(&mut self, waker: &Waker) -> Readiness {
        self.set_waker(waker.clone());
        Readiness::Waker
    }
}

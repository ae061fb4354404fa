//! Waking the other side of a ring, through a socket connected to it.

use std::io::{self, Read};
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;

use rustix::io::Errno;
use rustix::net::{SendFlags, send};

/// Number of bytes taken at once. Each is a wake-up, and one means the same as many.
pub const WAKES_MAX: usize = 64;

/// Wakes the other side. Returns false if it has gone.
#[must_use]
pub fn wake(socket: BorrowedFd<'_>) -> bool {
    match send(socket, &[0], SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
        // A full socket buffer holds wake-ups that it has not taken.
        Ok(_) | Err(Errno::AGAIN) => true,
        // This includes a system without memory: a connection that ends is better than one that
        // sleeps for ever.
        Err(_) => false,
    }
}

/// Waits until the other side wakes this one; returns true if it has gone.
pub(crate) fn sleep(mut socket: &UnixStream) -> io::Result<bool> {
    match socket.read(&mut [0; WAKES_MAX]) {
        Ok(len) => Ok(len == 0),
        // It has gone without taking our wake-ups.
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(io::ErrorKind::TimedOut.into()),
        Err(error) => Err(error),
    }
}

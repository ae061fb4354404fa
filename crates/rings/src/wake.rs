//! Waking the other side of a ring, through a socket whose other end it has.

use std::io::{self, Read};
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;

use rustix::io::Errno;
use rustix::net::{SendFlags, send};

/// Bytes that are taken at once. Each is a wake-up, and one means as much as many.
pub const WAKES_MAX: usize = 64;

/// Wakes the other side. False if it has gone.
#[must_use]
pub fn wake(socket: BorrowedFd<'_>) -> bool {
    match send(socket, &[0], SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
        // Without space there are wake-ups that it has not taken.
        Ok(_) | Err(Errno::AGAIN) => true,
        // Also if the system has no memory: a connection that ends is better than one that sleeps for ever.
        Err(_) => false,
    }
}

/// Waits until the other side wakes this one, or has gone: then it returns true.
pub(crate) fn sleep(mut socket: &UnixStream) -> io::Result<bool> {
    match socket.read(&mut [0; WAKES_MAX]) {
        Ok(len) => Ok(len == 0),
        // It has gone, and has left wake-ups of ours.
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(io::ErrorKind::TimedOut.into()),
        Err(error) => Err(error),
    }
}

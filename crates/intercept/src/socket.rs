//! Properties of sockets that have no safe interface elsewhere.

use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::Errno;

/// Returns the kernel's number of a socket's network namespace (SO_NETNS_COOKIE). The number is
/// never reused.
///
/// # Errors
/// Fails if the kernel does not support it (before Linux 5.14), or this is no socket.
pub fn network_namespace(socket: BorrowedFd<'_>) -> Result<u64, Errno> {
    let (mut number, mut len) = (0_u64, size_of::<u64>() as libc::socklen_t);
    // SAFETY: the kernel writes at most `len` bytes to `number`, and their count to `len`; both are of this function.
    let result = unsafe {
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, SO_NETNS_COOKIE, (&raw mut number).cast(), &raw mut len)
    };
    match result {
        0 => Ok(number),
        _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL)),
    }
}

/// From asm-generic/socket.h; not every list of constants has it.
const SO_NETNS_COOKIE: libc::c_int = 71;

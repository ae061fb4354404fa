//! UNIX sockets that preserve message boundaries (SOCK_SEQPACKET) and pass descriptors.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recvmsg, sendmsg, socket_with,
};

/// Limit on descriptors in a message.
pub const DESCRIPTORS_MAX: usize = crate::ends::PASSED;

/// Creates a socket. With [`SocketFlags::NONBLOCK`], its calls do not block.
///
/// # Errors
/// Returns the system's error.
pub fn new_socket(flags: SocketFlags) -> io::Result<OwnedFd> {
    Ok(socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags | SocketFlags::CLOEXEC, None)?)
}

/// Creates a socket connected to the one at `path`.
///
/// # Errors
/// Returns the system's error.
pub fn connect_to(path: &Path, flags: SocketFlags) -> io::Result<OwnedFd> {
    let socket = new_socket(flags)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

/// Receives a message and its descriptors. Its length is 0 at the end.
///
/// # Errors
/// Returns the system's error. Returns [`InvalidData`](io::ErrorKind::InvalidData) if the message
/// is longer than the buffer, or has more than `descriptors_max` descriptors: they are closed.
pub fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8], descriptors_max: usize) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(socket, &mut [IoSliceMut::new(buffer)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let rights = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    let descriptors: Vec<OwnedFd> = rights.flatten().collect();
    if descriptors.len() > descriptors_max || received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a message is too long, or has too many descriptors"));
    }
    Ok((received.bytes, descriptors))
}

/// Sends a message with descriptors.
///
/// # Errors
/// Returns the system's error.
///
/// # Panics
/// Panics if there are more than [`DESCRIPTORS_MAX`] descriptors.
pub fn send(socket: BorrowedFd<'_>, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        let fit = control.push(SendAncillaryMessage::ScmRights(descriptors));
        assert!(fit, "{} descriptors with a message", descriptors.len());
    }
    sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

//! A UNIX socket that keeps the borders of messages, and passes descriptors.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, UCred, connect, recvmsg, sendmsg,
    socket_with, sockopt,
};
use tokio::io::Interest;
use tokio::net::UnixStream;

/// One end of a connection between the daemon and a program.
pub(super) struct Packets {
    /// The runtime's type for UNIX sockets, which does not look at their kind.
    socket: UnixStream,
}

impl Packets {
    /// Takes a socket that was accepted.
    pub(super) const fn new(socket: UnixStream) -> Self {
        Self { socket }
    }

    /// Connects to the daemon at `path`. Needs the runtime.
    pub(super) fn connect(path: &Path) -> io::Result<Self> {
        Ok(Self::new(UnixStream::from_std(connect_to(path)?.into())?))
    }

    /// The other end reads its end, and what it sends fails.
    pub(super) fn close(&self) {
        // It fails only if the other end has gone.
        let _over = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
    }

    /// The process at the other end, as the kernel knows it (SO_PEERCRED).
    pub(super) fn peer(&self) -> io::Result<UCred> {
        Ok(sockopt::socket_peercred(&self.socket)?)
    }

    /// The next message in `buffer`, and the descriptor that came with it. `None` at the end.
    ///
    /// # Errors
    /// Also if the message is longer than the buffer, or comes with several descriptors.
    pub(super) async fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<(usize, Option<OwnedFd>)>> {
        let (len, descriptor) =
            self.socket.async_io(Interest::READABLE, || receive(self.socket.as_fd(), buffer)).await?;
        Ok((len > 0).then_some((len, descriptor)))
    }

    /// Sends a message as soon as there is space for it.
    pub(super) async fn send(&self, bytes: &[u8], descriptor: Option<BorrowedFd<'_>>) -> io::Result<()> {
        self.socket.async_io(Interest::WRITABLE, || send(self.socket.as_fd(), bytes, descriptor)).await
    }

    /// Sends a message if there is space for it.
    pub(super) fn try_send(&self, bytes: &[u8]) -> io::Result<()> {
        send(self.socket.as_fd(), bytes, None)
    }
}

/// A socket that does not block.
pub(super) fn new_socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

/// A socket that is connected to the daemon at `path`.
pub(super) fn connect_to(path: &Path) -> io::Result<OwnedFd> {
    let socket = new_socket()?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(socket, &mut [IoSliceMut::new(buffer)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    // The kernel rounds the space up, so that two of them fit.
    let rights = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    let mut descriptors = rights.flatten();
    let descriptor = descriptors.next();
    let are_several = descriptors.next().is_some();
    drop(descriptors);
    if are_several || received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a message is too long, or has several descriptors"));
    }
    Ok((received.bytes, descriptor))
}

fn send(socket: BorrowedFd<'_>, bytes: &[u8], descriptor: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if let Some(descriptor) = &descriptor {
        control.push(SendAncillaryMessage::ScmRights(std::slice::from_ref(descriptor)));
    }
    sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

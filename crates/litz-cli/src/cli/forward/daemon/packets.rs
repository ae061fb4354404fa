//! A UNIX socket that keeps the borders of messages, and passes descriptors, in the runtime.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rings::packets;
use rustix::net::{SocketFlags, UCred, sockopt};
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
        Ok(Self::new(UnixStream::from_std(packets::connect_to(path, SocketFlags::NONBLOCK)?.into())?))
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
        let receive = || packets::receive(self.socket.as_fd(), buffer, 1);
        let (len, mut descriptors) = self.socket.async_io(Interest::READABLE, receive).await?;
        Ok((len > 0).then_some((len, descriptors.pop())))
    }

    /// Sends a message as soon as there is space for it.
    pub(super) async fn send(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        self.socket.async_io(Interest::WRITABLE, || packets::send(self.socket.as_fd(), bytes, descriptors)).await
    }

    /// Sends a message if there is space for it.
    pub(super) fn try_send(&self, bytes: &[u8]) -> io::Result<()> {
        packets::send(self.socket.as_fd(), bytes, &[])
    }
}

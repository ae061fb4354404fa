//! The daemon's end of a connection with a program: a socket, or rings in shared memory.

use std::io;
use std::net::SocketAddr;

use bytes::Bytes;
use forwarding::carry::{Local, ReadBuffer};
use forwarding::socket::Socket;
use litz::StridedBytes;

use super::ring_end::RingEnd;

pub(super) enum ProgramEnd {
    Socket(Socket),
    Rings(RingEnd),
}

impl ProgramEnd {
    /// The address of a socket.
    pub(super) fn local_addr(&self) -> Option<SocketAddr> {
        match self {
            Self::Socket(socket) => socket.local_addr(),
            Self::Rings(_) => None,
        }
    }
}

impl Local for ProgramEnd {
    async fn read(&self, buffer: &mut ReadBuffer) -> io::Result<Option<Bytes>> {
        match self {
            Self::Socket(socket) => Local::read(socket, buffer).await,
            Self::Rings(rings) => rings.read(buffer).await,
        }
    }

    async fn write(&self, bytes: &mut StridedBytes) -> io::Result<()> {
        match self {
            Self::Socket(socket) => socket.write(bytes).await,
            Self::Rings(rings) => rings.write(bytes).await,
        }
    }

    fn finish(&self) -> io::Result<()> {
        match self {
            Self::Socket(socket) => socket.finish(),
            Self::Rings(rings) => rings.finish(),
        }
    }

    async fn failed(&self) -> io::Error {
        match self {
            Self::Socket(socket) => socket.failed().await,
            Self::Rings(rings) => rings.failed().await,
        }
    }

    fn close(self) {
        match self {
            Self::Socket(socket) => socket.close(),
            Self::Rings(rings) => rings.close(),
        }
    }
}

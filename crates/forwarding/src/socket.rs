//! A stream socket of this host: TCP or UNIX.

use std::future::pending;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use quic_endpoint::StridedBytes;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::Interest;
use tokio::net::{TcpStream, UnixStream};

use super::carry::{Local, ReadBuffer};

/// Idle time after which the kernel probes whether a peer of ours still exists. A forwarded connection
/// whose peer has vanished would otherwise stay for ever.
const KEEP_ALIVE: Duration = Duration::from_secs(120);

/// Pieces of one write: those of a receive buffer of 64 KiB with packets of 1200 bytes.
const PIECES_MAX: usize = 64;

/// A connected socket. Dropping it before [`close`](Local::close), or the end of this process, resets a
/// TCP connection, so that its peer does not take cut data for complete.
pub struct Socket {
    kind: Kind,
}

enum Kind {
    Tcp(TcpStream),
    Unix(UnixStream),
}

macro_rules! each {
    ($self:expr, $socket:ident => $act:expr) => {
        match &$self.kind {
            Kind::Tcp($socket) => $act,
            Kind::Unix($socket) => $act,
        }
    };
}

impl Socket {
    /// Takes a connection of TCP.
    pub fn tcp(stream: TcpStream) -> Self {
        // Segments are as the other side of the connection sent them. Where the options fail, the
        // connection has ended, and its next use says so.
        let _no_delay = stream.set_nodelay(true);
        let _probed = SockRef::from(&stream).set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEP_ALIVE));
        // Also where this process is killed: the kernel closes the socket then.
        let _reset = SockRef::from(&stream).set_linger(Some(Duration::ZERO));
        Self { kind: Kind::Tcp(stream) }
    }

    pub(crate) fn unix(stream: UnixStream) -> Self {
        Self { kind: Kind::Unix(stream) }
    }

    /// The address of this end; none for a UNIX socket.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        match &self.kind {
            Kind::Tcp(stream) => stream.local_addr().ok(),
            Kind::Unix(_) => None,
        }
    }

    /// Waits until there may be bytes to read.
    pub(crate) async fn readable(&self) -> io::Result<()> {
        each!(self, socket => socket.readable().await)
    }

    /// Waits until bytes may be written.
    pub(crate) async fn writable(&self) -> io::Result<()> {
        each!(self, socket => socket.writable().await)
    }

    /// Reads what is there into the free space of `buffer`.
    pub(crate) fn try_read(&self, buffer: &mut BytesMut) -> io::Result<usize> {
        each!(self, socket => socket.try_read_buf(buffer))
    }

    /// Writes what the kernel takes.
    pub(crate) fn try_write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        each!(self, socket => socket.try_write_vectored(slices))
    }

    /// Waits for bytes and reads them into the free space of `buffer`; 0 at the end.
    pub(crate) async fn read(&self, buffer: &mut BytesMut) -> io::Result<usize> {
        loop {
            self.readable().await?;
            match self.try_read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return read,
            }
        }
    }

    /// Writes all of `bytes`.
    ///
    /// # Errors
    /// If the connection has failed.
    pub async fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.try_write(&[IoSlice::new(bytes)]) {
                Ok(written) => bytes = &bytes[written..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.writable().await?,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The socket for another process. Until that process has it, its end resets the connection.
    ///
    /// # Errors
    /// If the runtime does not let go of it.
    pub fn pass(self) -> io::Result<OwnedFd> {
        match self.kind {
            Kind::Tcp(stream) => Ok(stream.into_std()?.into()),
            Kind::Unix(stream) => Ok(stream.into_std()?.into()),
        }
    }
}

impl Local for Socket {
    async fn read(&self, buffer: &mut ReadBuffer) -> io::Result<Option<Bytes>> {
        loop {
            match self.try_read(buffer.space()) {
                Ok(0) => return Ok(None),
                Ok(_) => return Ok(Some(buffer.take())),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.readable().await?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    async fn write(&self, bytes: &mut StridedBytes) -> io::Result<()> {
        let mut slices = [IoSlice::new(&[]); PIECES_MAX];
        let mut count = 0;
        for (slice, piece) in slices.iter_mut().zip(bytes.pieces()) {
            *slice = IoSlice::new(piece);
            count += 1;
        }
        loop {
            match self.try_write(&slices[..count]) {
                Ok(written) => {
                    bytes.advance(written);
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.writable().await?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn finish(&self) -> io::Result<()> {
        each!(self, socket => SockRef::from(socket).shutdown(std::net::Shutdown::Write))
    }

    async fn failed(&self) -> io::Error {
        let ready = each!(self, socket => socket.ready(Interest::ERROR).await);
        let error = match ready {
            Ok(_) => each!(self, socket => SockRef::from(socket).take_error()),
            Err(error) => Err(error),
        };
        match error {
            Ok(Some(error)) | Err(error) => error,
            // A condition that is no error of the connection.
            Ok(None) => pending().await,
        }
    }

    fn close(self) {
        if let Kind::Tcp(stream) = &self.kind {
            // It fails only if the connection has ended.
            let _over = SockRef::from(stream).set_linger(None);
        }
    }
}

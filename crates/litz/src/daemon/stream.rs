//! [`Stream`]: a connection that the daemon carries.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::net::sockopt::set_socket_linger;

/// A connection that the daemon carries to a target. Dropping it before [`finish`](Self::finish)
/// resets it, so that the target does not treat truncated data as complete.
///
/// Reading and writing fail with [`ConnectionReset`](io::ErrorKind::ConnectionReset) if the target
/// has reset the connection, the connection to the remote host is lost, or the daemon has ended.
#[derive(Debug)]
pub struct Stream {
    read: ReadHalf,
    write: WriteHalf,
}

/// The reading half of a [`Stream`]. Dropping it before the end tells the daemon that reading has
/// stopped: the connection is reset when more data arrives. A socket remains until both halves are
/// dropped.
#[derive(Debug)]
pub struct ReadHalf(Kind<rings::Reader>);

/// The writing half of a [`Stream`]. Dropping it before [`finish`](Self::finish) resets the connection; a
/// socket is reset when both halves are dropped.
#[derive(Debug)]
pub struct WriteHalf(Kind<rings::Writer>);

/// Location of the bytes.
#[derive(Debug)]
enum Kind<R> {
    /// Memory that is shared with the daemon.
    Rings(R),
    /// A connection of the kernel inside this host.
    Socket(Arc<TcpStream>),
}

impl Stream {
    pub(super) fn of_rings(descriptors: Vec<OwnedFd>) -> io::Result<Self> {
        let (reader, writer) = rings::ends::open(super::exactly(descriptors)?)?;
        Ok(Self { read: ReadHalf(Kind::Rings(reader)), write: WriteHalf(Kind::Rings(writer)) })
    }

    pub(super) fn of_socket(descriptors: Vec<OwnedFd>) -> io::Result<Self> {
        let [socket] = super::exactly(descriptors)?;
        let socket = Arc::new(TcpStream::from(socket));
        socket.set_nodelay(true)?;
        set_socket_linger(&socket, Some(Duration::ZERO))?;
        Ok(Self { read: ReadHalf(Kind::Socket(Arc::clone(&socket))), write: WriteHalf(Kind::Socket(socket)) })
    }

    /// Splits the stream into both halves, for two threads.
    #[must_use]
    pub fn split(self) -> (ReadHalf, WriteHalf) {
        (self.read, self.write)
    }

    /// Returns whether the bytes lie in memory that is shared with the daemon, and not in a socket.
    #[must_use]
    pub const fn shares_memory(&self) -> bool {
        matches!(self.read.0, Kind::Rings(_))
    }

    /// Finishes the stream; see [`WriteHalf::finish`].
    ///
    /// # Errors
    /// Same errors as [`WriteHalf::finish`].
    pub fn finish(&mut self) -> io::Result<()> {
        self.write.finish()
    }

    /// Sets the read timeout; see [`ReadHalf::set_timeout`].
    ///
    /// # Errors
    /// Same errors as [`ReadHalf::set_timeout`].
    pub fn set_read_timeout(&self, time_max: Option<Duration>) -> io::Result<()> {
        self.read.set_timeout(time_max)
    }

    /// Sets the write timeout; see [`WriteHalf::set_timeout`].
    ///
    /// # Errors
    /// Same errors as [`WriteHalf::set_timeout`].
    pub fn set_write_timeout(&self, time_max: Option<Duration>) -> io::Result<()> {
        self.write.set_timeout(time_max)
    }
}

impl ReadHalf {
    /// Sets the maximum time that a call waits for bytes before it fails with
    /// [`TimedOut`](io::ErrorKind::TimedOut). `None`, the default, waits indefinitely.
    ///
    /// # Errors
    /// If the time is zero.
    pub fn set_timeout(&self, time_max: Option<Duration>) -> io::Result<()> {
        match &self.0 {
            Kind::Rings(reader) => reader.set_timeout(time_max),
            Kind::Socket(socket) => socket.set_read_timeout(time_max),
        }
    }
}

impl WriteHalf {
    /// Ends the data in order. Data written before is delivered, even if the stream is then dropped
    /// and the target sends nothing more. Repeated calls have no effect.
    ///
    /// # Errors
    /// The system's error of a socket.
    pub fn finish(&mut self) -> io::Result<()> {
        match &mut self.0 {
            Kind::Rings(writer) => {
                writer.finish();
                Ok(())
            }
            Kind::Socket(socket) => {
                match socket.shutdown(Shutdown::Write) {
                    // The stream has ended in both directions, or was reset; reading tells which.
                    Err(error) if error.kind() == io::ErrorKind::NotConnected => {}
                    result => result?,
                }
                Ok(set_socket_linger(socket, None)?)
            }
        }
    }

    /// Sets the maximum time that a call waits for space before it fails with
    /// [`TimedOut`](io::ErrorKind::TimedOut). `None`, the default, waits indefinitely.
    ///
    /// # Errors
    /// If the time is zero.
    pub fn set_timeout(&self, time_max: Option<Duration>) -> io::Result<()> {
        match &self.0 {
            Kind::Rings(writer) => writer.set_timeout(time_max),
            Kind::Socket(socket) => socket.set_write_timeout(time_max),
        }
    }
}

impl Read for ReadHalf {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match &mut self.0 {
            Kind::Rings(reader) => reader.read(bytes),
            Kind::Socket(socket) => (&**socket).read(bytes).map_err(timed_out),
        }
    }
}

impl Write for WriteHalf {
    /// Copies bytes from the start of `bytes`, at least one if there are any, and returns their
    /// number.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.0 {
            Kind::Rings(writer) => writer.write(bytes),
            Kind::Socket(socket) => (&**socket).write(bytes).map_err(timed_out),
        }
    }

    /// Does nothing: written bytes leave at once.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for Stream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.read.read(bytes)
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.write.flush()
    }
}

/// Converts the kernel's error for a socket timeout, which says that the call would block.
fn timed_out(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::WouldBlock { io::ErrorKind::TimedOut.into() } else { error }
}

//! The datagram socket interface.
//!
//! Sending and receiving work in batches: a [`Transmit`] may hold many datagrams of one size, and
//! so may a receive buffer. Over loopback this is up to twenty times faster
//! (`benches/loopback.rs`).

use core::fmt;
use std::error::Error;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use units::Ecn;

use crate::counters::SocketCounters;

/// Largest size of one [`Transmit`] in bytes: the largest UDP payload over IPv4, because a batch
/// passes through the kernel as one datagram.
pub const BATCH_BYTES_MAX: usize = 65_507;

/// Size of a receive buffer that holds every datagram and every batch, so that nothing is
/// truncated.
pub const RECV_BUFFER_BYTES: usize = 65_536;

/// The data of one send call: one datagram, or a batch to one destination.
#[derive(Clone, Copy, Debug)]
pub struct Transmit<'a> {
    /// The destination address.
    pub destination: SocketAddr,
    /// The source address, for sockets bound to the wildcard address. With `None`, the system
    /// chooses. The address does not select a device; open one socket per device for that.
    pub source_ip: Option<IpAddr>,
    /// The ECN codepoint (RFC 3168, section 5); `None` is Not-ECT.
    pub ecn: Option<Ecn>,
    /// The payload. With a `segment_size`, at most [`BATCH_BYTES_MAX`].
    pub contents: &'a [u8],
    /// If set, `contents` is split into datagrams of this size, with a shorter last one. Batches of
    /// more than [`DatagramSocket::max_gso_segments`] datagrams are sent with several calls.
    pub segment_size: Option<usize>,
}

/// Description of the contents of one receive buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecvMeta {
    /// The source address.
    pub source: SocketAddr,
    /// The local address to which it was sent, if the system provides it.
    pub destination_ip: Option<IpAddr>,
    /// Bytes in the buffer.
    pub len: usize,
    /// Bytes of each datagram in the buffer, at least 1; the last one may be shorter.
    pub stride: usize,
    /// The ECN codepoint of all datagrams in the buffer; `None` is Not-ECT.
    pub ecn: Option<Ecn>,
}

/// The reason why nothing was sent.
#[derive(Debug)]
#[non_exhaustive]
pub enum SendError {
    /// The send buffer is full. Retry when the socket is writable.
    WouldBlock,
    /// A datagram exceeds the MTU of the route or the device (`EMSGSIZE`). Smaller datagrams can be
    /// sent.
    TooLarge,
    /// A queue below the socket is full, or memory is short (`ENOBUFS`, `ENOMEM`). The socket is
    /// still reported as writable, so wait a short time instead of waiting for writability.
    NoBuffers,
    /// Another error: no route, a filter, a removed address. It may be temporary, and it may
    /// concern this destination only.
    Other(io::Error),
}

/// A non-blocking datagram socket.
pub trait DatagramSocket: Send {
    /// Returns the bound address, including the port chosen by the system.
    ///
    /// # Errors
    /// The system's error.
    fn local_addr(&self) -> io::Result<SocketAddr>;

    /// Returns the number of datagrams that one call can send, at least 1. Query it before each
    /// batch: it drops to 1 if a device turns out not to support segmentation.
    fn max_gso_segments(&self) -> usize;

    /// Returns the number of datagrams that one receive buffer can hold, at least 1.
    fn max_gro_segments(&self) -> usize;

    /// Sends one datagram or one batch.
    ///
    /// `Ok` means that the socket accepted all of it. If a batch had to be split and the rest could
    /// not be sent, the socket keeps the rest and sends it first on the next `send` or
    /// [`flush`](Self::flush).
    ///
    /// # Errors
    /// See [`SendError`]. Nothing of `transmit` was sent, except after `TooLarge` and `Other` on a
    /// batch that had to be split: then datagrams at its front may have been sent.
    fn send(&mut self, transmit: &Transmit<'_>) -> Result<(), SendError>;

    /// Sends the rest of a split batch, if there is one. Call it when the socket is writable and
    /// there is nothing else to send.
    ///
    /// # Errors
    /// After `WouldBlock` and `NoBuffers` the rest is still kept; after other errors it is dropped.
    fn flush(&mut self) -> Result<(), SendError> {
        Ok(())
    }

    /// Fills `buffers` from the front, each with a datagram or a batch from one source, and the
    /// corresponding `metas`. Returns the number of filled buffers. Buffers should have
    /// [`RECV_BUFFER_BYTES`]; data that does not fit is truncated and counted.
    ///
    /// # Errors
    /// `WouldBlock` if nothing has arrived; otherwise the system's error.
    fn recv(&mut self, buffers: &mut [&mut [u8]], metas: &mut [RecvMeta]) -> io::Result<usize>;

    /// Returns the counters.
    fn counters(&self) -> &SocketCounters;
}

impl<S: DatagramSocket + ?Sized> DatagramSocket for Box<S> {
    fn local_addr(&self) -> io::Result<SocketAddr> {
        (**self).local_addr()
    }

    fn max_gso_segments(&self) -> usize {
        (**self).max_gso_segments()
    }

    fn max_gro_segments(&self) -> usize {
        (**self).max_gro_segments()
    }

    fn send(&mut self, transmit: &Transmit<'_>) -> Result<(), SendError> {
        (**self).send(transmit)
    }

    fn flush(&mut self) -> Result<(), SendError> {
        (**self).flush()
    }

    fn recv(&mut self, buffers: &mut [&mut [u8]], metas: &mut [RecvMeta]) -> io::Result<usize> {
        (**self).recv(buffers, metas)
    }

    fn counters(&self) -> &SocketCounters {
        (**self).counters()
    }
}

impl RecvMeta {
    /// Returns the datagrams in `buffer`, which this value describes. An empty datagram yields
    /// nothing.
    pub fn datagrams<'a>(&self, buffer: &'a [u8]) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        buffer[..self.len.min(buffer.len())].chunks(self.stride.max(1))
    }
}

/// Placeholder values for buffers to fill.
impl Default for RecvMeta {
    fn default() -> Self {
        Self {
            source: SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0),
            destination_ip: None,
            len: 0,
            stride: 1,
            ecn: None,
        }
    }
}

impl Transmit<'_> {
    /// Returns the bytes per datagram, at least 1; `contents.len()` if there is only one.
    pub(crate) fn stride(&self) -> usize {
        self.segment_size.unwrap_or(usize::MAX).min(self.contents.len()).max(1)
    }

    /// Returns whether there is more than one datagram.
    pub(crate) fn is_batch(&self) -> bool {
        self.stride() < self.contents.len()
    }

    /// Rejects arguments that no socket can send.
    pub(crate) fn check(&self) -> Result<(), SendError> {
        if self.segment_size == Some(0) {
            return Err(SendError::Other(io::Error::new(io::ErrorKind::InvalidInput, "a segment size of zero")));
        }
        if self.is_batch() && self.contents.len() > BATCH_BYTES_MAX {
            return Err(SendError::TooLarge);
        }
        Ok(())
    }
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WouldBlock => f.write_str("the send buffer is full"),
            Self::TooLarge => f.write_str("the datagram exceeds the MTU of the route or the device"),
            Self::NoBuffers => f.write_str("a queue below the socket is full"),
            Self::Other(error) => write!(f, "sending failed: {error}"),
        }
    }
}

impl Error for SendError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Other(error) => Some(error),
            Self::WouldBlock | Self::TooLarge | Self::NoBuffers => None,
        }
    }
}

/// Classifies the error of a system call.
impl From<io::Error> for SendError {
    fn from(error: io::Error) -> Self {
        use rustix::io::Errno;

        match Errno::from_io_error(&error) {
            Some(Errno::MSGSIZE) => Self::TooLarge,
            Some(Errno::NOBUFS | Errno::NOMEM) => Self::NoBuffers,
            _ if error.kind() == io::ErrorKind::WouldBlock => Self::WouldBlock,
            _ => Self::Other(error),
        }
    }
}

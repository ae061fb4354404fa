//! Sockets that carry datagrams, as their callers see them.
//!
//! Sending and receiving go in batches: a [`Transmit`] may hold many datagrams of one size, and a received buffer may too.
//! Over loopback that is worth a factor of twenty (`benches/loopback.rs`).

use core::fmt;
use std::error::Error;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use crate::SocketCounters;

/// Bytes that one [`Transmit`] holds at most: the largest UDP payload over IPv4, because a batch crosses the kernel as one
/// datagram.
pub const BATCH_BYTES_MAX: usize = 65_507;

/// A receive buffer of this size holds every datagram and every batch of datagrams, so that nothing is cut off.
pub const RECV_BUFFER_BYTES: usize = 65_536;

/// What is sent with one call: one datagram, or a batch to one destination.
#[derive(Clone, Copy, Debug)]
pub struct Transmit<'a> {
    /// Where it goes.
    pub destination: SocketAddr,
    /// The source address, for sockets bound to the wildcard address. `None`: the system chooses. It chooses no device:
    /// open a socket per device for that.
    pub source_ip: Option<IpAddr>,
    /// The ECN mark (RFC 3168, section 5); `None` is Not-ECT.
    pub ecn: Option<Ecn>,
    /// The payload. With a `segment_size`, at most [`BATCH_BYTES_MAX`].
    pub contents: &'a [u8],
    /// If set, `contents` is cut into datagrams of this many bytes, the last one of what is left. Batches of more than
    /// [`DatagramSocket::max_gso_segments`] datagrams go out in several calls.
    pub segment_size: Option<usize>,
}

/// What one received buffer holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecvMeta {
    /// Where it came from.
    pub source: SocketAddr,
    /// Which of our addresses it was sent to, where the system tells.
    pub destination_ip: Option<IpAddr>,
    /// Bytes in the buffer.
    pub len: usize,
    /// Bytes of each datagram in it, at least 1; the last one may be shorter.
    pub stride: usize,
    /// The ECN mark, the same on all of them; `None` is Not-ECT.
    pub ecn: Option<Ecn>,
}

/// An ECN codepoint (RFC 3168, section 5) other than Not-ECT.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ecn {
    /// ECT(0): the sender understands ECN.
    Ect0,
    /// ECT(1): the same, and for L4S (RFC 9331) a wish to be marked early.
    Ect1,
    /// CE: a queue on the way was congested.
    Ce,
}

/// Why nothing was sent.
#[derive(Debug)]
pub enum SendError {
    /// The send buffer is full; try again when the socket is writable.
    WouldBlock,
    /// A datagram exceeds what the route or the device takes (`EMSGSIZE`). Smaller ones will pass.
    TooLarge,
    /// A queue below the socket is full, or memory is short (`ENOBUFS`, `ENOMEM`). The socket still counts as writable, so
    /// wait a little instead of waiting for it.
    NoBuffers,
    /// Anything else: no route, a filter, an address that is gone. It may pass, and it may concern this destination only.
    Other(io::Error),
}

/// A socket that sends and receives datagrams without blocking.
pub trait DatagramSocket: Send {
    /// The address it is bound to, with the port that the system chose.
    ///
    /// # Errors
    /// What the system reports.
    fn local_addr(&self) -> io::Result<SocketAddr>;

    /// Datagrams that one call can carry, at least 1. Ask before each batch: it falls to 1 when a device turns out not to
    /// segment.
    fn max_gso_segments(&self) -> usize;

    /// Datagrams that one received buffer can hold, at least 1.
    fn max_gro_segments(&self) -> usize;

    /// Sends one datagram or one batch.
    ///
    /// `Ok` means that the socket has taken all of it. Where a batch had to be split and the rest found no room, the
    /// socket keeps the rest and sends it first on the next `send` or [`flush`](Self::flush).
    ///
    /// # Errors
    /// See [`SendError`]: nothing of `transmit` was sent, except after `TooLarge` and `Other` on a batch that had to be
    /// split, where datagrams at its front may have gone out.
    fn send(&mut self, transmit: &Transmit<'_>) -> Result<(), SendError>;

    /// Sends what a split batch had to keep back; does nothing otherwise. Call it when the socket is writable and there
    /// is nothing else to send.
    ///
    /// # Errors
    /// `WouldBlock` or `NoBuffers` if the rest is still kept; on the others it is dropped.
    fn flush(&mut self) -> Result<(), SendError> {
        Ok(())
    }

    /// Fills `buffers` from the front, each with a datagram or a batch from one source, and `metas` to match. Returns how
    /// many. Buffers want [`RECV_BUFFER_BYTES`]; what does not fit is cut off and counted.
    ///
    /// # Errors
    /// `WouldBlock` if nothing has arrived; otherwise what the system reports.
    fn recv(&mut self, buffers: &mut [&mut [u8]], metas: &mut [RecvMeta]) -> io::Result<usize>;

    /// The counters.
    fn counters(&self) -> &SocketCounters;
}

impl RecvMeta {
    /// The datagrams in `buffer`, which this describes. An empty datagram yields nothing.
    pub fn datagrams<'a>(&self, buffer: &'a [u8]) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        buffer[..self.len.min(buffer.len())].chunks(self.stride.max(1))
    }
}

/// Arbitrary values, meant to be overwritten.
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
    /// Bytes of each datagram; `contents.len()` if there is only one. At least 1.
    pub(crate) fn stride(&self) -> usize {
        self.segment_size.unwrap_or(usize::MAX).min(self.contents.len()).max(1)
    }

    /// Whether it holds more than one datagram.
    pub(crate) fn is_batch(&self) -> bool {
        self.stride() < self.contents.len()
    }

    /// Refuses what no arm can send.
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
            Self::TooLarge => f.write_str("the datagram is larger than the route or the device takes"),
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

/// Sorts what a system call reports.
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

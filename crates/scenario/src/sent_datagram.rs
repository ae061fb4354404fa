//! A datagram of a run as it leaves its host.

use std::fmt;

use units::Instant;

/// A datagram at the moment when it leaves a host.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SentDatagram<'a> {
    /// The time of sending.
    pub at: Instant,
    /// Direction: 0 from the sending host, 1 from the receiving host.
    pub direction: usize,
    /// The index of the path among those of the run.
    pub path: usize,
    /// The number of the datagram within its path and direction, from 0.
    pub number: u64,
    /// The UDP payload. The same protocol state produces the same bytes in every world.
    pub datagram: &'a [u8],
}

impl fmt::Debug for SentDatagram<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, direction, path, number, datagram } = self;
        let direction_name = if *direction == 0 { "forward" } else { "back" };
        // The first bytes are enough to see whether two encrypted datagrams are equal.
        let first = &datagram[..datagram.len().min(16)];
        let len = datagram.len();
        write!(f, "{} ns, path {path} {direction_name}, no. {number}, {len} bytes: {first:02x?}..", at.as_nanos())
    }
}

/// Receives each datagram, in the order of sending.
pub type DatagramSink = Box<dyn FnMut(&SentDatagram<'_>)>;

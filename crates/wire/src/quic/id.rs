//! Identifiers on the wire: connection IDs, stream IDs, path IDs, packet number spaces.

use std::cmp::Ordering;
use std::fmt;
use std::ops::Not;

/// Length in bytes of the longest connection ID of version 1 (RFC 9000 §17.2).
pub const MAX_CID_LEN: usize = 20;

/// A connection ID of QUIC version 1: 0 to 20 bytes (RFC 9000 §17.2), stored inline.
///
/// The bytes after the length are always zero, so that the derived comparisons are correct.
#[derive(Copy, Clone, Eq, PartialEq, Hash)]
pub struct ConnectionId {
    bytes: [u8; MAX_CID_LEN],
    len: u8,
}

impl ConnectionId {
    /// The zero-length connection ID.
    pub const EMPTY: Self = Self { bytes: [0; MAX_CID_LEN], len: 0 };

    /// Creates the connection ID with these bytes, or `None` if there are more than 20.
    #[inline]
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let mut id = Self::EMPTY;
        id.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        id.len = bytes.len() as u8;
        Some(id)
    }

    /// Returns the bytes of the ID.
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// Returns the bytes and the length as numbers with the same order.
    #[inline]
    fn as_numbers(&self) -> (u128, u32, u8) {
        let (first, last) = self.bytes.split_at(16);
        let first = u128::from_be_bytes(first.try_into().expect("sixteen of twenty bytes"));
        let last = u32::from_be_bytes(last.try_into().expect("four of twenty bytes"));
        (first, last, self.len)
    }

    /// Returns the length in bytes, at most 20.
    #[inline]
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// Returns whether the length is zero.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// Orders by the bytes, padded with zeros, then by length. Every arriving batch compares a few IDs
/// in a routing table; comparing them as two numbers avoids a call to `memcmp`.
impl Ord for ConnectionId {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_numbers().cmp(&other.as_numbers())
    }
}

impl PartialOrd for ConnectionId {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Default for ConnectionId {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl fmt::Display for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_slice().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ConnectionId({self})")
    }
}

/// An endpoint's role: the side that opened the connection or the side that accepted it.
#[derive(Debug, Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash)]
pub enum Side {
    /// The side that opened the connection.
    Client,
    /// The side that accepted the connection.
    Server,
}

impl Side {
    /// Returns the other side.
    #[inline]
    pub const fn peer(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }
}

impl Not for Side {
    type Output = Self;

    #[inline]
    fn not(self) -> Self {
        self.peer()
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Client => "client",
            Self::Server => "server",
        })
    }
}

/// The directions in which a stream carries data.
#[derive(Debug, Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash)]
pub enum Dir {
    /// Both sides send.
    Bi,
    /// Only the side that opened the stream sends.
    Uni,
}

impl Dir {
    /// Both values, in the order of [`Dir::index`].
    pub const ALL: [Self; 2] = [Self::Bi, Self::Uni];

    /// Returns the position in [`Dir::ALL`].
    #[inline]
    pub const fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for Dir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bi => "bi",
            Self::Uni => "uni",
        })
    }
}

/// A stream ID (RFC 9000 §2.1): bit 0 is the initiator, bit 1 the directionality, and the other
/// bits count the streams of that kind.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash)]
pub struct StreamId(u64);

impl StreamId {
    /// Number of possible streams of one kind: 2^60.
    pub const COUNT_MAX: u64 = 1 << 60;

    /// Creates the stream of that kind with the given index, counted from 0.
    ///
    /// # Panics
    ///
    /// If `index` is not below [`StreamId::COUNT_MAX`].
    #[inline]
    pub const fn new(initiator: Side, dir: Dir, index: u64) -> Self {
        assert!(index < Self::COUNT_MAX, "a stream index is below 2^60");
        Self(index << 2 | (dir as u64) << 1 | initiator as u64)
    }

    /// Returns the stream with this ID on the wire.
    #[inline]
    pub const fn from_raw(raw: u64) -> Self {
        Self(raw)
    }

    /// Returns the ID on the wire.
    #[inline]
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// Returns the side that opened the stream.
    #[inline]
    pub const fn initiator(self) -> Side {
        if self.0 & 1 == 0 { Side::Client } else { Side::Server }
    }

    /// Returns the directions in which the stream carries data.
    #[inline]
    pub const fn dir(self) -> Dir {
        if self.0 & 2 == 0 { Dir::Bi } else { Dir::Uni }
    }

    /// Returns the number of streams of the same kind with lower IDs.
    #[inline]
    pub const fn index(self) -> u64 {
        self.0 >> 2
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.initiator(), self.dir(), self.index())
    }
}

impl fmt::Debug for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StreamId({self})")
    }
}

/// A path of a connection. Its value is at most 2^32-1, because it fills the first four bytes of
/// the nonce (multipath draft-21 §2.4).
#[derive(Debug, Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Default)]
pub struct PathId(
    /// The ID on the wire.
    pub u32,
);

impl PathId {
    /// The path of the handshake.
    pub const ZERO: Self = Self(0);
}

impl fmt::Display for PathId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "path {}", self.0)
    }
}

/// A packet number space (RFC 9000 §12.3). With multipath each path has its own `Data` space.
#[derive(Debug, Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash)]
pub enum Space {
    /// Initial packets.
    Initial,
    /// Handshake packets.
    Handshake,
    /// 0-RTT and 1-RTT packets.
    Data,
}

impl Space {
    /// All spaces, in the order of [`Space::index`].
    pub const ALL: [Self; 3] = [Self::Initial, Self::Handshake, Self::Data];

    /// Returns the position in [`Space::ALL`].
    #[inline]
    pub const fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for Space {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Initial => "initial",
            Self::Handshake => "handshake",
            Self::Data => "data",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_ids_are_ordered_by_their_bytes_and_then_by_their_length() {
        let ascending: [&[u8]; 8] = [
            &[],
            &[0],
            &[0; 20],
            &[0, 1],
            &[1; 16],
            &[1; 17],
            &[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 0, 0, 0, 0],
            &[0xff; 20],
        ];
        let ids = ascending.map(|bytes| ConnectionId::new(bytes).expect("at most 20"));
        for (first, one) in ids.iter().enumerate() {
            for (second, other) in ids.iter().enumerate() {
                assert_eq!((one.cmp(other), one == other), (first.cmp(&second), first == second), "{one} and {other}");
            }
        }
    }

    #[test]
    fn connection_ids_hold_up_to_twenty_bytes() {
        let bytes: Vec<u8> = (1..=21).collect();
        for len in 0..=20 {
            let id = ConnectionId::new(&bytes[..len]).expect("at most 20");
            assert_eq!(id.as_slice(), &bytes[..len]);
            assert_eq!((id.len(), id.is_empty()), (len, len == 0));
        }
        assert_eq!(ConnectionId::new(&bytes), None);
        assert_eq!(ConnectionId::new(&[0x0a, 0xb0]).map(|id| id.to_string()), Some("0ab0".to_owned()));
        // A trailing zero is part of the ID, not padding.
        assert_ne!(ConnectionId::new(&[1]), ConnectionId::new(&[1, 0]));
    }

    #[test]
    fn stream_ids_are_numbered_as_in_table_1() {
        let kinds =
            [(Side::Client, Dir::Bi), (Side::Server, Dir::Bi), (Side::Client, Dir::Uni), (Side::Server, Dir::Uni)];
        for (low, (side, dir)) in kinds.into_iter().enumerate() {
            for index in [0, 1, 3, StreamId::COUNT_MAX - 1] {
                let id = StreamId::new(side, dir, index);
                assert_eq!(id.raw(), index * 4 + low as u64);
                assert_eq!((id.initiator(), id.dir(), id.index()), (side, dir, index));
                assert_eq!(StreamId::from_raw(id.raw()), id);
            }
        }
        assert_eq!(StreamId::new(Side::Client, Dir::Bi, 3).to_string(), "client bi 3");
        assert_eq!(StreamId::from_raw(3).to_string(), "server uni 0");
    }

    #[test]
    #[should_panic(expected = "below 2^60")]
    fn a_stream_index_of_61_bits_panics() {
        let _ = StreamId::new(Side::Client, Dir::Bi, StreamId::COUNT_MAX);
    }

    #[test]
    fn indices_are_positions() {
        assert!(Space::ALL.iter().enumerate().all(|(at, space)| space.index() == at));
        assert!(Dir::ALL.iter().enumerate().all(|(at, dir)| dir.index() == at));
        assert_eq!(!Side::Client, Side::Server);
        assert_eq!(Side::Server.peer(), Side::Client);
    }
}

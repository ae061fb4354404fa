//! Segments of the toy protocol.
//!
//! ```text
//!   source 6 | destination 6 | flags 1 | 0 | payload length 2 | seq 8 | ack 8 | limit 8 | held 2 | 0 0 | checksum 4 | payload
//! ```
//!
//! Sequence numbers are so large that they never wrap. `limit` is the right edge of the window.
//! `held` is the number of segments that wait behind a gap.

use std::net::{Ipv4Addr, SocketAddrV4};

pub(crate) const HEADER_LEN: usize = 48;

/// Limit of the payload of a segment.
pub(crate) const MSS: usize = 1400;

pub(crate) const SYN: u8 = 1;
pub(crate) const ACK: u8 = 2;
pub(crate) const FIN: u8 = 4;
pub(crate) const RST: u8 = 8;
/// Flag that requests an acknowledgement.
pub(crate) const PROBE: u8 = 16;

/// Identifies a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Tuple {
    pub(crate) remote: SocketAddrV4,
    pub(crate) local_port: u16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) source: SocketAddrV4,
    pub(crate) destination: SocketAddrV4,
    pub(crate) flags: u8,
    pub(crate) len: u16,
    pub(crate) seq: u64,
    pub(crate) ack: u64,
    pub(crate) limit: u64,
    pub(crate) held: u16,
}

impl Header {
    pub(crate) fn has(&self, flags: u8) -> bool {
        self.flags & flags == flags
    }

    /// Returns the tuple of its connection at the receiver.
    pub(crate) fn tuple(&self) -> Tuple {
        Tuple { remote: self.source, local_port: self.destination.port() }
    }

    /// Returns the length of its segment in bytes.
    pub(crate) fn segment_len(&self) -> usize {
        HEADER_LEN + usize::from(self.len)
    }

    /// Returns the header at the front of `bytes`. Returns `None` if the segment is truncated. Does
    /// not check the checksum.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let head = bytes.get(..HEADER_LEN)?;
        let address = |at: usize| {
            let ip = Ipv4Addr::new(head[at], head[at + 1], head[at + 2], head[at + 3]);
            SocketAddrV4::new(ip, u16::from_be_bytes([head[at + 4], head[at + 5]]))
        };
        let word = |at: usize| u64::from_be_bytes(head[at..at + 8].try_into().expect("eight bytes"));
        let short = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
        let header = Self {
            source: address(0),
            destination: address(6),
            flags: head[12],
            len: short(14),
            seq: word(16),
            ack: word(24),
            limit: word(32),
            held: short(40),
        };
        (bytes.len() >= header.segment_len()).then_some(header)
    }

    /// Appends a segment with this header, whose payload `fill` writes.
    pub(crate) fn write(&self, out: &mut Vec<u8>, fill: impl FnOnce(&mut [u8])) {
        let begin = out.len();
        for address in [self.source, self.destination] {
            out.extend_from_slice(&address.ip().octets());
            out.extend_from_slice(&address.port().to_be_bytes());
        }
        out.extend_from_slice(&[self.flags, 0]);
        out.extend_from_slice(&self.len.to_be_bytes());
        for word in [self.seq, self.ack, self.limit] {
            out.extend_from_slice(&word.to_be_bytes());
        }
        out.extend_from_slice(&self.held.to_be_bytes());
        out.extend_from_slice(&[0; 6]);
        let payload = out.len();
        out.resize(payload + usize::from(self.len), 0);
        fill(&mut out[payload..]);
        let sum = checksum(&out[begin..]);
        out[begin + 44..begin + 48].copy_from_slice(&sum.to_be_bytes());
    }
}

/// Returns the segments of a received batch: each header with its position. Ends at the first
/// truncated segment.
pub(crate) fn segments(bytes: &[u8]) -> impl Iterator<Item = (usize, Header)> + '_ {
    let mut at = 0;
    std::iter::from_fn(move || {
        let header = Header::parse(&bytes[at..])?;
        let here = at;
        at += header.segment_len();
        Some((here, header))
    })
}

/// Returns the number of bytes from the front that belong to segments of the same connection as the
/// first.
pub(crate) fn front(bytes: &[u8]) -> Option<(usize, Header)> {
    let first = Header::parse(bytes)?;
    let same = segments(bytes).take_while(|(_, header)| header.tuple() == first.tuple());
    Some((same.map(|(_, header)| header.segment_len()).sum(), first))
}

/// Returns the checksum of a segment, computed without its own field.
fn checksum(segment: &[u8]) -> u32 {
    let mut hash = Hash::default();
    hash.add(&segment[..44]);
    hash.add(&segment[HEADER_LEN..]);
    (hash.0 ^ hash.0 >> 32) as u32
}

/// Returns whether the checksum of the segment at the front of `bytes` is correct.
pub(crate) fn is_intact(segment: &[u8]) -> bool {
    segment[44..48] == checksum(segment).to_be_bytes()
}

/// FNV-1a, eight bytes at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hash(pub(crate) u64);

impl Default for Hash {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Hash {
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.0 = (self.0 ^ u64::from_le_bytes(word)).wrapping_mul(0x0000_0100_0000_01b3);
            self.0 ^= self.0 >> 29;
        }
    }

    pub(crate) fn of(words: &[u64]) -> u64 {
        let mut hash = Self::default();
        words.iter().for_each(|word| hash.add(&word.to_le_bytes()));
        hash.0
    }
}

/// Applies the keystream of one direction of a connection to the bytes at `offset` of its stream:
/// the cipher above the byte stream.
pub(crate) fn apply_keystream(key: u64, offset: u64, bytes: &mut [u8]) {
    let mut word = [0; 8];
    for (at, byte) in (offset..).zip(bytes.iter_mut()) {
        if at % 8 == 0 || at == offset {
            word = Hash::of(&[key, at / 8]).to_le_bytes();
        }
        *byte ^= word[(at % 8) as usize];
    }
}

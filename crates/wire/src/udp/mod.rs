//! UDP datagrams (RFC 768): header and checksum.

use std::fmt;

use crate::checksum;

#[cfg(test)]
mod tests;

/// Length of a header.
pub const HEADER_LEN: usize = 8;

/// Offset of the checksum in the header.
pub const CHECKSUM_OFFSET: usize = 6;

/// A header.
#[derive(Debug, Copy, Clone, Eq, PartialEq, Default)]
pub struct Header {
    /// The sender's port; zero if it expects no answer.
    pub source_port: u16,
    /// The receiver's port.
    pub destination_port: u16,
    /// Length of header and data.
    pub len: u16,
    /// The checksum; zero if the sender computed none, which IPv6 forbids (RFC 8200, section 8.1).
    pub checksum: u16,
}

/// Error: the bytes are not a UDP datagram. The sender or the network is at fault.
#[derive(Debug, Copy, Clone, Eq, PartialEq)]
#[non_exhaustive]
pub enum ParseError {
    /// The datagram ends before its header or before the length that it states.
    Truncated,
    /// The length is below that of the header. In IPv6 jumbograms, zero would mean a length beyond
    /// 16 bits (RFC 2675, section 4); they are not supported.
    Length,
}

impl Header {
    /// Parses the header at the start of `bytes`. Also returns the data. Bytes beyond the stated
    /// length are cut off.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), ParseError> {
        let head = bytes.first_chunk::<HEADER_LEN>().ok_or(ParseError::Truncated)?;
        let u16_at = |at| u16::from_be_bytes([head[at], head[at + 1]]);
        let header = Self { source_port: u16_at(0), destination_port: u16_at(2), len: u16_at(4), checksum: u16_at(6) };
        let len = usize::from(header.len);
        if len < HEADER_LEN {
            return Err(ParseError::Length);
        }
        let data = bytes.get(HEADER_LEN..len).ok_or(ParseError::Truncated)?;
        Ok((header, data))
    }

    /// Appends the header unchanged. A caller without a checksum writes zero, and completes the
    /// datagram with [`fill_checksum`] or [`fill_partial_checksum`].
    #[inline]
    pub fn emit(&self, out: &mut Vec<u8>) {
        let mut head = [0; HEADER_LEN];
        head[0..2].copy_from_slice(&self.source_port.to_be_bytes());
        head[2..4].copy_from_slice(&self.destination_port.to_be_bytes());
        head[4..6].copy_from_slice(&self.len.to_be_bytes());
        head[6..8].copy_from_slice(&self.checksum.to_be_bytes());
        out.extend_from_slice(&head);
    }
}

/// Writes the checksum of a datagram: header and data. `pseudo` is the sum of the
/// [pseudo-header](checksum::pseudo_header). A checksum of zero is written as all ones, because
/// zero means none (RFC 768).
///
/// # Panics
///
/// If the datagram is shorter than a header.
#[inline]
pub fn fill_checksum(datagram: &mut [u8], pseudo: u16) {
    checksum::fill(datagram, CHECKSUM_OFFSET, pseudo);
    let field = &mut datagram[CHECKSUM_OFFSET..CHECKSUM_OFFSET + 2];
    if *field == [0, 0] {
        field.fill(0xff);
    }
}

/// Writes the sum of the pseudo-header alone into the checksum field, as checksum offload expects.
///
/// # Panics
///
/// If the datagram is shorter than a header.
#[inline]
pub fn fill_partial_checksum(datagram: &mut [u8], pseudo: u16) {
    datagram[CHECKSUM_OFFSET..CHECKSUM_OFFSET + 2].copy_from_slice(&pseudo.to_be_bytes());
}

/// Returns whether the checksum of a datagram is correct. `datagram` must end at the length of the
/// header. Zero, no checksum, is correct for IPv4 (RFC 1122, section 4.1.3.4) and wrong for IPv6
/// (RFC 8200, section 8.1).
#[inline]
pub fn is_checksum_valid(datagram: &[u8], pseudo: u16, is_ipv6: bool) -> bool {
    match datagram.get(CHECKSUM_OFFSET..CHECKSUM_OFFSET + 2) {
        None => false,
        Some([0, 0]) => !is_ipv6,
        Some(_) => checksum::sum(datagram, pseudo) == 0xffff,
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Truncated => "the datagram is shorter than its length",
            Self::Length => "the length is below that of the header",
        })
    }
}

impl std::error::Error for ParseError {}

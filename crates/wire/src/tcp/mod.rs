//! TCP segments (RFC 9293, section 3.1): header, options and checksum.
//!
//! [`Header::parse`] parses a header with its options. It does not verify the checksum, because the
//! kernel or the network card may have done so: [`is_checksum_valid`] does. [`Header::emit`] writes
//! a header. After the caller has appended the data, [`fill_checksum`] completes the segment, or
//! [`fill_partial_checksum`] prepares it for checksum offload.

use std::fmt;

use units::Seq32;

use crate::checksum;

mod flags;
mod options;
mod sack;
#[cfg(test)]
mod tests;

pub use flags::Flags;
pub use options::{AccEcn, Options, Timestamps, WINDOW_SCALE_MAX};
pub use sack::{SACK_BLOCKS_MAX, SackBlocks};

/// Length of a header without options.
pub const HEADER_LEN: usize = 20;

/// Length of the longest header: the data offset has four bits and counts words of 4 bytes.
pub const HEADER_LEN_MAX: usize = 60;

/// Offset of the checksum in the header.
pub const CHECKSUM_OFFSET: usize = 16;

/// A header with its options.
#[derive(Debug, Copy, Clone, Eq, PartialEq, Default)]
pub struct Header {
    /// The sender's port.
    pub source_port: u16,
    /// The receiver's port.
    pub destination_port: u16,
    /// Number of the first byte of data, or of SYN.
    pub seq: Seq32,
    /// The next number that the sender expects, significant with [`Flags::ACK`].
    pub ack: Seq32,
    /// Control bits.
    pub flags: Flags,
    /// Receive window, not yet scaled.
    pub window: u16,
    /// Urgent pointer, significant with [`Flags::URG`].
    pub urgent: u16,
    /// Options.
    pub options: Options,
}

/// Error: the bytes are not a TCP segment. The sender or the network is at fault.
#[derive(Debug, Copy, Clone, Eq, PartialEq)]
#[non_exhaustive]
pub enum ParseError {
    /// The segment ends before its header does.
    Truncated,
    /// The data offset is inside the fixed header.
    DataOffset,
}

impl Header {
    /// Parses the header at the start of `bytes`. Also returns its length, at which the data
    /// begins.
    ///
    /// Unknown options, and options without the length that their RFC specifies, are skipped. An
    /// option whose length field is impossible (below 2, or beyond the header) ends the options
    /// without an error, as in Linux: senders with broken options could never connect otherwise.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<(Self, usize), ParseError> {
        let head = bytes.first_chunk::<HEADER_LEN>().ok_or(ParseError::Truncated)?;
        let len = usize::from(head[12] >> 4) * 4;
        if len < HEADER_LEN {
            return Err(ParseError::DataOffset);
        }
        let options = bytes.get(HEADER_LEN..len).ok_or(ParseError::Truncated)?;
        let u16_at = |at| u16::from_be_bytes([head[at], head[at + 1]]);
        let u32_at = |at| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let flags = Flags(u16_at(12) & Flags::MASK);
        let header = Self {
            source_port: u16_at(0),
            destination_port: u16_at(2),
            seq: Seq32::new(u32_at(4)),
            ack: Seq32::new(u32_at(8)),
            flags,
            window: u16_at(14),
            urgent: u16_at(18),
            options: Options::parse(options, flags.contains(Flags::SYN)),
        };
        Ok((header, len))
    }

    /// Returns the length of the header with its options and their padding: a multiple of 4. The
    /// caller must choose options for which it is at most [`HEADER_LEN_MAX`].
    #[expect(clippy::len_without_is_empty, reason = "a header is never empty")]
    #[inline]
    pub fn len(&self) -> usize {
        HEADER_LEN + self.options.len()
    }

    /// Appends the header with its options. The checksum field is zero.
    ///
    /// # Panics
    ///
    /// If [`len`](Self::len) is above [`HEADER_LEN_MAX`].
    #[inline]
    pub fn emit(&self, out: &mut Vec<u8>) {
        let len = self.len();
        assert!(len <= HEADER_LEN_MAX, "a header of {len} bytes");
        let mut head = [0; HEADER_LEN];
        head[0..2].copy_from_slice(&self.source_port.to_be_bytes());
        head[2..4].copy_from_slice(&self.destination_port.to_be_bytes());
        head[4..8].copy_from_slice(&self.seq.get().to_be_bytes());
        head[8..12].copy_from_slice(&self.ack.get().to_be_bytes());
        let offset_and_flags = ((len / 4) as u16) << 12 | self.flags.0 & Flags::MASK;
        head[12..14].copy_from_slice(&offset_and_flags.to_be_bytes());
        head[14..16].copy_from_slice(&self.window.to_be_bytes());
        head[18..20].copy_from_slice(&self.urgent.to_be_bytes());
        out.extend_from_slice(&head);
        self.options.emit(out);
    }
}

/// Writes the checksum of a segment: header, options and data. `pseudo` is the sum of the
/// [pseudo-header](checksum::pseudo_header).
///
/// # Panics
///
/// If the segment is shorter than a header.
#[inline]
pub fn fill_checksum(segment: &mut [u8], pseudo: u16) {
    checksum::fill(segment, CHECKSUM_OFFSET, pseudo);
}

/// Writes the sum of the pseudo-header alone into the checksum field, as checksum offload expects.
///
/// # Panics
///
/// If the segment is shorter than a header.
#[inline]
pub fn fill_partial_checksum(segment: &mut [u8], pseudo: u16) {
    segment[CHECKSUM_OFFSET..CHECKSUM_OFFSET + 2].copy_from_slice(&pseudo.to_be_bytes());
}

/// Returns whether the checksum of a segment is correct (RFC 9293, section 3.1, MUST-3).
#[inline]
pub fn is_checksum_valid(segment: &[u8], pseudo: u16) -> bool {
    checksum::sum(segment, pseudo) == 0xffff
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Truncated => "the segment is shorter than its header",
            Self::DataOffset => "the data offset is inside the header",
        })
    }
}

impl std::error::Error for ParseError {}

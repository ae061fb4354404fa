//! Records of a cipher above TCP.
//!
//! ```text
//!   +------+----------+------------+----------+---------------------------+
//!   | type | reserved | length     | IV       | ciphertext, tag           |
//!   | 1    | 1, zero  | 2, network | 8        | length - 8                |
//!   +------+----------+------------+----------+---------------------------+
//! ```
//!
//! The length counts the IV and the bytes after it. The order of records is the order of the
//! stream: the first has the number zero.

use std::collections::VecDeque;
use std::fmt;

use bytes::Bytes;

/// Length of the header.
pub const HEADER_LEN: usize = 4;

/// Length of the IV.
pub const IV_LEN: usize = 8;

/// Maximum number of application bytes in a record, as in TLS (RFC 8446, section 5.1).
pub const PLAINTEXT_MAX: usize = 16 << 10;

/// Maximum expansion by a cipher: the tag of an AEAD. The padding of CBC is at most 8 bytes.
pub(crate) const EXPANSION_MAX: usize = 16;

/// Largest value of the length field.
const LENGTH_MAX: usize = IV_LEN + PLAINTEXT_MAX + EXPANSION_MAX;

/// The content of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordKind {
    /// Application data.
    Data,
    /// The sender has finished; the record has no bytes. Without it, a stream was truncated.
    End,
}

impl RecordKind {
    pub(crate) const fn number(self) -> u8 {
        match self {
            Self::Data => 1,
            Self::End => 2,
        }
    }
}

/// Reason why a stream of records ends in an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecordError {
    /// The type does not exist, or a reserved byte is not zero.
    Type(u8),
    /// The length is impossible for the cipher.
    Length(usize),
    /// The tag, or the padding, is wrong: the record was changed, moved or made with another key.
    Forged,
    /// The peer's stream ended without [`RecordKind::End`], or in a record.
    Truncated,
    /// Data follows [`RecordKind::End`].
    AfterEnd,
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Type(ty) => write!(f, "a record of the peer has the unknown type {ty}"),
            Self::Length(len) => write!(f, "a record of the peer has the impossible length {len}"),
            Self::Forged => f.write_str("a record of the peer was changed, or the keys differ"),
            Self::Truncated => f.write_str("the stream of the peer was cut off"),
            Self::AfterEnd => f.write_str("something follows the last record of the peer"),
        }
    }
}

impl std::error::Error for RecordError {}

/// Returns the header of a record with a body of `body_len` bytes.
pub(crate) fn header(kind: RecordKind, body_len: usize) -> [u8; HEADER_LEN] {
    debug_assert!(body_len <= LENGTH_MAX, "the sealer divides data");
    let [high, low] = (body_len as u16).to_be_bytes();
    [kind.number(), 0, high, low]
}

/// A record that was found in a stream but not opened yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Its content.
    pub kind: RecordKind,
    pub(crate) header: [u8; HEADER_LEN],
    pub(crate) iv: [u8; IV_LEN],
    /// The ciphertext with the tag, by reference to its receive buffers.
    pub(crate) pieces: Vec<Bytes>,
    pub(crate) ciphertext_len: usize,
}

impl Record {
    /// Returns its length with the header.
    #[expect(clippy::len_without_is_empty, reason = "a record has a header")]
    pub const fn len(&self) -> usize {
        HEADER_LEN + IV_LEN + self.ciphertext_len
    }
}

/// Finds records in a stream. The caller bounds the bytes that it pushes; the reader needs no more
/// than one record, of at most about 16 KiB, before it yields one.
#[derive(Debug, Default)]
pub struct RecordReader {
    chunks: VecDeque<Bytes>,
    len: usize,
    has_ended: bool,
}

impl RecordReader {
    /// Adds bytes of the stream.
    pub fn push(&mut self, bytes: Bytes) {
        if !bytes.is_empty() {
            self.len += bytes.len();
            self.chunks.push_back(bytes);
        }
    }

    /// Returns the number of pushed bytes that do not belong to a record found so far.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Returns whether no bytes are kept.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the next `N` bytes, which are not a record.
    pub fn take_array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let array = self.peek(0)?;
        self.skip(N);
        Some(array)
    }

    /// Returns the next record, if it is complete. Its bytes are not copied.
    ///
    /// # Errors
    /// If no record can begin with these bytes. Later calls return the same error.
    pub fn next_record(&mut self) -> Result<Option<Record>, RecordError> {
        if self.has_ended && self.len > 0 {
            return Err(RecordError::AfterEnd);
        }
        let Some(header) = self.peek::<HEADER_LEN>(0) else { return Ok(None) };
        let kind = match header {
            [1, 0, ..] => RecordKind::Data,
            [2, 0, ..] => RecordKind::End,
            [1 | 2, reserved, ..] => return Err(RecordError::Type(reserved)),
            [ty, ..] => return Err(RecordError::Type(ty)),
        };
        let body_len = usize::from(u16::from_be_bytes([header[2], header[3]]));
        if !(IV_LEN..=LENGTH_MAX).contains(&body_len) {
            return Err(RecordError::Length(body_len));
        }
        if self.len < HEADER_LEN + body_len {
            return Ok(None);
        }
        let iv = self.peek(HEADER_LEN).expect("the whole record is there");
        self.skip(HEADER_LEN + IV_LEN);
        let ciphertext_len = body_len - IV_LEN;
        let pieces = self.take(ciphertext_len);
        self.has_ended = kind == RecordKind::End;
        Ok(Some(Record { kind, header, iv, pieces, ciphertext_len }))
    }

    /// Returns `N` bytes after the next `at`.
    fn peek<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
        if self.len < at + N {
            return None;
        }
        if let Some(array) = self.chunks.front().and_then(|first| first.get(at..)?.first_chunk::<N>()) {
            return Some(*array);
        }
        let mut array = [0; N];
        let bytes = self.chunks.iter().flatten().skip(at);
        array.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        Some(array)
    }

    fn skip(&mut self, len: usize) {
        drop(self.take(len));
    }

    fn take(&mut self, mut len: usize) -> Vec<Bytes> {
        debug_assert!(len <= self.len);
        self.len -= len;
        let mut pieces = Vec::new();
        while len > 0
            && let Some(first) = self.chunks.front_mut()
        {
            let piece = first.split_to(first.len().min(len));
            len -= piece.len();
            if first.is_empty() {
                self.chunks.pop_front();
            }
            pieces.push(piece);
        }
        pieces
    }
}

#[cfg(test)]
mod tests;

//! The cursor used by all parsers.

use std::fmt;

use super::varint::VARINT_MAX;

/// Error: the input ended before the value was complete.
#[derive(Debug, Copy, Clone, Eq, PartialEq)]
pub struct UnexpectedEnd;

impl fmt::Display for UnexpectedEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("unexpected end of input")
    }
}

impl std::error::Error for UnexpectedEnd {}

/// A cursor over borrowed bytes. A read that fails with [`UnexpectedEnd`] consumes nothing.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    rest: &'a [u8],
    /// Length of the original slice; `rest` is always its tail.
    total: usize,
}

impl<'a> Reader<'a> {
    /// Creates a cursor at the start of `bytes`.
    #[inline]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, total: bytes.len() }
    }

    /// Returns the number of bytes not yet read.
    #[inline]
    pub const fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// Returns whether all bytes were read.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Returns the number of bytes read so far: the index of the next byte in the slice passed to
    /// [`Reader::new`].
    #[inline]
    pub const fn position(&self) -> usize {
        self.total - self.rest.len()
    }

    /// Returns the remaining bytes, without consuming them.
    #[inline]
    pub const fn peek(&self) -> &'a [u8] {
        self.rest
    }

    /// Takes all remaining bytes.
    #[inline]
    pub const fn rest(&mut self) -> &'a [u8] {
        let rest = self.rest;
        self.rest = &[];
        rest
    }

    /// Takes `len` bytes.
    #[inline]
    pub const fn bytes(&mut self, len: usize) -> Result<&'a [u8], UnexpectedEnd> {
        match self.rest.split_at_checked(len) {
            Some((head, tail)) => {
                self.rest = tail;
                Ok(head)
            }
            None => Err(UnexpectedEnd),
        }
    }

    /// Takes `N` bytes as an array.
    #[inline]
    pub const fn array<const N: usize>(&mut self) -> Result<[u8; N], UnexpectedEnd> {
        match self.rest.split_first_chunk() {
            Some((head, tail)) => {
                self.rest = tail;
                Ok(*head)
            }
            None => Err(UnexpectedEnd),
        }
    }

    /// Takes one byte.
    #[inline]
    pub fn u8(&mut self) -> Result<u8, UnexpectedEnd> {
        self.array().map(u8::from_be_bytes)
    }

    /// Takes two bytes in network byte order.
    #[inline]
    pub fn u16(&mut self) -> Result<u16, UnexpectedEnd> {
        self.array().map(u16::from_be_bytes)
    }

    /// Takes four bytes in network byte order.
    #[inline]
    pub fn u32(&mut self) -> Result<u32, UnexpectedEnd> {
        self.array().map(u32::from_be_bytes)
    }

    /// Takes a variable-length integer (RFC 9000 §16), at most 2^62-1, in any of the four lengths.
    #[inline]
    pub fn varint(&mut self) -> Result<u64, UnexpectedEnd> {
        // One branch per length. Lengths repeat from packet to packet, so a correctly predicted
        // branch lets the next read start before this one completes. Computing the length instead
        // would make every read depend on the one before.
        Ok(match self.rest.first().ok_or(UnexpectedEnd)? >> 6 {
            0 => u64::from(self.u8()?),
            1 => u64::from(self.u16()? & 0x3fff),
            2 => u64::from(self.u32()? & 0x3fff_ffff),
            _ => u64::from_be_bytes(self.array()?) & VARINT_MAX,
        })
    }

    /// Takes a variable-length integer and then as many bytes as its value.
    #[inline]
    pub fn prefixed(&mut self) -> Result<&'a [u8], UnexpectedEnd> {
        let mut ahead = self.clone();
        let len = usize::try_from(ahead.varint()?).map_err(|_| UnexpectedEnd)?;
        let bytes = ahead.bytes(len)?;
        *self = ahead;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_reads_do_not_move_the_cursor() {
        let mut reader = Reader::new(&[1, 2, 3, 4, 5, 6, 7, 8, 9]);
        assert_eq!(reader.u8(), Ok(1));
        assert_eq!(reader.u16(), Ok(0x0203));
        assert_eq!(reader.u32(), Ok(0x0405_0607));
        assert_eq!((reader.position(), reader.remaining()), (7, 2));
        assert_eq!(reader.u32(), Err(UnexpectedEnd));
        assert_eq!(reader.array::<3>(), Err(UnexpectedEnd));
        assert_eq!(reader.bytes(3), Err(UnexpectedEnd));
        assert_eq!(reader.position(), 7);
        assert_eq!(reader.peek(), [8, 9]);
        assert_eq!(reader.rest(), [8, 9]);
        assert!(reader.is_empty());
        assert_eq!(reader.position(), 9);
        assert_eq!(reader.u8(), Err(UnexpectedEnd));
    }

    #[test]
    fn a_length_prefix_beyond_the_end_consumes_nothing() {
        let mut reader = Reader::new(&[3, 1, 2]);
        assert_eq!(reader.prefixed(), Err(UnexpectedEnd));
        assert_eq!(reader.position(), 0);
        // The largest length must not overflow.
        assert_eq!(Reader::new(&[0xff; 9]).prefixed(), Err(UnexpectedEnd));
        let mut reader = Reader::new(&[2, 1, 2, 9]);
        assert_eq!(reader.prefixed(), Ok(&[1, 2][..]));
        assert_eq!(reader.position(), 3);
    }
}

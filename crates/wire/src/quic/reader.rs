//! The cursor everything is parsed with.

use std::fmt;

use super::varint::VARINT_MAX;

/// The bytes ended before the value did.
#[derive(Debug, Copy, Clone, Eq, PartialEq)]
pub struct UnexpectedEnd;

impl fmt::Display for UnexpectedEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the bytes ended before the value did")
    }
}

impl std::error::Error for UnexpectedEnd {}

/// A cursor over borrowed bytes. A read that fails with [`UnexpectedEnd`] consumes nothing.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    rest: &'a [u8],
    /// Length of the slice that reading began with; `rest` is always its tail.
    total: usize,
}

impl<'a> Reader<'a> {
    /// A cursor at the first of `bytes`.
    #[inline]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, total: bytes.len() }
    }

    /// Bytes not yet read.
    #[inline]
    pub const fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// Whether everything was read.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Bytes read so far: the index of the next one in the slice given to [`Reader::new`].
    #[inline]
    pub const fn position(&self) -> usize {
        self.total - self.rest.len()
    }

    /// What is left, without consuming it.
    #[inline]
    pub const fn peek(&self) -> &'a [u8] {
        self.rest
    }

    /// Takes all that is left.
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

    /// Takes `N` bytes by value.
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

    /// Takes two bytes, most significant first.
    #[inline]
    pub fn u16(&mut self) -> Result<u16, UnexpectedEnd> {
        self.array().map(u16::from_be_bytes)
    }

    /// Takes four bytes, most significant first.
    #[inline]
    pub fn u32(&mut self) -> Result<u32, UnexpectedEnd> {
        self.array().map(u32::from_be_bytes)
    }

    /// Takes a variable-length integer (RFC 9000 §16), of any of its four lengths; at most 2^62-1.
    #[inline]
    pub fn varint(&mut self) -> Result<u64, UnexpectedEnd> {
        // A branch for each length: lengths repeat from packet to packet, so a predicted branch lets the next read begin
        // before this one's bytes have arrived. Computing the length instead makes every read wait for the one before.
        Ok(match self.rest.first().ok_or(UnexpectedEnd)? >> 6 {
            0 => u64::from(self.u8()?),
            1 => u64::from(self.u16()? & 0x3fff),
            2 => u64::from(self.u32()? & 0x3fff_ffff),
            _ => u64::from_be_bytes(self.array()?) & VARINT_MAX,
        })
    }

    /// Takes a variable-length integer, then as many bytes as it says.
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
    fn reads_move_the_cursor_and_failures_do_not() {
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
        // The largest length there is must not overflow anything.
        assert_eq!(Reader::new(&[0xff; 9]).prefixed(), Err(UnexpectedEnd));
        let mut reader = Reader::new(&[2, 1, 2, 9]);
        assert_eq!(reader.prefixed(), Ok(&[1, 2][..]));
        assert_eq!(reader.position(), 3);
    }
}

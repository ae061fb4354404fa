//! Stream data in pieces at equal distances: as a batch of packets leaves it in a receive buffer.

use std::fmt;
use std::iter::FusedIterator;

use bytes::{Bytes, BytesMut};

#[cfg(test)]
mod tests;

/// Consecutive bytes of a stream in one receive buffer: pieces of equal length at equal distances,
/// with the headers and tags of their packets in between. The first and the last piece may be
/// shorter.
///
/// It holds the data of a whole batch of packets, so passing it on costs as much as passing on one
/// packet. It keeps the receive buffer alive (64 KiB); copy data that is kept for long.
#[derive(Clone)]
pub struct StridedBytes {
    buffer: Bytes,
    /// The position of the next byte.
    at: usize,
    /// Bytes left of its piece, counted as if the last piece were whole.
    piece_left: usize,
    piece_len: usize,
    /// Bytes between two pieces.
    gap: usize,
    /// Bytes left in all.
    len: usize,
}

/// The layout of [`StridedBytes`] in their buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) start: usize,
    /// From the start of a piece to the start of the next one.
    pub(crate) step: usize,
    /// Bytes of each piece.
    pub(crate) len: usize,
    pub(crate) count: usize,
}

impl Layout {
    /// One piece.
    pub(crate) fn single(range: std::ops::Range<usize>) -> Self {
        Self { start: range.start, step: range.len(), len: range.len(), count: 1 }
    }

    /// Bytes of all pieces.
    pub(crate) fn len_bytes(&self) -> usize {
        self.len * self.count
    }

    /// The piece `index` alone.
    pub(crate) fn piece(&self, index: usize) -> Self {
        Self { start: self.start + index * self.step, count: 1, ..*self }
    }

    /// Adds the piece of `next` if it continues these pieces. Returns whether it did.
    pub(crate) fn extend(&mut self, next: &Self) -> bool {
        debug_assert!(self.start < next.start && next.count == 1, "packets are in order");
        let step = next.start - self.start;
        if next.len != self.len || (self.count > 1 && step != self.step * self.count) {
            return false;
        }
        if self.count == 1 {
            self.step = step;
        }
        self.count += 1;
        true
    }
}

impl StridedBytes {
    /// The pieces of `buffer` with this layout.
    pub(crate) fn new(buffer: Bytes, layout: &Layout) -> Self {
        debug_assert!(layout.count == 0 || layout.piece(layout.count - 1).start + layout.len <= buffer.len());
        Self {
            buffer,
            at: layout.start,
            piece_left: layout.len,
            piece_len: layout.len,
            gap: layout.step - layout.len,
            len: layout.len_bytes(),
        }
    }

    /// The number of bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The first piece, by reference; empty if nothing is left.
    pub fn front(&self) -> &[u8] {
        match self.len {
            0 => &[],
            len => &self.buffer[self.at..self.at + self.piece_left.min(len)],
        }
    }

    /// The pieces, in order, none of them empty.
    pub fn pieces(&self) -> Pieces<'_> {
        Pieces { buffer: &self.buffer, at: self.at, piece_left: self.piece_left, bytes: self, len: self.len }
    }

    /// The bytes, one by one.
    pub fn iter(&self) -> impl Iterator<Item = &u8> {
        self.pieces().flatten()
    }

    /// Drops `count` bytes from the front.
    ///
    /// # Panics
    /// If there are fewer.
    pub fn advance(&mut self, count: usize) {
        assert!(count <= self.len, "{count} bytes of {}", self.len);
        self.len -= count;
        if count < self.piece_left {
            self.at += count;
            self.piece_left -= count;
            return;
        }
        let beyond = count - self.piece_left;
        // Pieces may have no bytes at all if nothing is left.
        let (whole, part) = if self.len == 0 { (0, 0) } else { (beyond / self.piece_len, beyond % self.piece_len) };
        self.at += self.piece_left + self.gap + whole * (self.piece_len + self.gap) + part;
        self.piece_left = self.piece_len - part;
    }

    /// Takes `count` bytes from the front, by reference.
    ///
    /// # Panics
    /// If there are fewer.
    #[must_use]
    pub fn split_to(&mut self, count: usize) -> Self {
        let mut front = self.clone();
        self.advance(count);
        front.len = count;
        front
    }

    /// Takes the first piece, by reference; none if nothing is left.
    pub fn next_piece(&mut self) -> Option<Bytes> {
        if self.len == 0 {
            return None;
        }
        let len = self.piece_left.min(self.len);
        let piece = self.buffer.slice(self.at..self.at + len);
        self.advance(len);
        Some(piece)
    }

    /// Copies from the front into `out` as much as there is and fits, drops it, and returns how
    /// much that was.
    pub fn copy_to(&mut self, out: &mut [u8]) -> usize {
        let mut copied = 0;
        while copied < out.len() && self.len > 0 {
            let front = self.front();
            let len = front.len().min(out.len() - copied);
            out[copied..copied + len].copy_from_slice(&front[..len]);
            self.advance(len);
            copied += len;
        }
        copied
    }

    /// Itself if it has at least `len_min` bytes, otherwise a copy, so that few bytes do not keep a
    /// receive buffer alive.
    #[must_use]
    pub fn compacted(self, len_min: usize) -> Self {
        if self.len >= len_min {
            return self;
        }
        let mut copy = BytesMut::with_capacity(self.len);
        self.pieces().for_each(|piece| copy.extend_from_slice(piece));
        copy.freeze().into()
    }

    /// All of it in one piece: by reference if it is one already, otherwise a copy.
    pub fn to_bytes(&self) -> Bytes {
        if self.front().len() == self.len {
            return self.clone().next_piece().unwrap_or_default();
        }
        let mut whole = BytesMut::with_capacity(self.len);
        for piece in self.pieces() {
            whole.extend_from_slice(piece);
        }
        whole.freeze()
    }
}

impl Default for StridedBytes {
    /// Without bytes.
    fn default() -> Self {
        Bytes::new().into()
    }
}

impl From<Bytes> for StridedBytes {
    fn from(buffer: Bytes) -> Self {
        let layout = Layout::single(0..buffer.len());
        Self::new(buffer, &layout)
    }
}

impl PartialEq for StridedBytes {
    /// Equal bytes, however they lie.
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len && self.iter().eq(other.iter())
    }
}

impl Eq for StridedBytes {}

impl fmt::Debug for StridedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StridedBytes({} bytes in {} pieces)", self.len, self.pieces().count())
    }
}

/// The pieces of a [`StridedBytes`].
#[derive(Debug, Clone)]
pub struct Pieces<'a> {
    buffer: &'a [u8],
    bytes: &'a StridedBytes,
    at: usize,
    piece_left: usize,
    len: usize,
}

impl<'a> Iterator for Pieces<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        if self.len == 0 {
            return None;
        }
        let len = self.piece_left.min(self.len);
        let piece = &self.buffer[self.at..self.at + len];
        self.len -= len;
        self.at += self.piece_left + self.bytes.gap;
        self.piece_left = self.bytes.piece_len;
        Some(piece)
    }
}

impl FusedIterator for Pieces<'_> {}

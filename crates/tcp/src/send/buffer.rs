//! Data written by the application and not acknowledged by the peer.

use std::collections::VecDeque;
use std::ops::Range;

use bytes::{Buf, Bytes, BytesMut};

use crate::position::FIRST_BYTE;

/// Shorter writes are copied into a common buffer. Otherwise an application that writes single
/// bytes into a full window would need far more memory for bookkeeping than the buffer may hold.
const JOIN_BELOW: usize = 512;

/// Size of the common buffers.
const JOINED_LEN: usize = 16 << 10;

/// References to written data, by position.
#[derive(Debug)]
pub(crate) struct SendBuffer {
    /// Chunks, each with the position of its first byte.
    chunks: VecDeque<(u64, Bytes)>,
    /// Small writes after `chunks`, none of them requested yet.
    joined: BytesMut,
    /// First position kept.
    start: u64,
    end: u64,
}

impl SendBuffer {
    pub(crate) fn new() -> Self {
        Self { chunks: VecDeque::new(), joined: BytesMut::new(), start: FIRST_BYTE, end: FIRST_BYTE }
    }

    /// Returns the position after the last written byte.
    pub(crate) const fn end(&self) -> u64 {
        self.end
    }

    /// Returns the number of bytes kept.
    pub(crate) const fn len(&self) -> usize {
        (self.end - self.start) as usize
    }

    pub(crate) fn push(&mut self, bytes: Bytes) {
        if bytes.is_empty() {
            return;
        }
        let is_small = bytes.len() < JOIN_BELOW;
        if !is_small || self.joined.len() + bytes.len() > JOINED_LEN {
            self.finish_joined();
        }
        let len = bytes.len();
        if is_small {
            if self.joined.capacity() < self.joined.len() + len {
                self.joined.reserve(len);
            }
            self.joined.extend_from_slice(&bytes);
        } else {
            self.chunks.push_back((self.end, bytes));
        }
        self.end += len as u64;
    }

    fn finish_joined(&mut self) {
        if !self.joined.is_empty() {
            let start = self.end - self.joined.len() as u64;
            self.chunks.push_back((start, self.joined.split().freeze()));
        }
    }

    /// Moves all bytes before `position` into chunks.
    fn finish_before(&mut self, position: u64) {
        if position > self.end - self.joined.len() as u64 {
            self.finish_joined();
        }
    }

    /// Drops everything before `position`.
    pub(crate) fn release(&mut self, position: u64) {
        let position = position.min(self.end);
        self.finish_before(position);
        self.start = self.start.max(position);
        while let Some((at, first)) = self.chunks.front_mut() {
            let left = position.saturating_sub(*at);
            if left < first.len() as u64 {
                first.advance(left as usize);
                *at += left;
                break;
            }
            self.chunks.pop_front();
        }
        if self.chunks.is_empty() && self.joined.is_empty() {
            // Idle connections should not hold memory for data already sent.
            (self.chunks, self.joined) = (VecDeque::new(), BytesMut::new());
        }
    }

    /// Appends references to the bytes of `range` to `out`; all of them must be kept.
    pub(crate) fn pieces(&mut self, range: Range<u64>, out: &mut Vec<Bytes>) {
        debug_assert!(self.start <= range.start && range.end <= self.end, "{range:?} is not kept");
        self.finish_before(range.end);
        let first = self.chunks.partition_point(|(at, chunk)| at + chunk.len() as u64 <= range.start);
        for (at, chunk) in self.chunks.range(first..).take_while(|(at, _)| *at < range.end) {
            let from = range.start.saturating_sub(*at) as usize;
            let to = (range.end - at).min(chunk.len() as u64) as usize;
            if from < to {
                out.push(chunk.slice(from..to));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(buffer: &mut SendBuffer, range: Range<u64>) -> Vec<u8> {
        let mut out = Vec::new();
        buffer.pieces(range, &mut out);
        out.concat()
    }

    proptest! {
        /// Compares with a vector that keeps everything.
        #[test]
        fn the_bytes_of_any_range_are_those_that_were_written(
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 1..20),
            long in prop::collection::vec(any::<u8>(), 0..2 * JOIN_BELOW),
            calls in prop::collection::vec((0u64..1400, 0u64..90, any::<bool>()), 1..60),
        ) {
            let mut chunks = chunks;
            chunks.insert(chunks.len() / 2, long);
            let (mut buffer, all) = (SendBuffer::new(), chunks.concat());
            chunks.iter().for_each(|chunk| buffer.push(chunk.clone().into()));
            prop_assert_eq!(buffer.end(), FIRST_BYTE + all.len() as u64);
            let mut released = FIRST_BYTE;
            for (at, len, is_release) in calls {
                if is_release {
                    released = released.max((FIRST_BYTE + at / 8).min(buffer.end()));
                    buffer.release(released);
                    prop_assert_eq!(buffer.len() as u64, buffer.end() - released);
                } else {
                    let start = (FIRST_BYTE + at).max(released).min(buffer.end());
                    let range = start..(start + len).min(buffer.end());
                    let expected = &all[(range.start - 1) as usize..(range.end - 1) as usize];
                    prop_assert_eq!(read(&mut buffer, range), expected);
                }
            }
        }
    }

    #[test]
    fn single_bytes_share_a_buffer() {
        let mut buffer = SendBuffer::new();
        (0..100_000).for_each(|_| buffer.push(Bytes::from_static(b"x")));
        assert!(buffer.chunks.len() < 10, "{}", buffer.chunks.len());
        assert_eq!(read(&mut buffer, 5..90_000).len(), 89_995);
    }
}

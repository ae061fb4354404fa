//! Data that the application has written and the peer has not acknowledged.

use std::collections::VecDeque;
use std::ops::Range;

use bytes::{Buf, Bytes};

use crate::position::FIRST_BYTE;

/// References to written data, by position.
#[derive(Debug)]
pub(crate) struct SendBuffer {
    chunks: VecDeque<Bytes>,
    /// The position of the first byte of the first chunk.
    start: u64,
    end: u64,
    /// The chunk of the last lookup and its position: the next one is usually close.
    last: (usize, u64),
}

impl SendBuffer {
    pub(crate) fn new() -> Self {
        Self { chunks: VecDeque::new(), start: FIRST_BYTE, end: FIRST_BYTE, last: (0, FIRST_BYTE) }
    }

    /// The position after the last written byte.
    pub(crate) const fn end(&self) -> u64 {
        self.end
    }

    /// Bytes that are kept.
    pub(crate) const fn len(&self) -> usize {
        (self.end - self.start) as usize
    }

    pub(crate) fn push(&mut self, bytes: Bytes) {
        if !bytes.is_empty() {
            self.end += bytes.len() as u64;
            self.chunks.push_back(bytes);
        }
    }

    /// Forgets everything before `position`.
    pub(crate) fn release(&mut self, position: u64) {
        let position = position.min(self.end);
        let mut dropped = 0;
        while let Some(first) = self.chunks.front_mut() {
            let left = position.saturating_sub(self.start);
            if left == 0 {
                break;
            }
            if (first.len() as u64) > left {
                first.advance(left as usize);
                self.start += left;
                break;
            }
            self.start += first.len() as u64;
            self.chunks.pop_front();
            dropped += 1;
        }
        let (index, at) = self.last;
        self.last = match index.checked_sub(dropped) {
            None | Some(0) => (0, self.start),
            Some(index) => (index, at),
        };
    }

    /// Appends references to the bytes of `range`, all of which must be kept, to `out`.
    pub(crate) fn pieces(&mut self, range: Range<u64>, out: &mut Vec<Bytes>) {
        debug_assert!(self.start <= range.start && range.end <= self.end, "{range:?} is not kept");
        let (mut index, mut at) = if self.last.1 <= range.start { self.last } else { (0, self.start) };
        let mut position = range.start;
        while position < range.end {
            let chunk = &self.chunks[index];
            let chunk_end = at + chunk.len() as u64;
            if position < chunk_end {
                let from = (position - at) as usize;
                let to = (range.end.min(chunk_end) - at) as usize;
                out.push(chunk.slice(from..to));
                position = at + to as u64;
            }
            if position < range.end {
                (index, at) = (index + 1, chunk_end);
            }
        }
        self.last = (index, at);
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
        /// Against a vector that keeps everything.
        #[test]
        fn the_bytes_of_any_range_are_those_that_were_written(
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 1..20),
            calls in prop::collection::vec((0u64..400, 0u64..60, any::<bool>()), 1..60),
        ) {
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
}

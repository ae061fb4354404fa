//! Received data: what the application can read, and what lies beyond a hole.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use bytes::{Buf, Bytes};

/// Pieces beyond holes, at most. A window of small segments with a hole before each would take more
/// memory for their places than for their bytes; further pieces are dropped and sent again.
const PIECES_MAX: usize = 4096;

/// Below this length a piece is copied, so that it does not keep a receive buffer of 64 KiB alive.
const COPY_BELOW: usize = 4096;

/// Data by position.
#[derive(Debug, Default)]
pub(crate) struct Assembler {
    /// In order, not read yet.
    ready: VecDeque<Bytes>,
    ready_len: usize,
    /// Beyond `nxt`, without overlaps.
    beyond: BTreeMap<u64, Bytes>,
}

impl Assembler {
    /// Bytes that can be read.
    pub(crate) const fn ready_len(&self) -> usize {
        self.ready_len
    }

    /// Whether something lies beyond a hole.
    pub(crate) fn has_hole(&self) -> bool {
        !self.beyond.is_empty()
    }

    /// Takes `data` at `position`, of which nothing lies before `nxt`, the next position in order.
    /// Returns the new one.
    pub(crate) fn insert(&mut self, nxt: u64, position: u64, data: Bytes) -> u64 {
        debug_assert!(position >= nxt);
        if position > nxt {
            self.keep(position, data);
            return nxt;
        }
        let mut nxt = nxt;
        self.append(&mut nxt, data);
        // What lies beyond may continue it, or be covered by it.
        while let Some(entry) = self.beyond.first_entry().filter(|entry| *entry.key() <= nxt) {
            let (position, mut data) = entry.remove_entry();
            let known = (nxt - position).min(data.len() as u64);
            data.advance(known as usize);
            self.append(&mut nxt, data);
        }
        nxt
    }

    fn append(&mut self, nxt: &mut u64, data: Bytes) {
        if !data.is_empty() {
            *nxt += data.len() as u64;
            self.ready_len += data.len();
            self.ready.push_back(data);
        }
    }

    /// Keeps the parts of `data` that are not there yet.
    fn keep(&mut self, mut position: u64, mut data: Bytes) {
        while !data.is_empty() && self.beyond.len() < PIECES_MAX {
            // What begins at or before it may cover its beginning.
            if let Some((start, before)) = self.beyond.range(..=position).next_back() {
                let covered = (start + before.len() as u64).saturating_sub(position).min(data.len() as u64);
                data.advance(covered as usize);
                position += covered;
            }
            let next = self.beyond.range(position..).next().map(|(start, _)| *start);
            let len = next.map_or(data.len() as u64, |next| (next - position).min(data.len() as u64));
            if len == 0 {
                // The next piece begins here, or nothing is left.
                continue;
            }
            let piece = data.split_to(len as usize);
            let piece = if piece.len() < COPY_BELOW { Bytes::copy_from_slice(&piece) } else { piece };
            self.beyond.insert(position, piece);
            position += len;
        }
    }

    /// The range of positions without a hole that contains `position`, beyond `nxt`.
    pub(crate) fn block_around(&self, position: u64) -> Option<Range<u64>> {
        let (start, data) = self.beyond.range(..=position).next_back()?;
        let mut block = *start..start + data.len() as u64;
        if block.end <= position {
            return None;
        }
        for (start, data) in self.beyond.range(..block.start).rev() {
            if start + data.len() as u64 != block.start {
                break;
            }
            block.start = *start;
        }
        for (start, data) in self.beyond.range(block.end..) {
            if *start != block.end {
                break;
            }
            block.end += data.len() as u64;
        }
        Some(block)
    }

    /// The next bytes to be read, at most `len_max`.
    pub(crate) fn read(&mut self, len_max: usize) -> Option<Bytes> {
        let first = self.ready.front_mut()?;
        let bytes = if first.len() <= len_max {
            self.ready.pop_front().expect("there is a first")
        } else {
            first.split_to(len_max)
        };
        self.ready_len -= bytes.len();
        Some(bytes)
    }

    /// Drops what lies beyond `end`: the stream ends there.
    pub(crate) fn cut(&mut self, end: u64) {
        let beyond = self.beyond.split_off(&end);
        drop(beyond);
        if let Some(mut last) = self.beyond.last_entry() {
            let start = *last.key();
            last.get_mut().truncate((end - start) as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against a vector of known bytes: the first copy of a byte counts.
        #[test]
        fn bytes_come_out_in_order_and_once(
            segments in prop::collection::vec((0u64..120, 1u64..30), 1..60),
        ) {
            let bytes: Bytes = (0..200u8).collect::<Vec<u8>>().into();
            let (mut assembler, mut nxt, mut known) = (Assembler::default(), 0, vec![false; 200]);
            let mut out = Vec::new();
            for (at, len) in segments {
                known[at as usize..(at + len) as usize].fill(true);
                let start = at.max(nxt);
                if start < at + len {
                    nxt = assembler.insert(nxt, start, bytes.slice(start as usize..(at + len) as usize));
                }
                let expected = known.iter().position(|known| !known).unwrap_or(200) as u64;
                prop_assert_eq!(nxt, expected);
                prop_assert_eq!(assembler.has_hole(), known[nxt as usize..].contains(&true));
                for position in nxt..150 {
                    let block = assembler.block_around(position);
                    prop_assert_eq!(block.is_some(), known[position as usize], "{}", position);
                    if let Some(block) = block {
                        prop_assert!(block.contains(&position) && known[block.start as usize..block.end as usize].iter().all(|known| *known));
                        prop_assert!(!known[block.end as usize] && !known[block.start as usize - 1], "{:?}", block);
                    }
                }
                while let Some(read) = assembler.read(7) {
                    out.extend_from_slice(&read);
                }
                prop_assert_eq!((out.len() as u64, assembler.ready_len()), (nxt, 0));
            }
            prop_assert_eq!(&out[..], &bytes[..out.len()]);
        }
    }

    #[test]
    fn the_number_of_pieces_is_limited() {
        let mut assembler = Assembler::default();
        for piece in 0..2 * PIECES_MAX as u64 {
            assembler.insert(0, 1 + 2 * piece, Bytes::from_static(b"x"));
        }
        assert_eq!(assembler.beyond.len(), PIECES_MAX);
    }
}

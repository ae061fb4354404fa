//! Received data: those the application can read, and those beyond a hole.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use bytes::{Buf, Bytes, BytesMut};

/// Smallest number of buffer bytes per piece beyond holes. Without a limit, small segments with
/// holes between them would take more memory for bookkeeping than for their bytes; surplus pieces
/// are dropped and resent. A value above the common segment size would drop honest data.
const BYTES_PER_PIECE: usize = 512;

/// Number of pieces beyond holes that even the smallest buffer may hold.
const PIECES_MIN: usize = 64;

/// Shorter pieces are copied, so that they do not keep a receive buffer of 64 KiB alive.
const COPY_BELOW: usize = 4096;

/// Number of readable pieces kept as they arrived. An application that reads at once gets them
/// without a copy; later small ones are joined.
const READY_AS_IS_MAX: usize = 16;

/// Queue capacity that an empty buffer keeps: enough for an application that reads at once.
const READY_KEPT: usize = 1;

/// Size of the buffers into which small pieces are joined.
const JOINED_LEN: usize = 16 << 10;

/// Data by position.
#[derive(Debug)]
pub(crate) struct Assembler {
    /// Data in order, not read yet.
    ready: VecDeque<Bytes>,
    /// Joined small pieces, which follow `ready`.
    joined: BytesMut,
    ready_len: usize,
    /// Pieces beyond `nxt`, without overlaps.
    beyond: BTreeMap<u64, Bytes>,
    /// Ranges covered by the pieces beyond `nxt`, by their start: adjacent pieces form one range.
    blocks: BTreeMap<u64, u64>,
    pieces_max: usize,
}

impl Assembler {
    /// Creates an assembler for a buffer of this many bytes.
    pub(crate) fn new(buffer: u64) -> Self {
        Self {
            ready: VecDeque::new(),
            joined: BytesMut::new(),
            ready_len: 0,
            beyond: BTreeMap::new(),
            blocks: BTreeMap::new(),
            pieces_max: pieces_max(buffer),
        }
    }

    /// Changes the size of the buffer.
    pub(crate) fn set_limit(&mut self, buffer: u64) {
        self.pieces_max = pieces_max(buffer);
    }

    /// Returns the number of readable bytes.
    pub(crate) const fn ready_len(&self) -> usize {
        self.ready_len
    }

    /// Returns whether there are data beyond a hole.
    pub(crate) fn has_hole(&self) -> bool {
        !self.beyond.is_empty()
    }

    /// Inserts `data` at `position`, none of which lies before `nxt`, the next position in order.
    /// Returns the new next position.
    pub(crate) fn insert(&mut self, nxt: u64, position: u64, data: Bytes) -> u64 {
        debug_assert!(position >= nxt);
        if position > nxt {
            self.keep(position, data);
            return nxt;
        }
        let (mut nxt, had_hole) = (nxt, self.has_hole());
        self.append(&mut nxt, data);
        // Pieces beyond it may continue it, or be covered by it.
        while let Some(entry) = self.beyond.first_entry().filter(|entry| *entry.key() <= nxt) {
            let (position, mut data) = entry.remove_entry();
            let known = (nxt - position).min(data.len() as u64);
            data.advance(known as usize);
            self.append(&mut nxt, data);
        }
        while self.blocks.first_key_value().is_some_and(|(start, _)| *start <= nxt) {
            self.blocks.pop_first();
        }
        if had_hole && !self.has_hole() {
            // Empty maps keep a node.
            (self.beyond, self.blocks) = (BTreeMap::new(), BTreeMap::new());
        }
        nxt
    }

    fn append(&mut self, nxt: &mut u64, data: Bytes) {
        if data.is_empty() {
            return;
        }
        *nxt += data.len() as u64;
        self.ready_len += data.len();
        let is_small = data.len() < COPY_BELOW;
        if !is_small || self.joined.len() + data.len() > JOINED_LEN {
            self.finish_joined();
        }
        if is_small && self.ready.len() >= READY_AS_IS_MAX {
            if self.joined.capacity() < self.joined.len() + data.len() {
                self.joined.reserve(data.len());
            }
            self.joined.extend_from_slice(&data);
        } else {
            self.finish_joined();
            if self.ready.capacity() < READY_KEPT {
                self.ready.reserve_exact(READY_KEPT);
            }
            self.ready.push_back(data);
        }
    }

    fn finish_joined(&mut self) {
        if !self.joined.is_empty() {
            self.ready.push_back(self.joined.split().freeze());
        }
    }

    /// Keeps the parts of `data` that are new.
    fn keep(&mut self, mut position: u64, mut data: Bytes) {
        while !data.is_empty() && self.beyond.len() < self.pieces_max {
            // A piece starting at or before it may cover its beginning.
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
            self.extend_blocks(position..position + len);
            position += len;
        }
    }

    /// Marks the positions of `range`, all of them new, as present.
    fn extend_blocks(&mut self, mut range: Range<u64>) {
        if let Some(end) = self.blocks.remove(&range.end) {
            range.end = end;
        }
        match self.blocks.range_mut(..range.start).next_back() {
            Some((_, end)) if *end == range.start => *end = range.end,
            _ => drop(self.blocks.insert(range.start, range.end)),
        }
    }

    /// Returns the contiguous range beyond `nxt` that contains `position`.
    pub(crate) fn block_around(&self, position: u64) -> Option<Range<u64>> {
        let (start, end) = self.blocks.range(..=position).next_back()?;
        (position < *end).then_some(*start..*end)
    }

    /// Returns the first contiguous part of `range` beyond `nxt` that is present already.
    pub(crate) fn first_known(&self, range: &Range<u64>) -> Option<Range<u64>> {
        let around = self.block_around(range.start);
        let next = || self.blocks.range(range.start..range.end).next().map(|(start, end)| *start..*end);
        let block = around.or_else(next)?;
        Some(block.start.max(range.start)..block.end.min(range.end))
    }

    /// Returns up to `len_max` bytes in order.
    pub(crate) fn read(&mut self, len_max: usize) -> Option<Bytes> {
        if self.ready.is_empty() {
            self.finish_joined();
        }
        let first = self.ready.front_mut()?;
        let bytes = if first.len() <= len_max {
            self.ready.pop_front().expect("there is a first")
        } else {
            first.split_to(len_max)
        };
        self.ready_len -= bytes.len();
        if self.ready_len == 0 && (self.ready.capacity() > READY_KEPT || self.joined.capacity() > 0) {
            // Idle connections should not hold memory for data already read.
            (self.ready, self.joined) = (VecDeque::new(), BytesMut::new());
        }
        Some(bytes)
    }

    /// Drops data beyond `end`, the end of the stream.
    pub(crate) fn cut(&mut self, end: u64) {
        drop(self.beyond.split_off(&end));
        if let Some(mut last) = self.beyond.last_entry() {
            let start = *last.key();
            last.get_mut().truncate((end - start) as usize);
        }
        drop(self.blocks.split_off(&end));
        if let Some(mut last) = self.blocks.last_entry() {
            *last.get_mut() = end.min(*last.get());
        }
    }
}

/// Returns the limit on pieces beyond holes for a buffer of this many bytes.
fn pieces_max(buffer: u64) -> usize {
    usize::try_from(buffer).unwrap_or(usize::MAX).div_euclid(BYTES_PER_PIECE).max(PIECES_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Compares with a vector of known bytes: the first copy of a byte counts.
        #[test]
        fn bytes_come_out_in_order_and_once(
            segments in prop::collection::vec((0u64..120, 1u64..30), 1..60),
        ) {
            let bytes: Bytes = (0..200u8).collect::<Vec<u8>>().into();
            let (mut assembler, mut nxt, mut known) = (Assembler::new(1 << 20), 0, vec![false; 200]);
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
        let mut assembler = Assembler::new(1 << 20);
        for piece in 0..(1 << 20) / 2 {
            assembler.insert(0, 1 + 2 * piece, Bytes::from_static(b"x"));
        }
        assert_eq!(assembler.beyond.len(), (1 << 20) / BYTES_PER_PIECE);
    }

    #[test]
    fn small_pieces_are_joined_and_read_in_order() {
        let (mut assembler, mut nxt) = (Assembler::new(1 << 20), 0);
        let bytes: Bytes = (0..200_000u32).map(|at| (at % 251) as u8).collect::<Vec<u8>>().into();
        let mut out = Vec::new();
        for round in 0..100_u64 {
            let len = [1, 700, 5000, 3, 1448, 0][round as usize % 6];
            nxt = assembler.insert(nxt, nxt, bytes.slice(nxt as usize..nxt as usize + len));
            if round % 31 == 30 {
                out.extend_from_slice(&assembler.read(2000).expect("there is more"));
            }
        }
        while let Some(read) = assembler.read(2000) {
            out.extend_from_slice(&read);
        }
        assert_eq!((&out[..], assembler.ready_len()), (&bytes[..nxt as usize], 0));
        (0..10_000).for_each(|at| nxt = assembler.insert(nxt, nxt, bytes.slice(at..=at)));
        assert!(assembler.ready.len() < 2 * READY_AS_IS_MAX, "{}", assembler.ready.len());
    }

    #[test]
    fn nothing_beyond_the_end_is_reported() {
        let mut assembler = Assembler::new(1 << 20);
        assembler.insert(0, 10, Bytes::from_static(b"0123456789"));
        assembler.insert(0, 30, Bytes::from_static(b"0123456789"));
        assembler.cut(15);
        assert_eq!((assembler.block_around(12), assembler.block_around(30)), (Some(10..15), None));
    }
}

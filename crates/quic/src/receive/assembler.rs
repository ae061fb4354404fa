//! Puts the bytes of a stream back in order.
//!
//! Chunks are references into receive buffers. A chunk that is small, or that has to wait for others, is copied out, so
//! that a few bytes never keep a whole receive buffer alive; small ones that follow each other are copied together, so that
//! a stream of single bytes costs little more than its bytes.

use std::collections::{BTreeMap, VecDeque};

use bytes::{Bytes, BytesMut};

#[cfg(test)]
mod tests;

/// Chunks shorter than this are copied out of their receive buffer at once, in bytes.
const COPY_LEN_MAX: usize = 512;

/// Small chunks are copied together into pieces of at most this many bytes.
const TAIL_LEN_MAX: usize = 4096;

/// Out-of-order chunks beyond this count must be at least [`PENDING_CHUNK_LEN_MIN`] bytes long on average; otherwise the
/// peer is cutting its streams into crumbs to make us remember them.
const PENDING_COUNT_FREE: usize = 1024;
const PENDING_CHUNK_LEN_MIN: usize = 64;

/// The peer's streams are cut into too many small pieces that arrive out of order.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooFragmented;

/// Chunks that wait for others, over all streams of a connection.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Pending {
    count: usize,
    bytes: usize,
}

/// Bytes received and not yet read.
#[derive(Debug, Default)]
pub(crate) struct Assembler {
    /// The offset of the next byte to read.
    read_offset: u64,
    /// The offset after the last byte that can be read without a gap.
    ready_end: u64,
    ready: VecDeque<Bytes>,
    /// Small chunks that follow those in `ready`.
    tail: BytesMut,
    /// Chunks beyond a gap, by offset; they do not overlap.
    pending: BTreeMap<u64, Bytes>,
    pending_bytes: usize,
}

impl Pending {
    /// One stream's chunks went from `before` to `after`.
    pub(crate) fn update(&mut self, before: Self, after: Self) -> Result<(), TooFragmented> {
        self.count = self.count + after.count - before.count;
        self.bytes = self.bytes + after.bytes - before.bytes;
        if self.count > PENDING_COUNT_FREE && self.bytes / self.count < PENDING_CHUNK_LEN_MIN {
            return Err(TooFragmented);
        }
        Ok(())
    }

    /// A stream with these chunks is gone.
    pub(crate) fn remove(&mut self, gone: Self) {
        self.count -= gone.count;
        self.bytes -= gone.bytes;
    }
}

impl Assembler {
    /// The offset of the next byte to read.
    pub(crate) fn read_offset(&self) -> u64 {
        self.read_offset
    }

    /// The offset up to which everything has arrived.
    pub(crate) fn ready_end(&self) -> u64 {
        self.ready_end
    }

    /// True if a byte can be read.
    pub(crate) fn is_ready(&self) -> bool {
        self.read_offset < self.ready_end
    }

    /// The chunks that wait for others.
    pub(crate) fn pending(&self) -> Pending {
        Pending { count: self.pending.len(), bytes: self.pending_bytes }
    }

    /// Takes a chunk; what has arrived before is passed over.
    pub(crate) fn insert(&mut self, mut offset: u64, mut chunk: Bytes) {
        if offset + chunk.len() as u64 <= self.ready_end {
            return;
        }
        if offset < self.ready_end {
            chunk = chunk.slice((self.ready_end - offset) as usize..);
            offset = self.ready_end;
        }
        if offset == self.ready_end {
            self.push_ready(chunk);
            if !self.pending.is_empty() {
                self.promote();
            }
            return;
        }
        self.insert_pending(offset, chunk);
    }

    fn push_ready(&mut self, chunk: Bytes) {
        self.ready_end += chunk.len() as u64;
        let is_small = chunk.len() < COPY_LEN_MAX;
        if !is_small || self.tail.len() + chunk.len() > TAIL_LEN_MAX {
            self.close_tail();
        }
        if is_small {
            self.tail.extend_from_slice(&chunk);
        } else {
            self.ready.push_back(chunk);
        }
    }

    fn close_tail(&mut self) {
        if !self.tail.is_empty() {
            self.ready.push_back(std::mem::take(&mut self.tail).freeze());
        }
    }

    /// Moves chunks that have become contiguous to the ready queue.
    fn promote(&mut self) {
        while let Some(entry) = self.pending.first_entry() {
            let offset = *entry.key();
            if offset > self.ready_end {
                return;
            }
            let chunk = entry.remove();
            self.pending_bytes -= chunk.len();
            let known = (self.ready_end - offset) as usize;
            if known < chunk.len() {
                self.push_ready(chunk.slice(known..));
            }
        }
    }

    /// Keeps the parts of the chunk that no pending chunk covers.
    fn insert_pending(&mut self, mut offset: u64, mut chunk: Bytes) {
        if let Some((before, held)) = self.pending.range(..=offset).next_back() {
            let covered = (before + held.len() as u64).saturating_sub(offset);
            if covered >= chunk.len() as u64 {
                return;
            }
            chunk = chunk.slice(covered as usize..);
            offset += covered;
        }
        while !chunk.is_empty() {
            let next = self.pending.range(offset..).next();
            let gap = next.map_or(chunk.len() as u64, |(next, _)| (next - offset).min(chunk.len() as u64));
            let next_end = next.map(|(next, held)| next + held.len() as u64);
            if gap > 0 {
                self.pending_bytes += gap as usize;
                self.pending.insert(offset, Bytes::copy_from_slice(&chunk[..gap as usize]));
            }
            let Some(next_end) = next_end.filter(|end| *end < offset + chunk.len() as u64) else { return };
            chunk = chunk.slice((next_end - offset) as usize..);
            offset = next_end;
        }
    }

    /// Takes the next bytes in order, at most `len`.
    pub(crate) fn read(&mut self, len: usize) -> Option<Bytes> {
        if self.ready.is_empty() {
            self.close_tail();
        }
        let front = self.ready.front_mut()?;
        let chunk = if front.len() <= len { self.ready.pop_front()? } else { front.split_to(len) };
        self.read_offset += chunk.len() as u64;
        Some(chunk)
    }

    /// Forgets everything: nobody will read it.
    pub(crate) fn discard(&mut self) {
        *self = Self { read_offset: self.ready_end, ready_end: self.ready_end, ..Self::default() };
    }
}

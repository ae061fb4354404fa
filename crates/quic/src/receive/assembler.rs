//! Puts the bytes of a stream back in order.
//!
//! Chunks are references into receive buffers. A chunk that is small, or that has to wait for
//! others, is copied, and so is every chunk once a connection holds many references. So few bytes
//! never keep many receive buffers alive. Consecutive small chunks are copied together, so that a
//! stream of single bytes costs little more than its bytes.

use std::collections::{BTreeMap, VecDeque};
use std::sync::LazyLock;

use bytes::{Bytes, BytesMut};

use crate::spaces::Vacant;
use crate::strided_bytes::StridedBytes;

#[cfg(test)]
mod tests;

/// Chunks shorter than this are copied out of their receive buffer at once, in bytes.
const COPY_LEN_MAX: usize = 512;

/// Small chunks are copied together into pieces of at most this many bytes.
const TAIL_LEN_MAX: usize = 4096;

/// Out-of-order chunks beyond this count must be at least [`PENDING_CHUNK_LEN_MIN`] bytes long on
/// average; otherwise the peer cuts its streams into tiny pieces to use up our memory.
const PENDING_COUNT_FREE: usize = 1024;
const PENDING_CHUNK_LEN_MIN: usize = 64;

/// Handshake bytes out of order that are taken even if each is a piece of its own (RFC 9000, section
/// 7.5). Pieces of one byte cost about a hundred bytes each, so that this is also the limit of what
/// they cost.
const CRYPTO_BYTES_MIN: usize = 4096;

/// The peer's streams are cut into too many small pieces that arrive out of order.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooFragmented;

/// Chunks that wait for others, over all streams of a connection.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Pending {
    count: usize,
    bytes: usize,
}

/// A chunk that can be read.
#[derive(Debug)]
struct Ready {
    data: StridedBytes,
    /// It is a reference into a receive buffer.
    is_reference: bool,
}

/// Bytes received and not yet read.
#[derive(Debug, Default)]
pub(crate) struct Assembler {
    /// The offset of the next byte to read.
    read_offset: u64,
    /// The offset after the last byte that can be read without a gap.
    ready_end: u64,
    ready: VecDeque<Ready>,
    /// Chunks in `ready` that keep a receive buffer alive.
    references: usize,
    /// Small chunks that follow those in `ready`.
    tail: BytesMut,
    /// Chunks beyond a gap, by offset; they do not overlap.
    pending: BTreeMap<u64, Bytes>,
    pending_bytes: usize,
}

impl Vacant for Assembler {
    fn vacant() -> &'static Self {
        static VACANT: LazyLock<Assembler> = LazyLock::new(Assembler::default);
        &VACANT
    }
}

impl Pending {
    /// One stream's chunks went from `before` to `after`.
    pub(crate) fn update(&mut self, before: Self, after: Self) -> Result<(), TooFragmented> {
        self.count = self.count + after.count - before.count;
        self.bytes = self.bytes + after.bytes - before.bytes;
        if self.is_too_fragmented() { Err(TooFragmented) } else { Ok(()) }
    }

    /// True if nothing waits.
    pub(crate) fn is_empty(self) -> bool {
        self.count == 0
    }

    fn is_too_fragmented(self) -> bool {
        self.count > PENDING_COUNT_FREE && self.bytes / self.count < PENDING_CHUNK_LEN_MIN
    }

    /// The same limit for handshake bytes, of which [`CRYPTO_BYTES_MIN`] are taken in any pieces.
    pub(crate) fn check_crypto(self) -> Result<(), TooFragmented> {
        if self.bytes > CRYPTO_BYTES_MIN && self.is_too_fragmented() { Err(TooFragmented) } else { Ok(()) }
    }

    /// A stream with these chunks has ended.
    pub(crate) fn remove(&mut self, removed: Self) {
        self.count -= removed.count;
        self.bytes -= removed.bytes;
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

    /// Chunks held that keep a receive buffer alive.
    pub(crate) fn references(&self) -> usize {
        self.references
    }

    /// Adds a chunk; bytes that have arrived before are skipped. It is kept by reference only if
    /// `may_reference`.
    pub(crate) fn insert(&mut self, mut offset: u64, mut chunk: StridedBytes, may_reference: bool) {
        if offset + chunk.len() as u64 <= self.ready_end {
            return;
        }
        if offset < self.ready_end {
            chunk.advance((self.ready_end - offset) as usize);
            offset = self.ready_end;
        }
        if offset == self.ready_end {
            self.push_ready(chunk, may_reference);
            if !self.pending.is_empty() {
                self.promote();
            }
            return;
        }
        self.insert_pending(offset, chunk.to_bytes());
    }

    fn push_ready(&mut self, data: StridedBytes, may_reference: bool) {
        self.ready_end += data.len() as u64;
        let is_reference = may_reference && data.len() >= COPY_LEN_MAX;
        if is_reference || self.tail.len() + data.len() > TAIL_LEN_MAX {
            self.close_tail();
        }
        if is_reference {
            self.references += 1;
            self.ready.push_back(Ready { data, is_reference });
        } else {
            data.pieces().for_each(|piece| self.tail.extend_from_slice(piece));
        }
    }

    fn close_tail(&mut self) {
        if !self.tail.is_empty() {
            let data = std::mem::take(&mut self.tail).freeze().into();
            self.ready.push_back(Ready { data, is_reference: false });
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
                // It is a copy already; copying it once more keeps one rule for all.
                self.push_ready(chunk.slice(known..).into(), false);
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
    pub(crate) fn read(&mut self, len: usize) -> Option<StridedBytes> {
        if self.ready.is_empty() {
            self.close_tail();
        }
        let front = self.ready.front_mut()?;
        let chunk = if front.data.len() > len {
            front.data.split_to(len)
        } else {
            let front = self.ready.pop_front()?;
            self.references -= usize::from(front.is_reference);
            front.data
        };
        self.read_offset += chunk.len() as u64;
        Some(chunk)
    }

    /// Discards everything: it will not be read.
    pub(crate) fn discard(&mut self) {
        *self = Self { read_offset: self.ready_end, ready_end: self.ready_end, ..Self::default() };
    }
}

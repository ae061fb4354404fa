//! The bytes of one stream that the peer has not acknowledged yet.
//!
//! The application's chunks are held by reference count and never read here. A plan takes ranges of
//! them, lost ranges first.

use std::collections::VecDeque;
use std::ops::Range;

use bytes::Bytes;

use crate::plan::Plan;
use crate::range_set::RangeSet;
use crate::spaces::Vacant;

#[cfg(test)]
mod tests;

/// Unacknowledged bytes of a stream.
#[derive(Debug, Default)]
pub(crate) struct SendBuffer {
    /// Chunks with the stream offset of their first byte, ascending and without gaps.
    chunks: VecDeque<(u64, Bytes)>,
    /// Everything below is acknowledged and released.
    floor: u64,
    /// Everything from here on has never been sent. `floor <= unsent <= end`.
    unsent: u64,
    /// The offset after the last byte written.
    end: u64,
    /// Acknowledged ranges above the floor.
    acked: RangeSet,
    /// Lost ranges that wait for retransmission. None of their bytes is acknowledged.
    lost: RangeSet,
}

impl Vacant for SendBuffer {
    fn vacant() -> &'static Self {
        static VACANT: SendBuffer = SendBuffer {
            chunks: VecDeque::new(),
            floor: 0,
            unsent: 0,
            end: 0,
            acked: RangeSet::new(),
            lost: RangeSet::new(),
        };
        &VACANT
    }
}

impl SendBuffer {
    /// Appends a chunk.
    pub(crate) fn write(&mut self, chunk: Bytes) {
        if chunk.is_empty() {
            return;
        }
        let start = self.end;
        self.end += chunk.len() as u64;
        self.chunks.push_back((start, chunk));
    }

    /// The offset after the last byte written.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// The offset of the first byte that was never sent.
    pub(crate) fn unsent(&self) -> u64 {
        self.unsent
    }

    /// The offset of the first byte that is not acknowledged.
    pub(crate) fn floor(&self) -> u64 {
        self.floor
    }

    /// Bytes that could be sent now up to stream offset `limit`, retransmissions included.
    pub(crate) fn ready_bytes(&self, limit: u64) -> u64 {
        let lost: u64 = self.lost.iter().map(|range| range.end - range.start).sum();
        lost + self.end.min(limit).saturating_sub(self.unsent)
    }

    /// Bytes held until they are acknowledged.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.end - self.floor
    }

    /// True if every byte written was acknowledged.
    pub(crate) fn is_fully_acked(&self) -> bool {
        self.floor == self.end
    }

    /// True if lost ranges wait for retransmission.
    pub(crate) fn has_lost(&self) -> bool {
        !self.lost.is_empty()
    }

    /// The next range to send, without taking it: lost bytes first, then new ones up to stream
    /// offset `limit`.
    pub(crate) fn peek(&self, limit: u64) -> Option<Range<u64>> {
        if let Some(lost) = self.lost.first() {
            return Some(lost);
        }
        let end = self.end.min(limit);
        (self.unsent < end).then_some(self.unsent..end)
    }

    /// Takes at most `len` bytes of what [`SendBuffer::peek`] returned.
    pub(crate) fn take(&mut self, limit: u64, len: u64) -> Option<Range<u64>> {
        if let Some(lost) = self.lost.pop_front(len) {
            return Some(lost);
        }
        let end = self.end.min(limit).min(self.unsent.saturating_add(len));
        if self.unsent >= end {
            return None;
        }
        let taken = self.unsent..end;
        self.unsent = end;
        Some(taken)
    }

    /// Adds the bytes of `range` to the packet a plan is building.
    ///
    /// # Panics
    /// If the bytes are no longer held: a range comes from `take` and is acknowledged only after it
    /// was sent.
    pub(crate) fn add_to_plan(&self, range: Range<u64>, plan: &mut Plan) {
        let mut index = self.chunks.partition_point(|(start, chunk)| start + chunk.len() as u64 <= range.start);
        let mut at = range.start;
        while at < range.end {
            let (start, chunk) = &self.chunks[index];
            let from = (at - start) as usize;
            let len = (chunk.len() - from).min((range.end - at) as usize);
            plan.push_chunk_piece(chunk, from, len);
            at += len as u64;
            index += 1;
        }
    }

    /// The peer acknowledged `range`.
    pub(crate) fn acknowledge(&mut self, range: Range<u64>) {
        if range.end <= self.floor {
            return;
        }
        if !self.lost.is_empty() {
            self.lost.remove(range.clone());
        }
        if range.start <= self.floor && self.acked.is_empty() {
            self.floor = range.end;
        } else {
            self.acked.insert(range.start.max(self.floor)..range.end);
            match self.acked.first() {
                Some(first) if first.start <= self.floor => {
                    self.acked.pop_first_range();
                    self.floor = first.end;
                }
                _ => return,
            }
        }
        while let Some((start, chunk)) = self.chunks.front()
            && start + chunk.len() as u64 <= self.floor
        {
            self.chunks.pop_front();
        }
    }

    /// Queues `range` for retransmission, except for bytes acknowledged meanwhile.
    pub(crate) fn lose(&mut self, range: Range<u64>) {
        let range = range.start.max(self.floor)..range.end;
        for missing in self.acked.gaps_in(range) {
            self.lost.insert(missing);
        }
    }

    /// The first part of `range`, all of it sent, that is not acknowledged.
    pub(crate) fn first_missing_in(&self, range: Range<u64>) -> Option<Range<u64>> {
        let range = range.start.max(self.floor)..range.end;
        self.acked.gaps_in(range).next()
    }

    /// Releases unused memory.
    pub(crate) fn shrink(&mut self) {
        self.chunks.shrink_to_fit();
    }

    /// Drops all bytes: the stream was reset.
    pub(crate) fn discard(&mut self) {
        self.chunks.clear();
        self.lost = RangeSet::new();
        self.acked = RangeSet::new();
        self.floor = self.end;
        self.unsent = self.end;
    }
}

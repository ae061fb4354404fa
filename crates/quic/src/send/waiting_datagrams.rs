//! The queue of DATAGRAM frames that take any path.
//!
//! ```text
//!  front [first][first] | [......][......][......] back
//!        those that pass others, in their order     the others
//! ```

use std::collections::VecDeque;

use bytes::Bytes;
use units::Instant;
use wire::quic::frame::{datagram_header_len, emit_datagram_header};

use super::datagram_window::{DatagramWindow, WINDOW_FIRST};
use super::draft::Draft;
use super::frames::SentFrame;
use super::streams::SendStreams;
use crate::plan::Plan;
use crate::queue::Queue;

/// DATAGRAM frames waiting to be sent, at most. The limit in bytes alone would not bound empty
/// ones.
const DATAGRAMS_WAITING_MAX: usize = 8192;

/// Datagrams that wait. A connection that sends none holds a pointer.
#[derive(Debug, Default)]
pub(crate) struct WaitingDatagrams(Option<Box<Waiting>>);

#[derive(Debug, Default)]
struct Waiting {
    queue: VecDeque<Bytes>,
    /// So many at the front pass the others.
    first: usize,
    /// The others that were added and that left so far.
    lined_up: u64,
    left: u64,
    /// The numbers in line of those that would have passed others, had there been a place.
    overflow: Queue<u64>,
    /// Of all.
    bytes: u64,
    /// Bytes that were taken since the last plan.
    taken: u64,
    window: DatagramWindow,
}

impl WaitingDatagrams {
    pub(crate) const fn new() -> Self {
        Self(None)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.front().is_none()
    }

    pub(super) fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |waiting| waiting.queue.len())
    }

    pub(super) fn bytes(&self) -> u64 {
        self.0.as_ref().map_or(0, |waiting| waiting.bytes)
    }

    /// Those that were added [without passing others](Self::push).
    pub(super) fn in_line_count(&self) -> usize {
        self.0.as_ref().map_or(0, |waiting| waiting.queue.len() - waiting.first - waiting.overflow.len())
    }

    /// The bytes that should wait.
    pub(super) fn window(&self) -> u64 {
        self.0.as_ref().map_or(WINDOW_FIRST, |waiting| waiting.window.bytes())
    }

    pub(super) fn push(&mut self, data: Bytes) {
        let waiting = self.0.get_or_insert_default();
        waiting.bytes += data.len() as u64;
        waiting.lined_up += 1;
        waiting.queue.push_back(data);
    }

    /// Adds one that passes all but those added so before, or none if `most` do.
    pub(super) fn push_first(&mut self, data: Bytes, most: usize) {
        let waiting = self.0.get_or_insert_default();
        if waiting.first >= most {
            waiting.overflow.push_back(waiting.lined_up);
            self.push(data);
            return;
        }
        waiting.bytes += data.len() as u64;
        waiting.queue.insert(waiting.first, data);
        waiting.first += 1;
    }

    pub(super) fn front(&self) -> Option<&Bytes> {
        self.0.as_ref()?.queue.front()
    }

    pub(super) fn pop_front(&mut self) -> Option<Bytes> {
        let waiting = self.0.as_mut()?;
        let data = waiting.queue.pop_front()?;
        if waiting.first > 0 {
            waiting.first -= 1;
        } else {
            if waiting.overflow.front() == Some(&waiting.left) {
                waiting.overflow.pop_front();
            }
            waiting.left += 1;
        }
        waiting.bytes -= data.len() as u64;
        waiting.taken = waiting.taken.saturating_add(data.len() as u64);
        Some(data)
    }

    /// The one in front, if `wanted` says so.
    pub(super) fn pop_front_if(&mut self, wanted: impl FnOnce(&Bytes) -> bool) -> Option<Bytes> {
        if wanted(self.front()?) { self.pop_front() } else { None }
    }

    /// Adds the datagrams that wait, as far as they fit. Returns how many were dropped because they are
    /// longer than `len_max`.
    pub(super) fn fill(
        &mut self,
        len_max: usize,
        streams: &mut SendStreams,
        draft: &mut Draft,
        plan: &mut Plan,
        frames: &mut Vec<SentFrame>,
    ) -> u64 {
        let mut lost = 0;
        while let Some(data) = self.front() {
            if data.len() > len_max {
                // Too large for any packet because the path's limit shrank: drop it rather than
                // block the queue.
                self.pop_front();
                lost += 1;
                continue;
            }
            let fits = |last| datagram_header_len(data.len(), last) + data.len() <= draft.bytes_left;
            // A DATAGRAM frame without a length field must be the last one in its packet. During
            // the handshake, other packets in the same datagram may take the remaining space even
            // then.
            if !fits(false) && (draft.body_len > 0 || !fits(true)) {
                return lost;
            }
            let data = self.pop_front().expect("the queue is not empty");
            let last = datagram_header_len(data.len(), false) + data.len() > draft.bytes_left;
            draft.put_head(plan, |out| emit_datagram_header(data.len(), last, out));
            plan.push_chunk_piece(&data, 0, data.len());
            draft.add_payload(data.len());
            draft.eliciting = true;
            streams.on_datagram_taken();
            frames.push(SentFrame::Datagram);
            if last {
                draft.bytes_left = 0;
                return lost;
            }
        }
        lost
    }

    /// Adds those that wait in `other`, as far as a queue of at most `bytes_max` bytes has space. Returns how
    /// many are dropped.
    pub(super) fn take_over(&mut self, other: &mut Self, bytes_max: u64) -> u64 {
        let mut lost = 0;
        let mut other = std::mem::take(other);
        while let Some(data) = other.pop_front() {
            if self.has_place(data.len(), bytes_max) {
                self.push(data);
            } else {
                lost += 1;
            }
        }
        lost
    }

    /// Whether a queue of at most `bytes_max` bytes has a place for a datagram of `len` bytes.
    pub(super) fn has_place(&self, len: usize, bytes_max: u64) -> bool {
        self.bytes() + len as u64 <= bytes_max && self.len() < DATAGRAMS_WAITING_MAX
    }

    /// A plan was made, with those taken since the last one.
    pub(super) fn on_planned(&mut self, now: Instant) {
        let Some(waiting) = &mut self.0 else { return };
        let taken = std::mem::take(&mut waiting.taken);
        if taken > 0 || waiting.bytes > 0 {
            waiting.window.on_planned(now, taken, waiting.bytes);
        }
    }

    /// Frees unused memory.
    pub(super) fn shrink(&mut self) {
        match &mut self.0 {
            Some(waiting) if !waiting.queue.is_empty() => waiting.queue.shrink_to_fit(),
            empty => *empty = None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_pass_others_keep_their_order_and_bytes_are_counted() {
        let mut waiting = WaitingDatagrams::new();
        let data = |number: u8| Bytes::from(vec![number; usize::from(number)]);
        (1..=3).for_each(|number| waiting.push(data(number)));
        (4..=5).for_each(|number| waiting.push_first(data(number), 2));
        assert_eq!((waiting.len(), waiting.bytes(), waiting.in_line_count()), (5, 15, 3));
        // There is no place before the others.
        waiting.push_first(data(7), 2);
        assert_eq!((waiting.len(), waiting.bytes(), waiting.in_line_count()), (6, 22, 3));
        assert_eq!(waiting.pop_front(), Some(data(4)));
        waiting.push_first(data(6), 2);
        waiting.push(data(8));
        assert_eq!(waiting.pop_front_if(|front| front.len() != 5), None);
        let mut left = Vec::new();
        while let Some(data) = waiting.pop_front() {
            left.push((data.len(), waiting.in_line_count()));
        }
        assert_eq!(left, [(5, 4), (6, 4), (1, 3), (2, 2), (3, 1), (7, 1), (8, 0)]);
        assert_eq!((waiting.len(), waiting.bytes(), waiting.in_line_count()), (0, 0, 0));
        waiting.shrink();
        assert!(waiting.0.is_none() && waiting.is_empty());
    }
}

//! The send half: unacknowledged data, windows, the retransmission timer.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use units::{Duration, Instant};

use crate::wire::MSS;

const RTO: Duration = Duration::from_millis(50);
const BACKOFF_MAX: u32 = 6;
const WINDOW_FIRST: u64 = 16 * MSS as u64;

/// Number of later segments after whose arrival a segment is lost.
const HELD_FOR_LOSS: u16 = 3;

/// The content of an acknowledgement, as offsets of the stream.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AckInfo {
    pub(crate) ack: u64,
    pub(crate) limit: u64,
    pub(crate) held: u16,
}

/// The bytes of a chunk that a segment carries.
#[derive(Debug, Clone)]
pub(crate) struct Payload {
    pub(crate) chunk: Arc<[u8]>,
    pub(crate) range: Range<usize>,
}

/// A segment to be sent.
pub(crate) struct Outgoing {
    pub(crate) offset: u64,
    pub(crate) payload: Option<Payload>,
    pub(crate) is_fin: bool,
}

impl Outgoing {
    pub(crate) fn len(&self) -> u64 {
        self.payload.as_ref().map_or(0, |payload| payload.range.len() as u64) + u64::from(self.is_fin)
    }
}

pub(crate) struct SendHalf {
    chunks: VecDeque<(u64, Arc<[u8]>)>,
    /// Offset below which all data is acknowledged.
    una: u64,
    next: u64,
    /// Offset below which all data was sent at least once.
    sent: u64,
    end: u64,
    /// Whether the stream ends at `end`. The end takes one number.
    has_fin: bool,
    limit: u64,
    window: u64,
    threshold: u64,
    resend: bool,
    /// Offset below which losses belong to the last loss that reduced the window.
    recover: u64,
    pub(crate) probe: bool,
    backoff: u32,
    pub(crate) deadline: Option<Instant>,
    pub(crate) retransmissions: u64,
}

impl SendHalf {
    pub(crate) fn new() -> Self {
        Self {
            chunks: VecDeque::new(),
            una: 0,
            next: 0,
            sent: 0,
            end: 0,
            has_fin: false,
            limit: 0,
            window: WINDOW_FIRST,
            threshold: u64::MAX,
            resend: false,
            recover: 0,
            probe: false,
            backoff: 0,
            deadline: None,
            retransmissions: 0,
        }
    }

    pub(crate) fn write(&mut self, chunk: Arc<[u8]>) {
        if !self.has_fin && !chunk.is_empty() {
            let offset = self.end;
            self.end += chunk.len() as u64;
            self.chunks.push_back((offset, chunk));
        }
    }

    pub(crate) fn finish(&mut self) {
        self.has_fin = true;
    }

    /// Returns the number of unacknowledged bytes.
    pub(crate) fn backlog(&self) -> u64 {
        self.end - self.una.min(self.end)
    }

    pub(crate) fn unsent(&self) -> u64 {
        self.total() - self.next
    }

    fn total(&self) -> u64 {
        self.end + u64::from(self.has_fin)
    }

    /// Returns whether the stream and its end are acknowledged.
    pub(crate) fn is_finished(&self) -> bool {
        self.has_fin && self.una == self.total()
    }

    /// Returns the number after the last one sent.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    pub(crate) fn may_send(&self) -> bool {
        self.resend || (self.next < self.total() && self.next < self.una + self.window && self.fits())
    }

    /// Returns whether the next segment ends within the window of the peer.
    fn fits(&self) -> bool {
        self.next + (self.total() - self.next).min(MSS as u64) <= self.limit
    }

    /// Arms the timer for a window probe if nothing is in flight and the window of the peer is
    /// closed.
    pub(crate) fn watch_window(&mut self, now: Instant) {
        if self.next < self.total() && !self.fits() && self.una == self.sent && self.deadline.is_none() {
            self.deadline = Some(now + RTO);
        }
    }

    pub(crate) fn poll(&mut self) -> Option<Outgoing> {
        if !self.may_send() {
            return None;
        }
        let is_resent = std::mem::take(&mut self.resend) && self.una < self.sent;
        let offset = if is_resent { self.una } else { self.next };
        if offset >= self.total() {
            return None;
        }
        self.retransmissions += u64::from(offset < self.sent);
        let outgoing = self.segment(offset);
        if !is_resent {
            self.next = offset + outgoing.len();
            self.sent = self.sent.max(self.next);
        }
        Some(outgoing)
    }

    fn segment(&self, offset: u64) -> Outgoing {
        let at = self.chunks.partition_point(|(start, _)| *start <= offset);
        let found = at.checked_sub(1).and_then(|at| self.chunks.get(at));
        let payload = found.and_then(|(start, chunk)| {
            let from = (offset - start) as usize;
            let to = chunk.len().min(from + MSS);
            (from < to).then(|| Payload { chunk: Arc::clone(chunk), range: from..to })
        });
        let is_fin = payload.is_none();
        Outgoing { offset, payload, is_fin }
    }

    /// Records that a segment is being sent.
    pub(crate) fn on_emitted(&mut self, now: Instant) {
        if self.una < self.sent && self.deadline.is_none() {
            self.deadline = Some(now + RTO * (1 << self.backoff));
        }
    }

    /// Records that a segment from this offset on will not be sent.
    pub(crate) fn on_not_emitted(&mut self, offset: u64) {
        self.next = self.next.min(offset.max(self.una));
    }

    pub(crate) fn on_ack(&mut self, now: Instant, info: AckInfo) {
        if info.ack > self.sent {
            // It acknowledges data that was never sent, so it is forged.
            return;
        }
        self.limit = self.limit.max(info.limit);
        if info.ack > self.una {
            let acked = info.ack - self.una;
            self.una = info.ack;
            self.next = self.next.max(self.una);
            while self.chunks.front().is_some_and(|(start, chunk)| start + chunk.len() as u64 <= info.ack) {
                self.chunks.pop_front();
            }
            let mss = MSS as u64;
            self.window += if self.window < self.threshold { acked } else { mss * mss / self.window };
            self.backoff = 0;
            self.deadline = (self.una < self.sent).then(|| now + RTO);
            self.resend |= self.una < self.recover && info.held > 0;
        }
        if info.held >= HELD_FOR_LOSS && self.una >= self.recover && self.una < self.sent {
            self.shrink();
            self.window = self.threshold;
            self.resend = true;
        }
    }

    fn shrink(&mut self) {
        self.recover = self.sent;
        self.threshold = (self.window / 2).max(4 * MSS as u64);
    }

    pub(crate) fn on_timeout(&mut self, now: Instant) {
        if self.deadline.is_none_or(|at| at > now) {
            return;
        }
        self.backoff = (self.backoff + 1).min(BACKOFF_MAX);
        self.deadline = Some(now + RTO * (1 << self.backoff));
        if self.una < self.sent {
            self.shrink();
            self.window = 2 * MSS as u64;
            self.next = self.una;
        } else if self.next < self.total() {
            self.probe = true;
        } else {
            self.deadline = None;
        }
    }
}

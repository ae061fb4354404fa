//! A line that follows a trace: each opportunity carries 1500 bytes that were offered before it.
//!
//! ```text
//!   opportunities     |    |    ||        |           each 1500 bytes, at its millisecond
//!   packets           a bc dddd          (unused)
//!
//!   b and c share an opportunity, d takes two, the last one is unused
//! ```
//!
//! The unused part of an opportunity is lost, as in mahimahi. A packet offered in the same
//! nanosecond as an opportunity is too late for it, also as in mahimahi.

use units::{Duration, Instant};

use crate::trace::{OPPORTUNITY_BYTES, Trace};

#[derive(Clone, Debug)]
pub(super) struct ByTrace {
    trace: Trace,
    /// The first unused opportunity.
    next: u64,
    /// Remaining bytes of the previous opportunity, which is at `free_at` if there are any.
    left_bytes: u64,
    /// Departure time of the last packet.
    free_at: Instant,
    /// Remaining bytes of the packet in transmission, if the line stopped during its transmission
    /// under this trace.
    held_bytes: Option<u64>,
    /// Whether the packet in transmission departs by this trace; it may have started under an
    /// earlier capacity.
    carries: bool,
}

impl ByTrace {
    pub(super) fn new(trace: Trace, free_at: Instant) -> Self {
        let next = trace.first_at_or_after(free_at);
        Self { trace, next, left_bytes: 0, free_at, held_bytes: None, carries: false }
    }

    pub(super) const fn free_at(&self) -> Instant {
        self.free_at
    }

    pub(super) fn ready_at(&self, since: Instant) -> Instant {
        if self.left_bytes > 0 && since < self.free_at {
            return self.free_at;
        }
        let next_at = self.trace.time_of(self.next);
        if since < next_at {
            return next_at;
        }
        self.trace.time_of(self.trace.first_at_or_after(since + Duration::from_nanos(1)))
    }

    /// Starts a packet at `at`, the result of [`ready_at`](Self::ready_at): a packet that starts at
    /// `free_at` shares an opportunity.
    pub(super) fn start(&mut self, at: Instant, line_bytes: u64) {
        self.carries = true;
        // Even an empty packet must wait for an opportunity.
        let line_bytes = line_bytes.max(1);
        if at > self.free_at {
            self.left_bytes = 0;
        }
        if line_bytes <= self.left_bytes {
            self.left_bytes -= line_bytes;
            return;
        }
        let rest = line_bytes - self.left_bytes;
        self.skip_to(at);
        self.carry(rest);
    }

    pub(super) fn stop(&mut self, at: Instant, is_busy: bool) {
        let first = self.trace.first_at_or_after(at);
        if is_busy && self.carries {
            // The packet has not departed, so its last opportunity is in the future.
            let unused = self.next.saturating_sub(first);
            self.held_bytes = Some(unused.saturating_mul(OPPORTUNITY_BYTES).saturating_sub(self.left_bytes));
            self.next = first;
        }
        self.left_bytes = 0;
    }

    /// Resumes the line at `at` after a stop of duration `still`.
    pub(super) fn resume(&mut self, at: Instant, still: Duration, is_busy: bool) {
        match self.held_bytes.take() {
            Some(held_bytes) => {
                self.skip_to(at);
                self.carry(held_bytes);
            }
            None => {
                self.free_at = if is_busy { self.free_at + still } else { self.free_at.max(at) };
                self.skip_to(self.free_at);
            }
        }
    }

    /// Skips the opportunities before `at`.
    fn skip_to(&mut self, at: Instant) {
        if self.trace.time_of(self.next) < at {
            self.next = self.trace.first_at_or_after(at);
        }
    }

    /// Assigns the next `bytes` bytes, at least one, to the packet in transmission.
    fn carry(&mut self, bytes: u64) {
        let opportunities = bytes.div_ceil(OPPORTUNITY_BYTES);
        self.next = self.next.saturating_add(opportunities);
        self.left_bytes = opportunities.saturating_mul(OPPORTUNITY_BYTES).saturating_sub(bytes);
        self.free_at = self.trace.time_of(self.next - 1);
    }
}

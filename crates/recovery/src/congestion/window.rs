//! State shared by loss-based controllers: the window, its bounds, the slow-start threshold, the
//! recovery period.

use units::Instant;

use super::event::{AckEvent, LossEvent};

/// The largest window: 256 GiB, twenty seconds at 100 Gb/s. It bounds the arithmetic, not any real
/// path.
pub const WINDOW_MAX: u64 = 1 << 38;

/// The initial window in segments (RFC 9002, section 7.2).
const INITIAL_SEGMENTS: u64 = 10;
/// The limit of the initial window in bytes, unless two segments are more (RFC 9002, section 7.2).
const INITIAL_BYTES_MAX: u64 = 14_720;
/// `kMinimumWindow` is two segments (RFC 9002, section 7.2).
const MINIMUM_SEGMENTS: u64 = 2;

/// Maximum segment size; sizes are clamped to 1..=this. No IP packet is larger, and a size of zero
/// would stop all growth.
const SEGMENT_MAX: u64 = 65_535;

/// Returns the initial window for packets of at most `segment_size` bytes (RFC 9002, section 7.2).
pub fn initial_window(segment_size: u64) -> u64 {
    let segment = clamp_segment(segment_size);
    (INITIAL_SEGMENTS * segment).min(INITIAL_BYTES_MAX.max(2 * segment))
}

/// Returns the minimum window (RFC 9002, section 7.2).
pub fn minimum_window(segment_size: u64) -> u64 {
    MINIMUM_SEGMENTS * clamp_segment(segment_size)
}

pub(super) fn clamp_segment(bytes: u64) -> u64 {
    bytes.clamp(1, SEGMENT_MAX)
}

/// A congestion window. `minimum_window(segment) <= bytes <= WINDOW_MAX` holds after every call.
#[derive(Debug, Clone)]
pub(super) struct Window {
    bytes: u64,
    segment: u64,
    /// The slow-start threshold; `None` means infinite, the value before the first congestion
    /// event.
    threshold: Option<u64>,
    /// Time of the last reduction. Packets sent at or before this time belong to that event (RFC
    /// 9002, section 7.3.2).
    recovery_from: Option<Instant>,
    /// Whether a reduction was not yet followed by the acknowledgement of a packet sent after it.
    in_recovery: bool,
    /// Whether no packet was acknowledged or lost yet, so that a new segment size changes the
    /// initial window.
    pristine: bool,
}

/// The reductions that a loss or a mark requires: none, one or both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reduction {
    /// Whether this is a new congestion event: reduce the window by the controller's factor and set
    /// the threshold.
    pub(super) multiply: bool,
    /// Whether persistent congestion was established: set the window to the minimum and slow-start
    /// towards the threshold.
    pub(super) collapse: bool,
}

impl Window {
    pub(super) fn new(segment_size: u64) -> Self {
        Self {
            bytes: initial_window(segment_size),
            segment: clamp_segment(segment_size),
            threshold: None,
            recovery_from: None,
            in_recovery: false,
            pristine: true,
        }
    }

    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) const fn segment(&self) -> u64 {
        self.segment
    }

    pub(super) const fn threshold(&self) -> Option<u64> {
        self.threshold
    }

    pub(super) fn in_slow_start(&self) -> bool {
        self.threshold.is_none_or(|threshold| self.bytes < threshold)
    }

    /// Returns true if a packet sent at `sent_at` belongs to the last congestion event.
    pub(super) fn predates_reduction(&self, sent_at: Instant) -> bool {
        self.recovery_from.is_some_and(|from| sent_at <= from)
    }

    /// Returns the time of the last reduction, unless it was undone or ended by a collapse.
    pub(super) const fn reduced_at(&self) -> Option<Instant> {
        self.recovery_from
    }

    pub(super) fn set_segment(&mut self, bytes: u64) {
        self.segment = clamp_segment(bytes);
        // RFC 9002, section 7.2: recalculate the initial window with the new size.
        let kept = if self.pristine { initial_window(bytes) } else { self.bytes };
        self.set(kept);
    }

    /// Sets the window to `bytes`, within the bounds.
    pub(super) fn set(&mut self, bytes: u64) {
        self.bytes = bytes.clamp(minimum_window(self.segment), WINDOW_MAX);
    }

    pub(super) fn grow_by(&mut self, bytes: u64) {
        self.set(self.bytes.saturating_add(bytes));
    }

    pub(super) fn set_threshold(&mut self, bytes: Option<u64>) {
        self.threshold = bytes.map(|bytes| bytes.max(minimum_window(self.segment)));
    }

    /// Processes an acknowledgement and returns the number of bytes by which the window may grow:
    /// none in recovery (RFC 9002, section 7.3.2), none while the window was not fully used
    /// (section 7.8), and at most one window, so that one event counts as at most one round.
    pub(super) fn creditable(&mut self, event: &AckEvent) -> u64 {
        self.pristine = false;
        if self.predates_reduction(event.newest_sent_at) {
            return 0;
        }
        self.in_recovery = false;
        if event.app_limited { 0 } else { event.bytes.min(self.bytes) }
    }

    /// Grows by the acknowledged bytes, up to the threshold (RFC 9002, section 7.3.1).
    pub(super) fn slow_start(&mut self, bytes: u64) {
        let below_threshold = self.threshold.map_or(u64::MAX, |threshold| threshold.saturating_sub(self.bytes));
        self.grow_by(bytes.min(below_threshold));
    }

    /// Determines the reductions for a loss or a mark, and begins or ends the recovery period.
    pub(super) fn on_loss(&mut self, event: &LossEvent) -> Reduction {
        self.pristine = false;
        let multiply = !self.predates_reduction(event.newest_lost_sent_at);
        if event.persistent {
            // RFC 9002, appendix B.8: the recovery period ends, so that slow start begins at once.
            self.cancel_recovery();
        } else if multiply {
            self.recovery_from = Some(event.now);
            self.in_recovery = true;
        }
        Reduction { multiply, collapse: event.persistent }
    }

    /// Ends the recovery period because its losses were spurious.
    pub(super) fn cancel_recovery(&mut self) {
        self.recovery_from = None;
        self.in_recovery = false;
    }

    /// Returns the phase for a snapshot of a controller without phases of its own.
    pub(super) fn phase(&self) -> &'static str {
        if self.in_recovery {
            "recovery"
        } else if self.in_slow_start() {
            "slow_start"
        } else {
            "congestion_avoidance"
        }
    }
}

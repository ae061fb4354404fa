//! The timers of the send half.
//!
//! | timer | sends |
//! |---|---|
//! | [`Purpose::Retransmit`] | everything again, without an acknowledgement (RFC 6298) |
//! | [`Purpose::Probe`] | a tail loss probe: its acknowledgement shows losses (RFC 8985, section 7) |
//! | [`Purpose::Window`] | a byte beyond a closed window, or data within a silly one (RFC 9293, section 3.8.6) |
//! | reordering | data lost because later data have arrived (RFC 8985, section 6.2) |
//! | release | data held back by the pacer |

use units::{Duration, Instant};

/// The longest retransmission timeout. RFC 6298, section 2.5, permits a limit of at least a minute.
const RTO_MAX: Duration = Duration::from_secs(60);

/// Number of doublings after which every timeout has reached the limit.
const DOUBLINGS_MAX: u32 = 32;

/// Purpose of the timer. Only one is active at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    Retransmit,
    Probe,
    Window,
}

/// An unanswered tail loss probe.
#[derive(Debug, Clone, Copy)]
pub(super) struct Probe {
    pub(super) end: u64,
    pub(super) sent_at: Instant,
    /// Whether it repeated the last segment, because there were no new data.
    pub(super) is_repetition: bool,
}

#[derive(Debug, Default)]
pub(super) struct Timers {
    pub(super) timer: Option<(Purpose, Instant)>,
    pub(super) reordering: Option<Instant>,
    /// Time at which the pacer permits the next segment.
    pub(super) release: Option<Instant>,
    /// Doublings of the timeout (RFC 6298, section 5.5).
    pub(super) backoff: u32,
    /// Consecutive unanswered timeouts.
    pub(super) unanswered: u32,
    /// The probe that waits for its answer.
    pub(super) probe: Option<Box<Probe>>,
    /// Whether a tail loss probe is due, regardless of the congestion window.
    pub(super) is_probe_due: bool,
    /// Whether a byte beyond the window, or the data that a silly window permits, are due.
    pub(super) is_window_probe_due: bool,
    /// Last bytes sent beyond the window.
    pub(super) window_probe: Option<Box<WindowProbe>>,
}

/// A byte sent beyond a closed window, perhaps several times.
#[derive(Debug, Clone, Copy)]
pub(super) struct WindowProbe {
    pub(super) position: u64,
    pub(super) sent_at: Instant,
    pub(super) is_repeated: bool,
}

impl Timers {
    /// Doubles the next timeout after one without an answer.
    pub(super) fn back_off(&mut self) {
        (self.backoff, self.unanswered) = (self.backoff + 1, self.unanswered + 1);
    }

    pub(super) fn start(&mut self, purpose: Purpose, at: Instant) {
        self.timer = Some((purpose, at));
    }

    pub(super) fn stop(&mut self) {
        self.timer = None;
    }

    pub(super) fn set_reordering(&mut self, at: Option<Instant>) {
        self.reordering = at;
    }

    pub(super) fn purpose(&self) -> Option<Purpose> {
        self.timer.map(|(purpose, _)| purpose)
    }

    pub(super) fn take_expired(&mut self, now: Instant) -> Option<Purpose> {
        let (purpose, _) = self.timer.filter(|(_, at)| *at <= now)?;
        self.timer = None;
        Some(purpose)
    }

    /// Returns the timeout after backoff (RFC 6298, section 5.5).
    pub(super) fn backed_off(&self, rto: Duration) -> Duration {
        rto.saturating_mul(1 << self.backoff.min(DOUBLINGS_MAX)).min(RTO_MAX.max(rto))
    }
}

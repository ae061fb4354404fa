//! The timers of the send half.
//!
//! | timer | sends |
//! |---|---|
//! | [`Purpose::Retransmit`] | everything again, if nothing was acknowledged (RFC 6298) |
//! | [`Purpose::Probe`] | a tail loss probe: an acknowledgement shows what is missing (RFC 8985, section 7) |
//! | [`Purpose::Window`] | a byte beyond a closed window, or what a silly one permits (RFC 9293, section 3.8.6) |
//! | reordering | what is lost because something later has arrived (RFC 8985, section 6.2) |
//! | release | what the pacer holds back |

use units::{Duration, Instant};

/// The longest retransmission timeout. RFC 6298, section 2.5, permits a limit of at least a minute.
const RTO_MAX: Duration = Duration::from_secs(60);

/// Doublings after which every timeout has reached the limit.
const DOUBLINGS_MAX: u32 = 32;

/// What happens when the timer expires. Only one of these is due at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    Retransmit,
    Probe,
    Window,
}

/// A tail loss probe that is not answered.
#[derive(Debug, Clone, Copy)]
pub(super) struct Probe {
    pub(super) end: u64,
    pub(super) sent_at: Instant,
    /// It repeated the last segment: there were no new data.
    pub(super) is_repetition: bool,
}

#[derive(Debug, Default)]
pub(super) struct Timers {
    pub(super) timer: Option<(Purpose, Instant)>,
    pub(super) reordering: Option<Instant>,
    /// The pacer permits the next segment then.
    pub(super) release: Option<Instant>,
    /// Doublings of the timeout (RFC 6298, section 5.5).
    pub(super) backoff: u32,
    /// Timeouts in a row without an answer.
    pub(super) unanswered: u32,
    /// The probe that waits for its answer.
    pub(super) probe: Option<Box<Probe>>,
    /// A tail loss probe is to be sent, whatever the congestion window says.
    pub(super) is_probe_due: bool,
    /// A byte beyond the window, or what a silly window permits, is to be sent.
    pub(super) is_window_probe_due: bool,
    /// The last bytes that were sent beyond the window.
    pub(super) window_probe: Option<Box<WindowProbe>>,
}

/// A byte that was sent beyond a closed window, perhaps several times.
#[derive(Debug, Clone, Copy)]
pub(super) struct WindowProbe {
    pub(super) position: u64,
    pub(super) sent_at: Instant,
    pub(super) is_repeated: bool,
}

impl Timers {
    /// Nothing was answered in time: the next timeout is longer.
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

    /// RFC 6298, section 5.5.
    pub(super) fn backed_off(&self, rto: Duration) -> Duration {
        rto.saturating_mul(1 << self.backoff.min(DOUBLINGS_MAX)).min(RTO_MAX.max(rto))
    }
}

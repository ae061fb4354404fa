//! The timers of the send half.
//!
//! | timer | sends |
//! |---|---|
//! | [`Purpose::Retransmit`] | everything again, if nothing was acknowledged (RFC 6298) |
//! | [`Purpose::Probe`] | a tail loss probe: an acknowledgement shows what is missing (RFC 8985, section 7) |
//! | [`Purpose::ZeroWindow`] | a byte beyond a closed window (RFC 9293, section 3.8.6.1) |
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
    ZeroWindow,
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
    /// Timeouts in a row.
    pub(super) backoff: u32,
    /// The probe that waits for its answer.
    pub(super) probe: Option<Probe>,
    /// A tail loss probe is to be sent, whatever the congestion window says.
    pub(super) is_probe_due: bool,
    /// A byte beyond the window is to be sent.
    pub(super) is_zero_window_probe_due: bool,
    /// The position of the last such byte, and when it was sent.
    pub(super) zero_window_probe: Option<(u64, Instant)>,
}

impl Timers {
    pub(super) const fn backoff(&self) -> u32 {
        self.backoff
    }

    pub(super) fn reset_backoff(&mut self) {
        self.backoff = 0;
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

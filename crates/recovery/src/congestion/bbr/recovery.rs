//! State saved for restoration: after a loss episode, after a round-trip probe, and after spurious
//! losses (sections 5.5.11 and 5.6.4.4).
//!
//! An episode is a recovery period of RFC 9002, section 7.3.2. It begins with the loss of a packet
//! sent after the beginning of the last episode, and ends when a packet sent after its own
//! beginning is acknowledged.

use units::{Instant, Rate};

use super::Bbr;
use super::bounds::Bounds;
use super::state::BbrState;
use crate::congestion::event::{LossEvent, SpuriousLossEvent};

/// The state before an episode, kept until the losses can no longer turn out to be spurious.
#[derive(Debug, Clone)]
struct Undo {
    /// Bytes lost in the episode and not acknowledged since.
    lost_bytes: u64,
    /// Time before the episode: packets sent at or before it belong to an earlier episode.
    after: Option<Instant>,
    bounds: Bounds,
    /// The state that the losses ended: Startup or Up.
    exited: Option<BbrState>,
}

/// Loss episodes.
#[derive(Debug, Clone, Default)]
pub(super) struct Recovery {
    /// Beginning of the last episode.
    since: Option<Instant>,
    active: bool,
    /// Whether the window is restored at the end of the episode. False after an outage: see
    /// [`Bbr::on_persistent`].
    restores: bool,
    /// The last window that was reduced neither by losses nor by a probe.
    saved_window: u64,
    undo: Option<Undo>,
}

impl Recovery {
    /// Implements `SaveCwnd` (section 5.6.4.4).
    pub(super) fn save_window(&mut self, window: u64, state: BbrState) {
        let cut = self.active || state == BbrState::ProbeRtt;
        self.saved_window = if cut { self.saved_window.max(window) } else { window };
    }

    /// Implements `RestoreCwnd`: returns the window to continue with.
    pub(super) fn restored(&self, window: u64) -> u64 {
        window.max(self.saved_window)
    }

    /// Records that the losses of this episode ended `state`.
    pub(super) fn note_exited(&mut self, state: BbrState) {
        if let Some(undo) = &mut self.undo {
            undo.exited = Some(state);
        }
    }

    /// Processes an acknowledgement of a packet sent at `sent_at`. Returns true if it ends an
    /// episode and the window is to be restored.
    pub(super) fn on_ack(&mut self, sent_at: Instant) -> bool {
        if !self.active || self.since.is_some_and(|since| sent_at <= since) {
            return false;
        }
        self.active = false;
        self.restores
    }

    /// Returns true if this loss begins an episode.
    fn begins(&self, event: &LossEvent) -> bool {
        self.since.is_none_or(|since| event.newest_lost_sent_at > since)
    }

    fn on_loss(&mut self, event: &LossEvent, begins: bool, bounds: &Bounds) {
        if begins {
            let undo = Undo { lost_bytes: event.bytes, after: self.since, bounds: bounds.clone(), exited: None };
            self.undo = Some(undo);
            (self.since, self.active, self.restores) = (Some(event.now), true, true);
        } else if let Some(undo) = &mut self.undo {
            undo.lost_bytes = undo.lost_bytes.saturating_add(event.bytes);
        }
        if event.ecn {
            // An ECN mark is never spurious.
            self.undo = None;
        }
        self.restores &= !event.persistent;
    }

    /// Returns the state to restore, once everything lost in the episode was acknowledged.
    fn on_spurious(&mut self, event: &SpuriousLossEvent) -> Option<Undo> {
        let undo = self.undo.as_mut()?;
        let of_this_episode = self.since.is_some_and(|since| event.newest_sent_at <= since)
            && undo.after.is_none_or(|after| event.newest_sent_at > after);
        if !of_this_episode {
            return None;
        }
        undo.lost_bytes = undo.lost_bytes.saturating_sub(event.bytes);
        if undo.lost_bytes > 0 { None } else { self.undo.take() }
    }
}

impl Bbr {
    /// Implements `OnEnterFastRecovery` and `SaveStateUponLoss`.
    pub(super) fn note_episode(&mut self, event: &LossEvent) {
        let begins = self.recovery.begins(event);
        if begins {
            self.recovery.save_window(self.window, self.state);
        }
        self.recovery.on_loss(event, begins, &self.bounds);
    }

    /// Implements `OnEnterRTO` (section 5.6.4.4): the window becomes the inflight plus one segment.
    /// The draft restores the old window once the losses are repaired. The transport does not
    /// report that time, and the path may have changed during the outage, so here the window grows
    /// by the acknowledged bytes.
    pub(super) fn on_persistent(&mut self, in_flight: u64) {
        self.set_window(in_flight.saturating_add(self.segment).min(self.window));
    }

    /// Implements `HandleSpuriousLossDetection` (section 5.5.11.2).
    pub(super) fn undo_losses(&mut self, event: &SpuriousLossEvent) {
        let Some(undo) = self.recovery.on_spurious(event) else { return };
        self.set_window(self.recovery.restored(self.window));
        self.latest.clear_losses();
        self.full_pipe.reset(Rate::ZERO);
        self.bounds.rate_shortterm = self.bounds.rate_shortterm.max(undo.bounds.rate_shortterm);
        self.bounds.inflight_shortterm = self.bounds.inflight_shortterm.max(undo.bounds.inflight_shortterm);
        self.bounds.inflight_longterm = self.bounds.inflight_longterm.max(undo.bounds.inflight_longterm);
        match undo.exited {
            Some(BbrState::Startup) if self.state != BbrState::Startup => {
                self.full_pipe.set_reached(false);
                if self.state != BbrState::ProbeRtt {
                    self.enter_startup();
                }
            }
            Some(BbrState::Up) if self.state != BbrState::Up && self.state != BbrState::ProbeRtt => self.start_refill(),
            _ => {}
        }
    }
}

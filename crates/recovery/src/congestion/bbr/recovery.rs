//! What to go back to: after an episode of losses, after a probe, and after losses that were none (sections 5.5.11 and
//! 5.6.4.4).
//!
//! An episode is a recovery period of RFC 9002, section 7.3.2: it begins with the loss of a packet sent after the last one
//! began, and ends when a packet sent after its beginning is acknowledged.

use units::{Instant, Rate};

use super::Bbr;
use super::bounds::Bounds;
use super::state::State;
use crate::congestion::{LossEvent, SpuriousLossEvent};

/// What an episode found, until it can no longer turn out to be spurious.
#[derive(Debug, Clone)]
struct Undo {
    /// Bytes lost in it that have not been acknowledged after all.
    lost_bytes: u64,
    /// Packets sent at this moment or before belong to an earlier episode.
    after: Option<Instant>,
    bounds: Bounds,
    /// The losses made the flow leave this state: Startup or Up.
    left: Option<State>,
}

/// Episodes of loss.
#[derive(Debug, Clone, Default)]
pub(super) struct Recovery {
    /// When the last one began.
    since: Option<Instant>,
    active: bool,
    /// Its end brings the window back. Not after an outage: see [`Bbr::on_persistent`].
    restores: bool,
    /// The last window that neither losses nor a probe had cut.
    good_window: u64,
    undo: Option<Undo>,
}

impl Recovery {
    /// `SaveCwnd` (section 5.6.4.4).
    pub(super) fn save_window(&mut self, window: u64, state: State) {
        let cut = self.active || state == State::ProbeRtt;
        self.good_window = if cut { self.good_window.max(window) } else { window };
    }

    /// `RestoreCwnd`: the window to go on with.
    pub(super) fn restored(&self, window: u64) -> u64 {
        window.max(self.good_window)
    }

    /// The losses of this episode ended `state`.
    pub(super) fn note_left(&mut self, state: State) {
        if let Some(undo) = &mut self.undo {
            undo.left = Some(state);
        }
    }

    /// An acknowledgement of a packet sent at `sent_at`. True if it ends an episode and the window comes back.
    pub(super) fn on_ack(&mut self, sent_at: Instant) -> bool {
        if !self.active || self.since.is_some_and(|since| sent_at <= since) {
            return false;
        }
        self.active = false;
        self.restores
    }

    /// True if an episode begins with this loss.
    fn begins(&self, event: &LossEvent) -> bool {
        self.since.is_none_or(|since| event.newest_lost_sent_at > since)
    }

    fn on_loss(&mut self, event: &LossEvent, begins: bool, bounds: &Bounds) {
        if begins {
            let undo = Undo { lost_bytes: event.bytes, after: self.since, bounds: bounds.clone(), left: None };
            self.undo = Some(undo);
            (self.since, self.active, self.restores) = (Some(event.now), true, true);
        } else if let Some(undo) = &mut self.undo {
            undo.lost_bytes = undo.lost_bytes.saturating_add(event.bytes);
        }
        if event.ecn {
            // A mark is never spurious.
            self.undo = None;
        }
        self.restores &= !event.persistent;
    }

    /// What to undo, once everything lost in the episode has turned up.
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
    /// `OnEnterFastRecovery` and `SaveStateUponLoss`.
    pub(super) fn note_episode(&mut self, event: &LossEvent) {
        let begins = self.recovery.begins(event);
        if begins {
            self.recovery.save_window(self.window, self.state);
        }
        self.recovery.on_loss(event, begins, &self.bounds);
    }

    /// `OnEnterRTO` (section 5.6.4.4): what is in flight and one segment. The draft brings the old window back once the
    /// losses are repaired; a transport does not say when that is, and a path that was gone may have come back as another,
    /// so from here the window grows by what is acknowledged.
    pub(super) fn on_persistent(&mut self, in_flight: u64) {
        self.set_window(in_flight.saturating_add(self.segment).min(self.window));
    }

    /// `HandleSpuriousLossDetection` (section 5.5.11.2).
    pub(super) fn undo_losses(&mut self, event: &SpuriousLossEvent) {
        let Some(undo) = self.recovery.on_spurious(event) else { return };
        self.set_window(self.recovery.restored(self.window));
        self.latest.forgive();
        self.full_pipe.reset(Rate::ZERO);
        self.bounds.rate_shortterm = self.bounds.rate_shortterm.max(undo.bounds.rate_shortterm);
        self.bounds.inflight_shortterm = self.bounds.inflight_shortterm.max(undo.bounds.inflight_shortterm);
        self.bounds.inflight_longterm = self.bounds.inflight_longterm.max(undo.bounds.inflight_longterm);
        match undo.left {
            Some(State::Startup) if self.state != State::Startup => {
                self.full_pipe.set_reached(false);
                if self.state != State::ProbeRtt {
                    self.enter_startup();
                }
            }
            Some(State::Up) if self.state != State::Up && self.state != State::ProbeRtt => self.start_refill(),
            _ => {}
        }
    }
}

//! A path whose peer address changes: a NAT rebinding, or a client that migrated (RFC 9000, section
//! 9.3; multipath draft-21, section 3.1.2). Only servers follow.

use recovery::RttEstimator;
use units::{Duration, Instant};
use wire::quic::PathId;

use super::SendHalf;
use super::validation::FIRST_INTERVAL;
use crate::addresses::Addresses;
use crate::exchange::{Exchange, ToControl};
use crate::spaces::DATA;
use crate::stats::PathState;

/// The shortest time before a challenge to a new address is repeated: a delay that long is no loss.
const INTERVAL_MIN: Duration = Duration::from_millis(50);

/// Unanswered challenges to a new address after which the path returns to its former address, once they
/// are a second apart: the sender of the packet may have spoofed the new one (RFC 9000, section 9.3.2).
const UNANSWERED_BEFORE_RETURN: u8 = 3;

impl SendHalf {
    /// Packets of path `id` arrive from another address, `bytes` so far. Until the new address is
    /// validated, the path is limited by anti-amplification, and other paths carry the data if
    /// there are any.
    pub(super) fn on_moved(
        &mut self,
        now: Instant,
        id: PathId,
        addresses: Addresses,
        bytes: u64,
        exchange: &mut Exchange,
    ) {
        let Some(at) = self.path_index(id).filter(|at| self.paths[*at].is_open()) else { return };
        let others = self.paths.iter().any(|other| other.id != id && other.is_active());
        let path = &mut self.paths[at];
        tracing::debug!(path = %id, from = %path.addresses.remote, to = %addresses.remote, "a path moves");
        if path.addresses.remote.ip() != addresses.remote.ip() {
            // Nothing is known of the route to the new address. If only the port differs, a NAT
            // most likely changed its mapping of the same route (section 9.4).
            path.congestion = path.congestion.fresh();
            path.rtt = RttEstimator::new(self.config.initial_rtt);
            path.first_rtt_sample_at = None;
            path.scavenger = None;
            self.restart_mtu_search(at);
            // Acknowledgements and losses of packets on the old route say nothing about the new one.
            self.forget_sent(at, 0);
            self.spaces[DATA + at].loss_time = None;
        }
        self.restart_ecn(at);
        let path = &mut self.paths[at];
        path.backoff.reset();
        let (known_received, known_sent, challenges) = self.replace_off_path(now, at, &addresses, exchange);
        let path = &mut self.paths[at];
        if path.former.as_ref().is_some_and(|former| former.is_same_route(&addresses)) {
            // The path returned to its former address, which is already validated.
            path.addresses = addresses;
            path.former = None;
            path.set_validated();
            path.validation.stop();
            if path.state == PathState::Validating {
                path.state = PathState::Silent;
            }
            return self.on_path_alive(now, at, exchange);
        }
        if path.amplification_budget() == u64::MAX {
            path.former = Some(Box::new(path.addresses));
        }
        path.addresses = addresses;
        path.set_unvalidated(known_received.saturating_add(bytes), known_sent);
        // A response to a challenge that was sent to the former address does not validate the new
        // one. One to a challenge that was sent to the new address does, however late it comes: the
        // packet that moves the path may carry it (RFC 9000, section 8.2.3).
        path.validation.stop();
        path.validation.adopt_challenges(challenges);
        // A NAT that changed the port has not changed the round trip.
        path.validation.start(now, (path.rtt.pto_base() * 3).clamp(INTERVAL_MIN, FIRST_INTERVAL));
        if others && path.state != PathState::Validating {
            path.state = PathState::Validating;
            exchange.to_control.push_back(ToControl::PathState { path: id, state: PathState::Validating });
            self.move_content(at, u64::MAX);
        }
    }

    /// The former address has not sent again and the new one does not respond: return to the
    /// former.
    pub(super) fn maybe_move_back(&mut self, now: Instant, at: usize, exchange: &mut Exchange) {
        let path = &mut self.paths[at];
        if path.validation.unanswered() < UNANSWERED_BEFORE_RETURN || !path.validation.is_slow() {
            return;
        }
        let Some(former) = path.former.take() else { return };
        tracing::debug!(path = %path.id, to = %former.remote, "a path moves back");
        self.return_off_path(at, &former, exchange);
        let path = &mut self.paths[at];
        path.set_validated();
        path.validation.start(now, FIRST_INTERVAL);
        self.restart_ecn(at);
    }
}

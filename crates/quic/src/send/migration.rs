//! A path whose other end moves: an address translator on the way has forgotten it, or the client went elsewhere (RFC 9000,
//! section 9.3; multipath draft-21, section 3.1.2). Only servers follow.

use recovery::RttEstimator;
use units::Instant;
use wire::quic::PathId;

use super::SendHalf;
use super::path::Addresses;
use super::validation::FIRST_ASK_AGAIN;
use crate::exchange::{Exchange, ToControl};
use crate::stats::PathState;

/// Questions to a new address without an answer after which the path goes back to where it was: who moved it may have
/// invented the address (section 9.3.2).
const IN_VAIN_BACK: u8 = 3;

impl SendHalf {
    /// Packets of path `id` come from elsewhere, so many bytes so far. Until the new address has answered, it gets little, and
    /// others carry the data if there are any.
    pub(super) fn on_moved(
        &mut self,
        now: Instant,
        id: PathId,
        addresses: Addresses,
        bytes: u64,
        exchange: &mut Exchange,
    ) {
        let Some(at) = self.place_of(id).filter(|at| self.paths[*at].is_open()) else { return };
        let others = self.paths.iter().any(|other| other.id != id && other.is_active());
        let path = &mut self.paths[at];
        tracing::debug!(path = %id, from = %path.addresses.remote, to = %addresses.remote, "a path moves");
        if path.addresses.remote.ip() != addresses.remote.ip() {
            // Nothing is known of the way there. Another port is most likely another mapping of the same way (section 9.4).
            path.congestion = path.congestion.fresh();
            path.rtt = RttEstimator::new(self.config.initial_rtt);
            path.first_rtt_sample_at = None;
            path.short_queue = None;
        }
        path.backoff.reset();
        if path.former.as_ref().is_some_and(|former| former.is_same_route(&addresses)) {
            // It was here before and has proved itself, so nothing is to be asked.
            path.addresses = addresses;
            path.former = None;
            path.set_validated();
            path.validation.stop();
            if path.state == PathState::Validating {
                path.state = PathState::Silent;
            }
            return self.on_sign_of_life(now, at, exchange);
        }
        if path.amplification_room() == u64::MAX {
            path.former = Some(Box::new(path.addresses));
        }
        path.addresses = addresses;
        path.set_unvalidated(bytes);
        // An answer to what the former address was asked proves nothing about this one.
        path.validation.stop();
        path.validation.start(now, FIRST_ASK_AGAIN);
        if others && path.state != PathState::Validating {
            path.state = PathState::Validating;
            exchange.to_control.push_back(ToControl::PathState { path: id, state: PathState::Validating });
            self.move_content(at, u64::MAX);
        }
    }

    /// The place where a path was before has not been heard again, and the new one does not answer: back.
    pub(super) fn maybe_move_back(&mut self, now: Instant, at: usize) {
        let path = &mut self.paths[at];
        if path.validation.in_vain() < IN_VAIN_BACK {
            return;
        }
        let Some(former) = path.former.take() else { return };
        tracing::debug!(path = %path.id, to = %former.remote, "a path moves back");
        path.addresses = *former;
        path.set_validated();
        path.validation.start(now, FIRST_ASK_AGAIN);
    }
}

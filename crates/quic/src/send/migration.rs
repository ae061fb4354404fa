//! A path whose peer address changes: a NAT rebinding, or a client that migrated (RFC 9000, section
//! 9.3; multipath draft-21, section 3.1.2). Only servers follow.

use recovery::RttEstimator;
use units::{Duration, Instant};
use wire::quic::PathId;

use super::SendHalf;
use super::path::Former;
use super::validation::FIRST_INTERVAL;
use crate::addresses::Addresses;
use crate::exchange::{Exchange, ToControl};
use crate::spaces::DATA;
use crate::stats::PathState;

/// The shortest time before a challenge to a new address is repeated: a delay that long is no loss.
const INTERVAL_MIN: Duration = Duration::from_millis(50);

/// Probe timeouts until the validation of a new address fails (RFC 9000, section 8.2.4).
const PROBE_TIMEOUTS_BEFORE_RETURN: u64 = 3;

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
        let return_at = now + self.validation_timeout(at);
        let path = &mut self.paths[at];
        tracing::debug!(path = %id, from = %path.link.addresses.remote, to = %addresses.remote, "a path moves");
        if path.link.addresses.remote.ip() != addresses.remote.ip() {
            // Nothing is known of the route to the new address. If only the port differs, a NAT
            // most likely changed its mapping of the same route (section 9.4).
            path.recovery.restart(self.config.initial_rtt);
            path.restart_mtu_search(self.config.datagram_size.min(self.peer.udp_payload_size_max));
            // Acknowledgements and losses of packets on the old route say nothing about the new one.
            self.forget_sent(at, 0);
            self.spaces[DATA + at].loss_time = None;
        }
        let path = &mut self.paths[at];
        path.recovery.ecn.restart(self.spaces[DATA + at].next_number);
        path.recovery.backoff.reset();
        let (known_received, known_sent, challenges) =
            self.off_paths.replace(now, &mut self.paths, at, &addresses, exchange);
        let path = &mut self.paths[at];
        if path.link.former.as_ref().is_some_and(|former| former.addresses.is_same_route(&addresses)) {
            // The path returned to its former address, which is already validated.
            path.link.addresses = addresses;
            path.link.former = None;
            path.link.set_validated();
            path.validation.stop();
            if path.phase.state == PathState::Validating {
                path.phase.state = PathState::Silent;
            }
            return path.on_alive(now, self.spaces[DATA + at].next_number, exchange);
        }
        if path.link.is_validated() {
            path.link.former = Some(Box::new(Former { addresses: path.link.addresses, return_at }));
        } else if let Some(former) = &mut path.link.former {
            former.return_at = return_at;
        }
        path.link.addresses = addresses;
        path.link.set_unvalidated(known_received.saturating_add(bytes), known_sent);
        // A response to a challenge that was sent to the former address does not validate the new
        // one. One to a challenge that was sent to the new address does, however late it comes: the
        // packet that moves the path may carry it (RFC 9000, section 8.2.3).
        path.validation.stop();
        path.validation.adopt_challenges(challenges);
        // A NAT that changed the port has not changed the round trip.
        path.validation.start(now, (path.recovery.rtt.pto_base() * 3).clamp(INTERVAL_MIN, FIRST_INTERVAL));
        if others && path.phase.state != PathState::Validating {
            path.phase.state = PathState::Validating;
            exchange.to_control.push_back(ToControl::PathState { path: id, state: PathState::Validating });
            let pinned = &mut self.paths[at].queues.pinned;
            self.stats.datagrams_lost += self.datagrams.take_over(pinned, self.config.datagram_send_buffer);
            self.move_content(at, u64::MAX);
        }
    }

    /// How long a new address of the path at `at` may take to respond: its route may be longer than
    /// the present one, so the larger of the probe timeouts of this route and of an unknown one counts
    /// (RFC 9000, section 8.2.4).
    fn validation_timeout(&self, at: usize) -> Duration {
        let unknown = RttEstimator::new(self.config.initial_rtt).pto_base();
        let larger = self.paths[at].recovery.rtt.pto_base().max(unknown) + self.frames.ack_frequency.max_ack_delay();
        larger * PROBE_TIMEOUTS_BEFORE_RETURN
    }

    /// A challenge is repeated. If the new address should have responded by now, and the former one
    /// has not sent again, the path returns to the former: the sender of the packet that moved it may
    /// have spoofed the new one (RFC 9000, section 9.3.2).
    pub(super) fn maybe_move_back(&mut self, now: Instant, at: usize, exchange: &mut Exchange) {
        let path = &mut self.paths[at];
        let Some(former) = path.link.former.take_if(|former| former.return_at <= now) else { return };
        tracing::debug!(path = %path.id, to = %former.addresses.remote, "a path moves back");
        self.off_paths.give_back(&mut self.paths, at, &former.addresses, exchange);
        let path = &mut self.paths[at];
        path.link.set_validated();
        path.validation.start(now, FIRST_INTERVAL);
        path.recovery.ecn.restart(self.spaces[DATA + at].next_number);
    }
}

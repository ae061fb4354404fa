//! Packets to and from addresses beside those of the paths ([`OffPaths`](super::off_paths::OffPaths)).

use units::Instant;
use wire::quic::{ConnectionId, PacketType, PathId, Space};

use super::SendHalf;
use super::off_paths::{OffPath, Purpose};
use super::planner::Pass;
use super::validation::Validation;
use crate::addresses::Addresses;
use crate::exchange::{Exchange, ToControl};
use crate::spaces::DATA;

impl SendHalf {
    /// Whether this side expects packets of path `id` from these addresses: it probes them, or the
    /// server has left them and what was under way still arrives.
    pub(crate) fn is_off_path(&self, id: PathId, addresses: &Addresses) -> bool {
        let left = self.path_of(id).and_then(|path| path.link.left.as_deref());
        left.is_some_and(|left| left.is_same_route(addresses)) || self.off_paths.index(id, addresses).is_some()
    }

    /// Whether packets to an address beside those of the paths name this connection ID.
    pub(crate) fn is_id_in_use(&self, remote_id: ConnectionId) -> bool {
        self.off_paths.is_id_in_use(&self.paths, remote_id)
    }

    /// The connection IDs of the peer to which packets are sent, and their paths. Those of an abandoned
    /// path are not among them: the peer forgets them, and resets what arrives late.
    pub(crate) fn remote_ids(&self) -> impl Iterator<Item = (PathId, ConnectionId)> + '_ {
        let of_paths = self.paths.iter().filter(|path| path.is_open()).map(|path| (path.id, path.link.remote_id));
        of_paths.chain(self.off_paths.list.iter().map(|known| (known.path, known.remote_id)))
    }

    /// Forgets every address to which this connection ID belongs. The caller retires it.
    pub(crate) fn forget_off_paths_with(&mut self, remote_id: ConnectionId) {
        self.off_paths.forget_id(remote_id);
    }

    /// A PATH_RESPONSE that no path expects.
    pub(super) fn on_response_elsewhere(&mut self, now: Instant, data: [u8; 8], exchange: &mut Exchange) {
        let Some(index) = self.off_paths.list.iter().position(|known| known.validation.is_response(&data)) else {
            return;
        };
        match self.off_paths.list[index].purpose {
            Purpose::Migrate | Purpose::Preferred => {}
            // The address that the path has left still works. The peer moves the path back by a
            // non-probing packet if it wants to (section 9.3.3).
            Purpose::Respond | Purpose::Former => return self.off_paths.list[index].validation.stop(),
            // The response counts when the peer's newest packets come from there.
            Purpose::Unanswered => return,
        }
        let OffPath { path: id, addresses, remote_id, purpose, .. } = self.off_paths.list.remove(index);
        let Some(at) = self.path_index(id).filter(|at| self.paths[*at].is_open()) else { return };
        tracing::debug!(path = %id, to = %addresses.remote, socket = addresses.socket, "the path migrates");
        // Nothing sent on the old route counts for the new one (section 9.4).
        self.forget_sent(at, 0);
        self.spaces[DATA + at].loss_time = None;
        let path = &mut self.paths[at];
        let left_id = std::mem::replace(&mut path.link.remote_id, remote_id);
        // A client that leaves a network gets nothing there any more.
        path.link.left = (purpose == Purpose::Preferred).then(|| Box::new(path.link.addresses));
        path.link.addresses = addresses;
        path.recovery.restart(self.config.initial_rtt);
        path.link.refused_until = None;
        path.recovery.backoff.reset();
        path.validation.stop();
        path.link.set_validated();
        let next_number = self.spaces[DATA + at].next_number;
        path.recovery.ecn.restart(next_number);
        path.on_alive(now, next_number, exchange);
        // The server follows a non-probing packet (section 9.2), so one leaves at once.
        self.spaces[DATA + at].probes_due = 1;
        self.off_paths.retire_unused(&self.paths, id, left_id, exchange);
        exchange.to_control.push_back(ToControl::Migrated { path: id });
    }

    /// Plans one packet with the probing frames that are due to an address beside those of the
    /// paths. Returns the address.
    pub(super) fn plan_off_path(&mut self, pass: &mut Pass<'_>) -> Option<Addresses> {
        for index in 0..self.off_paths.list.len() {
            let known = &self.off_paths.list[index];
            let Some(at) = self.path_index(known.path) else { continue };
            if !known.validation.has_due() || pass.socket_budget(known.addresses.socket) == 0 {
                continue;
            }
            let fields = self.fields(at, PacketType::OneRtt, self.header_form(at, Space::Data, 1), &[]);
            let known = &mut self.off_paths.list[index];
            if known.plan_packet(fields, &mut self.randomness.rng, pass.plan) {
                pass.at = at;
                self.spaces[DATA + at].next_number += 1;
                self.seal.count_packets(1, self.config.key_update_interval, pass.exchange);
                return Some(known.addresses);
            }
            // Not even a response fits into what the limit allows: the peer's next challenge
            // raises it.
            known.validation = Validation::default();
        }
        None
    }
}

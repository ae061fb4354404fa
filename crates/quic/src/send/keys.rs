//! The keys that packets are sealed with: installed, updated and discarded.

use std::sync::Arc;

use units::Instant;
use wire::quic::Space;

use super::SendHalf;
use crate::session::{DirectionKeys, PacketKey};
use crate::spaces::DATA;

impl SendHalf {
    /// Keys to seal packets of `space` with.
    pub(crate) fn install_keys(&mut self, space: Space, keys: DirectionKeys) {
        // A client discards its 0-RTT keys as soon as it has 1-RTT keys (RFC 9001, section 4.9.3).
        self.is_early &= space != Space::Data;
        self.keys[space.index()] = Some(keys);
    }

    pub(super) fn update_keys(&mut self, packet: Arc<dyn PacketKey>, phase: u64) {
        let keys = self.keys[Space::Data.index()].as_mut().expect("key updates come after 1-RTT keys");
        keys.packet = packet;
        self.key_phase = phase;
        self.sealed_in_phase = 0;
        self.phase_acked = false;
        for (at, path) in self.paths.iter_mut().enumerate() {
            path.numbers.phase_from = self.spaces[DATA + at].next_number;
        }
        self.stats.key_updates += 1;
    }

    /// The keys of `space` are discarded, and with them everything in flight there (RFC 9002,
    /// section 6.4).
    pub(super) fn discard_space(&mut self, now: Instant, space: Space) {
        self.keys.discard(space);
        self.crypto.discard(space);
        let path = &mut self.paths[0];
        let mut gone = 0;
        self.spaces[space.index()].log.drain(|run| gone += run.in_flight_bytes());
        self.spaces.discard(space);
        path.recovery.in_flight -= gone;
        path.recovery.backoff.reset();
        path.recovery.probe_anchor = now;
    }
}

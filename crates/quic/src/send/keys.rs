//! The keys that packets are sealed with: installed, updated and discarded.

use std::sync::Arc;

use wire::quic::{PacketType, Space};

use crate::exchange::{Exchange, ToControl};
use crate::plan::PLAN_DATAGRAMS_MAX;
use crate::session::{DirectionKeys, PacketKey};
use crate::spaces::{DATA, Spaces};

/// The keys of the send half.
#[derive(Debug, Default)]
pub(super) struct SealKeys {
    pub(super) by_space: Spaces<Option<DirectionKeys>>,
    /// Key updates made so far.
    pub(super) phase: u64,
    /// Packets sealed with the current 1-RTT key.
    sealed_in_phase: u64,
    /// A packet of the current phase was acknowledged.
    is_phase_acked: bool,
    /// The client sends streams in 0-RTT packets: it has keys for these and none for 1-RTT packets.
    pub(super) is_early: bool,
}

impl SealKeys {
    /// Keys to seal packets of `space` with.
    pub(super) fn install(&mut self, space: Space, keys: DirectionKeys) {
        // A client discards its 0-RTT keys as soon as it has 1-RTT keys (RFC 9001, section 4.9.3).
        self.is_early &= space != Space::Data;
        self.by_space[space.index()] = Some(keys);
    }

    /// Keys of 0-RTT packets.
    pub(super) fn install_early(&mut self, keys: DirectionKeys) {
        self.by_space[DATA] = Some(keys);
        self.is_early = true;
    }

    /// No more 0-RTT packets are sent.
    pub(super) fn end_early(&mut self) {
        if std::mem::take(&mut self.is_early) {
            self.by_space[DATA] = None;
        }
    }

    /// Another key phase begins.
    pub(super) fn update(&mut self, packet: Arc<dyn PacketKey>, phase: u64) {
        self.by_space[DATA].as_mut().expect("key updates come after 1-RTT keys").packet = packet;
        (self.phase, self.sealed_in_phase, self.is_phase_acked) = (phase, 0, false);
    }

    /// A packet of the current phase was acknowledged.
    #[inline]
    pub(super) fn on_phase_acked(&mut self, exchange: &mut Exchange) {
        if !self.is_phase_acked {
            self.is_phase_acked = true;
            exchange.to_control.push_back(ToControl::PhaseAcknowledged(self.phase));
        }
    }

    /// Whether packets of `space` can be sealed.
    pub(super) fn has(&self, space: Space) -> bool {
        self.by_space[space.index()].is_some()
    }

    /// The type of the packets that are sent in a space.
    pub(super) fn packet_type(&self, space: Space) -> PacketType {
        match space {
            Space::Initial => PacketType::Initial,
            Space::Handshake => PacketType::Handshake,
            Space::Data if self.is_early => PacketType::ZeroRtt,
            Space::Data => PacketType::OneRtt,
        }
    }

    /// The key phase bit of 1-RTT packets.
    pub(super) fn phase_bit(&self) -> bool {
        self.phase % 2 == 1
    }

    /// Counts packets that are sealed. Requests a key update after `update_interval` of them, before the
    /// AEAD's confidentiality limit is near (RFC 9001, section 6.6).
    pub(super) fn count_packets(&mut self, packets: u64, update_interval: u64, exchange: &mut Exchange) {
        let before = self.sealed_in_phase;
        self.sealed_in_phase += packets;
        if before < update_interval && self.sealed_in_phase >= update_interval {
            exchange.to_control.push_back(ToControl::KeyWornOut);
        }
        // A peer that never follows a key update must not make us exceed the limit (RFC 9001,
        // section 6.6).
        let limit = self.by_space[DATA].as_ref().map_or(u64::MAX, |keys| keys.packet.confidentiality_limit());
        if self.sealed_in_phase.saturating_add(PLAN_DATAGRAMS_MAX as u64) > limit {
            exchange.to_control.push_back(ToControl::KeyExhausted);
        }
    }
}

//! Keys: those that open packets, when keys are discarded, and key updates (RFC 9001, section 6).

use units::{Duration, Instant};
use wire::quic::{PathId, Space};

use super::{Control, ids};
use crate::connection::LeaseTerms;
use crate::exchange::{Exchange, ToReceive, ToSend};
use crate::open::OpenContext;
use crate::open::keys::OneRttKeys;

/// Keys of an earlier phase are kept this many probe timeouts (RFC 9001, section 6.5).
const OLD_KEY_PTOS: u64 = 3;

impl Control {
    /// The context of the open stage for datagrams of one path.
    pub(crate) fn open_context(&mut self, path: PathId, largest: [Option<u64>; 3]) -> OpenContext {
        self.keys.prepare_next_phase(&self.session, self.record.is_complete());
        OpenContext {
            local_id_len: ids::LOCAL_ID_LEN,
            levels: self.keys.levels.clone(),
            version: self.versions.current,
            other_initial: self.keys.other_initial.as_deref().cloned(),
            // A server must not process 1-RTT packets before the handshake is complete (RFC 9001,
            // section 5.7).
            data: self.one_rtt_of(path).filter(|_| self.record.is_complete()),
            largest,
            path,
            max_path: self.max_path(),
            ignore_fixed_bit: self.config.grease,
        }
    }

    /// The number of the present key phase, if packets with this phase bit belong to it; none
    /// during the handshake. Prepares keys as [`Self::open_context`] does.
    pub(crate) fn data_phase(&mut self, phase: bool) -> Option<u64> {
        self.keys.prepare_next_phase(&self.session, self.record.is_complete());
        let one_rtt = self.keys.one_rtt().filter(|_| self.is_confirmed())?;
        (one_rtt.phase() == phase).then_some(one_rtt.epoch)
    }

    /// The terms of leases; none if none may be granted.
    pub(crate) fn lease_terms(&self) -> Option<LeaseTerms> {
        let one_rtt = self.keys.one_rtt().filter(|_| self.is_confirmed())?;
        Some(LeaseTerms::new(one_rtt.epoch, one_rtt.previous.is_some(), self.max_path()))
    }

    pub(super) fn discard(&mut self, space: Space, exchange: &mut Exchange) {
        if self.keys.discard(space) {
            self.crypto.by_space.discard(space);
            exchange.to_send.push_back(ToSend::DiscardSpace(space));
            exchange.to_receive.push_back(ToReceive::DiscardSpace(space));
        }
    }

    /// The peer updated its keys. Several batches that were opened at the same time may report the same
    /// `epoch`.
    pub(super) fn on_phase_advanced(&mut self, now: Instant, epoch: u64, pto: Duration, exchange: &mut Exchange) {
        if !self.keys.advance(now + pto * OLD_KEY_PTOS, epoch, &mut self.session, exchange) {
            return;
        }
        if let Some(paths) = &mut self.paths {
            paths.forget_phase_from();
        }
        self.keys.prepare_next_phase(&self.session, self.record.is_complete());
    }

    /// The keys that open 1-RTT packets of the first path.
    pub(crate) fn one_rtt(&mut self) -> Option<OneRttKeys> {
        self.keys.prepare_next_phase(&self.session, self.record.is_complete());
        self.one_rtt_of(PathId::ZERO)
    }

    /// The keys that open 1-RTT packets of one path.
    pub(crate) fn one_rtt_of(&self, path: PathId) -> Option<OneRttKeys> {
        let one_rtt = self.keys.one_rtt()?.clone();
        let phase_from = if path == PathId::ZERO {
            one_rtt.phase_from
        } else {
            self.paths.as_ref().and_then(|paths| paths.phase_from_of(path))
        };
        Some(OneRttKeys { phase_from, ..one_rtt })
    }

    /// Notes the lowest number of phase `epoch` that the open stage has seen on a path.
    pub(crate) fn note_phase_from(&mut self, path: PathId, epoch: u64, number: Option<u64>) {
        let (Some(one_rtt), Some(number)) = (&mut self.keys.one_rtt, number) else { return };
        if epoch != one_rtt.epoch {
            // It was opened before the phase advanced.
            return;
        }
        if path == PathId::ZERO {
            one_rtt.phase_from = Some(one_rtt.phase_from.map_or(number, |known| known.min(number)));
        } else if let Some(paths) = &mut self.paths {
            paths.lower_phase_from(path, number);
        }
    }
}

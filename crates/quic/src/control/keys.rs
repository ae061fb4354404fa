//! Keys: those that open packets, when keys are discarded, and key updates (RFC 9001, section 6).

use units::{Duration, Instant};
use wire::quic::{PathId, Space};

use super::{ConnectionState, Control, ids};
use crate::connection::LeaseTerms;
use crate::exchange::{Exchange, ToReceive, ToSend};
use crate::open::OpenContext;
use crate::open::keys::OneRttKeys;
use crate::session::{DirectionKeys, PhaseKeys};

/// Keys of an earlier phase are kept this many probe timeouts (RFC 9001, section 6.5).
const OLD_KEY_PTOS: u64 = 3;

impl Control {
    /// The context of the open stage for datagrams of one path.
    pub(crate) fn open_context(&mut self, path: PathId, largest: [Option<u64>; 3]) -> OpenContext {
        self.prepare_next_phase();
        OpenContext {
            local_id_len: ids::LOCAL_ID_LEN,
            levels: self.levels.clone(),
            version: self.version,
            other_initial: self.other_initial.as_deref().cloned(),
            // A server must not process 1-RTT packets before the handshake is complete (RFC 9001,
            // section 5.7).
            data: self.one_rtt_of(path).filter(|_| self.handshake_time.is_some()),
            largest,
            path,
            max_path: self.max_path(),
            ignore_fixed_bit: self.config.grease,
        }
    }

    /// The number of the present key phase, if packets with this phase bit belong to it; none
    /// during the handshake. Prepares keys as [`Self::open_context`] does.
    pub(crate) fn data_phase(&mut self, phase: bool) -> Option<u64> {
        self.prepare_next_phase();
        let one_rtt = self.one_rtt.as_ref().filter(|_| self.is_confirmed())?;
        (one_rtt.phase() == phase).then_some(one_rtt.epoch)
    }

    /// The terms of leases; none if none may be granted.
    pub(crate) fn lease_terms(&self) -> Option<LeaseTerms> {
        let one_rtt = self.one_rtt.as_ref().filter(|_| self.is_confirmed())?;
        Some(LeaseTerms::new(one_rtt.epoch, one_rtt.previous.is_some(), self.max_path()))
    }

    /// The first 1-RTT keys.
    pub(super) fn install_data_keys(&mut self, keys: DirectionKeys) {
        self.one_rtt = Some(OneRttKeys {
            header: keys.header,
            current: keys.packet,
            epoch: 0,
            phase_from: None,
            previous: None,
            next: None,
        });
    }

    /// Makes the keys of the next phase if they are not there. This happens when anything arrives
    /// after a quiet time, before it is opened, so its timing does not reveal whether a packet was
    /// of the next phase (RFC 9001, section 6.3).
    fn prepare_next_phase(&mut self) {
        if let Some(one_rtt) = &mut self.one_rtt
            && one_rtt.next.is_none()
            && self.handshake_time.is_some()
        {
            one_rtt.next = Some(self.next_phase.get_or_insert_with(|| self.session.get().next_phase()).open.clone());
        }
    }

    /// Frees the keys of the next phase until something arrives: many connections are idle, and few
    /// of them will ever update their keys.
    pub(super) fn forget_next_phase(&mut self) {
        self.next_phase = None;
        if let Some(one_rtt) = &mut self.one_rtt {
            one_rtt.next = None;
        }
    }

    pub(super) fn discard(&mut self, space: Space, exchange: &mut Exchange) {
        if self.levels[space.index()].take().is_none() {
            return;
        }
        if space == Space::Initial {
            self.other_initial = None;
        }
        self.crypto.discard(space);
        exchange.to_send.push_back(ToSend::DiscardSpace(space));
        exchange.to_receive.push_back(ToReceive::DiscardSpace(space));
    }

    /// Starts a key update, if one is wanted and allowed: confirmed, the last one finished in both
    /// directions and acknowledged (RFC 9001, section 6.1), and the keys of the phase before
    /// discarded.
    pub(super) fn maybe_update_keys(&mut self, exchange: &mut Exchange) {
        let settled = self.send_phase == self.receive_phase && self.phase_acknowledged && self.old_keys_until.is_none();
        if !self.update_wanted || self.state != ConnectionState::Confirmed || !settled {
            return;
        }
        self.update_send_keys(exchange);
    }

    fn update_send_keys(&mut self, exchange: &mut Exchange) {
        let next = self.next_phase.get_or_insert_with(|| self.session.get().next_phase());
        self.send_phase += 1;
        self.phase_acknowledged = false;
        self.update_wanted = false;
        exchange.to_send.push_back(ToSend::UpdateKeys { packet: next.seal.clone(), phase: self.send_phase });
    }

    /// The peer updated its keys: ours follow before anything of the new phase is acknowledged (RFC
    /// 9001, section 6.2). Several batches that were opened at the same time may report the same
    /// `epoch`.
    pub(super) fn on_phase_advanced(&mut self, now: Instant, epoch: u64, pto: Duration, exchange: &mut Exchange) {
        if epoch <= self.receive_phase {
            return;
        }
        if self.send_phase == self.receive_phase {
            self.update_send_keys(exchange);
        }
        self.receive_phase += 1;
        self.old_keys_until = Some(now + pto * OLD_KEY_PTOS);
        let PhaseKeys { open, .. } = self.next_phase.take().unwrap_or_else(|| self.session.get().next_phase());
        self.session.get_mut().advance_phase();
        let one_rtt = self.one_rtt.as_mut().expect("a packet was opened with it");
        one_rtt.previous = Some(std::mem::replace(&mut one_rtt.current, open));
        one_rtt.epoch = self.receive_phase;
        one_rtt.next = None;
        one_rtt.phase_from = None;
        self.forget_phase_from();
        self.prepare_next_phase();
    }

    /// The keys that open 1-RTT packets of the first path.
    pub(crate) fn one_rtt(&mut self) -> Option<OneRttKeys> {
        self.prepare_next_phase();
        self.one_rtt_of(PathId::ZERO)
    }

    /// The keys that open 1-RTT packets of one path.
    pub(crate) fn one_rtt_of(&self, path: PathId) -> Option<OneRttKeys> {
        let one_rtt = self.one_rtt.clone()?;
        let phase_from = if path == PathId::ZERO { one_rtt.phase_from } else { self.phase_from_of(path) };
        Some(OneRttKeys { phase_from, ..one_rtt })
    }

    /// Notes the lowest number of phase `epoch` that the open stage has seen on a path.
    pub(crate) fn note_phase_from(&mut self, path: PathId, epoch: u64, number: Option<u64>) {
        let (Some(one_rtt), Some(number)) = (&mut self.one_rtt, number) else { return };
        if epoch != one_rtt.epoch {
            // It was opened before the phase advanced.
            return;
        }
        if path == PathId::ZERO {
            one_rtt.phase_from = Some(one_rtt.phase_from.map_or(number, |known| known.min(number)));
        } else {
            self.lower_phase_from(path, number);
        }
    }
}

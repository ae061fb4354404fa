//! Keys: those that open packets, when keys are discarded, and key updates (RFC 9001, section 6).

use units::{Duration, Instant};
use wire::quic::{PathId, Space};

use super::{Control, ids};
use crate::connection::LeaseTerms;
use crate::exchange::{Exchange, ToReceive, ToSend};
use crate::journal::session::AnySession;
use crate::open::OpenContext;
use crate::open::keys::OneRttKeys;
use crate::session::{DirectionKeys, PhaseKeys};

/// Keys of an earlier phase are kept this many probe timeouts (RFC 9001, section 6.5).
const OLD_KEY_PTOS: u64 = 3;

/// The keys that open packets, and the key phases of both directions.
pub(super) struct KeySchedule {
    /// Of Initial and Handshake packets.
    pub(super) levels: [Option<DirectionKeys>; 2],
    /// For Initial packets of the other version, while the peer may use either. Boxed, because a
    /// connection after its handshake has none.
    pub(super) other_initial: Option<Box<DirectionKeys>>,
    one_rtt: Option<OneRttKeys>,
    /// The keys after those in use, unless they were freed while the connection was quiet.
    next_phase: Option<PhaseKeys>,
    /// Key updates made in each direction.
    send_phase: u64,
    receive_phase: u64,
    /// A packet of the present send phase was acknowledged, so another update may follow.
    phase_acknowledged: bool,
    update_wanted: bool,
    old_keys_until: Option<Instant>,
}

impl KeySchedule {
    pub(super) fn new(initial: DirectionKeys, other_initial: Option<DirectionKeys>) -> Self {
        Self {
            levels: [Some(initial), None],
            other_initial: other_initial.map(Box::new),
            one_rtt: None,
            next_phase: None,
            send_phase: 0,
            receive_phase: 0,
            phase_acknowledged: false,
            update_wanted: false,
            old_keys_until: None,
        }
    }

    /// The first 1-RTT keys.
    pub(super) fn install_data(&mut self, keys: DirectionKeys) {
        self.one_rtt = Some(OneRttKeys {
            header: keys.header,
            current: keys.packet,
            epoch: 0,
            phase_from: None,
            previous: None,
            next: None,
        });
    }

    /// Discards the keys of a space; false if there are none.
    pub(super) fn discard(&mut self, space: Space) -> bool {
        let had_keys = self.levels[space.index()].take().is_some();
        if had_keys && space == Space::Initial {
            self.other_initial = None;
        }
        had_keys
    }

    // ── Phases ───────────────────────────────────────────────────────────────────────────────────────────────────────

    /// Makes the keys of the next phase if they are not there. This happens when anything arrives
    /// after a quiet time, before it is opened, so its timing does not reveal whether a packet was
    /// of the next phase (RFC 9001, section 6.3). Only once our side of the handshake is complete.
    fn prepare_next_phase(&mut self, session: &AnySession) {
        if let Some(one_rtt) = &mut self.one_rtt
            && one_rtt.next.is_none()
        {
            one_rtt.next = Some(self.next_phase.get_or_insert_with(|| session.get().next_phase()).open.clone());
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

    /// The key of the send phase is worn out.
    pub(super) fn request_update(&mut self) {
        self.update_wanted = true;
    }

    /// A packet of this send phase was acknowledged.
    pub(super) fn on_acknowledged(&mut self, phase: u64) {
        self.phase_acknowledged |= phase == self.send_phase;
    }

    /// Starts a key update, if one is wanted and allowed: confirmed, which the caller has checked, the last
    /// one finished in both directions and acknowledged (RFC 9001, section 6.1), and the keys of the phase
    /// before discarded.
    fn maybe_update(&mut self, session: &AnySession, exchange: &mut Exchange) {
        let settled = self.is_in_step() && self.phase_acknowledged && self.old_keys_until.is_none();
        if self.update_wanted && settled {
            self.update_send_keys(session, exchange);
        }
    }

    fn update_send_keys(&mut self, session: &AnySession, exchange: &mut Exchange) {
        let next = self.next_phase.get_or_insert_with(|| session.get().next_phase());
        self.send_phase += 1;
        self.phase_acknowledged = false;
        self.update_wanted = false;
        exchange.to_send.push_back(ToSend::UpdateKeys { packet: next.seal.clone(), phase: self.send_phase });
    }

    /// The peer updated its keys: ours follow before anything of the new phase is acknowledged (RFC
    /// 9001, section 6.2). Returns false if this `epoch` was reported before.
    fn advance(&mut self, old_until: Instant, epoch: u64, session: &mut AnySession, exchange: &mut Exchange) -> bool {
        if epoch <= self.receive_phase {
            return false;
        }
        if self.is_in_step() {
            self.update_send_keys(session, exchange);
        }
        self.receive_phase += 1;
        self.old_keys_until = Some(old_until);
        let PhaseKeys { open, .. } = self.next_phase.take().unwrap_or_else(|| session.get().next_phase());
        session.get_mut().advance_phase();
        let one_rtt = self.one_rtt.as_mut().expect("a packet was opened with it");
        one_rtt.previous = Some(std::mem::replace(&mut one_rtt.current, open));
        one_rtt.epoch = self.receive_phase;
        one_rtt.next = None;
        one_rtt.phase_from = None;
        true
    }

    /// When [`on_timeout`](Self::on_timeout) has something to do.
    pub(super) fn timeout(&self) -> Option<Instant> {
        self.old_keys_until
    }

    /// Discards the keys of the phase before if it is time; returns true if so.
    pub(super) fn on_timeout(&mut self, now: Instant) -> bool {
        if self.old_keys_until.is_none_or(|at| at > now) {
            return false;
        }
        self.old_keys_until = None;
        if let Some(one_rtt) = &mut self.one_rtt {
            one_rtt.previous = None;
        }
        true
    }

    /// Both sides are in the same key phase.
    pub(super) fn is_in_step(&self) -> bool {
        self.send_phase == self.receive_phase
    }

    /// The keys that open 1-RTT packets, if there are any.
    pub(super) fn one_rtt(&self) -> Option<&OneRttKeys> {
        self.one_rtt.as_ref()
    }

    /// The keys that open 1-RTT packets, and the number of the send phase.
    pub(super) fn into_remains(self) -> Option<(OneRttKeys, u64)> {
        Some((self.one_rtt?, self.send_phase))
    }
}

impl Control {
    /// The context of the open stage for datagrams of one path.
    pub(crate) fn open_context(&mut self, path: PathId, largest: [Option<u64>; 3]) -> OpenContext {
        self.prepare_next_phase();
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
        self.prepare_next_phase();
        let one_rtt = self.keys.one_rtt().filter(|_| self.is_confirmed())?;
        (one_rtt.phase() == phase).then_some(one_rtt.epoch)
    }

    /// The terms of leases; none if none may be granted.
    pub(crate) fn lease_terms(&self) -> Option<LeaseTerms> {
        let one_rtt = self.keys.one_rtt().filter(|_| self.is_confirmed())?;
        Some(LeaseTerms::new(one_rtt.epoch, one_rtt.previous.is_some(), self.max_path()))
    }

    fn prepare_next_phase(&mut self) {
        if self.record.is_complete() {
            self.keys.prepare_next_phase(&self.session);
        }
    }

    pub(super) fn discard(&mut self, space: Space, exchange: &mut Exchange) {
        if self.keys.discard(space) {
            self.crypto.by_space.discard(space);
            exchange.to_send.push_back(ToSend::DiscardSpace(space));
            exchange.to_receive.push_back(ToReceive::DiscardSpace(space));
        }
    }

    /// Starts a key update, if one is wanted and allowed.
    pub(super) fn maybe_update_keys(&mut self, exchange: &mut Exchange) {
        if self.is_confirmed() {
            self.keys.maybe_update(&self.session, exchange);
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
        self.prepare_next_phase();
    }

    /// The keys that open 1-RTT packets of the first path.
    pub(crate) fn one_rtt(&mut self) -> Option<OneRttKeys> {
        self.prepare_next_phase();
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

//! The keys that open packets, and key updates (RFC 9001, section 6).

use units::Instant;
use wire::quic::Space;

use crate::exchange::{Exchange, ToSend};
use crate::journal::session::AnySession;
use crate::open::keys::OneRttKeys;
use crate::session::{DirectionKeys, PhaseKeys};

/// The keys that open packets, and the key phases of both directions.
pub(super) struct KeySchedule {
    /// Of Initial and Handshake packets.
    pub(super) levels: [Option<DirectionKeys>; 2],
    /// For Initial packets of the other version, while the peer may use either. Boxed, because a
    /// connection after its handshake has none.
    pub(super) other_initial: Option<Box<DirectionKeys>>,
    pub(super) one_rtt: Option<OneRttKeys>,
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
    /// of the next phase (RFC 9001, section 6.3). Only once our side of the handshake `is_complete`.
    pub(super) fn prepare_next_phase(&mut self, session: &AnySession, is_complete: bool) {
        if let Some(one_rtt) = &mut self.one_rtt
            && one_rtt.next.is_none()
            && is_complete
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

    /// Starts a key update, if one is wanted and allowed: confirmed, the last
    /// one finished in both directions and acknowledged (RFC 9001, section 6.1), and the keys of the phase
    /// before discarded.
    pub(super) fn maybe_update(&mut self, is_confirmed: bool, session: &AnySession, exchange: &mut Exchange) {
        let settled = self.is_in_step() && self.phase_acknowledged && self.old_keys_until.is_none();
        if self.update_wanted && is_confirmed && settled {
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
    pub(super) fn advance(
        &mut self,
        old_until: Instant,
        epoch: u64,
        session: &mut AnySession,
        exchange: &mut Exchange,
    ) -> bool {
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

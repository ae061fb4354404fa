//! Addresses beside those of the paths: where the peer probes from, where this side probes, and
//! which the peer has left (RFC 9000, sections 8.2 and 9).
//!
//! ```text
//!   server: PATH_CHALLENGE from another address ──▶ PATH_RESPONSE there, the path stays
//!           non-probing packet from there       ──▶ the path moves (`migration`); PATH_CHALLENGE to
//!                                                   the address that it left (section 9.3.3)
//!   client: migrate ──▶ PATH_CHALLENGE from the new address ──▶ PATH_RESPONSE ──▶ the path moves
//!           the server prefers another address: the same to that one (section 9.6)
//! ```
//!
//! A packet to such an address holds probing frames only, so it moves nothing at the peer (section
//! 9.1). It takes a number of the path's space and is in no log: neither its loss nor its
//! acknowledgement says anything about the path, whose congestion controller it must not affect
//! (section 9.4). There are few of them: one for each datagram of the peer with a challenge, and a
//! challenge of this side at growing intervals.

use units::{Instant, Rng};
use wire::quic::{ConnectionId, MIN_INITIAL_SIZE, PathId, Side, Space};

use super::draft::{Draft, HeaderFields};
use super::path::{AMPLIFICATION_FACTOR, SendPath};
use super::validation::{FIRST_INTERVAL, PROBING_FRAME_LEN_MAX, Validation};
use crate::addresses::Addresses;
use crate::config::PreferredAddresses;
use crate::exchange::{Elsewhere, Exchange, ToControl};
use crate::plan::Plan;
use crate::session::TAG_LEN;

/// Addresses beside those of the paths, at most; beyond it the oldest is forgotten. A client probes
/// one or two at a time. More would let a peer that spoofs addresses use more memory, fewer would
/// let copies from a spoofed address take the place of the client's.
const OFF_PATHS_MAX: usize = 4;

/// Challenges to the address that a path has left, unless it may still return there. One may be lost;
/// the client has most likely left the address for good.
const CHALLENGES_TO_FORMER_MAX: u8 = 3;

/// Challenges to an address that the server prefers. Without an answer the path stays where it is
/// (section 9.6.1): a firewall may let nothing through to the other address.
const CHALLENGES_TO_PREFERRED_MAX: u8 = 5;

/// The reason why an address is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// The peer probes from there.
    Respond,
    /// The path has left it.
    Former,
    /// The path has moved back from it, because no response came in time. One may still come: the
    /// peer's congestion control may hold it back (RFC 9000, section 8.2.2).
    Unanswered,
    /// This side wants to move the path there.
    Migrate,
    /// The server wants the path there.
    Preferred,
}

/// One address.
#[derive(Debug)]
pub(super) struct OffPath {
    pub(super) path: PathId,
    pub(super) addresses: Addresses,
    pub(super) purpose: Purpose,
    /// The peer's connection ID for packets to this address.
    pub(super) remote_id: ConnectionId,
    pub(super) validation: Validation,
    /// Neither the limit of section 8.1 applies to an address that was validated, nor to a server's.
    is_limited: bool,
    received_bytes: u64,
    sent_bytes: u64,
}

/// The addresses beside those of the paths.
#[derive(Debug)]
pub(super) struct OffPaths {
    side: Side,
    pub(super) list: Vec<OffPath>,
}

impl OffPath {
    fn budget(&self) -> u64 {
        if !self.is_limited {
            return u64::MAX;
        }
        self.received_bytes.saturating_mul(AMPLIFICATION_FACTOR).saturating_sub(self.sent_bytes)
    }

    /// Plans one packet with the probing frames that are due; false if not even a response fits into what
    /// the limit allows. `fields` are those of a packet of the path.
    pub(super) fn plan_packet(&mut self, fields: HeaderFields<'_>, rng: &mut Rng, plan: &mut Plan) -> bool {
        let fields = HeaderFields { dcid: self.remote_id, ..fields };
        // Datagrams of at least 1200 bytes, unless the limit of section 8.1 forbids it (sections
        // 8.2.1 and 8.2.2).
        let size_max = MIN_INITIAL_SIZE.min(usize::try_from(self.budget()).unwrap_or(usize::MAX));
        let is_expanded = size_max == MIN_INITIAL_SIZE;
        if size_max < fields.len() + PROBING_FRAME_LEN_MAX + TAG_LEN {
            return false;
        }
        let Some(mut draft) = Draft::begin(plan, &fields, size_max) else { return false };
        self.validation.fill_responses(&mut draft, plan);
        self.validation.fill_challenge(rng, is_expanded, &mut draft, plan);
        let (number, padding, pieces_to) = (draft.number, size_max - draft.size(), plan.pieces.len());
        let size = draft.finish(plan, &fields, padding, pieces_to);
        self.sent_bytes += size as u64;
        (plan.size_bytes, plan.segment_size, plan.datagram_count) = (size, size, 1);
        plan.is_off_path = true;
        plan.note_numbers(Space::Data, number, number);
        true
    }
}

impl OffPaths {
    pub(super) fn new(side: Side) -> Self {
        Self { side, list: Vec::new() }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(super) fn index(&self, id: PathId, addresses: &Addresses) -> Option<usize> {
        self.list.iter().position(|known| known.path == id && known.addresses.is_same_route(addresses))
    }

    /// Whether packets to one of these addresses or on one of `paths` name this connection ID.
    pub(super) fn is_id_in_use(&self, paths: &[SendPath], remote_id: ConnectionId) -> bool {
        let is_on_path = paths.iter().any(|path| path.link.remote_id == remote_id);
        is_on_path || self.list.iter().any(|known| known.remote_id == remote_id)
    }

    /// The peer sent a PATH_CHALLENGE from an address that is not that of the path at `at`: the response
    /// goes there (RFC 9000, section 8.2.2).
    pub(super) fn on_challenge(
        &mut self,
        paths: &[SendPath],
        at: usize,
        data: [u8; 8],
        from: &Elsewhere,
        exchange: &mut Exchange,
    ) {
        let known = match self.index(paths[at].id, &from.addresses) {
            Some(known) => known,
            None => {
                let Some(remote_id) = self.id_for_another_address(paths, at, from.spare_id, exchange) else { return };
                self.add(paths, paths[at].id, from.addresses, Purpose::Respond, remote_id, exchange)
            }
        };
        let known = &mut self.list[known];
        known.received_bytes = known.received_bytes.saturating_add(from.bytes);
        known.validation.queue_response(data);
    }

    /// The connection ID for packets to another address than that of the path at `at`. One that
    /// names two addresses would show an observer that they belong together (RFC 9000, section
    /// 9.5). The ID of the path serves if the peer has issued no other: its address may have
    /// changed without its knowledge, which section 9.5 allows for.
    fn id_for_another_address(
        &mut self,
        paths: &[SendPath],
        at: usize,
        spare_id: Option<ConnectionId>,
        exchange: &mut Exchange,
    ) -> Option<ConnectionId> {
        let Some(spare) = spare_id else { return Some(paths[at].link.remote_id) };
        let Some(taken) = self.list.iter().position(|known| known.remote_id == spare) else { return Some(spare) };
        // It belongs to an address that the peer has probed before. The peer issues another one for
        // it, and repeats the challenge, as it does after a loss.
        self.forget(paths, taken, exchange);
        None
    }

    /// Adds an address, whose index it returns.
    fn add(
        &mut self,
        paths: &[SendPath],
        path: PathId,
        addresses: Addresses,
        purpose: Purpose,
        remote_id: ConnectionId,
        exchange: &mut Exchange,
    ) -> usize {
        if self.list.len() == OFF_PATHS_MAX {
            self.forget(paths, 0, exchange);
        }
        self.list.push(OffPath {
            path,
            addresses,
            purpose,
            remote_id,
            validation: Validation::default(),
            is_limited: matches!(purpose, Purpose::Respond | Purpose::Unanswered) && self.side == Side::Server,
            received_bytes: 0,
            sent_bytes: 0,
        });
        exchange.to_control.push_back(ToControl::RemoteIdsChanged);
        self.list.len() - 1
    }

    /// Forgets an address, and retires its connection ID if nothing else is sent to it.
    fn forget(&mut self, paths: &[SendPath], index: usize, exchange: &mut Exchange) {
        let OffPath { path, remote_id, .. } = self.list.remove(index);
        self.retire_unused(paths, path, remote_id, exchange);
    }

    /// Forgets every address to which this connection ID belongs. The caller retires it.
    pub(super) fn forget_id(&mut self, remote_id: ConnectionId) {
        self.list.retain(|known| known.remote_id != remote_id);
    }

    pub(super) fn retire_unused(&self, paths: &[SendPath], path: PathId, id: ConnectionId, exchange: &mut Exchange) {
        if !self.is_id_in_use(paths, id) {
            exchange.to_control.push_back(ToControl::RetireRemoteId { path, id });
        }
        exchange.to_control.push_back(ToControl::RemoteIdsChanged);
    }

    /// Forgets the addresses of a path that is closed, whose connection IDs are retired with it.
    pub(super) fn forget_path(&mut self, id: PathId) {
        self.list.retain(|known| known.path != id);
    }

    /// Path `id` uses the connection ID `current` from now on, because the peer has chosen or
    /// retired it.
    pub(super) fn on_id_replaced(&mut self, id: PathId, current: ConnectionId, exchange: &mut Exchange) {
        self.list.retain(|known| known.path != id || known.remote_id == current);
        exchange.to_control.push_back(ToControl::RemoteIdsChanged);
    }

    // ── The path moves ───────────────────────────────────────────────────────────────────────────────────────────────

    /// The peer has moved path `at` to `addresses`. Returns what is known of them: the bytes received
    /// from and sent to them before, and the challenges. Uses the connection ID that they have
    /// already. The former address is probed: if it is still the peer's, the peer's response moves the
    /// path back (RFC 9000, section 9.3.3).
    pub(super) fn replace(
        &mut self,
        now: Instant,
        paths: &mut [SendPath],
        at: usize,
        addresses: &Addresses,
        exchange: &mut Exchange,
    ) -> (u64, u64, Validation) {
        let (id, left, left_id) = (paths[at].id, paths[at].link.addresses, paths[at].link.remote_id);
        let is_validated = paths[at].link.is_validated();
        let mut before = (0, 0, Validation::default());
        if let Some(known) = self.index(id, addresses) {
            let known = self.list.remove(known);
            paths[at].link.remote_id = known.remote_id;
            before = (known.received_bytes, known.sent_bytes, known.validation);
        }
        // An address that was never validated may be anyone's.
        if is_validated {
            let former = self.add(paths, id, left, Purpose::Former, left_id, exchange);
            self.list[former].validation.start(now, FIRST_INTERVAL);
        } else {
            self.retire_unused(paths, id, left_id, exchange);
        }
        before
    }

    /// Path `at` moves back to `former`, to which the connection ID from before belongs. The address
    /// that it leaves has not responded to the challenges that were sent there, and may still.
    pub(super) fn give_back(&mut self, paths: &mut [SendPath], at: usize, former: &Addresses, exchange: &mut Exchange) {
        let path = &mut paths[at];
        let (id, left, left_id) = (path.id, path.link.addresses, path.link.remote_id);
        let ((received_bytes, sent_bytes), validation) = (path.link.volume(), path.validation.leave_address());
        path.link.addresses = *former;
        if let Some(known) = self.index(id, former) {
            paths[at].link.remote_id = self.list.remove(known).remote_id;
        }
        let unanswered = self.add(paths, id, left, Purpose::Unanswered, left_id, exchange);
        let unanswered = &mut self.list[unanswered];
        (unanswered.received_bytes, unanswered.sent_bytes) = (received_bytes, sent_bytes);
        unanswered.validation = validation;
    }

    /// Probes `addresses`, and moves the only path there once they respond (RFC 9000, sections 9.1
    /// and 9.2). Replaces an earlier attempt.
    pub(super) fn begin_migration(
        &mut self,
        now: Instant,
        paths: &[SendPath],
        addresses: Addresses,
        remote_id: ConnectionId,
        exchange: &mut Exchange,
    ) {
        let is_attempt = |known: &OffPath| matches!(known.purpose, Purpose::Migrate | Purpose::Preferred);
        if let Some(earlier) = self.list.iter().position(is_attempt) {
            self.forget(paths, earlier, exchange);
        }
        let index = self.add(paths, paths[0].id, addresses, Purpose::Migrate, remote_id, exchange);
        self.list[index].validation.start(now, FIRST_INTERVAL);
    }

    /// Probes the server's preferred address of the path's family, and moves the only path there once it
    /// responds (RFC 9000, section 9.6.1), unless the application moves it elsewhere.
    pub(super) fn begin_move_to_preferred(
        &mut self,
        now: Instant,
        paths: &[SendPath],
        preferred: &PreferredAddresses,
        remote_id: ConnectionId,
        exchange: &mut Exchange,
    ) {
        let [path] = paths else { return };
        let Some(remote) = preferred.instead_of(path.link.addresses.remote) else { return };
        let addresses = Addresses { remote, ..path.link.addresses };
        if self.is_id_in_use(paths, remote_id) {
            return;
        }
        let index = self.add(paths, path.id, addresses, Purpose::Preferred, remote_id, exchange);
        self.list[index].validation.start(now, FIRST_INTERVAL);
    }

    // ── Timers ───────────────────────────────────────────────────────────────────────────────────────────────────────

    /// When [`on_timeout`](Self::on_timeout) must run.
    pub(super) fn timeout(&self) -> Option<Instant> {
        self.list.iter().filter_map(|known| known.validation.timeout()).min()
    }

    /// Repeats challenges, and gives up an address that a path has left.
    pub(super) fn on_timeout(&mut self, now: Instant, paths: &[SendPath], exchange: &mut Exchange) {
        let mut index = 0;
        while let Some(known) = self.list.get_mut(index) {
            let path = paths.iter().find(|path| path.id == known.path);
            let former = path.and_then(|path| path.link.former.as_deref());
            let challenges_max = match known.purpose {
                // The path may still return to it, with the connection ID that belongs to it.
                Purpose::Former if former.is_some_and(|former| former.addresses == known.addresses) => u8::MAX,
                Purpose::Former => CHALLENGES_TO_FORMER_MAX,
                Purpose::Preferred => CHALLENGES_TO_PREFERRED_MAX,
                Purpose::Respond | Purpose::Unanswered | Purpose::Migrate => u8::MAX,
            };
            let is_over =
                known.validation.on_timeout(now, self.side) && known.validation.unanswered() >= challenges_max;
            if is_over {
                self.forget(paths, index, exchange);
            } else {
                index += 1;
            }
        }
    }
}

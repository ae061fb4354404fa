//! The paths of a connection: their identifiers, connection IDs and ends (multipath draft-21,
//! section 3).
//!
//! Path IDs are never used twice. Each side limits the path IDs of the other (MAX_PATH_ID), and a
//! path can be opened once both have issued a connection ID for it. Only clients open paths. The
//! connection IDs of the first path are kept in [`Control`](super::Control), as those of a
//! connection with a single path; this module keeps those of the others.

use std::collections::VecDeque;

use units::{Duration, Instant};
use wire::quic::{ConnectionId, ErrorCode, PathId, Side};

use super::ids::{LocalIds, REMOTE_IDS_MAX, RemoteIds};
use super::{CLOSE_PTOS, Control, RouteChange};
use crate::error::TransportError;
use crate::event::{Event, Events};
use crate::exchange::{Exchange, MultipathFrame, ToReceive, ToSend};
use crate::send::frames::ControlFrame;
use crate::send::path::Addresses;
use crate::stats::PathState;

/// The most paths of one connection, so that a search through them stays cheap.
pub const PATHS_MAX: u32 = 32;

const _: () = assert!(PATHS_MAX as usize <= scheduler::PATHS_MAX, "every path can be chosen");

/// Control's state of all paths.
#[derive(Debug)]
pub(super) struct Paths {
    /// The highest path ID that the peer may use, and the highest that we may use.
    local_max: u32,
    peer_max: u32,
    /// How many paths there may be at a time.
    count_max: u32,
    /// The lowest path ID for which we have issued no connection ID, and the next one that a client
    /// opens.
    next_issued: u32,
    next_opened: u32,
    /// All but the first, ascending.
    others: Vec<OtherPath>,
    /// How far the first path is abandoned.
    first_end: End,
    first_is_forgotten: bool,
    /// The peer's latest PATH_STATUS of the first path.
    first_status: Option<(u64, bool)>,
    /// Paths that the application has requested and the peer's limits do not allow yet.
    requested: VecDeque<(Addresses, bool)>,
    /// The limit of our last PATHS_BLOCKED, and the path of our last PATH_CIDS_BLOCKED.
    paths_blocked_at: Option<u32>,
    cids_blocked_at: Option<u32>,
}

/// A path after the first, open or not.
#[derive(Debug)]
struct OtherPath {
    id: PathId,
    local: LocalIds,
    remote: RemoteIds,
    is_open: bool,
    end: End,
    /// The lowest number received in the present key phase.
    phase_from: Option<u64>,
    /// The peer's latest PATH_STATUS, which may come before the path is open: its sequence number,
    /// and whether it is available.
    peers_status: Option<(u64, bool)>,
}

impl OtherPath {
    fn is_peers_backup(&self) -> bool {
        self.peers_status.is_some_and(|(_, available)| !available)
    }
}

/// How far a path is abandoned.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct End {
    /// We have sent PATH_ABANDON.
    abandon_sent: bool,
    /// Both sides have, and the path is forgotten at this time (section 3.4: three probe timeouts
    /// later).
    forget_at: Option<Instant>,
}

/// Why a path was not opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenPathError {
    /// Servers open none (multipath draft-21, section 3).
    NotClient,
    /// Multipath was not negotiated, or only one path is configured: see
    /// [`TransportConfig::max_paths`](crate::TransportConfig::max_paths).
    Unsupported,
    /// The handshake is not confirmed: [`Event::Confirmed`] reports when it is.
    TooEarly,
    /// As many paths as allowed are open or requested.
    TooMany,
    /// The peer allows no other path to the address of the handshake (multipath draft-21, section
    /// 2.2).
    Forbidden,
    /// The connection is over.
    Closed,
}

impl OpenPathError {
    /// All of them.
    pub(crate) const ALL: [Self; 6] =
        [Self::NotClient, Self::Unsupported, Self::TooEarly, Self::TooMany, Self::Forbidden, Self::Closed];
}

impl std::fmt::Display for OpenPathError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::NotClient => "only the side that connected opens paths",
            Self::Unsupported => "the peer takes no second path",
            Self::TooEarly => "no path can be opened before the handshake is confirmed",
            Self::TooMany => "as many paths as there may be are open",
            Self::Forbidden => "the peer takes no second path to this address",
            Self::Closed => "the connection is closed",
        })
    }
}

impl std::error::Error for OpenPathError {}

impl Paths {
    /// Multipath was negotiated: we allow path IDs up to `local_max`, the peer up to `peer_max`.
    pub(super) fn new(local_max: u32, peer_max: u32) -> Self {
        Self {
            local_max,
            peer_max,
            count_max: local_max + 1,
            next_issued: 1,
            next_opened: 1,
            others: Vec::new(),
            first_end: End::default(),
            first_is_forgotten: false,
            first_status: None,
            requested: VecDeque::new(),
            paths_blocked_at: None,
            cids_blocked_at: None,
        }
    }

    pub(super) fn local_max(&self) -> PathId {
        PathId(self.local_max)
    }

    fn get_mut(&mut self, id: PathId) -> Option<&mut OtherPath> {
        self.others.iter_mut().find(|path| path.id == id)
    }

    /// The entry of `id`, made if it is new; none if the path was forgotten.
    fn get_or_new(&mut self, id: PathId) -> Option<&mut OtherPath> {
        let at = match self.others.binary_search_by_key(&id, |path| path.id) {
            Ok(at) => at,
            // IDs are used in order, so an unknown one below the next was forgotten.
            Err(_) if id.0 < self.next_issued => return None,
            Err(at) => {
                let path = OtherPath {
                    id,
                    local: LocalIds::default(),
                    remote: RemoteIds::default(),
                    is_open: false,
                    end: End::default(),
                    phase_from: None,
                    peers_status: None,
                };
                self.others.insert(at, path);
                at
            }
        };
        Some(&mut self.others[at])
    }

    /// Every connection ID of ours that is in use.
    pub(super) fn local_ids(&self) -> impl Iterator<Item = ConnectionId> + '_ {
        self.others.iter().flat_map(|path| path.local.iter())
    }

    /// When [`Control::on_path_timeout`] has something to do.
    pub(super) fn timeout(&self) -> Option<Instant> {
        let others = self.others.iter().filter(|path| self.can_forget(path.id)).map(|path| path.end);
        others.chain([self.first_end]).filter_map(|end| end.forget_at).min()
    }

    /// Whether an abandoned path may be forgotten. One that could not be opened yet stays known:
    /// otherwise it would seem new and be abandoned once more.
    fn can_forget(&self, id: PathId) -> bool {
        id.0 < self.next_issued
    }

    /// How many paths are open. Abandoned ones do not count, although they are not forgotten yet:
    /// another may be requested in their place at once, and waits for its ID.
    fn open_count(&self) -> usize {
        let is_open = |path: &&OtherPath| path.is_open && !path.end.abandon_sent;
        self.others.iter().filter(is_open).count() + usize::from(!self.first_end.abandon_sent)
    }

    /// Moves on to the next ID that a client may open: those that were abandoned before they were
    /// used are skipped (section 3.4).
    fn skip_abandoned(&mut self) {
        while self.next_opened < self.next_issued {
            let next = self.others.iter().find(|path| path.id.0 == self.next_opened);
            if next.is_some_and(|path| path.end == End::default()) {
                return;
            }
            self.next_opened += 1;
        }
    }
}

impl Control {
    /// Our side of the handshake is complete: multipath begins, if both sides have offered it.
    pub(super) fn begin_multipath(&mut self, exchange: &mut Exchange) {
        let Some(peer_max) = self.peer_max_path.filter(|_| self.config.max_paths > 0) else { return };
        self.paths = Some(Box::new(Paths::new(self.config.max_paths - 1, peer_max.0)));
        exchange.to_send.push_back(ToSend::Multipath);
    }

    /// Whether multipath was negotiated.
    pub(crate) fn is_multipath(&self) -> bool {
        self.paths.is_some()
    }

    /// The highest path ID that the peer may name, if it may name any.
    pub(crate) fn max_path(&self) -> Option<PathId> {
        self.paths.as_ref().map(|paths| paths.local_max())
    }

    /// The path that packets to `id` belong to. `None`: no ID of ours.
    pub(crate) fn path_of_id(&self, id: &[u8]) -> Option<PathId> {
        if self.local_ids.contains(id) {
            return Some(PathId::ZERO);
        }
        let paths = self.paths.as_ref()?;
        paths.others.iter().find(|path| path.local.contains(id)).map(|path| path.id)
    }

    /// As [`path_of_id`](Self::path_of_id), for an ID that is not a slice of a datagram.
    pub(crate) fn path_of_own_id(&self, id: &ConnectionId) -> Option<PathId> {
        let holds = |local: &LocalIds| local.iter().any(|active| active == *id);
        if holds(&self.local_ids) {
            return Some(PathId::ZERO);
        }
        let paths = self.paths.as_ref()?;
        paths.others.iter().find(|path| holds(&path.local)).map(|path| path.id)
    }

    /// Our connection IDs that are in use, and the paths they belong to.
    pub(crate) fn ids(&self) -> impl Iterator<Item = (ConnectionId, PathId)> + '_ {
        let first = self.local_ids.iter().map(|id| (id, PathId::ZERO));
        let others = self.paths.iter().flat_map(|paths| paths.others.iter());
        first.chain(others.flat_map(|path| path.local.iter().map(|id| (id, path.id))))
    }

    /// The lowest number received on a path after the first in the present key phase.
    pub(super) fn phase_from_of(&self, path: PathId) -> Option<u64> {
        self.paths.as_ref()?.others.iter().find(|known| known.id == path)?.phase_from
    }

    pub(super) fn lower_phase_from(&mut self, path: PathId, number: u64) {
        if let Some(known) = self.paths.as_mut().and_then(|paths| paths.get_mut(path)) {
            known.phase_from = Some(known.phase_from.map_or(number, |known| known.min(number)));
        }
    }

    /// Another key phase begins.
    pub(super) fn forget_phase_from(&mut self) {
        if let Some(paths) = &mut self.paths {
            paths.others.iter_mut().for_each(|path| path.phase_from = None);
        }
    }

    /// Whether packets of `path` are accepted: it is open, or the peer may open it and we could
    /// answer.
    pub(crate) fn takes_packets_of(&self, path: PathId) -> bool {
        if path == PathId::ZERO {
            return true;
        }
        let known = self.paths.as_ref().and_then(|paths| paths.others.iter().find(|known| known.id == path));
        known.is_some_and(|known| known.is_open || (self.side == Side::Server && known.remote.current().is_some()))
    }

    /// An authentic packet came on a path: the client has opened it, if it is new.
    pub(crate) fn on_packet_of(
        &mut self,
        path: PathId,
        addresses: Addresses,
        exchange: &mut Exchange,
        events: &mut Events,
    ) {
        let side = self.side;
        let Some(known) = self.paths.as_mut().and_then(|paths| paths.get_mut(path)) else { return };
        if known.is_open || side != Side::Server || known.end != End::default() {
            return;
        }
        let Some(remote_id) = known.remote.current() else { return };
        known.is_open = true;
        let is_peers_backup = known.is_peers_backup();
        exchange.to_send.push_back(ToSend::OpenPath { path, addresses, remote_id, is_backup: false, is_peers_backup });
        events.push(Event::PathOpened(path));
        self.issue_path_ids(exchange);
    }

    /// The application requests another path. `is_handshake_address` says that it leads to the
    /// address of the handshake.
    pub(crate) fn request_path(
        &mut self,
        addresses: Addresses,
        is_backup: bool,
        is_handshake_address: bool,
    ) -> Result<(), OpenPathError> {
        if !self.is_open() {
            return Err(OpenPathError::Closed);
        }
        if self.side != Side::Client {
            return Err(OpenPathError::NotClient);
        }
        if !self.is_confirmed() {
            return Err(OpenPathError::TooEarly);
        }
        let paths = self.paths.as_mut().ok_or(OpenPathError::Unsupported)?;
        if is_handshake_address && self.peer_disables_migration {
            return Err(OpenPathError::Forbidden);
        }
        let open = paths.open_count() + paths.requested.len();
        if open as u32 >= paths.count_max {
            return Err(if paths.count_max == 1 { OpenPathError::Unsupported } else { OpenPathError::TooMany });
        }
        paths.requested.push_back((addresses, is_backup));
        Ok(())
    }

    /// Opens requested paths as far as both sides' connection IDs allow.
    pub(crate) fn open_requested(&mut self, exchange: &mut Exchange, events: &mut Events) {
        let Some(paths) = &mut self.paths else { return };
        while let Some(&(addresses, is_backup)) = paths.requested.front() {
            paths.skip_abandoned();
            let next = PathId(paths.next_opened);
            let ready = paths.others.iter_mut().find(|path| path.id == next);
            let Some(path) = ready.filter(|path| path.local.len() > 0 && path.remote.current().is_some()) else {
                break;
            };
            let remote_id = path.remote.current().expect("checked above");
            path.is_open = true;
            paths.next_opened += 1;
            paths.requested.pop_front();
            let is_peers_backup = path.is_peers_backup();
            exchange.to_send.push_back(ToSend::OpenPath {
                path: next,
                addresses,
                remote_id,
                is_backup,
                is_peers_backup,
            });
            if is_backup {
                // The first PATH_STATUS of the path; later ones have higher sequence numbers.
                let frame = ControlFrame::PathStatus { path: next, sequence: 0, available: false };
                exchange.to_send.push_back(ToSend::Control(frame));
            }
            events.push(Event::PathOpened(next));
        }
        if !paths.requested.is_empty()
            && paths.next_opened > paths.peer_max
            && paths.paths_blocked_at != Some(paths.peer_max)
        {
            paths.paths_blocked_at = Some(paths.peer_max);
            exchange.to_send.push_back(ToSend::Control(ControlFrame::PathsBlocked(PathId(paths.peer_max))));
        }
        // The limit allows it, and the peer has issued no connection ID (section 4.8).
        let next = paths.next_opened;
        if !paths.requested.is_empty()
            && next <= paths.peer_max.min(paths.local_max)
            && paths.cids_blocked_at != Some(next)
        {
            paths.cids_blocked_at = Some(next);
            let frame = ControlFrame::PathCidsBlocked { path: PathId(next), next_sequence: 0 };
            exchange.to_send.push_back(ToSend::Control(frame));
        }
        self.issue_path_ids(exchange);
    }

    /// Issues connection IDs: one for each path that could be opened, so that no round trip is
    /// lost, and a spare one for each open path (section 3.2.1).
    pub(super) fn issue_path_ids(&mut self, exchange: &mut Exchange) {
        let Some(paths) = &mut self.paths else { return };
        let limit = paths.local_max.min(paths.peer_max);
        while paths.next_issued <= limit {
            let id = PathId(paths.next_issued);
            // The peer may have issued a connection ID for this path before.
            let known = paths.get_or_new(id).is_some();
            debug_assert!(known, "a path without issued IDs was not forgotten");
            paths.next_issued += 1;
        }
        let peer_keeps = self.peer_id_limit.min(REMOTE_IDS_MAX);
        for path in paths.others.iter_mut().filter(|path| path.end == End::default() && path.id.0 <= limit) {
            let wanted = if path.is_open { peer_keeps } else { 1 };
            while path.local.len() < wanted {
                let id = self.secrets.connection_id();
                let reset_token = self.secrets.reset_token(&id);
                let sequence = path.local.issue(id);
                self.routes.push_back(RouteChange::Add(id));
                let path = Some(path.id);
                let frame = ControlFrame::NewConnectionId { path, sequence, retire_prior_to: 0, id, reset_token };
                exchange.to_send.push_back(ToSend::Control(frame));
            }
        }
    }

    /// A connection ID of the peer's, for any path (section 4.4).
    pub(super) fn on_new_id(
        &mut self,
        path: PathId,
        new: (u64, u64, ConnectionId, [u8; 16]),
        exchange: &mut Exchange,
        events: &mut Events,
    ) -> Result<(), TransportError> {
        let (sequence, retire_prior_to, id, reset_token) = new;
        // Unique within the connection, whatever the path (section 3.2.1).
        let elsewhere = self
            .paths
            .as_ref()
            .is_some_and(|paths| paths.others.iter().any(|other| other.id != path && other.remote.contains(id)));
        if elsewhere || (path != PathId::ZERO && self.remote_ids.contains(id)) {
            return Err(TransportError::violation("a connection ID was issued for two paths"));
        }
        let named = self.is_multipath().then_some(path);
        let ids = if path == PathId::ZERO {
            if self.paths.as_ref().is_some_and(|paths| paths.first_end.abandon_sent) {
                return Ok(());
            }
            &mut self.remote_ids
        } else {
            let Some(known) = self.paths.as_mut().and_then(|paths| paths.get_or_new(path)) else { return Ok(()) };
            if known.end.abandon_sent {
                return Ok(());
            }
            &mut known.remote
        };
        let change = ids.on_new(sequence, retire_prior_to, id, reset_token)?;
        for sequence in change.retired {
            let frame = ControlFrame::RetireConnectionId { path: named, sequence };
            exchange.to_send.push_back(ToSend::Control(frame));
        }
        if let Some(id) = change.current {
            exchange.to_send.push_back(ToSend::RemoteId { path, id });
        }
        self.open_requested(exchange, events);
        Ok(())
    }

    /// RETIRE_CONNECTION_ID and PATH_RETIRE_CONNECTION_ID (section 4.5).
    pub(super) fn on_retired_id(
        &mut self,
        path: PathId,
        sequence: u64,
        exchange: &mut Exchange,
    ) -> Result<(), TransportError> {
        if path == PathId::ZERO {
            if let Some(id) = self.local_ids.retire(sequence)? {
                self.routes.push_back(RouteChange::Remove(id));
                if !self.paths.as_ref().is_some_and(|paths| paths.first_end.abandon_sent) {
                    self.issue_ids(exchange);
                }
            }
            return Ok(());
        }
        let Some(known) = self.paths.as_mut().and_then(|paths| paths.get_mut(path)) else { return Ok(()) };
        if let Some(id) = known.local.retire(sequence)? {
            self.routes.push_back(RouteChange::Remove(id));
        }
        self.issue_path_ids(exchange);
        Ok(())
    }

    /// The other frames about paths.
    pub(super) fn on_multipath(
        &mut self,
        now: Instant,
        frame: MultipathFrame,
        pto: Duration,
        exchange: &mut Exchange,
        events: &mut Events,
    ) -> Result<(), TransportError> {
        let Some(paths) = &mut self.paths else { return Ok(()) };
        match frame {
            MultipathFrame::Abandon { path, code } => return self.on_abandoned(now, path, code, pto, exchange, events),
            MultipathFrame::Status { path, sequence, available } => {
                let latest = match path {
                    PathId::ZERO => &mut paths.first_status,
                    path => match paths.get_or_new(path) {
                        Some(known) => &mut known.peers_status,
                        None => return Ok(()),
                    },
                };
                // One with a lower sequence number is outdated (section 4.3).
                if latest.is_none_or(|(latest, _)| sequence > latest) {
                    *latest = Some((sequence, available));
                    exchange.to_send.push_back(ToSend::PeersStatus { path, available });
                }
            }
            MultipathFrame::MaxPathId(max) => {
                if self.peer_max_path.is_some_and(|initial| max < initial) {
                    return Err(TransportError::violation("a lower path limit than the one of the handshake"));
                }
                // The limit never decreases (section 4.6).
                paths.peer_max = paths.peer_max.max(max.0);
                self.issue_path_ids(exchange);
                self.open_requested(exchange, events);
            }
            // Our limit is the configured one, and IDs are issued as soon as they can be.
            MultipathFrame::PathsBlocked(_) => {}
            MultipathFrame::PathCidsBlocked { path, next_sequence } => {
                let next = match path {
                    PathId::ZERO => Some(self.local_ids.next_sequence()),
                    path if path.0 >= paths.next_issued => Some(0),
                    // Frames about a forgotten path may be late and are no error (section 4).
                    path => paths.get_mut(path).map(|known| known.local.next_sequence()),
                };
                if next.is_some_and(|next| next_sequence > next) {
                    return Err(TransportError::violation("a connection ID is missed that was never announced"));
                }
            }
        }
        Ok(())
    }

    /// The peer abandons a path: so do we (section 3.4).
    fn on_abandoned(
        &mut self,
        now: Instant,
        path: PathId,
        code: u64,
        pto: Duration,
        exchange: &mut Exchange,
        events: &mut Events,
    ) -> Result<(), TransportError> {
        tracing::debug!(%path, code, "the peer abandons a path");
        self.mark_abandoned(path, code, exchange, events);
        let Some(paths) = &mut self.paths else { return Ok(()) };
        let end = match path {
            PathId::ZERO if paths.first_is_forgotten => return Ok(()),
            PathId::ZERO => &mut paths.first_end,
            path => match paths.get_mut(path) {
                Some(known) => &mut known.end,
                None => return Ok(()),
            },
        };
        // Late packets of the path are still accepted and acknowledged for a while.
        end.forget_at.get_or_insert(now + pto * CLOSE_PTOS);
        if paths.open_count() == 0 {
            return Err(TransportError::new(ErrorCode::NO_ERROR, "the peer gave up the last path"));
        }
        Ok(())
    }

    /// Abandons a path; false if there is no such path or it is the last one.
    pub(crate) fn abandon_path(
        &mut self,
        path: PathId,
        code: u64,
        exchange: &mut Exchange,
        events: &mut Events,
    ) -> bool {
        let Some(paths) = &self.paths else { return false };
        let is_open = |other: &OtherPath| other.is_open && !other.end.abandon_sent;
        // The peer must not get a PATH_ABANDON for a path that it does not know.
        if path != PathId::ZERO && !paths.others.iter().any(|other| other.id == path && is_open(other)) {
            return false;
        }
        let others = paths.others.iter().filter(|other| other.id != path && is_open(other)).count();
        let first = usize::from(path != PathId::ZERO && !paths.first_end.abandon_sent);
        if others + first == 0 {
            return false;
        }
        self.mark_abandoned(path, code, exchange, events)
    }

    fn mark_abandoned(&mut self, path: PathId, code: u64, exchange: &mut Exchange, events: &mut Events) -> bool {
        let Some(paths) = &mut self.paths else { return false };
        let end = match path {
            PathId::ZERO => &mut paths.first_end,
            path => match paths.get_or_new(path) {
                Some(known) => &mut known.end,
                None => return false,
            },
        };
        if std::mem::replace(&mut end.abandon_sent, true) {
            return false;
        }
        exchange.to_send.push_back(ToSend::AbandonPath(path));
        exchange.to_send.push_back(ToSend::Control(ControlFrame::PathAbandon { path, code }));
        events.push(Event::PathState(path, PathState::Abandoned));
        true
    }

    /// Forgets paths that both sides have abandoned, and lets the peer open as many new ones.
    pub(super) fn on_path_timeout(&mut self, now: Instant, exchange: &mut Exchange) {
        let Some(paths) = &mut self.paths else { return };
        let is_over = |end: End| end.forget_at.is_some_and(|at| at <= now);
        let next_issued = paths.next_issued;
        let mut forgotten = 0;
        if is_over(paths.first_end) {
            // The number space of the first path remains.
            paths.first_end.forget_at = None;
            paths.first_is_forgotten = true;
            let ids: Vec<_> = self.local_ids.drain().collect();
            self.routes.extend(ids.into_iter().map(RouteChange::Remove));
            forgotten += 1;
        }
        for over in paths.others.extract_if(.., |path| is_over(path.end) && path.id.0 < next_issued) {
            self.routes.extend(over.local.iter().map(RouteChange::Remove));
            exchange.to_send.push_back(ToSend::ForgetPath(over.id));
            exchange.to_receive.push_back(ToReceive::ForgetPath(over.id));
            forgotten += 1;
        }
        if forgotten > 0 {
            // Saturates after 2^32 paths.
            paths.local_max = paths.local_max.saturating_add(forgotten);
            exchange.to_send.push_back(ToSend::Control(ControlFrame::MaxPathId(PathId(paths.local_max))));
            self.issue_path_ids(exchange);
        }
    }
}

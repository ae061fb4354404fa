//! The paths of a connection: their identifiers, connection IDs and ends (multipath draft-21,
//! section 3).
//!
//! Path IDs are never used twice. Each side limits the path IDs of the other (MAX_PATH_ID), and a
//! path can be opened once both have issued a connection ID for it. Only clients open paths. The
//! connection IDs of the first path are kept in [`Control`](super::Control), as those of a
//! connection with a single path; this module keeps those of the others.
//!
//! `open` opens paths, `connection_ids` issues and retires their connection IDs, and `abandon`
//! abandons and forgets them; `migrate` moves the only path of a connection.

mod abandon;
mod connection_ids;
pub(crate) mod migrate;
pub(crate) mod open;

use std::collections::VecDeque;

use units::{Duration, Instant};
use wire::quic::{ConnectionId, PathId};

use super::Control;
use super::ids::{LocalIds, RemoteIds};
use crate::addresses::Addresses;
use crate::error::TransportError;
use crate::event::Events;
use crate::exchange::{Exchange, MultipathFrame, ToPath, ToSend};

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

    /// The lowest number received on a path after the first in the present key phase.
    pub(super) fn phase_from_of(&self, path: PathId) -> Option<u64> {
        self.others.iter().find(|known| known.id == path)?.phase_from
    }

    pub(super) fn lower_phase_from(&mut self, path: PathId, number: u64) {
        if let Some(known) = self.get_mut(path) {
            known.phase_from = Some(known.phase_from.map_or(number, |known| known.min(number)));
        }
    }

    /// Another key phase begins.
    pub(super) fn forget_phase_from(&mut self) {
        self.others.iter_mut().for_each(|path| path.phase_from = None);
    }

    /// PATH_STATUS.
    fn on_status(&mut self, path: PathId, sequence: u64, available: bool, exchange: &mut Exchange) {
        let latest = match path {
            PathId::ZERO => &mut self.first_status,
            path => match self.get_or_new(path) {
                Some(known) => &mut known.peers_status,
                None => return,
            },
        };
        // One with a lower sequence number is outdated (section 4.3).
        if latest.is_none_or(|(latest, _)| sequence > latest) {
            *latest = Some((sequence, available));
            exchange.to_send.push_back(ToSend::Path(ToPath::PeersStatus { path, available }));
        }
    }

    /// Every connection ID of ours that is in use.
    pub(super) fn local_ids(&self) -> impl Iterator<Item = ConnectionId> + '_ {
        self.others.iter().flat_map(|path| path.local.iter())
    }
}

impl Control {
    /// Whether multipath was negotiated.
    pub(crate) fn is_multipath(&self) -> bool {
        self.paths.is_some()
    }

    /// The highest path ID that the peer may name, if it may name any.
    pub(crate) fn max_path(&self) -> Option<PathId> {
        self.paths.as_ref().map(|paths| paths.local_max())
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
            MultipathFrame::Abandon { path, code } => {
                return paths.on_abandoned(now, path, code, pto, exchange, events);
            }
            MultipathFrame::Status { path, sequence, available } => {
                paths.on_status(path, sequence, available, exchange);
            }
            MultipathFrame::MaxPathId(max) => {
                if self.peer.max_path.is_some_and(|initial| max < initial) {
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
                    PathId::ZERO => Some(self.ids.local.next_sequence()),
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
}

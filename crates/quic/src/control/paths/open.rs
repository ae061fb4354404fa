//! Opening paths: requests of the application, and packets on paths that the client has opened.

use wire::quic::{PathId, Side};

use super::{End, OtherPath, Paths};
use crate::addresses::Addresses;
use crate::control::Control;
use crate::event::{Event, Events};
use crate::exchange::{Exchange, ToPath, ToSend};
use crate::send::frames::ControlFrame;

/// Why a path was not opened, and whose decision that was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenPathError {
    /// This side is the server, and servers open none (multipath draft-21, section 3).
    NotClient,
    /// Multipath was not negotiated, because one of the two sides does not offer it, or this side
    /// allows a single path: see
    /// [`TransportConfig::max_paths`](crate::TransportConfig::max_paths).
    Unsupported,
    /// The handshake is not confirmed: [`Event::Confirmed`] reports when it is.
    TooEarly,
    /// As many paths as this side allows are open or requested, or too many requests wait.
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
            Self::NotClient => "this side accepted the connection, and only the side that connected opens paths",
            Self::Unsupported => "one of the two sides allows no second path: set max_paths above 1 on both",
            Self::TooEarly => "the handshake is not confirmed yet: request the path again when it is",
            Self::TooMany => "this side has as many paths as its max_paths allows: abandon one or raise it",
            Self::Forbidden => {
                "the peer allows no second path to the address of the handshake: use another one, or raise its max_paths"
            }
            Self::Closed => "the connection is closed",
        })
    }
}

impl std::error::Error for OpenPathError {}

/// The reason why a requested path waits. It is opened when the reason is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PathWait {
    /// The peer's limit: it must allow more paths (multipath draft-21, section 4.6). If its
    /// `max_paths` is smaller than ours, that happens only when a path is abandoned.
    PeerLimit,
    /// The peer must issue a connection ID for the path (section 4.7), which it does as soon as it
    /// can.
    ConnectionId,
    /// A path that was abandoned must be forgotten on this side (section 3.4), some round trips
    /// later.
    Abandoned,
}

impl std::fmt::Display for PathWait {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::PeerLimit => "the peer allows no more paths: raise its max_paths or abandon a path",
            Self::ConnectionId => "the peer has issued no connection ID for the path yet",
            Self::Abandoned => "this side still remembers a path that was abandoned a moment ago",
        })
    }
}

impl Paths {
    /// How many paths are open. Abandoned ones do not count, although they are not forgotten yet:
    /// another may be requested in their place at once, and waits for its ID.
    pub(super) fn open_count(&self) -> usize {
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

    /// Opens requested paths as far as both sides' connection IDs allow.
    fn open_requested(&mut self, exchange: &mut Exchange, events: &mut Events) {
        while let Some(&(addresses, is_backup)) = self.requested.front() {
            self.skip_abandoned();
            let next = PathId(self.next_opened);
            let ready = self.others.iter_mut().find(|path| path.id == next);
            let Some(path) = ready.filter(|path| path.local.len() > 0 && path.remote.current().is_some()) else {
                break;
            };
            let remote_id = path.remote.current().expect("checked above");
            path.is_open = true;
            self.next_opened += 1;
            self.requested.pop_front();
            let is_peers_backup = path.is_peers_backup();
            exchange.to_send.push_back(ToSend::Path(ToPath::Open {
                path: next,
                addresses,
                remote_id,
                is_backup,
                is_peers_backup,
            }));
            if is_backup {
                // The first PATH_STATUS of the path; later ones have higher sequence numbers.
                let frame = ControlFrame::PathStatus { path: next, sequence: 0, available: false };
                exchange.to_send.push_back(ToSend::Control(frame));
            }
            events.push(Event::PathOpened(next));
        }
        self.report_blocked(exchange);
    }

    /// Tells the peer what keeps requested paths from being opened.
    fn report_blocked(&mut self, exchange: &mut Exchange) {
        if !self.requested.is_empty()
            && self.next_opened > self.peer_max
            && self.paths_blocked_at != Some(self.peer_max)
        {
            self.paths_blocked_at = Some(self.peer_max);
            exchange.to_send.push_back(ToSend::Control(ControlFrame::PathsBlocked(PathId(self.peer_max))));
        }
        // The limit allows it, and the peer has issued no connection ID (section 4.7).
        let next = self.next_opened;
        if !self.requested.is_empty() && next <= self.peer_max.min(self.local_max) && self.cids_blocked_at != Some(next)
        {
            self.cids_blocked_at = Some(next);
            let frame = ControlFrame::PathCidsBlocked { path: PathId(next), next_sequence: 0 };
            exchange.to_send.push_back(ToSend::Control(frame));
        }
    }
}

impl Control {
    /// Our side of the handshake is complete: multipath begins, if both sides have offered it.
    pub(in crate::control) fn begin_multipath(&mut self, exchange: &mut Exchange) {
        let Some(peer_max) = self.peer.max_path.filter(|_| self.config.max_paths > 0) else { return };
        self.paths = Some(Box::new(Paths::new(self.config.max_paths - 1, peer_max.0)));
        exchange.to_send.push_back(ToSend::Multipath);
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
        exchange.to_send.push_back(ToSend::Path(ToPath::Open {
            path,
            addresses,
            remote_id,
            is_backup: false,
            is_peers_backup,
        }));
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
        if is_handshake_address && self.peer.disables_migration {
            return Err(OpenPathError::Forbidden);
        }
        let open = paths.open_count() + paths.requested.len();
        if open as u32 >= paths.count_max {
            return Err(if paths.count_max == 1 { OpenPathError::Unsupported } else { OpenPathError::TooMany });
        }
        paths.requested.push_back((addresses, is_backup));
        Ok(())
    }

    /// The reason why the path requested last waits. `None` if no requested path waits.
    pub(crate) fn path_wait(&self) -> Option<PathWait> {
        let paths = self.paths.as_ref()?;
        // Paths are opened in the order of the requests.
        let earlier = paths.requested.len().checked_sub(1)? as u32;
        Some(match paths.next_opened.saturating_add(earlier) {
            id if id > paths.peer_max => PathWait::PeerLimit,
            id if id > paths.local_max => PathWait::Abandoned,
            _ => PathWait::ConnectionId,
        })
    }

    /// Opens requested paths as far as both sides' connection IDs allow.
    pub(crate) fn open_requested(&mut self, exchange: &mut Exchange, events: &mut Events) {
        if let Some(paths) = &mut self.paths {
            paths.open_requested(exchange, events);
            self.issue_path_ids(exchange);
        }
    }
}

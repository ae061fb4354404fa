//! The connection IDs of paths: which path a packet belongs to, and which IDs both sides issue.

use wire::quic::{ConnectionId, PathId};

use crate::control::Control;
use crate::control::identifiers::{IdSource, Identifiers};
use crate::control::ids::{LocalIds, REMOTE_IDS_MAX, RemoteIds, RouteChange};
use crate::error::TransportError;
use crate::event::Events;
use crate::exchange::{Exchange, ToPath, ToSend};
use crate::send::frames::ControlFrame;

use super::{End, Paths};

impl Paths {
    /// Issues connection IDs: one for each path that could be opened, so that no round trip is
    /// lost, and a spare one for each open path (section 3.2.1).
    pub(in crate::control) fn issue_ids(
        &mut self,
        ids: &mut Identifiers,
        source: &mut IdSource<'_>,
        exchange: &mut Exchange,
    ) {
        let limit = self.local_max.min(self.peer_max);
        while self.next_issued <= limit {
            let id = PathId(self.next_issued);
            // The peer may have issued a connection ID for this path before.
            let known = self.get_or_new(id).is_some();
            debug_assert!(known, "a path without issued IDs was not forgotten");
            self.next_issued += 1;
        }
        let peer_keeps = ids.peer_limit.min(REMOTE_IDS_MAX);
        for path in self.others.iter_mut().filter(|path| path.end == End::default() && path.id.0 <= limit) {
            let wanted = if path.is_open { peer_keeps } else { 1 };
            while path.local.len() < wanted {
                source.issue(Some(path.id), &mut path.local, &mut ids.routes, exchange);
            }
        }
    }

    /// The peer's connection IDs for a path, to which it adds one; none if the path is abandoned.
    fn remote_of<'a>(&'a mut self, path: PathId, ids: &'a mut Identifiers) -> Option<&'a mut RemoteIds> {
        let (end, remote) = match path {
            PathId::ZERO => (self.first_end, &mut ids.remote),
            path => {
                let known = self.get_or_new(path)?;
                (known.end, &mut known.remote)
            }
        };
        (!end.abandon_sent).then_some(remote)
    }
}

impl Control {
    /// The path that packets to `id` belong to. `None`: no ID of ours.
    pub(crate) fn path_of_id(&self, id: &[u8]) -> Option<PathId> {
        if self.ids.local.contains(id) {
            return Some(PathId::ZERO);
        }
        let paths = self.paths.as_ref()?;
        paths.others.iter().find(|path| path.local.contains(id)).map(|path| path.id)
    }

    /// As [`path_of_id`](Self::path_of_id), for an ID that is not a slice of a datagram.
    pub(crate) fn path_of_own_id(&self, id: &ConnectionId) -> Option<PathId> {
        let holds = |local: &LocalIds| local.iter().any(|active| active == *id);
        if holds(&self.ids.local) {
            return Some(PathId::ZERO);
        }
        let paths = self.paths.as_ref()?;
        paths.others.iter().find(|path| holds(&path.local)).map(|path| path.id)
    }

    /// Our connection IDs that are in use, and the paths they belong to.
    pub(crate) fn ids(&self) -> impl Iterator<Item = (ConnectionId, PathId)> + '_ {
        let first = self.ids.local.iter().map(|id| (id, PathId::ZERO));
        let others = self.paths.iter().flat_map(|paths| paths.others.iter());
        first.chain(others.flat_map(|path| path.local.iter().map(|id| (id, path.id))))
    }

    /// A connection ID of the peer's, for any path (section 4.4).
    pub(in crate::control) fn on_new_id(
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
        if elsewhere || (path != PathId::ZERO && self.ids.remote.contains(id)) {
            return Err(TransportError::violation("a connection ID was issued for two paths"));
        }
        let named = self.is_multipath().then_some(path);
        let ids = match &mut self.paths {
            Some(paths) => paths.remote_of(path, &mut self.ids),
            None => (path == PathId::ZERO).then_some(&mut self.ids.remote),
        };
        let Some(ids) = ids else { return Ok(()) };
        let change = ids.on_new(sequence, retire_prior_to, id, reset_token)?;
        for sequence in change.retired {
            let frame = ControlFrame::RetireConnectionId { path: named, sequence };
            exchange.to_send.push_back(ToSend::Control(frame));
        }
        if let Some(id) = change.current {
            exchange.to_send.push_back(ToSend::Path(ToPath::RemoteId { path, id }));
        }
        self.open_requested(exchange, events);
        Ok(())
    }

    /// RETIRE_CONNECTION_ID and PATH_RETIRE_CONNECTION_ID (section 4.5).
    pub(in crate::control) fn on_retired_id(
        &mut self,
        path: PathId,
        sequence: u64,
        exchange: &mut Exchange,
    ) -> Result<(), TransportError> {
        if path == PathId::ZERO {
            if let Some(id) = self.ids.local.retire(sequence)? {
                self.ids.routes.push_back(RouteChange::Remove(id));
                if !self.paths.as_ref().is_some_and(|paths| paths.first_end.abandon_sent) {
                    self.issue_ids(exchange);
                }
            }
            return Ok(());
        }
        let Some(known) = self.paths.as_mut().and_then(|paths| paths.get_mut(path)) else { return Ok(()) };
        if let Some(id) = known.local.retire(sequence)? {
            self.ids.routes.push_back(RouteChange::Remove(id));
        }
        self.issue_path_ids(exchange);
        Ok(())
    }
}

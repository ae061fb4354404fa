//! The connection IDs of paths: which path a packet belongs to, and which IDs both sides issue.

use wire::quic::{ConnectionId, PathId};

use crate::control::Control;
use crate::control::ids::RouteChange;
use crate::control::ids::{LocalIds, REMOTE_IDS_MAX};
use crate::error::TransportError;
use crate::event::Events;
use crate::exchange::{Exchange, ToPath, ToSend};
use crate::send::frames::ControlFrame;

use super::End;

impl Control {
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

    /// Issues connection IDs: one for each path that could be opened, so that no round trip is
    /// lost, and a spare one for each open path (section 3.2.1).
    pub(in crate::control) fn issue_path_ids(&mut self, exchange: &mut Exchange) {
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
                let reset_token = self.session.reset_token(&self.secrets, &id);
                let sequence = path.local.issue(id);
                self.routes.push_back(RouteChange::Add(id));
                let path = Some(path.id);
                let frame = ControlFrame::NewConnectionId { path, sequence, retire_prior_to: 0, id, reset_token };
                exchange.to_send.push_back(ToSend::Control(frame));
            }
        }
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
}

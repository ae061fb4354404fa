//! The connection IDs of a connection: those of its first path, the reset tokens of the peer's IDs in use,
//! and what the endpoint routes to the connection.

use wire::quic::{ConnectionId, PathId, Side, TransportParameters};

use super::ids::{LocalIds, RemoteIds, ResetToken, RouteChange, first_routes};
use crate::exchange::{Exchange, ToSend};
use crate::journal::session::AnySession;
use crate::queue::Queue;
use crate::secret::SecretSource;
use crate::send::frames::ControlFrame;

/// The identifiers of a connection.
pub(super) struct Identifiers {
    /// Ours and the peer's of the first path.
    pub(super) local: LocalIds,
    pub(super) remote: RemoteIds,
    /// How many of ours the peer keeps.
    pub(super) peer_limit: u64,
    /// The peer's first Source Connection ID, once known.
    pub(super) peer_first: Option<ConnectionId>,
    /// The destination of the client's first packet, which the server's transport parameters must
    /// repeat. At a server that has sent a Retry packet, of the packet that responds to it.
    pub(super) original_destination: ConnectionId,
    /// The source of the server's Retry packet, if there was one.
    pub(super) retry_source: Option<Box<ConnectionId>>,
    /// The reset tokens of the peer's IDs in use.
    pub(super) reset_tokens: Vec<ResetToken>,
    pub(super) routes: Queue<RouteChange>,
}

/// The IDs that a connection begins with.
pub(super) struct FirstIds {
    pub(super) local: ConnectionId,
    /// For the preferred address of a server.
    pub(super) preferred: Option<ConnectionId>,
    pub(super) remote: ConnectionId,
    pub(super) original_destination: ConnectionId,
}

/// Makes connection IDs of ours, and their reset tokens.
pub(super) struct IdSource<'a> {
    pub(super) secrets: &'a mut SecretSource,
    pub(super) session: &'a mut AnySession,
}

impl IdSource<'_> {
    fn make(&mut self) -> (ConnectionId, ResetToken) {
        let id = self.secrets.connection_id();
        (id, self.session.reset_token(self.secrets, &id))
    }

    /// Adds one to `local` and the routes, and announces it to the peer. `path` is set if multipath was
    /// negotiated.
    pub(super) fn issue(
        &mut self,
        path: Option<PathId>,
        local: &mut LocalIds,
        routes: &mut Queue<RouteChange>,
        exchange: &mut Exchange,
    ) {
        let (id, reset_token) = self.make();
        let sequence = local.issue(id);
        routes.push_back(RouteChange::Add(id));
        let frame = ControlFrame::NewConnectionId { path, sequence, retire_prior_to: 0, id, reset_token };
        exchange.to_send.push_back(ToSend::Control(frame));
    }
}

impl Identifiers {
    pub(super) fn new(side: Side, first: &FirstIds) -> Self {
        let mut local = LocalIds::new(first.local);
        if let Some(id) = first.preferred {
            local.issue(id);
        }
        Self {
            local,
            remote: RemoteIds::new(first.remote),
            peer_limit: TransportParameters::default().active_connection_id_limit,
            peer_first: (side == Side::Server).then_some(first.remote),
            original_destination: first.original_destination,
            retry_source: None,
            reset_tokens: Vec::new(),
            routes: first_routes(side, first.local, first.original_destination, first.preferred),
        }
    }

    /// Gives the peer as many IDs of the first path as it keeps.
    pub(super) fn issue(&mut self, path: Option<PathId>, source: &mut IdSource<'_>, exchange: &mut Exchange) {
        for _ in 0..self.local.missing(self.peer_limit) {
            source.issue(path, &mut self.local, &mut self.routes, exchange);
        }
    }

    /// The connection IDs of the handshake must be those that TLS has authenticated (RFC 9000, section
    /// 7.3). Returns whether they are.
    pub(super) fn match_parameters(&self, side: Side, parameters: &TransportParameters) -> bool {
        let original = (side == Side::Client).then_some(self.original_destination);
        parameters.initial_source_connection_id == self.peer_first
            && parameters.original_destination_connection_id == original
            && parameters.retry_source_connection_id == self.retry_source.as_deref().copied()
    }

    /// The server's first packet names the ID to use from now on (RFC 9000, section 7.2). False if one has
    /// done so before.
    pub(super) fn on_peer_first(&mut self, id: ConnectionId) -> bool {
        if self.peer_first.is_some() {
            return false;
        }
        self.peer_first = Some(id);
        self.remote.replace_first(id);
        true
    }

    /// Makes these the valid reset tokens.
    pub(super) fn replace_tokens(&mut self, tokens: Vec<ResetToken>) {
        if tokens == self.reset_tokens {
            return;
        }
        let before = std::mem::replace(&mut self.reset_tokens, tokens);
        let gone = before.iter().filter(|token| !self.reset_tokens.contains(token));
        self.routes.extend(gone.copied().map(RouteChange::RemoveReset));
        let new = self.reset_tokens.iter().filter(|token| !before.contains(token));
        self.routes.extend(new.copied().map(RouteChange::AddReset));
    }

    /// The connection is over: no datagram resets it, and nothing is routed to it. `others` are the IDs of
    /// its other paths.
    pub(super) fn end(&mut self, side: Side, others: impl Iterator<Item = ConnectionId>) {
        self.replace_tokens(Vec::new());
        self.routes.extend(self.local.iter().map(RouteChange::Remove));
        self.routes.extend(others.map(RouteChange::Remove));
        // Routed until now, so that a repetition of the client's first packet begins no second
        // connection.
        if side == Side::Server {
            self.routes.push_back(RouteChange::Remove(self.original_destination));
        }
    }

    /// The first path is forgotten: nothing is routed to it.
    pub(super) fn forget_first_path(&mut self) {
        self.routes.extend(self.local.drain().map(RouteChange::Remove));
    }

    /// Frees unused memory.
    pub(super) fn shrink(&mut self) {
        self.routes.shrink();
        self.local.shrink();
        self.remote.shrink();
    }
}

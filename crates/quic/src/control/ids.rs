//! Connection IDs: ours that the peer may use, and the peer's that we may use (RFC 9000, section
//! 5.1).

use std::collections::VecDeque;

use wire::quic::{ConnectionId, ErrorCode, Side};

use crate::error::TransportError;
use crate::queue::Queue;

/// Our active_connection_id_limit: how many of the peer's IDs we keep. One in use and one spare is
/// all that a client needs that does not migrate, and the smallest allowed value (RFC 9000, section
/// 18.2).
pub(crate) const REMOTE_IDS_MAX: u64 = 2;

/// How many of ours the peer may hold, whatever it asks for.
pub(crate) const LOCAL_IDS_MAX: u64 = 4;

/// Sequence numbers remembered of the peer's IDs that this side has retired. Each takes a migration
/// or a probe of the peer, and a frame that issued one is repeated for a few round trips at most.
const RETIRED_IDS_MAX: usize = 16;

/// Length of the IDs we choose, in bytes: too long to guess one.
pub const LOCAL_ID_LEN: usize = 8;

/// A stateless reset token.
pub type ResetToken = [u8; 16];

/// A change of the connection IDs that the endpoint routes to this connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RouteChange {
    /// Route packets with this destination to the connection.
    Add(ConnectionId),
    /// Stop routing them.
    Remove(ConnectionId),
    /// A datagram that ends in this token is a stateless reset of the connection (RFC 9000, section
    /// 10.3.1).
    AddReset(ResetToken),
    /// It is none any more.
    RemoveReset(ResetToken),
}

/// IDs we issued for one path.
#[derive(Debug, Default)]
pub(crate) struct LocalIds {
    /// Sequence number and ID, ascending.
    active: VecDeque<(u64, ConnectionId)>,
    next_sequence: u64,
}

impl LocalIds {
    /// Starts with the ID of the handshake, number zero.
    pub(crate) fn new(first: ConnectionId) -> Self {
        Self { active: [(0, first)].into(), next_sequence: 1 }
    }

    /// The number of the next one.
    pub(crate) fn next_sequence(&self) -> u64 {
        self.next_sequence
    }

    /// How many the peer may use.
    pub(crate) fn len(&self) -> u64 {
        self.active.len() as u64
    }

    pub(crate) fn contains(&self, id: &[u8]) -> bool {
        self.active.iter().any(|(_, active)| active.as_slice() == id)
    }

    /// How many more to issue to a peer that keeps `peer_limit`.
    pub(crate) fn missing(&self, peer_limit: u64) -> u64 {
        peer_limit.min(LOCAL_IDS_MAX).saturating_sub(self.active.len() as u64)
    }

    /// Adds a new ID and returns its sequence number.
    pub(crate) fn issue(&mut self, id: ConnectionId) -> u64 {
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        self.active.push_back((sequence, id));
        sequence
    }

    /// RETIRE_CONNECTION_ID. Returns the retired ID; none if it was retired before.
    pub(crate) fn retire(&mut self, sequence: u64) -> Result<Option<ConnectionId>, TransportError> {
        if sequence >= self.next_sequence {
            return Err(TransportError::violation("a connection ID was retired that was never issued"));
        }
        let Some(index) = self.active.iter().position(|(active, _)| *active == sequence) else { return Ok(None) };
        Ok(self.active.remove(index).map(|(_, id)| id))
    }

    /// Forgets all of them.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = ConnectionId> + '_ {
        self.active.drain(..).map(|(_, id)| id)
    }

    /// Frees unused memory.
    pub(crate) fn shrink(&mut self) {
        self.active.shrink_to_fit();
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = ConnectionId> + '_ {
        self.active.iter().map(|(_, id)| *id)
    }
}

/// One ID of the peer's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RemoteId {
    sequence: u64,
    id: ConnectionId,
    /// Recognises a stateless reset (RFC 9000, section 10.3).
    reset_token: Option<ResetToken>,
}

/// IDs the peer issued for one path.
#[derive(Debug, Default)]
pub(crate) struct RemoteIds {
    /// Ascending by sequence; the first is in use.
    active: VecDeque<RemoteId>,
    retire_prior_to: u64,
    /// Those above `retire_prior_to` that this side has retired, oldest first. A frame that issued
    /// one may arrive again.
    retired: Queue<u64>,
}

/// The effect of a NEW_CONNECTION_ID.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct RemoteChange {
    /// Sequence numbers to retire.
    pub(crate) retired: Vec<u64>,
    /// The ID to use from now on, if it changed.
    pub(crate) current: Option<ConnectionId>,
}

impl RemoteIds {
    pub(crate) fn new(first: ConnectionId) -> Self {
        let first = RemoteId { sequence: 0, id: first, reset_token: None };
        Self { active: [first].into(), retire_prior_to: 0, retired: Queue::new() }
    }

    /// The ID in use; none on a path for which the peer has issued none.
    pub(crate) fn current(&self) -> Option<ConnectionId> {
        self.active.front().map(|first| first.id)
    }

    pub(crate) fn contains(&self, id: ConnectionId) -> bool {
        self.active.iter().any(|known| known.id == id)
    }

    /// The token of the first ID, from the server's transport parameters (RFC 9000, section 18.2).
    pub(crate) fn set_first_token(&mut self, reset_token: Option<ResetToken>) {
        self.active.front_mut().expect("an ID is always in use").reset_token = reset_token;
    }

    /// The token of an ID, if it has one.
    pub(crate) fn token_of(&self, id: ConnectionId) -> Option<ResetToken> {
        self.active.iter().find(|known| known.id == id)?.reset_token
    }

    /// An ID for another address than the one `in_use` belongs to.
    pub(crate) fn other_than(&self, in_use: ConnectionId) -> Option<ConnectionId> {
        self.active.iter().map(|known| known.id).find(|id| *id != in_use)
    }

    /// Retires an ID, unless it is the last one. Returns its sequence number.
    pub(crate) fn retire(&mut self, id: ConnectionId) -> Option<u64> {
        let at = self.active.iter().position(|known| known.id == id).filter(|_| self.active.len() > 1)?;
        let sequence = self.active.remove(at)?.sequence;
        if self.retired.len() == RETIRED_IDS_MAX {
            self.retired.pop_front();
        }
        self.retired.push_back(sequence);
        Some(sequence)
    }

    /// Frees unused memory.
    pub(crate) fn shrink(&mut self) {
        self.active.shrink_to_fit();
        self.retired.shrink();
    }

    /// The server chose its own ID in its first packet.
    pub(crate) fn replace_first(&mut self, id: ConnectionId) {
        self.active.front_mut().expect("an ID is always in use").id = id;
    }

    /// NEW_CONNECTION_ID (RFC 9000, section 19.15).
    pub(crate) fn on_new(
        &mut self,
        sequence: u64,
        retire_prior_to: u64,
        id: ConnectionId,
        reset_token: [u8; 16],
    ) -> Result<RemoteChange, TransportError> {
        if self.current().is_some_and(|id| id.is_empty()) {
            return Err(TransportError::violation("a new connection ID from a peer that uses none"));
        }
        let before = self.current();
        let mut change = RemoteChange::default();
        let new = RemoteId { sequence, id, reset_token: Some(reset_token) };
        if let Some(known) = self.active.iter().find(|known| known.sequence == sequence || known.id == id) {
            if *known != new {
                return Err(TransportError::violation("a connection ID was issued twice with different content"));
            }
        } else if self.retired.iter().any(|retired| *retired == sequence) {
            // Retired by this side; the frame was repeated.
        } else if sequence < self.retire_prior_to {
            // Retired before it was known: say so once (section 19.15).
            change.retired.push(sequence);
        } else {
            let at = self.active.partition_point(|known| known.sequence < sequence);
            self.active.insert(at, new);
        }
        if retire_prior_to > self.retire_prior_to {
            self.retire_prior_to = retire_prior_to;
            while let Some(first) = self.active.front()
                && first.sequence < retire_prior_to
            {
                change.retired.push(first.sequence);
                self.active.pop_front();
            }
        }
        if self.active.is_empty() {
            return Err(TransportError::violation("every connection ID was retired"));
        }
        if self.active.len() as u64 > REMOTE_IDS_MAX {
            return Err(TransportError::new(ErrorCode::CONNECTION_ID_LIMIT_ERROR, "more connection IDs than we keep"));
        }
        change.current = self.current().filter(|current| before != Some(*current));
        Ok(change)
    }
}

/// The IDs that are routed to a new connection: ours, and that for the preferred address of a server.
pub(super) fn first_routes(
    side: Side,
    local_id: ConnectionId,
    original_destination: ConnectionId,
    preferred_id: Option<ConnectionId>,
) -> Queue<RouteChange> {
    let mut routes = Queue::new();
    routes.push_back(RouteChange::Add(local_id));
    if side == Side::Server {
        // Until the client knows our ID, it uses the one that it chose at random.
        routes.push_back(RouteChange::Add(original_destination));
    }
    if let Some(id) = preferred_id {
        routes.push_back(RouteChange::Add(id));
    }
    routes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(byte: u8) -> ConnectionId {
        ConnectionId::new(&[byte; 8]).unwrap()
    }

    #[test]
    fn retiring_the_id_in_use_moves_to_the_next() {
        let mut ids = RemoteIds::new(id(0));
        assert_eq!(ids.on_new(1, 0, id(1), [1; 16]), Ok(RemoteChange::default()));
        let change = ids.on_new(2, 1, id(2), [2; 16]).unwrap();
        assert_eq!(change, RemoteChange { retired: vec![0], current: Some(id(1)) });
        assert_eq!(ids.current(), Some(id(1)));
    }

    #[test]
    fn too_many_and_contradicting_ids_are_refused() {
        let mut ids = RemoteIds::new(id(0));
        for sequence in 1..REMOTE_IDS_MAX {
            ids.on_new(sequence, 0, id(sequence as u8), [0; 16]).unwrap();
        }
        assert_eq!(ids.on_new(1, 0, id(1), [0; 16]), Ok(RemoteChange::default()), "a repetition is harmless");
        assert_eq!(ids.on_new(1, 0, id(9), [0; 16]).unwrap_err().code, ErrorCode::PROTOCOL_VIOLATION);
        let error = ids.on_new(4, 0, id(4), [0; 16]).unwrap_err();
        assert_eq!(error.code, ErrorCode::CONNECTION_ID_LIMIT_ERROR);
    }

    #[test]
    fn an_id_that_arrives_after_its_retirement_is_retired_at_once() {
        let mut ids = RemoteIds::new(id(0));
        ids.on_new(5, 5, id(5), [0; 16]).unwrap();
        assert_eq!(ids.on_new(2, 0, id(2), [0; 16]).unwrap().retired, [2]);
    }

    #[test]
    fn only_issued_ids_can_be_retired() {
        let mut ids = LocalIds::new(id(0));
        assert_eq!(ids.missing(8), LOCAL_IDS_MAX - 1);
        assert_eq!(ids.issue(id(1)), 1);
        assert_eq!(ids.retire(0), Ok(Some(id(0))));
        assert_eq!(ids.retire(0), Ok(None));
        assert!(ids.retire(2).is_err());
    }
}

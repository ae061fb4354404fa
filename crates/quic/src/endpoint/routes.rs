//! Which connection a datagram belongs to.

use wire::quic::{ConnectionId, MIN_INITIAL_SIZE, PacketType, Parsed, destination, parse_packet};

use super::{ConnectionKey, Endpoint, FIRST_DESTINATION_LEN_MIN, Route};
use crate::control::ids::{LOCAL_ID_LEN, RouteChange};
use crate::open::{RESET_LEN_MIN, trailer_of};
use crate::secret::shard_of;
use crate::unsealed::Unsealed;

impl Endpoint {
    /// The destination of a datagram, by its first bytes.
    pub fn route(&self, datagram: &[u8]) -> Route {
        let destination = destination(datagram, LOCAL_ID_LEN);
        let id = destination.as_ref().and_then(|destination| ConnectionId::new(destination.dcid));
        if let Some(key) = id.and_then(|id| self.routes.get(&id)) {
            return Route::Known(*key);
        }
        // Other versions might reset with a long header (RFC 9000, section 10.3).
        if let Some(key) = self.route_reset(datagram) {
            return Route::Known(key);
        }
        let Some(destination) = destination else { return Route::Unknown };
        if !destination.is_long {
            return self.route_forgotten(datagram, destination.dcid);
        }
        if !self.is_listening() || datagram.len() < MIN_INITIAL_SIZE {
            return Route::Unknown;
        }
        match parse_packet(datagram, LOCAL_ID_LEN) {
            Ok(Parsed::Protected(header)) if !self.config.versions.accepts(header.version) => Route::UnknownVersion,
            Ok(Parsed::Protected(header))
                if header.ty == PacketType::Initial && header.dcid.len() >= FIRST_DESTINATION_LEN_MIN =>
            {
                Route::First
            }
            // Only datagrams large enough to begin a connection are answered (RFC 9000, section
            // 6.1).
            Ok(Parsed::UnknownVersion { .. }) => Route::UnknownVersion,
            _ => Route::Unknown,
        }
    }

    /// The connection that a datagram resets.
    fn route_reset(&self, datagram: &[u8]) -> Option<ConnectionKey> {
        let trailer = trailer_of(datagram).filter(|_| !self.resets.is_empty())?;
        self.resets.get(&self.secrets.disguised(&trailer)).copied()
    }

    /// The destination of a datagram with a short header and an unknown connection ID: it may deserve
    /// a stateless reset.
    fn route_forgotten(&self, datagram: &[u8], id: &[u8]) -> Route {
        // Without a key that outlives it, an endpoint could reset only what it has closed itself.
        let is_ours = self.secrets.has_reset_key() && self.secrets.is_of_shard(id);
        if is_ours && datagram.len() > RESET_LEN_MIN { Route::Forgotten } else { Route::Unknown }
    }

    /// As [`route`](Self::route), for a datagram that was not sealed.
    pub fn route_unsealed(&self, unsealed: &Unsealed, datagram: usize) -> Route {
        if let Some(id) = unsealed.destination(datagram) {
            return self.routes.get(id).map_or(Route::Unknown, |key| Route::Known(*key));
        }
        let mut bytes = Vec::new();
        unsealed.seal_datagram(datagram, &mut bytes);
        self.route(&bytes)
    }

    /// Which of `count` endpoints behind one address has made the connection ID of a datagram
    /// ([`SecretSource::split_for`](crate::SecretSource::split_for)). None for the first datagrams of a client, whose ID is random:
    /// they begin a connection at the endpoint where they arrive.
    pub fn shard_of(datagram: &[u8], count: usize) -> Option<usize> {
        let destination = destination(datagram, LOCAL_ID_LEN)?;
        (destination.dcid.len() == LOCAL_ID_LEN).then(|| shard_of(destination.dcid, count))?
    }

    /// Applies a connection's [`RouteChange`].
    pub fn apply(&mut self, key: ConnectionKey, change: RouteChange) {
        match change {
            RouteChange::Add(id) => {
                self.routes.insert(id, key);
            }
            RouteChange::Remove(id) => {
                // Two clients may have chosen the same first destination: only the owner's entry is
                // removed.
                if self.routes.get(&id) == Some(&key) {
                    self.routes.remove(&id);
                }
            }
            RouteChange::AddReset(token) => {
                self.resets.insert(self.secrets.disguised(&token), key);
            }
            RouteChange::RemoveReset(token) => {
                let disguised = self.secrets.disguised(&token);
                // Two peers may have chosen the same token.
                if self.resets.get(&disguised) == Some(&key) {
                    self.resets.remove(&disguised);
                }
            }
        }
    }

    /// Removes every route to a connection that was dropped without its changes. Searches all
    /// routes.
    pub fn forget(&mut self, key: ConnectionKey) {
        self.routes.retain(|_, known| *known != key);
        self.resets.retain(|_, known| *known != key);
    }

    /// How many connection IDs and reset tokens are routed.
    pub fn route_count(&self) -> usize {
        self.routes.len() + self.resets.len()
    }
}

//! The client's side: tokens are kept for later connections to the same server.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use wire::quic::Version;

/// Servers whose tokens are kept, at most; beyond it those of the server that gave none for longest
/// are dropped.
pub const SERVERS_MAX: usize = 256;

/// Tokens that are kept for one server, at most: the newest. Two let two connections begin at about
/// the same time.
pub const TOKENS_PER_SERVER_MAX: usize = 2;

/// The longest token that is kept, or repeated after a Retry packet, bytes. With a longer one no
/// Initial packet of 1200 bytes would have space for a useful part of the first flight. Tokens of
/// other implementations have about a hundred.
pub const TOKEN_LEN_MAX: usize = 800;

/// Tokens of one connection that are recognised when they come again, because the server believed
/// them lost (RFC 9000, section 19.7).
const RECOGNISED_MAX: usize = 4;

/// The server that a token is for: no other gets it (RFC 9000, section 8.1.3).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerId {
    /// The name for TLS.
    pub name: String,
    /// The address to which the client connects.
    pub address: SocketAddr,
    /// The version of QUIC: tokens of a connection are for those that begin in its version (RFC 9369,
    /// section 5).
    pub version: Version,
}

/// The address validation tokens that servers have given to this client, in memory. Each is used for
/// one connection.
///
/// A server recognises the client by a token, even if it changes its address (RFC 9000, section
/// 8.1.3): a client that does not want that uses none.
#[derive(Debug, Default)]
pub struct TokenMemory {
    /// The latest first.
    servers: Mutex<VecDeque<(ServerId, VecDeque<Vec<u8>>)>>,
}

impl TokenMemory {
    /// An empty memory.
    pub fn new() -> Self {
        Self::default()
    }

    fn servers(&self) -> MutexGuard<'_, VecDeque<(ServerId, VecDeque<Vec<u8>>)>> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a token. One that is too long, or known, is ignored.
    pub fn insert(&self, server: &ServerId, token: &[u8]) {
        if token.is_empty() || token.len() > TOKEN_LEN_MAX {
            return;
        }
        let mut servers = self.servers();
        let known = servers.iter().position(|(known, _)| known == server);
        let (id, mut tokens) = known.and_then(|at| servers.remove(at)).unwrap_or((server.clone(), VecDeque::new()));
        if !tokens.iter().any(|known| known == token) {
            tokens.push_front(token.to_vec());
            tokens.truncate(TOKENS_PER_SERVER_MAX);
        }
        servers.push_front((id, tokens));
        servers.truncate(SERVERS_MAX);
    }

    /// The newest token for a server, which is forgotten.
    pub fn take(&self, server: &ServerId) -> Option<Vec<u8>> {
        let mut servers = self.servers();
        let at = servers.iter().position(|(known, _)| known == server)?;
        let token = servers[at].1.pop_front();
        if servers[at].1.is_empty() {
            servers.remove(at);
        }
        token
    }
}

/// Where a connection puts the tokens of its server.
#[derive(Debug)]
pub(crate) struct ReceivedTokens {
    memory: Arc<TokenMemory>,
    server: ServerId,
    recent: VecDeque<Bytes>,
}

impl ReceivedTokens {
    pub(crate) fn new(memory: Arc<TokenMemory>, server: ServerId) -> Self {
        Self { memory, server, recent: VecDeque::new() }
    }

    /// A NEW_TOKEN frame. One that comes again may belong to a token that was used meanwhile.
    pub(crate) fn on_token(&mut self, version: Version, token: &Bytes) {
        if token.len() > TOKEN_LEN_MAX || self.recent.contains(token) {
            return;
        }
        self.recent.push_front(Bytes::copy_from_slice(token));
        self.recent.truncate(RECOGNISED_MAX);
        self.server.version = version;
        self.memory.insert(&self.server, token);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(port: u16) -> ServerId {
        ServerId { name: "server".to_owned(), address: SocketAddr::from(([192, 0, 2, 1], port)), version: Version::V1 }
    }

    #[test]
    fn a_token_is_for_one_server_and_one_connection() {
        let memory = TokenMemory::new();
        memory.insert(&server(1), b"one");
        let other = ServerId { name: "another".to_owned(), ..server(1) };
        assert_eq!((memory.take(&server(2)), memory.take(&other)), (None, None));
        assert_eq!(memory.take(&server(1)), Some(b"one".to_vec()));
        assert_eq!(memory.take(&server(1)), None);
    }

    #[test]
    fn the_newest_tokens_are_kept_and_memory_is_bounded() {
        let memory = TokenMemory::new();
        for token in [&b"one"[..], b"two", b"three", b"three", &[0; TOKEN_LEN_MAX + 1], b""] {
            memory.insert(&server(1), token);
        }
        let taken: Vec<_> = std::iter::from_fn(|| memory.take(&server(1))).collect();
        assert_eq!(taken, [b"three".to_vec(), b"two".to_vec()]);

        for port in 0..=SERVERS_MAX as u16 {
            memory.insert(&server(port), b"token");
        }
        assert_eq!(memory.servers().len(), SERVERS_MAX);
        assert_eq!(memory.take(&server(0)), None, "the oldest");
        assert!(memory.take(&server(1)).is_some());
    }

    #[test]
    fn a_repeated_frame_does_not_bring_back_a_used_token() {
        let memory = Arc::new(TokenMemory::new());
        let mut received = ReceivedTokens::new(Arc::clone(&memory), server(1));
        received.on_token(Version::V1, &Bytes::from_static(b"token"));
        assert!(memory.take(&server(1)).is_some());
        received.on_token(Version::V1, &Bytes::from_static(b"token"));
        assert_eq!(memory.take(&server(1)), None);
    }
}

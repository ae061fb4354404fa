//! The interface between QUIC and TLS (RFC 9001), and the keys that TLS provides.
//!
//! [`tls`] is the real implementation, by rustls and aws-lc-rs. [`deterministic`] is for tests and
//! simulation: same seed, same bytes, no secrecy. No crate above this one can use the second one on
//! a network.
//!
//! Keys are plain `Send + Sync` values behind `Arc`, so that any stage on any processor can hold
//! them.

pub mod deterministic;
pub mod retry;
pub mod tls;
pub mod versions;

use std::fmt;
use std::sync::Arc;

use wire::quic::{ConnectionId, PathId, Side, Version};

use crate::error::TransportError;
use crate::spaces::Vacant;
pub use versions::{HandshakeVersions, Versions};

/// Length of the authentication tag of every AEAD that QUIC v1 allows, in bytes (RFC 9001, section
/// 5.3).
pub const TAG_LEN: usize = 16;

/// The packet did not authenticate: wrong key, corrupted or forged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenFailed;

/// Seals or opens the payload of packets (RFC 9001, section 5.3; the multipath nonce of draft 21,
/// section 2.4).
pub trait PacketKey: Send + Sync {
    /// Encrypts `payload` in place and returns the tag to append. `header` is authenticated with
    /// it.
    fn seal(&self, path: PathId, number: u64, header: &[u8], payload: &mut [u8]) -> [u8; TAG_LEN];

    /// Decrypts `payload` (which ends in the tag) in place and returns the length of the plaintext
    /// at its front.
    ///
    /// # Errors
    /// [`OpenFailed`] if the tag does not match; `payload` is then garbage, except for the tag: it
    /// may be the token of a stateless reset (RFC 9000, section 10.3).
    fn open(&self, path: PathId, number: u64, header: &[u8], payload: &mut [u8]) -> Result<usize, OpenFailed>;

    /// Packets that may be sealed with this key (RFC 9001, section 6.6).
    fn confidentiality_limit(&self) -> u64;

    /// Packets that may fail to open before the connection must close (RFC 9001, section 6.6).
    fn integrity_limit(&self) -> u64;
}

/// Masks the first byte and the packet number (RFC 9001, section 5.4).
pub trait HeaderKey: Send + Sync {
    /// Applies protection. `sample` has 16 bytes, `number` at most 4.
    fn protect(&self, sample: &[u8], first: &mut u8, number: &mut [u8]);

    /// Removes protection. `number` holds 4 bytes, of which the first byte says how many count.
    fn unprotect(&self, sample: &[u8], first: &mut u8, number: &mut [u8]);
}

/// One direction's keys at one level.
#[derive(Clone)]
pub struct DirectionKeys {
    /// Header protection: never changes with a key update (RFC 9001, section 6).
    pub header: Arc<dyn HeaderKey>,
    /// Packet protection.
    pub packet: Arc<dyn PacketKey>,
}

impl fmt::Debug for DirectionKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DirectionKeys")
    }
}

impl Vacant for Option<DirectionKeys> {
    fn vacant() -> &'static Self {
        &None
    }
}

/// Both directions' keys at one level.
#[derive(Clone, Debug)]
pub struct LevelKeys {
    /// For what we send.
    pub seal: DirectionKeys,
    /// For what we receive.
    pub open: DirectionKeys,
}

/// Both directions' packet keys of one key phase.
pub struct PhaseKeys {
    /// For what we send.
    pub seal: Arc<dyn PacketKey>,
    /// For what we receive.
    pub open: Arc<dyn PacketKey>,
}

/// New keys, in the order in which the handshake makes them.
#[derive(Debug)]
pub enum NewKeys {
    /// For Handshake packets.
    Handshake(LevelKeys),
    /// For 1-RTT packets.
    OneRtt(LevelKeys),
}

/// One side of a handshake.
pub trait Session: Send {
    /// Takes the next bytes of the peer's CRYPTO stream, at the present level.
    ///
    /// # Errors
    /// A failure caused by the peer, with the CRYPTO_ERROR code to send (RFC 9001, section 4.8).
    fn handle_crypto(&mut self, bytes: &[u8]) -> Result<(), TransportError>;

    /// Appends bytes to send at the current level to `out`. When keys come back, everything
    /// appended so far belongs to the level before them; call again for what follows.
    fn poll_crypto(&mut self, out: &mut Vec<u8>) -> Option<NewKeys>;

    /// The packet keys of the key phase after the present one; the same ones until
    /// [`advance_phase`](Self::advance_phase), so that they need not be kept. Only once 1-RTT keys
    /// exist.
    fn next_phase(&self) -> PhaseKeys;

    /// The next phase has become the present one, in both directions.
    fn advance_phase(&mut self);

    /// The peer's transport parameters as they came, once TLS has them.
    fn peer_parameters(&self) -> Option<&[u8]>;

    /// True until our side of the TLS handshake is complete.
    fn is_handshaking(&self) -> bool;

    /// The peer's certificate chain or raw public key, leaf first, as it was authenticated; empty
    /// if there is none.
    fn peer_identity(&self) -> Vec<Vec<u8>>;

    /// Keying material that only the two sides can compute (RFC 8446, section 7.5).
    ///
    /// # Errors
    /// While the handshake is not complete, and once the session is parked.
    fn export(&self, label: &[u8], context: &[u8], out: &mut [u8]) -> Result<(), ExportError>;

    /// The negotiated parameters, for people.
    fn summary(&self) -> SessionSummary;

    /// As [`SessionFactory::initial_keys`], for a client that a Retry packet gives another
    /// destination connection ID, and for a change of the version. None if the session cannot derive
    /// them: Retry packets are ignored then.
    fn initial_keys(&self, id: &ConnectionId, version: Version) -> Option<LevelKeys> {
        let _ = (id, version);
        None
    }

    /// The version of QUIC with whose constants keys are derived. That of a server may change while
    /// it handles the client's hello: see `HandshakeVersions::choose`.
    fn version(&self) -> Version;

    /// The server continues in this version: for clients, before the server's hello is handled. A
    /// session that began with one version alone is never asked.
    fn set_version(&mut self, version: Version) {
        let _ = version;
    }

    /// The keys of 0-RTT packets (RFC 9001, section 4.6). At a client: those that seal them, from the
    /// beginning, if the session continues one whose server takes 0-RTT and the configuration wants
    /// it. At a server: those that open them, once the client's first message has arrived, if the
    /// server takes 0-RTT from this client. None in any other case.
    fn early_keys(&self) -> Option<DirectionKeys> {
        None
    }

    /// For a client with [`early_keys`](Self::early_keys): the server's transport parameters of the
    /// connection that it continues (RFC 9000, section 7.4.1).
    fn remembered_parameters(&self) -> Option<&[u8]> {
        None
    }

    /// For a client with [`early_keys`](Self::early_keys), once the server's transport parameters
    /// are there: whether the server has taken 0-RTT.
    fn is_early_accepted(&self) -> bool {
        false
    }

    /// Frees memory that only the handshake and exporters need, once the handshake is confirmed.
    /// From then on [`export`](Self::export) fails, the peer's identity is forgotten, and CRYPTO
    /// frames of the peer are ignored. The keys of next phases stay available.
    fn park(&mut self) {}
}

/// The negotiated parameters of a handshake.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionSummary {
    /// The AEAD, as TLS names the cipher suite.
    pub cipher_suite: Option<String>,
    /// The key exchange group.
    pub key_exchange: Option<String>,
    /// The application protocol (ALPN).
    pub protocol: Option<Vec<u8>>,
    /// The handshake resumed an earlier session (RFC 8446, section 2.2): the peer proved its identity
    /// then, and not again.
    pub is_resumed: bool,
    /// The version of QUIC.
    pub version: Version,
}

/// Keying material was asked for before the handshake was complete, or after the session was
/// parked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExportError;

impl fmt::Display for ExportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "no keying material can be exported: the handshake is not complete, or the connection is parked (park_after)",
        )
    }
}

impl std::error::Error for ExportError {}

/// Makes sessions for one role.
pub trait SessionFactory: Send + Sync {
    /// A new session that sends `parameters` to the peer, and its version information with them
    /// (RFC 9368) if `versions` are several. `server_name` is meaningful to clients only.
    ///
    /// # Errors
    /// An invalid configuration, in words.
    fn start(
        &self,
        server_name: &str,
        parameters: &[u8],
        versions: HandshakeVersions,
    ) -> Result<Box<dyn Session>, String>;

    /// The keys of Initial packets, derived from the client's first destination connection ID (RFC
    /// 9001, section 5.2).
    fn initial_keys(&self, id: &ConnectionId, side: Side, version: Version) -> LevelKeys;
}

//! The TLS session: rustls with aws-lc-rs.
//!
//! `early` restricts when a server takes 0-RTT, and has the rules for it.

mod early;

mod client_hello;
mod derived;

use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::quic::{self as tls, KeyChange, Suite};
use rustls::{CertificateError, Error, HandshakeKind, HandshakeType, OtherError};
use wire::quic::{ConnectionId, ErrorCode, PathId, Side, Version};

use self::early::ServerConfigs;
use super::{
    DirectionKeys, ExportError, HandshakeVersions, HeaderKey, LevelKeys, NewKeys, OpenFailed, PacketKey, PhaseKeys,
    Session, SessionFactory, SessionSummary, TAG_LEN,
};
use crate::error::TransportError;
use derived::{Capture, Captured, Derivation, Secrets};

/// Makes client sessions from a rustls configuration.
///
/// With [`enable_early_data`](rustls::ClientConfig::enable_early_data) a connection that continues
/// a session may send 0-RTT: see [`Connection::open_early`](crate::Connection::open_early). The
/// store of the configuration's [resumption](rustls::ClientConfig::resumption) bounds how many
/// sessions are remembered, each with the transport parameters of its server.
pub struct TlsClient {
    config: Arc<rustls::ClientConfig>,
    initial: Suite,
}

/// Makes server sessions from a rustls configuration.
///
/// It takes 0-RTT if [`max_early_data_size`](rustls::ServerConfig::max_early_data_size) is
/// `u32::MAX`, the only value besides zero that QUIC allows (RFC 9001, section 4.6.1). 0-RTT data
/// can be replayed. What protects the server (RFC 8446, section 8):
///
/// - A session is continued once: the [session storage](rustls::ServerConfig::session_storage)
///   forgets a ticket when it gives it out, and all servers that share the tickets must share the
///   storage. Stateless tickets cannot be used up, so [`new`](Self::new) refuses a
///   [ticketer](rustls::ServerConfig::ticketer) together with 0-RTT.
/// - The ticket's age must be what the client says, to within a minute.
/// - The application learns which streams [may be replayed](crate::Connection::may_be_replayed).
///
/// What they cannot prevent: an attacker that keeps a client's packets from the server may deliver
/// them later, once, instead of the client.
pub struct TlsServer {
    config: Arc<ServerConfigs>,
    initial: Suite,
}

/// AES-128-GCM: the one suite Initial packets use (RFC 9001, section 5.2).
fn initial_suite(provider: &rustls::crypto::CryptoProvider) -> Result<Suite, String> {
    provider
        .cipher_suites
        .iter()
        .find_map(|suite| match (suite.suite(), suite.tls13()) {
            (rustls::CipherSuite::TLS13_AES_128_GCM_SHA256, Some(suite)) => suite.quic_suite(),
            _ => None,
        })
        .ok_or_else(|| "the TLS provider lacks AES-128-GCM, which QUIC's Initial packets need".to_owned())
}

impl TlsClient {
    /// A factory for clients.
    ///
    /// # Errors
    /// If the configuration's provider cannot protect Initial packets.
    pub fn new(config: Arc<rustls::ClientConfig>) -> Result<Self, String> {
        let initial = initial_suite(config.crypto_provider())?;
        Ok(Self { config, initial })
    }
}

impl TlsServer {
    /// A factory for servers.
    ///
    /// # Errors
    /// If the configuration's provider cannot protect Initial packets, or the configuration takes
    /// 0-RTT in a way that QUIC forbids or that could be replayed.
    pub fn new(config: Arc<rustls::ServerConfig>) -> Result<Self, String> {
        let initial = initial_suite(config.crypto_provider())?;
        Ok(Self { config: Arc::new(ServerConfigs::new(config)?), initial })
    }
}

impl SessionFactory for TlsClient {
    fn start(
        &self,
        server_name: &str,
        parameters: &[u8],
        versions: HandshakeVersions,
    ) -> Result<Box<dyn Session>, String> {
        let name = ServerName::try_from(server_name.to_owned())
            .map_err(|_| format!("{server_name:?} is not a host name that TLS can ask for"))?;
        let version = versions.original;
        let parameters = versions.with_information(version, parameters);
        // Only a server that finds another version among those of the client may change it.
        let captured = (versions.versions.list().len() > 1).then(Arc::<Captured>::default);
        let mut config = self.config.clone();
        if let Some(captured) = &captured {
            let log = config.key_log.clone();
            Arc::make_mut(&mut config).key_log = Arc::new(Capture { captured: captured.clone(), log });
        }
        if version != Version::V1 {
            // Sessions of one version must not be continued in another (RFC 9369, section 5), and the
            // configuration's store does not tell them apart.
            Arc::make_mut(&mut config).resumption = rustls::client::Resumption::disabled();
        }
        let inner = tls::ClientConnection::new(config, tls_version(version), name, parameters)
            .map_err(|error| error.to_string())?;
        let first = FirstMessage { bytes: Vec::new(), restart: None };
        Ok(Box::new(TlsSession::new(inner.into(), Side::Client, version, self.initial, first, captured)))
    }

    fn initial_keys(&self, id: &ConnectionId, side: Side, version: Version) -> LevelKeys {
        initial_keys(self.initial, id, side, version)
    }
}

impl SessionFactory for TlsServer {
    fn start(
        &self,
        _server_name: &str,
        parameters: &[u8],
        versions: HandshakeVersions,
    ) -> Result<Box<dyn Session>, String> {
        let restart = Restart { config: self.config.clone(), parameters: parameters.to_vec(), versions };
        let inner = restart.connection(versions.original)?;
        let first = FirstMessage { bytes: Vec::new(), restart: Some(restart) };
        Ok(Box::new(TlsSession::new(inner, Side::Server, versions.original, self.initial, first, None)))
    }

    fn initial_keys(&self, id: &ConnectionId, side: Side, version: Version) -> LevelKeys {
        initial_keys(self.initial, id, side, version)
    }
}

/// What a server begins its session again with, if it continues in another version.
struct Restart {
    config: Arc<ServerConfigs>,
    parameters: Vec<u8>,
    versions: HandshakeVersions,
}

impl Restart {
    fn connection(&self, version: Version) -> Result<tls::Connection, String> {
        let config = self.config.of(version, &self.parameters);
        let parameters = self.versions.with_information(version, &self.parameters);
        tls::ServerConnection::new(config, tls_version(version), parameters)
            .map(Into::into)
            .map_err(|error| error.to_string())
    }
}

fn tls_version(version: Version) -> tls::Version {
    match version {
        Version::V1 => tls::Version::V1,
        Version::V2 => tls::Version::V2,
    }
}

/// Keys of AES-128-GCM without secrecy, for measuring the cost of sealing. They are those of an
/// Initial packet (RFC 9001, section 5.2), which everyone can derive; none if the provider has no
/// such cipher.
pub fn keys_for_measuring() -> Option<LevelKeys> {
    let suite = initial_suite(&rustls::crypto::aws_lc_rs::default_provider()).ok()?;
    Some(initial_keys(suite, &ConnectionId::new(&[0; 8])?, Side::Client, Version::V1))
}

fn initial_keys(suite: Suite, id: &ConnectionId, side: Side, version: Version) -> LevelKeys {
    let side = match side {
        Side::Client => rustls::Side::Client,
        Side::Server => rustls::Side::Server,
    };
    suite.keys(id.as_slice(), side, tls_version(version)).into()
}

struct TlsSession {
    state: TlsState,
    side: Side,
    version: Version,
    /// The secrets of the next key phase; present once 1-RTT keys are.
    secrets: Option<PhaseSecrets>,
    /// The suite of Initial packets.
    initial: Suite,
    /// Of a client that began with another version than the server continues with: the secrets that
    /// rustls made, from which it derives its own keys.
    captured: Option<Arc<Captured>>,
    derives: bool,
}

enum TlsState {
    /// The peer's first message is not complete.
    FirstMessage(Box<tls::Connection>, FirstMessage),
    Live(Box<tls::Connection>),
    /// Only the secrets are left.
    Parked,
}

/// The peer's first message, as far as it has arrived.
struct FirstMessage {
    bytes: Vec<u8>,
    /// At a server.
    restart: Option<Restart>,
}

/// The secrets from which the packet keys of the next key phase follow.
enum PhaseSecrets {
    /// rustls knows the version.
    Tls(tls::Secrets),
    /// Those of the present phase.
    Derived(Derivation, Secrets),
}

/// A hello longer than this goes to rustls in pieces, which refuses it, in bytes.
const FIRST_LEN_MAX: usize = 1 << 16;

/// True if `bytes` hold their first message whole. A hello with a post-quantum key share takes two
/// packets; rustls keeps the buffer that it arrives in for as long as it lives, and one that grows
/// in steps is twice as large as one made at once.
fn is_message_whole(bytes: &[u8]) -> bool {
    // RFC 8446, section 4: a type and a length of 24 bits.
    bytes.first_chunk().is_some_and(|&[_, high, middle, low]| {
        let len = u32::from_be_bytes([0, high, middle, low]) as usize;
        4 + len <= bytes.len() || len > FIRST_LEN_MAX
    })
}

/// True if the peer sent a CertificateRequest in the wrong place.
fn is_certificate_request(error: &Error) -> bool {
    matches!(error, Error::InappropriateHandshakeMessage { got_type: HandshakeType::CertificateRequest, .. })
}

impl TlsSession {
    fn new(
        inner: tls::Connection,
        side: Side,
        version: Version,
        initial: Suite,
        first: FirstMessage,
        captured: Option<Arc<Captured>>,
    ) -> Self {
        let state = TlsState::FirstMessage(Box::new(inner), first);
        Self { state, side, version, secrets: None, initial, captured, derives: false }
    }

    /// The session of a server that has the client's hello: in another version, if the client offers
    /// it and the server prefers it.
    fn continued(&mut self, inner: Box<tls::Connection>, first: &FirstMessage) -> Result<Box<tls::Connection>, String> {
        let Some(restart) = &first.restart else { return Ok(inner) };
        let hello = client_hello::Hello::of(&first.bytes);
        let version = hello.parameters.map_or(self.version, |parameters| restart.versions.choose(parameters));
        // 0-RTT packets have the original version (RFC 9369, section 4.1), and so have their keys.
        if version == self.version || hello.offers_early {
            return Ok(inner);
        }
        self.version = version;
        restart.connection(version).map(Box::new)
    }

    /// Keys derived here in the place of those of rustls, which are for another version.
    fn derived_keys(&mut self, is_one_rtt: bool) -> LevelKeys {
        let suite = self.live().and_then(|inner| inner.negotiated_cipher_suite()).map(|suite| suite.suite());
        let derivation = suite.and_then(|suite| Derivation::new(self.version, suite)).expect("rustls negotiates these");
        let captured = self.captured.as_ref().expect("a client with several versions has it");
        let secrets = if is_one_rtt { captured.take_one_rtt() } else { captured.take_handshake() };
        let secrets = secrets.expect("rustls logs secrets before it makes their keys");
        let keys = derivation.level_keys(&secrets);
        if is_one_rtt {
            self.secrets = Some(PhaseSecrets::Derived(derivation, secrets));
        }
        keys
    }

    fn read(&mut self, bytes: &[u8]) -> Result<(), TransportError> {
        // A parked session can only receive tickets for later connections, and we keep none. One that
        // has changed its version keeps none either: they are for connections that begin in that
        // version (RFC 9369, section 5).
        let TlsState::Live(inner) = &mut self.state else { return Ok(()) };
        if self.derives && !inner.is_handshaking() {
            return Ok(());
        }
        let was_handshaking = inner.is_handshaking();
        inner.read_hs(bytes).map_err(|error| match inner.alert() {
            // QUIC has no authentication of clients after the handshake: a request for it is a
            // PROTOCOL_VIOLATION (RFC 9001, section 4.4), whatever alert TLS has for it.
            Some(alert) if was_handshaking || !is_certificate_request(&error) => {
                TransportError::new(ErrorCode::crypto(alert.into()), describe(&error))
            }
            _ => TransportError::new(ErrorCode::PROTOCOL_VIOLATION, describe(&error)),
        })
    }

    fn live(&self) -> Option<&tls::Connection> {
        match &self.state {
            TlsState::FirstMessage(inner, _) | TlsState::Live(inner) => Some(inner),
            TlsState::Parked => None,
        }
    }
}

impl Session for TlsSession {
    fn handle_crypto(&mut self, bytes: &[u8]) -> Result<(), TransportError> {
        let TlsState::FirstMessage(_, first) = &mut self.state else { return self.read(bytes) };
        first.bytes.extend_from_slice(bytes);
        if !is_message_whole(&first.bytes) {
            return Ok(());
        }
        let TlsState::FirstMessage(inner, first) = std::mem::replace(&mut self.state, TlsState::Parked) else {
            unreachable!("it was just seen");
        };
        if self.side == Side::Server && client_hello::Hello::of(&first.bytes).has_session_id {
            // RFC 9001, section 8.4: QUIC passes no middleboxes that would want one.
            return Err(TransportError::violation("the client asks for the middlebox compatibility mode of TLS"));
        }
        let inner = self.continued(inner, &first);
        self.state = TlsState::Live(inner.map_err(|error| TransportError::new(ErrorCode::INTERNAL_ERROR, error))?);
        self.read(&first.bytes)
    }

    fn poll_crypto(&mut self, out: &mut Vec<u8>) -> Option<NewKeys> {
        let (TlsState::FirstMessage(inner, _) | TlsState::Live(inner)) = &mut self.state else { return None };
        match inner.write_hs(out)? {
            KeyChange::Handshake { .. } if self.derives => Some(NewKeys::Handshake(self.derived_keys(false))),
            KeyChange::OneRtt { .. } if self.derives => Some(NewKeys::OneRtt(self.derived_keys(true))),
            KeyChange::Handshake { keys } => Some(NewKeys::Handshake(keys.into())),
            KeyChange::OneRtt { keys, next } => {
                self.secrets = Some(PhaseSecrets::Tls(next));
                if let Some(captured) = self.captured.take() {
                    captured.clear();
                }
                Some(NewKeys::OneRtt(keys.into()))
            }
        }
    }

    fn next_phase(&self) -> PhaseKeys {
        match self.secrets.as_ref().expect("key updates come after 1-RTT keys") {
            PhaseSecrets::Tls(secrets) => {
                let keys = secrets.clone().next_packet_keys();
                PhaseKeys { seal: Arc::new(TlsPacketKey(keys.local)), open: Arc::new(TlsPacketKey(keys.remote)) }
            }
            PhaseSecrets::Derived(derivation, secrets) => derivation.next_phase(secrets).0,
        }
    }

    fn advance_phase(&mut self) {
        // Advances the secrets. The keys of this phase are in use already.
        match self.secrets.as_mut().expect("key updates come after 1-RTT keys") {
            PhaseSecrets::Tls(secrets) => drop(secrets.next_packet_keys()),
            PhaseSecrets::Derived(derivation, secrets) => *secrets = derivation.next_phase(secrets).1,
        }
    }

    fn peer_parameters(&self) -> Option<&[u8]> {
        let inner = self.live()?;
        // A client that offers a ticket first sees the parameters of the ticket's connection (RFC
        // 9001, section 4.6), and those of this one when the handshake is complete.
        if self.side == Side::Client && inner.is_handshaking() {
            return None;
        }
        inner.quic_transport_parameters()
    }

    fn is_handshaking(&self) -> bool {
        self.live().is_some_and(|inner| inner.is_handshaking())
    }

    fn initial_keys(&self, id: &ConnectionId, version: Version) -> Option<LevelKeys> {
        Some(initial_keys(self.initial, id, self.side, version))
    }

    fn version(&self) -> Version {
        self.version
    }

    fn set_version(&mut self, version: Version) {
        self.derives = version != self.version;
        self.version = version;
    }

    fn peer_identity(&self) -> Vec<Vec<u8>> {
        let certificates = self.live().and_then(|inner| inner.peer_certificates());
        certificates.unwrap_or_default().iter().map(|der| der.as_ref().to_vec()).collect()
    }

    fn export(&self, label: &[u8], context: &[u8], out: &mut [u8]) -> Result<(), ExportError> {
        let inner = self.live().ok_or(ExportError)?;
        inner.export_keying_material(out, label, Some(context)).map(|_| ()).map_err(|_| ExportError)
    }

    fn summary(&self) -> SessionSummary {
        let version = self.version;
        let Some(inner) = self.live() else { return SessionSummary { version, ..SessionSummary::default() } };
        SessionSummary {
            cipher_suite: inner.negotiated_cipher_suite().map(|suite| format!("{:?}", suite.suite())),
            key_exchange: inner.negotiated_key_exchange_group().map(|group| format!("{:?}", group.name())),
            protocol: inner.alpn_protocol().map(<[u8]>::to_vec),
            is_resumed: inner.handshake_kind() == Some(HandshakeKind::Resumed),
            version,
        }
    }

    fn early_keys(&self) -> Option<DirectionKeys> {
        self.live()?.zero_rtt_keys().map(Into::into)
    }

    fn remembered_parameters(&self) -> Option<&[u8]> {
        // Until the handshake is complete, these are the ticket's.
        let inner = self.live().filter(|inner| self.side == Side::Client && inner.is_handshaking())?;
        inner.quic_transport_parameters()
    }

    fn is_early_accepted(&self) -> bool {
        match self.live() {
            Some(tls::Connection::Client(client)) => client.is_early_data_accepted(),
            _ => false,
        }
    }

    fn park(&mut self) {
        self.state = TlsState::Parked;
    }
}

struct TlsPacketKey(Box<dyn tls::PacketKey>);

impl PacketKey for TlsPacketKey {
    fn seal(&self, path: PathId, number: u64, header: &[u8], payload: &mut [u8]) -> [u8; TAG_LEN] {
        let tag = match path {
            PathId::ZERO => self.0.encrypt_in_place(number, header, payload),
            PathId(path) => self.0.encrypt_in_place_for_path(path, number, header, payload),
        };
        let tag = tag.expect("an AEAD refuses only lengths that no datagram has");
        tag.as_ref().try_into().expect("every QUIC AEAD has a tag of 16 bytes")
    }

    fn open(&self, path: PathId, number: u64, header: &[u8], payload: &mut [u8]) -> Result<usize, OpenFailed> {
        let opened = match path {
            PathId::ZERO => self.0.decrypt_in_place(number, header, payload),
            PathId(path) => self.0.decrypt_in_place_for_path(path, number, header, payload),
        };
        opened.map(|plain| plain.len()).map_err(|_| OpenFailed)
    }

    fn confidentiality_limit(&self) -> u64 {
        self.0.confidentiality_limit()
    }

    fn integrity_limit(&self) -> u64 {
        self.0.integrity_limit()
    }
}

struct TlsHeaderKey(Box<dyn tls::HeaderProtectionKey>);

impl HeaderKey for TlsHeaderKey {
    fn protect(&self, sample: &[u8], first: &mut u8, number: &mut [u8]) {
        self.0.encrypt_in_place(sample, first, number).expect("the sample has the length of the cipher's block");
    }

    fn unprotect(&self, sample: &[u8], first: &mut u8, number: &mut [u8]) {
        self.0.decrypt_in_place(sample, first, number).expect("the sample has the length of the cipher's block");
    }
}

impl From<tls::DirectionalKeys> for DirectionKeys {
    fn from(keys: tls::DirectionalKeys) -> Self {
        Self { header: Arc::new(TlsHeaderKey(keys.header)), packet: Arc::new(TlsPacketKey(keys.packet)) }
    }
}

impl From<tls::Keys> for LevelKeys {
    fn from(keys: tls::Keys) -> Self {
        Self { seal: keys.local.into(), open: keys.remote.into() }
    }
}

/// The message of a handshake error. rustls formats several errors of peer authentication with
/// `Debug`; users read this text, so those errors get a message here. A verifier's own error is
/// described by its `Display`.
fn describe(error: &Error) -> String {
    let Error::InvalidCertificate(reason) = error else { return error.to_string() };
    match reason {
        CertificateError::Other(OtherError(own)) => own.to_string(),
        // rustls reports both causes with this error: a certificate whose issuer has the name of a
        // trusted one but another key, and a CertificateVerify that does not match (RFC 8446,
        // 4.4.3).
        CertificateError::BadSignature => "a signature did not verify: the peer's certificate was not signed by the \
            trusted issuer that it names, or the peer does not hold the private key of the public key that it presented"
            .to_owned(),
        CertificateError::BadEncoding => "the peer's public key or certificate is malformed".to_owned(),
        CertificateError::UnknownIssuer => "the issuer of the peer's certificate is not trusted".to_owned(),
        CertificateError::Expired => "the peer's certificate has expired".to_owned(),
        CertificateError::NotValidYet => "the peer's certificate is not valid yet".to_owned(),
        CertificateError::Revoked => "the peer's certificate was revoked".to_owned(),
        CertificateError::NotValidForName => "the peer's certificate is for another name".to_owned(),
        CertificateError::ApplicationVerificationFailure => {
            "the peer's public key or certificate was not accepted".to_owned()
        }
        _ => error.to_string(),
    }
}

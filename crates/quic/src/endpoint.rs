//! Routing of datagrams to connections, and how connections begin.
//!
//! The endpoint owns no connection: the driver does, under keys of its choice, so that connections
//! can live on different processors. The endpoint is the table in front of them.

mod answers;
mod incoming;
mod routes;
mod tokens;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::BytesMut;
use units::{Duration, Ecn, Instant};
use wire::quic::{
    ConnectionId, ErrorCode, MIN_INITIAL_SIZE, PacketType, Parsed, PathId, PreferredAddress, ProtectedHeader, Side,
    TransportParameters, destination, emit_version_negotiation, parse_packet,
};

use crate::address_tokens::memory::ReceivedTokens;
use crate::address_tokens::{ServerId, TokenMemory};
use crate::addresses::Addresses;
use crate::batch_meta::BatchMeta;
use crate::config::TransportConfig;
use crate::connection::Connection;
use crate::control::ids::{LOCAL_ID_LEN, REMOTE_IDS_MAX, ResetToken};
use crate::journal::session::AnySession;
use crate::open::RESET_LEN_MIN;
use crate::secret::SecretSource;
use crate::seed::ConnectionSeed;
use crate::seed::ControlSeed;
use crate::session::{HandshakeVersions, SessionFactory};
pub use incoming::{INCOMING_DATAGRAMS_MAX, Incoming};
use tokens::TokenError;

/// A client's first Destination Connection ID has at least this many bytes (RFC 9000, section 7.2).
const FIRST_DESTINATION_LEN_MIN: usize = 8;

/// Maximum number of stateless resets in each second (RFC 9000, section 10.3, asks for a
/// limit). A restarted server with more clients resets them one after the other, while they probe
/// it. More would let forged packets use more of the uplink.
pub const RESETS_MAX: u32 = 100;
const RESETS_SPAN: Duration = Duration::from_secs(1);

/// The length of a stateless reset unless its trigger is small, bytes: that of a short packet with
/// a connection ID of ours, a packet number of four bytes, and some frames. A packet of at most one
/// byte more gets a reset that is one byte shorter (RFC 9000, section 10.3).
const RESET_LEN: usize = 1 + LOCAL_ID_LEN + 4 + 13 + RESET_TOKEN_LEN;

const RESET_TOKEN_LEN: usize = size_of::<ResetToken>();

/// The driver's key of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionKey(pub u32);

/// The destination of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// To this connection.
    Known(ConnectionKey),
    /// It may begin a connection: try [`Endpoint::accept`].
    First,
    /// To a connection that this endpoint has forgotten: answer with
    /// [`Endpoint::stateless_reset`].
    Forgotten,
    /// It has an unsupported version: answer with [`Endpoint::version_negotiation`].
    UnknownVersion,
    /// Nowhere.
    Unknown,
}

/// When a client must prove, before its connection begins, that it receives packets at its address:
/// the server answers its first packet with a Retry packet and keeps no state (RFC 9000, section
/// 8.1.2). The proof costs the client a round trip.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum AddressValidation {
    /// While the server is busy with clients in the handshake, so that packets with forged
    /// addresses cannot use up its limit of such clients.
    #[default]
    WhenBusy,
    /// Always.
    Always,
    /// Never. The handshake validates the address, as it does in any case.
    Never,
}

/// Why a connection did not begin.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum BeginError {
    /// The configuration is not valid, in words.
    Configuration(String),
    /// This endpoint only connects, it does not accept.
    NotListening,
    /// The datagram begins no connection: too short, wrong kind, or not authentic.
    NotInitial,
    /// The client must prove its address first ([`AddressValidation`]).
    NotValidated {
        /// The Retry packet to send to it.
        retry: Vec<u8>,
    },
    /// The client's proof of its address is not valid.
    InvalidToken {
        /// The packet to send to it, which closes its connection (RFC 9000, section 8.1.2).
        close: Vec<u8>,
    },
}

impl BeginError {
    /// The packet that the client gets, if any.
    pub fn into_answer(self) -> Option<Vec<u8>> {
        match self {
            Self::NotValidated { retry: answer } | Self::InvalidToken { close: answer } => Some(answer),
            Self::Configuration(_) | Self::NotListening | Self::NotInitial => None,
        }
    }
}

impl std::fmt::Display for BeginError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Configuration(message) => f.write_str(message),
            Self::NotListening => f.write_str("this endpoint accepts no connections"),
            Self::NotInitial => f.write_str("the datagram begins no connection"),
            Self::NotValidated { .. } => f.write_str("the client must prove its address first"),
            Self::InvalidToken { .. } => f.write_str("the client's proof of its address is not valid"),
        }
    }
}

impl std::error::Error for BeginError {}

/// Routes datagrams and begins connections.
pub struct Endpoint {
    routes: BTreeMap<ConnectionId, ConnectionKey>,
    /// The [disguised](SecretSource::disguised) reset tokens of peers.
    resets: BTreeMap<ResetToken, ConnectionKey>,
    /// Resets that may be sent now, and since when more are allowed.
    resets_left: u32,
    resets_since: Instant,
    secrets: SecretSource,
    server: Option<Arc<dyn SessionFactory>>,
    address_validation: AddressValidation,
    /// Where tokens for later connections to a server are kept, if they are.
    token_memory: Option<Arc<TokenMemory>>,
    config: Arc<TransportConfig>,
}

/// A client's first datagram.
struct FirstPacket {
    addresses: Addresses,
    header: ProtectedHeader,
    datagram: BytesMut,
    ecn: Option<Ecn>,
}

/// What a server knows of a client before its connection begins.
struct Client {
    /// It has proved its address.
    is_validated: bool,
    /// The destination of the first packet that it sent.
    original_destination: ConnectionId,
    /// The source of our Retry packet, if it responds to one.
    retry_source: Option<ConnectionId>,
}

impl Endpoint {
    /// An endpoint. `server` makes the sessions of connections it accepts; without one it only
    /// connects.
    ///
    /// # Errors
    /// If `config` is not valid.
    pub fn new(
        config: TransportConfig,
        server: Option<Arc<dyn SessionFactory>>,
        secrets: SecretSource,
    ) -> Result<Self, BeginError> {
        config.validate().map_err(BeginError::Configuration)?;
        Ok(Self {
            routes: BTreeMap::new(),
            resets: BTreeMap::new(),
            resets_left: RESETS_MAX,
            resets_since: Instant::ZERO,
            secrets,
            server,
            address_validation: AddressValidation::default(),
            token_memory: None,
            config: Arc::new(config),
        })
    }

    /// Sets when clients must prove their addresses before their connections begin.
    pub fn set_address_validation(&mut self, when: AddressValidation) {
        self.address_validation = when;
    }

    /// Keeps the tokens that servers give for later connections there, and presents them. Endpoints
    /// may share it. Without it tokens are ignored.
    pub fn set_token_memory(&mut self, memory: Arc<TokenMemory>) {
        self.token_memory = Some(memory);
    }

    /// True if it accepts connections.
    pub fn is_listening(&self) -> bool {
        self.server.is_some()
    }

    /// Begins a connection as client. `server_name` is for TLS.
    ///
    /// # Errors
    /// If the factory cannot start a session.
    pub fn connect(
        &mut self,
        now: Instant,
        factory: &dyn SessionFactory,
        server_name: &str,
        addresses: Addresses,
    ) -> Result<Connection, BeginError> {
        let mut secrets = self.secrets.split();
        let (local_id, remote_id) = (secrets.connection_id(), secrets.connection_id());
        let parameters = self.parameters(Side::Client, local_id, None, &mut secrets);
        let versions = self.config.versions;
        let version = versions.original();
        let session = factory
            .start(server_name, &parameters, HandshakeVersions { original: version, versions })
            .map_err(BeginError::Configuration)?;
        let initial = |version| factory.initial_keys(&remote_id, Side::Client, version);
        let keys = initial(version);
        let other_initial = versions.accepts(version.other()).then(|| initial(version.other()).open);
        let seed = secrets.seed();
        let control = ControlSeed {
            side: Side::Client,
            session: AnySession::Plain(session),
            version,
            initial: keys.open,
            other_initial,
            local_id,
            preferred_id: None,
            remote_id,
            original_destination: remote_id,
            secrets,
        };
        let config = self.config.clone();
        let seed = ConnectionSeed { config, addresses, is_validated: true, control, seal: keys.seal, seed };
        let mut connection = Connection::new(now, seed);
        if let Some(memory) = &self.token_memory {
            let server = ServerId { name: server_name.to_owned(), address: addresses.remote, version };
            if let Some(token) = memory.take(&server) {
                connection.present_token(token);
            }
            connection.keep_tokens(ReceivedTokens::new(Arc::clone(memory), server));
        }
        Ok(connection)
    }

    /// Begins a connection as server with a client's first datagram and its ECN codepoint. It has
    /// handled the datagram when this returns. `is_busy` says that many clients are in the handshake: see
    /// [`AddressValidation::WhenBusy`].
    ///
    /// # Errors
    /// If the datagram is no authentic Initial packet, the client has yet to prove its address, or
    /// this endpoint does not listen.
    pub fn accept(
        &mut self,
        now: Instant,
        addresses: Addresses,
        datagram: BytesMut,
        ecn: Option<Ecn>,
        is_busy: bool,
    ) -> Result<Connection, BeginError> {
        let header = first_header(&datagram)?;
        let client = self.validate(now, addresses.remote, &header, &datagram[header.token.clone()], is_busy)?;
        self.begin(now, FirstPacket { addresses, header, datagram, ecn }, &client)
    }

    /// Begins a connection as server.
    fn begin(&mut self, now: Instant, first: FirstPacket, client: &Client) -> Result<Connection, BeginError> {
        let FirstPacket { addresses, header, datagram, ecn } = first;
        let factory = self.server.clone().ok_or(BeginError::NotListening)?;
        let versions = HandshakeVersions { original: header.version, versions: self.config.versions };
        if !versions.versions.accepts(versions.original) {
            return Err(BeginError::NotInitial);
        }
        let mut secrets = self.secrets.split();
        let local_id = secrets.connection_id();
        let preferred_id = (!self.config.preferred_addresses.is_empty()).then(|| secrets.connection_id());
        let parameters = self.parameters(Side::Server, local_id, Some((client, preferred_id)), &mut secrets);
        let session = factory.start("", &parameters, versions).map_err(BeginError::Configuration)?;
        let keys = factory.initial_keys(&header.dcid, Side::Server, header.version);
        let seed = secrets.seed();
        let control = ControlSeed {
            side: Side::Server,
            session: AnySession::Plain(session),
            version: header.version,
            initial: keys.open,
            other_initial: None,
            local_id,
            preferred_id,
            remote_id: header.scid,
            original_destination: header.dcid,
            secrets,
        };
        let is_validated = client.is_validated;
        let config = self.config.clone();
        let seed = ConnectionSeed { config, addresses, is_validated, control, seal: keys.seal, seed };
        let mut connection = Connection::new(now, seed);
        let stride = datagram.len();
        connection.handle_datagrams(now, addresses, datagram, BatchMeta { stride, ecn });
        // State is kept only for a client with an authentic packet.
        if connection.stats().receive.packets_received == 0 {
            connection.forget_journal();
            return Err(BeginError::NotInitial);
        }
        Ok(connection)
    }

    /// What a client's first packet shows of it.
    fn validate(
        &mut self,
        now: Instant,
        remote: SocketAddr,
        first: &ProtectedHeader,
        token: &[u8],
        is_busy: bool,
    ) -> Result<Client, BeginError> {
        let client = self.identify(now, remote, first, token)?;
        let is_required = match self.address_validation {
            AddressValidation::Always => true,
            AddressValidation::WhenBusy => is_busy,
            AddressValidation::Never => false,
        };
        if !is_required || client.is_validated {
            return Ok(client);
        }
        match self.retry(now, remote, first) {
            Some(retry) => Err(BeginError::NotValidated { retry }),
            None => Ok(client),
        }
    }

    /// What a client's token shows of it.
    fn identify(
        &mut self,
        now: Instant,
        remote: SocketAddr,
        first: &ProtectedHeader,
        token: &[u8],
    ) -> Result<Client, BeginError> {
        let unknown = Client { is_validated: false, original_destination: first.dcid, retry_source: None };
        let Some(key) = self.secrets.token_key().copied() else { return Ok(unknown) };
        match tokens::open(&key, now, remote, &first.dcid, token) {
            Ok(original_destination) => {
                Ok(Client { is_validated: true, original_destination, retry_source: Some(first.dcid) })
            }
            Err(TokenError::Retry) => {
                let close = self.close(first, ErrorCode::INVALID_TOKEN).ok_or(BeginError::NotListening)?;
                Err(BeginError::InvalidToken { close })
            }
            Err(TokenError::Other) if self.secrets.redeem_address_token(now, first.version, remote.ip(), token) => {
                Ok(Client { is_validated: true, ..unknown })
            }
            Err(TokenError::Other) => Ok(unknown),
        }
    }

    /// The Retry packet for a client's first packet. None without a key, as in a replay.
    fn retry(&mut self, now: Instant, remote: SocketAddr, first: &ProtectedHeader) -> Option<Vec<u8>> {
        let key = self.secrets.token_key().copied()?;
        let source = self.secrets.connection_id();
        let noise = self.secrets.noise();
        let (nonce, rest) = noise.split_first_chunk().expect("12 of 32 bytes");
        let token = tokens::retry_token(&key, *nonce, now, remote, &first.dcid, &source);
        Some(answers::retry(first, &source, &token, rest[0]))
    }

    /// Writes the packet that refuses a client whose first datagram this is (RFC 9000, section
    /// 5.2.2); false if it gets none.
    pub fn refuse(&mut self, datagram: &[u8], out: &mut Vec<u8>) -> bool {
        let Ok(first) = first_header(datagram) else { return false };
        let Some(packet) = self.close(&first, ErrorCode::CONNECTION_REFUSED) else { return false };
        *out = packet;
        true
    }

    /// Closes the connection that a client's first packet would begin.
    fn close(&mut self, first: &ProtectedHeader, code: ErrorCode) -> Option<Vec<u8>> {
        let keys = self.server.as_ref()?.initial_keys(&first.dcid, Side::Server, first.version);
        Some(answers::close(first, self.secrets.connection_id(), &keys.seal, code))
    }

    /// Writes the answer to a datagram routed as [`Route::UnknownVersion`]; false if there is none.
    pub fn version_negotiation(&mut self, datagram: &[u8], out: &mut Vec<u8>) -> bool {
        let parsed = parse_packet(datagram, LOCAL_ID_LEN);
        let (dcid, scid) = match &parsed {
            Ok(Parsed::UnknownVersion { dcid, scid, .. }) => (*dcid, *scid),
            // A version that is known, and not used here.
            Ok(Parsed::Protected(header)) if !self.config.versions.accepts(header.version) => {
                (header.dcid.as_slice(), header.scid.as_slice())
            }
            _ => return false,
        };
        out.clear();
        // A reserved version exercises version negotiation (RFC 9000, section 6.3).
        let random = self.secrets.seed().to_le_bytes();
        let reserved = u32::from_le_bytes([random[0], random[1], random[2], random[3]]) & 0xf0f0_f0f0 | 0x0a0a_0a0a;
        let used = self.config.versions.list().iter().map(|version| version.number());
        let offered: Vec<u32> = used.chain([reserved]).collect();
        emit_version_negotiation(scid, dcid, &offered, random[4], out);
        true
    }

    /// Writes the stateless reset for a datagram routed as [`Route::Forgotten`], for the address
    /// that it came from; false if it gets none. The datagram may be forged, so resets are few and
    /// small.
    pub fn stateless_reset(&mut self, now: Instant, datagram: &[u8], out: &mut Vec<u8>) -> bool {
        let Some(destination) = destination(datagram, LOCAL_ID_LEN).filter(|destination| !destination.is_long) else {
            return false;
        };
        let Some(id) = ConnectionId::new(destination.dcid) else { return false };
        if !self.secrets.has_reset_key() || datagram.len() <= RESET_LEN_MIN {
            return false;
        }
        if now.saturating_since(self.resets_since) >= RESETS_SPAN {
            (self.resets_left, self.resets_since) = (RESETS_MAX, now);
        }
        let Some(left) = self.resets_left.checked_sub(1) else { return false };
        self.resets_left = left;
        // Smaller than the datagram that causes it, so that two endpoints without state do not
        // answer each other for ever (RFC 9000, section 10.3.3), and otherwise as a packet with a
        // short header looks.
        let len = (datagram.len() - 1).min(RESET_LEN);
        out.clear();
        out.extend_from_slice(&self.secrets.noise()[..len - RESET_TOKEN_LEN]);
        out[0] = out[0] & 0x3f | 0x40;
        out.extend_from_slice(&self.secrets.reset_token(&id));
        true
    }

    /// Our transport parameters. A server has the client's first packet, and the connection ID for its
    /// preferred addresses if there are some.
    fn parameters(
        &self,
        side: Side,
        local_id: ConnectionId,
        client: Option<(&Client, Option<ConnectionId>)>,
        secrets: &mut SecretSource,
    ) -> Vec<u8> {
        let config = &self.config;
        let (client, preferred_id) = client.map_or((None, None), |(client, id)| (Some(client), id));
        let preferred_address = preferred_id.map(|id| PreferredAddress {
            ipv4: config.preferred_addresses.ipv4,
            ipv6: config.preferred_addresses.ipv6,
            id,
            reset_token: secrets.reset_token(&id),
        });
        let reset_token = (side == Side::Server).then(|| secrets.reset_token(&local_id));
        let parameters = TransportParameters {
            original_destination_connection_id: client.map(|client| client.original_destination),
            retry_source_connection_id: client.and_then(|client| client.retry_source),
            stateless_reset_token: reset_token,
            initial_source_connection_id: Some(local_id),
            preferred_address,
            ..config.parameters()
        };
        let mut out = Vec::new();
        // Identifiers of the form 31 * N + 27 are reserved, so that peers ignore unknown
        // parameters.
        let random = secrets.seed();
        let grease = (31 * (random >> 40) + 27, &random.to_le_bytes()[..(random % 8) as usize]);
        parameters.emit(&mut out, config.grease.then_some(grease));
        out
    }
}

impl TransportConfig {
    /// The transport parameters that depend on the configuration alone.
    pub(crate) fn parameters(&self) -> TransportParameters {
        TransportParameters {
            max_idle_timeout_ms: self.idle_timeout.as_millis(),
            initial_max_data: self.connection_window,
            initial_max_stream_data_bidi_local: self.stream_window,
            initial_max_stream_data_bidi_remote: self.stream_window,
            initial_max_stream_data_uni: self.stream_window,
            initial_max_streams_bidi: self.max_concurrent_bidi_streams,
            initial_max_streams_uni: self.max_concurrent_uni_streams,
            // Peers of a connection with a single path must not migrate. With several paths the
            // parameter must be absent, since it also forbids further paths to the same address
            // (multipath draft-21, section 2.2). It is chosen before the peer's parameters are
            // known, so a peer that does not negotiate multipath does not see it either. It may
            // migrate then (RFC 9000, section 18.2), and the path follows it
            // (`send/migration.rs`, `send/off_path.rs`).
            disable_active_migration: self.max_paths <= 1,
            initial_max_path_id: self.max_paths.checked_sub(1).map(PathId),
            active_connection_id_limit: REMOTE_IDS_MAX,
            max_datagram_frame_size: if self.datagram_receive_buffer == 0 { 0 } else { u64::from(u16::MAX) },
            grease_quic_bit: self.grease,
            min_ack_delay_us: Some(crate::receive::acks::MIN_ACK_DELAY.as_micros()),
            ..TransportParameters::default()
        }
    }
}

/// The header of a datagram that may begin a connection (RFC 9000, sections 7.2 and 14.1).
fn first_header(datagram: &[u8]) -> Result<ProtectedHeader, BeginError> {
    match parse_packet(datagram, LOCAL_ID_LEN) {
        Ok(Parsed::Protected(header))
            if header.ty == PacketType::Initial
                && datagram.len() >= MIN_INITIAL_SIZE
                && header.dcid.len() >= FIRST_DESTINATION_LEN_MIN =>
        {
            Ok(header)
        }
        _ => Err(BeginError::NotInitial),
    }
}

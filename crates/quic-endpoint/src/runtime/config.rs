//! [`EngineConfig`]: the configuration of an engine.

use std::sync::Arc;

use driver::DriverLimits;
use driver::placement::Placement;
use engine::{DriverSettings, EventHandler};
use quic::session::SessionFactory;
use quic::{AddressValidation, TransportConfig};
use units::Duration;

/// The limits and settings of one engine.
#[derive(Clone)]
pub struct EngineConfig {
    /// The processors that run the engine.
    pub placement: Placement,
    /// The cores that the engine's threads are pinned to, by the system's numbers: first the
    /// driver, then the workers. Threads without an entry are not pinned. Empty by default.
    pub cores: Vec<usize>,
    /// The time to encrypt a packet of 1440 bytes, for [`Placement::Auto`]. `None` if it is not
    /// known.
    pub seal_cost: Option<Duration>,
    /// The transport configuration of all connections.
    pub transport: TransportConfig,
    /// Creates the sessions of accepted connections. With `None`, the endpoint accepts no
    /// connections.
    pub server: Option<Arc<dyn SessionFactory>>,
    /// The key of stateless reset tokens: with the same key, a restarted engine resets the
    /// connections that it has forgotten (RFC 9000, section 10.3.2). With `None`, it sends no
    /// resets.
    pub reset_key: Option<[u8; 32]>,
    /// Whether servers issue tokens with which a client proves its address in later connections,
    /// and clients keep and present them (RFC 9000, section 8.1.3). With a
    /// [`reset_key`](Self::reset_key), a restarted engine accepts tokens issued before. Off by
    /// default.
    pub address_tokens: bool,
    /// Condition under which a client must prove, before its connection begins, that it receives
    /// packets at its address. Default: while half of [`half_open_max`](Self::half_open_max) is
    /// used.
    pub address_validation: AddressValidation,
    /// Maximum number of connection attempts that each driver holds for [`Engine::poll_incoming`],
    /// each for at most the [handshake timeout](TransportConfig::handshake_timeout); further
    /// clients are refused. Zero, the default, accepts clients without asking.
    ///
    /// [`Engine::poll_incoming`]: crate::runtime::Engine::poll_incoming
    pub incoming_max: usize,
    /// Whether `accept` returns the connection of a client with its first 0-RTT stream, before the
    /// handshake is complete. The server's sessions decide whether 0-RTT is accepted at all.
    pub accepts_early: bool,
    /// Maximum number of connections, including those that are closing. More are refused.
    pub connections_max: usize,
    /// Maximum number of connections from clients that are handshaking or wait for `accept`.
    /// Further clients get no answer, so that they retry.
    pub half_open_max: usize,
    /// Bytes that a stream's outbox holds until the connection takes them. A writer waits while the
    /// outbox is full.
    pub outbox_bytes_max: usize,
    /// Bytes that a stream's inbox holds for its reader. While it is full, received bytes use up
    /// the peer's flow-control credit.
    pub inbox_bytes_max: usize,
    /// The length of the longest message that is sent or accepted.
    pub message_len_max: usize,
    /// Time for which an idle processor polls before it sleeps. Polling saves the wake-up, which on
    /// virtual machines is most of a short round trip, and keeps a core busy while round trips are
    /// shorter than this. Zero by default: sleep at once.
    pub busy_poll: Duration,
    /// Additional event handler of the first driver's thread, if any.
    pub event_handler: Option<Arc<dyn EventHandler>>,
    /// Whether to measure for [`Engine::costs`](crate::runtime::Engine::costs). Reads the clock a
    /// dozen times per batch.
    pub measure: bool,
}

impl Default for EngineConfig {
    fn default() -> Self {
        let DriverSettings { placement, cores, seal_cost, busy_poll, event_handler, measure, limits } =
            DriverSettings::default();
        let DriverLimits { half_open_max, connections_max } = limits;
        Self {
            placement,
            cores,
            seal_cost,
            transport: TransportConfig::default(),
            server: None,
            reset_key: None,
            address_tokens: false,
            address_validation: AddressValidation::default(),
            incoming_max: 0,
            accepts_early: false,
            connections_max,
            half_open_max,
            outbox_bytes_max: 1 << 20,
            inbox_bytes_max: 1 << 20,
            message_len_max: 1 << 20,
            busy_poll,
            event_handler,
            measure,
        }
    }
}

//! What the owner of an engine chooses.

use std::sync::Arc;

use quic::TransportConfig;
use quic::session::SessionFactory;
use units::Duration;

use crate::placement::Placement;

/// The limits and settings of one engine.
#[derive(Clone)]
pub struct EngineConfig {
    /// Which processors run it.
    pub placement: Placement,
    /// Where the engine's threads stay, by the system's numbers of processors: the first has what is serial. Those for whom
    /// there is none, all by default, go where the system puts them.
    pub cores: Vec<usize>,
    /// What sealing a packet of 1440 bytes takes, for [`Placement::Auto`]; none if it is not known.
    pub seal_cost: Option<Duration>,
    /// How connections behave.
    pub transport: TransportConfig,
    /// Makes the sessions of accepted connections; none: only connects.
    pub server: Option<Arc<dyn SessionFactory>>,
    /// Connections at a time, those that are ending included. More are refused.
    pub connections_max: usize,
    /// Connections of clients whose handshake goes on or that wait for `accept`. More are not answered, so that their
    /// clients try again.
    pub half_open_max: usize,
    /// A handshake that takes longer has failed, on both sides.
    pub handshake_timeout: Duration,
    /// Bytes a sending stream holds until the connection takes them; writers wait beyond.
    pub outbox_bytes_max: usize,
    /// Bytes a receiving stream holds ready for its reader; flow control holds the peer back beyond.
    pub inbox_bytes_max: usize,
    /// The largest message that is sent or taken.
    pub message_len_max: usize,
    /// How long a processor with nothing to do asks the system again and again before it sleeps. Saves the wake-up, which
    /// on virtual machines is most of a short round trip, and costs a whole core while round trips are shorter than this. Zero
    /// by default: sleep at once.
    pub busy_poll: Duration,
    /// Note where the time goes, for [`Engine::costs`](crate::Engine::costs): a dozen readings of the clock for each batch.
    pub measure: bool,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            placement: Placement::default(),
            cores: Vec::new(),
            seal_cost: None,
            transport: TransportConfig::default(),
            server: None,
            connections_max: 1024,
            half_open_max: 128,
            handshake_timeout: Duration::from_secs(10),
            outbox_bytes_max: 1 << 20,
            inbox_bytes_max: 1 << 20,
            message_len_max: 1 << 20,
            busy_poll: Duration::ZERO,
            measure: false,
        }
    }
}

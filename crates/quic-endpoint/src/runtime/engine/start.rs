//! Starts an engine: creates the protocol of each driver from the engine's configuration.

use std::sync::Arc;

use driver::placement::{PROCESSORS_MAX, Placement};
use engine::{DriverSettings, Drivers, StartError};
use net::{os_random, since_epoch};
use quic::{Endpoint, SHARDS_MAX, SecretSource, TokenMemory};
use quic_driver::{COMPACT_BELOW, HeldAttempts, IncomingQueue, Limits, Quic};
use units::Instant;

use super::{Engine, QuicDevice};
use crate::runtime::config::EngineConfig;
use crate::runtime::device::LiveQuic;
use crate::runtime::socket::LiveSocket;

const _: () = assert!(PROCESSORS_MAX <= SHARDS_MAX, "connection IDs have a shard for every driver");

impl Engine {
    /// Starts an engine over `sockets`.
    ///
    /// Under [`Placement::Connection`](crate::Placement::Connection) each processor has the same
    /// number of sockets of its own: first the sockets of the first processor, then those of the
    /// second. An endpoint that accepts connections binds them to the same addresses with
    /// `SO_REUSEPORT`, so that clients use one address. A packet received from another processor's
    /// socket is passed to the right one.
    ///
    /// # Errors
    /// If there is no socket, the configuration is invalid, or the system refuses a poll, a thread
    /// or random bytes.
    pub fn start(config: EngineConfig, sockets: Vec<Box<dyn LiveSocket>>) -> Result<Self, StartError> {
        let mut secret = [0; 32];
        os_random(&mut secret).map_err(|error| StartError::System("get random bytes", error))?;
        let mut incoming = None;
        let drivers = Drivers::start(settings(&config), limits(&config), devices(sockets), |count, now| {
            let made = Protocols::new(&config, &secret, count, now)?;
            incoming = made.incoming;
            Ok(made.drivers)
        })?;
        Ok(Self { drivers, incoming })
    }
}

/// The protocols of the drivers of an engine.
pub(super) struct Protocols {
    pub(super) drivers: Vec<LiveQuic>,
    /// Queue of connection attempts that wait for decisions, if enabled.
    pub(super) incoming: Option<Arc<IncomingQueue>>,
}

impl Protocols {
    /// Creates the protocols of `count` drivers. All unguessable values are derived from `secret`.
    pub(super) fn new(
        config: &EngineConfig,
        secret: &[u8; 32],
        count: usize,
        now: Instant,
    ) -> Result<Self, StartError> {
        if config.placement == Placement::Pipeline {
            let text = "pipeline is for TCP: a packet of QUIC is verified with the keys of its connection";
            return Err(StartError::Configuration(text.to_owned()));
        }
        let secrets = SecretSource::new(secret);
        let secrets = match &config.reset_key {
            Some(key) => secrets.with_reset_key(key),
            None => secrets,
        };
        // Endpoints of one engine share the tokens, regardless of the driver that serves a
        // connection.
        let token_memory = config.address_tokens.then(|| Arc::new(TokenMemory::new()));
        let secrets = if config.address_tokens {
            let since_start = now.saturating_since(Instant::ZERO);
            secrets.with_address_tokens(since_epoch() - since_start.min(since_epoch()))
        } else {
            secrets
        };
        let incoming = (config.incoming_max > 0).then(|| Arc::new(IncomingQueue::new(count)));
        let mut drivers = Vec::with_capacity(count);
        for index in 0..count {
            // A single driver uses all shards.
            let secrets = if count > 1 { secrets.split_for(index, count) } else { secrets.clone() };
            let mut endpoint = Endpoint::new(config.transport.clone(), config.server.clone(), secrets)
                .map_err(|error| StartError::Configuration(error.to_string()))?;
            endpoint.set_address_validation(config.address_validation);
            if let Some(memory) = &token_memory {
                endpoint.set_token_memory(Arc::clone(memory));
            }
            let lifetime = config.transport.handshake_timeout;
            let held = incoming
                .as_ref()
                .map(|queue| HeldAttempts::new(Arc::clone(queue), index, config.incoming_max, lifetime));
            drivers.push(Quic::new(endpoint).with_incoming(held));
        }
        Ok(Self { drivers, incoming })
    }
}

pub(super) fn settings(config: &EngineConfig) -> DriverSettings {
    DriverSettings {
        placement: config.placement,
        cores: config.cores.clone(),
        seal_cost: config.seal_cost,
        busy_poll: config.busy_poll,
        event_handler: config.event_handler.clone(),
        measure: config.measure,
        limits: driver::DriverLimits { half_open_max: config.half_open_max, connections_max: config.connections_max },
    }
}

/// Returns the limits that handles enforce.
pub(super) fn limits(config: &EngineConfig) -> Limits {
    Limits {
        outbox_bytes_max: config.outbox_bytes_max,
        inbox_bytes_max: config.inbox_bytes_max,
        message_len_max: config.message_len_max,
        compact_below: COMPACT_BELOW,
        is_listening: config.server.is_some(),
        accepts_early: config.accepts_early,
    }
}

pub(super) fn devices(sockets: Vec<Box<dyn LiveSocket>>) -> Vec<QuicDevice> {
    sockets.into_iter().map(QuicDevice).collect()
}

//! When a server continues sessions and takes 0-RTT: only from a client whose ticket promised no more than the server
//! permits today (RFC 9000, section 7.4.1).
//!
//! rustls decides while it reads the client's first message, so the store of its sessions must
//! decide before: it keeps the limits beside each ticket, and knows no ticket of higher ones. The
//! handshake is a full one then.

use std::fmt;
use std::sync::{Arc, OnceLock};

use rustls::ServerConfig;
use rustls::server::{NoServerSessionStorage, ProducesTickets, StoresServerSessions};
use wire::quic::{Side, TransportParameters, Version};

use crate::control::early::kept_limits;

/// What [`kept_limits`] returns.
type Limits = [u64; 8];

/// Bytes of [`Limits`] beside a session.
const LIMITS_LEN: usize = size_of::<Limits>();

/// The configuration of a server's sessions.
pub(super) struct ServerConfigs {
    given: Arc<ServerConfig>,
    /// With a store that compares limits, and those limits. An endpoint has the same ones for all
    /// its connections.
    of_limits: OnceLock<(Limits, Arc<ServerConfig>)>,
    /// That continues no sessions.
    without_sessions: OnceLock<Arc<ServerConfig>>,
}

impl ServerConfigs {
    /// # Errors
    /// If it takes 0-RTT in a way that QUIC forbids or that could be replayed.
    pub(super) fn new(given: Arc<ServerConfig>) -> Result<Self, String> {
        match given.max_early_data_size {
            0 => {}
            u32::MAX if given.ticketer.enabled() => {
                return Err("0-RTT with stateless tickets could be replayed: set no ticketer, or \
                    max_early_data_size to 0"
                    .to_owned());
            }
            u32::MAX => {}
            size => return Err(format!("max_early_data_size is {size}; QUIC allows 0 and {}", u32::MAX)),
        }
        Ok(Self { given, of_limits: OnceLock::new(), without_sessions: OnceLock::new() })
    }

    /// The configuration for a session in this version that sends these transport parameters. Sessions
    /// of one version must not be continued in another (RFC 9369, section 5), so those of version 2 are
    /// not continued at all.
    pub(super) fn of(&self, version: Version, parameters: &[u8]) -> Arc<ServerConfig> {
        match version {
            Version::V1 => self.for_parameters(parameters),
            Version::V2 => self.without_sessions.get_or_init(|| self.make_without_sessions()).clone(),
        }
    }

    fn make_without_sessions(&self) -> Arc<ServerConfig> {
        let mut config = ServerConfig::clone(&self.given);
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.ticketer = Arc::new(NoTickets);
        config.send_tls13_tickets = 0;
        config.max_early_data_size = 0;
        Arc::new(config)
    }

    fn for_parameters(&self, parameters: &[u8]) -> Arc<ServerConfig> {
        if self.given.max_early_data_size == 0 {
            return self.given.clone();
        }
        // Our own parameters are valid; others are refused by the client.
        let limits = TransportParameters::parse(parameters, Side::Server).map_or([0; 8], |own| kept_limits(&own));
        let make = || {
            let mut config = ServerConfig::clone(&self.given);
            config.session_storage = Arc::new(LimitedSessions { inner: config.session_storage.clone(), limits });
            Arc::new(config)
        };
        let (known, config) = self.of_limits.get_or_init(|| (limits, make()));
        if *known == limits { config.clone() } else { make() }
    }
}

/// Issues no stateless tickets and takes none.
#[derive(Debug)]
struct NoTickets;

impl ProducesTickets for NoTickets {
    fn enabled(&self) -> bool {
        false
    }

    fn lifetime(&self) -> u32 {
        0
    }

    fn encrypt(&self, _plain: &[u8]) -> Option<Vec<u8>> {
        None
    }

    fn decrypt(&self, _cipher: &[u8]) -> Option<Vec<u8>> {
        None
    }
}

/// Sessions with the limits of their connections.
struct LimitedSessions {
    inner: Arc<dyn StoresServerSessions>,
    limits: Limits,
}

impl fmt::Debug for LimitedSessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LimitedSessions").field("limits", &self.limits).finish_non_exhaustive()
    }
}

impl LimitedSessions {
    /// The session of a value, unless its limits were higher.
    fn permitted(&self, mut value: Vec<u8>) -> Option<Vec<u8>> {
        let session = value.split_off(LIMITS_LEN.min(value.len()));
        let (words, rest) = value.as_chunks::<8>();
        let is_permitted = words.len() == self.limits.len()
            && rest.is_empty()
            && words.iter().zip(&self.limits).all(|(then, now)| u64::from_be_bytes(*then) <= *now);
        is_permitted.then_some(session)
    }
}

impl StoresServerSessions for LimitedSessions {
    fn put(&self, key: Vec<u8>, value: Vec<u8>) -> bool {
        let limits = self.limits.iter().flat_map(|limit| limit.to_be_bytes());
        self.inner.put(key, limits.chain(value).collect())
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.permitted(self.inner.get(key)?)
    }

    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.permitted(self.inner.take(key)?)
    }

    fn can_cache(&self) -> bool {
        self.inner.can_cache()
    }
}

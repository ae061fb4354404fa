//! The parts of a simulated host that do not depend on its processors: settings, random sources,
//! and the state that handles and drivers share.

use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;

use driver::DriverLimits;
use driver::shared::Common;
use quic::session::SessionFactory;
use quic::session::deterministic::DeterministicFactory;
use quic::{Endpoint, Event, JournalSource, SecretSource, Side, TransportConfig};
use quic_driver::error::Closed;
use quic_driver::{Connect, EventObserver, Limits, Quic, QuicApplication, QuicShared};
use units::Instant;

use super::addresses::address;
use super::env::VirtualClock;
use super::host::side_of;
use super::representation::Representation;
use crate::connection_setup::transport_config;
use crate::model::Scenario;
use crate::seeds::{HostSeeds, host_seeds};
use crate::world::WorldError;

/// The limits of each driver. A host has one connection.
pub(crate) const LIMITS: DriverLimits = DriverLimits { half_open_max: 128, connections_max: 1024 };

/// Limit on the bytes of a stream's outbox and inbox, equal to the engine's default.
const QUEUE_BYTES_MAX: usize = 1 << 20;

/// The setup of one host.
pub(crate) struct HostSetup {
    pub(crate) side: Side,
    pub(crate) path_count: usize,
    /// Whether receive calls join datagrams.
    pub(crate) joins: bool,
    pub(crate) clock: VirtualClock,
    transport: TransportConfig,
    secret: [u8; 32],
    factory: Arc<dyn SessionFactory>,
    pub(crate) log: Arc<EventLog>,
    pub(crate) common: Arc<Common<QuicApplication>>,
    /// State shared with the first driver, which has the client's connection.
    pub(crate) shared: Arc<QuicShared>,
}

impl HostSetup {
    /// Creates the setup of host `host` with `drivers` drivers. `journals` records its connection.
    pub(crate) fn new(
        scenario: &Scenario,
        host: usize,
        path_count: usize,
        seed: u64,
        drivers: usize,
        clock: &VirtualClock,
        journals: Option<&JournalSource>,
    ) -> Self {
        let side = side_of(host);
        let HostSeeds { secret, sessions } = host_seeds(seed, host);
        let common = Arc::new(Common::new(drivers));
        let shared = shared(side, path_count, &common, 0);
        Self {
            side,
            path_count,
            joins: !scenario.hosts[host].coalesce.is_zero(),
            clock: clock.clone(),
            transport: transport_config(scenario, host, path_count).with_journal(journals.cloned()),
            secret,
            factory: Arc::new(DeterministicFactory::new(side, sessions)),
            log: Arc::default(),
            common,
            shared,
        }
    }

    /// Returns the state that handles share with driver `index`.
    pub(crate) fn shared_of(&self, index: usize) -> Arc<QuicShared> {
        if index == 0 { Arc::clone(&self.shared) } else { shared(self.side, self.path_count, &self.common, index) }
    }

    /// Returns the parameters of the client's connection.
    pub(crate) fn connect(&self) -> Connect {
        Connect { server_name: "b".to_owned(), factory: Arc::clone(&self.factory) }
    }

    /// Returns the addresses of the sockets, by path.
    pub(crate) fn local_addrs(&self) -> Rc<[std::net::SocketAddr]> {
        self.shared.local_addrs.iter().copied().collect()
    }

    /// Returns the protocol instance of driver `index` of `drivers`.
    ///
    /// # Errors
    /// Fails if the transport settings are invalid.
    pub(crate) fn protocol<K: Representation>(&self, index: usize, drivers: usize) -> Result<Quic<K>, WorldError> {
        let listening = (self.side == Side::Server).then(|| Arc::clone(&self.factory));
        let secrets = SecretSource::new(&self.secret);
        // With several drivers, each has a share of the connection IDs.
        let secrets = if drivers > 1 { secrets.split_for(index, drivers) } else { secrets };
        let endpoint = Endpoint::new(self.transport.clone(), listening, secrets)
            .map_err(|error| WorldError::Unsuitable(error.to_string()))?;
        Ok(Quic::new(endpoint).with_observer(Some(self.log.observer())))
    }
}

fn shared(side: Side, path_count: usize, common: &Arc<Common<QuicApplication>>, index: usize) -> Arc<QuicShared> {
    let local_addrs = (0..path_count).map(|path| address(path, side)).collect();
    let limits = Limits {
        outbox_bytes_max: QUEUE_BYTES_MAX,
        inbox_bytes_max: QUEUE_BYTES_MAX,
        message_len_max: QUEUE_BYTES_MAX,
        compact_below: 0,
        is_listening: side == Side::Server,
        accepts_early: false,
    };
    Arc::new(QuicShared::new(Waker::noop().clone(), local_addrs, limits, Arc::clone(common), index))
}

/// Reports of a host's connection: its close, and all events while the run is recorded.
#[derive(Debug, Default)]
pub(crate) struct EventLog {
    is_enabled: AtomicBool,
    /// Events, taken after each turn of the application while the run is recorded.
    events: Mutex<Vec<(Instant, Event)>>,
    /// Whether the connection is closed; read after each turn of the application without the lock.
    is_closed: AtomicBool,
    closed: Mutex<Option<ClosedConnection>>,
}

/// A closed connection. Its driver may have removed it.
#[derive(Clone, Debug)]
pub(crate) struct ClosedConnection {
    pub(crate) reason: String,
    pub(crate) stats: quic::Stats,
}

impl EventLog {
    /// Logs events from now on.
    pub(crate) fn enable(&self) {
        self.is_enabled.store(true, Ordering::Relaxed);
    }

    /// Takes the logged events.
    pub(crate) fn take(&self) -> Vec<(Instant, Event)> {
        std::mem::take(&mut self.events.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the connection, if it is closed.
    pub(crate) fn closed(&self) -> Option<ClosedConnection> {
        if !self.is_closed.load(Ordering::Acquire) {
            return None;
        }
        self.closed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn observer(self: &Arc<Self>) -> EventObserver {
        let log = Arc::clone(self);
        Arc::new(move |now, event, connection| {
            if let Event::Closed(error) = event {
                let closed =
                    ClosedConnection { reason: Closed::from(error.clone()).to_string(), stats: connection.stats() };
                log.closed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(closed);
                log.is_closed.store(true, Ordering::Release);
            }
            if log.is_enabled.load(Ordering::Relaxed) {
                log.events.lock().unwrap_or_else(PoisonError::into_inner).push((now, event.clone()));
            }
        })
    }
}

//! A real endpoint over the scripted peer's socket, connected and idle.

use std::sync::Arc;
use std::time::Duration as StdDuration;

use litz::{Connection, Costs, Endpoint, EndpointConfig, LiveSocket, Placement, WorkerPoolStats};
use net::MonotonicClock;
use scripted_peer::cipher::{Cipher, Tls};
use scripted_peer::link::Link;
use scripted_peer::peer::{Peer, peer_addr, transport};
use scripted_peer::socket::ScriptSocket;
use transfer::CancelToken;
use units::Duration;

use super::end::{End, SendEnd, Writer};
use super::failure::Failure;
use super::pins::{Pins, Work};
use super::settings::AppCore;

/// Bytes buffered between the application and the driver: enough that an application thread on the
/// driver's processor runs about every hundred batches, so that context switches are negligible.
const BETWEEN_BYTES: usize = 8 << 20;

/// Time limit of the handshake and the packets that follow it, which take milliseconds.
const SETTLE_MAX: Duration = Duration::from_secs(10);

/// How long the endpoint runs between two checks whether it is idle.
const SETTLE_STEP: StdDuration = StdDuration::from_millis(1);

/// The configuration of the measured end.
#[derive(Debug, Clone)]
pub(crate) struct Setup {
    pub(crate) placement: Placement,
    /// The processors in use, by their system numbers.
    pub(crate) cores: Vec<usize>,
    /// The processor of the application's threads.
    pub(crate) app_core: AppCore,
    pub(crate) cipher: Cipher,
    pub(crate) datagram_size: usize,
    /// Number of paths of the connection, each with a socket.
    pub(crate) paths: u16,
    /// Whether multipath is negotiated, even for one path.
    pub(crate) is_multipath: bool,
    /// Whether to meter the stages.
    pub(crate) metered: bool,
}

/// The measured end and its scripted peer.
pub(crate) struct TestBed {
    pub(crate) endpoint: Endpoint,
    pub(crate) connection: Connection,
    pub(crate) link: Link,
    /// In bytes of UDP payload.
    pub(super) datagram_size: usize,
    pins: Pins,
}

impl TestBed {
    /// Connects, and replaces the peer by a scripted peer.
    pub(crate) fn new(setup: &Setup, cancel: &CancelToken) -> Result<Self, Failure> {
        let tls = Tls::new(setup.cipher).map_err(Failure::Error)?;
        let max_paths = if setup.is_multipath { setup.paths.into() } else { 0 };
        let peer = Peer::new(&tls, setup.datagram_size, max_paths).map_err(Failure::Error)?;
        let link = Link::new(peer, setup.paths, setup.datagram_size);
        let config = EndpointConfig::default()
            .with_placement(setup.placement)
            .with_cores(setup.cores.clone())
            .with_transport(transport(setup.datagram_size, max_paths))
            .with_outbox_bytes_max(BETWEEN_BYTES)
            .with_inbox_bytes_max(BETWEEN_BYTES)
            .with_measure(setup.metered);
        let sockets = link.channels.iter().map(|channel| Box::new(ScriptSocket::new(channel)) as Box<dyn LiveSocket>);
        let endpoint = Endpoint::with_sockets(config, sockets.collect());
        let endpoint = endpoint.map_err(|error| Failure::Error(error.to_string()))?;
        let connected = endpoint.connect_from(0, peer_addr(0), "litz.invalid", Arc::clone(&tls.client));
        let connection = connected.map_err(|error| {
            let why = link.failure().unwrap_or_else(|| error.to_string());
            Failure::Error(format!("the handshake in memory failed: {why}"))
        })?;
        let suite = connection.stats().session.cipher_suite.clone();
        if suite.as_deref() != Some(&setup.cipher.suite_name()) {
            return Err(Failure::Error(format!("the handshake chose {suite:?}, not {}", setup.cipher)));
        }
        for path in 1..setup.paths {
            let opened = connection.open_path(path.into(), peer_addr(path), false);
            opened.map_err(|error| Failure::Error(format!("path {path} cannot be opened: {error}")))?;
        }
        let pins = Pins::new(setup.app_core, &setup.cores);
        let test_bed = Self { endpoint, connection, link, datagram_size: setup.datagram_size, pins };
        test_bed.settle(cancel)?;
        Ok(test_bed)
    }

    fn settle(&self, cancel: &CancelToken) -> Result<(), Failure> {
        let clock = MonotonicClock::start();
        let deadline = clock.now() + SETTLE_MAX;
        while !self.link.begin_script().map_err(Failure::Error)? {
            if cancel.is_cancelled() {
                return Err(Failure::Interrupted);
            }
            if clock.now() >= deadline {
                return Err(Failure::Error("the handshake in memory does not complete".to_owned()));
            }
            // No stream arrives: this call lets an endpoint without a thread run.
            let nothing = self.connection.accept_uni_timeout(SETTLE_STEP);
            nothing.map_err(|error| Failure::Error(error.to_string()))?;
        }
        Ok(())
    }

    /// Pins the calling thread of the application to its processor.
    pub(crate) fn pin_thread(&self, work: Work) -> Result<(), String> {
        self.pins.pin_thread(work)
    }

    /// Returns the reason if the connection has ended.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        if let Some(failure) = self.link.failure() {
            return Err(Failure::Error(failure));
        }
        match self.connection.close_reason() {
            Some(reason) => Err(Failure::Error(format!("the connection ended: {reason}"))),
            None => Ok(()),
        }
    }
}

impl End for TestBed {
    fn pins(&self) -> &Pins {
        &self.pins
    }

    fn costs(&self) -> Option<Costs> {
        self.endpoint.costs()
    }

    fn workers(&self) -> Option<WorkerPoolStats> {
        self.endpoint.worker_pool_stats()
    }

    fn check(&self) -> Result<(), Failure> {
        Self::check(self)
    }

    fn close(&self) {
        self.endpoint.close();
    }
}

impl SendEnd for TestBed {
    fn writer(&self) -> Result<Writer<'_>, String> {
        let mut stream = self.connection.open_uni().map_err(|error| error.to_string())?;
        Ok(Box::new(move |chunk| stream.write_chunk(chunk).map_err(|error| error.to_string())))
    }

    fn packets_sent(&self) -> u64 {
        self.link.packets_sent()
    }

    fn packets_lost(&self) -> u64 {
        self.connection.stats().send.packets_lost
    }
}

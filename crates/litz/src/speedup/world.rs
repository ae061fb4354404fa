//! A real endpoint over the script's socket, connected and settled.

use std::sync::Arc;
use std::time::Duration as StdDuration;

use litz::transfer::CancelToken;
use litz::{Connection, Endpoint, EndpointConfig, LiveSocket, Placement};
use net::MonotonicClock;
use rustix::time::{ClockId, clock_gettime};
use units::Duration;

use super::cipher::{Cipher, Tls};
use super::link::Link;
use super::peer::{Peer, peer_addr, transport};
use super::socket::ScriptSocket;
use super::{Failure, Seat};

/// What waits between the application and the driver: enough that a thread that shares its processor with the driver has its
/// turn about every hundred batches, so that changing turns hardly counts.
const BETWEEN_BYTES: usize = 8 << 20;

/// A handshake and what follows it take milliseconds.
const SETTLE_MAX: Duration = Duration::from_secs(10);

/// How long the endpoint has the processor between two looks whether all is settled.
const SETTLE_STEP: StdDuration = StdDuration::from_millis(1);

/// What runs the measured end.
#[derive(Debug, Clone)]
pub(crate) struct Stand {
    pub(crate) placement: Placement,
    /// The processors in use, by the system's numbers.
    pub(crate) cores: Vec<usize>,
    /// Of the application's thread.
    pub(crate) seat: Seat,
    pub(crate) cipher: Cipher,
    pub(crate) datagram_size: usize,
    /// Paths of the connection, each with a socket.
    pub(crate) paths: u16,
    /// Both ends speak of paths, even if there is one.
    pub(crate) is_multipath: bool,
    /// Book the time to stages.
    pub(crate) metered: bool,
}

/// The measured end and its script.
pub(crate) struct World {
    pub(crate) endpoint: Endpoint,
    pub(crate) connection: Connection,
    pub(crate) link: Link,
    seat: Seat,
    /// The first and the last of the processors in use, if their numbers are known.
    cores: Option<(usize, usize)>,
}

/// What a thread of the application does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    Writing,
    Reading,
}

impl World {
    /// Connects, and turns the peer into a script.
    pub(crate) fn new(stand: &Stand, cancel: &CancelToken) -> Result<Self, Failure> {
        let tls = Tls::new(stand.cipher).map_err(Failure::Error)?;
        let max_paths = if stand.is_multipath { stand.paths.into() } else { 0 };
        let peer = Peer::new(&tls, stand.datagram_size, max_paths).map_err(Failure::Error)?;
        let link = Link::new(peer, stand.paths, stand.datagram_size);
        let config = EndpointConfig {
            placement: stand.placement,
            cores: stand.cores.clone(),
            transport: transport(stand.datagram_size, max_paths),
            outbox_bytes_max: BETWEEN_BYTES,
            inbox_bytes_max: BETWEEN_BYTES,
            measure: stand.metered,
            ..EndpointConfig::default()
        };
        let sockets = link.channels.iter().map(|channel| Box::new(ScriptSocket::new(channel)) as Box<dyn LiveSocket>);
        let endpoint = Endpoint::with_sockets(config, sockets.collect());
        let endpoint = endpoint.map_err(|error| Failure::Error(error.to_string()))?;
        let connected = endpoint.connect_from(0, peer_addr(0), "litz.invalid", Arc::clone(&tls.client));
        let connection = connected.map_err(|error| {
            let why = link.failure().unwrap_or_else(|| error.to_string());
            Failure::Error(format!("the handshake in memory failed: {why}"))
        })?;
        let suite = connection.stats().session.cipher_suite.clone();
        if suite.as_deref() != Some(&stand.cipher.suite_name()) {
            return Err(Failure::Error(format!("the handshake chose {suite:?}, not {}", stand.cipher)));
        }
        for path in 1..stand.paths {
            let opened = connection.open_path(path.into(), peer_addr(path), false);
            opened.map_err(|error| Failure::Error(format!("path {path} cannot be opened: {error}")))?;
        }
        let cores = stand.cores.first().copied().zip(stand.cores.last().copied());
        let world = Self { endpoint, connection, link, seat: stand.seat, cores };
        world.settle(cancel)?;
        Ok(world)
    }

    fn settle(&self, cancel: &CancelToken) -> Result<(), Failure> {
        let clock = MonotonicClock::start();
        let deadline = clock.now() + SETTLE_MAX;
        while !self.link.begin_script().map_err(Failure::Error)? {
            if cancel.is_cancelled() {
                return Err(Failure::Interrupted);
            }
            if clock.now() >= deadline {
                return Err(Failure::Error("the handshake in memory does not come to an end".to_owned()));
            }
            // Nobody opens a stream: this gives an endpoint without a thread the time that it needs.
            let nothing = self.connection.accept_uni_timeout(SETTLE_STEP);
            nothing.map_err(|error| Failure::Error(error.to_string()))?;
        }
        Ok(())
    }

    /// Keeps the calling thread, one of the application's, where it is to stay.
    pub(crate) fn take_place(&self, work: Work) -> Result<(), String> {
        let Some((first, last)) = self.cores else { return Ok(()) };
        let core = match (self.seat, work) {
            (Seat::First, _) | (Seat::Apart, Work::Writing) => first,
            (Seat::Last, _) | (Seat::Apart, Work::Reading) => last,
            (Seat::Free, _) => return Ok(()),
        };
        net::processors::stay_on(core).map_err(|error| format!("cannot stay on processor {core}: {error}"))
    }

    /// Data packets that left so far.
    pub(crate) fn packets_sent(&self) -> u64 {
        self.link.packets_sent()
    }

    /// Why the connection is of no use any more, if so.
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

/// Processor time of the calling thread.
pub(crate) fn thread_time() -> Duration {
    let spent = clock_gettime(ClockId::ThreadCPUTime);
    Duration::from_secs(spent.tv_sec as u64) + Duration::from_nanos(spent.tv_nsec as u64)
}

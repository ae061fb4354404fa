//! One host: an endpoint with one connection, and the sending and receiving that a driver does for
//! it.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use quic::session::SessionFactory;
use quic::session::deterministic::DeterministicFactory;
use quic::{
    Addresses, Connection, ConnectionId, ConnectionKey, Endpoint, Event, PLAN_DATAGRAMS_MAX, PathId, Plan, Receipt,
    ReceiveBuffer, Route, SecretSource, Side, seal,
};
use units::Instant;

use super::datagram::{Body, Datagram, InFlightBatch};
use crate::connection_setup::transport_config;
use crate::model::Scenario;
use crate::packets::{HostSeeds, host_seeds};
use crate::world::{PayloadMode, WorldError};

/// The key of the only connection of each endpoint.
const KEY: ConnectionKey = ConnectionKey(0);

pub(crate) struct Node {
    pub(crate) side: Side,
    endpoint: Endpoint,
    pub(crate) connection: Option<Connection>,
    factory: Arc<dyn SessionFactory>,
    payload_mode: PayloadMode,
    plan: Plan,
    /// Whether the last plan had the maximum number of datagrams.
    was_full: bool,
    sealed: Vec<u8>,
    /// Received datagrams, and those of them that belong to no connection.
    taken: u64,
    unrouted: u64,
    /// The batches that were sent last. Their memory is reused when all references are gone.
    batches: VecDeque<Rc<InFlightBatch>>,
    /// Cache of the last destination ID of a packet run that was routed to the connection, until
    /// the endpoint's routes change.
    routed: Option<ConnectionId>,
}

/// Datagram counts of a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeCounts {
    /// Planned, by the connection's count.
    pub(crate) planned: u64,
    /// Received.
    pub(crate) taken: u64,
    /// Received and counted by the connection, or belonging to no connection.
    pub(crate) accounted: u64,
}

/// A received datagram, passed without a copy.
struct Arrived(Vec<u8>);

impl ReceiveBuffer for Arrived {
    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }

    fn freeze(self) -> Bytes {
        Bytes::from(self.0)
    }
}

/// The addresses of a path's ends, the sending host's first. Each path has its own network and its
/// own socket at each host.
pub(crate) fn ends(path: usize) -> [SocketAddrV4; 2] {
    let ip = |host| Ipv4Addr::new(10, 0, path as u8, host);
    [SocketAddrV4::new(ip(1), 1000), SocketAddrV4::new(ip(2), 2000)]
}

/// The addresses of a path as seen by one side.
fn addresses(path: usize, side: Side) -> Addresses {
    let [client, server] = ends(path).map(SocketAddr::V4);
    let (here, there) = if side == Side::Client { (client, server) } else { (server, client) };
    Addresses { remote: there, local_ip: Some(here.ip()), socket: path as u16 }
}

/// An unsealed plan that is about to be sent.
pub(crate) struct PlannedBatch {
    pub(crate) in_flight: Rc<InFlightBatch>,
    receipt: Receipt,
}

/// Maximum number of batches kept for reuse. A new batch costs five allocations.
const BATCHES_KEPT_MAX: usize = 256;

/// An unshared batch: the oldest, if all of it has arrived, or a new one.
fn spare(batches: &mut VecDeque<Rc<InFlightBatch>>) -> Rc<InFlightBatch> {
    let is_free = batches.front().is_some_and(|oldest| Rc::strong_count(oldest) == 1);
    if !is_free && batches.len() <= BATCHES_KEPT_MAX {
        return Rc::default();
    }
    batches.pop_front().filter(|_| is_free).unwrap_or_default()
}

impl Node {
    pub(crate) fn new(
        scenario: &Scenario,
        side: Side,
        path_count: usize,
        payload_mode: PayloadMode,
        seed: u64,
        shards: usize,
    ) -> Result<Self, WorldError> {
        let host = if side == Side::Client { 0 } else { 1 };
        let HostSeeds { secret, sessions } = host_seeds(seed, host);
        let factory: Arc<dyn SessionFactory> = Arc::new(DeterministicFactory::new(side, sessions));
        let listening = (side == Side::Server).then(|| factory.clone());
        let secrets = SecretSource::new(&secret);
        // With several endpoints, the first has a share of the connection IDs.
        let secrets = if shards > 1 { secrets.split_for(0, shards) } else { secrets };
        let endpoint = Endpoint::new(transport_config(scenario, host, path_count), listening, secrets)
            .map_err(|error| WorldError::Unsuitable(error.to_string()))?;
        Ok(Self {
            side,
            endpoint,
            connection: None,
            factory,
            payload_mode,
            plan: Plan::new(),
            was_full: false,
            sealed: Vec::new(),
            taken: 0,
            unrouted: 0,
            batches: VecDeque::new(),
            routed: None,
        })
    }

    /// Begins the client's handshake over this path.
    pub(crate) fn connect(&mut self, now: Instant, path: usize) -> Result<(), WorldError> {
        let connection = self
            .endpoint
            .connect(now, self.factory.as_ref(), "b", addresses(path, Side::Client))
            .map_err(|error| WorldError::Unsuitable(error.to_string()))?;
        self.connection = Some(connection);
        self.apply_routes();
        Ok(())
    }

    /// Opens another path.
    pub(crate) fn open_path(&mut self, now: Instant, path: usize, is_backup: bool) -> Result<(), String> {
        let Some(connection) = &mut self.connection else { return Ok(()) };
        connection.open_path(now, addresses(path, self.side), is_backup).map_err(|error| error.to_string())
    }

    /// Marks the path on which the connection began as a backup.
    pub(crate) fn set_first_backup(&mut self, now: Instant) {
        if let Some(connection) = &mut self.connection {
            connection.set_path_backup(now, PathId::ZERO, true);
        }
    }

    /// Receives a datagram.
    pub(crate) fn receive(&mut self, now: Instant, datagram: Datagram) {
        match datagram.body() {
            Body::Unsealed(in_flight, index) => self.receive_batch(now, in_flight, index..index + 1),
            Body::Bytes(bytes) => {
                self.receive_bytes(now, addresses(datagram.path(), self.side), bytes.to_vec(), bytes.len());
            }
        }
    }

    /// Receives joined datagrams from one address, all `stride` bytes long except the last.
    fn receive_bytes(&mut self, now: Instant, addresses: Addresses, mut bytes: Vec<u8>, stride: usize) {
        self.taken += bytes.len().div_ceil(stride) as u64;
        while !bytes.is_empty() {
            let first = &bytes[..stride.min(bytes.len())];
            match (self.endpoint.route(first), &mut self.connection) {
                (Route::Known(_), Some(connection)) => {
                    connection.handle_datagrams(now, addresses, Arrived(std::mem::take(&mut bytes)), stride);
                }
                (Route::First, None) => {
                    self.connection = self.endpoint.accept(now, addresses, BytesMut::from(first)).ok();
                    self.unrouted += u64::from(self.connection.is_none());
                    bytes.drain(..first.len());
                }
                _ => {
                    self.unrouted += 1;
                    bytes.drain(..first.len());
                }
            }
            self.apply_routes();
        }
    }

    fn apply_routes(&mut self) {
        let Some(connection) = &mut self.connection else { return };
        while let Some(change) = connection.poll_route() {
            self.endpoint.apply(KEY, change);
            self.routed = None;
        }
    }

    /// The datagram counts, for conservation checks.
    pub(crate) fn counts(&self) -> NodeCounts {
        let stats = self.connection.as_ref().map(Connection::stats);
        let (planned, known) = stats.map_or((0, 0), |stats| {
            (stats.send.datagrams_sent, stats.receive.datagrams_received + stats.receive.datagrams_stray)
        });
        NodeCounts { planned, taken: self.taken, accounted: known + self.unrouted }
    }

    pub(crate) fn poll_event(&mut self) -> Option<Event> {
        self.connection.as_mut()?.poll_event()
    }

    /// Receives a batch of one path: datagrams of equal length, except the last, which may be
    /// shorter.
    pub(crate) fn receive_joined(&mut self, now: Instant, path: usize, datagrams: impl Iterator<Item = Datagram>) {
        if self.payload_mode == PayloadMode::Lengths {
            return self.receive_rows(now, datagrams);
        }
        let (mut joined, mut stride) = (Vec::new(), 0);
        for datagram in datagrams {
            let Body::Bytes(bytes) = datagram.body() else { unreachable!("in this mode every datagram has bytes") };
            stride = stride.max(bytes.len());
            joined.extend(bytes);
        }
        self.receive_bytes(now, addresses(path, self.side), joined, stride);
    }

    fn receive_rows(&mut self, now: Instant, datagrams: impl Iterator<Item = Datagram>) {
        let mut datagrams = datagrams.peekable();
        while let Some(datagram) = datagrams.next() {
            let Body::Unsealed(in_flight, first) = datagram.body() else {
                self.receive(now, datagram);
                continue;
            };
            let unsealed = in_flight.unsealed();
            let mut end = first + 1;
            // Consecutive packets of one plan are one packet run.
            while !unsealed.is_sealed(first)
                && datagrams
                    .next_if(|next| match next.body() {
                        Body::Unsealed(other, index) => {
                            index == end && Rc::ptr_eq(other, in_flight) && !unsealed.is_sealed(end)
                        }
                        Body::Bytes(_) => false,
                    })
                    .is_some()
            {
                end += 1;
            }
            self.receive_batch(now, in_flight, first..end);
        }
    }

    /// Receives consecutive datagrams of one plan.
    pub(crate) fn receive_batch(&mut self, now: Instant, in_flight: &InFlightBatch, datagrams: Range<usize>) {
        let (addresses, unsealed) = (addresses(in_flight.path(), self.side), in_flight.unsealed());
        if unsealed.is_sealed(datagrams.start) {
            debug_assert_eq!(datagrams.len(), 1, "a sealed datagram is received alone");
            let len = unsealed.len_bytes(datagrams.start);
            let mut bytes = Vec::with_capacity(len);
            unsealed.seal_datagram(datagrams.start, &mut bytes);
            return self.receive_bytes(now, addresses, bytes, len);
        }
        self.taken += datagrams.len() as u64;
        let destination = unsealed.destination(datagrams.start);
        if destination != self.routed.as_ref() {
            let route = self.endpoint.route_unsealed(unsealed, datagrams.start);
            self.routed = destination.filter(|_| matches!(route, Route::Known(_))).copied();
        }
        let is_known = self.routed.is_some();
        if let Some(connection) = self.connection.as_mut().filter(|_| is_known) {
            connection.handle_unsealed(now, addresses, unsealed, datagrams);
        } else {
            self.unrouted += datagrams.len() as u64;
        }
        self.apply_routes();
    }

    /// Plans the next batch of at most `datagrams_max` datagrams. Call [`Self::emitted`] when it is
    /// sent.
    pub(crate) fn next_planned_batch(&mut self, now: Instant, datagrams_max: usize) -> Option<PlannedBatch> {
        let connection = self.connection.as_mut()?;
        while connection.poll_plan(now, datagrams_max, &mut self.plan) {
            let receipt = self.plan.receipt();
            let Some(addresses) = self.plan.addresses else {
                connection.handle_emitted(now, &receipt);
                continue;
            };
            self.was_full = self.plan.is_full(PLAN_DATAGRAMS_MAX);
            let mut in_flight = spare(&mut self.batches);
            let empty = Rc::get_mut(&mut in_flight).expect("a spare batch is not shared");
            empty.fill(usize::from(addresses.socket), &mut self.plan);
            self.batches.push_back(Rc::clone(&in_flight));
            return Some(PlannedBatch { in_flight, receipt });
        }
        None
    }

    /// Records that a planned batch was sent.
    pub(crate) fn emitted(&mut self, now: Instant, planned: &PlannedBatch) {
        if let Some(connection) = &mut self.connection {
            connection.handle_emitted(now, &planned.receipt);
        }
        self.apply_routes();
    }

    /// Sends at most `plans_max` plans and returns their number. If it `corks`, data after a full plan
    /// that does not fill another is held back, and `plans_max` is returned.
    pub(crate) fn send(
        &mut self,
        now: Instant,
        plans_max: usize,
        corks: bool,
        mut emit: impl FnMut(Datagram),
    ) -> usize {
        let mut plans = 0;
        while plans < plans_max {
            if corks && plans > 0 && self.has_only_a_tail() {
                plans = plans_max;
                break;
            }
            if self.payload_mode == PayloadMode::Lengths {
                let Some(planned) = self.next_planned_batch(now, PLAN_DATAGRAMS_MAX) else { break };
                self.emitted(now, &planned);
                InFlightBatch::datagrams(&planned.in_flight).for_each(&mut emit);
            } else if !self.send_bytes(now, &mut emit) {
                break;
            }
            plans += 1;
        }
        self.apply_routes();
        plans
    }

    /// Whether the last plan was full and the remaining data does not fill another.
    fn has_only_a_tail(&mut self) -> bool {
        let connection = self.connection.as_mut();
        self.was_full && connection.is_some_and(|connection| connection.has_only_a_tail(PLAN_DATAGRAMS_MAX))
    }

    /// Sends one sealed plan; false if there is nothing to send.
    fn send_bytes(&mut self, now: Instant, emit: &mut impl FnMut(Datagram)) -> bool {
        let Some(connection) = &mut self.connection else { return false };
        if !connection.poll_plan(now, PLAN_DATAGRAMS_MAX, &mut self.plan) {
            return false;
        }
        self.was_full = self.plan.is_full(PLAN_DATAGRAMS_MAX);
        connection.handle_emitted(now, &self.plan.receipt());
        let Some(addresses) = self.plan.addresses else { return true };
        let path = usize::from(addresses.socket);
        seal(&self.plan, &mut self.sealed);
        for index in self.sealed.chunks(self.plan.segment_size) {
            emit(Datagram::with_bytes(path, index.to_vec()));
        }
        true
    }

    pub(crate) fn timeout(&self) -> Option<Instant> {
        self.connection.as_ref()?.poll_timeout()
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        if let Some(connection) = &mut self.connection {
            connection.handle_timeout(now);
        }
    }
}

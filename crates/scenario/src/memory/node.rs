//! One host: an endpoint, its one connection, and what a driver does for it.

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

use super::frame::{Body, Frame, Parcel};
use crate::begin::transport_config;
use crate::model::Scenario;
use crate::packets::{HostSeeds, host_seeds};
use crate::world::{Stages, WorldError};

/// The name that each endpoint gives its only connection.
const KEY: ConnectionKey = ConnectionKey(0);

pub(crate) struct Node {
    pub(crate) side: Side,
    endpoint: Endpoint,
    pub(crate) connection: Option<Connection>,
    factory: Arc<dyn SessionFactory>,
    stages: Stages,
    plan: Plan,
    /// The last plan had all the datagrams that it could.
    was_full: bool,
    sealed: Vec<u8>,
    /// Datagrams that came to it, and those of them that belong to no connection.
    taken: u64,
    unrouted: u64,
    /// Those that were sent last: memory for others once nobody has them any more.
    parcels: VecDeque<Rc<Parcel>>,
    /// Where datagrams of rows were last sent to that were for the connection, as long as the endpoint's routes stay as they are.
    routed: Option<ConnectionId>,
}

/// Datagrams of a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeTally {
    /// As its connection has counted those it planned.
    pub(crate) planned: u64,
    /// That came to it.
    pub(crate) taken: u64,
    /// Of these, what its connection has counted, and what belongs to none.
    pub(crate) accounted: u64,
}

/// A datagram as it came; nothing is copied.
struct Arrived(Vec<u8>);

impl ReceiveBuffer for Arrived {
    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }

    fn freeze(self) -> Bytes {
        Bytes::from(self.0)
    }
}

/// The ends of a path, the sending host's first: each path has a network, and a socket at each host, of its own.
pub(crate) fn ends(path: usize) -> [SocketAddrV4; 2] {
    let ip = |host| Ipv4Addr::new(10, 0, path as u8, host);
    [SocketAddrV4::new(ip(1), 1000), SocketAddrV4::new(ip(2), 2000)]
}

/// The ends of a path as one side sees them.
fn addresses(path: usize, side: Side) -> Addresses {
    let [client, server] = ends(path).map(SocketAddr::V4);
    let (here, there) = if side == Side::Client { (client, server) } else { (server, client) };
    Addresses { remote: there, local_ip: Some(here.ip()), socket: path as u16 }
}

/// A plan that leaves or is about to, never sealed.
pub(crate) struct Flight {
    pub(crate) parcel: Rc<Parcel>,
    receipt: Receipt,
}

/// Parcels kept for their memory, at most: those of a long path are under way anyway, and a new one costs five allocations.
const PARCELS_KEPT_MAX: usize = 256;

/// A parcel that nobody else has: the oldest, if all of it has arrived.
fn spare(parcels: &mut VecDeque<Rc<Parcel>>) -> Rc<Parcel> {
    let is_free = parcels.front().is_some_and(|oldest| Rc::strong_count(oldest) == 1);
    if !is_free && parcels.len() <= PARCELS_KEPT_MAX {
        return Rc::default();
    }
    parcels.pop_front().filter(|_| is_free).unwrap_or_default()
}

impl Node {
    pub(crate) fn new(
        scenario: &Scenario,
        side: Side,
        path_count: usize,
        stages: Stages,
        seed: u64,
        shards: usize,
    ) -> Result<Self, WorldError> {
        let host = if side == Side::Client { 0 } else { 1 };
        let HostSeeds { secret, sessions } = host_seeds(seed, host);
        let factory: Arc<dyn SessionFactory> = Arc::new(DeterministicFactory::new(side, sessions));
        let listening = (side == Side::Server).then(|| factory.clone());
        let secrets = SecretSource::new(&secret);
        // The first of several endpoints has a share of the IDs.
        let secrets = if shards > 1 { secrets.split_for(0, shards) } else { secrets };
        let endpoint = Endpoint::new(transport_config(scenario, host, path_count), listening, secrets)
            .map_err(|error| WorldError::Unsuitable(error.to_string()))?;
        Ok(Self {
            side,
            endpoint,
            connection: None,
            factory,
            stages,
            plan: Plan::new(),
            was_full: false,
            sealed: Vec::new(),
            taken: 0,
            unrouted: 0,
            parcels: VecDeque::new(),
            routed: None,
        })
    }

    /// The client begins, over this path.
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

    /// Makes the path that the connection began on a backup.
    pub(crate) fn set_first_backup(&mut self, now: Instant) {
        if let Some(connection) = &mut self.connection {
            connection.set_path_backup(now, PathId::ZERO, true);
        }
    }

    /// A datagram arrives.
    pub(crate) fn receive(&mut self, now: Instant, frame: Frame) {
        match frame.body() {
            Body::Unsealed(parcel, datagram) => self.receive_batch(now, parcel, datagram..datagram + 1),
            Body::Bytes(bytes) => {
                self.receive_bytes(now, addresses(frame.path(), self.side), bytes.to_vec(), bytes.len());
            }
        }
    }

    /// Datagrams that arrived together from one address, all `stride` bytes long but the last.
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

    /// What went through it, so that nothing is lost on the way.
    pub(crate) fn tally(&self) -> NodeTally {
        let stats = self.connection.as_ref().map(Connection::stats);
        let (planned, known) = stats.map_or((0, 0), |stats| {
            (stats.send.datagrams_sent, stats.receive.datagrams_received + stats.receive.datagrams_stray)
        });
        NodeTally { planned, taken: self.taken, accounted: known + self.unrouted }
    }

    pub(crate) fn poll_event(&mut self) -> Option<Event> {
        self.connection.as_mut()?.poll_event()
    }

    /// A batch arrives: datagrams of one path, as long as each other but for the last, which may be shorter.
    pub(crate) fn receive_joined(&mut self, now: Instant, path: usize, frames: impl Iterator<Item = Frame>) {
        if self.stages == Stages::Lengths {
            return self.receive_rows(now, frames);
        }
        let (mut joined, mut stride) = (Vec::new(), 0);
        for frame in frames {
            let Body::Bytes(bytes) = frame.body() else { unreachable!("everything is sealed here") };
            stride = stride.max(bytes.len());
            joined.extend(bytes);
        }
        self.receive_bytes(now, addresses(path, self.side), joined, stride);
    }

    fn receive_rows(&mut self, now: Instant, frames: impl Iterator<Item = Frame>) {
        let mut frames = frames.peekable();
        while let Some(frame) = frames.next() {
            let Body::Unsealed(parcel, first) = frame.body() else {
                self.receive(now, frame);
                continue;
            };
            let unsealed = parcel.unsealed();
            let mut end = first + 1;
            // Packets of one plan, one behind the other, are one row.
            while !unsealed.is_sealed(first)
                && frames
                    .next_if(|next| match next.body() {
                        Body::Unsealed(other, datagram) => {
                            datagram == end && Rc::ptr_eq(other, parcel) && !unsealed.is_sealed(end)
                        }
                        Body::Bytes(_) => false,
                    })
                    .is_some()
            {
                end += 1;
            }
            self.receive_batch(now, parcel, first..end);
        }
    }

    /// Datagrams of a plan that arrived together over a path.
    pub(crate) fn receive_batch(&mut self, now: Instant, parcel: &Parcel, datagrams: Range<usize>) {
        let (addresses, unsealed) = (addresses(parcel.path(), self.side), parcel.unsealed());
        if unsealed.is_sealed(datagrams.start) {
            debug_assert_eq!(datagrams.len(), 1, "what has bytes comes alone");
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

    /// What may leave now, at most `datagrams_max` datagrams of it; [`Self::emitted`] says when it does.
    pub(crate) fn next_flight(&mut self, now: Instant, datagrams_max: usize) -> Option<Flight> {
        let connection = self.connection.as_mut()?;
        while connection.poll_plan(now, datagrams_max, &mut self.plan) {
            let receipt = self.plan.receipt();
            let Some(addresses) = self.plan.addresses else {
                connection.handle_emitted(now, &receipt);
                continue;
            };
            self.was_full = self.plan.is_full(PLAN_DATAGRAMS_MAX);
            let mut parcel = spare(&mut self.parcels);
            let empty = Rc::get_mut(&mut parcel).expect("nobody else has a spare one");
            empty.fill(usize::from(addresses.socket), &mut self.plan);
            self.parcels.push_back(Rc::clone(&parcel));
            return Some(Flight { parcel, receipt });
        }
        None
    }

    /// A flight leaves.
    pub(crate) fn emitted(&mut self, now: Instant, flight: &Flight) {
        if let Some(connection) = &mut self.connection {
            connection.handle_emitted(now, &flight.receipt);
        }
        self.apply_routes();
    }

    /// Sends what may leave now, so many plans of it at most; how many there were. If it `holds_tails`, what follows a full plan and fills
    /// no other stays, and counts as the rest of them.
    pub(crate) fn send(
        &mut self,
        now: Instant,
        plans_max: usize,
        holds_tails: bool,
        mut emit: impl FnMut(Frame),
    ) -> usize {
        let mut plans = 0;
        while plans < plans_max {
            if holds_tails && plans > 0 && self.has_only_a_tail() {
                plans = plans_max;
                break;
            }
            if self.stages == Stages::Lengths {
                let Some(flight) = self.next_flight(now, PLAN_DATAGRAMS_MAX) else { break };
                self.emitted(now, &flight);
                Parcel::frames(&flight.parcel).for_each(&mut emit);
            } else if !self.send_bytes(now, &mut emit) {
                break;
            }
            plans += 1;
        }
        self.apply_routes();
        plans
    }

    /// Whether the last plan was full and what is left fills none.
    fn has_only_a_tail(&mut self) -> bool {
        let connection = self.connection.as_mut();
        self.was_full && connection.is_some_and(|connection| connection.has_only_a_tail(PLAN_DATAGRAMS_MAX))
    }

    /// Sends a plan, sealed; false if there is nothing to send.
    fn send_bytes(&mut self, now: Instant, emit: &mut impl FnMut(Frame)) -> bool {
        let Some(connection) = &mut self.connection else { return false };
        if !connection.poll_plan(now, PLAN_DATAGRAMS_MAX, &mut self.plan) {
            return false;
        }
        self.was_full = self.plan.is_full(PLAN_DATAGRAMS_MAX);
        connection.handle_emitted(now, &self.plan.receipt());
        let Some(addresses) = self.plan.addresses else { return true };
        let path = usize::from(addresses.socket);
        seal(&self.plan, &mut self.sealed);
        for datagram in self.sealed.chunks(self.plan.segment_size) {
            emit(Frame::loose(path, datagram.to_vec()));
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

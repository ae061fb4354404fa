//! The peers of a tunnel, and which addresses they have.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};

use net::MonotonicClock;
use quic_endpoint::identity::Fingerprint;
use quic_endpoint::local_ends::LocalEnds;
use quic_endpoint::{Connection, PathStats};
use tunnel::control::{VERSION_ANSWER_CLASS, VERSION_FILLING, VERSION_PINS, VERSION_TERMINATES};
use tunnel::inner::Inner;
use tunnel::{Prefix, PrefixMap};

use units::Duration;

use super::contact::Contact;
use super::meters::Meters;
use super::path_views::PathViews;
use super::rates::Rates;
use super::terminate::choice::UrgentStreams;
use super::terminate::flows::Flows;
use super::terminate::told::ToldClasses;
use super::wake::WakeEvent;

/// The number of a peer, which is never used again.
pub type PeerId = u64;

/// The key of a peer, and the word by which the user knows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    /// The fingerprint of the key.
    pub key: Fingerprint,
    /// The word, if the user has one.
    pub label: Option<String>,
}

/// A peer.
#[derive(Debug)]
pub struct Peer {
    /// The connection to it.
    pub connection: Connection,
    /// The local ends of its paths.
    pub ends: Arc<LocalEnds>,
    /// Who it is.
    pub identity: Identity,
    /// The networks that are behind it: packets to these go to it, and it may send from these only.
    networks: RwLock<Vec<Prefix>>,
    /// It takes streams of terminated connections.
    pub(crate) takes_streams: bool,
    /// It knows flows that keep to one path.
    pub(crate) knows_pins: bool,
    /// It takes the class of a target's answer before it is told that the target is connected.
    pub(crate) takes_answer_class: bool,
    /// It passes over filling.
    pub(crate) takes_filling: bool,
    /// Its terminated connections.
    pub flows: Arc<Flows>,
    /// The classes of these: what the peer tells, and the share of urgent data.
    pub(crate) told_classes: Arc<ToldClasses>,
    pub(crate) urgent_streams: UrgentStreams,
    /// The largest packet that both ends take, in bytes.
    pub mtu: u16,
    /// The most that goes to it, and comes from it.
    pub(crate) meters: Meters,
    /// Counts its packets.
    pub counters: PeerCounters,
    /// The rates of its paths.
    pub rates: Rates,
    /// What its paths are used for.
    pub paths: PathViews,
    contact: Contact,
}

/// Counters of a peer.
#[derive(Debug, Default)]
pub struct PeerCounters {
    /// Packets and super-packets into the tunnel.
    pub packets_in: AtomicU64,
    /// Bytes of these.
    pub bytes_in: AtomicU64,
    /// Of these, dropped by the queue.
    pub dropped: AtomicU64,
    /// Of these, marked by the queue.
    pub marked: AtomicU64,
    /// Of these, urgent: sent before all others, on two paths.
    pub urgent: AtomicU64,
    /// Of these, too large for the other end: their sender was told.
    pub too_large: AtomicU64,
    /// Bytes that wait in the queue now, and in what the connection takes next.
    pub queued_bytes: AtomicU64,
    /// Flows with packets in the queue now.
    pub queued_flows: AtomicU64,
    /// Packets and super-packets out of the tunnel.
    pub packets_out: AtomicU64,
    /// Bytes of these.
    pub bytes_out: AtomicU64,
    /// Packets from addresses that the peer does not have.
    pub spoofed: AtomicU64,
    /// Packets that the peer has sent although they are larger than both ends have agreed on.
    pub too_large_out: AtomicU64,
    /// Packets above the peer's rate.
    pub over_rate: AtomicU64,
    /// Datagrams that are malformed.
    pub malformed: AtomicU64,
    /// Packets of which a piece is missing.
    pub incomplete: AtomicU64,
    /// Items that had to wait for earlier ones of their flow.
    pub held: AtomicU64,
    /// Items that were given up, because every path had passed them.
    pub lost: AtomicU64,
    /// Items that were given up, because the wait was over or too much was held.
    pub expired: AtomicU64,
    /// Items that arrived after they were given up, and were delivered.
    pub late: AtomicU64,
    /// Items that arrived again or far too late, and were dropped.
    pub duplicates: AtomicU64,
    /// How long a missing packet is waited for, in microseconds.
    pub wait_us: AtomicU64,
}

impl Peer {
    /// A peer with these `networks` behind it, whose connection has the local ends `ends`. `mtu` is the largest packet that
    /// both ends take, in bytes, and `version` that of the tunnel's protocol at the peer.
    pub fn new(
        connection: Connection,
        ends: Arc<LocalEnds>,
        identity: Identity,
        networks: Vec<Prefix>,
        mtu: u16,
        meters: Meters,
        version: u16,
    ) -> Self {
        let (flows, counters) = (Arc::default(), PeerCounters::default());
        let (takes_streams, knows_pins) = (version >= VERSION_TERMINATES, version >= VERSION_PINS);
        let (takes_answer_class, takes_filling) = (version >= VERSION_ANSWER_CLASS, version >= VERSION_FILLING);
        let (told_classes, urgent_streams) = (Arc::default(), UrgentStreams::default());
        Self {
            connection,
            ends,
            identity,
            networks: RwLock::new(networks),
            takes_streams,
            knows_pins,
            takes_answer_class,
            takes_filling,
            flows,
            told_classes,
            urgent_streams,
            mtu,
            meters,
            counters,
            rates: Rates::default(),
            paths: PathViews::default(),
            contact: Contact::default(),
        }
    }

    /// How long the connection exists, and how long ago something came on it, which has these `paths`.
    pub fn contact(&self, paths: &[PathStats]) -> (Duration, Duration) {
        let silence = self.contact.note(paths.iter().map(|path| path.bytes_received).sum());
        (self.contact.age(), silence)
    }

    /// Looks whether something has come since the last look.
    pub fn look(&self) {
        self.contact(&self.connection.stats().paths);
    }

    /// Whether the peer may send from this address.
    pub(crate) fn allows(&self, inner: &Inner) -> bool {
        self.has_address(inner.source)
    }

    /// Whether an address belongs to the peer.
    pub(crate) fn has_address(&self, address: IpAddr) -> bool {
        self.read_networks().iter().any(|network| network.contains(address))
    }

    /// The networks that are behind it.
    pub fn networks(&self) -> Vec<Prefix> {
        self.read_networks().clone()
    }

    fn read_networks(&self) -> RwLockReadGuard<'_, Vec<Prefix>> {
        self.networks.read().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All peers. Shared by the threads of the tunnel.
#[derive(Debug)]
pub struct Peers {
    table: Mutex<Table>,
    /// Changes with the table.
    version: AtomicU64,
    wake: WakeEvent,
    clock: MonotonicClock,
}

/// The peers, and the peer of each network.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// The peer of each network.
    pub routes: PrefixMap<PeerId>,
    /// The peers by their numbers.
    pub peers: BTreeMap<PeerId, Arc<Peer>>,
    next: PeerId,
}

impl Peers {
    /// No peers. `wake` wakes the thread that sends to them.
    pub(crate) fn new(wake: WakeEvent) -> Self {
        Self { table: Mutex::default(), version: AtomicU64::new(1), wake, clock: MonotonicClock::start() }
    }

    /// The clock of the tunnel.
    pub const fn clock(&self) -> MonotonicClock {
        self.clock
    }

    /// Adds a peer, which takes its networks from peers that have them. Returns its number, and these peers: they
    /// must end, because they could still send from the networks.
    pub fn add(&self, peer: Arc<Peer>) -> (PeerId, Vec<Arc<Peer>>) {
        let added = {
            let mut table = self.lock();
            let id = table.next;
            table.next += 1;
            let mut before = BTreeSet::new();
            for network in peer.networks() {
                before.extend(table.routes.insert(network, id));
            }
            let before = before.iter().filter_map(|id| table.peers.get(id)).map(Arc::clone).collect();
            table.peers.insert(id, peer);
            (id, before)
        };
        self.changed();
        added
    }

    /// Gives a peer other networks, which no other peer has.
    pub fn set_networks(&self, id: PeerId, peer: &Peer, networks: Vec<Prefix>) {
        {
            let mut table = self.lock();
            table.routes.retain(|_, owner| *owner != id);
            for network in &networks {
                table.routes.insert(*network, id);
            }
            *peer.networks.write().unwrap_or_else(PoisonError::into_inner) = networks;
        }
        self.changed();
    }

    /// Removes a peer, and its networks unless another one has them now.
    pub fn remove(&self, id: PeerId) {
        {
            let mut table = self.lock();
            table.peers.remove(&id);
            table.routes.retain(|_, peer| *peer != id);
        }
        self.changed();
    }

    /// The peer that has an address.
    pub(crate) fn of_address(&self, address: IpAddr) -> Option<Arc<Peer>> {
        let table = self.lock();
        table.routes.get(address).and_then(|id| table.peers.get(id)).map(Arc::clone)
    }

    /// The version of the table.
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// The peers that there are now.
    pub fn table(&self) -> Table {
        self.lock().clone()
    }

    fn changed(&self) {
        self.version.fetch_add(1, Ordering::Release);
        self.wake.wake();
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

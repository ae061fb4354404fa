//! The peers of a tunnel, and which addresses they have.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};

use litz::identity::Fingerprint;
use litz::{Connection, PathStats};
use net::MonotonicClock;
use quic_endpoint::local_ends::LocalEnds;
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
pub(crate) type PeerId = u64;

/// The key of a peer, and the word by which the user knows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Identity {
    pub(crate) key: Fingerprint,
    pub(crate) label: Option<String>,
}

/// A peer.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) connection: Connection,
    /// The local ends of its paths.
    pub(crate) ends: Arc<LocalEnds>,
    pub(crate) identity: Identity,
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
    pub(crate) flows: Arc<Flows>,
    /// The classes of these: what the peer tells, and the share of urgent data.
    pub(crate) told_classes: Arc<ToldClasses>,
    pub(crate) urgent_streams: UrgentStreams,
    /// The largest packet that both ends take, in bytes.
    pub(crate) mtu: u16,
    /// The most that goes to it, and comes from it.
    pub(crate) meters: Meters,
    pub(crate) counters: PeerCounters,
    pub(crate) rates: Rates,
    pub(crate) paths: PathViews,
    contact: Contact,
}

/// Counters of a peer.
#[derive(Debug, Default)]
pub(crate) struct PeerCounters {
    /// Packets and super-packets into the tunnel, and their bytes.
    pub(crate) packets_in: AtomicU64,
    pub(crate) bytes_in: AtomicU64,
    /// Of these, dropped by the queue.
    pub(crate) dropped: AtomicU64,
    /// Of these, marked by the queue.
    pub(crate) marked: AtomicU64,
    /// Of these, urgent: sent before all others, on two paths.
    pub(crate) urgent: AtomicU64,
    /// Of these, too large for the other end: their sender was told.
    pub(crate) too_large: AtomicU64,
    /// Bytes that wait in the queue now, and in what the connection takes next.
    pub(crate) queued_bytes: AtomicU64,
    /// Flows with packets in the queue now.
    pub(crate) queued_flows: AtomicU64,
    /// Packets and super-packets out of the tunnel, and their bytes.
    pub(crate) packets_out: AtomicU64,
    pub(crate) bytes_out: AtomicU64,
    /// Packets from addresses that the peer does not have.
    pub(crate) spoofed: AtomicU64,
    /// Packets that the peer has sent although they are larger than both ends have agreed on.
    pub(crate) too_large_out: AtomicU64,
    /// Packets above the peer's rate.
    pub(crate) over_rate: AtomicU64,
    /// Datagrams that are malformed.
    pub(crate) malformed: AtomicU64,
    /// Packets of which a piece is missing.
    pub(crate) incomplete: AtomicU64,
    /// What the order of flows has counted: waited, lost, expired, late, dropped.
    pub(crate) held: AtomicU64,
    pub(crate) lost: AtomicU64,
    pub(crate) expired: AtomicU64,
    pub(crate) late: AtomicU64,
    pub(crate) duplicates: AtomicU64,
    /// How long a missing packet is waited for, in microseconds.
    pub(crate) wait_us: AtomicU64,
}

impl Peer {
    pub(crate) fn new(
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
    pub(crate) fn contact(&self, paths: &[PathStats]) -> (Duration, Duration) {
        let silence = self.contact.note(paths.iter().map(|path| path.bytes_received).sum());
        (self.contact.age(), silence)
    }

    /// Looks whether something has come since the last look.
    pub(crate) fn look(&self) {
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
    pub(crate) fn networks(&self) -> Vec<Prefix> {
        self.read_networks().clone()
    }

    fn read_networks(&self) -> RwLockReadGuard<'_, Vec<Prefix>> {
        self.networks.read().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All peers. Shared by the threads of the tunnel.
#[derive(Debug)]
pub(crate) struct Peers {
    table: Mutex<Table>,
    /// Changes with the table.
    version: AtomicU64,
    wake: WakeEvent,
    clock: MonotonicClock,
}

/// The peers, and the peer of each network.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    pub(crate) routes: PrefixMap<PeerId>,
    pub(crate) peers: BTreeMap<PeerId, Arc<Peer>>,
    next: PeerId,
}

impl Peers {
    /// No peers. `wake` wakes the thread that sends to them.
    pub(crate) fn new(wake: WakeEvent) -> Self {
        Self { table: Mutex::default(), version: AtomicU64::new(1), wake, clock: MonotonicClock::start() }
    }

    /// The clock of the tunnel.
    pub(crate) const fn clock(&self) -> MonotonicClock {
        self.clock
    }

    /// Adds a peer, which takes its networks from peers that have them. Returns its number, and these peers: they
    /// must end, because they could still send from the networks.
    pub(crate) fn add(&self, peer: Arc<Peer>) -> (PeerId, Vec<Arc<Peer>>) {
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
    pub(crate) fn set_networks(&self, id: PeerId, peer: &Peer, networks: Vec<Prefix>) {
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
    pub(crate) fn remove(&self, id: PeerId) {
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

    pub(crate) fn table(&self) -> Table {
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

//! Leases: the driver lends the keys of a path to a worker that serves a socket, so that the worker
//! decrypts packets where they are received. See [`quic::OpenLease`].
//!
//! ```text
//!   driver: receives an encrypted batch ─▶ opens it and grants a lease ─▶ worker: opens later batches of the path
//!   driver: makes a plan ─▶ updates every lease ─▶ sends the plan ─▶ worker: receives the answer, reads the lease
//! ```
//!
//! Both sides share two values of each lease. The driver writes them after it has made a plan and
//! before the plan leaves. The worker reads them after the system call that received a batch and
//! before it opens the batch. So the worker opens a packet that the peer sent in response to a plan
//! with everything that was known when the plan was made. An expired lease is not renewed: the next
//! batch reaches the driver encrypted, and the driver grants a new lease.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use driver::ConnectionKey;
use driver::in_flight::{ConnectionRef, InFlightBatch};
use quic::{Addresses, BatchMeta, Connection, LeaseTerms, OpenLease, PathId};

use crate::cells::connection::ConnectionCell;
use crate::packets::{OpenJob, Packets};
use crate::quic_protocol::Quic;
use crate::routing::{LocalId, local_id};

/// Maximum number of leases of a worker. Each takes a few hundred bytes, plus keys that are shared.
/// A worker that reaches the limit drops all leases; active ones are granted again with the next
/// batch.
const LEASES_MAX: usize = 1024;

/// Maximum number of leases of a connection: one for each path and each worker that receives
/// packets of the path. The oldest is dropped.
const LEASES_PER_CONNECTION_MAX: usize = 64;

/// Values shared by the driver and the worker.
#[derive(Debug, Default)]
struct LeaseState {
    /// Largest packet number received on the path, plus one; zero before the first packet.
    received_end: AtomicU64,
    is_over: AtomicBool,
}

/// A lease, as held by a worker.
pub struct Lease {
    id: LocalId,
    key: ConnectionKey,
    cell: Arc<ConnectionCell>,
    lease: OpenLease,
    state: Arc<LeaseState>,
}

/// The leases of one connection, as held by the driver. Dropping it expires them.
#[derive(Default)]
pub struct LeaseTable {
    leases: Vec<GrantedLease>,
}

struct GrantedLease {
    worker: usize,
    path: PathId,
    id: LocalId,
    terms: LeaseTerms,
    state: Arc<LeaseState>,
}

impl GrantedLease {
    /// Returns whether the worker has dropped the lease.
    fn is_returned(&self) -> bool {
        Arc::strong_count(&self.state) == 1
    }
}

impl Drop for GrantedLease {
    fn drop(&mut self) {
        self.state.is_over.store(true, Ordering::Release);
    }
}

impl LeaseTable {
    /// Grants a lease to `worker`, which received an encrypted batch that begins with `first`.
    /// Returns `None` if the worker already has a lease for this connection ID, or the connection
    /// cannot lease.
    pub fn grant(
        &mut self,
        connection: &mut Connection,
        (key, cell): (ConnectionKey, &Arc<ConnectionCell>),
        worker: usize,
        first: &[u8],
    ) -> Option<Lease> {
        let id = local_id(first)?;
        self.leases.retain(|granted| !granted.is_returned());
        if self.leases.iter().any(|granted| granted.worker == worker && granted.id == id) {
            return None;
        }
        let terms = connection.lease_terms()?;
        let lease = connection.grant_lease(first)?;
        let path = lease.path();
        // Each path and worker has one lease: two would not share the largest packet number.
        self.leases.retain(|granted| granted.worker != worker || granted.path != path);
        if self.leases.len() >= LEASES_PER_CONNECTION_MAX {
            self.leases.remove(0);
        }
        let state = Arc::<LeaseState>::default();
        self.leases.push(GrantedLease { worker, path, id, terms, state: Arc::clone(&state) });
        Some(Lease { id, key, cell: Arc::clone(cell), lease, state })
    }

    /// Updates all leases. Called after a plan was made and before it leaves.
    pub(crate) fn update(&mut self, connection: &Connection) {
        if self.leases.is_empty() {
            return;
        }
        let terms = connection.lease_terms();
        self.leases.retain(|granted| Some(granted.terms) == terms);
        for granted in &self.leases {
            let received_end = connection.largest_received(granted.path).map_or(0, |largest| largest + 1);
            // Written only if it changes, so that the cache line stays shared.
            if granted.state.received_end.load(Ordering::Relaxed) != received_end {
                granted.state.received_end.store(received_end, Ordering::Release);
            }
        }
    }
}

/// The leases of one worker.
#[derive(Default)]
pub struct Leases {
    leases: BTreeMap<LocalId, Lease>,
}

impl Leases {
    /// Opens datagrams that all have the connection ID of the first one, if there is a lease for
    /// it. Returns their connection and the job.
    pub(crate) fn open_datagrams<K>(
        &mut self,
        addresses: Addresses,
        meta: BatchMeta,
        data: &mut [u8],
        spare: impl FnOnce() -> Box<OpenJob<K>>,
    ) -> Option<(ConnectionKey, Arc<ConnectionCell>, Box<OpenJob<K>>)> {
        let id = local_id(data)?;
        let lease = self.leases.get_mut(&id)?;
        if lease.state.is_over.load(Ordering::Acquire) {
            self.leases.remove(&id);
            return None;
        }
        if let Some(largest) = lease.state.received_end.load(Ordering::Acquire).checked_sub(1) {
            lease.lease.note_received(largest);
        }
        let mut job = spare();
        lease.lease.open(addresses, meta, data, &mut job.job);
        Some((lease.key, Arc::clone(&lease.cell), job))
    }
}

impl<K: Packets> driver::protocol::LeaseCache<Quic<K>> for Leases {
    type Lease = Lease;

    fn insert(&mut self, lease: Lease) {
        <Self as driver::protocol::LeaseCache<Quic<K>>>::sweep(self);
        if self.leases.len() >= LEASES_MAX {
            self.leases.clear();
        }
        self.leases.insert(lease.id, lease);
    }

    fn sweep(&mut self) {
        self.leases.retain(|_, lease| !lease.state.is_over.load(Ordering::Acquire));
    }

    fn open(
        &mut self,
        socket: usize,
        batch: &mut K::Batch,
        spare: impl FnOnce() -> Box<OpenJob<K>>,
    ) -> Option<InFlightBatch<Quic<K>, Box<OpenJob<K>>>> {
        let (key, cell, job) = K::open_leased(self, socket, batch, spare)?;
        Some(InFlightBatch::new(ConnectionRef { key, cell }, job))
    }
}

//! Leases of open keys: a processor with a socket of its own opens the datagrams that arrive there.
//!
//! [`begin_open`](Connection::begin_open) passes keys for one batch that the connection has seen. A
//! lease is for all datagrams of one path until it ends, so that a batch comes to the connection
//! already opened:
//!
//! ```text
//!   connection ── lease ─▶ processor: datagrams arrive ─▶ OpenLease::open ─▶ job ─▶ handle_leased ─▶ connection
//!              ── largest number received, terms ─▶ (before any packet leaves that was planned with them)
//! ```
//!
//! A peer encodes its packets by what it received from us: it shortens packet numbers by our
//! acknowledgements (RFC 9000, section 17.1), begins a key phase only when packets of the one
//! before are acknowledged (RFC 9001, section 6.1), and names paths up to those we allowed. So a
//! lease opens every authentic packet if its holder is notified of a change before a packet leaves
//! that reveals the change to the peer: of the [terms](Connection::lease_terms) under which it was
//! granted, and of the [largest number](Connection::largest_received) if packets of the path
//! arrived elsewhere. A lease ends when its terms change; it is never updated.

use bytes::Bytes;
use units::Instant;
use wire::quic::{PathId, Space};

use super::Connection;
use crate::addresses::Addresses;
use crate::batch_meta::BatchMeta;
use crate::open::{OpenContext, OpenJob};

/// Opens the datagrams of one path of one connection. It has copies of the keys and the largest
/// number, and shares nothing with the connection.
pub struct OpenLease {
    path: PathId,
    /// None while a job has it.
    context: Option<OpenContext>,
}

/// The terms of a lease: while they stay equal, so does everything in a lease except packet
/// numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseTerms {
    /// The number of the key phase.
    epoch: u64,
    /// Whether packets of the phase before are still opened.
    opens_previous: bool,
    /// The highest path ID that the peer may name.
    max_path: Option<PathId>,
}

impl LeaseTerms {
    pub(crate) fn new(epoch: u64, opens_previous: bool, max_path: Option<PathId>) -> Self {
        Self { epoch, opens_previous, max_path }
    }
}

impl OpenLease {
    /// The path whose datagrams it opens.
    pub fn path(&self) -> PathId {
        self.path
    }

    /// Number `largest` of the path was received, here or elsewhere. To be called before a packet
    /// is opened that the peer may have sent after it received the acknowledgement of `largest`.
    pub fn note_received(&mut self, largest: u64) {
        if let Some(context) = &mut self.context {
            let known = &mut context.largest[Space::Data.index()];
            *known = (*known).max(Some(largest));
        }
    }

    /// Opens datagrams with short headers, sent to a connection ID of the path, in place. `job` is
    /// for [`Connection::handle_leased`], in the order in which they arrived.
    pub fn open(&mut self, addresses: Addresses, meta: impl Into<BatchMeta>, data: &mut [u8], job: &mut OpenJob) {
        job.prepare(self.context.take(), addresses, meta.into(), data.len());
        job.open(data);
        // With the numbers and the phase that were opened.
        self.context.clone_from(&job.context);
    }
}

impl Connection {
    /// Grants a lease for the path of this datagram, which has a short header and was routed here.
    /// None during the handshake and once the connection closes.
    pub fn grant_lease(&mut self, datagram: &[u8]) -> Option<OpenLease> {
        self.lease_terms()?;
        let path = self.path_of(datagram);
        Some(OpenLease { path, context: Some(self.open_context(path)) })
    }

    /// The present terms of leases; none if none may be granted. Leases under other terms are void:
    /// their holders must know before a packet leaves that was planned since.
    pub fn lease_terms(&self) -> Option<LeaseTerms> {
        self.control.lease_terms()
    }

    /// The largest packet number received on a path, if any. Holders of leases on it must know
    /// before a packet leaves that was planned since.
    pub fn largest_received(&self, path: PathId) -> Option<u64> {
        self.receive.half.largest(Space::Data, path)
    }

    /// As [`handle_datagrams`](Self::handle_datagrams), for a batch that a lease has opened in
    /// `buffer`. Batches of a path are to come in the order in which they arrived; one that is
    /// missing counts as packet loss.
    pub fn handle_leased(&mut self, now: Instant, job: &mut OpenJob, buffer: &Bytes) {
        let (Some(path), Some(addresses), Some(meta)) = (job.path(), job.addresses, job.meta) else { return };
        let count = meta.count_in(job.len as usize);
        if self.note_arrival(now, path, &addresses, count, job.len) {
            self.handle_opened(now, job, buffer);
        }
    }
}

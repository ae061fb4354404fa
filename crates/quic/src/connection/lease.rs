//! Opening where datagrams arrive: what a connection lends to a processor that has a socket of its own.
//!
//! [`begin_open`](Connection::begin_open) lends keys for one batch that the connection was told of. A lease is for all that arrives
//! on one path until further notice, so that a batch comes to the connection already opened:
//!
//! ```text
//!   connection ── lease ─▶ processor: datagrams arrive ─▶ OpenLease::open ─▶ job ─▶ handle_opened_there ─▶ connection
//!              ── largest number heard, terms ─▶ (before any packet leaves that was planned with them)
//! ```
//!
//! A peer chooses what it sends by what we told it: it shortens packet numbers by our acknowledgements (RFC 9000, section 17.1),
//! begins a key phase only when packets of the one before are acknowledged (RFC 9001, section 6.1), and names paths up to those we
//! allowed. So a lease opens every honest packet if its holder learns what changed before a packet leaves that tells the peer:
//! the [terms](Connection::lease_terms), under which it was lent, and the [largest number](Connection::largest_heard) if
//! something of the path was received elsewhere. A lease whose terms have changed is to be given up, not mended.

use bytes::Bytes;
use units::Instant;
use wire::quic::{PathId, Space};

use super::Connection;
use crate::open::{OpenContext, OpenJob};
use crate::send::path::Addresses;

/// What opens the datagrams of one path of one connection: keys and the largest number, and nothing shared with the connection.
pub struct OpenLease {
    path: PathId,
    /// There but while a job has it.
    context: Option<OpenContext>,
}

/// What a lease rests on: while it stays equal, so does all that a lease has beside packet numbers.
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
    /// Whose datagrams it opens.
    pub fn path(&self) -> PathId {
        self.path
    }

    /// Number `largest` of the path was heard, here or elsewhere. To be told before opening what may have been sent in the
    /// knowledge of that.
    pub fn note_heard(&mut self, largest: u64) {
        if let Some(context) = &mut self.context {
            let known = &mut context.largest[Space::Data.index()];
            *known = (*known).max(Some(largest));
        }
    }

    /// Opens datagrams with short headers, sent to a connection ID of the path, in place: all `stride` bytes long but the last, which
    /// may be shorter. `job` is for [`Connection::handle_opened_there`], in the order in which they arrived.
    pub fn open(&mut self, addresses: Addresses, stride: usize, data: &mut [u8], job: &mut OpenJob) {
        job.clear();
        job.context = self.context.take();
        (job.addresses, job.stride, job.len) = (Some(addresses), stride.max(1), data.len() as u64);
        job.open(data);
        // With the numbers and the phase that were opened.
        self.context.clone_from(&job.context);
    }
}

impl Connection {
    /// Lends what opens datagrams like this one, which has a short header and was routed here. None during the handshake and after
    /// the end has begun.
    pub fn lend_opening(&mut self, datagram: &[u8]) -> Option<OpenLease> {
        self.lease_terms()?;
        let path = self.path_of(datagram);
        Some(OpenLease { path, context: Some(self.open_context(path)) })
    }

    /// The terms of leases now; none if there may be none. Those lent under other terms are void: their holders must know before
    /// a packet leaves that was planned since.
    pub fn lease_terms(&self) -> Option<LeaseTerms> {
        self.control.lease_terms()
    }

    /// The largest packet number received on a path; none if nothing was. Holders of leases on it must know before a packet
    /// leaves that was planned since.
    pub fn largest_heard(&self, path: PathId) -> Option<u64> {
        self.receive.largest(Space::Data, path)
    }

    /// As [`handle_datagrams`](Self::handle_datagrams), for a batch that a lease has opened in `buffer`. Batches of a path are to
    /// come in the order in which they arrived; one that is missing counts as lost on the way.
    pub fn handle_opened_there(&mut self, now: Instant, job: &mut OpenJob, buffer: &Bytes) {
        let (Some(path), Some(addresses)) = (job.path(), job.addresses) else { return };
        let count = job.len.div_ceil(job.stride as u64);
        if self.note_arrival(now, path, &addresses, count, job.len) {
            self.handle_opened(now, job, buffer);
        }
    }
}

//! The receive half on a processor of its own (document 002's split of a connection).
//!
//! ```text
//!                    Findings: what arrived, for send half and control; what to acknowledge
//!   ┌─────────────┐ ──────────────────────────────────────────────────────────────────────▶ ┌────────────┐
//!   │ ReceivePart │                                                                         │ Connection │
//!   └─────────────┘ ◀────────────────────────────────────────────────────────────────────── └────────────┘
//!                    Orders: acknowledged acknowledgements, streams, round trips, keys, IDs, paths
//! ```
//!
//! A connection whose handshake is confirmed gives its receive half away with [`Connection::part`](crate::Connection::part) and
//! takes it back with [`Connection::rejoin`](crate::Connection::rejoin). Meanwhile the two exchange the values of `exchange`, in
//! boxes. What concerns both, and happens rarely, is done by the connection as a whole: a batch that is
//! [`Strange`] to the part is a reason to rejoin, and so is the end.
//!
//! Three rules keep it equal to a connection on one processor:
//!
//! - orders that are there are taken before a batch is, and are given before a plan that may cause that batch leaves;
//! - findings that are there are taken before a plan is made or a timer fires: what to acknowledge is fresh then;
//! - findings are taken in the order in which they were made.

mod journal;

use bytes::Bytes;
use units::Instant;
use wire::quic::{ConnectionId, Dir, ErrorCode, PathId, Space, StreamId, destination};

use crate::connection::ReceiveBuffer;
use crate::control::ids::LOCAL_ID_LEN;
use crate::error::TransportError;
use crate::event::{Event, Events};
use crate::exchange::{Exchange, ToControl, ToReceive, ToSend};
use crate::journal::Journal;
use crate::journal::format::tag;
use crate::journal::outcome::Answer;
use crate::journal::write::Batch;
use crate::open::{OpenContext, OpenJob, Opened, PhaseRing};
use crate::receive::streams::{Chunk, ReadError};
use crate::receive::{ReceiveHalf, Snapshot};
use crate::send::path::Addresses;
use crate::stats::ReceiveStats;

/// What the receive half of a connection has found out, for the rest of it. Kept by the caller and filled again and again.
#[derive(Default)]
pub struct Findings {
    /// Counted from 1 since the halves parted.
    pub(crate) number: u64,
    /// When it began to be filled.
    pub(crate) since: Option<Instant>,
    /// When the first datagrams arrived, if any did.
    pub(crate) arrived_at: Option<Instant>,
    pub(crate) exchange: Exchange,
    pub(crate) snapshot: Snapshot,
    pub(crate) stats: ReceiveStats,
    /// The peer broke the rules.
    pub(crate) failure: Option<TransportError>,
}

impl Findings {
    /// Nothing is in it that was not taken.
    pub(crate) fn is_empty(&self) -> bool {
        self.since.is_none()
    }

    pub(crate) fn clear(&mut self) {
        debug_assert!(self.exchange.is_empty(), "values are delivered");
        (self.since, self.arrived_at, self.failure) = (None, None, None);
        self.exchange.ranges.clear();
    }
}

/// What the rest of a connection has for its receive half. Kept by the caller and filled again and again.
#[derive(Default)]
pub struct Orders {
    /// Counted from 1 since the halves parted.
    pub(crate) number: u64,
    pub(crate) values: std::collections::VecDeque<ToReceive>,
    pub(crate) lens: Option<Box<Lens>>,
}

impl Orders {
    pub(crate) fn is_empty(&self) -> bool {
        self.values.is_empty() && self.lens.is_none()
    }
}

/// What control knows that is needed to tell whose datagrams are whose, and to open them.
#[derive(Default)]
pub(crate) struct Lens {
    pub(crate) ring: Option<PhaseRing>,
    /// Our connection IDs, and the paths they belong to.
    pub(crate) ids: Vec<(ConnectionId, PathId)>,
    pub(crate) paths: Vec<LensPath>,
    /// The highest path ID that the peer may name; none without multipath.
    pub(crate) max_path: Option<PathId>,
    pub(crate) ignore_fixed_bit: bool,
}

/// A path, as far as arrivals are concerned.
pub(crate) struct LensPath {
    pub(crate) id: PathId,
    pub(crate) addresses: Addresses,
    /// The lowest number seen in the present key phase.
    pub(crate) phase_from: Option<u64>,
}

/// A batch that the connection as a whole must look at: it came on a path, or from an address, that is not known yet.
#[derive(Debug)]
pub struct Strange<B>(pub B);

/// The receive half of a connection, on a processor of its own.
///
/// Calls are inputs ([`handle_datagrams`](Self::handle_datagrams), [`handle_orders`](Self::handle_orders)), outputs, to be polled
/// after them ([`poll_event`](Self::poll_event), [`poll_findings`](Self::poll_findings)), and the application's
/// ([`accept`](Self::accept), [`read`](Self::read), [`stop`](Self::stop), [`recv_datagram`](Self::recv_datagram)).
pub struct ReceivePart {
    pub(crate) half: ReceiveHalf,
    pub(crate) lens: Lens,
    pub(crate) exchange: Exchange,
    pub(crate) events: Events,
    pub(crate) since: Option<Instant>,
    pub(crate) arrived_at: Option<Instant>,
    pub(crate) failure: Option<TransportError>,
    /// Packets that failed to authenticate, against the AEAD's integrity limit (RFC 9001, section 6.6).
    pub(crate) unauthentic_count: u64,
    pub(crate) job: OpenJob,
    findings_given: u64,
    /// Where all inputs are written down, if somebody wants them.
    pub(crate) journal: Option<Box<Journal>>,
}

impl ReceivePart {
    pub(crate) fn new(half: ReceiveHalf, lens: Lens, unauthentic_count: u64, journal: Option<Box<Journal>>) -> Self {
        Self {
            half,
            lens,
            exchange: Exchange::default(),
            events: Events::default(),
            since: None,
            arrived_at: None,
            failure: None,
            unauthentic_count,
            job: OpenJob::default(),
            findings_given: 0,
            journal,
        }
    }

    /// The connection IDs whose datagrams are this connection's.
    pub fn ids(&self) -> impl Iterator<Item = ConnectionId> + '_ {
        self.lens.ids.iter().map(|(id, _)| *id)
    }

    /// Values that were found and not taken with [`poll_findings`](Self::poll_findings). It grows with each batch: a caller that
    /// cannot take them stops bringing batches.
    pub fn untold(&self) -> usize {
        self.exchange.to_send.len() + self.exchange.to_control.len()
    }

    /// Something was found that the rest of the connection should know at once: an acknowledgement is due, or there is news of
    /// what we sent, of credit or of the connection. That packets came, and bytes, can wait until there is nothing else to do.
    pub fn is_urgent(&self) -> bool {
        let is_routine = |value: &ToSend| matches!(value, ToSend::Received { .. } | ToSend::Heard);
        self.failure.is_some()
            || self.half.snapshot().data_paths().any(|(_, ack)| ack.is_due())
            || !self.exchange.to_send.iter().all(is_routine)
            || !self.exchange.to_control.iter().all(|value| matches!(value, ToControl::PacketAccepted { .. }))
    }

    // ── Input ────────────────────────────────────────────────────────────────────────────────────────────────────────

    /// Takes datagrams that arrived together, as [`Connection::handle_datagrams`](crate::Connection::handle_datagrams) does.
    ///
    /// # Errors
    /// [`Strange`] if the connection as a whole must look at them; nothing was done with them then.
    pub fn handle_datagrams<B: ReceiveBuffer>(
        &mut self,
        now: Instant,
        addresses: Addresses,
        mut buffer: B,
        stride: usize,
    ) -> Result<(), Strange<B>> {
        let (data, stride) = (buffer.bytes_mut(), stride.max(1));
        let (path, len) = (self.path_of(data), data.len() as u64);
        if !self.note_arrival(now, path, &addresses, len.div_ceil(stride as u64), len) {
            return Err(Strange(buffer));
        }
        let mut job = std::mem::take(&mut self.job);
        job.clear();
        job.context = Some(self.open_context(path));
        job.stride = stride;
        job.open(data);
        self.take_opened(now, path, addresses, len, &mut job, &buffer.freeze());
        self.job = job;
        Ok(())
    }

    /// Counts `count` datagrams that arrived for a path, `len` bytes in all; false if they are strange.
    pub(crate) fn note_arrival(
        &mut self,
        now: Instant,
        path: PathId,
        addresses: &Addresses,
        count: u64,
        len: u64,
    ) -> bool {
        let is_it = |known: &LensPath| known.id == path && known.addresses.is_same_route(addresses);
        if self.failure.is_some() || !self.lens.paths.iter().any(is_it) {
            return false;
        }
        self.note(|journal| journal.arrival(now, path, addresses, count, len));
        // What has become due by itself the others have found out from the snapshot.
        self.half.on_timeout(now);
        self.since.get_or_insert(now);
        self.arrived_at.get_or_insert(now);
        self.half.on_arrivals(count, len);
        self.exchange.to_send.push_back(ToSend::Received { path, bytes: len });
        true
    }

    /// Takes what the rest of the connection has to say. True if [`ids`](Self::ids) may be others now.
    pub fn handle_orders(&mut self, now: Instant, orders: &mut Orders) -> bool {
        if orders.is_empty() {
            return false;
        }
        self.note(|journal| journal.took(tag::TOOK_ORDERS, now, orders.number));
        for value in orders.values.drain(..) {
            self.half.handle(value, &mut self.exchange);
        }
        if !self.exchange.is_empty() {
            self.since.get_or_insert(now);
        }
        let Some(lens) = orders.lens.take() else { return false };
        self.take_lens(*lens);
        true
    }

    // ── Output ───────────────────────────────────────────────────────────────────────────────────────────────────────

    /// What the application should know of what has arrived.
    #[must_use]
    pub fn poll_event(&mut self) -> Option<Event> {
        let event = self.events.pop();
        if let Some(event) = &event {
            self.note(|journal| journal.event(event));
        }
        event
    }

    /// Fills `findings`, which are empty, with what was found out since the last time; false if that is nothing.
    #[must_use]
    pub fn poll_findings(&mut self, findings: &mut Findings) -> bool {
        debug_assert!(findings.is_empty(), "findings are taken before they are filled again");
        let Some(since) = self.since.take() else { return false };
        findings.since = Some(since);
        findings.arrived_at = self.arrived_at.take();
        std::mem::swap(&mut findings.exchange, &mut self.exchange);
        self.half.snapshot().copy_data(&mut findings.snapshot);
        findings.stats = self.half.stats();
        findings.failure = self.failure.clone();
        self.findings_given += 1;
        findings.number = self.findings_given;
        self.note_given(|journal| journal.gave(tag::GAVE_FINDINGS, findings.number));
        true
    }

    // ── The application's calls ──────────────────────────────────────────────────────────────────────────────────────

    /// As [`Connection::accept`](crate::Connection::accept).
    pub fn accept(&mut self, dir: Dir) -> Option<StreamId> {
        self.note(|journal| journal.accept(dir));
        let id = self.half.streams.accept(dir);
        self.note_answer(|| Answer::maybe(id.map(StreamId::raw)));
        id
    }

    /// As [`Connection::read`](crate::Connection::read).
    ///
    /// # Errors
    /// [`ReadError::Blocked`] while nothing has arrived.
    pub fn read(&mut self, now: Instant, id: StreamId, len: usize) -> Result<Chunk, ReadError> {
        self.note(|journal| journal.of_stream_at(tag::READ, now, id, len as u64));
        let chunk = self.half.streams.read(now, id, len, &mut self.exchange);
        self.note_values(now);
        self.note_answer(|| Answer::read(&chunk));
        chunk
    }

    /// As [`Connection::stop`](crate::Connection::stop).
    ///
    /// # Errors
    /// [`ReadError::Closed`] if it is over.
    pub fn stop(&mut self, now: Instant, id: StreamId, code: u64) -> Result<(), ReadError> {
        self.note(|journal| journal.of_stream_at(tag::STOP, now, id, code));
        let result = self.half.streams.stop(now, id, code, &mut self.exchange);
        self.note_values(now);
        self.note_answer(|| Answer::stopped(result));
        result
    }

    /// As [`Connection::recv_datagram`](crate::Connection::recv_datagram).
    pub fn recv_datagram(&mut self) -> Option<Bytes> {
        self.note(|journal| journal.recv_datagram());
        let data = self.half.recv_datagram();
        self.note_answer(|| Answer::maybe(data.as_ref().map(|data| data.len() as u64)));
        data
    }

    // ── Inside ───────────────────────────────────────────────────────────────────────────────────────────────────────

    fn note_values(&mut self, now: Instant) {
        if !self.exchange.is_empty() {
            self.since.get_or_insert(now);
        }
    }

    fn path_of(&self, datagram: &[u8]) -> PathId {
        if self.lens.max_path.is_none() {
            return PathId::ZERO;
        }
        let id = destination(datagram, LOCAL_ID_LEN).map(|destination| destination.dcid);
        let known = id.and_then(|id| self.lens.ids.iter().find(|(known, _)| known.as_slice() == id));
        known.map_or(PathId::ZERO, |(_, path)| *path)
    }

    fn open_context(&mut self, path: PathId) -> OpenContext {
        let phase_from = self.lens.paths.iter().find(|known| known.id == path).and_then(|known| known.phase_from);
        OpenContext {
            local_id_len: LOCAL_ID_LEN,
            // Gone since the handshake was confirmed.
            levels: [None, None],
            data: self.lens.ring.take().map(|ring| PhaseRing { phase_from, ..ring }),
            largest: Space::ALL.map(|space| self.half.largest(space, path)),
            path,
            max_path: self.lens.max_path,
            ignore_fixed_bit: self.lens.ignore_fixed_bit,
        }
    }

    fn take_opened(
        &mut self,
        now: Instant,
        path: PathId,
        addresses: Addresses,
        len: u64,
        job: &mut OpenJob,
        buffer: &Bytes,
    ) {
        let Some(context) = job.context.take() else { return };
        let integrity_limit = context.data.as_ref().map_or(u64::MAX, |ring| ring.current.integrity_limit());
        self.note(|journal| {
            journal.opened(now, &Batch { path, addresses, len, integrity_limit }, &job.opened, buffer);
        });
        self.note_ring(context, job.opened.epoch);
        self.absorb(now, &job.opened, buffer, integrity_limit);
    }

    /// Absorbs an opened batch.
    pub(crate) fn absorb(&mut self, now: Instant, opened: &Opened, buffer: &Bytes, integrity_limit: u64) {
        self.half.stats.packets_unauthentic += opened.unauthentic_count;
        self.half.stats.packets_dropped += opened.dropped_count;
        if !opened.packets.is_empty() {
            self.exchange.to_send.push_back(ToSend::Heard);
        }
        for packet in &opened.packets {
            let result = self.half.absorb(now, packet, opened, buffer, &mut self.exchange, &mut self.events);
            if let Err(error) = result {
                self.failure = Some(error);
                return;
            }
        }
        self.unauthentic_count += opened.unauthentic_count;
        if opened.unauthentic_count > 0 && self.unauthentic_count >= integrity_limit {
            let reason = "too many packets failed to authenticate";
            self.failure = Some(TransportError::new(ErrorCode::AEAD_LIMIT_REACHED, reason));
        }
    }

    /// Keeps what opening has changed of the keys: it may have found the first packet of the next phase.
    fn note_ring(&mut self, context: OpenContext, advanced_to: u64) {
        let Some(ring) = context.data else { return };
        for path in &mut self.lens.paths {
            if path.id == context.path {
                path.phase_from = ring.phase_from;
            } else if advanced_to > 0 {
                path.phase_from = None;
            }
        }
        self.lens.ring = Some(ring);
    }

    /// What control knows now. What is known here of keys may be newer: packets of the next phase are seen here first.
    fn take_lens(&mut self, mut lens: Lens) {
        if let (Some(fresh), Some(known)) = (&lens.ring, &self.lens.ring)
            && fresh.epoch < known.epoch
        {
            lens.ring.clone_from(&self.lens.ring);
        }
        for path in &mut lens.paths {
            let known = self.lens.paths.iter().find(|known| known.id == path.id);
            path.phase_from = known.and_then(|known| known.phase_from);
        }
        self.lens = lens;
    }
}

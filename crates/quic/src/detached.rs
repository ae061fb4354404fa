//! The receive half on another processor than the rest of its connection.
//!
//! ```text
//!                            ReceiveReport: what arrived, what to acknowledge
//!   ┌─────────────────────┐ ──────────────────────────────────────────────────────────▶ ┌────────────┐
//!   │ DetachedReceiveHalf │                                                             │ Connection │
//!   └─────────────────────┘ ◀────────────────────────────────────────────────────────── └────────────┘
//!                            ReceiveCommands: acknowledged acknowledgements, streams,
//!                            round trips, keys, connection IDs, paths
//! ```
//!
//! A connection whose handshake is confirmed can pass its receive half to another processor with
//! [`Connection::detach`](crate::Connection::detach) and take it back with
//! [`Connection::attach`](crate::Connection::attach). Meanwhile the two exchange the values of the
//! module `exchange` in reports and commands. The connection handles alone the rare things that
//! concern both: a batch that [needs the connection](NeedsConnection) is a reason to attach the
//! half again, and so is the close.
//!
//! Three rules make a connection with a detached half behave as one on a single processor:
//!
//! - The half takes the commands that are there before it takes a batch. The connection passes
//!   commands on before a plan leaves that may cause such a batch.
//! - The connection takes the reports that are there before it makes a plan and before a timer
//!   fires, so that it acknowledges the latest packets.
//! - The connection takes reports in the order in which they were made.

use bytes::Bytes;
use journal::format::tag;
use units::Instant;
use wire::quic::{ConnectionId, Dir, PathId, Space, StreamId, Version};

use crate::addresses::Addresses;
use crate::batch_meta::BatchMeta;
use crate::control::ids::{LOCAL_ID_LEN, ResetToken};
use crate::error::TransportError;
use crate::event::Event;
use crate::exchange::{Exchange, ToControl, ToReceive, ToSend};
use crate::journal::recording::Journal;
use crate::open::keys::OneRttKeys;
use crate::open::opened::Opened;
use crate::open::{OpenContext, OpenJob, path_of_datagram};
use crate::receive::ReceiveHalf;
use crate::receive::acks::snapshot::Snapshot;
use crate::receive::streams::{Chunk, ReadError};
use crate::receive_buffer::ReceiveBuffer;
use crate::receive_core::ReceiveCore;
use crate::received_datagram::ReceivedDatagram;
use crate::stats::ReceiveStats;

/// News of a detached receive half for the rest of its connection. The caller keeps it and has it
/// filled again and again.
#[derive(Default)]
pub struct ReceiveReport {
    /// Counted from 1 since the half was detached.
    pub(crate) number: u64,
    /// The time of its first value.
    pub(crate) since: Option<Instant>,
    /// When the first datagrams arrived, if any did.
    pub(crate) arrived_at: Option<Instant>,
    pub(crate) exchange: Exchange,
    pub(crate) snapshot: Snapshot,
    pub(crate) stats: ReceiveStats,
    /// A protocol violation of the peer.
    pub(crate) failure: Option<TransportError>,
}

impl ReceiveReport {
    /// True if the connection has taken all of it.
    pub(crate) fn is_empty(&self) -> bool {
        self.since.is_none()
    }

    pub(crate) fn clear(&mut self) {
        debug_assert!(self.exchange.is_empty(), "values are delivered");
        (self.since, self.arrived_at, self.failure) = (None, None, None);
        self.exchange.ranges.clear();
    }
}

/// Values of a connection for its detached receive half. The caller keeps it and has it filled
/// again and again.
#[derive(Default)]
pub struct ReceiveCommands {
    /// Counted from 1 since the half was detached.
    pub(crate) number: u64,
    pub(crate) values: std::collections::VecDeque<ToReceive>,
    pub(crate) config: Option<Box<OpenConfig>>,
}

impl ReceiveCommands {
    pub(crate) fn is_empty(&self) -> bool {
        self.values.is_empty() && self.config.is_none()
    }
}

/// The part of control's state that a detached receive half needs to open datagrams: keys,
/// connection IDs and paths.
#[derive(Default)]
pub(crate) struct OpenConfig {
    pub(crate) keys: Option<OneRttKeys>,
    /// Our connection IDs, and the paths they belong to.
    pub(crate) ids: Vec<(ConnectionId, PathId)>,
    pub(crate) paths: Vec<OpenConfigPath>,
    /// The highest path ID that the peer may name; none without multipath.
    pub(crate) max_path: Option<PathId>,
    pub(crate) ignore_fixed_bit: bool,
}

/// A path, as far as arrivals are concerned.
pub(crate) struct OpenConfigPath {
    pub(crate) id: PathId,
    pub(crate) addresses: Addresses,
    /// The lowest number seen in the present key phase.
    pub(crate) phase_from: Option<u64>,
}

/// A batch that concerns more than the receive half, for the connection as a whole: it came on a
/// path, or from an address, that is not known yet.
#[derive(Debug)]
pub struct NeedsConnection<B>(pub B);

/// The receive half of a connection on another processor: see the [module](self).
///
/// Calls are inputs ([`handle_datagrams`](Self::handle_datagrams),
/// [`handle_commands`](Self::handle_commands)), outputs, to be polled after them
/// ([`poll_event`](Self::poll_event), [`poll_report`](Self::poll_report)), and the application's
/// ([`accept`](Self::accept), [`read`](Self::read), [`stop`](Self::stop),
/// [`recv_datagram`](Self::recv_datagram)).
pub struct DetachedReceiveHalf {
    pub(crate) core: ReceiveCore,
    pub(crate) config: OpenConfig,
    since: Option<Instant>,
    arrived_at: Option<Instant>,
    failure: Option<TransportError>,
    job: OpenJob,
    reports_given: u64,
}

impl DetachedReceiveHalf {
    pub(crate) fn new(
        half: ReceiveHalf,
        config: OpenConfig,
        unauthentic_count: u64,
        journal: Option<Box<Journal>>,
    ) -> Self {
        Self {
            core: ReceiveCore::new(half, unauthentic_count, journal),
            config,
            since: None,
            arrived_at: None,
            failure: None,
            job: OpenJob::default(),
            reports_given: 0,
        }
    }

    /// The connection IDs whose datagrams are this connection's.
    pub fn ids(&self) -> impl Iterator<Item = ConnectionId> + '_ {
        self.config.ids.iter().map(|(id, _)| *id)
    }

    /// Values that [`poll_report`](Self::poll_report) has not taken yet. Their number grows with
    /// each batch: a caller that cannot take a report passes no further batches.
    pub fn unreported(&self) -> usize {
        self.core.exchange.to_send.len() + self.core.exchange.to_control.len()
    }

    /// True if a report should not wait: an acknowledgement is due, also by time alone, or there is
    /// news of what we sent, of credit or of the connection. Counts of packets and bytes that
    /// arrived can wait until there is nothing else to do.
    pub fn is_urgent(&self, now: Instant) -> bool {
        let is_routine = |value: &ToSend| matches!(value, ToSend::Received { .. } | ToSend::AuthenticReceived);
        let exchange = &self.core.exchange;
        self.failure.is_some()
            || self.core.half.snapshot().data_paths().any(|(_, ack)| ack.is_due_by(now))
            || !exchange.to_send.iter().all(is_routine)
            || !exchange.to_control.iter().all(|value| matches!(value, ToControl::PacketAccepted { .. }))
    }

    // ── Input ────────────────────────────────────────────────────────────────────────────────────────────────────────

    /// Takes datagrams that arrived together, as
    /// [`Connection::handle_datagrams`](crate::Connection::handle_datagrams) does.
    ///
    /// # Errors
    /// [`NeedsConnection`] if the connection as a whole must handle them; this half has done
    /// nothing with them then.
    pub fn handle_datagrams<B: ReceiveBuffer>(
        &mut self,
        now: Instant,
        addresses: Addresses,
        mut buffer: B,
        meta: impl Into<BatchMeta>,
    ) -> Result<(), NeedsConnection<B>> {
        let (data, meta) = (buffer.bytes_mut(), meta.into().checked());
        let (path, len) = (self.path_of(data), data.len() as u64);
        if !self.note_arrival(now, path, &addresses, meta.count_in(data.len()), len) {
            return Err(NeedsConnection(buffer));
        }
        let mut job = std::mem::take(&mut self.job);
        job.prepare(Some(self.open_context(path)), addresses, meta, data.len());
        job.open(data);
        self.absorb_job(now, &mut job, &buffer.freeze());
        self.job = job;
        Ok(())
    }

    /// Counts `count` datagrams that arrived for a path, `len` bytes in all; false if they need the
    /// connection.
    pub(crate) fn note_arrival(
        &mut self,
        now: Instant,
        path: PathId,
        addresses: &Addresses,
        count: u64,
        len: u64,
    ) -> bool {
        let is_it = |known: &OpenConfigPath| known.id == path && known.addresses.is_same_route(addresses);
        if self.failure.is_some() || !self.config.paths.iter().any(is_it) {
            return false;
        }
        self.core.record(|journal| journal.arrival(now, path, addresses, count, len));
        // The connection learns from the snapshot which acknowledgements have become due by time
        // alone.
        self.core.half.on_timeout(now);
        self.since.get_or_insert(now);
        self.arrived_at.get_or_insert(now);
        self.core.half.on_arrivals(count, len);
        self.core.exchange.to_send.push_back(ToSend::Received { path, bytes: len });
        true
    }

    /// Takes commands of the connection. True if [`ids`](Self::ids) may have changed.
    pub fn handle_commands(&mut self, now: Instant, commands: &mut ReceiveCommands) -> bool {
        if commands.is_empty() {
            return false;
        }
        self.core.record(|journal| journal.writer.took(tag::TOOK_COMMANDS, now, commands.number));
        for value in commands.values.drain(..) {
            self.core.half.handle(value, &mut self.core.exchange);
        }
        self.note_values(now);
        let Some(config) = commands.config.take() else { return false };
        self.apply_config(*config);
        true
    }

    // ── Output ───────────────────────────────────────────────────────────────────────────────────────────────────────

    /// The next event about what has arrived, for the application.
    #[must_use]
    pub fn poll_event(&mut self) -> Option<Event> {
        self.core.poll_event()
    }

    /// Fills `report`, which is empty, with the news since the last report; false if there are
    /// none.
    #[must_use]
    pub fn poll_report(&mut self, report: &mut ReceiveReport) -> bool {
        debug_assert!(report.is_empty(), "a report is taken before it is filled again");
        let Some(since) = self.since.take() else { return false };
        report.since = Some(since);
        report.arrived_at = self.arrived_at.take();
        std::mem::swap(&mut report.exchange, &mut self.core.exchange);
        self.core.half.snapshot().copy_data(&mut report.snapshot);
        report.stats = self.core.half.stats();
        report.failure = self.failure.clone();
        self.reports_given += 1;
        report.number = self.reports_given;
        self.core.record_and_flush(|journal| journal.writer.gave(tag::GAVE_REPORT, report.number));
        true
    }

    // ── The application's calls ──────────────────────────────────────────────────────────────────────────────────────

    /// As [`Connection::accept`](crate::Connection::accept).
    pub fn accept(&mut self, dir: Dir) -> Option<StreamId> {
        self.core.accept(dir)
    }

    /// As [`Connection::read`](crate::Connection::read).
    ///
    /// # Errors
    /// [`ReadError::Blocked`] while nothing has arrived.
    pub fn read(&mut self, now: Instant, id: StreamId, len: usize) -> Result<Chunk, ReadError> {
        let chunk = self.core.read(now, id, len);
        self.note_values(now);
        chunk
    }

    /// As [`Connection::stop`](crate::Connection::stop).
    ///
    /// # Errors
    /// [`ReadError::Closed`] if it is over.
    pub fn stop(&mut self, now: Instant, id: StreamId, code: u64) -> Result<(), ReadError> {
        let result = self.core.stop(now, id, code);
        self.note_values(now);
        result
    }

    /// As [`Connection::recv_datagram`](crate::Connection::recv_datagram).
    pub fn recv_datagram(&mut self) -> Option<Bytes> {
        self.recv_datagram_with_path().map(|datagram| datagram.data)
    }

    /// As [`Connection::recv_datagram_with_path`](crate::Connection::recv_datagram_with_path).
    pub fn recv_datagram_with_path(&mut self) -> Option<ReceivedDatagram> {
        self.core.recv_datagram()
    }

    // ── Inside ───────────────────────────────────────────────────────────────────────────────────────────────────────

    fn note_values(&mut self, now: Instant) {
        if !self.core.exchange.is_empty() {
            self.since.get_or_insert(now);
        }
    }

    fn path_of(&self, datagram: &[u8]) -> PathId {
        if self.config.max_path.is_none() {
            return PathId::ZERO;
        }
        path_of_datagram(datagram, |id| {
            self.config.ids.iter().find(|(known, _)| known.as_slice() == id).map(|(_, path)| *path)
        })
    }

    fn open_context(&mut self, path: PathId) -> OpenContext {
        let phase_from = self.config.paths.iter().find(|known| known.id == path).and_then(|known| known.phase_from);
        OpenContext {
            local_id_len: LOCAL_ID_LEN,
            // Discarded when the handshake was confirmed.
            levels: [None, None],
            version: Version::V1,
            other_initial: None,
            data: self.config.keys.take().map(|keys| OneRttKeys { phase_from, ..keys }),
            largest: Space::ALL.map(|space| self.core.half.largest(space, path)),
            path,
            max_path: self.config.max_path,
            ignore_fixed_bit: self.config.ignore_fixed_bit,
        }
    }

    fn absorb_job(&mut self, now: Instant, job: &mut OpenJob, buffer: &Bytes) {
        let Some((context, batch)) = job.take_batch(u64::MAX) else { return };
        self.core.record(|journal| journal.opened(now, &batch, &job.opened, buffer));
        self.keep_keys(context, job.opened.epoch);
        self.absorb(now, &job.opened, buffer, batch.integrity_limit);
        if let Some(trailer) = job.opened.trailer {
            self.note_trailer(now, trailer);
        }
    }

    /// A datagram that could not be opened ends in these bytes.
    pub(crate) fn note_trailer(&mut self, now: Instant, trailer: ResetToken) {
        self.core.record(|journal| journal.trailer(now, &trailer));
        self.core.exchange.to_control.push_back(ToControl::Trailer(trailer));
        self.note_values(now);
    }

    /// Absorbs an opened batch.
    pub(crate) fn absorb(&mut self, now: Instant, opened: &Opened, buffer: &Bytes, integrity_limit: u64) {
        if !opened.packets.is_empty() {
            self.core.exchange.to_send.push_back(ToSend::AuthenticReceived);
        }
        let absorbed = self.core.absorb(now, opened, buffer);
        let counted = absorbed.and_then(|()| self.core.count_unauthentic(opened.unauthentic_count, integrity_limit));
        if let Err(error) = counted {
            self.failure = Some(error);
        }
    }

    /// Keeps the keys as the open stage has left them: it may have found the first packet of the
    /// next phase.
    fn keep_keys(&mut self, context: OpenContext, advanced_to: u64) {
        let Some(keys) = context.data else { return };
        for path in &mut self.config.paths {
            if path.id == context.path {
                path.phase_from = keys.phase_from;
            } else if advanced_to > 0 {
                path.phase_from = None;
            }
        }
        self.config.keys = Some(keys);
    }

    /// Replaces the configuration by a newer one. Keys known here may be newer still: packets of
    /// the next phase arrive here first.
    fn apply_config(&mut self, mut config: OpenConfig) {
        if let (Some(fresh), Some(known)) = (&config.keys, &self.config.keys)
            && fresh.epoch < known.epoch
        {
            config.keys.clone_from(&self.config.keys);
        }
        for path in &mut config.paths {
            let known = self.config.paths.iter().find(|known| known.id == path.id);
            path.phase_from = known.and_then(|known| known.phase_from);
        }
        self.config = config;
    }
}

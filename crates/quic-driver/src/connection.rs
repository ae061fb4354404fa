//! [`Connection`]: a QUIC connection in a driver, together with the cells of its handles.
//!
//! This module moves requests and written data from the cells into the protocol, and events back.
//! The module `delivery` moves received data to the cells: it is a value of its own because it
//! follows the receive half to another processor.

mod driver_calls;
mod early;
mod paths;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use driver::INTERACTIVE_MAX;
use driver::protocol::Served;
use quic::session::ExportError;
use quic::{DatagramPaths, Dir, Event, PathId, StreamId, WriteError as QuicWriteError};
use units::Instant;

use crate::cells::connection::{ConnectionCell, DATAGRAM_OVERHEAD, Interest, OpenReplySender, PathRequest, Query};
use crate::cells::recv::RecvCell;
use crate::cells::send::{ClassChange, SendCell, SendEnd};
use crate::cells::stream::{StreamCells, StreamRequest};
use crate::delivery::{Delivery, cells_for};
use crate::detached_state::DetachedState;
use crate::error::{Closed, OpenError};
use crate::leases::LeaseTable;
use crate::messages::OutgoingMessages;
use crate::packets::Packets;
use crate::quic_protocol::EventObserver;
use crate::refusals::Refusals;

/// A QUIC connection with the state that it shares with its handles.
pub struct Connection<K: Packets> {
    pub(crate) quic: quic::Connection,
    pub(crate) cell: Arc<ConnectionCell>,
    observer: Option<EventObserver>,
    /// Keys leased to workers.
    leases: LeaseTable,
    /// Close reason reported to the application instead of the protocol's reason.
    pub(crate) end_override: Option<Closed>,
    /// Last error that the system reported for a batch of the handshake.
    pub(crate) last_send_error: Option<String>,
    /// The system's refusals to send after the handshake.
    pub(crate) refusals: Refusals,
    writers: BTreeMap<StreamId, Arc<SendCell>>,
    /// Delivers received data. `None` while the receive half is [detached](DetachedState) and after
    /// it was lost.
    pub(crate) delivery: Option<Delivery>,
    pub(crate) detached: Option<Box<DetachedState<K>>>,
    /// Whether a bulk transfer is arriving, so that the receive half should be detached, but not
    /// before `attached_until`.
    pub(crate) bulk_arrives: bool,
    pub(crate) attached_until: Instant,
    /// Requests for streams that wait until the peer permits more streams.
    opens: [VecDeque<OpenReplySender>; 2],
    /// Requests for 0-RTT streams, which wait for the end of the handshake if 0-RTT is not
    /// possible.
    early_opens: [VecDeque<OpenReplySender>; 2],
    /// Whether the application may have the connection.
    is_available: bool,
    messages: OutgoingMessages,
    /// Path requests that wait until the handshake is confirmed. At most
    /// [`PATH_REQUESTS_MAX`](crate::cells::connection::PATH_REQUESTS_MAX).
    paths: Vec<PathRequest>,
    /// Datagrams that the connection has no space for. Their size is bounded together with those in
    /// the cell.
    datagrams: Outgoing,
    /// Waiting datagrams that are pinned to a path.
    pinned_datagrams: BTreeMap<PathId, Outgoing>,
}

impl<K: Packets> Connection<K> {
    pub(crate) fn new(quic: quic::Connection, cell: Arc<ConnectionCell>, observer: Option<EventObserver>) -> Self {
        let delivery = Delivery::new(Arc::clone(&cell));
        Self {
            quic,
            cell,
            observer,
            leases: LeaseTable::default(),
            end_override: None,
            last_send_error: None,
            refusals: Refusals::default(),
            writers: BTreeMap::new(),
            delivery: Some(delivery),
            detached: None,
            bulk_arrives: false,
            attached_until: Instant::ZERO,
            opens: [VecDeque::new(), VecDeque::new()],
            early_opens: [VecDeque::new(), VecDeque::new()],
            is_available: false,
            messages: OutgoingMessages::default(),
            paths: Vec::new(),
            datagrams: Outgoing::default(),
            pinned_datagrams: BTreeMap::new(),
        }
    }

    /// Returns the connection without the state of its handles.
    pub fn quic(&self) -> &quic::Connection {
        &self.quic
    }

    /// Applies a new rate limit. Called before each plan: data that the application wrote after it
    /// set the limit may have been taken together with earlier requests.
    fn serve_rate(&mut self) {
        if let Some(limit) = self.cell.take_rate() {
            self.quic.set_rate(limit);
        }
    }

    /// Processes the requests of the handles.
    fn serve_requests(&mut self, now: Instant) -> Served {
        let requests = self.cell.lock().begin_service();
        let priority = requests.priority;
        for request in requests.opens {
            let opens = if request.is_early { &mut self.early_opens } else { &mut self.opens };
            opens[request.dir.index()].push_back(request.answer);
        }
        for request in requests.streams {
            match request {
                StreamRequest::Send(cell) => self.serve_send(&cell),
                StreamRequest::Recv(cell) => self.serve_recv(now, cell),
            }
        }
        for (datagram, paths) in requests.urgent_datagrams {
            // See `serve_datagrams` for the ignored error.
            if let Err(error) = self.quic.send_datagram_on(datagram, paths) {
                tracing::debug!(%error, "dropped a datagram");
            }
        }
        self.datagrams.waiting.extend(requests.datagrams);
        for (path, datagram) in requests.pinned_datagrams {
            self.pinned_datagrams.entry(path).or_default().waiting.push_back(datagram);
            if !self.quic.has_path(path) {
                // The path was abandoned before the application knew.
                self.unpin_datagrams(path);
            }
        }
        self.serve_datagrams();
        self.add_path_requests(requests.paths);
        self.serve_paths(now);
        for query in requests.queries {
            self.answer(query);
        }
        self.open_streams(now, Dir::Bi);
        self.open_streams(now, Dir::Uni);
        self.messages.serve(&mut self.quic, &self.cell);
        self.publish_datagram_len_max();
        self.with_delivery(|delivery, connection| delivery.serve(now, connection));
        if let Some(detached) = &mut self.detached {
            detached.wants_delivery |= requests.wants_delivery;
        }
        if let Some((code, reason)) = requests.close {
            self.quic.close(now, code, &reason);
        }
        Served { priority, is_interactive: self.quic.has_interactive_next(INTERACTIVE_MAX as u64) }
    }

    /// Publishes the maximum datagram length to the handles. The connection rejects queued
    /// datagrams that are longer.
    fn publish_datagram_len_max(&self) {
        self.cell.lock().datagram_len_max = self.quic.datagram_len_max();
    }

    /// Moves datagrams into the connection while it has space. Called before each plan, so that the
    /// connection's own queue need not be long.
    fn serve_datagrams(&mut self) {
        self.datagrams.serve(&mut self.quic, &self.cell, None);
        for (path, outgoing) in &mut self.pinned_datagrams {
            outgoing.serve(&mut self.quic, &self.cell, Some(*path));
        }
    }

    /// Releases the datagrams pinned to path `id`, which is gone, to any other path.
    fn unpin_datagrams(&mut self, id: PathId) {
        let pinned = self.pinned_datagrams.remove(&id);
        self.datagrams.waiting.extend(pinned.into_iter().flat_map(|pinned| pinned.waiting));
        self.cell.lock().unpin_datagrams(id);
    }

    /// Returns the datagrams for any path, and those pinned to each.
    fn outgoing(&self) -> impl Iterator<Item = &Outgoing> {
        std::iter::once(&self.datagrams).chain(self.pinned_datagrams.values())
    }

    /// Returns whether datagrams wait until the connection has space.
    fn has_datagrams(&self) -> bool {
        self.outgoing().any(|outgoing| !outgoing.waiting.is_empty())
    }

    /// Passes an event of the protocol to the handles.
    fn on_event(&mut self, now: Instant, event: Event) {
        match event {
            Event::Connected => {
                self.last_send_error = None;
                self.on_connected();
            }
            Event::EarlyRejected => self.on_early_rejected(),
            Event::Opened(dir) => {
                self.with_delivery(|delivery, connection| delivery.on_opened(now, dir, connection));
            }
            Event::StreamsAvailable(dir) => {
                self.open_streams(now, dir);
                if dir == Dir::Uni {
                    self.messages.serve(&mut self.quic, &self.cell);
                }
            }
            Event::Readable(id) => {
                self.with_delivery(|delivery, connection| delivery.on_readable(now, id, connection));
            }
            Event::Writable(id) => match self.writers.get(&id).cloned() {
                Some(cell) => self.serve_send(&cell),
                None => self.messages.serve(&mut self.quic, &self.cell),
            },
            Event::Finished(id) => self.on_send_end(id, SendEnd::Acknowledged),
            Event::Stopped { id, code } => self.on_send_end(id, SendEnd::Stopped(code)),
            Event::DatagramReceived => {
                self.with_delivery(|delivery, connection| delivery.serve_datagrams(connection));
            }
            Event::Confirmed => self.serve_paths(now),
            Event::PathState(..) | Event::PathOpened(_) | Event::Migrated(_) => {
                // The maximum length fits the packets of every path. Packets of a failed path may
                // be smaller now.
                self.publish_datagram_len_max();
                self.on_path_event(&event);
            }
            Event::Closed(quic::ConnectionError::HandshakeTimedOut) => {
                let last_send_error = self.last_send_error.take();
                self.on_closed(now, Closed::HandshakeTimedOut { last_send_error });
            }
            Event::Closed(error) => self.on_closed(now, error.into()),
            // `Event` is non-exhaustive; other events do not concern the handles.
            _ => {}
        }
    }

    fn on_connected(&mut self) {
        let wakers = {
            let mut state = self.cell.lock();
            state.connected = true;
            state.identity = self.quic.peer_identity();
            state.datagram_len_max = self.quic.datagram_len_max();
            state.datagrams_out_max = usize::try_from(self.quic.datagram_send_buffer()).ok();
            state.take_wakers(Interest::Connected)
        };
        wakers.wake();
    }

    // ── Streams ──────────────────────────────────────────────────────────────────────────────────────────────────────

    /// Runs `serve` unless the receive half is detached, then wakes readers and publishes accepted
    /// streams.
    pub(crate) fn with_delivery(&mut self, serve: impl FnOnce(&mut Delivery, &mut quic::Connection)) {
        let Some(delivery) = &mut self.delivery else { return };
        serve(delivery, &mut self.quic);
        delivery.wake_readers();
        let accepted = delivery.take_accepted();
        self.publish_accepted(accepted);
    }

    /// Makes the peer's streams available to `accept`.
    pub(crate) fn publish_accepted(&mut self, accepted: Vec<StreamCells>) {
        for cells in accepted {
            let Some(id) = cells.id() else { continue };
            if let Some(send) = &cells.send {
                self.writers.insert(id, Arc::clone(send));
            }
            if let (Some(detached), Some(recv)) = (&mut self.detached, &cells.recv) {
                detached.add_known_reader(recv);
            }
            let wakers = {
                let mut state = self.cell.lock();
                state.accepted[id.dir().index()].push_back(cells);
                state.take_wakers(Interest::accept(id.dir()))
            };
            wakers.wake();
        }
    }

    /// Opens requested streams, up to the peer's limit.
    fn open_streams(&mut self, now: Instant, dir: Dir) {
        self.open_streams_of(now, dir, true);
        self.open_streams_of(now, dir, false);
    }

    fn opens(&mut self, dir: Dir, is_early: bool) -> &mut VecDeque<OpenReplySender> {
        let opens = if is_early { &mut self.early_opens } else { &mut self.opens };
        &mut opens[dir.index()]
    }

    fn open_streams_of(&mut self, now: Instant, dir: Dir, is_early: bool) {
        let mut answered = 0;
        while let Some(is_canceled) = self.opens(dir, is_early).front().map(OpenReplySender::is_canceled) {
            let mut opened = None;
            if !is_canceled {
                let id = if is_early { self.quic.open_early(dir) } else { self.quic.open(dir) };
                let Some(id) = id else { break };
                let cells = cells_for(&self.cell, id);
                if let Some(send) = &cells.send {
                    self.writers.insert(id, Arc::clone(send));
                }
                if let Some(recv) = &cells.recv {
                    match (&mut self.delivery, &mut self.detached) {
                        (Some(delivery), _) => delivery.add_reader(Arc::clone(recv)),
                        (None, Some(detached)) => {
                            detached.add_known_reader(recv);
                            detached.new_readers.push(Arc::clone(recv));
                        }
                        (None, None) => {}
                    }
                }
                opened = Some(cells);
            }
            let answer = self.opens(dir, is_early).pop_front().expect("it was just looked at");
            if let Some(cells) = opened
                && let Err(Ok(cells)) = answer.put(Ok(cells))
            {
                self.end_canceled(now, &cells);
            }
            answered += 1;
        }
        if answered > 0 {
            self.cell.lock().opens_waiting -= answered;
        }
    }

    /// Ends a stream whose request was canceled in the meantime.
    fn end_canceled(&mut self, now: Instant, cells: &StreamCells) {
        if let Some(send) = &cells.send {
            send.drop_writer();
            self.serve_send(send);
        }
        if let Some(recv) = &cells.recv {
            recv.stop(0);
            self.serve_recv(now, Arc::clone(recv));
        }
    }

    /// Moves written bytes from the outbox into the connection.
    fn serve_send(&mut self, cell: &SendCell) {
        let id = cell.id;
        let mut ended = None;
        let waker = {
            let mut outbox = cell.lock();
            if outbox.is_early_rejected() {
                return;
            }
            outbox.begin_service();
            if let Some(priority) = outbox.take_priority() {
                // An error means that the stream has ended.
                let _ended = self.quic.set_priority(id, priority);
            }
            if let Some(class_change) = outbox.take_class_change() {
                self.apply_class_change(id, *class_change);
            }
            if let Some(code) = outbox.pending_reset() {
                let _ended = self.quic.reset(id, code);
                ended = Some(SendEnd::Reset);
            }
            if ended.is_none() {
                match outbox.offer(|chunk| self.quic.write_some(id, chunk)) {
                    Ok(()) | Err(QuicWriteError::Blocked) => {}
                    Err(QuicWriteError::Stopped(code)) => ended = Some(SendEnd::Stopped(code)),
                    Err(_) => ended = Some(SendEnd::Reset),
                }
            }
            if ended.is_none() && outbox.is_finish_pending() {
                // A repeated call returns an error and has no effect.
                let _repeated = self.quic.finish(id);
            }
            if cell.is_half_free(&outbox) { outbox.take_waker() } else { None }
        };
        if let Some(end) = ended
            && self.quic.is_established()
        {
            self.on_send_end(id, end);
        }
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Applies a change of a stream's class of service.
    fn apply_class_change(&mut self, id: StreamId, class_change: ClassChange) {
        // An error means that the stream has ended.
        if let Some(limit) = class_change.rate {
            let _ended = self.quic.set_stream_rate(id, limit);
        }
        if let Some(paths) = class_change.paths {
            let _ended = self.quic.set_stream_paths(id, paths);
        }
        if let Some(is_background) = class_change.background {
            let _ended = self.quic.set_background(id, is_background);
        }
    }

    /// Handles the end of a sending side.
    fn on_send_end(&mut self, id: StreamId, end: SendEnd) {
        match self.writers.remove(&id) {
            Some(cell) => cell.end(end),
            None => self.messages.on_send_end(id, &mut self.quic, &self.cell),
        }
    }

    /// Moves received bytes into the inbox.
    fn serve_recv(&mut self, now: Instant, cell: Arc<RecvCell>) {
        if cell.is_early_rejected() {
            return;
        }
        match &mut self.detached {
            Some(detached) => detached.reader_requests.push(cell),
            None => self.with_delivery(|delivery, connection| delivery.serve_reader(now, &cell, connection)),
        }
    }

    // ── Queries, close ───────────────────────────────────────────────────────────────────────────────────────────────────────

    fn answer(&self, query: Query) {
        match query {
            Query::Stats(answer) => {
                let mut stats = self.quic.stats();
                let waiting = self.outgoing().flat_map(|outgoing| &outgoing.waiting);
                stats.send.datagram_bytes_waiting += waiting.map(|it| it.len() as u64).sum::<u64>();
                drop(answer.put(Some(stats)));
            }
            Query::Export { label, context, len, answer } => {
                let mut out = vec![0; len];
                let result = self.quic.export_keying_material(&label, &context, &mut out);
                drop(answer.put(result.map(|()| out).map_err(|_| ExportError)));
            }
            Query::MayBeReplayed { id, answer } => drop(answer.put(Some(self.quic.may_be_replayed(id)))),
        }
    }

    /// Ends all handles without using the protocol, which may have panicked.
    fn abandon_handles(&mut self, closed: Closed) {
        self.end_handles(&closed);
        self.cell.close(closed, None);
    }

    fn end_handles(&mut self, closed: &Closed) {
        for cell in std::mem::take(&mut self.writers).into_values() {
            cell.end(SendEnd::Closed(closed.clone()));
        }
        if let Some(delivery) = &mut self.delivery {
            delivery.end(closed);
        }
        if let Some(detached) = &mut self.detached {
            detached.end_readers(closed);
        }
        for answer in self.opens.iter_mut().chain(&mut self.early_opens).flat_map(|queue| queue.drain(..)) {
            let _canceled = answer.put(Err(OpenError::ConnectionClosed(closed.clone())));
        }
    }

    /// Ends the connection: delivers all received data, ignoring the limits of the queues because
    /// flow control has bounded it, and then ends all handles. If the receive half is detached,
    /// this happens when it returns, because it may have received more.
    pub(crate) fn on_closed(&mut self, now: Instant, closed: Closed) {
        let closed = self.end_override.take().unwrap_or(closed);
        if let Some(detached) = &mut self.detached {
            detached.closed.get_or_insert(closed);
            return;
        }
        self.with_delivery(|delivery, connection| delivery.deliver_all(now, connection));
        self.end_handles(&closed);
        self.messages.clear();
        self.cell.close(closed, Some(self.quic.stats()));
    }
}

/// Datagrams that the connection has no space for, for one path or for any.
#[derive(Debug, Default)]
struct Outgoing {
    waiting: VecDeque<Bytes>,
    /// Number of datagrams that the connection has taken or that were dropped.
    moved: u64,
}

impl Outgoing {
    /// Moves datagrams into the connection while it has space.
    fn serve(&mut self, quic: &mut quic::Connection, cell: &ConnectionCell, pinned: Option<PathId>) {
        let mut bytes = 0;
        while let Some(len) = self.waiting.front().map(Bytes::len)
            && quic.has_datagram_space(len, pinned)
            && let Some(datagram) = self.waiting.pop_front()
        {
            bytes += len + DATAGRAM_OVERHEAD;
            self.moved += 1;
            // The handle has checked the length. If the path MTU has shrunk since, the datagram is lost.
            let sent = match pinned {
                None => quic.send_datagram(datagram),
                Some(path) => quic.send_datagram_on(datagram, DatagramPaths::Pinned(path)),
            };
            if let Err(error) = sent {
                tracing::debug!(%error, "dropped a datagram");
            }
        }
        if bytes > 0 {
            // Datagrams that were pinned to a path that failed wait with those for any path.
            let departed = self.moved.saturating_sub(quic.datagrams_waiting(pinned) as u64);
            let window = quic.datagram_window(pinned);
            let wakers = cell.lock().on_datagrams_taken(pinned, bytes, departed, window);
            wakers.wake();
        }
    }
}

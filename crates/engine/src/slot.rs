//! One connection as the driver keeps it: the protocol, its cells, and what goes between them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use quic::session::ExportError;
use quic::{
    Chunk, Connection, Dir, Event, OpenPathError, ReadError as QuicReadError, StreamId, WriteError as QuicWriteError,
};
use units::{Duration, Instant};

use crate::cells::connection::{ACCEPTED_MAX, DATAGRAMS_IN_BYTES_MAX, OpenAnswer, PATH_TASKS_MAX, PathTask, Query};
use crate::cells::recv::RecvEnd;
use crate::cells::send::{ClassWishes, SendEnd};
use crate::cells::{ConnectionCell, Interest, MessageMode, RecvCell, SendCell, StreamCells, StreamTask};
use crate::error::{Closed, OpenError};
use crate::messages::Messages;
use crate::receive::COMPACT_BELOW;
use crate::shared::{Entered, HalfOpen};

/// Bytes taken from a stream in one call; chunks are references, so more would only mean less often.
pub(crate) const READ_LEN_MAX: usize = 64 << 10;

/// How long nothing is sent after the system refused a batch, at first and at most.
const REFUSED_WAIT_MIN: Duration = Duration::from_millis(5);
const REFUSED_WAIT_MAX: Duration = Duration::from_secs(1);

/// A connection of the driver.
pub(crate) struct Slot {
    pub(crate) connection: Connection,
    pub(crate) cell: Arc<ConnectionCell>,
    /// What the driver's timers hold for it.
    pub(crate) deadline: Option<Instant>,
    /// When the handshake has failed; none once it is complete.
    pub(crate) handshake_until: Option<Instant>,
    /// Connections of a higher priority are visited first.
    pub(crate) priority: i32,
    /// In the driver's run queue.
    pub(crate) scheduled: bool,
    /// In the queues of these sockets, which are full: bit by bit.
    pub(crate) awaits_room: u64,
    /// A client's connection whose handshake goes on.
    pub(crate) half_open: Option<HalfOpen>,
    /// It counts.
    _entered: Entered,
    /// What the system last said when a batch was refused.
    pub(crate) last_send_error: Option<String>,
    /// Batches refused in a row, and until when nothing is sent because of them.
    refusals: u32,
    pub(crate) refused_until: Option<Instant>,
    /// Takes the place of what the connection itself says about its end.
    pub(crate) end_override: Option<Closed>,
    streams: BTreeMap<StreamId, StreamCells>,
    /// Wishes for streams that wait for the peer's permission.
    opens: [VecDeque<OpenAnswer>; 2],
    messages: Messages,
    /// Wishes about paths that came before the handshake was confirmed; at most [`PATH_TASKS_MAX`], later ones are dropped.
    paths: Vec<PathTask>,
}

impl Slot {
    pub(crate) fn new(connection: Connection, cell: Arc<ConnectionCell>, entered: Entered) -> Self {
        let messages = Messages::new(cell.shared.limits.message_len_max);
        Self {
            connection,
            cell,
            deadline: None,
            handshake_until: None,
            priority: 0,
            scheduled: false,
            awaits_room: 0,
            half_open: None,
            _entered: entered,
            last_send_error: None,
            refusals: 0,
            refused_until: None,
            end_override: None,
            streams: BTreeMap::new(),
            opens: [VecDeque::new(), VecDeque::new()],
            messages,
            paths: Vec::new(),
        }
    }

    /// The system refused a batch for good: waits longer each time, so that a lasting cause costs little.
    pub(crate) fn on_refused(&mut self, now: Instant, error: String) {
        self.last_send_error = Some(error);
        let wait = REFUSED_WAIT_MIN * (1 << self.refusals.min(16));
        self.refused_until = Some(now + wait.min(REFUSED_WAIT_MAX));
        self.refusals += 1;
    }

    /// The system took a batch.
    pub(crate) fn on_taken(&mut self) {
        self.refusals = 0;
        self.refused_until = None;
    }

    /// The connection's rate, if it is another now. Looked at before anything is sent: what the application wrote after it had set
    /// a rate may have been taken with wishes that came before.
    pub(crate) fn serve_rate(&mut self) {
        let changed = self.cell.lock().rate.take();
        if let Some(limit) = changed {
            self.connection.set_rate(limit);
        }
    }

    /// Does what the application asked for.
    pub(crate) fn serve_todo(&mut self, now: Instant) {
        let (todo, mode) = {
            let mut state = self.cell.lock();
            (state.begin_service(), state.mode)
        };
        self.priority = todo.priority.unwrap_or(self.priority);
        for request in todo.opens {
            self.opens[request.dir.index()].push_back(request.answer);
        }
        for task in todo.streams {
            match task {
                StreamTask::Send(cell) => self.serve_send(&cell),
                StreamTask::Recv(cell) => self.serve_recv(now, &cell),
            }
        }
        for datagram in todo.datagrams {
            // It was checked when it was handed over; if the path shrank since, it is lost like any other.
            if let Err(error) = self.connection.send_datagram(datagram) {
                tracing::debug!(%error, "a datagram was dropped");
            }
        }
        let room = PATH_TASKS_MAX.saturating_sub(self.paths.len());
        self.paths.extend(todo.paths.into_iter().take(room));
        self.serve_paths(now);
        for query in todo.queries {
            self.answer(query);
        }
        self.open_streams(now, Dir::Bi);
        self.open_streams(now, Dir::Uni);
        self.accept_streams(now, Dir::Bi, mode);
        self.accept_streams(now, Dir::Uni, mode);
        self.messages.serve_out(&mut self.connection, &self.cell);
        if mode == MessageMode::Messages {
            self.messages.serve_in(now, &mut self.connection, &self.cell, false);
        }
        self.serve_datagrams();
        if let Some((code, reason)) = todo.close {
            self.connection.close(now, code, &reason);
        }
    }

    /// Tells the application what happened.
    pub(crate) fn on_event(&mut self, now: Instant, event: Event) {
        match event {
            Event::Connected => self.on_connected(),
            Event::Opened(dir) => {
                let mode = self.cell.lock().mode;
                self.accept_streams(now, dir, mode);
                if mode == MessageMode::Messages {
                    self.messages.serve_in(now, &mut self.connection, &self.cell, false);
                }
            }
            Event::StreamsAvailable(dir) => {
                self.open_streams(now, dir);
                if dir == Dir::Uni {
                    self.messages.serve_out(&mut self.connection, &self.cell);
                }
            }
            Event::Readable(id) => match self.streams.get(&id).and_then(|cells| cells.recv.clone()) {
                Some(cell) => self.serve_recv(now, &cell),
                None => self.messages.on_readable(now, id, &mut self.connection, &self.cell),
            },
            Event::Writable(id) => match self.streams.get(&id).and_then(|cells| cells.send.clone()) {
                Some(cell) => self.serve_send(&cell),
                None => self.messages.serve_out(&mut self.connection, &self.cell),
            },
            Event::Finished(id) => self.on_send_end(id, SendEnd::Acknowledged),
            Event::Stopped { id, code } => self.on_send_end(id, SendEnd::Stopped(code)),
            Event::DatagramReceived => self.serve_datagrams(),
            Event::Confirmed => self.serve_paths(now),
            Event::PathState(path, state) => tracing::debug!(%path, state = state.name(), "a path has changed"),
            Event::Closed(error) => self.on_closed(now, error.into()),
            // What later versions of the protocol crate may say concerns nobody here.
            _ => {}
        }
    }

    fn on_connected(&mut self) {
        self.handshake_until = None;
        let wakers = {
            let mut state = self.cell.lock();
            state.connected = true;
            state.identity = self.connection.peer_identity();
            state.datagram_len_max = self.connection.datagram_len_max();
            state.take_wakers(Interest::Connected)
        };
        wakers.wake();
    }

    // ── Streams ──────────────────────────────────────────────────────────────────────────────────────────────────────

    fn cells_for(&self, id: StreamId) -> StreamCells {
        let limits = self.cell.shared.limits;
        let ours = id.initiator() == self.connection.side();
        let bi = id.dir() == Dir::Bi;
        StreamCells {
            send: (bi || ours).then(|| Arc::new(SendCell::new(id, limits.outbox_bytes_max))),
            recv: (bi || !ours).then(|| Arc::new(RecvCell::new(id, limits.inbox_bytes_max))),
        }
    }

    /// Opens streams for those who wait, as far as the peer allows.
    fn open_streams(&mut self, now: Instant, dir: Dir) {
        let mut answered = 0;
        while let Some(answer) = self.opens[dir.index()].front() {
            if !answer.is_abandoned() {
                let Some(id) = self.connection.open(dir) else { break };
                let cells = self.cells_for(id);
                self.streams.insert(id, cells.clone());
                if let Err(Ok(cells)) = answer.put(Ok(cells)) {
                    self.forsake(now, &cells);
                }
            }
            self.opens[dir.index()].pop_front();
            answered += 1;
        }
        if answered > 0 {
            self.cell.lock().opens_waiting -= answered;
        }
    }

    /// Nobody took this stream of ours: ends it.
    fn forsake(&mut self, now: Instant, cells: &StreamCells) {
        if let Some(send) = &cells.send {
            send.abandon();
            self.serve_send(send);
        }
        if let Some(recv) = &cells.recv {
            recv.stop(0);
            self.serve_recv(now, recv);
        }
    }

    /// Takes the peer's streams, as many as may wait for the application.
    fn accept_streams(&mut self, now: Instant, dir: Dir, mode: MessageMode) {
        if dir == Dir::Uni && mode != MessageMode::Streams {
            return;
        }
        // Looked at each time, because the application takes streams meanwhile: it asks for more when a queue that was full
        // has fallen to half, so this must not stop before the queue is full.
        while self.cell.lock().accepted[dir.index()].len() < ACCEPTED_MAX
            && let Some(id) = self.connection.accept(dir)
        {
            self.accept_stream(now, id);
        }
    }

    fn accept_stream(&mut self, now: Instant, id: StreamId) {
        let cells = self.cells_for(id);
        self.streams.insert(id, cells.clone());
        if let Some(recv) = &cells.recv {
            self.serve_recv(now, recv);
        }
        let wakers = {
            let mut state = self.cell.lock();
            state.accepted[id.dir().index()].push_back(cells);
            state.take_wakers(Interest::accept(id.dir()))
        };
        wakers.wake();
    }

    /// Moves what was written into the connection.
    fn serve_send(&mut self, cell: &SendCell) {
        let id = cell.id;
        let mut ended = None;
        let waker = {
            let mut outbox = cell.lock();
            outbox.begin_service();
            if let Some(priority) = outbox.take_priority() {
                // A stream that is over needs none.
                let _over = self.connection.set_priority(id, priority);
            }
            if let Some(wishes) = outbox.take_wishes() {
                self.apply_wishes(id, *wishes);
            }
            if let Some(code) = outbox.due_reset() {
                let _over = self.connection.reset(id, code);
                ended = Some(SendEnd::Reset);
            }
            if ended.is_none() {
                match outbox.offer(|chunk| self.connection.write_some(id, chunk)) {
                    Ok(()) | Err(QuicWriteError::Blocked) => {}
                    Err(QuicWriteError::Stopped(code)) => ended = Some(SendEnd::Stopped(code)),
                    Err(QuicWriteError::Closed) => ended = Some(SendEnd::Reset),
                }
            }
            if ended.is_none() && outbox.is_finish_due() {
                // Said once: a second attempt finds the stream closed, which changes nothing.
                let _said = self.connection.finish(id);
            }
            if cell.has_worthwhile_room(&outbox) { outbox.take_waker() } else { None }
        };
        if let Some(end) = ended
            && self.connection.is_established()
        {
            self.on_send_end(id, end);
        }
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// A stream's rate and paths, and whether it is in the background.
    fn apply_wishes(&mut self, id: StreamId, wishes: ClassWishes) {
        // A stream that is over needs none of it.
        if let Some(limit) = wishes.rate {
            let _over = self.connection.set_stream_rate(id, limit);
        }
        if let Some(paths) = wishes.paths {
            let _over = self.connection.set_stream_paths(id, paths);
        }
        if let Some(is_background) = wishes.background {
            let _over = self.connection.set_background(id, is_background);
        }
    }

    /// A sending side is over.
    fn on_send_end(&mut self, id: StreamId, end: SendEnd) {
        let Some(cells) = self.streams.get_mut(&id) else {
            self.messages.on_send_end(id, &mut self.connection, &self.cell);
            return;
        };
        let cell = cells.send.take();
        let gone = cells.recv.is_none();
        if gone {
            self.streams.remove(&id);
        }
        if let Some(cell) = cell {
            cell.end(end);
        }
    }

    /// Moves what has arrived into the inbox.
    fn serve_recv(&mut self, now: Instant, cell: &RecvCell) {
        self.move_in(now, cell, false);
    }

    /// As [`serve_recv`](Self::serve_recv); `everything` takes no heed of the inbox's bound.
    fn move_in(&mut self, now: Instant, cell: &RecvCell, everything: bool) {
        let id = cell.id;
        let mut over = false;
        let waker = {
            let mut inbox = cell.lock();
            inbox.begin_service();
            if let Some(code) = inbox.take_stop() {
                let _over = self.connection.stop(now, id, code);
                over = true;
            }
            while !inbox.is_over() && (cell.wants_more(&mut inbox) || everything) {
                match self.connection.read(now, id, READ_LEN_MAX) {
                    Ok(Chunk::Bytes(strip)) => inbox.push(strip.compacted(COMPACT_BELOW)),
                    Ok(Chunk::End) => inbox.set_end(RecvEnd::Finished),
                    Err(QuicReadError::Reset(code)) => inbox.set_end(RecvEnd::Reset(code)),
                    Err(QuicReadError::Blocked) => break,
                    Err(QuicReadError::Closed) => inbox.set_end(RecvEnd::Stopped),
                }
            }
            over |= inbox.is_over();
            inbox.take_waker()
        };
        if over && let Some(cells) = self.streams.get_mut(&id) {
            cells.recv = None;
            if cells.send.is_none() {
                self.streams.remove(&id);
            }
        }
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    // ── The rest ─────────────────────────────────────────────────────────────────────────────────────────────────────

    /// Moves datagrams to the application; what finds no room stays with the connection.
    fn serve_datagrams(&mut self) {
        let wakers = {
            let mut state = self.cell.lock();
            state.datagram_len_max = self.connection.datagram_len_max();
            let before = state.datagrams.len();
            while state.datagrams_bytes < DATAGRAMS_IN_BYTES_MAX
                && let Some(datagram) = self.connection.recv_datagram()
            {
                state.put_datagram(datagram);
            }
            if state.datagrams.len() == before {
                return;
            }
            state.take_wakers(Interest::Datagram)
        };
        wakers.wake();
    }

    /// Does what is wanted of paths, once it can be.
    fn serve_paths(&mut self, now: Instant) {
        if self.paths.is_empty() || self.connection.is_handshaking() {
            return;
        }
        let mut early = Vec::new();
        for task in std::mem::take(&mut self.paths) {
            match task {
                PathTask::Open { addresses, is_backup } => match self.connection.open_path(now, addresses, is_backup) {
                    Ok(()) => {}
                    Err(OpenPathError::TooEarly) => early.push(task),
                    Err(error) => tracing::debug!(remote = %addresses.remote, %error, "a path is not opened"),
                },
                PathTask::Abandon { path, code } => {
                    // One that is gone, or is the last, stays as it is.
                    let _given_up = self.connection.abandon_path(now, path, code);
                }
                PathTask::SetBackup { path, is_backup } => {
                    let _known = self.connection.set_path_backup(now, path, is_backup);
                }
            }
        }
        self.paths = early;
    }

    fn answer(&self, query: Query) {
        match query {
            Query::Stats(answer) => drop(answer.put(Some(self.connection.stats()))),
            Query::Export { label, context, len, answer } => {
                let mut out = vec![0; len];
                let result = self.connection.export_keying_material(&label, &context, &mut out);
                drop(answer.put(result.map(|()| out).map_err(|_| ExportError)));
            }
        }
    }

    /// Tells everybody who waits, without a look at the protocol: it may be what has just panicked.
    pub(crate) fn abandon(&mut self, closed: Closed) {
        self.end_handles(&closed);
        self.cell.close(closed, None);
    }

    fn end_handles(&mut self, closed: &Closed) {
        for cells in std::mem::take(&mut self.streams).into_values() {
            if let Some(cell) = cells.send {
                cell.end(SendEnd::Closed(closed.clone()));
            }
            if let Some(cell) = cells.recv {
                cell.end(RecvEnd::Closed(closed.clone()));
            }
        }
        for answer in self.opens.iter_mut().flat_map(|queue| queue.drain(..)) {
            let _nobody_waits = answer.put(Err(OpenError::ConnectionClosed(closed.clone())));
        }
    }

    /// The connection is over: what has arrived goes to the application without heed of bounds (flow control has bounded
    /// it), then everybody is told.
    pub(crate) fn on_closed(&mut self, now: Instant, closed: Closed) {
        let closed = self.end_override.take().unwrap_or(closed);
        let mode = self.cell.lock().mode;
        for dir in Dir::ALL {
            if dir == Dir::Uni && mode == MessageMode::Messages {
                self.messages.serve_in(now, &mut self.connection, &self.cell, true);
                continue;
            }
            while let Some(id) = self.connection.accept(dir) {
                self.accept_stream(now, id);
            }
        }
        let receiving: Vec<_> = self.streams.values().filter_map(|cells| cells.recv.clone()).collect();
        for cell in receiving {
            self.move_in(now, &cell, true);
        }
        self.serve_datagrams();
        self.end_handles(&closed);
        self.messages.clear();
        self.handshake_until = None;
        self.cell.close(closed, Some(self.connection.stats()));
    }
}

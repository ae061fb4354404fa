//! One connection as the driver keeps it: the protocol, its cells, and what goes between them. What arrives is in `inbound`,
//! which is away while the receive half is.

mod away;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use quic::session::ExportError;
use quic::{Connection, Dir, Event, OpenPathError, StreamId, WriteError as QuicWriteError};
use units::{Duration, Instant};

pub(crate) use self::away::{Away, STRANGE_MAX};
use crate::cells::connection::{OpenAnswer, PATH_TASKS_MAX, PathTask, Query};
use crate::cells::send::{ClassWishes, SendEnd};
use crate::cells::{ConnectionCell, Interest, RecvCell, SendCell, StreamCells, StreamTask};
use crate::error::{Closed, OpenError};
use crate::inbound::{Inbound, cells_for};
use crate::messages::Outgoing;
use crate::processor::Lender;
use crate::shared::{Entered, HalfOpen};

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
    /// What processors of paths open its datagrams with.
    pub(crate) lender: Lender,
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
    writers: BTreeMap<StreamId, Arc<SendCell>>,
    /// What arrives for the application; none while the receive half is [away](Away), or if that was lost.
    inbound: Option<Inbound>,
    pub(crate) away: Option<Box<Away>>,
    /// Much arrives, so that the receive half is worth a processor of its own, but not before this time.
    pub(crate) bulk_arrives: bool,
    pub(crate) whole_until: Instant,
    /// Wishes for streams that wait for the peer's permission.
    opens: [VecDeque<OpenAnswer>; 2],
    messages: Outgoing,
    /// Wishes about paths that came before the handshake was confirmed; at most [`PATH_TASKS_MAX`], later ones are dropped.
    paths: Vec<PathTask>,
}

impl Slot {
    pub(crate) fn new(connection: Connection, cell: Arc<ConnectionCell>, entered: Entered) -> Self {
        let inbound = Inbound::new(Arc::clone(&cell));
        Self {
            connection,
            cell,
            deadline: None,
            handshake_until: None,
            priority: 0,
            scheduled: false,
            awaits_room: 0,
            lender: Lender::default(),
            half_open: None,
            _entered: entered,
            last_send_error: None,
            refusals: 0,
            refused_until: None,
            end_override: None,
            writers: BTreeMap::new(),
            inbound: Some(inbound),
            away: None,
            bulk_arrives: false,
            whole_until: Instant::ZERO,
            opens: [VecDeque::new(), VecDeque::new()],
            messages: Outgoing::default(),
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
        let todo = self.cell.lock().begin_service();
        self.priority = todo.priority.unwrap_or(self.priority);
        for request in todo.opens {
            self.opens[request.dir.index()].push_back(request.answer);
        }
        for task in todo.streams {
            match task {
                StreamTask::Send(cell) => self.serve_send(&cell),
                StreamTask::Recv(cell) => self.serve_recv(now, cell),
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
        self.messages.serve(&mut self.connection, &self.cell);
        self.cell.lock().datagram_len_max = self.connection.datagram_len_max();
        self.with_inbound(|inbound, connection| inbound.serve(now, connection));
        if let Some(away) = &mut self.away {
            away.inbound |= todo.inbound;
        }
        if let Some((code, reason)) = todo.close {
            self.connection.close(now, code, &reason);
        }
    }

    /// Tells the application what happened.
    pub(crate) fn on_event(&mut self, now: Instant, event: Event) {
        match event {
            Event::Connected => self.on_connected(),
            Event::Opened(dir) => {
                self.with_inbound(|inbound, connection| inbound.on_opened(now, dir, connection));
            }
            Event::StreamsAvailable(dir) => {
                self.open_streams(now, dir);
                if dir == Dir::Uni {
                    self.messages.serve(&mut self.connection, &self.cell);
                }
            }
            Event::Readable(id) => {
                self.with_inbound(|inbound, connection| inbound.on_readable(now, id, connection));
            }
            Event::Writable(id) => match self.writers.get(&id).cloned() {
                Some(cell) => self.serve_send(&cell),
                None => self.messages.serve(&mut self.connection, &self.cell),
            },
            Event::Finished(id) => self.on_send_end(id, SendEnd::Acknowledged),
            Event::Stopped { id, code } => self.on_send_end(id, SendEnd::Stopped(code)),
            Event::DatagramReceived => {
                self.with_inbound(|inbound, connection| inbound.serve_datagrams(connection));
            }
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

    /// Does something about what arrives, unless that happens elsewhere, and hands out what comes of it.
    fn with_inbound(&mut self, serve: impl FnOnce(&mut Inbound, &mut Connection)) {
        let Some(inbound) = &mut self.inbound else { return };
        serve(inbound, &mut self.connection);
        inbound.wake_readers();
        let accepted = inbound.take_accepted();
        self.hand_out(accepted);
    }

    /// The peer's streams are the application's from now on.
    pub(crate) fn hand_out(&mut self, accepted: Vec<StreamCells>) {
        for cells in accepted {
            let Some(id) = cells.id() else { continue };
            if let Some(send) = &cells.send {
                self.writers.insert(id, Arc::clone(send));
            }
            if let (Some(away), Some(recv)) = (&mut self.away, &cells.recv) {
                away.note_reader(recv);
            }
            let wakers = {
                let mut state = self.cell.lock();
                state.accepted[id.dir().index()].push_back(cells);
                state.take_wakers(Interest::accept(id.dir()))
            };
            wakers.wake();
        }
    }

    /// Opens streams for those who wait, as far as the peer allows.
    fn open_streams(&mut self, now: Instant, dir: Dir) {
        let mut answered = 0;
        while let Some(answer) = self.opens[dir.index()].front() {
            if !answer.is_abandoned() {
                let Some(id) = self.connection.open(dir) else { break };
                let cells = cells_for(&self.cell, id);
                if let Some(send) = &cells.send {
                    self.writers.insert(id, Arc::clone(send));
                }
                if let Some(recv) = &cells.recv {
                    match (&mut self.inbound, &mut self.away) {
                        (Some(inbound), _) => inbound.add_reader(Arc::clone(recv)),
                        (None, Some(away)) => {
                            away.note_reader(recv);
                            away.readers.push(Arc::clone(recv));
                        }
                        (None, None) => {}
                    }
                }
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
            self.serve_recv(now, Arc::clone(recv));
        }
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
        match self.writers.remove(&id) {
            Some(cell) => cell.end(end),
            None => self.messages.on_send_end(id, &mut self.connection, &self.cell),
        }
    }

    /// Moves what has arrived into the inbox.
    fn serve_recv(&mut self, now: Instant, cell: Arc<RecvCell>) {
        match &mut self.away {
            Some(away) => away.tasks.push(cell),
            None => self.with_inbound(|inbound, connection| inbound.serve_reader(now, &cell, connection)),
        }
    }

    // ── The rest ─────────────────────────────────────────────────────────────────────────────────────────────────────

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
        for cell in std::mem::take(&mut self.writers).into_values() {
            cell.end(SendEnd::Closed(closed.clone()));
        }
        if let Some(inbound) = &mut self.inbound {
            inbound.end(closed);
        }
        if let Some(away) = &mut self.away {
            away.end_readers(closed);
        }
        for answer in self.opens.iter_mut().flat_map(|queue| queue.drain(..)) {
            let _nobody_waits = answer.put(Err(OpenError::ConnectionClosed(closed.clone())));
        }
    }

    /// The connection is over: what has arrived goes to the application without heed of bounds (flow control has bounded
    /// it), then everybody is told. Not before the receive half is back, which may know of more.
    pub(crate) fn on_closed(&mut self, now: Instant, closed: Closed) {
        let closed = self.end_override.take().unwrap_or(closed);
        if let Some(away) = &mut self.away {
            away.closed.get_or_insert(closed);
            return;
        }
        self.with_inbound(|inbound, connection| inbound.bring_all(now, connection));
        self.end_handles(&closed);
        self.messages.clear();
        self.handshake_until = None;
        self.cell.close(closed, Some(self.connection.stats()));
    }
}

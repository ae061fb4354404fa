//! The buffers between a host's application and its connection, as the cells of the engine. A write
//! completes when its bytes are in an outbox. The host sends from outboxes and fills inboxes
//! independently of the application.
//!
//! ```text
//!   application ── write ─▶ outbox ── serve ─▶ connection ── events ─▶ inbox ── read ─▶ application
//! ```

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use quic::{Chunk, Connection, Dir, Event, ReadError, StreamId, StridedBytes, WriteError};
use units::Instant;

use crate::apps::Streams;

/// Maximum bytes of a stream's outbox and inbox, as the engine's default. The chunk that reaches
/// the bound may exceed it.
const OUTBOX_BYTES_MAX: usize = 1 << 20;
const INBOX_BYTES_MAX: usize = 1 << 20;

/// Maximum bytes of one read from a stream, as in the engine.
const READ_LEN_MAX: usize = 64 << 10;

/// The cells of a host's connection.
#[derive(Debug, Default)]
pub(crate) struct Cells {
    /// Buffers of the streams that are being written and read.
    outboxes: BTreeMap<StreamId, Outbox>,
    inboxes: BTreeMap<StreamId, Inbox>,
    /// Streams opened by the peer that the application has not accepted.
    accepted: [VecDeque<StreamId>; 2],
    /// Changes by the application that the host has not served, in order, without duplicates.
    changed: Vec<Changed>,
    /// Events for the application, in order.
    events: VecDeque<Event>,
    /// Bytes that the application may read, if its reading is limited. Negative after a larger
    /// read.
    allowance: Option<i64>,
    /// Streams whose reading the allowance stopped.
    unread: Vec<StreamId>,
}

#[derive(Clone, Copy, Debug)]
enum Changed {
    Outbox(StreamId),
    Inbox(StreamId),
}

#[derive(Debug, Default)]
struct Outbox {
    chunks: VecDeque<Bytes>,
    bytes: usize,
    /// The application has ended the stream.
    is_finished: bool,
    is_changed: bool,
    /// The writer is blocked.
    has_writer: bool,
    /// The peer stopped the stream, or the connection has closed.
    is_over: bool,
}

#[derive(Debug, Default)]
struct Inbox {
    strips: VecDeque<StridedBytes>,
    bytes: usize,
    /// The inbox is full; the host waits until half of it is free.
    is_paused: bool,
    /// After the buffered bytes: the end of the stream, or the error.
    end: Option<Result<(), ReadError>>,
}

impl Cells {
    /// The application's handles of the connection.
    pub(crate) const fn handles<'a>(&'a mut self, connection: &'a mut Connection) -> Handles<'a> {
        Handles { cells: self, connection }
    }

    /// Handles an event of the connection.
    pub(crate) fn on_event(&mut self, now: Instant, event: Event, connection: &mut Connection) {
        match event {
            Event::Opened(dir) => {
                while let Some(id) = connection.accept(dir) {
                    self.inboxes.insert(id, Inbox::default());
                    self.fill_inbox(now, id, INBOX_BYTES_MAX, connection);
                    self.accepted[dir.index()].push_back(id);
                }
                self.events.push_back(event);
            }
            Event::Readable(id) => {
                self.fill_inbox(now, id, INBOX_BYTES_MAX, connection);
                self.events.push_back(event);
            }
            // The writer is notified when its outbox has space.
            Event::Writable(id) => self.serve_outbox(id, connection),
            Event::Closed(_) => self.fill_all_inboxes(now, connection),
            event => self.events.push_back(event),
        }
    }

    /// The connection has closed: moves all arrived data to the inboxes, regardless of their bound.
    /// Flow control bounds the amount.
    fn fill_all_inboxes(&mut self, now: Instant, connection: &mut Connection) {
        let streams: Vec<_> = self.inboxes.keys().copied().collect();
        for id in streams {
            self.fill_inbox(now, id, usize::MAX, connection);
            self.events.push_back(Event::Readable(id));
        }
    }

    /// Allows the application to read `bytes` more bytes over all streams. Reading is limited from
    /// the first call on.
    pub(crate) fn allow_reading(&mut self, bytes: usize) {
        // Unused allowance accumulates, because bytes behind a gap become readable only when the
        // gap is filled.
        self.allowance = Some(self.allowance.unwrap_or(0).saturating_add_unsigned(bytes as u64));
        // Round robin, so that the first stream does not use the whole allowance every time.
        if !self.unread.is_empty() {
            self.unread.rotate_left(1);
        }
        self.events.extend(self.unread.drain(..).map(Event::Readable));
    }

    /// The next event for the application.
    pub(crate) fn pop_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Whether the application has written, ended a stream, or freed inbox space since the last
    /// [`serve`](Self::serve).
    pub(crate) const fn has_changed(&self) -> bool {
        !self.changed.is_empty()
    }

    /// Applies the application's changes since the last call.
    pub(crate) fn serve(&mut self, now: Instant, connection: &mut Connection) {
        let mut changed = std::mem::take(&mut self.changed);
        for change in changed.drain(..) {
            match change {
                Changed::Outbox(id) => self.serve_outbox(id, connection),
                Changed::Inbox(id) => {
                    self.fill_inbox(now, id, INBOX_BYTES_MAX, connection);
                    self.events.push_back(Event::Readable(id));
                }
            }
        }
        // Serving adds no changes, so the memory can be reused.
        self.changed = changed;
    }

    /// Writes as much of an outbox to the connection as it takes.
    fn serve_outbox(&mut self, id: StreamId, connection: &mut Connection) {
        let Some(outbox) = self.outboxes.get_mut(&id) else { return };
        outbox.is_changed = false;
        while let Some(chunk) = outbox.chunks.front_mut() {
            let before = chunk.len();
            let result = connection.write_some(id, chunk);
            outbox.bytes -= before - chunk.len();
            if chunk.is_empty() {
                outbox.chunks.pop_front();
            }
            match result {
                Ok(()) => {}
                Err(WriteError::Blocked) => break,
                Err(WriteError::Stopped(_) | WriteError::Closed) => {
                    (outbox.is_over, outbox.bytes) = (true, 0);
                    outbox.chunks.clear();
                }
            }
        }
        // Wake the writer when at least half of the outbox is free.
        if outbox.has_writer && outbox.bytes <= OUTBOX_BYTES_MAX / 2 {
            outbox.has_writer = false;
            self.events.push_back(Event::Writable(id));
        }
        if outbox.is_finished && outbox.chunks.is_empty() {
            self.outboxes.remove(&id);
            // A stopped stream has already ended.
            let _is_open = connection.finish(id);
        }
    }

    /// Moves arrived data of a stream into its inbox until it holds `bytes_max` bytes.
    fn fill_inbox(&mut self, now: Instant, id: StreamId, bytes_max: usize, connection: &mut Connection) {
        let inbox = self.inboxes.entry(id).or_default();
        while inbox.end.is_none() {
            inbox.is_paused = inbox.bytes >= bytes_max;
            if inbox.is_paused {
                return;
            }
            match connection.read(now, id, READ_LEN_MAX) {
                Ok(Chunk::Bytes(strip)) => {
                    inbox.bytes += strip.len();
                    inbox.strips.push_back(strip);
                }
                Ok(Chunk::End) => inbox.end = Some(Ok(())),
                Err(ReadError::Blocked) => return,
                Err(error) => inbox.end = Some(Err(error)),
            }
        }
    }
}

/// The handles of a connection, backed by cells.
pub(crate) struct Handles<'a> {
    cells: &'a mut Cells,
    connection: &'a mut Connection,
}

impl Handles<'_> {
    /// Changes an outbox and marks it as changed.
    fn change(&mut self, id: StreamId, change: impl FnOnce(&mut Outbox)) {
        let outbox = self.cells.outboxes.entry(id).or_default();
        change(outbox);
        if !std::mem::replace(&mut outbox.is_changed, true) {
            self.cells.changed.push(Changed::Outbox(id));
        }
    }
}

impl Streams for Handles<'_> {
    fn open(&mut self, dir: Dir) -> Option<StreamId> {
        self.connection.open(dir)
    }

    fn accept(&mut self, dir: Dir) -> Option<StreamId> {
        self.cells.accepted[dir.index()].pop_front()
    }

    fn set_priority(&mut self, id: StreamId, priority: i32) {
        Streams::set_priority(self.connection, id, priority);
    }

    fn write(&mut self, id: StreamId, data: &mut Bytes) -> Result<(), WriteError> {
        let outbox = self.cells.outboxes.entry(id).or_default();
        if outbox.is_over {
            self.cells.outboxes.remove(&id);
            return Err(WriteError::Closed);
        }
        if outbox.bytes >= OUTBOX_BYTES_MAX {
            outbox.has_writer = true;
            return Err(WriteError::Blocked);
        }
        let chunk = std::mem::take(data);
        self.change(id, |outbox| {
            outbox.bytes += chunk.len();
            outbox.chunks.push_back(chunk);
        });
        Ok(())
    }

    fn finish(&mut self, id: StreamId) {
        self.change(id, |outbox| outbox.is_finished = true);
    }

    fn is_taken(&mut self, id: StreamId) -> bool {
        let outbox = self.cells.outboxes.get_mut(&id).filter(|outbox| outbox.bytes > 0);
        match outbox {
            Some(outbox) => {
                outbox.has_writer = true;
                false
            }
            None => true,
        }
    }

    fn read(&mut self, _now: Instant, id: StreamId) -> Result<Chunk, ReadError> {
        // A stream without an inbox was opened here, and no data has arrived on it.
        let Some(inbox) = self.cells.inboxes.get_mut(&id) else { return Err(ReadError::Blocked) };
        if self.cells.allowance.is_some_and(|allowance| allowance <= 0) && !inbox.strips.is_empty() {
            if !self.cells.unread.contains(&id) {
                self.cells.unread.push(id);
            }
            return Err(ReadError::Blocked);
        }
        let Some(strip) = inbox.strips.pop_front() else {
            let Some(end) = inbox.end else { return Err(ReadError::Blocked) };
            self.cells.inboxes.remove(&id);
            return end.map(|()| Chunk::End);
        };
        inbox.bytes -= strip.len();
        if let Some(allowance) = &mut self.cells.allowance {
            *allowance -= strip.len() as i64;
        }
        if inbox.is_paused && inbox.bytes <= INBOX_BYTES_MAX / 2 {
            inbox.is_paused = false;
            self.cells.changed.push(Changed::Inbox(id));
        }
        Ok(Chunk::Bytes(strip))
    }
}

//! What stands between a host's application and its connection: as the cells of the engine, so that the application is done with its
//! bytes long before they leave, and a host goes on with what was written and with what has arrived while the application waits.
//!
//! ```text
//!   application ── write ─▶ outbox ── serve ─▶ connection ── tell ─▶ inbox ── read ─▶ application
//! ```

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use quic::{Chunk, Connection, Dir, Event, ReadError, StreamId, Strip, WriteError};
use units::Instant;

use crate::apps::Streams;

/// Bytes that a stream's outbox and its inbox hold: as much as in an engine by default. The chunk that reaches the bound may go beyond.
const OUTBOX_BYTES_MAX: usize = 1 << 20;
const INBOX_BYTES_MAX: usize = 1 << 20;

/// Bytes taken from a stream in one call, as the engine does.
const READ_LEN_MAX: usize = 64 << 10;

/// The cells of a host's connection.
#[derive(Debug, Default)]
pub(crate) struct Cells {
    /// Of streams that are written and read, as many as the applications have begun.
    outboxes: BTreeMap<StreamId, Outbox>,
    inboxes: BTreeMap<StreamId, Inbox>,
    /// The peer's streams that the application has not taken.
    accepted: [VecDeque<StreamId>; 2],
    /// What the application has changed and the host has not served, each once, in the order of the changes.
    changed: Vec<Changed>,
    /// What the application is to hear, in the order in which it happened.
    news: VecDeque<Event>,
    /// Bytes that the application has the time to read, if its reading takes any; below zero if what it read last was more.
    allowance: Option<i64>,
    /// Streams that it would read if it had more of that.
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
    /// Nothing follows.
    is_finished: bool,
    is_changed: bool,
    /// The writer found no room.
    has_writer: bool,
    /// The peer does not want it, or the connection is over.
    is_over: bool,
}

#[derive(Debug, Default)]
struct Inbox {
    strips: VecDeque<Strip>,
    bytes: usize,
    /// It is full, and the host waits until half of it is free.
    is_paused: bool,
    /// After the strips: the end, or why nothing comes.
    end: Option<Result<(), ReadError>>,
}

impl Cells {
    /// What the application sees of the connection.
    pub(crate) const fn over<'a>(&'a mut self, connection: &'a mut Connection) -> Handles<'a> {
        Handles { cells: self, connection }
    }

    /// Something has happened to the connection.
    pub(crate) fn on_event(&mut self, now: Instant, event: Event, connection: &mut Connection) {
        match event {
            Event::Opened(dir) => {
                while let Some(id) = connection.accept(dir) {
                    self.inboxes.insert(id, Inbox::default());
                    self.move_in(now, id, INBOX_BYTES_MAX, connection);
                    self.accepted[dir.index()].push_back(id);
                }
                self.news.push_back(event);
            }
            Event::Readable(id) => {
                self.move_in(now, id, INBOX_BYTES_MAX, connection);
                self.news.push_back(event);
            }
            // The writer hears of it when there is room where it writes to.
            Event::Writable(id) => self.serve_outbox(id, connection),
            Event::Closed(_) => self.bring_all(now, connection),
            event => self.news.push_back(event),
        }
    }

    /// The connection is over: what has arrived goes to the application without heed of bounds, which flow control has bounded.
    fn bring_all(&mut self, now: Instant, connection: &mut Connection) {
        let streams: Vec<_> = self.inboxes.keys().copied().collect();
        for id in streams {
            self.move_in(now, id, usize::MAX, connection);
            self.news.push_back(Event::Readable(id));
        }
    }

    /// The application has had the time to read so many bytes, of all that it reads. From the first call on it reads no more than it was
    /// allowed to.
    pub(crate) fn allow_reading(&mut self, bytes: usize) {
        // What it finds nothing for is saved up: bytes behind a gap can be read only when that is filled.
        self.allowance = Some(self.allowance.unwrap_or(0).saturating_add_unsigned(bytes as u64));
        // In turn: who was first last time would have all of it each time.
        if !self.unread.is_empty() {
            self.unread.rotate_left(1);
        }
        self.news.extend(self.unread.drain(..).map(Event::Readable));
    }

    /// What the application is to hear next.
    pub(crate) fn pop_news(&mut self) -> Option<Event> {
        self.news.pop_front()
    }

    /// The application has written, ended what it wrote, or made room, since it was last [served](Self::serve).
    pub(crate) const fn has_changed(&self) -> bool {
        !self.changed.is_empty()
    }

    /// Does what the application has asked for since the last call.
    pub(crate) fn serve(&mut self, now: Instant, connection: &mut Connection) {
        let mut changed = std::mem::take(&mut self.changed);
        for change in changed.drain(..) {
            match change {
                Changed::Outbox(id) => self.serve_outbox(id, connection),
                Changed::Inbox(id) => {
                    self.move_in(now, id, INBOX_BYTES_MAX, connection);
                    self.news.push_back(Event::Readable(id));
                }
            }
        }
        // Nothing is changed by serving; the memory is used again.
        self.changed = changed;
    }

    /// Gives the connection as much of a stream as it takes.
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
        // A writer is woken for a worthwhile amount: when half of it is free or more.
        if outbox.has_writer && outbox.bytes <= OUTBOX_BYTES_MAX / 2 {
            outbox.has_writer = false;
            self.news.push_back(Event::Writable(id));
        }
        if outbox.is_finished && outbox.chunks.is_empty() {
            self.outboxes.remove(&id);
            // One that is over has ended otherwise.
            let _is_open = connection.finish(id);
        }
    }

    /// Moves what has arrived on a stream into its inbox, until that holds so many bytes.
    fn move_in(&mut self, now: Instant, id: StreamId, bytes_max: usize, connection: &mut Connection) {
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

/// A connection behind cells.
pub(crate) struct Handles<'a> {
    cells: &'a mut Cells,
    connection: &'a mut Connection,
}

impl Handles<'_> {
    /// Changes an outbox, which the host will look at.
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
        // What has no inbox is ours, and nothing has arrived on it.
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

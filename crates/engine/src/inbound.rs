//! What has arrived, on its way from the protocol to the application: readers of streams, messages being put together.
//!
//! It goes where the receive half of its connection goes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Waker;

use bytes::Bytes;
use quic::{Chunk, Connection, Dir, ReadError, ReceivePart, StreamId};
use units::Instant;

use crate::cells::connection::{ACCEPTED_MAX, DATAGRAMS_IN_BYTES_MAX};
use crate::cells::recv::RecvEnd;
use crate::cells::{ConnectionCell, Interest, MessageMode, RecvCell, SendCell, StreamCells};
use crate::error::Closed;
use crate::messages::Incoming;
use crate::receive::COMPACT_BELOW;

/// Bytes taken from a stream in one call; chunks are references, so more would only mean less often.
pub(crate) const READ_LEN_MAX: usize = 64 << 10;

/// Where it comes from: a connection, or its receive half on a processor of its own.
pub(crate) trait Source {
    fn accept(&mut self, dir: Dir) -> Option<StreamId>;
    fn read(&mut self, now: Instant, id: StreamId, len: usize) -> Result<Chunk, ReadError>;
    fn stop(&mut self, now: Instant, id: StreamId, code: u64) -> Result<(), ReadError>;
    fn recv_datagram(&mut self) -> Option<Bytes>;
}

macro_rules! source {
    ($kind:ty) => {
        impl Source for $kind {
            fn accept(&mut self, dir: Dir) -> Option<StreamId> {
                <$kind>::accept(self, dir)
            }

            fn read(&mut self, now: Instant, id: StreamId, len: usize) -> Result<Chunk, ReadError> {
                <$kind>::read(self, now, id, len)
            }

            fn stop(&mut self, now: Instant, id: StreamId, code: u64) -> Result<(), ReadError> {
                <$kind>::stop(self, now, id, code)
            }

            fn recv_datagram(&mut self) -> Option<Bytes> {
                <$kind>::recv_datagram(self)
            }
        }
    };
}

source!(Connection);
source!(ReceivePart);

/// One connection's.
pub(crate) struct Inbound {
    pub(crate) cell: Arc<ConnectionCell>,
    readers: BTreeMap<StreamId, Arc<RecvCell>>,
    messages: Incoming,
    /// Streams of the peer whose sending side is ours, made since they were last [taken](Self::take_accepted).
    accepted: Vec<StreamCells>,
    /// Streams that have brought something for somebody who waits, since readers were last [woken](Self::wake_readers). Their wakers
    /// stay where they are until then: if this processor hangs in between, whoever ends the streams finds them there.
    brought: Vec<Arc<RecvCell>>,
}

impl Inbound {
    pub(crate) fn new(cell: Arc<ConnectionCell>) -> Self {
        let messages = Incoming::new(cell.shared.limits.message_len_max);
        Self { cell, readers: BTreeMap::new(), messages, accepted: Vec::new(), brought: Vec::new() }
    }

    /// A stream of ours that the peer may answer on.
    pub(crate) fn add_reader(&mut self, cell: Arc<RecvCell>) {
        self.readers.insert(cell.id, cell);
    }

    /// Streams that are read.
    pub(crate) fn readers(&self) -> impl Iterator<Item = &Arc<RecvCell>> {
        self.readers.values()
    }

    /// Who reads a stream.
    pub(crate) fn reader(&self, id: StreamId) -> Option<Arc<RecvCell>> {
        self.readers.get(&id).cloned()
    }

    /// The peer's streams that are new: they are for whoever serves their sending sides, and then for the application.
    pub(crate) fn take_accepted(&mut self) -> Vec<StreamCells> {
        std::mem::take(&mut self.accepted)
    }

    /// Whether there is something to [take](Self::take_accepted).
    pub(crate) fn has_accepted(&self) -> bool {
        !self.accepted.is_empty()
    }

    /// Wakes those who read streams that something was brought to. To be called after whatever brings something, soon: a reader
    /// that runs on this very processor takes it over when it is woken, so it is worth waking for more than one batch.
    pub(crate) fn wake_readers(&mut self) {
        // Who came first first; if a waker panics those after it are still there.
        self.brought.reverse();
        let mut last: Option<Waker> = None;
        while let Some(cell) = self.brought.pop() {
            let waker = cell.lock().take_waker();
            // One that reads several streams is woken once.
            if let Some(waker) = waker
                && !last.as_ref().is_some_and(|last| last.will_wake(&waker))
            {
                waker.wake_by_ref();
                last = Some(waker);
            }
        }
    }

    /// Brings what there is for the application, as far as it wants it.
    pub(crate) fn serve(&mut self, now: Instant, source: &mut impl Source) {
        let mode = self.cell.lock().mode;
        self.accept_streams(now, Dir::Bi, mode, source);
        self.accept_streams(now, Dir::Uni, mode, source);
        if mode == MessageMode::Messages {
            self.messages.serve(now, source, &self.cell, false);
        }
        self.serve_datagrams(source);
    }

    /// The peer has opened streams.
    pub(crate) fn on_opened(&mut self, now: Instant, dir: Dir, source: &mut impl Source) {
        let mode = self.cell.lock().mode;
        self.accept_streams(now, dir, mode, source);
        if mode == MessageMode::Messages {
            self.messages.on_opened(now, source, &self.cell);
        }
    }

    /// Something has arrived on a stream.
    pub(crate) fn on_readable(&mut self, now: Instant, id: StreamId, source: &mut impl Source) {
        match self.reader(id) {
            Some(cell) => self.serve_reader(now, &cell, source),
            None => self.messages.on_readable(now, id, source, &self.cell),
        }
    }

    /// Takes the peer's streams, as many as may wait for the application.
    fn accept_streams(&mut self, now: Instant, dir: Dir, mode: MessageMode, source: &mut impl Source) {
        if dir == Dir::Uni && mode != MessageMode::Streams {
            return;
        }
        // Looked at each time, because the application takes streams meanwhile.
        while self.has_room_for(dir)
            && let Some(id) = source.accept(dir)
        {
            self.accept_stream(now, id, source);
        }
    }

    /// Whether the application may be given another stream. If not it asks again once it has taken some.
    fn has_room_for(&self, dir: Dir) -> bool {
        let new = self.accepted.iter().filter(|cells| cells.id().is_some_and(|id| id.dir() == dir)).count();
        let mut state = self.cell.lock();
        let has_room = state.accepted[dir.index()].len() + new < ACCEPTED_MAX;
        state.accept_paused[dir.index()] |= !has_room;
        has_room
    }

    fn accept_stream(&mut self, now: Instant, id: StreamId, source: &mut impl Source) {
        let cells = cells_for(&self.cell, id);
        if let Some(recv) = &cells.recv {
            self.add_reader(Arc::clone(recv));
            self.serve_reader(now, recv, source);
        }
        self.accepted.push(cells);
    }

    /// Moves what has arrived into the inbox. Who waits for it is woken by [`wake_readers`](Self::wake_readers).
    pub(crate) fn serve_reader(&mut self, now: Instant, cell: &Arc<RecvCell>, source: &mut impl Source) {
        self.move_in(now, cell, false, source);
    }

    /// As [`serve_reader`](Self::serve_reader); `everything` takes no heed of the inbox's bound.
    fn move_in(&mut self, now: Instant, cell: &Arc<RecvCell>, everything: bool, source: &mut impl Source) {
        let id = cell.id;
        let mut over = false;
        let is_awaited = {
            let mut inbox = cell.lock();
            inbox.begin_service();
            if let Some(code) = inbox.take_stop() {
                let _over = source.stop(now, id, code);
                over = true;
            }
            while !inbox.is_over() && (cell.wants_more(&mut inbox) || everything) {
                match source.read(now, id, READ_LEN_MAX) {
                    Ok(Chunk::Bytes(strip)) => inbox.push(strip.compacted(COMPACT_BELOW)),
                    Ok(Chunk::End) => inbox.set_end(RecvEnd::Finished),
                    Err(ReadError::Reset(code)) => inbox.set_end(RecvEnd::Reset(code)),
                    Err(ReadError::Blocked) => break,
                    Err(ReadError::Closed) => inbox.set_end(RecvEnd::Stopped),
                }
            }
            over |= inbox.is_over();
            inbox.is_awaited()
        };
        if over {
            self.readers.remove(&id);
        }
        if is_awaited && !self.brought.last().is_some_and(|last| Arc::ptr_eq(last, cell)) {
            self.brought.push(Arc::clone(cell));
        }
    }

    /// Moves datagrams to the application; what finds no room stays with the connection.
    pub(crate) fn serve_datagrams(&mut self, source: &mut impl Source) {
        let wakers = {
            let mut state = self.cell.lock();
            let before = state.datagrams.len();
            while state.datagrams_bytes < DATAGRAMS_IN_BYTES_MAX
                && let Some(datagram) = source.recv_datagram()
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

    /// The connection is over: what has arrived goes to the application without heed of bounds, which flow control has bounded.
    pub(crate) fn bring_all(&mut self, now: Instant, source: &mut impl Source) {
        let mode = self.cell.lock().mode;
        for dir in Dir::ALL {
            if dir == Dir::Uni && mode == MessageMode::Messages {
                self.messages.serve(now, source, &self.cell, true);
                continue;
            }
            while let Some(id) = source.accept(dir) {
                self.accept_stream(now, id, source);
            }
        }
        let readers: Vec<_> = self.readers.values().cloned().collect();
        for cell in readers {
            self.move_in(now, &cell, true, source);
        }
        self.serve_datagrams(source);
    }

    /// Tells everybody who reads that nothing more will come.
    pub(crate) fn end(&mut self, closed: &Closed) {
        for cell in std::mem::take(&mut self.readers).into_values() {
            cell.end(RecvEnd::Closed(closed.clone()));
        }
        self.messages.clear();
        self.wake_readers();
    }
}

/// The cells of a stream of this connection.
pub(crate) fn cells_for(connection: &ConnectionCell, id: StreamId) -> StreamCells {
    let limits = connection.shared.limits;
    let ours = id.initiator() == connection.side;
    let bi = id.dir() == Dir::Bi;
    StreamCells {
        send: (bi || ours).then(|| Arc::new(SendCell::new(id, limits.outbox_bytes_max))),
        recv: (bi || !ours).then(|| Arc::new(RecvCell::new(id, limits.inbox_bytes_max))),
    }
}

#[cfg(test)]
mod tests;

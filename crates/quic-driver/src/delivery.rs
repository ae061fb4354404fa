//! [`Delivery`]: moves received data from the protocol to the cells of the application.
//!
//! Each connection has one delivery. When its receive half is detached, the delivery moves to the
//! other processor with it.

use std::collections::BTreeMap;
use std::sync::Arc;

use quic::{Chunk, Connection, DetachedReceiveHalf, Dir, ReadError, ReceivedDatagram, StreamId};
use units::Instant;

use crate::cells::connection::{ACCEPTED_MAX, ConnectionCell, DATAGRAMS_IN_BYTES_MAX, Interest, MessageMode};
use crate::cells::recv::{RecvCell, RecvEnd};
use crate::cells::send::SendCell;
use crate::cells::stream::StreamCells;
use crate::error::Closed;
use crate::messages::IncomingMessages;

/// Bytes read from a stream in one call. Chunks are references, so a larger value saves only calls.
pub(crate) const READ_LEN_MAX: usize = 64 << 10;

/// The source of received data: a connection, or its detached receive half.
pub(crate) trait DataSource {
    fn accept(&mut self, dir: Dir) -> Option<StreamId>;
    fn read(&mut self, now: Instant, id: StreamId, len: usize) -> Result<Chunk, ReadError>;
    fn stop(&mut self, now: Instant, id: StreamId, code: u64) -> Result<(), ReadError>;
    fn recv_datagram(&mut self) -> Option<ReceivedDatagram>;
}

macro_rules! source {
    ($kind:ty) => {
        impl DataSource for $kind {
            fn accept(&mut self, dir: Dir) -> Option<StreamId> {
                <$kind>::accept(self, dir)
            }

            fn read(&mut self, now: Instant, id: StreamId, len: usize) -> Result<Chunk, ReadError> {
                <$kind>::read(self, now, id, len)
            }

            fn stop(&mut self, now: Instant, id: StreamId, code: u64) -> Result<(), ReadError> {
                <$kind>::stop(self, now, id, code)
            }

            fn recv_datagram(&mut self) -> Option<ReceivedDatagram> {
                <$kind>::recv_datagram_with_path(self)
            }
        }
    };
}

source!(Connection);
source!(DetachedReceiveHalf);

/// The delivery of one connection.
pub(crate) struct Delivery {
    pub(crate) cell: Arc<ConnectionCell>,
    readers: BTreeMap<StreamId, Arc<RecvCell>>,
    messages: IncomingMessages,
    /// New streams of the peer, held until they are [taken](Self::take_accepted).
    accepted: Vec<StreamCells>,
    /// Streams with new data whose readers wait, held until they are [woken](Self::wake_readers).
    /// The wakers stay in the cells until then. If this processor hangs before that, the driver
    /// ends the streams and finds the wakers there.
    to_wake: Vec<Arc<RecvCell>>,
}

impl Delivery {
    pub(crate) fn new(cell: Arc<ConnectionCell>) -> Self {
        let messages = IncomingMessages::new(cell.shared.limits.message_len_max);
        Self { cell, readers: BTreeMap::new(), messages, accepted: Vec::new(), to_wake: Vec::new() }
    }

    /// Adds a locally opened bidirectional stream.
    pub(crate) fn add_reader(&mut self, cell: Arc<RecvCell>) {
        self.readers.insert(cell.id, cell);
    }

    /// Returns the receiving sides of all streams.
    pub(crate) fn readers(&self) -> impl Iterator<Item = &Arc<RecvCell>> {
        self.readers.values()
    }

    /// Takes the peer's new streams. The connection adds their sending sides to its own and then
    /// makes them available to the application.
    pub(crate) fn take_accepted(&mut self) -> Vec<StreamCells> {
        std::mem::take(&mut self.accepted)
    }

    /// Returns whether there are new streams to [take](Self::take_accepted).
    pub(crate) fn has_accepted(&self) -> bool {
        !self.accepted.is_empty()
    }

    /// Wakes the readers of streams with new data. Called some time after each delivery, not at
    /// once: a reader that runs on this processor preempts this thread when it is woken, so one
    /// wake-up should cover several batches.
    pub(crate) fn wake_readers(&mut self) {
        // Wake in the order of arrival. If a waker panics, those after it remain in the list.
        self.to_wake.reverse();
        while let Some(cell) = self.to_wake.pop() {
            let Some(waker) = cell.lock().take_waker() else { continue };
            // A task that reads several streams is woken once. It may run while it is being woken
            // and register again, so only wakers registered before that are omitted.
            while self.to_wake.pop_if(|next| next.lock().take_waker_of(&waker)).is_some() {}
            waker.wake();
        }
    }

    /// Delivers as much as the application's queues have space for.
    pub(crate) fn serve(&mut self, now: Instant, source: &mut impl DataSource) {
        let mode = self.cell.lock().mode;
        self.accept_streams(now, Dir::Bi, mode, source);
        self.accept_streams(now, Dir::Uni, mode, source);
        if mode == MessageMode::Messages {
            self.messages.serve(now, source, &self.cell, false);
        }
        self.serve_datagrams(source);
    }

    /// Accepts newly opened streams of the peer.
    pub(crate) fn on_opened(&mut self, now: Instant, dir: Dir, source: &mut impl DataSource) {
        let mode = self.cell.lock().mode;
        self.accept_streams(now, dir, mode, source);
        if mode == MessageMode::Messages {
            self.messages.on_opened(now, source, &self.cell);
        }
    }

    /// Delivers data received on a stream.
    pub(crate) fn on_readable(&mut self, now: Instant, id: StreamId, source: &mut impl DataSource) {
        let Some(cell) = self.readers.get(&id) else {
            return self.messages.on_readable(now, id, source, &self.cell);
        };
        // `serve_reader` is not used here: the reader stays in the table, so its reference count is
        // not changed.
        let filled = fill_inbox(now, cell, false, self.compact_below(), source);
        if filled.is_awaited {
            queue_wake(&mut self.to_wake, cell);
        }
        if filled.is_over {
            self.readers.remove(&id);
        }
    }

    /// Accepts the peer's streams, up to the number that may wait for the application.
    fn accept_streams(&mut self, now: Instant, dir: Dir, mode: MessageMode, source: &mut impl DataSource) {
        if dir == Dir::Uni && mode != MessageMode::Streams {
            return;
        }
        // The limit is checked for each stream, because the application takes streams concurrently.
        while self.can_accept(dir)
            && let Some(id) = source.accept(dir)
        {
            self.accept_stream(now, id, source);
        }
    }

    /// Returns whether another stream may wait for the application. If not, the application
    /// requests more after it has taken some.
    fn can_accept(&self, dir: Dir) -> bool {
        let new = self.accepted.iter().filter(|cells| cells.id().is_some_and(|id| id.dir() == dir)).count();
        let mut state = self.cell.lock();
        let has_space = state.accepted[dir.index()].len() + new < ACCEPTED_MAX;
        state.accept_paused[dir.index()] |= !has_space;
        has_space
    }

    fn accept_stream(&mut self, now: Instant, id: StreamId, source: &mut impl DataSource) {
        let cells = cells_for(&self.cell, id);
        if let Some(recv) = &cells.recv {
            self.add_reader(Arc::clone(recv));
            self.serve_reader(now, recv, source);
        }
        self.accepted.push(cells);
    }

    /// Moves received bytes into the inbox. [`wake_readers`](Self::wake_readers) wakes a waiting
    /// reader.
    pub(crate) fn serve_reader(&mut self, now: Instant, cell: &Arc<RecvCell>, source: &mut impl DataSource) {
        self.fill_inbox(now, cell, false, source);
    }

    /// Fills an inbox like [`serve_reader`](Self::serve_reader). If `everything`, the limit of the
    /// inbox is ignored.
    fn fill_inbox(&mut self, now: Instant, cell: &Arc<RecvCell>, everything: bool, source: &mut impl DataSource) {
        let filled = fill_inbox(now, cell, everything, self.compact_below(), source);
        if filled.is_awaited {
            queue_wake(&mut self.to_wake, cell);
        }
        if filled.is_over {
            self.readers.remove(&cell.id);
        }
    }

    /// Returns the length in bytes below which chunks are copied together.
    fn compact_below(&self) -> usize {
        self.cell.shared.limits.compact_below
    }

    /// Moves datagrams to the application's queue. Datagrams that exceed its limit stay in the
    /// connection.
    pub(crate) fn serve_datagrams(&mut self, source: &mut impl DataSource) {
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

    /// Delivers everything when the connection is closed. The limits of the queues are ignored,
    /// because flow control has bounded the data.
    pub(crate) fn deliver_all(&mut self, now: Instant, source: &mut impl DataSource) {
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
            self.fill_inbox(now, &cell, true, source);
        }
        self.serve_datagrams(source);
    }

    /// Ends the readers of all streams, whose 0-RTT was rejected.
    pub(crate) fn reject_early(&mut self) {
        for cell in std::mem::take(&mut self.readers).into_values() {
            cell.reject_early();
        }
    }

    /// Ends all readers because the connection is closed.
    pub(crate) fn end(&mut self, closed: &Closed) {
        for cell in std::mem::take(&mut self.readers).into_values() {
            cell.end(RecvEnd::Closed(closed.clone()));
        }
        self.messages.clear();
        self.wake_readers();
    }
}

/// The state of an inbox after it was filled.
struct Filled {
    /// Whether the stream has ended: nothing more will be received.
    is_over: bool,
    /// Whether a reader waits for bytes.
    is_awaited: bool,
}

/// Moves received bytes into the inbox of a stream. If `everything`, its limit is ignored.
fn fill_inbox(
    now: Instant,
    cell: &RecvCell,
    everything: bool,
    compact_below: usize,
    source: &mut impl DataSource,
) -> Filled {
    let id = cell.id;
    let mut inbox = cell.lock();
    inbox.begin_service();
    let mut is_over = false;
    if let Some(code) = inbox.take_stop() {
        let _ended = source.stop(now, id, code);
        is_over = true;
    }
    while !inbox.is_over() && (cell.wants_more(&mut inbox) || everything) {
        match source.read(now, id, READ_LEN_MAX) {
            Ok(Chunk::Bytes(chunk)) => inbox.push(chunk.compacted(compact_below)),
            Ok(Chunk::End) => inbox.set_end(RecvEnd::Finished),
            Err(ReadError::Reset(code)) => inbox.set_end(RecvEnd::Reset(code)),
            Err(ReadError::Blocked) => break,
            Err(_) => inbox.set_end(RecvEnd::Stopped),
        }
    }
    Filled { is_over: is_over || inbox.is_over(), is_awaited: inbox.is_awaited() }
}

/// Adds a stream to those whose readers are woken, unless it was the last one added.
fn queue_wake(to_wake: &mut Vec<Arc<RecvCell>>, cell: &Arc<RecvCell>) {
    if !to_wake.last().is_some_and(|last| Arc::ptr_eq(last, cell)) {
        to_wake.push(Arc::clone(cell));
    }
}

/// Creates the cells of a stream of this connection.
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

//! Messages: each is sent on a unidirectional stream of its own, and received completely or not at
//! all.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use bytes::{Bytes, BytesMut};
use quic::{Chunk, Connection, Dir, ReadError, StreamId, StridedBytes, WriteError};
use units::Instant;

use crate::application::COMPACT_BELOW;
use crate::cells::connection::{ConnectionCell, Interest, MESSAGES_IN_BYTES_MAX};
use crate::cells::message_queue::{MESSAGE_OVERHEAD, OutgoingMessage, QueueKind};
use crate::delivery::{DataSource, READ_LEN_MAX};

/// Maximum number of partially received messages. Each may hold `message_len_max` bytes; further
/// streams are deferred. A message without received bytes does not count: its stream may have been
/// opened implicitly by a later one (RFC 9000, section 3.2), and it may never be sent.
const PARTIAL_MESSAGES_MAX: usize = 64;

/// Bytes in flight, beyond twice the congestion window, up to which further messages are begun, so
/// that the window never runs empty before the next message is begun. Other messages wait in a
/// queue that is ordered by priority. Messages in flight share the connection in turn, and the
/// receiver assembles only [`PARTIAL_MESSAGES_MAX`] of them at a time, regardless of their
/// priority.
const IN_FLIGHT_BYTES_SPARE: u64 = 64 << 10;

/// STOP_SENDING code for a message that is too long.
pub(crate) const MESSAGE_TOO_LONG: u64 = 1;

/// Maximum number of in-flight messages with a rate limit, a set of paths or background class. They
/// may be blocked without a time limit, and each occupies a stream and a partial message at the
/// receiver, so most of both are reserved for other messages.
const RESTRICTED_MAX: usize = 16;

/// Streams reserved for messages that are more urgent than some in flight, and for messages of the
/// other queue. Without the reserve, many small messages would take all permitted streams, and an
/// urgent message would wait for the peer's next MAX_STREAMS. The reserve is at most a quarter of
/// the permitted streams.
const STREAMS_RESERVED: u64 = 16;

/// The outgoing messages of a connection.
#[derive(Default)]
pub(crate) struct OutgoingMessages {
    queues: [InFlightMessages; 2],
}

/// Messages of one queue that have a stream and are not acknowledged by the peer.
#[derive(Default)]
struct InFlightMessages {
    in_flight: BTreeMap<StreamId, InFlightMessage>,
    /// Messages that the connection has not taken completely, the most urgent first.
    unwritten: BTreeSet<(Reverse<i32>, StreamId)>,
    /// Bytes in flight by priority.
    bytes_by_priority: BTreeMap<i32, u64>,
    /// Bytes in flight.
    bytes: u64,
    /// Whether queued messages wait for acknowledgements of others.
    awaits_acknowledgements: bool,
}

/// The incoming messages of a connection.
pub(crate) struct IncomingMessages {
    len_max: usize,
    /// All incomplete messages. The peer's stream limit bounds the number of those without bytes.
    receiving: BTreeMap<StreamId, PartialMessage>,
    /// Number of messages with some bytes, at most [`PARTIAL_MESSAGES_MAX`].
    partial_count: usize,
    /// Readable streams that wait until there are fewer partial messages. They are a subset of
    /// `receiving`.
    deferred: BTreeSet<StreamId>,
    /// Whether the application's queue is full.
    paused: bool,
}

struct InFlightMessage {
    rest: Bytes,
    /// Its share of the bytes in flight.
    cost: u64,
    priority: i32,
}

#[derive(Default)]
struct PartialMessage {
    chunks: Vec<StridedBytes>,
    len: usize,
}

impl OutgoingMessages {
    /// Moves queued messages to streams, up to the limits of the peer and the send buffer.
    pub(crate) fn serve(&mut self, connection: &mut Connection, cell: &ConnectionCell) {
        for kind in QueueKind::ALL {
            let in_flight_count: usize = self.queues.iter().map(|queue| queue.in_flight.len()).sum();
            self.queues[kind.index()].serve(kind, in_flight_count, connection, cell);
        }
    }

    /// Handles the end of a message's stream: acknowledged, reset or stopped. Begins other messages
    /// if possible.
    pub(crate) fn on_send_end(&mut self, id: StreamId, connection: &mut Connection, cell: &ConnectionCell) {
        if !self.queues.iter_mut().any(|queue| queue.remove(id)) {
            return;
        }
        if self.queues.iter().any(|queue| queue.awaits_acknowledgements) {
            self.serve(connection, cell);
        }
        let wakers = {
            let mut state = cell.lock();
            state.messages_in_flight -= 1;
            let flushed = state.messages_in_flight == 0 && state.messages_out.is_empty();
            if flushed { state.take_wakers(Interest::MessagesFlushed) } else { Default::default() }
        };
        wakers.wake();
    }

    pub(crate) fn clear(&mut self) {
        self.queues = Default::default();
    }
}

impl InFlightMessages {
    /// Begins messages of this queue. `in_flight_count` is the number of messages in flight of both
    /// queues.
    fn serve(&mut self, kind: QueueKind, in_flight_count: usize, connection: &mut Connection, cell: &ConnectionCell) {
        self.awaits_acknowledgements = false;
        let streams_max = connection.streams_left(Dir::Uni).saturating_add(in_flight_count as u64);
        let bytes_max = connection.window_bytes().saturating_mul(2).saturating_add(IN_FLIGHT_BYTES_SPARE);
        let mut blocked = self.write_blocked(kind, connection);
        loop {
            let next = cell.lock().messages_out.priority(kind);
            // Few messages are blocked by the send buffer at a time: a message is begun only if
            // none of the same or a higher priority is blocked.
            let Some(next) = next.filter(|next| blocked.is_none_or(|blocked| *next > blocked)) else { break };
            let left = connection.streams_left(Dir::Uni);
            if !self.may_begin(kind, next, bytes_max) || (left > 0 && !self.may_open(kind, next, left, streams_max)) {
                self.awaits_acknowledgements = true;
                break;
            }
            let Some(id) = connection.open(Dir::Uni) else { break };
            let wakers = {
                let mut state = cell.lock();
                let Some(OutgoingMessage { bytes: rest, class }) = state.messages_out.pop(kind) else { break };
                state.messages_in_flight += 1;
                // Cannot fail: the stream was opened just now.
                let _open = connection.set_class(id, &class);
                self.insert(id, rest, class.priority);
                let has_space = state.messages_out.is_half_free(kind);
                if has_space { state.take_wakers(Interest::MessageSpace) } else { Default::default() }
            };
            wakers.wake();
            if !self.write_rest(id, connection) && kind == QueueKind::Unrestricted {
                blocked = Some(next);
            }
        }
    }

    /// Writes more of the messages that were blocked. Returns the highest priority that is still
    /// blocked if it blocks other messages too: unrestricted messages wait for the same send
    /// buffer, restricted messages wait independently.
    fn write_blocked(&mut self, kind: QueueKind, connection: &mut Connection) -> Option<i32> {
        // There are few: one of each priority, or at most [`RESTRICTED_MAX`].
        let unwritten: Vec<(Reverse<i32>, StreamId)> = self.unwritten.iter().copied().collect();
        for (priority, id) in unwritten {
            if !self.write_rest(id, connection) && kind == QueueKind::Unrestricted {
                return Some(priority.0);
            }
        }
        None
    }

    /// Returns whether a message of this priority may be begun: not while messages of at least this
    /// priority have `bytes_max` bytes in flight.
    fn may_begin(&self, kind: QueueKind, priority: i32, bytes_max: u64) -> bool {
        if kind == QueueKind::Restricted && self.in_flight.len() >= RESTRICTED_MAX {
            return false;
        }
        self.bytes < bytes_max
            || self.bytes_by_priority.range(priority..).map(|(_, bytes)| bytes).sum::<u64>() < bytes_max
    }

    /// Returns whether a message of this priority may use one of the `left` streams. `streams_max`
    /// is the number of streams that the peer permits at a time.
    fn may_open(&self, kind: QueueKind, priority: i32, left: u64, streams_max: u64) -> bool {
        let has_share = kind == QueueKind::Unrestricted || (self.in_flight.len() as u64) < streams_max / 2;
        if has_share && left > STREAMS_RESERVED.min(streams_max / 4) {
            return true;
        }
        let least_urgent = self.bytes_by_priority.first_key_value().map(|(least, _)| *least);
        // If no message of this queue is in flight, no acknowledgement would trigger another
        // attempt.
        least_urgent.is_none_or(|least| kind == QueueKind::Unrestricted && priority > least)
    }

    fn insert(&mut self, id: StreamId, rest: Bytes, priority: i32) {
        let cost = (rest.len() + MESSAGE_OVERHEAD) as u64;
        self.bytes += cost;
        *self.bytes_by_priority.entry(priority).or_default() += cost;
        self.unwritten.insert((Reverse(priority), id));
        self.in_flight.insert(id, InFlightMessage { rest, cost, priority });
    }

    /// Removes a message. Returns false if it is unknown.
    fn remove(&mut self, id: StreamId) -> bool {
        let Some(InFlightMessage { cost, priority, .. }) = self.in_flight.remove(&id) else { return false };
        self.unwritten.remove(&(Reverse(priority), id));
        self.bytes -= cost;
        if let Some(bytes) = self.bytes_by_priority.get_mut(&priority) {
            *bytes -= cost;
            if *bytes == 0 {
                self.bytes_by_priority.remove(&priority);
            }
        }
        true
    }

    /// Writes the rest of a message to its stream. Returns false if the send buffer is full.
    fn write_rest(&mut self, id: StreamId, connection: &mut Connection) -> bool {
        let Some(InFlightMessage { rest, priority, .. }) = self.in_flight.get_mut(&id) else { return true };
        let is_whole = match connection.write_some(id, rest) {
            Ok(()) => true,
            Err(WriteError::Blocked) => return false,
            // The event for the end of the stream removes the message.
            Err(_) => false,
        };
        self.unwritten.remove(&(Reverse(*priority), id));
        if is_whole {
            let _ended = connection.finish(id);
        }
        true
    }
}

impl IncomingMessages {
    pub(crate) fn new(len_max: usize) -> Self {
        Self { len_max, receiving: BTreeMap::new(), partial_count: 0, deferred: BTreeSet::new(), paused: false }
    }

    /// Reads all incomplete messages and accepts new streams. If `everything`, all limits are
    /// ignored, because the connection is closed.
    pub(crate) fn serve(
        &mut self,
        now: Instant,
        source: &mut impl DataSource,
        cell: &ConnectionCell,
        everything: bool,
    ) {
        self.paused = !everything && cell.lock().messages_bytes >= MESSAGES_IN_BYTES_MAX;
        if self.paused {
            return;
        }
        let begun: Vec<StreamId> = self.receiving.keys().copied().collect();
        for id in begun {
            if everything || self.may_read(id) {
                self.read(now, id, source, cell);
            }
        }
        self.read_more(now, source, cell, everything);
    }

    /// Accepts newly opened streams of the peer.
    pub(crate) fn on_opened(&mut self, now: Instant, source: &mut impl DataSource, cell: &ConnectionCell) {
        if self.paused {
            // Incomplete messages were not read while paused.
            return self.serve(now, source, cell, false);
        }
        self.read_more(now, source, cell, false);
    }

    /// Reads more received bytes of a message.
    pub(crate) fn on_readable(
        &mut self,
        now: Instant,
        id: StreamId,
        source: &mut impl DataSource,
        cell: &ConnectionCell,
    ) {
        if self.paused || !self.receiving.contains_key(&id) || !self.may_read(id) {
            return;
        }
        let full = self.is_full();
        self.read(now, id, source, cell);
        if full && !self.is_full() {
            self.read_more(now, source, cell, false);
        }
    }

    /// Reads deferred streams and accepts new ones, until there are too many partial messages.
    fn read_more(&mut self, now: Instant, source: &mut impl DataSource, cell: &ConnectionCell, everything: bool) {
        while (everything || !self.is_full())
            && let Some(id) = self.deferred.pop_first()
        {
            self.read(now, id, source, cell);
        }
        self.paused = !everything && cell.lock().messages_bytes >= MESSAGES_IN_BYTES_MAX;
        while (everything || (!self.paused && !self.is_full()))
            && let Some(id) = source.accept(Dir::Uni)
        {
            self.receiving.insert(id, PartialMessage::default());
            self.read(now, id, source, cell);
            self.paused = !everything && cell.lock().messages_bytes >= MESSAGES_IN_BYTES_MAX;
        }
    }

    fn is_full(&self) -> bool {
        self.partial_count >= PARTIAL_MESSAGES_MAX
    }

    fn has_some(&self, id: StreamId) -> bool {
        self.receiving.get(&id).is_some_and(|partial| partial.len > 0)
    }

    /// Returns whether `id` may be read now. Defers it otherwise.
    fn may_read(&mut self, id: StreamId) -> bool {
        let may = self.has_some(id) || !self.is_full();
        if !may {
            self.deferred.insert(id);
        }
        may
    }

    fn read(&mut self, now: Instant, id: StreamId, source: &mut impl DataSource, cell: &ConnectionCell) {
        self.deferred.remove(&id);
        let had_some = self.has_some(id);
        self.read_on(now, id, source, cell);
        self.partial_count = self.partial_count + usize::from(self.has_some(id)) - usize::from(had_some);
    }

    fn read_on(&mut self, now: Instant, id: StreamId, source: &mut impl DataSource, cell: &ConnectionCell) {
        let Some(partial) = self.receiving.get_mut(&id) else { return };
        loop {
            match source.read(now, id, READ_LEN_MAX) {
                Ok(Chunk::Bytes(chunk)) => {
                    partial.len += chunk.len();
                    if partial.len > self.len_max {
                        tracing::debug!(%id, len_max = self.len_max, "refused a message that is too long");
                        let _ended = source.stop(now, id, MESSAGE_TOO_LONG);
                        self.receiving.remove(&id);
                        return;
                    }
                    partial.chunks.push(chunk.compacted(COMPACT_BELOW));
                }
                Ok(Chunk::End) => break,
                Err(ReadError::Blocked) => return,
                // The peer reset the stream: a partial message is dropped.
                Err(_) => {
                    self.receiving.remove(&id);
                    return;
                }
            }
        }
        let partial = self.receiving.remove(&id).unwrap_or_default();
        let message = join(partial.chunks.iter(), partial.len);
        let wakers = {
            let mut state = cell.lock();
            state.messages_bytes += message.len() + MESSAGE_OVERHEAD;
            state.messages.push_back(message);
            state.take_wakers(Interest::Message)
        };
        wakers.wake();
    }

    pub(crate) fn clear(&mut self) {
        self.receiving.clear();
        self.deferred.clear();
        self.partial_count = 0;
    }
}

/// Joins chunks into one. Copies only if there are several.
pub(crate) fn join<'a>(mut chunks: impl ExactSizeIterator<Item = &'a StridedBytes>, len: usize) -> Bytes {
    if chunks.len() <= 1 {
        return chunks.next().map_or_else(Bytes::new, StridedBytes::to_bytes);
    }
    let mut whole = BytesMut::with_capacity(len);
    for piece in chunks.flat_map(StridedBytes::pieces) {
        whole.extend_from_slice(piece);
    }
    whole.freeze()
}

#[cfg(test)]
mod tests;

//! Messages: each on a unidirectional stream of its own, whole or not at all.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use bytes::{Bytes, BytesMut};
use quic::{Chunk, Connection, Dir, ReadError, StreamId, Strip, WriteError};
use units::Instant;

use crate::cells::connection::{MESSAGE_OVERHEAD, MESSAGES_IN_BYTES_MAX};
use crate::cells::{ConnectionCell, Interest, Lane, OutMessage};
use crate::inbound::{READ_LEN_MAX, Source};
use crate::receive::COMPACT_BELOW;

/// Messages that are put together at a time. Each may take `message_len_max` bytes; more streams wait their turn. One of which
/// nothing has come takes no part in it: its stream may have been opened by a later one's, and it may never come.
const ASSEMBLIES_MAX: usize = 64;

/// Bytes of messages on their way, beyond twice what congestion control lets be in flight: enough that no window runs dry
/// before the next ones are begun. Those that wait beyond leave by their priority; those that were begun take turns, and the
/// receiver puts only [`ASSEMBLIES_MAX`] of them together at a time, whatever their priority.
const BEGUN_BYTES_SPARE: u64 = 64 << 10;

/// The code for the peer whose message is longer than we take, in STOP_SENDING.
pub(crate) const MESSAGE_TOO_LONG: u64 = 1;

/// Messages under way that a rate, their paths or the background may hold back, at a time. They may wait for ever, each with a
/// stream of its own and with a part of it at the receiver, so they leave most of both to the others.
const RESTRAINED_MAX: usize = 16;

/// Streams that the peer allows and that are kept for messages more urgent than some under way, and for those of the other lane:
/// otherwise a heap of small ones would take all, and an urgent one wait until the peer has told of more. At most a quarter of
/// those there are.
const STREAMS_KEPT: u64 = 16;

/// A connection's messages on their way out.
#[derive(Default)]
pub(crate) struct Outgoing {
    lanes: [Begun; 2],
}

/// The messages of one lane that have a stream and that the peer has not acknowledged.
#[derive(Default)]
struct Begun {
    sending: BTreeMap<StreamId, Sending>,
    /// Those of which the connection has not taken all, the most urgent first.
    waiting: BTreeSet<(Reverse<i32>, StreamId)>,
    /// What they count for, by priority, and together.
    bytes_by_priority: BTreeMap<i32, u64>,
    bytes: u64,
    /// Messages wait until others have arrived.
    awaits_ends: bool,
}

/// A connection's messages on their way in.
pub(crate) struct Incoming {
    len_max: usize,
    /// Those of which nothing has come are bounded by the streams that the peer may open.
    receiving: BTreeMap<StreamId, Assembly>,
    /// Those of which some has come: [`ASSEMBLIES_MAX`].
    partial_count: usize,
    /// Those of which something can be read, and that wait until fewer are put together. Each is among those received.
    deferred: BTreeSet<StreamId>,
    /// The application has enough for now.
    paused: bool,
}

struct Sending {
    rest: Bytes,
    /// What it counts for while it is under way.
    cost: u64,
    priority: i32,
}

#[derive(Default)]
struct Assembly {
    strips: Vec<Strip>,
    len: usize,
}

impl Outgoing {
    /// Moves the application's messages onto streams, as far as the peer and the send buffer allow.
    pub(crate) fn serve(&mut self, connection: &mut Connection, cell: &ConnectionCell) {
        for lane in Lane::ALL {
            let under_way: usize = self.lanes.iter().map(|lane| lane.sending.len()).sum();
            self.lanes[lane.index()].serve(lane, under_way, connection, cell);
        }
    }

    /// A message has arrived, or will not. Others may go on.
    pub(crate) fn on_send_end(&mut self, id: StreamId, connection: &mut Connection, cell: &ConnectionCell) {
        if !self.lanes.iter_mut().any(|lane| lane.remove(id)) {
            return;
        }
        if self.lanes.iter().any(|lane| lane.awaits_ends) {
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
        self.lanes = Default::default();
    }
}

impl Begun {
    /// `under_way`: messages of all lanes.
    fn serve(&mut self, lane: Lane, under_way: usize, connection: &mut Connection, cell: &ConnectionCell) {
        self.awaits_ends = false;
        let streams_max = connection.streams_left(Dir::Uni).saturating_add(under_way as u64);
        let bytes_max = connection.window_bytes().saturating_mul(2).saturating_add(BEGUN_BYTES_SPARE);
        let mut blocked = self.push_waiting(lane, connection);
        loop {
            let next = cell.lock().messages_out.priority(lane);
            // At most a few wait for room at a time: a new one is begun only when none that is as urgent does.
            let Some(next) = next.filter(|next| blocked.is_none_or(|blocked| *next > blocked)) else { break };
            let left = connection.streams_left(Dir::Uni);
            if !self.may_begin(lane, next, bytes_max) || (left > 0 && !self.may_open(lane, next, left, streams_max)) {
                self.awaits_ends = true;
                break;
            }
            let Some(id) = connection.open(Dir::Uni) else { break };
            let wakers = {
                let mut state = cell.lock();
                let Some(OutMessage { bytes: rest, class }) = state.messages_out.pop(lane) else { break };
                state.messages_in_flight += 1;
                // It was opened just now.
                let _open = connection.set_class(id, &class);
                self.insert(id, rest, class.priority);
                let has_room = state.messages_out.has_worthwhile_room(lane);
                if has_room { state.take_wakers(Interest::MessageRoom) } else { Default::default() }
            };
            wakers.wake();
            if !self.push(id, connection) && lane == Lane::Free {
                blocked = Some(next);
            }
        }
    }

    /// Goes on with those that waited for room. Says which priority waits still, if that is to stop others: what has no class waits
    /// for the same room, what is restrained each for its own.
    fn push_waiting(&mut self, lane: Lane, connection: &mut Connection) -> Option<i32> {
        // One of each priority, or as many as may be restrained at a time.
        let waiting: Vec<(Reverse<i32>, StreamId)> = self.waiting.iter().copied().collect();
        for (priority, id) in waiting {
            if !self.push(id, connection) && lane == Lane::Free {
                return Some(priority.0);
            }
        }
        None
    }

    /// Whether a message of this priority may begin: not while enough are on their way that are as urgent.
    fn may_begin(&self, lane: Lane, priority: i32, bytes_max: u64) -> bool {
        if lane == Lane::Restrained && self.sending.len() >= RESTRAINED_MAX {
            return false;
        }
        self.bytes < bytes_max
            || self.bytes_by_priority.range(priority..).map(|(_, bytes)| bytes).sum::<u64>() < bytes_max
    }

    /// Whether a message of this priority may take one of the `left` streams, of so many that can be under way.
    fn may_open(&self, lane: Lane, priority: i32, left: u64, streams_max: u64) -> bool {
        let is_share = lane == Lane::Free || (self.sending.len() as u64) < streams_max / 2;
        if is_share && left > STREAMS_KEPT.min(streams_max / 4) {
            return true;
        }
        let least_urgent = self.bytes_by_priority.first_key_value().map(|(least, _)| *least);
        // Without one of this lane under way, nothing would end that it could wait for.
        least_urgent.is_none_or(|least| lane == Lane::Free && priority > least)
    }

    fn insert(&mut self, id: StreamId, rest: Bytes, priority: i32) {
        let cost = (rest.len() + MESSAGE_OVERHEAD) as u64;
        self.bytes += cost;
        *self.bytes_by_priority.entry(priority).or_default() += cost;
        self.waiting.insert((Reverse(priority), id));
        self.sending.insert(id, Sending { rest, cost, priority });
    }

    /// Forgets a message; false if it is not here.
    fn remove(&mut self, id: StreamId) -> bool {
        let Some(Sending { cost, priority, .. }) = self.sending.remove(&id) else { return false };
        self.waiting.remove(&(Reverse(priority), id));
        self.bytes -= cost;
        if let Some(bytes) = self.bytes_by_priority.get_mut(&priority) {
            *bytes -= cost;
            if *bytes == 0 {
                self.bytes_by_priority.remove(&priority);
            }
        }
        true
    }

    /// Gives the rest of a message to the connection; false if that has no room.
    fn push(&mut self, id: StreamId, connection: &mut Connection) -> bool {
        let Some(Sending { rest, priority, .. }) = self.sending.get_mut(&id) else { return true };
        let is_whole = match connection.write_some(id, rest) {
            Ok(()) => true,
            Err(WriteError::Blocked) => return false,
            // The event that says so ends it.
            Err(WriteError::Stopped(_) | WriteError::Closed) => false,
        };
        self.waiting.remove(&(Reverse(*priority), id));
        if is_whole {
            let _over = connection.finish(id);
        }
        true
    }
}

impl Incoming {
    pub(crate) fn new(len_max: usize) -> Self {
        Self { len_max, receiving: BTreeMap::new(), partial_count: 0, deferred: BTreeSet::new(), paused: false }
    }

    /// Takes new streams and goes on with those begun. `everything`: without heed of bounds, because the end has come.
    pub(crate) fn serve(&mut self, now: Instant, source: &mut impl Source, cell: &ConnectionCell, everything: bool) {
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
        self.go_on(now, source, cell, everything);
    }

    /// The peer has opened streams.
    pub(crate) fn on_opened(&mut self, now: Instant, source: &mut impl Source, cell: &ConnectionCell) {
        if self.paused {
            // Those begun have not been read meanwhile.
            return self.serve(now, source, cell, false);
        }
        self.go_on(now, source, cell, false);
    }

    /// More of a message has arrived.
    pub(crate) fn on_readable(&mut self, now: Instant, id: StreamId, source: &mut impl Source, cell: &ConnectionCell) {
        if self.paused || !self.receiving.contains_key(&id) || !self.may_read(id) {
            return;
        }
        let full = self.is_full();
        self.read(now, id, source, cell);
        if full && !self.is_full() {
            self.go_on(now, source, cell, false);
        }
    }

    /// Reads what was deferred and takes new streams, while not too many are put together.
    fn go_on(&mut self, now: Instant, source: &mut impl Source, cell: &ConnectionCell, everything: bool) {
        while (everything || !self.is_full())
            && let Some(id) = self.deferred.pop_first()
        {
            self.read(now, id, source, cell);
        }
        self.paused = !everything && cell.lock().messages_bytes >= MESSAGES_IN_BYTES_MAX;
        while (everything || (!self.paused && !self.is_full()))
            && let Some(id) = source.accept(Dir::Uni)
        {
            self.receiving.insert(id, Assembly::default());
            self.read(now, id, source, cell);
            self.paused = !everything && cell.lock().messages_bytes >= MESSAGES_IN_BYTES_MAX;
        }
    }

    fn is_full(&self) -> bool {
        self.partial_count >= ASSEMBLIES_MAX
    }

    fn has_some(&self, id: StreamId) -> bool {
        self.receiving.get(&id).is_some_and(|assembly| assembly.len > 0)
    }

    /// Whether `id` is being put together, or may be; defers it otherwise.
    fn may_read(&mut self, id: StreamId) -> bool {
        let may = self.has_some(id) || !self.is_full();
        if !may {
            self.deferred.insert(id);
        }
        may
    }

    fn read(&mut self, now: Instant, id: StreamId, source: &mut impl Source, cell: &ConnectionCell) {
        self.deferred.remove(&id);
        let had_some = self.has_some(id);
        self.read_on(now, id, source, cell);
        self.partial_count = self.partial_count + usize::from(self.has_some(id)) - usize::from(had_some);
    }

    fn read_on(&mut self, now: Instant, id: StreamId, source: &mut impl Source, cell: &ConnectionCell) {
        let Some(assembly) = self.receiving.get_mut(&id) else { return };
        loop {
            match source.read(now, id, READ_LEN_MAX) {
                Ok(Chunk::Bytes(strip)) => {
                    assembly.len += strip.len();
                    if assembly.len > self.len_max {
                        tracing::debug!(%id, len_max = self.len_max, "a message is too long: refused");
                        let _over = source.stop(now, id, MESSAGE_TOO_LONG);
                        self.receiving.remove(&id);
                        return;
                    }
                    assembly.strips.push(strip.compacted(COMPACT_BELOW));
                }
                Ok(Chunk::End) => break,
                Err(ReadError::Blocked) => return,
                // The sender gave it up: half a message is none.
                Err(ReadError::Reset(_) | ReadError::Closed) => {
                    self.receiving.remove(&id);
                    return;
                }
            }
        }
        let assembly = self.receiving.remove(&id).unwrap_or_default();
        let message = join(assembly.strips.iter(), assembly.len);
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

/// One piece of all; copies only if there are several.
pub(crate) fn join<'a>(mut strips: impl ExactSizeIterator<Item = &'a Strip>, len: usize) -> Bytes {
    if strips.len() <= 1 {
        return strips.next().map_or_else(Bytes::new, Strip::to_bytes);
    }
    let mut whole = BytesMut::with_capacity(len);
    for piece in strips.flat_map(Strip::pieces) {
        whole.extend_from_slice(piece);
    }
    whole.freeze()
}

#[cfg(test)]
mod tests;

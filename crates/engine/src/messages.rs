//! Messages: each on a unidirectional stream of its own, whole or not at all.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use quic::{Chunk, Connection, Dir, ReadError, StreamId, Strip, WriteError};
use units::Instant;

use crate::cells::connection::{MESSAGE_OVERHEAD, MESSAGES_IN_BYTES_MAX};
use crate::cells::{ConnectionCell, Interest, OutMessage};
use crate::receive::COMPACT_BELOW;
use crate::slot::READ_LEN_MAX;

/// Messages that are put together at a time. Each may take `message_len_max` bytes; more streams wait their turn.
const ASSEMBLIES_MAX: usize = 64;

/// One stream in so many, of those that the peer allows at a time, is kept for urgent messages.
const URGENT_SHARE: u64 = 8;

/// The code for the peer whose message is longer than we take, in STOP_SENDING.
pub(crate) const MESSAGE_TOO_LONG: u64 = 1;

/// A connection's messages under way.
pub(crate) struct Messages {
    len_max: usize,
    /// Messages on a stream that the peer has not acknowledged, with what the connection has not taken of them.
    sending: BTreeMap<StreamId, Sending>,
    receiving: BTreeMap<StreamId, Assembly>,
    /// The application has enough for now.
    paused: bool,
    /// A message waits for a stream though the peer allows some: for the next that ends.
    keeps_streams: bool,
}

struct Sending {
    rest: Bytes,
    priority: i32,
}

#[derive(Default)]
struct Assembly {
    strips: Vec<Strip>,
    len: usize,
}

impl Messages {
    pub(crate) fn new(len_max: usize) -> Self {
        Self { len_max, sending: BTreeMap::new(), receiving: BTreeMap::new(), paused: false, keeps_streams: false }
    }

    /// Moves the application's messages onto streams, as far as the peer and the send buffer allow.
    pub(crate) fn serve_out(&mut self, connection: &mut Connection, cell: &ConnectionCell) {
        self.keeps_streams = false;
        // At most a few wait for room at a time: a new one is begun only when none that is as urgent does.
        let waiting = self.sending.iter().filter(|(_, sending)| !sending.rest.is_empty());
        let mut waiting: Vec<(i32, StreamId)> = waiting.map(|(id, sending)| (sending.priority, *id)).collect();
        waiting.sort_unstable_by_key(|(priority, id)| (Reverse(*priority), *id));
        let mut blocked = waiting.into_iter().find(|(_, id)| !self.push(*id, connection)).map(|(priority, _)| priority);
        loop {
            let next = cell.lock().messages_out.priority();
            if next.is_none_or(|next| blocked.is_some_and(|blocked| next <= blocked)) {
                break;
            }
            if !self.may_open(next, connection) {
                self.keeps_streams = true;
                break;
            }
            let Some(id) = connection.open(Dir::Uni) else { break };
            let wakers = {
                let mut state = cell.lock();
                let Some(OutMessage { bytes: rest, class }) = state.messages_out.pop() else { break };
                state.messages_in_flight += 1;
                // It was opened just now.
                let _open = connection.set_class(id, &class);
                self.sending.insert(id, Sending { rest, priority: class.priority });
                let has_room = state.messages_out.has_worthwhile_room();
                if has_room { state.take_wakers(Interest::MessageRoom) } else { Default::default() }
            };
            wakers.wake();
            if !self.push(id, connection) {
                blocked = self.sending.get(&id).map(|sending| sending.priority);
            }
        }
    }

    /// Whether a message of this priority may have one of the streams that the peer allows still. The last of them are for messages
    /// that are more urgent than others on their way, which would have to wait for these to arrive otherwise.
    fn may_open(&self, priority: Option<i32>, connection: &Connection) -> bool {
        let left = connection.streams_left(Dir::Uni);
        let kept = (left + self.sending.len() as u64) / URGENT_SHARE;
        left > kept || self.sending.values().any(|sending| priority > Some(sending.priority))
    }

    /// Gives the rest of a message to the connection; false if that has no room.
    fn push(&mut self, id: StreamId, connection: &mut Connection) -> bool {
        let Some(Sending { rest, .. }) = self.sending.get_mut(&id) else { return true };
        match connection.write_some(id, rest) {
            Ok(()) => {}
            Err(WriteError::Blocked) => return false,
            // The event that says so ends it.
            Err(WriteError::Stopped(_) | WriteError::Closed) => return true,
        }
        let _over = connection.finish(id);
        true
    }

    /// A message has arrived, or will not. Others may go on.
    pub(crate) fn on_send_end(&mut self, id: StreamId, connection: &mut Connection, cell: &ConnectionCell) {
        if self.sending.remove(&id).is_none() {
            return;
        }
        if self.keeps_streams {
            self.serve_out(connection, cell);
        }
        let wakers = {
            let mut state = cell.lock();
            state.messages_in_flight -= 1;
            let flushed = state.messages_in_flight == 0 && state.messages_out.is_empty();
            if flushed { state.take_wakers(Interest::MessagesFlushed) } else { Default::default() }
        };
        wakers.wake();
    }

    /// Takes new streams and goes on with those begun. `everything`: without heed of bounds, because the end has come.
    pub(crate) fn serve_in(
        &mut self,
        now: Instant,
        connection: &mut Connection,
        cell: &ConnectionCell,
        everything: bool,
    ) {
        self.paused = !everything && cell.lock().messages_bytes >= MESSAGES_IN_BYTES_MAX;
        if self.paused {
            return;
        }
        let begun: Vec<StreamId> = self.receiving.keys().copied().collect();
        for id in begun {
            self.read(now, id, connection, cell);
        }
        while (everything || (!self.paused && self.receiving.len() < ASSEMBLIES_MAX))
            && let Some(id) = connection.accept(Dir::Uni)
        {
            self.receiving.insert(id, Assembly::default());
            self.read(now, id, connection, cell);
            self.paused = !everything && cell.lock().messages_bytes >= MESSAGES_IN_BYTES_MAX;
        }
    }

    /// More of a message has arrived.
    pub(crate) fn on_readable(
        &mut self,
        now: Instant,
        id: StreamId,
        connection: &mut Connection,
        cell: &ConnectionCell,
    ) {
        if self.paused || !self.receiving.contains_key(&id) {
            return;
        }
        let full = self.receiving.len() >= ASSEMBLIES_MAX;
        self.read(now, id, connection, cell);
        if full && self.receiving.len() < ASSEMBLIES_MAX {
            self.serve_in(now, connection, cell, false);
        }
    }

    fn read(&mut self, now: Instant, id: StreamId, connection: &mut Connection, cell: &ConnectionCell) {
        let Some(assembly) = self.receiving.get_mut(&id) else { return };
        loop {
            match connection.read(now, id, READ_LEN_MAX) {
                Ok(Chunk::Bytes(strip)) => {
                    assembly.len += strip.len();
                    if assembly.len > self.len_max {
                        tracing::debug!(%id, len_max = self.len_max, "a message is too long: refused");
                        let _over = connection.stop(now, id, MESSAGE_TOO_LONG);
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
        self.sending.clear();
        self.receiving.clear();
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

//! Messages: each on a unidirectional stream of its own, whole or not at all.

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use quic::{Chunk, Connection, Dir, ReadError, StreamId, Strip, WriteError};
use units::Instant;

use crate::cells::connection::{MESSAGE_OVERHEAD, MESSAGES_IN_BYTES_MAX, MESSAGES_OUT_BYTES_MAX};
use crate::cells::{ConnectionCell, Interest};
use crate::inbound::{READ_LEN_MAX, Source};
use crate::receive::COMPACT_BELOW;

/// Messages that are put together at a time. Each may take `message_len_max` bytes; more streams wait their turn.
const ASSEMBLIES_MAX: usize = 64;

/// The code for the peer whose message is longer than we take, in STOP_SENDING.
pub(crate) const MESSAGE_TOO_LONG: u64 = 1;

/// A connection's messages on their way out.
#[derive(Default)]
pub(crate) struct Outgoing {
    /// Messages on a stream that the peer has not acknowledged, with what the connection has not taken of them.
    sending: BTreeMap<StreamId, Bytes>,
}

/// A connection's messages on their way in.
pub(crate) struct Incoming {
    len_max: usize,
    receiving: BTreeMap<StreamId, Assembly>,
    /// The application has enough for now.
    paused: bool,
}

#[derive(Default)]
struct Assembly {
    strips: Vec<Strip>,
    len: usize,
}

impl Outgoing {
    /// Moves the application's messages onto streams, as far as the peer and the send buffer allow.
    pub(crate) fn serve(&mut self, connection: &mut Connection, cell: &ConnectionCell) {
        // At most a few wait for room at a time: a new one is begun only when none does.
        let blocked: Vec<StreamId> =
            self.sending.iter().filter(|(_, rest)| !rest.is_empty()).map(|(id, _)| *id).collect();
        for id in blocked {
            if !self.push(id, connection) {
                return;
            }
        }
        loop {
            if cell.lock().messages_out.is_empty() {
                break;
            }
            let Some(id) = connection.open(Dir::Uni) else { break };
            let wakers = {
                let mut state = cell.lock();
                let Some(message) = state.messages_out.pop_front() else { break };
                state.messages_out_bytes -= message.len() + MESSAGE_OVERHEAD;
                state.messages_in_flight += 1;
                self.sending.insert(id, message);
                let has_room = state.messages_out_bytes <= MESSAGES_OUT_BYTES_MAX / 2;
                if has_room { state.take_wakers(Interest::MessageRoom) } else { Default::default() }
            };
            wakers.wake();
            if !self.push(id, connection) {
                break;
            }
        }
    }

    /// Gives the rest of a message to the connection; false if that has no room.
    fn push(&mut self, id: StreamId, connection: &mut Connection) -> bool {
        let Some(rest) = self.sending.get_mut(&id) else { return true };
        match connection.write_some(id, rest) {
            Ok(()) => {}
            Err(WriteError::Blocked) => return false,
            // The event that says so ends it.
            Err(WriteError::Stopped(_) | WriteError::Closed) => return true,
        }
        let _over = connection.finish(id);
        true
    }

    /// A message has arrived, or will not.
    pub(crate) fn on_send_end(&mut self, id: StreamId, cell: &ConnectionCell) {
        if self.sending.remove(&id).is_none() {
            return;
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
        self.sending.clear();
    }
}

impl Incoming {
    pub(crate) fn new(len_max: usize) -> Self {
        Self { len_max, receiving: BTreeMap::new(), paused: false }
    }

    /// Takes new streams and goes on with those begun. `everything`: without heed of bounds, because the end has come.
    pub(crate) fn serve(&mut self, now: Instant, source: &mut impl Source, cell: &ConnectionCell, everything: bool) {
        self.paused = !everything && cell.lock().messages_bytes >= MESSAGES_IN_BYTES_MAX;
        if self.paused {
            return;
        }
        let begun: Vec<StreamId> = self.receiving.keys().copied().collect();
        for id in begun {
            self.read(now, id, source, cell);
        }
        while (everything || (!self.paused && self.receiving.len() < ASSEMBLIES_MAX))
            && let Some(id) = source.accept(Dir::Uni)
        {
            self.receiving.insert(id, Assembly::default());
            self.read(now, id, source, cell);
            self.paused = !everything && cell.lock().messages_bytes >= MESSAGES_IN_BYTES_MAX;
        }
    }

    /// More of a message has arrived.
    pub(crate) fn on_readable(&mut self, now: Instant, id: StreamId, source: &mut impl Source, cell: &ConnectionCell) {
        if self.paused || !self.receiving.contains_key(&id) {
            return;
        }
        let full = self.receiving.len() >= ASSEMBLIES_MAX;
        self.read(now, id, source, cell);
        if full && self.receiving.len() < ASSEMBLIES_MAX {
            self.serve(now, source, cell, false);
        }
    }

    fn read(&mut self, now: Instant, id: StreamId, source: &mut impl Source, cell: &ConnectionCell) {
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

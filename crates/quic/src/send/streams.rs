//! The sending parts of streams: state, the peer's flow-control credit, and which stream is next.
//!
//! `credit` takes the peer's credit, `early` has what differs while 0-RTT is sent, and `blocked` notifies the peer when it is exhausted.
//! `write_limits` bounds the bytes applications may write, `reset` resets streams, and `classes`
//! applies rate limits, permitted paths and the background class.

mod blocked;
mod classes;
mod credit;
mod early;
mod fill;
mod reset;
mod write_limits;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use wire::quic::{Dir, Side, StreamId};

use self::classes::{Classes, StreamClass};
use super::buffer::SendBuffer;
use crate::event::{Event, Events};
use crate::exchange::{Exchange, ToReceive};
use crate::queue::Queue;
use crate::stream_map::StreamMap;

/// The most bytes of one write. It bounds how far the send buffer can be overfilled.
pub const WRITE_LEN_MAX: usize = 1 << 20;

/// Why bytes were not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum WriteError {
    /// The send buffer is full: [`Event::Writable`] follows when there is space again.
    Blocked,
    /// The peer sent STOP_SENDING with this code.
    Stopped(u64),
    /// The stream was finished or reset, or never existed.
    Closed,
}

impl std::fmt::Display for WriteError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Blocked => f.write_str("this side's send buffer is full: write again when the stream is writable"),
            Self::Stopped(code) => {
                write!(f, "the peer stopped reading this stream (code {code}): send nothing more on it")
            }
            Self::Closed => f.write_str("this side has finished or reset the stream, or it never existed"),
        }
    }
}

impl std::error::Error for WriteError {}

/// Ready streams examined to estimate how much data waits.
const READY_COUNTED_MAX: usize = 64;

/// The state of an item that is sent once and retransmitted when lost: FIN and RESET_STREAM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum DeliveryState {
    #[default]
    Unset,
    /// To be sent.
    Due,
    /// Sent, not acknowledged.
    Sent,
    Acked,
}

/// The sending part of one stream (RFC 9000, section 3.1).
#[derive(Debug, Default)]
pub(crate) struct SendStream {
    pub(crate) buffer: SendBuffer,
    /// The peer accepts no byte from this offset on (MAX_STREAM_DATA).
    pub(crate) max_data: u64,
    pub(crate) fin: DeliveryState,
    /// RESET_STREAM and its code.
    pub(crate) reset: DeliveryState,
    pub(crate) reset_code: u64,
    /// The final size that a reset states: the bytes sent until then.
    pub(crate) reset_size: u64,
    /// The code of the peer's STOP_SENDING.
    stopped: Option<u64>,
    priority: i32,
    /// Its rate limit, paths and background flag, if its class sets any.
    class: Option<Box<StreamClass>>,
    /// The stream is in the ready queue.
    ready: bool,
    /// The stream is in the queue for the connection's rate limit.
    connection_limited: bool,
    /// The stream is in the queue for the connection's flow-control credit.
    credit_blocked: bool,
    /// The application got `Blocked` and waits for an event until this many bytes fit; zero if
    /// it does not wait.
    wanted_bytes: u64,
    /// The peer's limit that blocks it: already reported to the peer, and in
    /// [`SendStreams::limited`].
    blocked_at: Option<u64>,
}

impl SendStream {
    /// True if a STREAM frame could be sent now, apart from connection credit.
    fn has_work(&self) -> bool {
        self.reset == DeliveryState::Unset
            && (self.buffer.peek(self.max_data).is_some() || self.fin == DeliveryState::Due)
    }

    /// Records that only its own credit blocks the stream; true if that was not recorded before.
    fn is_newly_limited(&mut self) -> bool {
        let waits = self.reset == DeliveryState::Unset && self.buffer.unsent() < self.buffer.end();
        let is_new = waits && self.buffer.unsent() >= self.max_data && self.blocked_at.is_none();
        if is_new {
            self.blocked_at = Some(self.max_data);
        }
        is_new
    }

    fn is_open(&self) -> bool {
        self.fin == DeliveryState::Unset && self.reset == DeliveryState::Unset
    }

    /// The stream was reset: its bytes are dropped.
    pub(crate) fn is_reset(&self) -> bool {
        self.reset != DeliveryState::Unset
    }
}

/// Initial credit of streams by initiator, from the peer's transport parameters.
#[derive(Debug, Default)]
struct InitialCredit {
    bidi_local: u64,
    bidi_remote: u64,
    uni: u64,
}

/// The sending parts of all streams of a connection.
#[derive(Debug)]
pub(crate) struct SendStreams {
    side: Side,
    map: StreamMap<SendStream>,
    /// Streams with something to send, by priority, each priority in round-robin order.
    ready: BTreeMap<Reverse<i32>, VecDeque<StreamId>>,
    /// Streams whose RESET_STREAM is due.
    resets: Queue<StreamId>,
    /// Streams whose STREAM_DATA_BLOCKED is due.
    blocked: Queue<StreamId>,
    /// Streams blocked by their own credit.
    limited: BTreeSet<StreamId>,
    /// Streams blocked only by the connection's credit.
    credit_blocked: Queue<StreamId>,
    /// Streams whose application waits for buffer space.
    waiting: Queue<StreamId>,
    next_index: [u64; 2],
    /// How many streams of each type the peer lets us open (MAX_STREAMS).
    max_streams: [u64; 2],
    /// A STREAMS_BLOCKED is due; the limit for which it was last sent.
    streams_blocked: [DeliveryState; 2],
    streams_blocked_at: [Option<u64>; 2],
    /// The peer's credit for all streams together (MAX_DATA), and how much of it is used.
    max_data: u64,
    data_sent: u64,
    data_blocked: DeliveryState,
    data_blocked_at: Option<u64>,
    initial: InitialCredit,
    /// State of classes, created with the first limit.
    classes: Option<Box<Classes>>,
    /// Bytes held in all buffers, and their limit.
    held_bytes: u64,
    held_bytes_max: u64,
}

impl SendStreams {
    pub(crate) fn new(side: Side, held_bytes_max: u64) -> Self {
        Self {
            side,
            map: StreamMap::default(),
            ready: BTreeMap::new(),
            resets: Queue::new(),
            blocked: Queue::new(),
            limited: BTreeSet::new(),
            credit_blocked: Queue::new(),
            waiting: Queue::new(),
            next_index: [0; 2],
            max_streams: [0; 2],
            streams_blocked: [DeliveryState::Unset; 2],
            streams_blocked_at: [None; 2],
            max_data: 0,
            data_sent: 0,
            data_blocked: DeliveryState::Unset,
            data_blocked_at: None,
            initial: InitialCredit::default(),
            classes: None,
            held_bytes: 0,
            held_bytes_max,
        }
    }

    /// Opens the next stream, if the peer's limit allows it.
    pub(crate) fn open(&mut self, dir: Dir, exchange: &mut Exchange) -> Option<StreamId> {
        let kind = dir.index();
        if self.next_index[kind] >= self.max_streams[kind] {
            if self.streams_blocked_at[kind] != Some(self.max_streams[kind]) {
                self.streams_blocked_at[kind] = Some(self.max_streams[kind]);
                self.streams_blocked[kind] = DeliveryState::Due;
            }
            return None;
        }
        let id = StreamId::new(self.side, dir, self.next_index[kind]);
        self.next_index[kind] += 1;
        self.map.insert(id, SendStream { max_data: self.initial_credit(id), ..SendStream::default() });
        if dir == Dir::Bi {
            exchange.to_receive.push_back(ToReceive::LocalOpened(id));
        }
        Some(id)
    }

    /// Streams that may still be opened under the peer's limit.
    pub(crate) fn left(&self, dir: Dir) -> u64 {
        self.max_streams[dir.index()].saturating_sub(self.next_index[dir.index()])
    }

    /// The peer opened a bidirectional stream: we may send on it.
    pub(crate) fn peer_opened(&mut self, id: StreamId) {
        self.map.insert(id, SendStream { max_data: self.initial_credit(id), ..SendStream::default() });
    }

    /// True if a frame about `id` is valid: the stream exists or has existed (RFC 9000, section
    /// 19.10).
    pub(crate) fn was_opened(&self, id: StreamId) -> bool {
        id.initiator() != self.side || id.index() < self.next_index[id.dir().index()]
    }

    /// Ends the stream after the bytes written so far.
    pub(crate) fn finish(&mut self, id: StreamId) -> Result<(), WriteError> {
        let stream = self.map.get_mut(&id).ok_or(WriteError::Closed)?;
        if let Some(code) = stream.stopped {
            return Err(WriteError::Stopped(code));
        }
        if !stream.is_open() {
            return Err(WriteError::Closed);
        }
        stream.fin = DeliveryState::Due;
        self.make_ready(id);
        Ok(())
    }

    /// Streams with a higher value go first; those with equal values take turns. Zero by default.
    pub(crate) fn set_priority(&mut self, id: StreamId, priority: i32) -> Result<(), WriteError> {
        let stream = self.map.get_mut(&id).ok_or(WriteError::Closed)?;
        if stream.priority == priority {
            return Ok(());
        }
        if stream.ready {
            let queue = self.ready.get_mut(&Reverse(stream.priority)).expect("a ready stream is queued");
            queue.retain(|queued| *queued != id);
            stream.ready = false;
        }
        stream.priority = priority;
        if stream.connection_limited {
            self.release_connection_limited();
        }
        self.make_ready(id);
        Ok(())
    }

    /// Queues `id` if it has something to send and is not queued.
    fn make_ready(&mut self, id: StreamId) {
        let Some(stream) = self.map.get_mut(&id) else { return };
        if stream.ready {
            return;
        }
        if stream.has_work() {
            stream.ready = true;
            self.ready.entry(Reverse(stream.priority)).or_default().push_back(id);
        } else if stream.is_newly_limited() {
            self.limited.insert(id);
            self.blocked.push_back(id);
        }
    }

    /// The next stream in order, with the offset up to which it may send. Streams found to be
    /// blocked leave the queue, and the BLOCKED frames become due.
    pub(crate) fn next_ready(&mut self) -> Option<(StreamId, u64)> {
        loop {
            let mut class = self.ready.first_entry()?;
            let Some(&id) = class.get().front() else {
                class.remove();
                continue;
            };
            let stream = self.map.get_mut(&id).expect("streams leave the queue before they end");
            let credit = self.max_data - self.data_sent;
            let mut limit = stream.max_data.min(stream.buffer.unsent().saturating_add(credit));
            let deferral = match &mut self.classes {
                Some(classes) if !stream.is_reset() => classes.check(stream, &mut limit),
                _ => None,
            };
            let fin_alone = stream.fin == DeliveryState::Due && stream.buffer.unsent() == stream.buffer.end();
            let has_work = stream.reset == DeliveryState::Unset && (stream.buffer.peek(limit).is_some() || fin_alone);
            if has_work && deferral.is_none() {
                return Some((id, limit));
            }
            class.get_mut().pop_front();
            stream.ready = false;
            if let Some(deferral) = deferral {
                self.defer(id, deferral);
                continue;
            }
            if stream.reset != DeliveryState::Unset || stream.buffer.unsent() == stream.buffer.end() {
                continue;
            }
            if stream.is_newly_limited() {
                self.limited.insert(id);
                self.blocked.push_back(id);
            } else if stream.blocked_at.is_none() {
                if !std::mem::replace(&mut stream.credit_blocked, true) {
                    self.credit_blocked.push_back(id);
                }
                if self.data_blocked_at != Some(self.max_data) {
                    self.data_blocked_at = Some(self.max_data);
                    self.data_blocked = DeliveryState::Due;
                }
            }
        }
    }

    /// Bytes that the next stream may send, if no other stream follows it and its end is not due.
    pub(crate) fn only_ready_len(&mut self) -> Option<u64> {
        let (id, limit) = self.next_ready()?;
        let is_only = self.ready.len() == 1 && self.ready.values().all(|class| class.len() == 1);
        // Data blocked by a class count as none: a caller that waits for more would delay data that
        // have waited long enough.
        let is_free = self.classes.is_none();
        let stream = self.map.get(&id).filter(|stream| is_free && is_only && stream.fin != DeliveryState::Due)?;
        stream.buffer.peek(limit).map(|due| due.end - due.start)
    }

    /// Bytes that could be sent now, over the first few ready streams: enough to recognise the end
    /// of a transfer from bulk.
    pub(crate) fn ready_bytes(&self) -> u64 {
        let credit = self.max_data - self.data_sent;
        let streams = self.ready.values().flatten().take(READY_COUNTED_MAX).filter_map(|id| self.map.get(id));
        streams.map(|stream| stream.ready_bytes(credit)).sum()
    }

    /// Bytes of the first few ready streams of the highest priority; zero if one of these is a
    /// background stream. Credit is not considered.
    pub(crate) fn urgent_bytes(&self) -> u64 {
        let credit = self.max_data - self.data_sent;
        let Some(urgent) = self.ready.values().find(|class| !class.is_empty()) else { return 0 };
        let mut streams = urgent.iter().take(READY_COUNTED_MAX).filter_map(|id| self.map.get(id));
        streams
            .try_fold(0, |bytes, stream| (!stream.is_background()).then(|| bytes + stream.ready_bytes(credit)))
            .unwrap_or(0)
    }

    /// True if applications wait for buffer space: more data will follow.
    pub(crate) fn has_waiting_writers(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// True if a STREAM frame could be sent now.
    pub(crate) fn has_ready(&mut self) -> bool {
        self.next_ready().is_some()
    }

    /// Moves on to the next stream of the same priority.
    pub(crate) fn rotate(&mut self) {
        if let Some(mut class) = self.ready.first_entry()
            && class.get().len() > 1
        {
            class.get_mut().rotate_left(1);
        }
    }

    pub(crate) fn get(&self, id: StreamId) -> Option<&SendStream> {
        self.map.get(&id)
    }

    /// The range that stream `id` has to send, without its last packet if that carries a FIN.
    pub(crate) fn peek_bulk(&self, id: StreamId, limit: u64) -> Option<std::ops::Range<u64>> {
        let stream = self.map.get(&id)?;
        let due = stream.buffer.peek(limit)?;
        let ends = stream.fin == DeliveryState::Due && due.end == stream.buffer.end();
        Some(due.start..due.end - u64::from(ends))
    }

    /// Takes `len` bytes of what [`peek_bulk`](Self::peek_bulk) returned.
    pub(crate) fn take_bulk(&mut self, id: StreamId, limit: u64, len: u64) -> std::ops::Range<u64> {
        let (range, fin) = self.take(id, limit, len);
        debug_assert!(!fin && range.end - range.start == len, "no more is taken than was peeked");
        range
    }

    /// Takes up to `len` bytes of stream `id` for sending, and returns whether the FIN goes with
    /// them.
    pub(crate) fn take(&mut self, id: StreamId, limit: u64, len: u64) -> (std::ops::Range<u64>, bool) {
        let stream = self.map.get_mut(&id).expect("a ready stream exists");
        let unsent = stream.buffer.unsent();
        let range = stream.buffer.take(limit, len).unwrap_or(unsent..unsent);
        let new_bytes = stream.buffer.unsent() - unsent;
        self.data_sent += new_bytes;
        if let Some(classes) = &mut self.classes {
            classes.on_planned(stream, new_bytes);
        }
        let fin = stream.fin == DeliveryState::Due && range.end == stream.buffer.end();
        if fin {
            stream.fin = DeliveryState::Sent;
        }
        (range, fin)
    }

    /// The peer acknowledged these bytes.
    pub(crate) fn on_acked(
        &mut self,
        id: StreamId,
        range: std::ops::Range<u64>,
        fin: bool,
        exchange: &mut Exchange,
        events: &mut Events,
    ) {
        let Some(stream) = self.map.get_mut(&id) else { return };
        if stream.reset != DeliveryState::Unset {
            return;
        }
        let before = stream.buffer.held_bytes();
        stream.buffer.acknowledge(range);
        self.held_bytes -= before - stream.buffer.held_bytes();
        if fin {
            stream.fin = DeliveryState::Acked;
        }
        if stream.fin == DeliveryState::Acked && stream.buffer.is_fully_acked() {
            events.push(Event::Finished(id));
            self.retire(id, exchange);
        }
        self.wake_writers(events);
    }

    /// These bytes must be retransmitted.
    pub(crate) fn on_lost(&mut self, id: StreamId, range: std::ops::Range<u64>, fin: bool) {
        let Some(stream) = self.map.get_mut(&id) else { return };
        if stream.reset != DeliveryState::Unset {
            return;
        }
        stream.buffer.lose(range);
        if fin && stream.fin == DeliveryState::Sent {
            stream.fin = DeliveryState::Due;
        }
        self.make_ready(id);
    }

    /// The sending part has reached its final state.
    fn retire(&mut self, id: StreamId, exchange: &mut Exchange) {
        let Some(mut stream) = self.map.remove(&id) else { return };
        if stream.class.is_some() {
            self.forget_class(id, &mut stream);
        }
        self.held_bytes -= stream.buffer.held_bytes();
        if stream.ready
            && let Some(queue) = self.ready.get_mut(&Reverse(stream.priority))
        {
            queue.retain(|queued| *queued != id);
        }
        if stream.blocked_at.is_some() {
            self.limited.remove(&id);
        }
        exchange.to_receive.push_back(ToReceive::SendSideDone(id));
    }

    /// True if a frame other than STREAM is due.
    pub(crate) fn has_control_due(&self) -> bool {
        !self.resets.is_empty()
            || !self.blocked.is_empty()
            || self.data_blocked == DeliveryState::Due
            || self.streams_blocked.contains(&DeliveryState::Due)
    }

    /// Releases unused memory.
    pub(crate) fn shrink(&mut self) {
        self.map.shrink_to_fit();
        self.shrink_classes();
        self.ready.retain(|_, class| !class.is_empty());
        for queue in [&mut self.resets, &mut self.blocked, &mut self.credit_blocked, &mut self.waiting] {
            queue.shrink();
        }
    }

    /// The number of sending parts that exist.
    pub(crate) fn open_count(&self) -> usize {
        self.map.len()
    }

    /// Bytes written and not acknowledged, over all streams.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.held_bytes
    }
}

//! The sending sides of streams: state, the peer's credit, and which stream goes next.
//!
//! What applications may write is in `room`, what the peer is told when its credit holds us back in `blocked`, what classes of
//! service allow in `classes`.

mod blocked;
mod classes;
mod room;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use wire::quic::{Dir, Side, StreamId};

use self::classes::{Classes, StreamClass};
use super::buffer::SendBuffer;
use crate::event::{Event, Events};
use crate::exchange::{Exchange, ToReceive};
use crate::queue::Queue;
use crate::stream_map::StreamMap;

/// Why bytes were not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteError {
    /// The send buffer is full: [`Event::Writable`] tells when to try again.
    Blocked,
    /// The peer asked us to stop sending, with this code.
    Stopped(u64),
    /// The stream was finished or reset, or never existed.
    Closed,
}

impl std::fmt::Display for WriteError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Blocked => f.write_str("the send buffer is full"),
            Self::Stopped(code) => write!(f, "the peer stopped reading this stream (code {code})"),
            Self::Closed => f.write_str("the stream is closed"),
        }
    }
}

impl std::error::Error for WriteError {}

/// Ready streams looked at to learn how much waits.
const READY_COUNTED_MAX: usize = 64;

/// A small state of its own for things that are sent once and repeated when lost: FIN and RESET_STREAM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Flag {
    #[default]
    Unset,
    /// To be sent.
    Due,
    /// Sent, not acknowledged.
    Sent,
    Acked,
}

/// The sending side of one stream (RFC 9000, section 3.1).
#[derive(Debug, Default)]
pub(crate) struct SendStream {
    pub(crate) buffer: SendBuffer,
    /// The peer takes no byte from this offset on (MAX_STREAM_DATA).
    pub(crate) max_data: u64,
    pub(crate) fin: Flag,
    /// RESET_STREAM, with its code.
    pub(crate) reset: Flag,
    pub(crate) reset_code: u64,
    /// The final size a reset states: what was sent at the time.
    pub(crate) reset_size: u64,
    /// The peer's STOP_SENDING code.
    stopped: Option<u64>,
    priority: i32,
    /// Its rate and its paths, if it has a class that says something of them.
    class: Option<Box<StreamClass>>,
    /// In the ready queue.
    ready: bool,
    /// In the queue of those that wait for the connection's allowance.
    capped: bool,
    /// In the queue of those that wait for the connection's credit.
    starved: bool,
    /// The application was told `Blocked` and waits for an event until this many bytes find room; zero if it does not wait.
    wanted_room: u64,
    /// The limit of the peer's that holds it back: told, and in [`SendStreams::limited`].
    blocked_at: Option<u64>,
}

impl SendStream {
    /// True if a STREAM frame could be sent now, connection credit aside.
    fn has_work(&self) -> bool {
        self.reset == Flag::Unset && (self.buffer.peek(self.max_data).is_some() || self.fin == Flag::Due)
    }

    /// Notes that its own credit is all that holds it back; true if that was not known.
    fn is_newly_limited(&mut self) -> bool {
        let waits = self.reset == Flag::Unset && self.buffer.unsent() < self.buffer.end();
        let is_new = waits && self.buffer.unsent() >= self.max_data && self.blocked_at.is_none();
        if is_new {
            self.blocked_at = Some(self.max_data);
        }
        is_new
    }

    fn is_open(&self) -> bool {
        self.fin == Flag::Unset && self.reset == Flag::Unset
    }

    /// It was given up: its bytes are gone.
    pub(crate) fn is_reset(&self) -> bool {
        self.reset != Flag::Unset
    }
}

/// All sending sides of a connection.
#[derive(Debug)]
pub(crate) struct SendStreams {
    side: Side,
    map: StreamMap<SendStream>,
    /// Streams with something to send, by priority, each class in turn.
    ready: BTreeMap<Reverse<i32>, VecDeque<StreamId>>,
    /// Streams whose RESET_STREAM is due.
    resets: Queue<StreamId>,
    /// Streams whose STREAM_DATA_BLOCKED is due.
    blocked: Queue<StreamId>,
    /// Streams that their own credit holds back.
    limited: BTreeSet<StreamId>,
    /// Streams held back by the connection's credit alone.
    starved: Queue<StreamId>,
    /// Streams whose application waits for room.
    waiting: Queue<StreamId>,
    next_index: [u64; 2],
    /// How many streams of each kind the peer lets us open (MAX_STREAMS).
    max_streams: [u64; 2],
    /// A STREAMS_BLOCKED is due; the limit it was last said for.
    streams_blocked: [Flag; 2],
    streams_blocked_at: [Option<u64>; 2],
    /// The peer's credit for all streams together (MAX_DATA) and what of it is used.
    max_data: u64,
    data_sent: u64,
    data_blocked: Flag,
    data_blocked_at: Option<u64>,
    /// Initial credit by who opened the stream: peer's parameters.
    initial_bidi_local: u64,
    initial_bidi_remote: u64,
    initial_uni: u64,
    /// What classes of service need, from the first limit on.
    classes: Option<Box<Classes>>,
    /// Bytes held in all buffers, and how many may be.
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
            starved: Queue::new(),
            waiting: Queue::new(),
            next_index: [0; 2],
            max_streams: [0; 2],
            streams_blocked: [Flag::Unset; 2],
            streams_blocked_at: [None; 2],
            max_data: 0,
            data_sent: 0,
            data_blocked: Flag::Unset,
            data_blocked_at: None,
            initial_bidi_local: 0,
            initial_bidi_remote: 0,
            initial_uni: 0,
            classes: None,
            held_bytes: 0,
            held_bytes_max,
        }
    }

    /// The peer's transport parameters: its first credit.
    pub(crate) fn set_peer_limits(&mut self, peer: &wire::quic::TransportParameters, events: &mut Events) {
        // The peer's "local" streams are those it opens, our "remote" ones (RFC 9000, section 18.2).
        self.initial_bidi_remote = peer.initial_max_stream_data_bidi_local;
        self.initial_bidi_local = peer.initial_max_stream_data_bidi_remote;
        self.initial_uni = peer.initial_max_stream_data_uni;
        self.raise_max_data(peer.initial_max_data);
        self.raise_max_streams(Dir::Bi, peer.initial_max_streams_bidi, events);
        self.raise_max_streams(Dir::Uni, peer.initial_max_streams_uni, events);
    }

    fn initial_credit(&self, id: StreamId) -> u64 {
        match (id.dir(), id.initiator() == self.side) {
            (Dir::Uni, _) => self.initial_uni,
            (Dir::Bi, true) => self.initial_bidi_local,
            (Dir::Bi, false) => self.initial_bidi_remote,
        }
    }

    /// Opens the next stream, if the peer allows another.
    pub(crate) fn open(&mut self, dir: Dir, exchange: &mut Exchange) -> Option<StreamId> {
        let kind = dir.index();
        if self.next_index[kind] >= self.max_streams[kind] {
            if self.streams_blocked_at[kind] != Some(self.max_streams[kind]) {
                self.streams_blocked_at[kind] = Some(self.max_streams[kind]);
                self.streams_blocked[kind] = Flag::Due;
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

    /// Streams that may be opened before the peer allows more.
    pub(crate) fn left(&self, dir: Dir) -> u64 {
        self.max_streams[dir.index()].saturating_sub(self.next_index[dir.index()])
    }

    /// The peer opened a bidirectional stream: we may answer on it.
    pub(crate) fn peer_opened(&mut self, id: StreamId) {
        self.map.insert(id, SendStream { max_data: self.initial_credit(id), ..SendStream::default() });
    }

    /// True if a frame about `id` makes sense: it exists or has existed (RFC 9000, section 19.10).
    pub(crate) fn was_opened(&self, id: StreamId) -> bool {
        id.initiator() != self.side || id.index() < self.next_index[id.dir().index()]
    }

    /// Ends the stream after what was written.
    pub(crate) fn finish(&mut self, id: StreamId) -> Result<(), WriteError> {
        let stream = self.map.get_mut(&id).ok_or(WriteError::Closed)?;
        if let Some(code) = stream.stopped {
            return Err(WriteError::Stopped(code));
        }
        if !stream.is_open() {
            return Err(WriteError::Closed);
        }
        stream.fin = Flag::Due;
        self.make_ready(id);
        Ok(())
    }

    /// Gives the stream up: nothing more is sent or repeated but the RESET_STREAM itself.
    pub(crate) fn reset(&mut self, id: StreamId, code: u64, events: &mut Events) -> Result<(), WriteError> {
        let stream = self.map.get_mut(&id).ok_or(WriteError::Closed)?;
        // Once all data and the FIN are acknowledged there is nothing to give up (RFC 9000, section 3.1).
        if stream.reset != Flag::Unset {
            return Err(WriteError::Closed);
        }
        stream.reset = Flag::Due;
        stream.reset_code = code;
        stream.reset_size = stream.buffer.unsent();
        self.held_bytes -= stream.buffer.held_bytes();
        stream.buffer.discard();
        if stream.blocked_at.take().is_some() {
            self.limited.remove(&id);
        }
        self.resets.push_back(id);
        if stream.capped {
            // Others waited because it did.
            self.uncap();
        }
        self.wake_writers(events);
        Ok(())
    }

    /// Streams of a higher number go first; equal ones take turns. Zero if never set.
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
        if stream.capped {
            self.uncap();
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

    /// The stream whose turn it is, with the offset it may send up to. Streams that turn out to be held back leave the
    /// queue, and the frames that tell the peer so become due.
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
            let restraint = match &mut self.classes {
                Some(classes) if !stream.is_reset() => classes.restrain(stream, &mut limit),
                _ => None,
            };
            let fin_alone = stream.fin == Flag::Due && stream.buffer.unsent() == stream.buffer.end();
            let has_work = stream.reset == Flag::Unset && (stream.buffer.peek(limit).is_some() || fin_alone);
            if has_work && restraint.is_none() {
                return Some((id, limit));
            }
            class.get_mut().pop_front();
            stream.ready = false;
            if let Some(restraint) = restraint {
                self.restrain(id, restraint);
                continue;
            }
            if stream.reset != Flag::Unset || stream.buffer.unsent() == stream.buffer.end() {
                continue;
            }
            if stream.is_newly_limited() {
                self.limited.insert(id);
                self.blocked.push_back(id);
            } else if stream.blocked_at.is_none() {
                if !std::mem::replace(&mut stream.starved, true) {
                    self.starved.push_back(id);
                }
                if self.data_blocked_at != Some(self.max_data) {
                    self.data_blocked_at = Some(self.max_data);
                    self.data_blocked = Flag::Due;
                }
            }
        }
    }

    /// Bytes that the stream whose turn it is may send, if no other stream has its turn after it and its end is not due.
    pub(crate) fn only_ready_len(&mut self) -> Option<u64> {
        let (id, limit) = self.next_ready()?;
        let is_only = self.ready.len() == 1 && self.ready.values().all(|class| class.len() == 1);
        // What a class holds back is none: a caller that waits for more would wait for what has waited long enough.
        let is_free = self.classes.is_none();
        let stream = self.map.get(&id).filter(|stream| is_free && is_only && stream.fin != Flag::Due)?;
        stream.buffer.peek(limit).map(|due| due.end - due.start)
    }

    /// Bytes that could be sent now, over the first few of the streams that are ready: enough to tell a tail from bulk.
    pub(crate) fn ready_bytes(&self) -> u64 {
        let credit = self.max_data - self.data_sent;
        let streams = self.ready.values().flatten().take(READY_COUNTED_MAX).filter_map(|id| self.map.get(id));
        streams.map(|stream| stream.ready_bytes(credit)).sum()
    }

    /// Bytes of the most urgent streams that are ready, of the first few of them; none if one of these is in the background. What holds
    /// them back is not looked at.
    pub(crate) fn urgent_bytes(&self) -> u64 {
        let credit = self.max_data - self.data_sent;
        let Some(urgent) = self.ready.values().find(|class| !class.is_empty()) else { return 0 };
        let mut streams = urgent.iter().take(READY_COUNTED_MAX).filter_map(|id| self.map.get(id));
        streams
            .try_fold(0, |bytes, stream| (!stream.is_background()).then(|| bytes + stream.ready_bytes(credit)))
            .unwrap_or(0)
    }

    /// Applications wait for room: more will follow.
    pub(crate) fn has_waiting_writers(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// True if a STREAM frame could be sent now.
    pub(crate) fn has_ready(&mut self) -> bool {
        self.next_ready().is_some()
    }

    /// Lets the next stream of the same priority have its turn.
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

    /// What stream `id` has to send, without its last packet if that carries a FIN.
    pub(crate) fn peek_bulk(&self, id: StreamId, limit: u64) -> Option<std::ops::Range<u64>> {
        let stream = self.map.get(&id)?;
        let due = stream.buffer.peek(limit)?;
        let ends = stream.fin == Flag::Due && due.end == stream.buffer.end();
        Some(due.start..due.end - u64::from(ends))
    }

    /// Takes `len` bytes of what [`peek_bulk`](Self::peek_bulk) showed.
    pub(crate) fn take_bulk(&mut self, id: StreamId, limit: u64, len: u64) -> std::ops::Range<u64> {
        let (range, fin) = self.take(id, limit, len);
        debug_assert!(!fin && range.end - range.start == len, "no more is taken than was shown");
        range
    }

    /// Takes up to `len` bytes of stream `id` for sending, and whether the FIN goes with them.
    pub(crate) fn take(&mut self, id: StreamId, limit: u64, len: u64) -> (std::ops::Range<u64>, bool) {
        let stream = self.map.get_mut(&id).expect("a ready stream exists");
        let unsent = stream.buffer.unsent();
        let range = stream.buffer.take(limit, len).unwrap_or(unsent..unsent);
        let new_bytes = stream.buffer.unsent() - unsent;
        self.data_sent += new_bytes;
        if let Some(classes) = &mut self.classes {
            classes.on_taken(stream, new_bytes);
        }
        let fin = stream.fin == Flag::Due && range.end == stream.buffer.end();
        if fin {
            stream.fin = Flag::Sent;
        }
        (range, fin)
    }

    /// The peer has these bytes.
    pub(crate) fn on_acked(
        &mut self,
        id: StreamId,
        range: std::ops::Range<u64>,
        fin: bool,
        exchange: &mut Exchange,
        events: &mut Events,
    ) {
        let Some(stream) = self.map.get_mut(&id) else { return };
        if stream.reset != Flag::Unset {
            return;
        }
        let before = stream.buffer.held_bytes();
        stream.buffer.acknowledge(range);
        self.held_bytes -= before - stream.buffer.held_bytes();
        if fin {
            stream.fin = Flag::Acked;
        }
        if stream.fin == Flag::Acked && stream.buffer.is_fully_acked() {
            events.push(Event::Finished(id));
            self.retire(id, exchange);
        }
        self.wake_writers(events);
    }

    /// These bytes have to be sent again.
    pub(crate) fn on_lost(&mut self, id: StreamId, range: std::ops::Range<u64>, fin: bool) {
        let Some(stream) = self.map.get_mut(&id) else { return };
        if stream.reset != Flag::Unset {
            return;
        }
        stream.buffer.lose(range);
        if fin && stream.fin == Flag::Sent {
            stream.fin = Flag::Due;
        }
        self.make_ready(id);
    }

    pub(crate) fn on_reset_acked(&mut self, id: StreamId, exchange: &mut Exchange) {
        if self.map.get(&id).is_some_and(|stream| stream.reset != Flag::Unset) {
            self.retire(id, exchange);
        }
    }

    pub(crate) fn on_reset_lost(&mut self, id: StreamId) {
        if let Some(stream) = self.map.get_mut(&id)
            && stream.reset == Flag::Sent
        {
            stream.reset = Flag::Due;
            self.resets.push_back(id);
        }
    }

    /// The sending side is done for good.
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

    /// MAX_DATA.
    pub(crate) fn raise_max_data(&mut self, max: u64) {
        if max <= self.max_data {
            return;
        }
        self.max_data = max;
        while let Some(id) = self.starved.pop_front() {
            if let Some(stream) = self.map.get_mut(&id) {
                stream.starved = false;
            }
            self.make_ready(id);
        }
    }

    /// MAX_STREAM_DATA.
    pub(crate) fn raise_max_stream_data(&mut self, id: StreamId, max: u64) {
        if let Some(stream) = self.map.get_mut(&id)
            && max > stream.max_data
        {
            stream.max_data = max;
            if stream.blocked_at.take().is_some() {
                self.limited.remove(&id);
            }
            self.make_ready(id);
        }
    }

    /// MAX_STREAMS.
    pub(crate) fn raise_max_streams(&mut self, dir: Dir, max: u64, events: &mut Events) {
        let limit = &mut self.max_streams[dir.index()];
        if max > *limit {
            *limit = max;
            events.push(Event::StreamsAvailable(dir));
        }
    }

    /// STOP_SENDING: answered with a RESET_STREAM of the same code (RFC 9000, section 3.5).
    pub(crate) fn on_stop_sending(&mut self, id: StreamId, code: u64, events: &mut Events) {
        let Some(stream) = self.map.get_mut(&id) else { return };
        if stream.stopped.is_some() {
            return;
        }
        stream.stopped = Some(code);
        events.push(Event::Stopped { id, code });
        // Already reset, or everything is out and only acknowledgements are missing: a reset would say nothing new, but it
        // is what lets a peer that discards our data forget the stream.
        let _already_reset = self.reset(id, code, events);
    }

    /// The next RESET_STREAM that is due.
    pub(crate) fn pop_reset(&mut self) -> Option<(StreamId, u64, u64)> {
        while let Some(id) = self.resets.pop_front() {
            if let Some(stream) = self.map.get_mut(&id)
                && stream.reset == Flag::Due
            {
                stream.reset = Flag::Sent;
                return Some((id, stream.reset_code, stream.reset_size));
            }
        }
        None
    }

    /// True if a frame other than STREAM is due.
    pub(crate) fn has_control_due(&self) -> bool {
        !self.resets.is_empty()
            || !self.blocked.is_empty()
            || self.data_blocked == Flag::Due
            || self.streams_blocked.contains(&Flag::Due)
    }

    /// Frees room that is not used.
    pub(crate) fn shrink(&mut self) {
        self.map.shrink_to_fit();
        self.shrink_classes();
        self.ready.retain(|_, class| !class.is_empty());
        for queue in [&mut self.resets, &mut self.blocked, &mut self.starved, &mut self.waiting] {
            queue.shrink();
        }
    }

    /// Sending sides that exist.
    pub(crate) fn open_count(&self) -> usize {
        self.map.len()
    }

    /// Bytes written and not acknowledged, over all streams.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.held_bytes
    }
}

//! The receiving sides of streams: reassembly, final sizes and credit.

use units::{Duration, Instant};
use wire::quic::{Dir, ErrorCode, Side, StreamId};

use super::assembler::{Assembler, Pending};
use super::window::Window;
use crate::config::TransportConfig;
use crate::error::TransportError;
use crate::event::{Event, Events};
use crate::exchange::{Exchange, ToSend};
use crate::queue::Queue;
use crate::send::frames::ControlFrame;
use crate::stream_map::StreamMap;
use crate::strided_bytes::StridedBytes;

/// Unread chunks kept as references into receive buffers, over all streams; further ones are
/// copied. However the peer mixes streams and padding, they keep at most this many buffers (of 64
/// KiB) alive.
const REFERENCES_MAX: usize = 512;

/// The connection's window is kept at least this many times as large as any stream's, so that one
/// stream that is not read cannot use all of it.
const CONNECTION_TO_STREAM: u64 = 2;

/// Why nothing could be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReadError {
    /// Nothing has arrived: [`Event::Readable`] reports when to try again.
    Blocked,
    /// The peer reset the stream, with this code. Returned once; the stream is over then.
    Reset(u64),
    /// The stream was read to its end, stopped, or never existed.
    Closed,
}

impl std::fmt::Display for ReadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Blocked => {
                f.write_str("nothing has arrived from the peer yet: read again when the stream is readable")
            }
            Self::Reset(code) => write!(f, "the peer reset this stream (code {code})"),
            Self::Closed => f.write_str("this side has read the stream to its end or stopped it, or it never existed"),
        }
    }
}

impl std::error::Error for ReadError {}

/// The result of a read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Chunk {
    /// The next bytes, never empty.
    Bytes(StridedBytes),
    /// The end of the stream. Returned once; the stream is over then.
    End,
}

/// The receiving side of one stream (RFC 9000, section 3.2).
#[derive(Debug)]
struct RecvStream {
    assembler: Assembler,
    window: Window,
    /// The offset after the last byte received, which counts against credit.
    highest: u64,
    final_size: Option<u64>,
    /// The peer's RESET_STREAM code.
    reset: Option<u64>,
    /// We sent STOP_SENDING: data that arrives is dropped.
    stopped: bool,
    /// [`Event::Readable`] was pushed, and the application has not read the stream empty since.
    is_reported: bool,
}

/// All receiving sides of a connection.
#[derive(Debug)]
pub(crate) struct RecvStreams {
    side: Side,
    map: StreamMap<RecvStream>,
    /// Bidirectional streams the peer opened whose sending side is still ours to use.
    half_open: StreamMap<()>,
    /// Streams the peer opened and the application has not accepted.
    accept: [Queue<StreamId>; 2],
    /// How many streams the peer has opened, its limit, how many of them are over, and how many may
    /// be open at a time.
    peer_next: [u64; 2],
    peer_limit: [u64; 2],
    peer_done: [u64; 2],
    peer_limit_open: [u64; 2],
    /// How many streams we have opened, to distinguish a stream that is over from one that never
    /// existed.
    local_next: [u64; 2],
    window: Window,
    /// Bytes received over all streams, and bytes read or dropped.
    received: u64,
    consumed: u64,
    round_trip: Duration,
    /// Out-of-order chunks of all streams.
    pending: Pending,
    /// Chunks of all streams that keep a receive buffer alive.
    references: usize,
    stream_window: u64,
    stream_window_max: u64,
}

impl RecvStreams {
    pub(crate) fn new(side: Side, config: &TransportConfig) -> Self {
        let limits = [config.max_concurrent_bidi_streams, config.max_concurrent_uni_streams];
        Self {
            side,
            map: StreamMap::default(),
            half_open: StreamMap::default(),
            accept: [Queue::new(), Queue::new()],
            peer_next: [0; 2],
            peer_limit: limits,
            peer_done: [0; 2],
            peer_limit_open: limits,
            local_next: [0; 2],
            window: Window::new(config.connection_window, config.connection_window_max),
            received: 0,
            consumed: 0,
            round_trip: config.initial_rtt,
            pending: Pending::default(),
            references: 0,
            stream_window: config.stream_window,
            stream_window_max: config.stream_window_max.min(config.connection_window_max / CONNECTION_TO_STREAM),
        }
    }

    /// Forgets the streams that we have opened. Nothing was received on them: a client receives
    /// streams only once the handshake is complete.
    pub(crate) fn forget_local(&mut self) {
        debug_assert_eq!(self.received, 0, "no peer sends streams before the handshake is complete");
        self.map = StreamMap::default();
        self.local_next = [0; 2];
    }

    pub(crate) fn set_round_trip(&mut self, round_trip: Duration) {
        self.round_trip = round_trip;
    }

    fn create(&mut self, id: StreamId) {
        let stream = RecvStream {
            assembler: Assembler::default(),
            window: Window::new(self.stream_window, self.stream_window_max),
            highest: 0,
            final_size: None,
            reset: None,
            stopped: false,
            is_reported: false,
        };
        self.map.insert(id, stream);
    }

    /// We opened a bidirectional stream.
    pub(crate) fn local_opened(&mut self, id: StreamId) {
        self.local_next[id.dir().index()] = self.local_next[id.dir().index()].max(id.index() + 1);
        self.create(id);
    }

    /// A frame names `id` as a stream that the peer sends on. This may open streams; fails if the
    /// peer may not send on it.
    pub(crate) fn touch(
        &mut self,
        id: StreamId,
        exchange: &mut Exchange,
        events: &mut Events,
    ) -> Result<(), TransportError> {
        let dir = id.dir();
        if id.initiator() == self.side {
            if dir == Dir::Uni || id.index() >= self.local_next[dir.index()] {
                return Err(TransportError::new(
                    ErrorCode::STREAM_STATE_ERROR,
                    "data on a stream the peer cannot send on",
                ));
            }
            return Ok(());
        }
        if id.index() >= self.peer_limit[dir.index()] {
            return Err(TransportError::new(ErrorCode::STREAM_LIMIT_ERROR, "more streams opened than allowed"));
        }
        // Opening a stream opens all of its kind with lower numbers (RFC 9000, section 3.2).
        while self.peer_next[dir.index()] <= id.index() {
            let opened = StreamId::new(self.side.peer(), dir, self.peer_next[dir.index()]);
            self.peer_next[dir.index()] += 1;
            self.create(opened);
            if dir == Dir::Bi {
                self.half_open.insert(opened, ());
                exchange.to_send.push_back(ToSend::PeerOpened(opened));
            }
            self.accept[dir.index()].push_back(opened);
            events.push(Event::Opened(dir));
        }
        Ok(())
    }

    /// A frame about our sending side of `id`, such as MAX_STREAM_DATA, may open streams, too.
    pub(crate) fn touch_sending(
        &mut self,
        id: StreamId,
        exchange: &mut Exchange,
        events: &mut Events,
    ) -> Result<(), TransportError> {
        if id.initiator() == self.side {
            // The send half knows whether we ever opened it, and ignores streams that are over.
            return Ok(());
        }
        if id.dir() == Dir::Uni {
            return Err(TransportError::new(ErrorCode::STREAM_STATE_ERROR, "a frame for a stream that only receives"));
        }
        self.touch(id, exchange, events)
    }

    /// DATA_BLOCKED: the peer has used all the credit of the connection.
    pub(crate) fn on_data_blocked(&mut self, limit: u64, exchange: &mut Exchange) {
        if let Some(max) = self.window.on_blocked(limit, self.consumed) {
            exchange.to_send.push_back(ToSend::GrantData(max));
        }
    }

    /// STREAM_DATA_BLOCKED: the peer has used all the credit of a stream, which the frame may open
    /// (RFC 9000, section 19.13).
    pub(crate) fn on_stream_data_blocked(
        &mut self,
        id: StreamId,
        limit: u64,
        exchange: &mut Exchange,
        events: &mut Events,
    ) -> Result<(), TransportError> {
        self.touch(id, exchange, events)?;
        if let Some(stream) = self.map.get_mut(&id)
            && stream.final_size.is_none()
            && let Some(max) = stream.window.on_blocked(limit, stream.assembler.read_offset())
        {
            exchange.to_send.push_back(ToSend::GrantStreamData { id, max });
        }
        Ok(())
    }

    /// The next stream the peer opened.
    pub(crate) fn accept(&mut self, dir: Dir) -> Option<StreamId> {
        self.accept[dir.index()].pop_front()
    }

    /// STREAM.
    #[expect(
        clippy::too_many_arguments,
        reason = "one frame's fields and its context; a struct would only rename them"
    )]
    pub(crate) fn on_data(
        &mut self,
        now: Instant,
        id: StreamId,
        offset: u64,
        data: StridedBytes,
        fin: bool,
        exchange: &mut Exchange,
        events: &mut Events,
    ) -> Result<(), TransportError> {
        self.touch(id, exchange, events)?;
        let Some(stream) = self.map.get_mut(&id) else { return Ok(()) };
        let end = offset + data.len() as u64;
        stream.check_final_size(end, fin)?;
        let fresh = end.saturating_sub(stream.highest);
        if end > stream.window.granted() || self.received + fresh > self.window.granted() {
            return Err(TransportError::new(ErrorCode::FLOW_CONTROL_ERROR, "more stream data than allowed"));
        }
        self.received += fresh;
        stream.highest = stream.highest.max(end);
        if fin && stream.final_size.is_none() {
            stream.final_size = Some(end);
            exchange.to_send.push_back(ToSend::ForgetGrant(id));
        }
        if stream.reset.is_some() {
            return Ok(());
        }
        if stream.stopped {
            let done = stream.final_size.is_some();
            self.consume(now, fresh, exchange);
            if done {
                self.retire(id, exchange);
            }
            return Ok(());
        }
        let before = stream.assembler.pending();
        let references = stream.assembler.references();
        stream.assembler.insert(offset, data, self.references < REFERENCES_MAX);
        self.references = self.references + stream.assembler.references() - references;
        self.pending.update(before, stream.assembler.pending()).map_err(|_| {
            TransportError::new(ErrorCode::INTERNAL_ERROR, "streams arrived in too many small pieces out of order")
        })?;
        if !stream.is_reported && stream.is_readable() {
            stream.is_reported = true;
            events.push(Event::Readable(id));
        }
        Ok(())
    }

    /// RESET_STREAM.
    pub(crate) fn on_reset(
        &mut self,
        now: Instant,
        id: StreamId,
        code: u64,
        final_size: u64,
        exchange: &mut Exchange,
        events: &mut Events,
    ) -> Result<(), TransportError> {
        self.touch(id, exchange, events)?;
        let Some(stream) = self.map.get_mut(&id) else { return Ok(()) };
        stream.check_final_size(final_size, true)?;
        let fresh = final_size - stream.highest;
        if final_size > stream.window.granted() || self.received + fresh > self.window.granted() {
            return Err(TransportError::new(ErrorCode::FLOW_CONTROL_ERROR, "a reset beyond the stream's credit"));
        }
        // Everything has arrived already: the reset changes nothing (RFC 9000, section 3.2, "Data
        // Recvd").
        if stream.reset.is_some() || stream.final_size.is_some_and(|size| stream.assembler.ready_end() == size) {
            return Ok(());
        }
        self.received += fresh;
        stream.highest = final_size;
        stream.final_size = Some(final_size);
        stream.reset = Some(code);
        let unread = if stream.stopped { fresh } else { final_size - stream.assembler.read_offset() };
        self.pending.remove(stream.assembler.pending());
        self.references -= stream.assembler.references();
        stream.assembler.discard();
        let (stopped, was_reported) = (stream.stopped, std::mem::replace(&mut stream.is_reported, true));
        exchange.to_send.push_back(ToSend::ForgetGrant(id));
        if stopped {
            self.retire(id, exchange);
        } else if !was_reported {
            events.push(Event::Readable(id));
        }
        self.consume(now, unread, exchange);
        Ok(())
    }

    /// Takes the next bytes of a stream, at most `len`.
    // Always inlined, so that a chunk of ten words is written to its final place and not copied.
    #[inline(always)]
    pub(crate) fn read(
        &mut self,
        now: Instant,
        id: StreamId,
        len: usize,
        exchange: &mut Exchange,
    ) -> Result<Chunk, ReadError> {
        let stream = self.map.get_mut(&id).ok_or(ReadError::Closed)?;
        if stream.stopped {
            return Err(ReadError::Closed);
        }
        if let Some(code) = stream.reset {
            self.retire(id, exchange);
            return Err(ReadError::Reset(code));
        }
        if !stream.assembler.is_ready() {
            if stream.final_size == Some(stream.assembler.read_offset()) {
                self.retire(id, exchange);
                return Ok(Chunk::End);
            }
            stream.is_reported = false;
            return Err(ReadError::Blocked);
        }
        let references = stream.assembler.references();
        let bytes = stream.assembler.read(len).expect("it has bytes that can be read");
        self.references -= references - stream.assembler.references();
        if stream.final_size.is_none()
            && let Some(max) = stream.window.on_consumed(now, stream.assembler.read_offset(), self.round_trip)
        {
            exchange.to_send.push_back(ToSend::GrantStreamData { id, max });
            // If this stream is not read from now on, the others must still have credit.
            self.window.grow_to(stream.window.size().saturating_mul(CONNECTION_TO_STREAM));
        }
        self.consume(now, bytes.len() as u64, exchange);
        Ok(Chunk::Bytes(bytes))
    }

    /// Asks the peer to stop sending; data that still arrives is dropped.
    pub(crate) fn stop(
        &mut self,
        now: Instant,
        id: StreamId,
        code: u64,
        exchange: &mut Exchange,
    ) -> Result<(), ReadError> {
        let stream = self.map.get_mut(&id).filter(|stream| !stream.stopped).ok_or(ReadError::Closed)?;
        stream.stopped = true;
        let unread = if stream.reset.is_some() { 0 } else { stream.highest - stream.assembler.read_offset() };
        let over = stream.final_size.is_some();
        self.pending.remove(stream.assembler.pending());
        self.references -= stream.assembler.references();
        stream.assembler.discard();
        self.consume(now, unread, exchange);
        if over {
            self.retire(id, exchange);
        } else {
            exchange.to_send.push_back(ToSend::ForgetGrant(id));
            exchange.to_send.push_back(ToSend::Control(ControlFrame::StopSending { id, code }));
        }
        Ok(())
    }

    fn consume(&mut self, now: Instant, bytes: u64, exchange: &mut Exchange) {
        self.consumed += bytes;
        if let Some(max) = self.window.on_consumed(now, self.consumed, self.round_trip) {
            exchange.to_send.push_back(ToSend::GrantData(max));
        }
    }

    /// The receiving side is over.
    fn retire(&mut self, id: StreamId, exchange: &mut Exchange) {
        if self.map.remove(&id).is_some() && id.initiator() != self.side && !self.half_open.contains_key(&id) {
            self.on_peer_stream_done(id.dir(), exchange);
        }
    }

    /// Our sending side of `id` is over.
    pub(crate) fn send_side_done(&mut self, id: StreamId, exchange: &mut Exchange) {
        if self.half_open.remove(&id).is_some() && !self.map.contains_key(&id) {
            self.on_peer_stream_done(id.dir(), exchange);
        }
    }

    /// A stream of the peer is over on both sides: the peer may open another.
    fn on_peer_stream_done(&mut self, dir: Dir, exchange: &mut Exchange) {
        let kind = dir.index();
        self.peer_done[kind] += 1;
        let limit = self.peer_done[kind] + self.peer_limit_open[kind];
        // In steps, so that a thousand short streams do not need a thousand frames.
        let step = (self.peer_limit_open[kind] / 8).max(1);
        if limit >= self.peer_limit[kind] + step {
            self.peer_limit[kind] = limit.min(StreamId::COUNT_MAX);
            exchange.to_send.push_back(ToSend::GrantStreams { dir, max: self.peer_limit[kind] });
        }
    }

    /// Frees unused memory.
    pub(crate) fn shrink(&mut self) {
        self.map.shrink_to_fit();
        self.half_open.shrink_to_fit();
        self.accept.iter_mut().for_each(Queue::shrink);
    }

    /// The number of receiving sides.
    pub(crate) fn open_count(&self) -> usize {
        self.map.len()
    }
}

impl RecvStream {
    /// RFC 9000, section 4.5: the final size never changes and nothing lies beyond it.
    fn check_final_size(&self, end: u64, is_final: bool) -> Result<(), TransportError> {
        let broken = match self.final_size {
            Some(size) => end > size || (is_final && end != size),
            None => is_final && end < self.highest,
        };
        if broken {
            return Err(TransportError::new(ErrorCode::FINAL_SIZE_ERROR, "a stream's final size changed"));
        }
        Ok(())
    }

    fn is_readable(&self) -> bool {
        self.assembler.is_ready() || self.final_size == Some(self.assembler.read_offset())
    }
}

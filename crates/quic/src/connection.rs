//! One connection: three owners, and the calls a driver makes. What arrives is in `arrival`, what is about paths in `paths`,
//! what only asks in `questions`.

mod apart;
mod arrival;
mod journal;
mod lease;
mod paths;
mod questions;
mod script;
mod unsealed;

use std::sync::Arc;

use apart::Apart;
use bytes::{Bytes, BytesMut};
use units::{Instant, Rng};
use wire::quic::{Dir, ErrorCode, PathId, Side, Space, StreamId};

use crate::class::{Class, PathSet, RateLimit};
use crate::config::TransportConfig;
use crate::control::{Beginning, Control, RouteChange};
use crate::earliest::Earliest;
use crate::error::TransportError;
use crate::event::{Event, Events};
use crate::exchange::Exchange;
use crate::journal::Journal;
use crate::journal::format::tag;
use crate::journal::outcome::Answer;
use crate::open::OpenJob;
use crate::plan::{Plan, Receipt};
use crate::receive::ReceiveHalf;
use crate::receive::streams::{Chunk, ReadError};
use crate::rest::{Due, RestTimer};
use crate::send::path::{Addresses, SendPath};
use crate::send::streams::WriteError;
use crate::send::{SendDatagramError, SendHalf};
use crate::watched::Watched;

pub use self::lease::{LeaseTerms, OpenLease};

/// Packets kept because their keys are not there yet: a reordered flight, not more.
const EARLY_PACKETS_MAX: usize = 16;

/// The most bytes taken by one write: what a stage must be able to hold by reference, and a bound on how far the send
/// buffer can be overfilled.
pub const WRITE_LEN_MAX: usize = 1 << 20;

/// Memory that datagrams arrived in: packets are opened in place, and what the application reads are references into it.
pub trait ReceiveBuffer {
    /// The datagrams.
    fn bytes_mut(&mut self) -> &mut [u8];

    /// The same bytes, shared from now on.
    fn freeze(self) -> Bytes;
}

impl ReceiveBuffer for BytesMut {
    fn bytes_mut(&mut self) -> &mut [u8] {
        self
    }

    fn freeze(self) -> Bytes {
        Self::freeze(self)
    }
}

/// A QUIC connection, either role, as a state machine without IO.
///
/// # The contract
///
/// There are four kinds of calls.
///
/// - **Input**, with the time: [`handle_datagrams`](Self::handle_datagrams) or, to open on another processor,
///   [`begin_open`](Self::begin_open) and [`handle_opened`](Self::handle_opened), or with a [lease](Self::lend_opening)
///   [`handle_opened_there`](Self::handle_opened_there); [`handle_timeout`](Self::handle_timeout),
///   [`handle_emitted`](Self::handle_emitted), [`handle_not_emitted`](Self::handle_not_emitted).
/// - **Output**, to be polled until empty after every input and every call of the application, in this order:
///   [`poll_route`](Self::poll_route), [`poll_event`](Self::poll_event), [`poll_plan`](Self::poll_plan), and last
///   [`poll_timeout`](Self::poll_timeout), which has no side effects.
/// - **The application's calls**: streams, datagrams, [`close`](Self::close).
/// - **Questions**: [`stats`](Self::stats) and what takes `&self`.
///
/// Time never goes backwards. Spurious calls are harmless: an early `handle_timeout` does nothing.
///
/// A driver handles a plan like this: [`seal`](crate::seal::seal) it (on any processor), report
/// [`handle_emitted`](Self::handle_emitted), then make the system call; so no acknowledgement can overtake the report. If
/// the system refuses the batch for good, [`handle_not_emitted`](Self::handle_not_emitted) makes its content due again
/// without counting a loss. Plans are pulled: ask for one only when it can leave within about a millisecond.
///
/// Once [`is_closed`](Self::is_closed), forget the connection.
pub struct Connection {
    side: Side,
    control: Control,
    send: Watched,
    /// What has arrived; what stands in for it while it is elsewhere.
    receive: ReceiveHalf,
    /// While the receive half is on another processor.
    apart: Option<Box<Apart>>,
    exchange: Exchange,
    events: Events,
    /// Memory for what is opened here, unless it is in use or the connection rests.
    scratch: Option<Box<OpenJob>>,
    /// Packets whose keys are not there yet.
    early: Vec<BytesMut>,
    /// Authentic packets were received: a client takes no Version Negotiation any more (RFC 9000, section 6.2).
    heard: bool,
    /// Packets that failed to authenticate, against the AEAD's integrity limit (RFC 9001, section 6.6).
    unauthentic_count: u64,
    integrity_limit: u64,
    rest: RestTimer,
    /// Where all inputs are written down, if somebody wants them.
    journal: Option<Box<Journal>>,
}

/// What a connection is made of; the [`Endpoint`](crate::endpoint::Endpoint) knows how to fill it.
pub(crate) struct ConnectionSeed {
    pub(crate) config: Arc<TransportConfig>,
    pub(crate) addresses: Addresses,
    pub(crate) beginning: Beginning,
    pub(crate) seal: crate::session::DirectionKeys,
    /// Of its generator.
    pub(crate) seed: u64,
}

impl Connection {
    pub(crate) fn new(now: Instant, seed: ConnectionSeed) -> Self {
        let journal = Journal::begin(now, &seed);
        let ConnectionSeed { config, addresses, mut beginning, seal, seed } = seed;
        if journal.is_some() {
            beginning.session = beginning.session.noted();
        }
        let rng = Rng::from_seed(seed);
        let side = beginning.side;
        let path = SendPath::new(
            PathId::ZERO,
            addresses,
            beginning.remote_id,
            &config,
            side == Side::Client,
            &rng.split("path"),
        );
        let mut send = SendHalf::new(side, config.clone(), beginning.local_id, path, rng);
        send.install_keys(Space::Initial, seal);
        let receive = ReceiveHalf::new(side, &config);
        let integrity_limit = beginning.initial.packet.integrity_limit();
        let rest = RestTimer::new(config.park_after);
        let control = Control::new(now, config, beginning);
        let mut connection = Self {
            side,
            control,
            send: Watched::new(send),
            receive,
            apart: None,
            exchange: Exchange::default(),
            events: Events::default(),
            scratch: None,
            early: Vec::new(),
            heard: false,
            unauthentic_count: 0,
            integrity_limit,
            rest,
            journal,
        };
        connection.control.start(&mut connection.exchange);
        connection.settle(now);
        connection
    }

    // ── Input ────────────────────────────────────────────────────────────────────────────────────────────────────────

    /// Does what is due at `now`.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.note(|journal| journal.timeout(now));
        self.on_timeout(now);
    }

    /// [`handle_timeout`](Self::handle_timeout), where nobody need write it down.
    fn on_timeout(&mut self, now: Instant) {
        if let Some(apart) = &mut self.apart {
            // Keys and paths go by timers.
            apart.is_lens_stale |= self.control.timeout().is_some_and(|at| at <= now);
        }
        self.control.on_timeout(now, &mut self.exchange, &mut self.events);
        if self.control.is_open() {
            self.send.on_timeout(now, &mut self.exchange);
            self.receive.on_timeout(now);
        }
        self.settle(now);
        match self.rest.on_timeout(now, self.control.is_confirmed()) {
            Some(Due::Rest) => self.shrink(),
            Some(Due::Park) => {
                self.control.park();
                self.shrink();
            }
            None => {}
        }
    }

    /// Frees memory that only a busy connection needs.
    fn shrink(&mut self) {
        debug_assert!(self.exchange.is_empty(), "values are delivered before a call returns");
        self.scratch = None;
        self.early.shrink_to_fit();
        self.events.shrink();
        self.exchange = Exchange::default();
        self.send.shrink();
        self.receive.shrink();
        self.control.shrink();
    }

    /// The plan of this receipt leaves at `now`. Call it before the system call that sends it.
    pub fn handle_emitted(&mut self, now: Instant, receipt: &Receipt) {
        self.note(|journal| journal.emitted(now, receipt));
        self.send.on_emitted(receipt, now);
    }

    /// The plan of this receipt never left and never will: what it carried is due again.
    pub fn handle_not_emitted(&mut self, receipt: &Receipt) {
        self.note(|journal| journal.not_emitted(receipt));
        self.send.on_not_emitted(receipt);
        self.receive.on_not_emitted(receipt);
    }

    // ── Output ───────────────────────────────────────────────────────────────────────────────────────────────────────

    /// What the endpoint must route here from now on, or no longer.
    #[must_use]
    pub fn poll_route(&mut self) -> Option<RouteChange> {
        let change = self.control.poll_route();
        if let Some(change) = &change {
            self.note(|journal| journal.route(change));
        }
        change
    }

    /// What the application should know.
    #[must_use]
    pub fn poll_event(&mut self) -> Option<Event> {
        if self.journal.is_some() {
            return self.event_noted();
        }
        self.events.pop()
    }

    /// Fills `plan` with what may leave now, at most `datagrams_max` datagrams; false if there is nothing.
    #[must_use]
    pub fn poll_plan(&mut self, now: Instant, datagrams_max: usize, plan: &mut Plan) -> bool {
        self.poll_plan_where(now, &|_| datagrams_max.max(1), plan)
    }

    /// As [`poll_plan`](Self::poll_plan), where each socket takes so many datagrams now, and none if it has no room.
    #[must_use]
    pub fn poll_plan_where(&mut self, now: Instant, room: &dyn Fn(u16) -> usize, plan: &mut Plan) -> bool {
        if self.journal.is_some() {
            return self.plan_noted(now, room, plan);
        }
        self.make_plan(now, room, plan)
    }

    fn make_plan(&mut self, now: Instant, room: &dyn Fn(u16) -> usize, plan: &mut Plan) -> bool {
        if self.control.is_silent() {
            return false;
        }
        if let Some(close) = self.control.repeat_close() {
            self.send.set_close(close);
        }
        let snapshot = self.receive.snapshot();
        if self.send.rests() && !snapshot.get(Space::Data, PathId::ZERO).is_due() {
            plan.clear_once();
            plan.planned_at = now;
            return false;
        }
        let planned = self.send.plan(now, snapshot, room, plan, &mut self.exchange);
        if planned {
            self.rest.note_busy(now);
        } else {
            // Before values are delivered, which may change what is due.
            self.send.note_rest();
        }
        self.settle(now);
        planned
    }

    /// True if a plan would now be the tail of a stream's data: fewer than `datagrams` full datagrams, with nothing else due.
    /// A caller that has just sent, and knows that more will be written, may wait for it: the datagrams in flight bring
    /// acknowledgements, and so another occasion.
    #[must_use]
    pub fn has_only_a_tail(&mut self, datagrams: usize) -> bool {
        self.note(|journal| journal.tail_asked(datagrams));
        let ack = self.receive.snapshot().get(Space::Data, PathId::ZERO);
        let has_only_a_tail = self.send.has_only_a_tail(ack.is_pending(), datagrams);
        self.note_answer(|| Answer::yes(has_only_a_tail));
        has_only_a_tail
    }

    /// Whether what the application wants sent next is little: something, and `bytes_max` bytes at most, none of it in the
    /// [background](Self::set_background). Whether it may leave is another matter. A caller with other things to do may let it leave
    /// before them.
    #[must_use]
    pub fn has_little_next(&self, bytes_max: u64) -> bool {
        (1..=bytes_max).contains(&self.send.urgent_bytes())
    }

    /// When to call [`Connection::handle_timeout`].
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let control = self.control.timeout();
        if !self.control.is_open() {
            return control;
        }
        let mut earliest = Earliest::default();
        earliest.note(control);
        earliest.note(self.send.timeout());
        earliest.note(self.receive.timeout());
        earliest.note(self.rest.timeout());
        earliest.get()
    }

    // ── The application's calls ──────────────────────────────────────────────────────────────────────────────────────

    /// Opens a stream, if the peer allows another: [`Event::StreamsAvailable`] tells when it does again.
    pub fn open(&mut self, dir: Dir) -> Option<StreamId> {
        self.note(|journal| journal.open(dir));
        let id = self.open_stream(dir);
        self.note_answer(|| Answer::maybe(id.map(StreamId::raw)));
        id
    }

    fn open_stream(&mut self, dir: Dir) -> Option<StreamId> {
        if !self.control.is_established() {
            return None;
        }
        let id = self.send.streams.open(dir, &mut self.exchange)?;
        // The receive half must know of it before the peer's answer arrives.
        while let Some(value) = self.exchange.to_receive.pop_front() {
            match &mut self.apart {
                None => self.receive.handle(value, &mut self.exchange),
                Some(apart) => apart.order(value, &mut self.receive, &mut self.exchange),
            }
        }
        Some(id)
    }

    /// Streams that may be opened before the peer allows more.
    pub fn streams_left(&self, dir: Dir) -> u64 {
        self.send.streams.left(dir)
    }

    /// The next stream the peer opened.
    pub fn accept(&mut self, dir: Dir) -> Option<StreamId> {
        self.note(|journal| journal.accept(dir));
        let id = self.receive.streams.accept(dir);
        self.note_answer(|| Answer::maybe(id.map(StreamId::raw)));
        id
    }

    /// Gives bytes to a stream: all of `chunk` (at most [`WRITE_LEN_MAX`] bytes) or nothing. However full
    /// the buffer is, a stream may hold a share of its own: see
    /// [`TransportConfig::send_buffer_max`](crate::TransportConfig::send_buffer_max).
    ///
    /// # Errors
    /// [`WriteError::Blocked`] until there is room for it.
    ///
    /// # Panics
    /// If the chunk is longer than [`WRITE_LEN_MAX`].
    pub fn write(&mut self, id: StreamId, chunk: Bytes) -> Result<(), WriteError> {
        assert!(chunk.len() <= WRITE_LEN_MAX, "a chunk of {} bytes is too long for one write", chunk.len());
        let len = chunk.len();
        self.note(|journal| journal.of_stream(tag::WRITE, id, len as u64));
        let is_open = self.control.is_established();
        let result = if is_open { self.send.streams.write(id, chunk) } else { Err(WriteError::Closed) };
        self.note_answer(|| Answer::written(result, len));
        result
    }

    /// Gives bytes to a stream: what finds room of the front of `chunk`, which it is cut from.
    ///
    /// # Errors
    /// [`WriteError::Blocked`] if bytes are left.
    pub fn write_some(&mut self, id: StreamId, chunk: &mut Bytes) -> Result<(), WriteError> {
        let len = chunk.len();
        self.note(|journal| journal.of_stream(tag::WRITE_SOME, id, len as u64));
        let is_open = self.control.is_established();
        let result = if is_open { self.send.streams.write_some(id, chunk) } else { Err(WriteError::Closed) };
        self.note_answer(|| Answer::written(result, len - chunk.len()));
        result
    }

    /// Ends a stream after what was written.
    ///
    /// # Errors
    /// If it is stopped or closed.
    pub fn finish(&mut self, id: StreamId) -> Result<(), WriteError> {
        self.note(|journal| journal.finish(id));
        let result = self.send.streams.finish(id);
        self.note_answer(|| Answer::written(result, 0));
        result
    }

    /// Gives a stream up; what the peer has not read is lost.
    ///
    /// # Errors
    /// If it is closed already.
    pub fn reset(&mut self, id: StreamId, code: u64) -> Result<(), WriteError> {
        self.note(|journal| journal.of_stream(tag::RESET, id, code));
        let result = self.send.streams.reset(id, code, &mut self.events);
        self.note_answer(|| Answer::written(result, 0));
        result
    }

    /// Streams of a higher number go first, equal ones take turns. Zero if never set.
    ///
    /// # Errors
    /// If it is closed.
    pub fn set_priority(&mut self, id: StreamId, priority: i32) -> Result<(), WriteError> {
        self.note(|journal| journal.priority(id, priority));
        let result = self.send.streams.set_priority(id, priority);
        self.note_answer(|| Answer::written(result, 0));
        result
    }

    /// Limits how fast the bytes of a stream leave for the first time, or lifts the limit; what was used of an earlier one stays
    /// used. What was lost is sent again whatever the limit says, and so are the protocol's own words.
    ///
    /// # Errors
    /// If it is closed.
    pub fn set_stream_rate(&mut self, id: StreamId, limit: Option<RateLimit>) -> Result<(), WriteError> {
        self.note(|journal| journal.set_stream_rate(id, limit));
        let result = self.send.streams.set_rate(id, limit);
        self.note_answer(|| Answer::written(result, 0));
        result
    }

    /// Says which paths a stream may take, all if never said. From now on nothing of it is sent elsewhere, also not again. Where
    /// none of its paths works it waits: for one of them, or for another set.
    ///
    /// # Errors
    /// If it is closed.
    pub fn set_stream_paths(&mut self, id: StreamId, paths: PathSet) -> Result<(), WriteError> {
        self.note(|journal| journal.set_stream_paths(id, &paths));
        let result = self.send.streams.set_paths(id, paths);
        self.note_answer(|| Answer::written(result, 0));
        result
    }

    /// Puts a stream into the background: see [`Class::background`].
    ///
    /// # Errors
    /// If it is closed.
    pub fn set_background(&mut self, id: StreamId, is_background: bool) -> Result<(), WriteError> {
        self.note(|journal| journal.of_stream(tag::SET_BACKGROUND, id, u64::from(is_background)));
        let result = self.send.streams.set_background(id, is_background);
        self.note_answer(|| Answer::written(result, 0));
        result
    }

    /// Gives a stream all that `class` says.
    ///
    /// # Errors
    /// If it is closed.
    pub fn set_class(&mut self, id: StreamId, class: &Class) -> Result<(), WriteError> {
        self.set_priority(id, class.priority)?;
        self.set_stream_rate(id, class.rate)?;
        self.set_background(id, class.background)?;
        self.set_stream_paths(id, class.paths.clone())
    }

    /// Limits how fast the bytes of all streams together leave for the first time, or lifts the limit. Within it, streams go by
    /// their priority. Datagrams are not counted: who sends them has no queue to wait in, and sees to their rate.
    pub fn set_rate(&mut self, limit: Option<RateLimit>) {
        self.note(|journal| journal.set_rate(limit));
        self.send.streams.set_whole_rate(limit);
    }

    /// The next bytes of a stream, at most `len`, or its end.
    ///
    /// # Errors
    /// [`ReadError::Blocked`] while nothing has arrived.
    pub fn read(&mut self, now: Instant, id: StreamId, len: usize) -> Result<Chunk, ReadError> {
        if self.journal.is_some() {
            return self.read_noted(now, id, len);
        }
        let chunk = self.receive.streams.read(now, id, len, &mut self.exchange);
        self.settle(now);
        chunk
    }

    /// Asks the peer to stop sending on a stream.
    ///
    /// # Errors
    /// [`ReadError::Closed`] if it is over.
    pub fn stop(&mut self, now: Instant, id: StreamId, code: u64) -> Result<(), ReadError> {
        self.note(|journal| journal.of_stream_at(tag::STOP, now, id, code));
        let result = self.receive.streams.stop(now, id, code, &mut self.exchange);
        self.settle(now);
        self.note_answer(|| Answer::stopped(result));
        result
    }

    /// Sends a datagram (RFC 9221): it may be lost or overtaken, and is never repeated.
    ///
    /// # Errors
    /// If the peer takes none, it is too large, or too many wait.
    pub fn send_datagram(&mut self, data: Bytes) -> Result<(), SendDatagramError> {
        self.note(|journal| journal.send_datagram(data.len()));
        let result = self.send.send_datagram(data);
        self.note_answer(|| Answer::datagram(result));
        result
    }

    /// The oldest datagram received.
    pub fn recv_datagram(&mut self) -> Option<Bytes> {
        self.note(|journal| journal.recv_datagram());
        let data = self.receive.recv_datagram();
        self.note_answer(|| Answer::maybe(data.as_ref().map(|data| data.len() as u64)));
        data
    }

    /// The most bytes a datagram may have now; `None` if the peer takes none.
    pub fn datagram_len_max(&self) -> Option<usize> {
        self.send.datagram_len_max()
    }

    /// Ends the connection: the peer's application gets `code` and `reason`. What was not acknowledged is lost.
    pub fn close(&mut self, now: Instant, code: u64, reason: &str) {
        self.note(|journal| journal.close(now, code, reason));
        let error = TransportError::new(ErrorCode(code), reason.to_owned());
        self.end(now, error, true);
    }

    // ── Inside ───────────────────────────────────────────────────────────────────────────────────────────────────────

    /// Delivers the values between the owners until none is left.
    #[inline]
    pub(crate) fn settle(&mut self, now: Instant) {
        // Most calls change nothing that concerns another owner.
        if !self.exchange.is_empty() {
            self.deliver(now);
        }
        self.exchange.ranges.clear();
    }

    fn deliver(&mut self, now: Instant) {
        while !self.exchange.is_empty() {
            let exchange = &mut self.exchange;
            let result = if let Some(value) = exchange.to_send.pop_front() {
                if let Some(apart) = &mut self.apart {
                    apart.look_at_sending(&value);
                }
                self.send.handle(now, value, exchange, &mut self.events)
            } else if let Some(value) = exchange.to_receive.pop_front() {
                match &mut self.apart {
                    None => self.receive.handle(value, exchange),
                    Some(apart) => apart.order(value, &mut self.receive, exchange),
                }
                Ok(())
            } else if let Some(value) = exchange.to_control.pop_front() {
                let pto = self.send.pto_interval();
                if let Some(apart) = &mut self.apart {
                    apart.look_at(&value);
                }
                self.control.handle(now, value, pto, exchange, &mut self.events)
            } else {
                Ok(())
            };
            if let Err(error) = result {
                self.fail(now, error);
            }
        }
    }

    /// The peer broke the rules.
    fn fail(&mut self, now: Instant, error: TransportError) {
        tracing::debug!(%error, "closing because of the peer");
        self.end(now, error, false);
    }

    fn end(&mut self, now: Instant, error: TransportError, application: bool) {
        let pto = self.send.pto_interval();
        if let Some(close) = self.control.close(now, error, application, pto, &mut self.events) {
            self.send.set_close(close);
        }
    }
}

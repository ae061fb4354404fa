//! One connection: three owners of its state, and the calls of a driver and an application.
//!
//! | file | content |
//! |---|---|
//! | `arrival` | datagrams that arrive |
//! | `lease` | leases of open keys |
//! | `detached` | the rest of a connection whose receive half is detached |
//! | `paths` | the calls about paths |
//! | `streams` | the calls about streams |
//! | `early` | 0-RTT |
//! | `accessors` | the calls that change nothing |
//! | `unsealed` | arrivals without bytes, for simulations |
//! | `journal` | journal entries |
//! | `dismantle` | the parts of a connection that a scripted peer continues with |

mod accessors;
mod address_tokens;
mod arrival;
mod detached;
mod dismantle;
mod early;
mod journal;
mod lease;
mod paths;
mod streams;
mod unsealed;

use bytes::{Bytes, BytesMut};
use detached::Detached;
use units::{Ecn, Instant, Rng};
use wire::quic::{ErrorCode, PathId, Side, Space};

use crate::cached_send_half::CachedSendHalf;
use crate::control::Control;
use crate::control::ids::RouteChange;
use crate::earliest::Earliest;
use crate::error::TransportError;
use crate::event::Event;
use crate::exchange::{Exchange, ToControl};
use crate::journal::outcome::Answer;
use crate::journal::recording::Journal;
use crate::open::OpenJob;
use crate::plan::{Plan, Receipt};
use crate::quiet_timer::{Due, QuietTimer};
use crate::receive::ReceiveHalf;
use crate::receive_core::ReceiveCore;
use crate::received_datagram::ReceivedDatagram;
use crate::seed::ConnectionSeed;
use crate::send::SendHalf;
use crate::send::datagrams::{DatagramPaths, SendDatagramError};
use crate::send::path::SendPath;

pub use self::lease::{LeaseTerms, OpenLease};

/// Packets kept until their keys arrive: enough for a reordered flight.
const EARLY_PACKETS_MAX: usize = 16;

/// A QUIC connection, either role, as a state machine without IO.
///
/// # The contract
///
/// There are four kinds of calls.
///
/// - **Input**, with the time: [`handle_datagrams`](Self::handle_datagrams) or, to open on another
///   processor, [`begin_open`](Self::begin_open) and [`handle_opened`](Self::handle_opened), or
///   with a [lease](Self::grant_lease) [`handle_leased`](Self::handle_leased);
///   [`handle_timeout`](Self::handle_timeout), [`handle_emitted`](Self::handle_emitted),
///   [`handle_not_emitted`](Self::handle_not_emitted).
/// - **Output**, to be polled until empty after every input and every call of the application, in
///   this order: [`poll_route`](Self::poll_route), [`poll_event`](Self::poll_event),
///   [`poll_plan`](Self::poll_plan), and last [`poll_timeout`](Self::poll_timeout), which has no
///   side effects.
/// - **The application's calls**: streams, datagrams, [`close`](Self::close).
/// - **Questions**: [`stats`](Self::stats) and what takes `&self`.
///
/// Time never goes backwards. Spurious calls are harmless: an early `handle_timeout` does nothing.
///
/// A driver handles a plan in this order: it [seals](crate::seal::seal) it (on any processor),
/// calls [`handle_emitted`](Self::handle_emitted), then makes the system call, so that no
/// acknowledgement can overtake the report. If the system refuses the batch permanently,
/// [`handle_not_emitted`](Self::handle_not_emitted) makes its content due again without counting a
/// loss. A driver asks for a plan only when it can leave within about a millisecond.
///
/// Once [`is_closed`](Self::is_closed), the connection can be dropped.
pub struct Connection {
    side: Side,
    control: Control,
    send: CachedSendHalf,
    /// The receive half, or a stand-in while it is detached; the queues of values and events; the
    /// journal.
    receive: ReceiveCore,
    /// While the receive half is detached.
    detached: Option<Box<Detached>>,
    /// Memory of the open stage, unless it is in use or was freed while the connection was quiet.
    scratch: Option<Box<OpenJob>>,
    /// Packets whose keys have not arrived yet.
    early: Vec<(BytesMut, Option<Ecn>)>,
    /// An authentic packet was received: a client ignores Version Negotiation from then on (RFC
    /// 9000, section 6.2).
    has_received: bool,
    /// Initial packets that may fail to authenticate.
    integrity_limit: u64,
    quiet_timer: QuietTimer,
}

impl Connection {
    pub(crate) fn new(now: Instant, seed: ConnectionSeed) -> Self {
        let journal = Journal::begin(now, &seed);
        let ConnectionSeed { config, addresses, is_validated, mut control, seal, seed } = seed;
        if journal.is_some() {
            control.session = control.session.recorded();
        }
        let rng = Rng::from_seed(seed);
        let side = control.side;
        let path = SendPath::new(PathId::ZERO, addresses, control.remote_id, &config, is_validated, &rng.split("path"));
        let mut send = SendHalf::new(side, config.clone(), control.version, control.local_id, path, rng);
        send.install_keys(Space::Initial, seal);
        let receive = ReceiveHalf::new(side, &config);
        let integrity_limit = control.initial.packet.integrity_limit();
        let quiet_timer = QuietTimer::new(config.park_after);
        let control = Control::new(now, config, control);
        let mut connection = Self {
            side,
            control,
            send: CachedSendHalf::new(send),
            receive: ReceiveCore::new(receive, 0, journal),
            detached: None,
            scratch: None,
            early: Vec::new(),
            has_received: false,
            integrity_limit,
            quiet_timer,
        };
        connection.control.start(&mut connection.receive.exchange);
        connection.settle(now);
        if connection.receive.journal.is_some() {
            // The first flight belongs to the log, also if nothing follows it.
            connection.with_journal(|_| ());
        }
        connection
    }

    // ── Input ────────────────────────────────────────────────────────────────────────────────────────────────────────

    /// Does what is due at `now`.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.record(|journal| journal.timeout(now));
        self.on_timeout(now);
    }

    /// [`handle_timeout`](Self::handle_timeout) without a journal entry.
    fn on_timeout(&mut self, now: Instant) {
        if let Some(detached) = &mut self.detached {
            // Timers discard keys and forget paths.
            detached.is_config_stale |= self.control.timeout().is_some_and(|at| at <= now);
        }
        self.control.on_timeout(now, &mut self.receive.exchange, &mut self.receive.events);
        if self.control.is_open() {
            self.send.on_timeout(now, &mut self.receive.exchange);
            self.receive.half.on_timeout(now);
        }
        self.settle(now);
        match self.quiet_timer.on_timeout(now, self.control.is_confirmed()) {
            Some(Due::Shrink) => {
                self.send.forget_losses();
                self.shrink();
            }
            Some(Due::Park) => {
                self.send.forget_losses();
                self.control.park();
                self.shrink();
            }
            None => {}
        }
    }

    /// Frees memory that only a busy connection needs. No journal records when that happens, so it
    /// changes nothing else.
    fn shrink(&mut self) {
        debug_assert!(self.receive.exchange.is_empty(), "values are delivered before a call returns");
        self.scratch = None;
        self.early.shrink_to_fit();
        self.receive.events.shrink();
        self.receive.exchange = Exchange::default();
        self.send.shrink();
        self.receive.half.shrink();
        self.control.shrink();
    }

    /// The plan of this receipt leaves at `now`. Call it before the system call that sends it.
    pub fn handle_emitted(&mut self, now: Instant, receipt: &Receipt) {
        self.record(|journal| journal.emitted(now, receipt));
        self.send.on_emitted(receipt, now);
    }

    /// The plan of this receipt never left and never will: what it carried is due again.
    pub fn handle_not_emitted(&mut self, receipt: &Receipt) {
        self.record(|journal| journal.not_emitted(receipt));
        self.send.on_not_emitted(receipt);
        self.receive.half.on_not_emitted(receipt);
    }

    // ── Output ───────────────────────────────────────────────────────────────────────────────────────────────────────

    /// The next change of the connection IDs that the endpoint routes to this connection.
    #[must_use]
    pub fn poll_route(&mut self) -> Option<RouteChange> {
        let change = self.control.poll_route();
        if let Some(change) = &change {
            self.record(|journal| journal.route(change));
        }
        change
    }

    /// The next event for the application.
    #[must_use]
    pub fn poll_event(&mut self) -> Option<Event> {
        if self.receive.journal.is_some() && !self.receive.events.is_empty() {
            return self.with_journal(ReceiveCore::poll_event);
        }
        self.receive.events.pop()
    }

    /// Fills `plan` with datagrams that may leave now, `datagrams_max` at most; false if there are
    /// none.
    #[must_use]
    pub fn poll_plan(&mut self, now: Instant, datagrams_max: usize, plan: &mut Plan) -> bool {
        self.poll_plan_where(now, &|_| datagrams_max.max(1), plan)
    }

    /// As [`poll_plan`](Self::poll_plan). `socket_budget` says how many datagrams a socket takes
    /// now.
    #[must_use]
    pub fn poll_plan_where(&mut self, now: Instant, socket_budget: &dyn Fn(u16) -> usize, plan: &mut Plan) -> bool {
        if self.receive.journal.is_some() {
            return self.plan_recorded(now, socket_budget, plan);
        }
        self.make_plan(now, socket_budget, plan)
    }

    fn make_plan(&mut self, now: Instant, socket_budget: &dyn Fn(u16) -> usize, plan: &mut Plan) -> bool {
        if self.control.is_silent() {
            return false;
        }
        if let Some(close) = self.control.repeat_close() {
            self.send.set_close(close);
        }
        let snapshot = self.receive.half.snapshot();
        if self.send.is_idle() && !snapshot.get(Space::Data, PathId::ZERO).is_due() {
            plan.clear_once();
            plan.planned_at = now;
            return false;
        }
        let planned = self.send.plan(now, snapshot, socket_budget, plan, &mut self.receive.exchange);
        if planned {
            self.quiet_timer.note_busy(now);
        } else {
            // Before values are delivered, which may make something due.
            self.send.note_idle();
        }
        self.settle(now);
        planned
    }

    /// True if a plan would now be the tail of a stream's data: fewer than `datagrams` full
    /// datagrams, with nothing else due. A caller that has just sent, and knows that more will be
    /// written, may wait: the acknowledgements of the datagrams in flight give it another
    /// opportunity to send.
    #[must_use]
    pub fn has_only_a_tail(&mut self, datagrams: usize) -> bool {
        self.record(|journal| journal.tail_asked(datagrams));
        let ack = self.receive.half.snapshot().get(Space::Data, PathId::ZERO);
        let has_only_a_tail = self.send.has_only_a_tail(ack.is_pending(), datagrams);
        self.record_answer(|| Answer::from_bool(has_only_a_tail));
        has_only_a_tail
    }

    /// Whether an interactive write is next: at least one and at most `bytes_max` bytes wait to be
    /// sent on streams outside the [background](Self::set_background). Congestion control may still
    /// hold them back. A busy caller may send them first.
    #[must_use]
    pub fn has_interactive_next(&self, bytes_max: u64) -> bool {
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
        earliest.note(self.receive.half.timeout());
        earliest.note(self.quiet_timer.timeout());
        earliest.get()
    }

    // ── The application's calls ──────────────────────────────────────────────────────────────────────────────────────

    /// Sends a datagram (RFC 9221): it may be lost or overtaken, and is never repeated.
    ///
    /// # Errors
    /// If the peer accepts none, it is too large, or too many wait.
    pub fn send_datagram(&mut self, data: Bytes) -> Result<(), SendDatagramError> {
        self.record(|journal| journal.send_datagram(data.len()));
        let result = self.send.send_datagram(data);
        self.record_answer(|| Answer::datagram(result));
        result
    }

    /// As [`send_datagram`](Self::send_datagram), on these paths, and before the datagrams that wait.
    ///
    /// # Errors
    /// As [`send_datagram`](Self::send_datagram). A datagram for certain paths replaces the oldest if too
    /// many wait there.
    pub fn send_datagram_on(&mut self, data: Bytes, paths: DatagramPaths) -> Result<(), SendDatagramError> {
        self.record(|journal| journal.send_datagram_on(data.len(), paths));
        let result = self.send.send_datagram_on(data, paths);
        self.record_answer(|| Answer::datagram(result));
        result
    }

    /// Whether a datagram of `len` bytes should join those that wait, of those
    /// [pinned](DatagramPaths::Pinned) to this path or of those that take any: they are enough if they keep
    /// the paths busy. An empty queue says so of any length.
    pub fn has_datagram_space(&self, len: usize, pinned: Option<PathId>) -> bool {
        self.send.has_datagram_space(len, pinned)
    }

    /// Datagrams of [`send_datagram`](Self::send_datagram) that wait, or those
    /// [pinned](DatagramPaths::Pinned) to a path.
    pub fn datagrams_waiting(&self, pinned: Option<PathId>) -> usize {
        self.send.datagrams_waiting(pinned)
    }

    /// Whether there is a path with this ID that is not abandoned.
    pub fn has_path(&self, id: PathId) -> bool {
        self.send.path_of(id).is_some_and(SendPath::is_open)
    }

    /// The bytes of datagrams that should wait, as for [`has_datagram_space`](Self::has_datagram_space), at
    /// most the limit of the queue.
    pub fn datagram_window(&self, pinned: Option<PathId>) -> u64 {
        self.send.datagram_window(pinned)
    }

    /// The limit of the queue, in bytes.
    pub fn datagram_send_buffer(&self) -> u64 {
        self.send.datagram_send_buffer()
    }

    /// The oldest datagram received.
    pub fn recv_datagram(&mut self) -> Option<Bytes> {
        self.recv_datagram_with_path().map(|datagram| datagram.data)
    }

    /// As [`recv_datagram`](Self::recv_datagram), with the path on which it arrived.
    pub fn recv_datagram_with_path(&mut self) -> Option<ReceivedDatagram> {
        match self.receive.journal {
            None => self.receive.recv_datagram(),
            Some(_) => self.with_journal(ReceiveCore::recv_datagram),
        }
    }

    /// The most bytes a datagram may have now; `None` if the peer accepts none.
    pub fn datagram_len_max(&self) -> Option<usize> {
        self.send.datagram_len_max()
    }

    /// Closes the connection: the peer's application gets `code` and `reason`. Data that was not
    /// acknowledged is lost.
    pub fn close(&mut self, now: Instant, code: u64, reason: &str) {
        self.record(|journal| journal.close(now, code, reason));
        let error = TransportError::new(ErrorCode(code), reason.to_owned());
        self.end(now, error, true);
    }

    // ── Internal ──────────────────────────────────────────────────────────────────────────────────────────────────────

    /// Delivers the values that the owners exchange until none is left.
    #[inline]
    pub(crate) fn settle(&mut self, now: Instant) {
        // Most calls produce no values for another owner.
        if !self.receive.exchange.is_empty() {
            self.deliver(now);
        }
        self.receive.exchange.ranges.clear();
    }

    fn deliver(&mut self, now: Instant) {
        while !self.receive.exchange.is_empty() {
            let exchange = &mut self.receive.exchange;
            let result = if let Some(value) = exchange.to_send.pop_front() {
                if let Some(detached) = &mut self.detached {
                    detached.note_send(&value);
                }
                self.send.handle(now, value, exchange, &mut self.receive.events)
            } else if let Some(value) = exchange.to_receive.pop_front() {
                match &mut self.detached {
                    None => self.receive.half.handle(value, exchange),
                    Some(detached) => detached.push(value, &mut self.receive.half, exchange),
                }
                Ok(())
            } else if let Some(value) = exchange.to_control.pop_front() {
                let pto = self.send.pto_interval();
                if let Some(detached) = &mut self.detached {
                    detached.note_control(&value);
                }
                let changes_ids = matches!(value, ToControl::RemoteIdsChanged | ToControl::RetireRemoteId { .. });
                let result = match value {
                    ToControl::RemoteIdsChanged => Ok(()),
                    value => self.control.handle(now, value, pto, exchange, &mut self.receive.events),
                };
                if changes_ids {
                    // A packet to a retired ID may arrive after the frame that retires it. The peer's
                    // reset for it must not count any more (RFC 9000, section 10.3.1).
                    self.control.set_ids_in_use(self.send.remote_ids());
                }
                result
            } else {
                Ok(())
            };
            if let Err(error) = result {
                self.fail(now, error);
            }
        }
    }

    /// The peer has violated the protocol.
    fn fail(&mut self, now: Instant, error: TransportError) {
        tracing::debug!(%error, "closing because of the peer");
        self.end(now, error, false);
    }

    fn end(&mut self, now: Instant, error: TransportError, application: bool) {
        let pto = self.send.pto_interval();
        if let Some(close) = self.control.close(now, error, application, pto, &mut self.receive.events) {
            self.send.set_close(close);
        }
    }
}

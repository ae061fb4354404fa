//! Control: the handshake, key epochs, connection IDs, the idle timer and the end.
//!
//! ```text
//!   Handshaking ──▶ Established ──▶ Confirmed
//!        │               │              │
//!        └───────────────┴──────┬───────┘
//!                 we close      │      the peer closes
//!                    ▼          │           ▼
//!                 Closing ──────┴──────▶ Draining ──▶ Closed
//! ```

pub(crate) mod handshake;
pub(crate) mod ids;
mod keys;
pub(crate) mod paths;
pub(crate) mod script;

use std::sync::Arc;

use units::{Duration, Instant};
use wire::quic::{ConnectionId, ErrorCode, PathId, Side, Space, TransportParameters};

use crate::config::TransportConfig;
use crate::earliest::Earliest;
use crate::error::{ConnectionError, TransportError};
use crate::event::{Event, Events};
use crate::exchange::{Exchange, ToControl, ToSend};
use crate::journal::session::{HeldSession, ReplayedSession};
use crate::open::PhaseRing;
use crate::queue::Queue;
use crate::receive::assembler::Assembler;
use crate::secret::SecretSource;
use crate::send::CloseValue;
use crate::send::frames::ControlFrame;
use crate::session::{DirectionKeys, PhaseKeys, Session, SessionSummary};
use crate::spaces::Spaces;
use ids::{LocalIds, RemoteIds};
use paths::Paths;

/// Handshake bytes out of order that are kept, at each level (RFC 9000, section 7.5, asks for at least 4096).
pub(crate) const CRYPTO_BUFFER_MAX: u64 = 64 * 1024;

/// Closing and draining last this many probe timeouts (RFC 9000, section 10.2).
const CLOSE_PTOS: u64 = 3;

/// No round trip the peer feigns makes closing or draining last longer: state may go early (RFC 9000, section 10.2).
const CLOSE_SPAN_MAX: Duration = Duration::from_secs(10);

fn close_span(pto: Duration) -> Duration {
    (pto * CLOSE_PTOS).min(CLOSE_SPAN_MAX)
}

/// A keep-alive interval is at most this part of the idle timeout.
pub(crate) const KEEP_ALIVES_PER_IDLE_TIMEOUT: u64 = 3;

/// Where a connection stands.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Stage {
    Handshaking,
    /// Our side of the handshake is complete.
    Established,
    /// Both sides' is, and both know.
    Confirmed,
    /// We said goodbye and repeat it to a peer that has not heard.
    Closing {
        until: Instant,
        close: Box<ClosingState>,
    },
    /// The peer said goodbye: nothing more is sent.
    Draining {
        until: Instant,
    },
    Closed,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct ClosingState {
    error: TransportError,
    application: bool,
    /// Packets heard since the last goodbye, and how many make us repeat it: twice as many each time, so that two peers
    /// that both close do not talk for ever (RFC 9000, section 10.2.1).
    heard: u32,
    repeat_after: u32,
}

/// A connection ID the endpoint must route to this connection, or no longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RouteChange {
    /// Packets with this destination are ours.
    Add(ConnectionId),
    /// They are no longer.
    Remove(ConnectionId),
}

/// The control part of a connection.
pub(crate) struct Control {
    side: Side,
    config: Arc<TransportConfig>,
    stage: Stage,
    session: HeldSession,
    /// CRYPTO bytes by space, and the space the session reads from.
    crypto: Spaces<Assembler>,
    read_space: Space,
    write_space: Space,
    levels: [Option<DirectionKeys>; 2],
    ring: Option<PhaseRing>,
    /// The keys after those in use, unless the connection rests.
    next_phase: Option<PhaseKeys>,
    /// Key updates made in each direction.
    send_phase: u64,
    receive_phase: u64,
    /// A packet of the present send phase was acknowledged, so another update may follow.
    phase_acknowledged: bool,
    update_wanted: bool,
    old_keys_until: Option<Instant>,
    local_ids: LocalIds,
    pub(crate) remote_ids: RemoteIds,
    /// What there is to know of paths, if there may be several.
    paths: Option<Box<Paths>>,
    /// Up to which path ID the peer said it goes.
    peer_max_path: Option<PathId>,
    /// The peer said disable_active_migration.
    peer_stays: bool,
    /// The peer's first Source Connection ID, once known.
    peer_first_id: Option<ConnectionId>,
    /// The destination of the client's first packet, and ours of the handshake: transport parameters must repeat them.
    original_destination: ConnectionId,
    parameters_done: bool,
    peer_id_limit: u64,
    idle_timeout: Duration,
    idle_at: Option<Instant>,
    /// The interval in force: the configured one, or less if the idle timeout is short.
    keep_alive: Option<Duration>,
    keep_alive_at: Option<Instant>,
    secrets: SecretSource,
    routes: Queue<RouteChange>,
    summary: Arc<SessionSummary>,
    peer_identity: Arc<[Vec<u8>]>,
    started_at: Instant,
    handshake_time: Option<Duration>,
}

/// How a connection begins.
pub(crate) struct Beginning {
    pub(crate) side: Side,
    pub(crate) session: HeldSession,
    pub(crate) initial: DirectionKeys,
    pub(crate) local_id: ConnectionId,
    pub(crate) remote_id: ConnectionId,
    pub(crate) original_destination: ConnectionId,
    pub(crate) secrets: SecretSource,
}

impl Control {
    pub(crate) fn new(now: Instant, config: Arc<TransportConfig>, beginning: Beginning) -> Self {
        let Beginning { side, session, initial, local_id, remote_id, original_destination, secrets } = beginning;
        let mut routes = Queue::new();
        routes.push_back(RouteChange::Add(local_id));
        if side == Side::Server {
            // Until the client has heard of our ID, it uses the one it made up.
            routes.push_back(RouteChange::Add(original_destination));
        }
        let mut control = Self {
            side,
            stage: Stage::Handshaking,
            session,
            crypto: Spaces::default(),
            read_space: Space::Initial,
            write_space: Space::Initial,
            levels: [Some(initial), None],
            ring: None,
            next_phase: None,
            send_phase: 0,
            receive_phase: 0,
            phase_acknowledged: false,
            update_wanted: false,
            old_keys_until: None,
            local_ids: LocalIds::new(local_id),
            remote_ids: RemoteIds::new(remote_id),
            paths: None,
            peer_max_path: None,
            peer_stays: false,
            peer_first_id: (side == Side::Server).then_some(remote_id),
            original_destination,
            parameters_done: false,
            peer_id_limit: TransportParameters::default().active_connection_id_limit,
            idle_timeout: config.idle_timeout,
            idle_at: None,
            keep_alive: config.keep_alive,
            keep_alive_at: None,
            secrets,
            routes,
            summary: Arc::default(),
            peer_identity: Arc::default(),
            started_at: now,
            handshake_time: None,
            config,
        };
        control.restart_idle(now, Duration::ZERO);
        control
    }

    /// Takes one value of the exchange. `pto` is the probe timeout of the moment.
    pub(crate) fn handle(
        &mut self,
        now: Instant,
        value: ToControl,
        pto: Duration,
        exchange: &mut Exchange,
        events: &mut Events,
    ) -> Result<(), TransportError> {
        match value {
            ToControl::Crypto { space, offset, bytes } => {
                self.on_crypto(now, space, offset, bytes, exchange, events)?
            }
            ToControl::NewConnectionId { path, sequence, retire_prior_to, id, reset_token } => {
                self.on_new_id(path, (sequence, retire_prior_to, id, reset_token), exchange, events)?;
            }
            ToControl::RetireConnectionId { path, sequence } => self.on_retired_id(path, sequence, exchange)?,
            ToControl::Multipath(frame) => self.on_multipath(now, frame, pto, exchange, events)?,
            ToControl::PathState { path, state } => events.push(Event::PathState(path, state)),
            ToControl::HandshakeDone => {
                if self.side == Side::Server {
                    return Err(TransportError::violation("a client sent HANDSHAKE_DONE"));
                }
                self.confirm(exchange, events);
            }
            ToControl::NewToken => {
                // RFC 9000, section 19.7.
                if self.side == Side::Server {
                    return Err(TransportError::violation("a client sent NEW_TOKEN"));
                }
            }
            ToControl::Closed { error, application, reason } => {
                self.on_closed_by_peer(now, error, application, reason, pto, events);
            }
            ToControl::PacketAccepted { space } => self.on_packet(now, space, pto, exchange),
            ToControl::PhaseAdvanced(epoch) => self.on_phase_advanced(now, epoch, pto, exchange),
            ToControl::ElicitingSent { at } => self.restart_idle(at, pto),
            ToControl::FirstSent(space) => {
                // RFC 9001, section 4.9.1: a client needs no Initial keys once it sends Handshake packets.
                if space == Space::Handshake && self.side == Side::Client {
                    self.discard(Space::Initial, exchange);
                }
            }
            ToControl::PhaseAcknowledged(phase) => {
                self.phase_acknowledged |= phase == self.send_phase;
                self.maybe_update_keys(exchange);
            }
            ToControl::KeyWornOut => {
                self.update_wanted = true;
                self.maybe_update_keys(exchange);
            }
            ToControl::KeyExhausted => {
                let reason = "the peer does not follow key updates";
                return Err(TransportError::new(ErrorCode::AEAD_LIMIT_REACHED, reason));
            }
        }
        Ok(())
    }

    // ── Connection IDs ───────────────────────────────────────────────────────────────────────────────────────────────

    /// Gives the peer as many IDs as it keeps.
    fn issue_ids(&mut self, exchange: &mut Exchange) {
        let path = self.is_multipath().then_some(PathId::ZERO);
        for _ in 0..self.local_ids.missing(self.peer_id_limit) {
            let id = self.secrets.connection_id();
            let reset_token = self.secrets.reset_token(&id);
            let sequence = self.local_ids.issue(id);
            self.routes.push_back(RouteChange::Add(id));
            let frame = ControlFrame::NewConnectionId { path, sequence, retire_prior_to: 0, id, reset_token };
            exchange.to_send.push_back(ToSend::Control(frame));
        }
    }

    /// The next change to what the endpoint routes here.
    pub(crate) fn poll_route(&mut self) -> Option<RouteChange> {
        self.routes.pop_front()
    }

    // ── Timers ───────────────────────────────────────────────────────────────────────────────────────────────────────

    /// A packet was authentic.
    pub(crate) fn on_packet(&mut self, now: Instant, space: Space, pto: Duration, exchange: &mut Exchange) {
        if let Stage::Closing { close, .. } = &mut self.stage {
            close.heard += 1;
            return;
        }
        if space == Space::Handshake && self.side == Side::Server && self.levels[0].is_some() {
            // It proves that the client reads what we send to its address (RFC 9000, section 8.1).
            exchange.to_send.push_back(ToSend::Validated);
            self.discard(Space::Initial, exchange);
        }
        self.restart_idle(now, pto);
    }

    /// RFC 9000, section 10.1: at least three probe timeouts, so that a lost packet does not end the connection.
    fn restart_idle(&mut self, now: Instant, pto: Duration) {
        if !self.idle_timeout.is_zero() {
            self.idle_at = Some(now + self.idle_timeout.max(pto * CLOSE_PTOS));
        }
        self.keep_alive_at = self.keep_alive.map(|interval| now + interval);
    }

    /// When [`Control::on_timeout`] has something to do.
    pub(crate) fn timeout(&self) -> Option<Instant> {
        match self.stage {
            Stage::Closing { until, .. } | Stage::Draining { until } => Some(until),
            Stage::Closed => None,
            _ => {
                let mut earliest = Earliest::default();
                earliest.note(self.idle_at);
                earliest.note(self.keep_alive_at);
                earliest.note(self.old_keys_until);
                earliest.note(self.paths.as_ref().and_then(|paths| paths.timeout()));
                earliest.get()
            }
        }
    }

    /// The idle timeout has passed, though nobody has looked yet.
    pub(crate) fn is_idle_too_long(&self, now: Instant) -> bool {
        self.is_open() && self.idle_at.is_some_and(|at| at <= now)
    }

    /// Does what is due at `now`; does nothing if called early.
    pub(crate) fn on_timeout(&mut self, now: Instant, exchange: &mut Exchange, events: &mut Events) {
        match self.stage {
            Stage::Closing { until, .. } | Stage::Draining { until } => {
                if until <= now {
                    self.become_closed();
                }
                return;
            }
            Stage::Closed => return,
            _ => {}
        }
        if self.idle_at.is_some_and(|at| at <= now) {
            events.push(Event::Closed(ConnectionError::TimedOut));
            self.become_closed();
            return;
        }
        if self.keep_alive_at.is_some_and(|at| at <= now) {
            self.keep_alive_at = None;
            if self.is_established() {
                exchange.to_send.push_back(ToSend::Control(ControlFrame::Ping));
            } else {
                self.keep_alive_at = self.keep_alive.map(|interval| now + interval);
            }
        }
        if self.old_keys_until.is_some_and(|at| at <= now) {
            self.old_keys_until = None;
            if let Some(ring) = &mut self.ring {
                ring.previous = None;
            }
            self.maybe_update_keys(exchange);
        }
        self.on_path_timeout(now, exchange);
    }

    // ── The end ──────────────────────────────────────────────────────────────────────────────────────────────────────

    /// Closes from our side. The value is for the send half; none if the connection is ending already.
    pub(crate) fn close(
        &mut self,
        now: Instant,
        error: TransportError,
        application: bool,
        pto: Duration,
        events: &mut Events,
    ) -> Option<CloseValue> {
        if !self.is_open() {
            return None;
        }
        let close = Box::new(ClosingState { error: error.clone(), application, heard: 0, repeat_after: 1 });
        self.stage = Stage::Closing { until: now + close_span(pto), close };
        events.push(Event::Closed(if application {
            ConnectionError::ClosedLocally
        } else {
            ConnectionError::PeerMisbehaved(error.clone())
        }));
        Some(CloseValue { error, application })
    }

    /// A goodbye to repeat, if the peer has not heard it.
    pub(crate) fn repeat_close(&mut self) -> Option<CloseValue> {
        let Stage::Closing { close, .. } = &mut self.stage else { return None };
        if close.heard < close.repeat_after {
            return None;
        }
        close.heard = 0;
        close.repeat_after = close.repeat_after.saturating_mul(2);
        Some(CloseValue { error: close.error.clone(), application: close.application })
    }

    fn on_closed_by_peer(
        &mut self,
        now: Instant,
        error: TransportError,
        application: bool,
        reason: bytes::Bytes,
        pto: Duration,
        events: &mut Events,
    ) {
        if self.is_open() {
            events.push(Event::Closed(if application {
                ConnectionError::ClosedByPeer { code: error.code.0, reason }
            } else {
                ConnectionError::ClosedByPeerTransport(error)
            }));
        }
        if !matches!(self.stage, Stage::Closed) {
            self.stage = Stage::Draining { until: now + close_span(pto) };
        }
    }

    /// Ends at once: the peer speaks no version of ours.
    pub(crate) fn abandon(&mut self, error: ConnectionError, events: &mut Events) {
        if self.is_open() {
            events.push(Event::Closed(error));
        }
        self.become_closed();
    }

    fn become_closed(&mut self) {
        self.stage = Stage::Closed;
        self.routes.extend(self.local_ids.iter().map(RouteChange::Remove));
        if let Some(paths) = &self.paths {
            self.routes.extend(paths.local_ids().map(RouteChange::Remove));
        }
        // Kept until now, so that a client's first packet that comes again begins no second connection.
        if self.side == Side::Server {
            self.routes.push_back(RouteChange::Remove(self.original_destination));
        }
    }

    // ── What others ask ──────────────────────────────────────────────────────────────────────────────────────────────

    /// The destination of the client's first packet.
    pub(crate) fn original_destination(&self) -> ConnectionId {
        self.original_destination
    }

    /// Neither side has said goodbye.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.stage, Stage::Handshaking | Stage::Established | Stage::Confirmed)
    }

    pub(crate) fn is_handshaking(&self) -> bool {
        self.stage == Stage::Handshaking
    }

    /// Our side of the handshake is complete and nobody has said goodbye.
    pub(crate) fn is_established(&self) -> bool {
        matches!(self.stage, Stage::Established | Stage::Confirmed)
    }

    pub(crate) fn is_confirmed(&self) -> bool {
        matches!(self.stage, Stage::Confirmed)
    }

    /// Nothing more will be sent.
    pub(crate) fn is_silent(&self) -> bool {
        matches!(self.stage, Stage::Draining { .. } | Stage::Closed)
    }

    /// Nothing is left to do: the connection can be forgotten.
    pub(crate) fn is_closed(&self) -> bool {
        self.stage == Stage::Closed
    }

    /// Frees room that is not used.
    pub(crate) fn shrink(&mut self) {
        self.routes.shrink();
        self.local_ids.shrink();
        self.remote_ids.shrink();
        self.forget_next_phase();
    }

    /// Lets go of the TLS session, if nothing more is expected of it.
    pub(crate) fn park(&mut self) {
        debug_assert!(self.is_confirmed(), "more is expected of a session whose handshake goes on");
        self.session.get_mut().park();
    }

    pub(crate) fn config(&self) -> &TransportConfig {
        &self.config
    }

    pub(crate) fn session(&self) -> &dyn Session {
        self.session.get()
    }

    /// Moves what TLS has said since the last time to a journal.
    pub(crate) fn take_session_notes(&mut self, out: &mut Vec<u8>) {
        self.session.take_notes(out);
    }

    /// Nobody writes down any more what TLS says.
    pub(crate) fn end_session_notes(&mut self) {
        self.session.end_notes();
    }

    /// The session of a replay, if this is one.
    pub(crate) fn replayed_session(&mut self) -> Option<&mut ReplayedSession> {
        self.session.replayed_mut()
    }

    pub(crate) fn peer_identity(&self) -> Arc<[Vec<u8>]> {
        self.peer_identity.clone()
    }

    pub(crate) fn summary(&self) -> Arc<SessionSummary> {
        self.summary.clone()
    }

    pub(crate) fn times(&self) -> (Instant, Option<Duration>) {
        (self.started_at, self.handshake_time)
    }
}

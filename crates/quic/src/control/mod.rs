//! Control: the handshake, key phases, connection IDs, paths, the idle timer and the close.
//!
//! ```text
//!   Handshaking ──▶ Established ──▶ Confirmed
//!        │               │              │
//!        └───────────────┴──────┬───────┘
//!                 we close      │      the peer closes
//!                    ▼          │           ▼
//!                 Closing ──────┴──────▶ Draining ──▶ Closed
//! ```

pub(crate) mod dismantle;
pub(crate) mod early;
pub(crate) mod handshake;
pub(crate) mod ids;
mod keys;
pub(crate) mod paths;
mod resets;
mod tokens;
mod version;

use std::sync::Arc;

use units::{Duration, Instant};
use wire::quic::{ConnectionId, ErrorCode, PathId, Side, Space, TransportParameters, Version};

use crate::address_tokens::issue::IssuedTokens;
use crate::address_tokens::memory::ReceivedTokens;
use crate::config::{PreferredAddresses, TransportConfig};
use crate::earliest::Earliest;
use crate::error::{ConnectionError, TransportError};
use crate::event::{Event, Events};
use crate::exchange::{Exchange, ToControl, ToSend};
use crate::journal::session::{AnySession, ReplayedSession};
use crate::open::keys::OneRttKeys;
use crate::queue::Queue;
use crate::receive::assembler::Assembler;
use crate::secret::SecretSource;
use crate::seed::ControlSeed;
use crate::send::CloseValue;
use crate::send::frames::ControlFrame;
use crate::session::{DirectionKeys, PhaseKeys, Session, SessionSummary};
use crate::spaces::Spaces;
use early::Early;
use ids::{LocalIds, RemoteIds, ResetToken, RouteChange, first_routes};
use paths::Paths;

/// Handshake bytes out of order that are kept, at each level (RFC 9000, section 7.5, asks for at
/// least 4096).
pub(crate) const CRYPTO_BUFFER_MAX: u64 = 64 * 1024;

/// Closing and draining last this many probe timeouts (RFC 9000, section 10.2).
const CLOSE_PTOS: u64 = 3;

/// Closing and draining last no longer than this, whatever round trip a dishonest peer causes:
/// state may be discarded early (RFC 9000, section 10.2).
const CLOSE_SPAN_MAX: Duration = Duration::from_secs(10);

fn close_span(pto: Duration) -> Duration {
    (pto * CLOSE_PTOS).min(CLOSE_SPAN_MAX)
}

/// A keep-alive interval is at most this part of the idle timeout.
pub(crate) const KEEP_ALIVES_PER_IDLE_TIMEOUT: u64 = 3;

/// The state of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
enum ConnectionState {
    Handshaking,
    /// Our side of the handshake is complete.
    Established,
    /// The handshake is complete on both sides, and both know it.
    Confirmed,
    /// We have closed, and repeat CONNECTION_CLOSE while the peer keeps sending.
    Closing {
        until: Instant,
        close: Box<ClosingState>,
    },
    /// The peer has closed: nothing more is sent.
    Draining {
        until: Instant,
    },
    Closed,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct ClosingState {
    error: TransportError,
    application: bool,
    /// Packets received since the last CONNECTION_CLOSE, and after how many it is repeated: twice
    /// as many each time, so that two peers that both close do not answer each other forever (RFC
    /// 9000, section 10.2.1).
    received: u32,
    repeat_after: u32,
}

/// The control part of a connection.
pub(crate) struct Control {
    side: Side,
    config: Arc<TransportConfig>,
    state: ConnectionState,
    session: AnySession,
    /// CRYPTO bytes by space, and the space the session reads from.
    crypto: Spaces<Assembler>,
    read_space: Space,
    write_space: Space,
    levels: [Option<DirectionKeys>; 2],
    /// The version of QUIC in use, and that of the client's first packet.
    version: Version,
    original_version: Version,
    /// For Initial packets of the other version, while the peer may use either. Boxed, because a
    /// connection after its handshake has none.
    other_initial: Option<Box<DirectionKeys>>,
    one_rtt: Option<OneRttKeys>,
    /// The keys after those in use, unless they were freed while the connection was quiet.
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
    /// The reset tokens of the peer's IDs in use.
    reset_tokens: Vec<ResetToken>,
    /// The tokens for later connections that this server has issued, if any.
    issued_tokens: Option<Box<IssuedTokens>>,
    /// Where this client keeps the server's.
    received_tokens: Option<Box<ReceivedTokens>>,
    /// The state of paths, if multipath was negotiated.
    paths: Option<Box<Paths>>,
    /// The peer's limit of path IDs.
    peer_max_path: Option<PathId>,
    /// The peer's transport parameter disable_active_migration.
    peer_disables_migration: bool,
    /// Where the server wants a client to move, and the connection ID for it, until the handshake is
    /// confirmed.
    preferred: Option<Box<(PreferredAddresses, ConnectionId)>>,
    /// The peer's first Source Connection ID, once known.
    peer_first_id: Option<ConnectionId>,
    /// The destination of the client's first packet, which the server's transport parameters must
    /// repeat. At a server that has sent a Retry packet, of the packet that responds to it.
    original_destination: ConnectionId,
    /// The source of the server's Retry packet, if there was one.
    retry_source: Option<Box<ConnectionId>>,
    /// The state of 0-RTT, if TLS has had keys for it.
    early: Option<Box<Early>>,
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

impl Control {
    pub(crate) fn new(now: Instant, config: Arc<TransportConfig>, control: ControlSeed) -> Self {
        let ControlSeed {
            side,
            session,
            version,
            initial,
            other_initial,
            local_id,
            preferred_id,
            remote_id,
            original_destination,
            secrets,
        } = control;
        let mut local_ids = LocalIds::new(local_id);
        if let Some(id) = preferred_id {
            local_ids.issue(id);
        }
        let mut control = Self {
            side,
            state: ConnectionState::Handshaking,
            session,
            crypto: Spaces::default(),
            read_space: Space::Initial,
            write_space: Space::Initial,
            levels: [Some(initial), None],
            version,
            original_version: version,
            other_initial: other_initial.map(Box::new),
            one_rtt: None,
            next_phase: None,
            send_phase: 0,
            receive_phase: 0,
            phase_acknowledged: false,
            update_wanted: false,
            old_keys_until: None,
            local_ids,
            remote_ids: RemoteIds::new(remote_id),
            reset_tokens: Vec::new(),
            issued_tokens: None,
            received_tokens: None,
            paths: None,
            peer_max_path: None,
            peer_disables_migration: false,
            preferred: None,
            peer_first_id: (side == Side::Server).then_some(remote_id),
            original_destination,
            retry_source: None,
            early: None,
            parameters_done: false,
            peer_id_limit: TransportParameters::default().active_connection_id_limit,
            idle_timeout: config.idle_timeout,
            idle_at: None,
            keep_alive: config.keep_alive,
            keep_alive_at: None,
            secrets,
            routes: first_routes(side, local_id, original_destination, preferred_id),
            summary: Arc::default(),
            peer_identity: Arc::default(),
            started_at: now,
            handshake_time: None,
            config,
        };
        control.restart_idle(now, Duration::ZERO);
        control
    }

    /// Takes one value of the exchange. `pto` is the current probe timeout.
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
            ToControl::Trailer(trailer) => self.on_trailer(now, &trailer, pto, events),
            ToControl::RemoteIdsChanged => unreachable!("the connection handles it, which has both owners"),
            ToControl::RetireRemoteId { path, id } => self.retire_remote_id(path, id, exchange),
            ToControl::PathState { path, state } => events.push(Event::PathState(path, state)),
            ToControl::Migrated { path } => events.push(Event::Migrated(path)),
            ToControl::HandshakeDone => {
                if self.side == Side::Server {
                    return Err(TransportError::violation("a client sent HANDSHAKE_DONE"));
                }
                self.confirm(exchange, events);
            }
            ToControl::NewToken(token) => self.on_new_token(&token)?,
            ToControl::AddressValidated(ip) => self.on_address_validated(now, ip, exchange),
            ToControl::Closed { error, application, reason } => {
                self.on_closed_by_peer(now, error, application, reason, pto, events);
            }
            ToControl::PacketAccepted { space } => self.on_packet(now, space, pto, exchange),
            ToControl::PhaseAdvanced(epoch) => self.on_phase_advanced(now, epoch, pto, exchange),
            ToControl::ElicitingSent { at } => self.restart_idle(at, pto),
            ToControl::FirstSent(space) => {
                // RFC 9001, section 4.9.1: a client needs no Initial keys once it sends Handshake
                // packets.
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
            let reset_token = self.session.reset_token(&self.secrets, &id);
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
        if let ConnectionState::Closing { close, .. } = &mut self.state {
            close.received += 1;
            return;
        }
        if space == Space::Handshake && self.side == Side::Server && self.levels[0].is_some() {
            // It proves that the client reads what we send to its address (RFC 9000, section 8.1).
            exchange.to_send.push_back(ToSend::Validated);
            self.discard(Space::Initial, exchange);
        }
        self.restart_idle(now, pto);
    }

    /// RFC 9000, section 10.1: at least three probe timeouts, so that a lost packet does not end
    /// the connection.
    fn restart_idle(&mut self, now: Instant, pto: Duration) {
        if !self.idle_timeout.is_zero() {
            self.idle_at = Some(now + self.idle_timeout.max(pto * CLOSE_PTOS));
        }
        self.keep_alive_at = self.keep_alive.map(|interval| now + interval);
    }

    /// When [`Control::on_timeout`] has something to do.
    pub(crate) fn timeout(&self) -> Option<Instant> {
        match self.state {
            ConnectionState::Closing { until, .. } | ConnectionState::Draining { until } => Some(until),
            ConnectionState::Closed => None,
            _ => {
                let mut earliest = Earliest::default();
                earliest.note(self.idle_at);
                earliest.note(self.handshake_until());
                earliest.note(self.keep_alive_at);
                earliest.note(self.old_keys_until);
                earliest.note(self.paths.as_ref().and_then(|paths| paths.timeout()));
                earliest.get()
            }
        }
    }

    /// When the handshake must be complete; none once it is.
    fn handshake_until(&self) -> Option<Instant> {
        let timeout = self.config.handshake_timeout;
        (self.handshake_time.is_none() && !timeout.is_zero()).then(|| self.started_at + timeout)
    }

    /// True if the idle timeout has passed, even if its timer was not handled yet.
    pub(crate) fn is_idle_too_long(&self, now: Instant) -> bool {
        self.is_open() && self.idle_at.is_some_and(|at| at <= now)
    }

    /// Does what is due at `now`; does nothing if called early.
    pub(crate) fn on_timeout(&mut self, now: Instant, exchange: &mut Exchange, events: &mut Events) {
        match self.state {
            ConnectionState::Closing { until, .. } | ConnectionState::Draining { until } => {
                if until <= now {
                    self.become_closed();
                }
                return;
            }
            ConnectionState::Closed => return,
            _ => {}
        }
        if self.idle_at.is_some_and(|at| at <= now) {
            events.push(Event::Closed(ConnectionError::TimedOut));
            self.become_closed();
            return;
        }
        if self.handshake_until().is_some_and(|at| at <= now) {
            // Silently, as after the idle timeout: the peer may not receive at its address.
            self.abandon(ConnectionError::HandshakeTimedOut, events);
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
            if let Some(one_rtt) = &mut self.one_rtt {
                one_rtt.previous = None;
            }
            self.maybe_update_keys(exchange);
        }
        self.on_path_timeout(now, exchange);
    }

    // ── The close ────────────────────────────────────────────────────────────────────────────────────────────────────

    /// Closes from our side. Returns the value for the send half; none if the connection is closing
    /// already.
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
        let close = Box::new(ClosingState { error: error.clone(), application, received: 0, repeat_after: 1 });
        self.state = ConnectionState::Closing { until: now + close_span(pto), close };
        events.push(Event::Closed(if application {
            ConnectionError::ClosedLocally
        } else {
            ConnectionError::PeerMisbehaved(error.clone())
        }));
        Some(CloseValue { error, application })
    }

    /// A CONNECTION_CLOSE to repeat, because the peer still sends.
    pub(crate) fn repeat_close(&mut self) -> Option<CloseValue> {
        let ConnectionState::Closing { close, .. } = &mut self.state else { return None };
        if close.received < close.repeat_after {
            return None;
        }
        close.received = 0;
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
        if !matches!(self.state, ConnectionState::Closed) {
            self.state = ConnectionState::Draining { until: now + close_span(pto) };
        }
    }

    /// Ends at once: there is no common version.
    pub(crate) fn abandon(&mut self, error: ConnectionError, events: &mut Events) {
        if self.is_open() {
            events.push(Event::Closed(error));
        }
        self.become_closed();
    }

    fn become_closed(&mut self) {
        self.state = ConnectionState::Closed;
        self.forget_tokens();
        self.routes.extend(self.local_ids.iter().map(RouteChange::Remove));
        if let Some(paths) = &self.paths {
            self.routes.extend(paths.local_ids().map(RouteChange::Remove));
        }
        // Routed until now, so that a repetition of the client's first packet begins no second
        // connection.
        if self.side == Side::Server {
            self.routes.push_back(RouteChange::Remove(self.original_destination));
        }
    }

    // ── Questions ────────────────────────────────────────────────────────────────────────────────────────────────────

    /// The destination of the client's first packet.
    pub(crate) fn original_destination(&self) -> ConnectionId {
        self.original_destination
    }

    /// Neither side has closed.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.state, ConnectionState::Handshaking | ConnectionState::Established | ConnectionState::Confirmed)
    }

    pub(crate) fn is_handshaking(&self) -> bool {
        self.state == ConnectionState::Handshaking
    }

    /// Our side of the handshake is complete and neither side has closed.
    pub(crate) fn is_established(&self) -> bool {
        matches!(self.state, ConnectionState::Established | ConnectionState::Confirmed)
    }

    pub(crate) fn is_confirmed(&self) -> bool {
        matches!(self.state, ConnectionState::Confirmed)
    }

    /// Nothing more will be sent.
    pub(crate) fn is_silent(&self) -> bool {
        matches!(self.state, ConnectionState::Draining { .. } | ConnectionState::Closed)
    }

    /// The connection is over and can be dropped.
    pub(crate) fn is_closed(&self) -> bool {
        self.state == ConnectionState::Closed
    }

    /// Frees unused memory.
    pub(crate) fn shrink(&mut self) {
        self.routes.shrink();
        self.local_ids.shrink();
        self.remote_ids.shrink();
        self.forget_next_phase();
    }

    /// Drops the TLS session.
    pub(crate) fn park(&mut self) {
        debug_assert!(self.is_confirmed(), "a session is needed until the handshake is confirmed");
        self.session.get_mut().park();
    }

    pub(crate) fn config(&self) -> &TransportConfig {
        &self.config
    }

    pub(crate) fn session(&self) -> &dyn Session {
        self.session.get()
    }

    /// Moves the entries about TLS since the last call to a journal.
    pub(crate) fn take_session_entries(&mut self, out: &mut Vec<u8>) {
        self.session.take_entries(out);
    }

    /// Stops recording TLS.
    pub(crate) fn stop_session_recording(&mut self) {
        self.session.stop_recording();
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

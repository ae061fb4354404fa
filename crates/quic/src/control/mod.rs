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

mod address_tokens;
mod crypto_streams;
pub(crate) mod dismantle;
pub(crate) mod early;
pub(crate) mod handshake;
mod identifiers;
pub(crate) mod idle_timer;
pub(crate) mod ids;
mod key_schedule;
mod keys;
pub(crate) mod paths;
mod record;
mod resets;
mod tokens;
mod version;

use std::sync::Arc;

use units::{Duration, Instant};
use wire::quic::{ConnectionId, ErrorCode, PathId, Side, Space};

use crate::config::TransportConfig;
use crate::earliest::Earliest;
use crate::error::{ConnectionError, TransportError};
use crate::event::{Event, Events};
use crate::exchange::{Exchange, ToControl, ToSend};
use crate::journal::session::{AnySession, ReplayedSession};
use crate::secret::SecretSource;
use crate::seed::ControlSeed;
use crate::send::closing::CloseValue;
use crate::send::frames::ControlFrame;
use crate::session::{Session, SessionSummary};
use address_tokens::AddressTokens;
use crypto_streams::{CryptoStreams, SessionSpaces};
use early::Early;
use identifiers::{FirstIds, IdSource, Identifiers};
use idle_timer::{CLOSE_PTOS, IdleTimer};
use ids::RouteChange;
use key_schedule::KeySchedule;
use paths::Paths;
use record::{HandshakeRecord, PeerTerms, Versions};

/// Closing and draining last no longer than this, whatever round trip a dishonest peer causes:
/// state may be discarded early (RFC 9000, section 10.2).
const CLOSE_SPAN_MAX: Duration = Duration::from_secs(10);

fn close_span(pto: Duration) -> Duration {
    (pto * CLOSE_PTOS).min(CLOSE_SPAN_MAX)
}

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
    crypto: CryptoStreams,
    spaces: SessionSpaces,
    keys: KeySchedule,
    versions: Versions,
    ids: Identifiers,
    secrets: SecretSource,
    tokens: AddressTokens,
    peer: PeerTerms,
    /// The state of 0-RTT, if TLS has had keys for it.
    early: Option<Box<Early>>,
    /// The state of paths, if multipath was negotiated.
    paths: Option<Box<Paths>>,
    idle: IdleTimer,
    record: HandshakeRecord,
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
        let first = FirstIds { local: local_id, preferred: preferred_id, remote: remote_id, original_destination };
        Self {
            side,
            state: ConnectionState::Handshaking,
            session,
            crypto: CryptoStreams::new(),
            spaces: SessionSpaces::FIRST,
            keys: KeySchedule::new(initial, other_initial),
            versions: Versions { current: version, original: version },
            ids: Identifiers::new(side, &first),
            secrets,
            tokens: AddressTokens::default(),
            peer: PeerTerms::default(),
            early: None,
            paths: None,
            idle: IdleTimer::new(now, config.idle_timeout, config.keep_alive),
            record: HandshakeRecord::new(now),
            config,
        }
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
            ToControl::NewToken(token) => {
                if self.side == Side::Server {
                    return Err(TransportError::violation("a client sent NEW_TOKEN"));
                }
                self.tokens.on_token(self.versions.current, &token);
            }
            ToControl::AddressValidated(ip) => self.on_address_validated(now, ip, exchange),
            ToControl::Closed { error, application, reason } => {
                self.on_closed_by_peer(now, error, application, reason, pto, events);
            }
            ToControl::PacketAccepted { space } => self.on_packet(now, space, pto, exchange),
            ToControl::PhaseAdvanced(epoch) => self.on_phase_advanced(now, epoch, pto, exchange),
            ToControl::ElicitingSent { at } => self.idle.restart(at, pto),
            ToControl::FirstSent(space) => {
                // RFC 9001, section 4.9.1: a client needs no Initial keys once it sends Handshake
                // packets.
                if space == Space::Handshake && self.side == Side::Client {
                    self.discard(Space::Initial, exchange);
                }
            }
            ToControl::PhaseAcknowledged(phase) => {
                self.keys.on_acknowledged(phase);
                self.keys.maybe_update(self.is_confirmed(), &self.session, exchange);
            }
            ToControl::KeyWornOut => {
                self.keys.request_update();
                self.keys.maybe_update(self.is_confirmed(), &self.session, exchange);
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
        let mut source = IdSource { secrets: &mut self.secrets, session: &mut self.session };
        self.ids.issue(path, &mut source, exchange);
    }

    /// As [`issue_ids`](Self::issue_ids), for the paths after the first.
    fn issue_path_ids(&mut self, exchange: &mut Exchange) {
        if let Some(paths) = &mut self.paths {
            let mut source = IdSource { secrets: &mut self.secrets, session: &mut self.session };
            paths.issue_ids(&mut self.ids, &mut source, exchange);
        }
    }

    /// The next change to what the endpoint routes here.
    pub(crate) fn poll_route(&mut self) -> Option<RouteChange> {
        self.ids.routes.pop_front()
    }

    // ── Timers ───────────────────────────────────────────────────────────────────────────────────────────────────────

    /// A packet was authentic.
    pub(crate) fn on_packet(&mut self, now: Instant, space: Space, pto: Duration, exchange: &mut Exchange) {
        if let ConnectionState::Closing { close, .. } = &mut self.state {
            close.received += 1;
            return;
        }
        if space == Space::Handshake && self.side == Side::Server && self.keys.levels[0].is_some() {
            // It proves that the client reads what we send to its address (RFC 9000, section 8.1).
            exchange.to_send.push_back(ToSend::Validated);
            self.discard(Space::Initial, exchange);
        }
        self.idle.restart(now, pto);
    }

    /// When [`Control::on_timeout`] has something to do.
    pub(crate) fn timeout(&self) -> Option<Instant> {
        match self.state {
            ConnectionState::Closing { until, .. } | ConnectionState::Draining { until } => Some(until),
            ConnectionState::Closed => None,
            _ => {
                let mut earliest = Earliest::default();
                self.idle.note_timeout(&mut earliest);
                earliest.note(self.record.until(self.config.handshake_timeout));
                earliest.note(self.keys.timeout());
                earliest.note(self.paths.as_ref().and_then(|paths| paths.timeout()));
                earliest.get()
            }
        }
    }

    /// True if the idle timeout has passed, even if its timer was not handled yet.
    pub(crate) fn is_idle_too_long(&self, now: Instant) -> bool {
        self.is_open() && self.idle.is_over(now)
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
        if self.idle.is_over(now) {
            events.push(Event::Closed(ConnectionError::TimedOut));
            self.become_closed();
            return;
        }
        if self.record.until(self.config.handshake_timeout).is_some_and(|at| at <= now) {
            // Silently, as after the idle timeout: the peer may not receive at its address.
            self.abandon(ConnectionError::HandshakeTimedOut, events);
            return;
        }
        let is_established = self.is_established();
        if self.idle.takes_keep_alive(now, is_established) {
            exchange.to_send.push_back(ToSend::Control(ControlFrame::Ping));
        }
        if self.keys.on_timeout(now) {
            self.keys.maybe_update(self.is_confirmed(), &self.session, exchange);
        }
        if let Some(paths) = &mut self.paths
            && paths.forget_over(now, &mut self.ids, exchange)
        {
            self.issue_path_ids(exchange);
        }
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
        self.ids.end(self.side, self.paths.iter().flat_map(|paths| paths.local_ids()));
    }

    // ── Questions ────────────────────────────────────────────────────────────────────────────────────────────────────

    /// The destination of the client's first packet.
    pub(crate) fn original_destination(&self) -> ConnectionId {
        self.ids.original_destination
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
        self.ids.shrink();
        self.keys.forget_next_phase();
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
        self.record.peer_identity.clone()
    }

    pub(crate) fn summary(&self) -> Arc<SessionSummary> {
        self.record.summary.clone()
    }

    pub(crate) fn times(&self) -> (Instant, Option<Duration>) {
        (self.record.started_at, self.record.duration)
    }
}

//! Recording the output of TLS and replaying it, so that a replay needs no keys.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;

use ::journal::format::{Malformed, Parsed, bytes, flag, put_bytes, put_word, text, word};
use units::Instant;
use wire::quic::{ConnectionId, PathId, Reader, Space, Version};

use super::format::{put_version, tag, version};
use super::records::{error, put_error};
use crate::address_tokens::TOKEN_LEN_MAX;
use crate::control::ids::ResetToken;
use crate::error::TransportError;
use crate::secret::SecretSource;
use crate::session::{
    DirectionKeys, ExportError, HeaderKey, LevelKeys, NewKeys, OpenFailed, PacketKey, PhaseKeys, Session,
    SessionSummary, TAG_LEN,
};

/// The most bytes of one output of TLS: more than any certificate chain takes.
const SAID_MAX: usize = 256 << 10;

/// The session of a connection: live, recorded or replayed.
pub(crate) enum AnySession {
    /// It is not recorded.
    Plain(Box<dyn Session>),
    Recorded(Box<RecordedSession>),
    /// It repeats the recorded output.
    Replayed(Box<ReplayedSession>),
}

/// A session whose output to the connection is recorded.
pub(crate) struct RecordedSession {
    inner: Box<dyn Session>,
    /// Entries that the journal has not taken yet: those of one call of the connection.
    entries: Vec<u8>,
    has_parameters: bool,
}

impl RecordedSession {
    /// Records the state after a call: whether the handshake continues, whether the version is 2, and
    /// the peer's parameters once they are there.
    fn note_state(&mut self) {
        let parameters = if self.has_parameters { None } else { self.inner.peer_parameters() };
        let state = u8::from(self.inner.is_handshaking())
            | u8::from(parameters.is_some()) << 1
            | u8::from(self.inner.version() == Version::V2) << 2;
        self.entries.push(state);
        if let Some(parameters) = parameters {
            put_bytes(&mut self.entries, parameters);
            self.has_parameters = true;
        }
    }
}

impl AnySession {
    /// Records the session from now on.
    pub(crate) fn recorded(self) -> Self {
        match self {
            Self::Plain(inner) => {
                Self::Recorded(Box::new(RecordedSession { inner, entries: Vec::new(), has_parameters: false }))
            }
            other => other,
        }
    }

    /// Stops recording it.
    pub(crate) fn stop_recording(&mut self) {
        if let Self::Recorded(_) = self {
            let held = std::mem::replace(self, Self::Replayed(Box::new(ReplayedSession::new())));
            *self = Self::Plain(held.into_inner());
        }
    }

    /// The session itself.
    pub(crate) fn into_inner(self) -> Box<dyn Session> {
        match self {
            Self::Plain(inner) => inner,
            Self::Recorded(recorded) => recorded.inner,
            Self::Replayed(replayed) => replayed,
        }
    }

    pub(crate) fn get(&self) -> &dyn Session {
        match self {
            Self::Plain(inner) => inner.as_ref(),
            Self::Recorded(recorded) => recorded.inner.as_ref(),
            Self::Replayed(replayed) => replayed.as_ref(),
        }
    }

    /// For calls that are not recorded.
    pub(crate) fn get_mut(&mut self) -> &mut dyn Session {
        match self {
            Self::Plain(inner) => inner.as_mut(),
            Self::Recorded(recorded) => recorded.inner.as_mut(),
            Self::Replayed(replayed) => replayed.as_mut(),
        }
    }

    /// Moves new entries to `out`.
    pub(crate) fn take_entries(&mut self, out: &mut Vec<u8>) {
        if let Self::Recorded(recorded) = self {
            out.append(&mut recorded.entries);
        }
    }

    pub(crate) fn replayed_mut(&mut self) -> Option<&mut ReplayedSession> {
        match self {
            Self::Replayed(replayed) => Some(replayed),
            _ => None,
        }
    }

    pub(crate) fn handle_crypto(&mut self, bytes: &[u8]) -> Result<(), TransportError> {
        let result = self.get_mut().handle_crypto(bytes);
        if let Self::Recorded(recorded) = self {
            recorded.entries.push(tag::SESSION_INPUT);
            put_word(&mut recorded.entries, bytes.len() as u64);
            recorded.entries.push(u8::from(result.is_err()));
            if let Err(error) = &result {
                put_error(&mut recorded.entries, error);
            }
            recorded.note_state();
        }
        result
    }

    pub(crate) fn poll_crypto(&mut self, out: &mut Vec<u8>) -> Option<NewKeys> {
        let from = out.len();
        let keys = self.get_mut().poll_crypto(out);
        if let Self::Recorded(recorded) = self {
            recorded.entries.push(tag::SESSION_OUTPUT);
            put_bytes(&mut recorded.entries, &out[from..]);
            let (kind, keys) = match &keys {
                None => (0, None),
                Some(NewKeys::Handshake(keys)) => (1, Some(keys)),
                Some(NewKeys::OneRtt(keys)) => (2, Some(keys)),
            };
            recorded.entries.push(kind);
            if let Some(keys) = keys {
                put_word(&mut recorded.entries, keys.seal.packet.confidentiality_limit());
                put_word(&mut recorded.entries, keys.open.packet.integrity_limit());
            }
            recorded.note_state();
        }
        keys
    }

    /// The keys of 0-RTT packets, if the session has any, and at a client the transport parameters
    /// that the server had when the session began.
    pub(crate) fn take_early(&mut self) -> Option<(DirectionKeys, Vec<u8>)> {
        if let Self::Replayed(replayed) = self {
            return replayed.take_early();
        }
        let session = self.get();
        let keys = session.early_keys()?;
        let parameters = session.remembered_parameters().unwrap_or_default().to_vec();
        if let Self::Recorded(recorded) = self {
            recorded.entries.push(tag::SESSION_EARLY);
            put_bytes(&mut recorded.entries, &parameters);
            put_word(&mut recorded.entries, keys.packet.confidentiality_limit());
            put_word(&mut recorded.entries, keys.packet.integrity_limit());
        }
        Some((keys, parameters))
    }

    /// At a client with 0-RTT keys: whether the server has taken 0-RTT.
    pub(crate) fn is_early_accepted(&mut self) -> bool {
        if let Self::Replayed(replayed) = self {
            return replayed.take_verdict();
        }
        let is_accepted = self.get().is_early_accepted();
        if let Self::Recorded(recorded) = self {
            recorded.entries.extend_from_slice(&[tag::SESSION_VERDICT, u8::from(is_accepted)]);
        }
        is_accepted
    }

    /// The reset token of a connection ID of ours. A journal records it if it comes from the
    /// endpoint's key, which no journal may hold.
    pub(crate) fn reset_token(&mut self, secrets: &SecretSource, id: &ConnectionId) -> ResetToken {
        match self {
            Self::Plain(_) => secrets.reset_token(id),
            Self::Recorded(recorded) => {
                let token = secrets.reset_token(id);
                if secrets.has_reset_key() {
                    recorded.entries.push(tag::RESET_TOKEN);
                    recorded.entries.extend_from_slice(&token);
                }
                token
            }
            Self::Replayed(replayed) => replayed.take_token().unwrap_or_else(|| secrets.reset_token(id)),
        }
    }

    /// A token for the client's later connections, if the endpoint issues any: the connection's
    /// number `number`. A journal records it, since it comes from the endpoint's key.
    pub(crate) fn address_token(
        &mut self,
        secrets: &SecretSource,
        now: Instant,
        number: u8,
        addresses: &[IpAddr],
    ) -> Option<Vec<u8>> {
        let version = self.get().version();
        match self {
            Self::Plain(_) => secrets.address_token(now, version, number, addresses),
            Self::Recorded(recorded) => {
                let token = secrets.address_token(now, version, number, addresses)?;
                recorded.entries.push(tag::ADDRESS_TOKEN);
                put_bytes(&mut recorded.entries, &token);
                Some(token)
            }
            Self::Replayed(replayed) => replayed.take_address_token(),
        }
    }

    pub(crate) fn summary(&mut self) -> SessionSummary {
        let summary = match self {
            Self::Replayed(replayed) => replayed.take_summary(),
            Self::Plain(inner) => inner.summary(),
            Self::Recorded(recorded) => recorded.inner.summary(),
        };
        if let Self::Recorded(recorded) = self {
            recorded.entries.push(tag::SESSION_SUMMARY);
            put_summary(&mut recorded.entries, &summary);
        }
        summary
    }
}

fn put_summary(out: &mut Vec<u8>, summary: &SessionSummary) {
    let parts = [
        summary.cipher_suite.as_ref().map(String::as_bytes),
        summary.key_exchange.as_ref().map(String::as_bytes),
        summary.protocol.as_deref(),
    ];
    for part in parts {
        out.push(u8::from(part.is_some()));
        if let Some(part) = part {
            put_bytes(out, part);
        }
    }
    out.push(u8::from(summary.is_resumed));
    put_version(out, summary.version);
}

fn summary(reader: &mut Reader<'_>) -> Parsed<SessionSummary> {
    Ok(SessionSummary {
        cipher_suite: if flag(reader)? { Some(text(reader)?) } else { None },
        key_exchange: if flag(reader)? { Some(text(reader)?) } else { None },
        protocol: if flag(reader)? { Some(bytes(reader)?.to_vec()) } else { None },
        is_resumed: flag(reader)?,
        version: version(reader)?,
    })
}

/// One recorded call of TLS.
#[derive(Debug)]
pub(crate) struct SessionEntry {
    call: SessionCall,
    /// None for a summary.
    state: Option<SessionState>,
}

/// The state of TLS after a call.
#[derive(Debug)]
struct SessionState {
    is_handshaking: bool,
    version: Version,
    /// The peer's parameters, if they had just arrived.
    parameters: Option<Vec<u8>>,
}

#[derive(Debug)]
enum SessionCall {
    /// The result for this many bytes of the peer.
    Heard(u64, Result<(), TransportError>),
    /// Bytes to send, and new keys that follow them, with their limits.
    Bytes(Vec<u8>, Option<Keys>),
    Summary(SessionSummary),
    /// A reset token, which is no call of TLS but a secret that a replay cannot derive either.
    Token(ResetToken),
    /// As a reset token, for later connections.
    AddressToken(Vec<u8>),
    /// 0-RTT keys with their limits, and the remembered transport parameters.
    Early(Vec<u8>, u64, u64),
    /// Whether the server has taken 0-RTT.
    Verdict(bool),
}

#[derive(Debug, Clone, Copy)]
struct Keys {
    is_one_rtt: bool,
    confidentiality_limit: u64,
    integrity_limit: u64,
}

impl SessionEntry {
    /// Whether an entry of this tag is about TLS.
    pub(crate) fn is(tag: u8) -> bool {
        matches!(
            tag,
            tag::SESSION_INPUT
                | tag::SESSION_OUTPUT
                | tag::SESSION_SUMMARY
                | tag::SESSION_EARLY
                | tag::SESSION_VERDICT
                | tag::RESET_TOKEN
                | tag::ADDRESS_TOKEN
        )
    }

    /// The peer's transport parameters, if they arrived with this call.
    pub(crate) fn peer_parameters(&self) -> Option<&[u8]> {
        self.state.as_ref()?.parameters.as_deref()
    }

    /// The space whose keys were ready after this call.
    pub(crate) fn new_keys(&self) -> Option<Space> {
        let SessionCall::Bytes(_, Some(keys)) = &self.call else { return None };
        Some(if keys.is_one_rtt { Space::Data } else { Space::Handshake })
    }

    /// The result of the handshake, if this is it.
    pub(crate) fn summary(&self) -> Option<&SessionSummary> {
        if let SessionCall::Summary(summary) = &self.call { Some(summary) } else { None }
    }

    /// Reads the rest of an entry.
    pub(crate) fn read(tag: u8, reader: &mut Reader<'_>) -> Parsed<Self> {
        let call = match tag {
            tag::SESSION_INPUT => {
                let len = word(reader)?;
                let failed = flag(reader)?;
                SessionCall::Heard(len, if failed { Err(error(reader)?) } else { Ok(()) })
            }
            tag::SESSION_OUTPUT => {
                let call = bytes(reader)?;
                if call.len() > SAID_MAX {
                    return Err(Malformed("more handshake bytes than any handshake has"));
                }
                let call = call.to_vec();
                let keys = match reader.u8()? {
                    0 => None,
                    kind @ (1 | 2) => Some(Keys {
                        is_one_rtt: kind == 2,
                        confidentiality_limit: word(reader)?,
                        integrity_limit: word(reader)?,
                    }),
                    _ => return Err(Malformed("unknown keys")),
                };
                SessionCall::Bytes(call, keys)
            }
            tag::RESET_TOKEN => return Ok(Self { call: SessionCall::Token(reader.array()?), state: None }),
            tag::ADDRESS_TOKEN => {
                let token = bytes(reader)?;
                if token.is_empty() || token.len() > TOKEN_LEN_MAX {
                    return Err(Malformed("a token that no server issues"));
                }
                return Ok(Self { call: SessionCall::AddressToken(token.to_vec()), state: None });
            }
            tag::SESSION_EARLY => {
                let parameters = bytes(reader)?.to_vec();
                let call = SessionCall::Early(parameters, word(reader)?, word(reader)?);
                return Ok(Self { call, state: None });
            }
            tag::SESSION_VERDICT => {
                return Ok(Self { call: SessionCall::Verdict(flag(reader)?), state: None });
            }
            _ => return Ok(Self { call: SessionCall::Summary(summary(reader)?), state: None }),
        };
        let state = reader.u8()?;
        let parameters = if state & 2 == 0 { None } else { Some(bytes(reader)?.to_vec()) };
        let version = if state & 4 == 0 { Version::V1 } else { Version::V2 };
        Ok(Self { call, state: Some(SessionState { is_handshaking: state & 1 != 0, version, parameters }) })
    }
}

/// Repeats recorded output, in its order.
pub(crate) struct ReplayedSession {
    entries: VecDeque<SessionEntry>,
    is_handshaking: bool,
    version: Version,
    parameters: Option<Vec<u8>>,
    /// The limits of the 1-RTT keys.
    limits: Keys,
    /// The connection made another call than the recorded one.
    mismatch: Option<&'static str>,
}

impl ReplayedSession {
    pub(crate) fn new() -> Self {
        Self {
            entries: VecDeque::new(),
            is_handshaking: true,
            version: Version::V1,
            parameters: None,
            limits: Keys { is_one_rtt: false, confidentiality_limit: u64::MAX, integrity_limit: u64::MAX },
            mismatch: None,
        }
    }

    /// Adds recorded output for the next call of the connection.
    pub(crate) fn push(&mut self, entry: SessionEntry) {
        self.entries.push_back(entry);
    }

    /// The difference from the recorded calls, if any: entries are left over, or there were too
    /// few.
    pub(crate) fn take_mismatch(&mut self) -> Option<&'static str> {
        if !self.entries.is_empty() {
            self.entries.clear();
            return Some("TLS was called less often");
        }
        self.mismatch.take()
    }

    fn next(&mut self) -> Option<SessionCall> {
        let SessionEntry { call, state } = self.entries.pop_front()?;
        if let Some(state) = state {
            self.is_handshaking = state.is_handshaking;
            self.version = state.version;
            if state.parameters.is_some() {
                self.parameters = state.parameters;
            }
        }
        Some(call)
    }

    /// The next entry, if it is a reset token.
    fn take_token(&mut self) -> Option<ResetToken> {
        let token = self.entries.front().and_then(|entry| match entry.call {
            SessionCall::Token(token) => Some(token),
            _ => None,
        })?;
        self.entries.pop_front();
        Some(token)
    }

    /// The next entry, if it is a token for later connections.
    fn take_address_token(&mut self) -> Option<Vec<u8>> {
        match self.entries.front_mut()?.call {
            SessionCall::AddressToken(ref mut token) => {
                let token = std::mem::take(token);
                self.entries.pop_front();
                Some(token)
            }
            _ => None,
        }
    }

    /// The next entry, if it is of 0-RTT keys: only connections that have them record one.
    fn take_early(&mut self) -> Option<(DirectionKeys, Vec<u8>)> {
        if !matches!(self.entries.front(), Some(SessionEntry { call: SessionCall::Early(..), .. })) {
            return None;
        }
        match self.next() {
            Some(SessionCall::Early(parameters, confidentiality_limit, integrity_limit)) => {
                Some((no_level_keys(confidentiality_limit, integrity_limit).seal, parameters))
            }
            _ => unreachable!("it was just seen"),
        }
    }

    fn take_verdict(&mut self) -> bool {
        match self.next() {
            Some(SessionCall::Verdict(is_accepted)) => is_accepted,
            _ => {
                self.mismatch = Some("TLS was asked whether 0-RTT was accepted");
                false
            }
        }
    }

    fn take_summary(&mut self) -> SessionSummary {
        match self.next() {
            Some(SessionCall::Summary(summary)) => summary,
            _ => {
                self.mismatch = Some("TLS was asked for its parameters");
                SessionSummary::default()
            }
        }
    }
}

impl Session for ReplayedSession {
    fn handle_crypto(&mut self, bytes: &[u8]) -> Result<(), TransportError> {
        match self.next() {
            Some(SessionCall::Heard(len, result)) if len == bytes.len() as u64 => result,
            _ => {
                self.mismatch = Some("TLS got other bytes");
                Ok(())
            }
        }
    }

    fn poll_crypto(&mut self, out: &mut Vec<u8>) -> Option<NewKeys> {
        let Some(SessionCall::Bytes(bytes, keys)) = self.next() else {
            self.mismatch = Some("TLS was called more often");
            return None;
        };
        out.extend_from_slice(&bytes);
        let keys = keys?;
        if keys.is_one_rtt {
            self.limits = keys;
            return Some(NewKeys::OneRtt(no_level_keys(keys.confidentiality_limit, keys.integrity_limit)));
        }
        Some(NewKeys::Handshake(no_level_keys(keys.confidentiality_limit, keys.integrity_limit)))
    }

    fn next_phase(&self) -> PhaseKeys {
        let key = || Arc::new(NoKey(self.limits.confidentiality_limit, self.limits.integrity_limit));
        PhaseKeys { seal: key(), open: key() }
    }

    fn advance_phase(&mut self) {}

    fn peer_parameters(&self) -> Option<&[u8]> {
        self.parameters.as_deref()
    }

    fn is_handshaking(&self) -> bool {
        self.is_handshaking
    }

    fn initial_keys(&self, _id: &ConnectionId, _version: Version) -> Option<LevelKeys> {
        Some(no_level_keys(u64::MAX, u64::MAX))
    }

    fn version(&self) -> Version {
        self.version
    }

    fn set_version(&mut self, version: Version) {
        self.version = version;
    }

    fn peer_identity(&self) -> Vec<Vec<u8>> {
        Vec::new()
    }

    fn export(&self, _label: &[u8], _context: &[u8], _out: &mut [u8]) -> Result<(), ExportError> {
        Err(ExportError)
    }

    fn summary(&self) -> SessionSummary {
        SessionSummary::default()
    }
}

/// Placeholder keys of both directions.
pub(crate) fn no_level_keys(confidentiality_limit: u64, integrity_limit: u64) -> LevelKeys {
    let keys = || DirectionKeys {
        header: Arc::new(NoKey(0, 0)),
        packet: Arc::new(NoKey(confidentiality_limit, integrity_limit)),
    };
    LevelKeys { seal: keys(), open: keys() }
}

/// A placeholder without protection, with the confidentiality and integrity limits of the recorded
/// key.
struct NoKey(u64, u64);

impl PacketKey for NoKey {
    fn seal(&self, _path: PathId, _number: u64, _header: &[u8], _payload: &mut [u8]) -> [u8; TAG_LEN] {
        [0; TAG_LEN]
    }

    fn open(&self, _path: PathId, _number: u64, _header: &[u8], _payload: &mut [u8]) -> Result<usize, OpenFailed> {
        Err(OpenFailed)
    }

    fn confidentiality_limit(&self) -> u64 {
        self.0
    }

    fn integrity_limit(&self) -> u64 {
        self.1
    }
}

impl HeaderKey for NoKey {
    fn protect(&self, _sample: &[u8], _first: &mut u8, _number: &mut [u8]) {}

    fn unprotect(&self, _sample: &[u8], _first: &mut u8, _number: &mut [u8]) {}
}

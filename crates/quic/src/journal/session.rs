//! What TLS said, written down and said again, so that a replay needs no keys.

use std::collections::VecDeque;
use std::sync::Arc;

use wire::quic::{PathId, Reader};

use super::format::{Malformed, Parsed, bytes, put_bytes, put_word, tag, text, word};
use super::records::{error, put_error};
use crate::error::TransportError;
use crate::session::{
    DirectionKeys, ExportError, HeaderKey, LevelKeys, NewKeys, OpenFailed, PacketKey, PhaseKeys, Session,
    SessionSummary, TAG_LEN,
};

/// What TLS may say at one level in one go, bytes: more than any certificate chain takes.
const SAID_MAX: usize = 256 << 10;

/// A session as control holds it.
pub(crate) enum HeldSession {
    /// Nobody writes down what it says.
    Plain(Box<dyn Session>),
    Noted(Box<NotedSession>),
    /// It says what was written down.
    Replayed(Box<ReplayedSession>),
}

/// A session of which everything is written down that the connection gets to know.
pub(crate) struct NotedSession {
    inner: Box<dyn Session>,
    /// Entries that nobody has taken yet: those of one call of the connection.
    notes: Vec<u8>,
    has_parameters: bool,
}

impl NotedSession {
    /// What is known after a call: whether the handshake goes on, and the peer's parameters once they are there.
    fn note_state(&mut self) {
        let parameters = if self.has_parameters { None } else { self.inner.peer_parameters() };
        let state = u8::from(self.inner.is_handshaking()) | u8::from(parameters.is_some()) << 1;
        self.notes.push(state);
        if let Some(parameters) = parameters {
            put_bytes(&mut self.notes, parameters);
            self.has_parameters = true;
        }
    }
}

impl HeldSession {
    /// Writes down from now on what the session says.
    pub(crate) fn noted(self) -> Self {
        match self {
            Self::Plain(inner) => {
                Self::Noted(Box::new(NotedSession { inner, notes: Vec::new(), has_parameters: false }))
            }
            other => other,
        }
    }

    /// Nobody writes down any more what it says.
    pub(crate) fn end_notes(&mut self) {
        if let Self::Noted(_) = self {
            let held = std::mem::replace(self, Self::Replayed(Box::new(ReplayedSession::new())));
            *self = Self::Plain(held.into_inner());
        }
    }

    /// The session itself.
    pub(crate) fn into_inner(self) -> Box<dyn Session> {
        match self {
            Self::Plain(inner) => inner,
            Self::Noted(noted) => noted.inner,
            Self::Replayed(replayed) => replayed,
        }
    }

    pub(crate) fn get(&self) -> &dyn Session {
        match self {
            Self::Plain(inner) => inner.as_ref(),
            Self::Noted(noted) => noted.inner.as_ref(),
            Self::Replayed(replayed) => replayed.as_ref(),
        }
    }

    /// For calls of which nothing is to be written down.
    pub(crate) fn get_mut(&mut self) -> &mut dyn Session {
        match self {
            Self::Plain(inner) => inner.as_mut(),
            Self::Noted(noted) => noted.inner.as_mut(),
            Self::Replayed(replayed) => replayed.as_mut(),
        }
    }

    /// Moves the entries about what was said to `out`.
    pub(crate) fn take_notes(&mut self, out: &mut Vec<u8>) {
        if let Self::Noted(noted) = self {
            out.append(&mut noted.notes);
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
        if let Self::Noted(noted) = self {
            noted.notes.push(tag::SESSION_HEARD);
            put_word(&mut noted.notes, bytes.len() as u64);
            noted.notes.push(u8::from(result.is_err()));
            if let Err(error) = &result {
                put_error(&mut noted.notes, error);
            }
            noted.note_state();
        }
        result
    }

    pub(crate) fn poll_crypto(&mut self, out: &mut Vec<u8>) -> Option<NewKeys> {
        let from = out.len();
        let keys = self.get_mut().poll_crypto(out);
        if let Self::Noted(noted) = self {
            noted.notes.push(tag::SESSION_SAID);
            put_bytes(&mut noted.notes, &out[from..]);
            let (kind, keys) = match &keys {
                None => (0, None),
                Some(NewKeys::Handshake(keys)) => (1, Some(keys)),
                Some(NewKeys::OneRtt(keys)) => (2, Some(keys)),
            };
            noted.notes.push(kind);
            if let Some(keys) = keys {
                put_word(&mut noted.notes, keys.seal.packet.confidentiality_limit());
                put_word(&mut noted.notes, keys.open.packet.integrity_limit());
            }
            noted.note_state();
        }
        keys
    }

    pub(crate) fn summary(&mut self) -> SessionSummary {
        let summary = match self {
            Self::Replayed(replayed) => replayed.take_summary(),
            Self::Plain(inner) => inner.summary(),
            Self::Noted(noted) => noted.inner.summary(),
        };
        if let Self::Noted(noted) = self {
            noted.notes.push(tag::SESSION_SUMMARY);
            put_summary(&mut noted.notes, &summary);
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
}

fn summary(reader: &mut Reader<'_>) -> Parsed<SessionSummary> {
    Ok(SessionSummary {
        cipher_suite: if super::format::flag(reader)? { Some(text(reader)?) } else { None },
        key_exchange: if super::format::flag(reader)? { Some(text(reader)?) } else { None },
        protocol: if super::format::flag(reader)? { Some(bytes(reader)?.to_vec()) } else { None },
    })
}

/// One thing that TLS said.
#[derive(Debug)]
pub(crate) struct SessionNote {
    said: Said,
    /// Whether the handshake went on, and the peer's parameters if they had just come; none for what does not tell.
    state: Option<(bool, Option<Vec<u8>>)>,
}

#[derive(Debug)]
enum Said {
    /// To so many bytes of the peer's.
    Heard(u64, Result<(), TransportError>),
    /// These bytes are to be sent, and then these keys hold, with their limits.
    Bytes(Vec<u8>, Option<Keys>),
    Summary(SessionSummary),
}

#[derive(Debug, Clone, Copy)]
struct Keys {
    is_one_rtt: bool,
    confidentiality_limit: u64,
    integrity_limit: u64,
}

impl SessionNote {
    /// Whether an entry of this tag is one of these.
    pub(crate) fn is(tag: u8) -> bool {
        matches!(tag, tag::SESSION_HEARD | tag::SESSION_SAID | tag::SESSION_SUMMARY)
    }

    /// Reads the rest of an entry.
    pub(crate) fn read(tag: u8, reader: &mut Reader<'_>) -> Parsed<Self> {
        let said = match tag {
            tag::SESSION_HEARD => {
                let len = word(reader)?;
                let failed = super::format::flag(reader)?;
                Said::Heard(len, if failed { Err(error(reader)?) } else { Ok(()) })
            }
            tag::SESSION_SAID => {
                let said = bytes(reader)?;
                if said.len() > SAID_MAX {
                    return Err(Malformed("more handshake bytes than any handshake has"));
                }
                let said = said.to_vec();
                let keys = match reader.u8()? {
                    0 => None,
                    kind @ (1 | 2) => Some(Keys {
                        is_one_rtt: kind == 2,
                        confidentiality_limit: word(reader)?,
                        integrity_limit: word(reader)?,
                    }),
                    _ => return Err(Malformed("unknown keys")),
                };
                Said::Bytes(said, keys)
            }
            _ => return Ok(Self { said: Said::Summary(summary(reader)?), state: None }),
        };
        let state = reader.u8()?;
        let parameters = if state & 2 == 0 { None } else { Some(bytes(reader)?.to_vec()) };
        Ok(Self { said, state: Some((state & 1 != 0, parameters)) })
    }
}

/// Says what was written down, in the order in which it is asked.
pub(crate) struct ReplayedSession {
    notes: VecDeque<SessionNote>,
    is_handshaking: bool,
    parameters: Option<Vec<u8>>,
    /// Of the 1-RTT keys.
    limits: Keys,
    /// The connection asked for something else than it did when this was written.
    trouble: Option<&'static str>,
}

impl ReplayedSession {
    pub(crate) fn new() -> Self {
        Self {
            notes: VecDeque::new(),
            is_handshaking: true,
            parameters: None,
            limits: Keys { is_one_rtt: false, confidentiality_limit: u64::MAX, integrity_limit: u64::MAX },
            trouble: None,
        }
    }

    /// What is said during the next call of the connection.
    pub(crate) fn push(&mut self, note: SessionNote) {
        self.notes.push_back(note);
    }

    /// What did not go as it was written, after a call: then notes are left over, or there were too few.
    pub(crate) fn take_trouble(&mut self) -> Option<&'static str> {
        if !self.notes.is_empty() {
            self.notes.clear();
            return Some("TLS was asked for less");
        }
        self.trouble.take()
    }

    fn next(&mut self) -> Option<Said> {
        let SessionNote { said, state } = self.notes.pop_front()?;
        if let Some((is_handshaking, parameters)) = state {
            self.is_handshaking = is_handshaking;
            if parameters.is_some() {
                self.parameters = parameters;
            }
        }
        Some(said)
    }

    fn take_summary(&mut self) -> SessionSummary {
        match self.next() {
            Some(Said::Summary(summary)) => summary,
            _ => {
                self.trouble = Some("TLS was asked what it had agreed on");
                SessionSummary::default()
            }
        }
    }
}

impl Session for ReplayedSession {
    fn handle_crypto(&mut self, bytes: &[u8]) -> Result<(), TransportError> {
        match self.next() {
            Some(Said::Heard(len, result)) if len == bytes.len() as u64 => result,
            _ => {
                self.trouble = Some("TLS was told something else");
                Ok(())
            }
        }
    }

    fn poll_crypto(&mut self, out: &mut Vec<u8>) -> Option<NewKeys> {
        let Some(Said::Bytes(bytes, keys)) = self.next() else {
            self.trouble = Some("TLS was asked for more");
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

/// Keys in name only, of both directions.
pub(crate) fn no_level_keys(confidentiality_limit: u64, integrity_limit: u64) -> LevelKeys {
    let keys = || DirectionKeys {
        header: Arc::new(NoKey(0, 0)),
        packet: Arc::new(NoKey(confidentiality_limit, integrity_limit)),
    };
    LevelKeys { seal: keys(), open: keys() }
}

/// Protects nothing, and has the limits of a key that did: those of confidentiality and integrity.
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

//! The output of a connection, as recorded.

use std::fmt;

use ::journal::digest::Digest;
use ::journal::format::{Malformed, Parsed, bytes, flag, put, put_bytes, put_word, short, word};
use ::journal::planned::PlanRecord;
use wire::quic::{Dir, PathId, Reader, Space, StreamId};

use super::digest::plan_digest;
use super::format::id;
use crate::control::ids::RouteChange;
use crate::control::paths::migrate::MigrateError;
use crate::control::paths::open::OpenPathError;
use crate::event::Event;
use crate::plan::Plan;
use crate::receive::streams::{Chunk, ReadError};
use crate::send::datagrams::SendDatagramError;
use crate::send::streams::WriteError;
use crate::stats::PathState;

/// The answer to a call of the application: a kind and a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Answer(pub(crate) u64, pub(crate) u64);

impl Answer {
    pub(crate) const DONE: u64 = 0;
    const BLOCKED: u64 = 1;
    const GIVEN_UP: u64 = 2;
    const CLOSED: u64 = 3;
    const END: u64 = 4;
    const TOO_LARGE: u64 = 5;
    const REFUSED: u64 = 6;
    const NOT_MIGRATED: u64 = 7;

    pub(crate) fn from_bool(is_so: bool) -> Self {
        Self(Self::DONE, u64::from(is_so))
    }

    /// An optional number: 0 for none, otherwise the number plus one.
    pub(crate) fn optional(number: Option<u64>) -> Self {
        Self(Self::DONE, number.map_or(0, |number| number.saturating_add(1)))
    }

    pub(crate) fn written(result: Result<(), WriteError>, taken: usize) -> Self {
        match result {
            Ok(()) => Self(Self::DONE, taken as u64),
            Err(WriteError::Blocked) => Self(Self::BLOCKED, taken as u64),
            Err(WriteError::Stopped(code)) => Self(Self::GIVEN_UP, code),
            Err(WriteError::Closed) => Self(Self::CLOSED, 0),
        }
    }

    pub(crate) fn read(result: &Result<Chunk, ReadError>) -> Self {
        match result {
            Ok(Chunk::Bytes(bytes)) => Self(Self::DONE, bytes.len() as u64),
            Ok(Chunk::End) => Self(Self::END, 0),
            Err(error) => Self::stopped(Err(*error)),
        }
    }

    pub(crate) fn stopped(result: Result<(), ReadError>) -> Self {
        match result {
            Ok(()) => Self(Self::DONE, 0),
            Err(ReadError::Blocked) => Self(Self::BLOCKED, 0),
            Err(ReadError::Reset(code)) => Self(Self::GIVEN_UP, code),
            Err(ReadError::Closed) => Self(Self::CLOSED, 0),
        }
    }

    pub(crate) fn datagram(result: Result<(), SendDatagramError>) -> Self {
        match result {
            Ok(()) => Self(Self::DONE, 0),
            Err(SendDatagramError::QueueFull) => Self(Self::BLOCKED, 0),
            Err(SendDatagramError::Unsupported) => Self(Self::CLOSED, 0),
            Err(SendDatagramError::TooLarge(max)) => Self(Self::TOO_LARGE, max as u64),
        }
    }

    pub(crate) fn path(result: Result<(), OpenPathError>) -> Self {
        result.map_or_else(|error| Self(Self::REFUSED, error as u64), |()| Self(Self::DONE, 0))
    }

    pub(crate) fn migration(result: Result<(), MigrateError>) -> Self {
        result.map_or_else(|error| Self(Self::NOT_MIGRATED, error as u64), |()| Self(Self::DONE, 0))
    }

    /// As a varint encodes it: a larger number becomes the largest.
    fn limited(self) -> Self {
        Self(self.0, self.1.min(wire::quic::VARINT_MAX))
    }

    pub(crate) fn matches(self, other: Self) -> bool {
        self.limited() == other.limited()
    }

    pub(crate) fn put(self, out: &mut Vec<u8>) {
        put(out, self.0);
        put(out, self.1);
    }

    pub(crate) fn parse(reader: &mut Reader<'_>) -> Parsed<Self> {
        Ok(Self(reader.varint()?, reader.varint()?))
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(kind, number) = *self;
        match kind {
            Self::DONE if number == 0 => f.write_str("done"),
            Self::DONE => write!(f, "done, {number}"),
            Self::BLOCKED if number == 0 => f.write_str("blocked"),
            Self::BLOCKED => write!(f, "blocked after {number} bytes"),
            Self::GIVEN_UP => write!(f, "given up with code {number}"),
            Self::CLOSED => f.write_str("closed"),
            Self::END => f.write_str("the end"),
            Self::TOO_LARGE => write!(f, "too large, at most {number} bytes fit"),
            Self::REFUSED => match OpenPathError::ALL.iter().find(|error| **error as u64 == number) {
                Some(error) => write!(f, "refused: {error}"),
                None => write!(f, "refused for reason {number}"),
            },
            Self::NOT_MIGRATED => write!(f, "not migrated for reason {number}"),
            _ => write!(f, "answer {kind}, {number}"),
        }
    }
}

/// The size of a plan and a digest of its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PlanEntry {
    pub(crate) path: PathId,
    pub(crate) datagrams: u64,
    pub(crate) bytes: u64,
    /// First and last 1-RTT packet number.
    pub(crate) numbers: Option<(u64, u64)>,
    pub(crate) digest: u64,
}

impl PlanEntry {
    pub(crate) fn of(plan: &Plan) -> Self {
        Self {
            path: plan.path,
            datagrams: plan.datagram_count as u64,
            bytes: plan.size_bytes as u64,
            numbers: plan.numbers[Space::Data.index()],
            digest: plan_digest(plan),
        }
    }
}

impl PlanRecord for PlanEntry {
    fn put(&self, out: &mut Vec<u8>) {
        put(out, u64::from(self.path.0));
        put(out, self.datagrams);
        put(out, self.bytes);
        out.push(u8::from(self.numbers.is_some()));
        if let Some((first, last)) = self.numbers {
            put(out, first);
            put(out, last - first);
        }
        put_word(out, self.digest);
    }

    fn parse(reader: &mut Reader<'_>) -> Parsed<Self> {
        let path = PathId(short(reader)?);
        let (datagrams, bytes) = (reader.varint()?, reader.varint()?);
        let numbers = if flag(reader)? {
            let (first, count) = (reader.varint()?, reader.varint()?);
            Some((first, first + count))
        } else {
            None
        };
        Ok(Self { path, datagrams, bytes, numbers, digest: word(reader)? })
    }
}

impl fmt::Display for PlanEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} datagrams, {} bytes on {}", self.datagrams, self.bytes, self.path)?;
        if let Some((first, last)) = self.numbers {
            write!(f, ", packets {first} to {last}")?;
        }
        write!(f, ", digest {:016x}", self.digest)
    }
}

/// The result of asking for a plan.
pub(crate) type Planned = ::journal::planned::Planned<PlanEntry>;

/// An event as a kind and two numbers; a close reason is recorded as a digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EventEntry(u8, u64, u64);

/// The number of kinds.
const EVENT_KINDS: u8 = 14;

impl EventEntry {
    pub(crate) fn of(event: &Event) -> Self {
        let dir = |dir: &Dir| dir.index() as u64;
        match event {
            Event::Connected => Self(0, 0, 0),
            Event::Confirmed => Self(1, 0, 0),
            Event::Opened(kind) => Self(2, dir(kind), 0),
            Event::StreamsAvailable(kind) => Self(3, dir(kind), 0),
            Event::Readable(id) => Self(4, id.raw(), 0),
            Event::Writable(id) => Self(5, id.raw(), 0),
            Event::Finished(id) => Self(6, id.raw(), 0),
            Event::Stopped { id, code } => Self(7, id.raw(), *code),
            Event::PathOpened(path) => Self(8, u64::from(path.0), 0),
            Event::PathState(path, state) => Self(9, u64::from(path.0), *state as u64),
            Event::DatagramReceived => Self(10, 0, 0),
            Event::Closed(error) => {
                let mut digest = Digest::new(0);
                digest.bytes(format!("{error:?}").as_bytes());
                // 62 bits fit a varint.
                Self(11, digest.finish() >> 2, 0)
            }
            Event::Migrated(path) => Self(12, u64::from(path.0), 0),
            Event::EarlyRejected => Self(13, 0, 0),
        }
    }

    /// Whether it is about data that can be read or written, which is frequent.
    pub(crate) const fn is_about_data(self) -> bool {
        matches!(self.0, 4 | 5 | 10)
    }

    pub(crate) fn put(self, out: &mut Vec<u8>) {
        out.push(self.0);
        put(out, self.1);
        put(out, self.2);
    }

    pub(crate) fn parse(reader: &mut Reader<'_>) -> Parsed<Self> {
        let entry = Self(reader.u8()?, reader.varint()?, reader.varint()?);
        if entry.0 < EVENT_KINDS { Ok(entry) } else { Err(Malformed("an unknown event")) }
    }
}

impl fmt::Display for EventEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(kind, first, second) = *self;
        let direction = if first == 0 { "bidirectional" } else { "unidirectional" };
        match kind {
            0 => f.write_str("connected"),
            1 => f.write_str("confirmed"),
            2 => write!(f, "the peer opened a {direction} stream"),
            3 => write!(f, "{direction} streams can be opened"),
            4 => write!(f, "{} is readable", StreamId::from_raw(first)),
            5 => write!(f, "{} is writable", StreamId::from_raw(first)),
            6 => write!(f, "{} is finished", StreamId::from_raw(first)),
            7 => write!(f, "{} is stopped with code {second}", StreamId::from_raw(first)),
            8 => write!(f, "path {first} opened"),
            9 => match PathState::ALL.iter().find(|state| **state as u64 == second) {
                Some(state) => write!(f, "path {first} is {}", state.name()),
                None => write!(f, "path {first} is in state {second}"),
            },
            10 => f.write_str("a datagram was received"),
            12 => write!(f, "path {first} migrated"),
            13 => f.write_str("0-RTT was rejected"),
            _ => write!(f, "closed, for a reason of digest {first:016x}"),
        }
    }
}

pub(crate) fn put_route(out: &mut Vec<u8>, change: &RouteChange) {
    let (kind, id) = match change {
        RouteChange::Remove(id) => (0, id.as_slice()),
        RouteChange::Add(id) => (1, id.as_slice()),
        RouteChange::RemoveReset(token) => (2, &token[..]),
        RouteChange::AddReset(token) => (3, &token[..]),
    };
    out.push(kind);
    put_bytes(out, id);
}

pub(crate) fn route(reader: &mut Reader<'_>) -> Parsed<RouteChange> {
    let kind = reader.u8()?;
    if let 2 | 3 = kind {
        let token = bytes(reader)?.try_into().map_err(|_| Malformed("a token of another length"))?;
        return Ok(if kind == 3 { RouteChange::AddReset(token) } else { RouteChange::RemoveReset(token) });
    }
    let id = id(reader)?;
    match kind {
        0 => Ok(RouteChange::Remove(id)),
        1 => Ok(RouteChange::Add(id)),
        _ => Err(Malformed("an unknown change of routes")),
    }
}

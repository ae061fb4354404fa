//! Reading entries.

use std::fmt;

use ::journal::format::{Malformed, Parsed, bytes, flag, short, tag as common, text, time, unzigzag};
use ::journal::out::Half;
use units::Instant;
use wire::quic::{ConnectionId, Dir, PathId, Reader, Space, StreamId, VARINT_MAX, Version};

use super::format::{ADDRESSES_NUMBERED_MAX, addresses, id, limit, path_set, tag, version};
use super::outcome::{EventEntry, route};
use super::records::{ReadRecords, dir, stream};
use crate::addresses::Addresses;
use crate::class::{PathSet, RateLimit};
use crate::control::ids::{ResetToken, RouteChange};
use crate::open::Batch;
use crate::plan::Receipt;
use crate::send::datagrams::DatagramPaths;
use crate::send::streams::WRITE_LEN_MAX;

/// One entry of a log: an input or an output. Prints as a line for people.
#[derive(Debug)]
pub struct Entry(pub(crate) Input, pub(crate) Half);

/// The content of an entry.
#[derive(Debug)]
pub(crate) enum Input {
    Timeout,
    Emitted(Receipt),
    NotEmitted(Receipt),
    PlanAsked,
    TailAsked(usize),

    Arrival { path: PathId, addresses: Addresses, count: u64, len: u64 },
    Opened { batch: Batch, records: ReadRecords },
    Single { source: Option<(ConnectionId, Version)>, records: ReadRecords },
    Settle,
    OtherVersion,
    Trailer(ResetToken),
    Retry(ConnectionId, Vec<u8>),
    Token(Vec<u8>),

    Open(Dir),
    OpenEarly(Dir),
    Accept(Dir),
    Write(StreamId, usize),
    WriteSome(StreamId, usize),
    Finish(StreamId),
    Reset(StreamId, u64),
    Priority(StreamId, i32),
    SetRate(Option<RateLimit>),
    SetStreamRate(StreamId, Option<RateLimit>),
    SetStreamPaths(StreamId, PathSet),
    SetBackground(StreamId, bool),
    Read(StreamId, usize),
    Stop(StreamId, u64),
    SendDatagram(usize),
    SendDatagramOn(usize, DatagramPaths),
    RecvDatagram,
    Close { code: u64, reason: String },
    OpenPath { addresses: Addresses, is_backup: bool },
    Migrate(Addresses),
    AbandonPath(PathId, u64),
    SetBackup(PathId, bool),
    TooLarge(PathId),
    Refused(PathId),

    Event(EventEntry),
    Route(RouteChange),

    Detached,
    Attached,
    GaveCommands(u64),
    TookCommands(u64),
    GaveReport(u64),
    TookReport(u64),
}

/// The state of the reader from one entry to the next.
#[derive(Debug)]
pub(crate) struct ReadState {
    /// The time of the last entry that has one, in nanoseconds.
    pub(crate) last: u64,
    addresses: Vec<Addresses>,
}

impl ReadState {
    pub(crate) fn new(began_at: Instant) -> Self {
        Self { last: began_at.as_nanos(), addresses: Vec::new() }
    }

    fn addresses(&mut self, reader: &mut Reader<'_>) -> Parsed<Addresses> {
        match reader.varint()?.checked_sub(1) {
            None => {
                let addresses = addresses(reader)?;
                if self.addresses.len() < ADDRESSES_NUMBERED_MAX {
                    self.addresses.push(addresses);
                }
                Ok(addresses)
            }
            Some(at) => {
                let at = usize::try_from(at).unwrap_or(usize::MAX);
                self.addresses.get(at).copied().ok_or(Malformed("addresses of a number that was not given"))
            }
        }
    }

    fn time(&mut self, reader: &mut Reader<'_>) -> Parsed<()> {
        time(reader, &mut self.last).map(|_| ())
    }

    /// The time of the next entry, if it has one and can be read.
    pub(crate) fn time_ahead(&self, tag: u8, ahead: &[u8]) -> Option<Instant> {
        let mut last = self.last;
        is_timed(tag).then(|| time(&mut Reader::new(ahead), &mut last).ok())?
    }

    /// Reads the rest of an entry of this half.
    pub(crate) fn read(&mut self, half: Half, tag: u8, reader: &mut Reader<'_>) -> Parsed<Input> {
        if !is_of(half, tag) {
            return Err(Malformed("an entry of the other half"));
        }
        if is_timed(tag) {
            self.time(reader)?;
        }
        Ok(match tag {
            tag::TIMEOUT => Input::Timeout,
            tag::EMITTED => Input::Emitted(receipt(reader)?),
            tag::NOT_EMITTED => Input::NotEmitted(receipt(reader)?),
            tag::PLAN_ASKED => Input::PlanAsked,
            tag::TAIL_ASKED => Input::TailAsked(size(reader)?),
            tag::ARRIVAL => {
                let (path, addresses) = (path(reader)?, self.addresses(reader)?);
                Input::Arrival { path, addresses, count: u64::from(short(reader)?), len: u64::from(short(reader)?) }
            }
            tag::OPENED => {
                let (path, addresses, len) = (path(reader)?, self.addresses(reader)?, u64::from(short(reader)?));
                let records = ReadRecords::read(reader)?;
                let integrity_limit = records.integrity_limit;
                Input::Opened { batch: Batch { path, addresses, len, integrity_limit }, records }
            }
            tag::SINGLE => {
                let source = if flag(reader)? { Some((id(reader)?, version(reader)?)) } else { None };
                Input::Single { source, records: ReadRecords::read(reader)? }
            }
            tag::SETTLE => Input::Settle,
            tag::OTHER_VERSION => Input::OtherVersion,
            tag::TRAILER => Input::Trailer(reader.array()?),
            tag::RETRY => Input::Retry(id(reader)?, bytes(reader)?.to_vec()),
            tag::TOKEN => Input::Token(bytes(reader)?.to_vec()),
            tag::OPEN_PATH => {
                let is_backup = flag(reader)?;
                Input::OpenPath { addresses: self.addresses(reader)?, is_backup }
            }
            tag::MIGRATE => Input::Migrate(self.addresses(reader)?),
            tag::EVENT => Input::Event(EventEntry::parse(reader)?),
            tag::ROUTE => Input::Route(route(reader)?),
            common::DETACHED => Input::Detached,
            common::ATTACHED => Input::Attached,
            common::GAVE_COMMANDS => Input::GaveCommands(reader.varint()?),
            common::TOOK_COMMANDS => Input::TookCommands(reader.varint()?),
            common::GAVE_REPORT => Input::GaveReport(reader.varint()?),
            common::TOOK_REPORT => Input::TookReport(reader.varint()?),
            _ => call(tag, reader)?,
        })
    }
}

/// Whether a half writes entries of this tag.
fn is_of(half: Half, tag: u8) -> bool {
    let is_of_receive_half_alone = matches!(tag, common::TOOK_COMMANDS | common::GAVE_REPORT);
    let is_of_either = matches!(
        tag,
        tag::ARRIVAL
            | tag::OPENED
            | tag::TRAILER
            | tag::ACCEPT
            | tag::READ
            | tag::STOP
            | tag::RECV_DATAGRAM
            | tag::EVENT
    );
    is_of_either || is_of_receive_half_alone == (half == Half::Receive)
}

fn is_timed(tag: u8) -> bool {
    matches!(
        tag,
        tag::TIMEOUT
            | tag::EMITTED
            | tag::PLAN_ASKED
            | tag::ARRIVAL
            | tag::OPENED
            | tag::SINGLE
            | tag::SETTLE
            | tag::TRAILER
            | tag::RETRY
            | tag::READ
            | tag::STOP
            | tag::CLOSE
            | tag::OPEN_PATH
            | tag::MIGRATE
            | tag::ABANDON_PATH
            | tag::SET_BACKUP
            | tag::TOO_LARGE
            | tag::REFUSED
            | common::ATTACHED
            | common::TOOK_COMMANDS
            | common::TOOK_REPORT
    )
}

/// The application's calls, and the driver's calls about paths.
fn call(tag: u8, reader: &mut Reader<'_>) -> Parsed<Input> {
    Ok(match tag {
        tag::OPEN => Input::Open(dir(reader)?),
        tag::OPEN_EARLY => Input::OpenEarly(dir(reader)?),
        tag::ACCEPT => Input::Accept(dir(reader)?),
        tag::WRITE => {
            let (id, len) = (stream(reader)?, size(reader)?);
            if len > WRITE_LEN_MAX {
                return Err(Malformed("a write of more than can be written at once"));
            }
            Input::Write(id, len)
        }
        tag::WRITE_SOME => Input::WriteSome(stream(reader)?, size(reader)?),
        tag::FINISH => Input::Finish(stream(reader)?),
        tag::RESET => Input::Reset(stream(reader)?, reader.varint()?),
        tag::PRIORITY => {
            let (id, priority) = (stream(reader)?, unzigzag(reader.varint()?));
            Input::Priority(id, i32::try_from(priority).map_err(|_| Malformed("an impossible priority"))?)
        }
        tag::SET_RATE => Input::SetRate(limit(reader)?),
        tag::SET_STREAM_RATE => Input::SetStreamRate(stream(reader)?, limit(reader)?),
        tag::SET_STREAM_PATHS => Input::SetStreamPaths(stream(reader)?, path_set(reader)?),
        tag::SET_BACKGROUND => Input::SetBackground(stream(reader)?, is_set(reader)?),
        tag::READ => Input::Read(stream(reader)?, size(reader)?),
        tag::STOP => Input::Stop(stream(reader)?, reader.varint()?),
        tag::SEND_DATAGRAM => Input::SendDatagram(size(reader)?),
        tag::SEND_DATAGRAM_ON => Input::SendDatagramOn(size(reader)?, datagram_paths(reader)?),
        tag::RECV_DATAGRAM => Input::RecvDatagram,
        tag::CLOSE => Input::Close { code: reader.varint()?, reason: text(reader)? },
        tag::ABANDON_PATH => Input::AbandonPath(path(reader)?, reader.varint()?),
        tag::SET_BACKUP => {
            let path = path(reader)?;
            Input::SetBackup(path, is_set(reader)?)
        }
        tag::TOO_LARGE => Input::TooLarge(path_alone(reader)?),
        tag::REFUSED => Input::Refused(path_alone(reader)?),
        _ => return Err(Malformed("an unknown entry, or one that cannot be here")),
    })
}

fn path(reader: &mut Reader<'_>) -> Parsed<PathId> {
    Ok(PathId(short(reader)?))
}

/// A path, and a number that is 0 here.
fn path_alone(reader: &mut Reader<'_>) -> Parsed<PathId> {
    let path = path(reader)?;
    if reader.varint()? == 0 { Ok(path) } else { Err(Malformed("a number where none belongs")) }
}

/// A flag in the place of a number.
fn is_set(reader: &mut Reader<'_>) -> Parsed<bool> {
    match reader.varint()? {
        is_set @ (0 | 1) => Ok(is_set == 1),
        _ => Err(Malformed("a flag is neither 0 nor 1")),
    }
}

fn datagram_paths(reader: &mut Reader<'_>) -> Parsed<DatagramPaths> {
    match (reader.varint()?, reader.varint()?) {
        (0, 0) => Ok(DatagramPaths::Any),
        (1, count) => u8::try_from(count).map(DatagramPaths::Copies).map_err(|_| Malformed("impossible copies")),
        (kind @ (2 | 3), path) => {
            let path = PathId(u32::try_from(path).map_err(|_| Malformed("an impossible path"))?);
            Ok(if kind == 2 { DatagramPaths::Only(path) } else { DatagramPaths::Pinned(path) })
        }
        _ => Err(Malformed("unknown paths of a datagram")),
    }
}

fn size(reader: &mut Reader<'_>) -> Parsed<usize> {
    Ok(usize::try_from(reader.varint()?).unwrap_or(usize::MAX))
}

fn receipt(reader: &mut Reader<'_>) -> Parsed<Receipt> {
    let (path, flags) = (path(reader)?, reader.u8()?);
    if flags >> 6 != 0 {
        return Err(Malformed("unknown flags of a report"));
    }
    let mut receipt = Receipt::recorded(path);
    for space in Space::ALL {
        let at = space.index();
        receipt.acks[at] = flags >> (at + 3) & 1 != 0;
        if flags >> at & 1 != 0 {
            let (first, more) = (reader.varint()?, reader.varint()?);
            if first + more > VARINT_MAX {
                return Err(Malformed("an impossible packet number"));
            }
            receipt.numbers[at] = Some((first, first + more));
        }
    }
    Ok(receipt)
}

impl Entry {
    /// The name of its kind.
    pub const fn name(&self) -> &'static str {
        self.0.name()
    }

    /// Whether it is an event for the application or a call of the application that is not about
    /// data: the entries that a reader of a log looks for first.
    pub const fn is_milestone(&self) -> bool {
        match &self.0 {
            Input::Event(event) => !event.is_about_data(),
            Input::OtherVersion
            | Input::Reset(..)
            | Input::Stop(..)
            | Input::Close { .. }
            | Input::OpenPath { .. }
            | Input::Migrate(_)
            | Input::AbandonPath(..)
            | Input::SetBackup(..)
            | Input::TooLarge(_)
            | Input::Refused(_)
            | Input::SetRate(_)
            | Input::Detached
            | Input::Attached => true,
            _ => false,
        }
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Text(&self.0, self.1).fmt(f)
    }
}

impl Input {
    /// The name of its kind.
    const fn name(&self) -> &'static str {
        match self {
            Input::Timeout => "timeout",
            Input::Emitted(_) => "emitted",
            Input::NotEmitted(_) => "not_emitted",
            Input::PlanAsked => "plan",
            Input::TailAsked(_) => "has_only_a_tail",
            Input::Arrival { .. } => "arrival",
            Input::Opened { .. } => "opened",
            Input::Single { .. } => "packet",
            Input::Settle => "settle",
            Input::OtherVersion => "other_version",
            Input::Open(_) => "open",
            Input::OpenEarly(_) => "open_early",
            Input::Accept(_) => "accept",
            Input::Write(..) => "write",
            Input::WriteSome(..) => "write_some",
            Input::Finish(_) => "finish",
            Input::Reset(..) => "reset",
            Input::Priority(..) => "set_priority",
            Input::SetRate(_) => "set_rate",
            Input::SetStreamRate(..) => "set_stream_rate",
            Input::SetStreamPaths(..) => "set_stream_paths",
            Input::SetBackground(..) => "set_background",
            Input::Read(..) => "read",
            Input::Stop(..) => "stop",
            Input::SendDatagram(_) => "send_datagram",
            Input::SendDatagramOn(..) => "send_datagram_on",
            Input::RecvDatagram => "recv_datagram",
            Input::Close { .. } => "close",
            Input::OpenPath { .. } => "open_path",
            Input::Trailer(_) => "trailer",
            Input::Retry(..) => "retry",
            Input::Token(_) => "token",
            Input::Migrate(_) => "migrate",
            Input::AbandonPath(..) => "abandon_path",
            Input::SetBackup(..) => "set_path_backup",
            Input::TooLarge(_) => "too_large",
            Input::Refused(_) => "refused",
            Input::Event(_) => "event",
            Input::Route(_) => "route",
            Input::Detached => "detached",
            Input::Attached => "attached",
            Input::GaveCommands(_) => "gave_commands",
            Input::TookCommands(_) => "took_commands",
            Input::GaveReport(_) => "gave_report",
            Input::TookReport(_) => "took_report",
        }
    }
}

/// An input of this half, as a line for people.
pub(crate) struct Text<'a>(pub(crate) &'a Input, pub(crate) Half);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.1 == Half::Receive {
            f.write_str("receive half: ")?;
        }
        f.write_str(self.0.name())?;
        match self.0 {
            Input::Timeout | Input::PlanAsked | Input::Settle | Input::OtherVersion | Input::RecvDatagram => Ok(()),
            Input::Token(token) => write!(f, " of {} bytes", token.len()),
            Input::Retry(source, token) => write!(f, " to {source} with a token of {} bytes", token.len()),
            // A token is not for people.
            Input::Trailer(_) => Ok(()),
            Input::Detached => f.write_str(": the receive half is on another processor"),
            Input::Attached => f.write_str(": the receive half is back"),
            Input::GaveCommands(number)
            | Input::TookCommands(number)
            | Input::GaveReport(number)
            | Input::TookReport(number) => write!(f, " {number}"),
            Input::Emitted(receipt) | Input::NotEmitted(receipt) => write_receipt(receipt, f),
            Input::TailAsked(datagrams) => write!(f, " below {datagrams} datagrams"),
            Input::Arrival { path, addresses, count, len } => write!(
                f,
                " of {count} datagrams, {len} bytes, from {} at socket {} for {path}",
                addresses.remote, addresses.socket
            ),
            Input::Opened { batch, records } => write!(f, " on {}: {records}", batch.path),
            Input::Single { records, .. } => write!(f, " of the handshake: {records}"),
            Input::Open(dir) | Input::OpenEarly(dir) | Input::Accept(dir) => write!(f, " {dir:?}"),
            Input::Write(id, len) | Input::WriteSome(id, len) => write!(f, " {len} bytes to {id}"),
            Input::Finish(id) => write!(f, " {id}"),
            Input::Reset(id, code) | Input::Stop(id, code) => write!(f, " {id}, code {code}"),
            Input::Priority(id, priority) => write!(f, " of {id} to {priority}"),
            Input::SetRate(limit) => write_limit(*limit, f),
            Input::SetStreamRate(id, limit) => {
                write!(f, " of {id}")?;
                write_limit(*limit, f)
            }
            Input::SetStreamPaths(id, paths) if paths.is_all() => write!(f, " of {id} to all"),
            Input::SetStreamPaths(id, paths) => {
                write!(f, " of {id} to")?;
                paths.named().iter().try_for_each(|path| write!(f, " {}", path.0))
            }
            Input::SetBackground(id, is_background) => write!(f, " of {id}: {is_background}"),
            // No limit.
            Input::Read(id, len) if *len as u64 >= VARINT_MAX => write!(f, " {id}"),
            Input::Read(id, len) => write!(f, " {id}, at most {len} bytes"),
            Input::SendDatagram(len) => write!(f, " of {len} bytes"),
            Input::SendDatagramOn(len, paths) => write!(f, " of {len} bytes on {paths:?}"),
            Input::Close { code, reason } => write!(f, " with code {code}: {reason:?}"),
            Input::OpenPath { addresses, is_backup } => {
                let kind = if *is_backup { ", for backup" } else { "" };
                write!(f, " to {} from socket {}{kind}", addresses.remote, addresses.socket)
            }
            Input::Migrate(addresses) => write!(f, " to {} from socket {}", addresses.remote, addresses.socket),
            Input::AbandonPath(path, code) => write!(f, " {path}, code {code}"),
            Input::SetBackup(path, is_backup) => write!(f, " {path}: {is_backup}"),
            Input::TooLarge(path) | Input::Refused(path) => write!(f, " on {path}"),
            Input::Event(event) => write!(f, ": {event}"),
            Input::Route(RouteChange::Add(id)) => write!(f, " {id} here"),
            Input::Route(RouteChange::Remove(id)) => write!(f, " {id} here no longer"),
            Input::Route(RouteChange::AddReset(_)) => f.write_str(" a stateless reset here"),
            Input::Route(RouteChange::RemoveReset(_)) => f.write_str(" a stateless reset here no longer"),
        }
    }
}

fn write_limit(limit: Option<RateLimit>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match limit {
        Some(limit) => write!(f, " to {} with a burst of {} bytes", limit.rate(), limit.burst_bytes()),
        None => f.write_str(" to no limit"),
    }
}

fn write_receipt(receipt: &Receipt, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, " on {}", receipt.path)?;
    for space in Space::ALL {
        if let Some((first, last)) = receipt.numbers[space.index()] {
            write!(f, ", {space:?} packets {first} to {last}")?;
        }
    }
    Ok(())
}

impl fmt::Display for ReadRecords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let packets: u64 = self.opened.packets.iter().map(|packet| u64::from(packet.count)).sum();
        let (records, bytes) = (self.opened.records.len(), self.data_bytes());
        write!(f, "{packets} packets, {records} records, {bytes} bytes of data")?;
        if self.opened.unauthentic_count > 0 {
            write!(f, ", {} not authentic", self.opened.unauthentic_count)?;
        }
        let broken = self.opened.packets.iter().find_map(|packet| packet.error.as_ref());
        broken.map_or(Ok(()), |error| write!(f, ", a rule broken: {error}"))
    }
}

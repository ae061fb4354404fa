//! Reading entries.

use ::journal::format::{Malformed, Parsed, flag, short, tag as common, time};
use ::journal::out::Half;
use units::{Instant, Seq32};
use wire::quic::Reader;

use super::begin::keep_alive;
use super::format::tag;
use super::outcome::EventEntry;
use super::segment::LastSegment;
use crate::arrival::Arrival;
use crate::config::{DSCP_MAX, KeepAlive};
use crate::icmp::{IcmpError, IcmpErrorKind};
use crate::tuple::Tuple;

/// Contents of an entry.
#[derive(Debug)]
pub(crate) enum Input {
    Timeout,
    PlanAsked(usize),
    Emitted(u64),
    NotEmitted(u64),

    Segment(Arrival),
    Icmp(IcmpError),
    PassOverSyn,

    Write(usize),
    Finish,
    Read(usize),
    Abort,
    Orphan,
    SetNagle(bool),
    SetKeepAlive(Option<KeepAlive>),
    SetDscp(u8),

    Event(EventEntry),

    Detached,
    Attached,
    GaveCommands(u64),
    TookCommands(u64),
    GaveReport(u64),
    TookReport(u64),
}

impl Input {
    /// Returns whether a result follows the input in a log.
    pub(crate) const fn is_answered(&self) -> bool {
        matches!(self, Self::Write(_) | Self::Read(_))
    }
}

/// State of the reader between entries of one half.
#[derive(Debug)]
pub(crate) struct ReadState {
    tuple: Tuple,
    /// Time of the last entry that has one, in nanoseconds.
    last: u64,
    last_segment: LastSegment,
}

impl ReadState {
    pub(crate) fn new(began_at: Instant, tuple: Tuple) -> Self {
        Self { tuple, last: began_at.as_nanos(), last_segment: LastSegment::default() }
    }

    /// Returns the time of the last entry that has one.
    pub(crate) fn last(&self) -> Instant {
        Instant::from_nanos(self.last)
    }

    /// Returns the time of the next entry, if it has one and can be read.
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
            time(reader, &mut self.last)?;
        }
        Ok(match tag {
            tag::TIMEOUT => Input::Timeout,
            tag::PLAN_ASKED => Input::PlanAsked(size(reader)?),
            tag::EMITTED => Input::Emitted(reader.varint()?),
            tag::NOT_EMITTED => Input::NotEmitted(reader.varint()?),
            tag::SEGMENT => Input::Segment(self.last_segment.read(reader, &self.tuple)?),
            tag::ICMP => Input::Icmp(self.icmp(reader)?),
            tag::PASS_OVER_SYN => Input::PassOverSyn,
            tag::WRITE => Input::Write(size(reader)?),
            tag::FINISH => Input::Finish,
            tag::READ => Input::Read(size(reader)?),
            tag::ABORT => Input::Abort,
            tag::ORPHAN => Input::Orphan,
            tag::SET_NAGLE => Input::SetNagle(flag(reader)?),
            tag::SET_KEEP_ALIVE => Input::SetKeepAlive(keep_alive(reader)?),
            tag::SET_DSCP => Input::SetDscp(dscp(reader)?),
            tag::EVENT => Input::Event(EventEntry::parse(reader)?),
            common::DETACHED => Input::Detached,
            common::ATTACHED => Input::Attached,
            common::GAVE_COMMANDS => Input::GaveCommands(reader.varint()?),
            common::TOOK_COMMANDS => Input::TookCommands(reader.varint()?),
            common::GAVE_REPORT => Input::GaveReport(reader.varint()?),
            common::TOOK_REPORT => Input::TookReport(reader.varint()?),
            _ => return Err(Malformed("an unknown entry, or one that cannot be here")),
        })
    }

    fn icmp(&self, reader: &mut Reader<'_>) -> Parsed<IcmpError> {
        let (kind, seq, mtu) = (reader.u8()?, Seq32::new(short(reader)?), short(reader)?);
        let kind = match kind {
            0 => IcmpErrorKind::PacketTooBig(Some(mtu)),
            1 => IcmpErrorKind::Refused,
            2 => IcmpErrorKind::Unreachable,
            _ => return Err(Malformed("an unknown report")),
        };
        Ok(IcmpError { tuple: self.tuple, seq, kind })
    }
}

/// Returns whether a half writes entries with this tag.
fn is_of(half: Half, tag: u8) -> bool {
    let is_of_receive_half_alone = matches!(tag, common::TOOK_COMMANDS | common::GAVE_REPORT);
    let is_of_either = matches!(tag, tag::SEGMENT | tag::READ);
    is_of_either || is_of_receive_half_alone == (half == Half::Receive)
}

fn is_timed(tag: u8) -> bool {
    matches!(
        tag,
        tag::TIMEOUT
            | tag::PLAN_ASKED
            | tag::EMITTED
            | tag::SEGMENT
            | tag::ICMP
            | tag::PASS_OVER_SYN
            | common::ATTACHED
            | common::TOOK_REPORT
    )
}

fn dscp(reader: &mut Reader<'_>) -> Parsed<u8> {
    Some(reader.u8()?).filter(|dscp| *dscp <= DSCP_MAX).ok_or(Malformed("a DSCP of more than six bits"))
}

fn size(reader: &mut Reader<'_>) -> Parsed<usize> {
    Ok(usize::try_from(reader.varint()?).unwrap_or(usize::MAX))
}

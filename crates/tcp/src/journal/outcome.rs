//! The output of a connection, as recorded.

use std::fmt;

use ::journal::digest::Digest;
use ::journal::format::{Malformed, Parsed, flag, put, put_word, word};
use ::journal::planned::PlanRecord;
use wire::quic::Reader;
use wire::tcp::{AccEcn, Header, Options};

use super::format::bits_of;
use crate::event::{Event, SoftError};
use crate::plan::Plan;
use crate::results::{CloseReason, Read, WriteError};

/// Close reasons, indexed by their numbers in a log.
const REASONS: [CloseReason; 6] = [
    CloseReason::Finished,
    CloseReason::Reset,
    CloseReason::Refused,
    CloseReason::TimedOut,
    CloseReason::Unreachable,
    CloseReason::Aborted,
];

/// Soft errors, indexed by their numbers in a log.
const SOFT_ERRORS: [SoftError; 4] =
    [SoftError::Unreachable, SoftError::Refused, SoftError::Silent, SoftError::OldTimestamps];

fn number_of(reason: CloseReason) -> u64 {
    REASONS.iter().position(|known| *known == reason).expect("all are listed") as u64
}

/// The result of an application call: a kind and a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Answer(u64, u64);

impl Answer {
    const DONE: u64 = 0;
    const BLOCKED: u64 = 1;
    const FINISHED: u64 = 2;
    const CLOSED: u64 = 3;
    const END: u64 = 4;

    pub(crate) fn written(result: Result<(), WriteError>, taken: usize) -> Self {
        match result {
            Ok(()) => Self(Self::DONE, taken as u64),
            Err(WriteError::Blocked) => Self(Self::BLOCKED, 0),
            Err(WriteError::Finished) => Self(Self::FINISHED, 0),
            Err(WriteError::Closed(reason)) => Self(Self::CLOSED, number_of(reason)),
        }
    }

    #[inline]
    pub(crate) fn read(result: &Read) -> Self {
        match result {
            Read::Bytes(bytes) => Self(Self::DONE, bytes.len() as u64),
            Read::End => Self(Self::END, 0),
            Read::Blocked => Self(Self::BLOCKED, 0),
            Read::Closed(reason) => Self(Self::CLOSED, number_of(*reason)),
        }
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
            Self::DONE => write!(f, "{number} bytes"),
            Self::BLOCKED => f.write_str("blocked"),
            Self::FINISHED => f.write_str("finished before"),
            Self::CLOSED => write_reason(number, f),
            Self::END => f.write_str("the end"),
            _ => write!(f, "answer {kind}, {number}"),
        }
    }
}

fn write_reason(number: u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match usize::try_from(number).ok().and_then(|number| REASONS.get(number)) {
        Some(reason) => write!(f, "closed: {reason}"),
        None => write!(f, "closed for reason {number}"),
    }
}

/// Size of a plan and a digest of its contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PlanEntry {
    pub(crate) segments: u64,
    pub(crate) bytes: u64,
    /// The send half's number of the plan.
    transmission: Option<u64>,
    digest: u64,
}

impl PlanEntry {
    pub(crate) fn of(plan: &Plan) -> Self {
        Self {
            segments: plan.segment_count() as u64,
            bytes: plan.data_len() as u64,
            transmission: plan.transmission(),
            digest: plan_digest(plan),
        }
    }
}

impl PlanRecord for PlanEntry {
    fn put(&self, out: &mut Vec<u8>) {
        put(out, self.segments);
        put(out, self.bytes);
        out.push(u8::from(self.transmission.is_some()));
        if let Some(transmission) = self.transmission {
            put(out, transmission);
        }
        put_word(out, self.digest);
    }

    fn parse(reader: &mut Reader<'_>) -> Parsed<Self> {
        let (segments, bytes) = (reader.varint()?, reader.varint()?);
        let transmission = if flag(reader)? { Some(reader.varint()?) } else { None };
        Ok(Self { segments, bytes, transmission, digest: word(reader)? })
    }
}

/// Returns a digest of the segments of a plan: the header, and the data length, which determines
/// the sequence numbers.
fn plan_digest(plan: &Plan) -> u64 {
    let Plan { tuple: _, header, pieces, data_len, segment, dscp, ecn, transmission: _, md5 } = plan;
    let Header { source_port, destination_port, seq, ack, flags, window, urgent, options } = header;
    let Options { mss, window_scale, sack_permitted, timestamps, sack, md5: _, accecn } = options;
    let mut digest = Digest::new(0);
    digest.word(u64::from(*source_port) | u64::from(*destination_port) << 16 | u64::from(seq.get()) << 32);
    digest.word(u64::from(ack.get()) | u64::from(flags.0) << 32 | u64::from(*window) << 48);
    digest.word(u64::from(*urgent) | (*data_len as u64) << 16 | (*segment as u64) << 40);
    digest.word(pieces.iter().map(|piece| piece.len() as u64).sum());
    let flags = u64::from(md5.is_some()) << 2 | u64::from(*sack_permitted) << 3;
    digest.word(u64::from(bits_of(*ecn)) | flags | u64::from(*dscp) << 4);
    let mut optional = |value: Option<u64>| digest.word(value.map_or(0, |value| value + 1));
    optional(mss.map(u64::from));
    optional(window_scale.map(u64::from));
    optional(timestamps.map(|it| u64::from(it.value)));
    optional(timestamps.map(|it| u64::from(it.echo)));
    let AccEcn { e0_bytes, ce_bytes, e1_bytes } = accecn.unwrap_or_default();
    [accecn.map(|_| 0), e0_bytes, ce_bytes, e1_bytes].into_iter().for_each(|it| optional(it.map(u64::from)));
    for (start, end) in sack.iter() {
        digest.word(u64::from(start.get()) << 32 | u64::from(end.get()));
    }
    digest.finish()
}

impl fmt::Display for PlanEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} segments, {} bytes", self.segments, self.bytes)?;
        if let Some(transmission) = self.transmission {
            write!(f, ", transmission {transmission}")?;
        }
        write!(f, ", digest {:016x}", self.digest)
    }
}

/// Result of polling for a plan.
pub(crate) type Planned = ::journal::planned::Planned<PlanEntry>;

/// An event as a kind and a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EventEntry(u8, u64);

impl EventEntry {
    const CONNECTED: u8 = 0;
    const READABLE: u8 = 1;
    const WRITABLE: u8 = 2;
    const URGENT: u8 = 3;
    const SOFT_ERROR: u8 = 4;
    const CLOSED: u8 = 5;

    pub(crate) fn of(event: Event) -> Self {
        match event {
            Event::Connected => Self(Self::CONNECTED, 0),
            Event::Readable => Self(Self::READABLE, 0),
            Event::Writable => Self(Self::WRITABLE, 0),
            Event::Urgent => Self(Self::URGENT, 0),
            Event::SoftError(error) => {
                let number = SOFT_ERRORS.iter().position(|known| *known == error).expect("all are listed");
                Self(Self::SOFT_ERROR, number as u64)
            }
            Event::Closed(reason) => Self(Self::CLOSED, number_of(reason)),
        }
    }

    /// Returns whether the event concerns readable or writable data, which is frequent.
    pub(crate) const fn is_about_data(self) -> bool {
        matches!(self.0, Self::READABLE | Self::WRITABLE)
    }

    pub(crate) fn put(self, out: &mut Vec<u8>) {
        out.push(self.0);
        put(out, self.1);
    }

    pub(crate) fn parse(reader: &mut Reader<'_>) -> Parsed<Self> {
        let entry = Self(reader.u8()?, reader.varint()?);
        if entry.0 <= Self::CLOSED { Ok(entry) } else { Err(Malformed("an unknown event")) }
    }
}

impl fmt::Display for EventEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(kind, number) = *self;
        match kind {
            Self::CONNECTED => f.write_str("connected"),
            Self::READABLE => f.write_str("readable"),
            Self::WRITABLE => f.write_str("writable"),
            Self::URGENT => f.write_str("urgent data"),
            Self::SOFT_ERROR => match usize::try_from(number).ok().and_then(|number| SOFT_ERRORS.get(number)) {
                Some(SoftError::Unreachable) => f.write_str("the peer cannot be reached, a router says"),
                Some(SoftError::Refused) => f.write_str("the peer takes nothing, its host says"),
                Some(SoftError::Silent) => f.write_str("the peer is silent"),
                Some(SoftError::OldTimestamps) => f.write_str("the peer's timestamps are old"),
                None => write!(f, "soft error {number}"),
            },
            _ => write_reason(number, f),
        }
    }
}

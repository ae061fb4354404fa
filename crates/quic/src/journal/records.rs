//! Opened packets in a log: their records, with the length of payload only.

use ::journal::format::{Malformed, Parsed, bytes, flag, put, put_bytes, put_word, short, text, word};
use bytes::Bytes;
use units::{Duration, Ecn};
use wire::quic::frame::EcnCounts;
use wire::quic::{Dir, ErrorCode, PathId, Reader, Space, StreamId, VARINT_MAX};

use super::format::{id, put_id};
use crate::error::TransportError;
use crate::exchange::MultipathFrame;
use crate::open::opened::{Opened, OpenedPacket, Record};
use crate::strided_bytes::Layout;

/// The most bytes of data in one record. A batch has 64 KiB as a rule, and no driver uses twenty
/// times as much.
pub(crate) const RECORD_DATA_MAX: usize = 1 << 20;

/// The most packets of a batch, opened or not: none is shorter than twenty bytes.
const PACKETS_MAX: u64 = (RECORD_DATA_MAX / 20) as u64;

const ELICITING: u8 = 1 << 2;
const PHASE_ADVANCED: u8 = 1 << 3;
const BROKEN: u8 = 1 << 4;
const RUN: u8 = 1 << 5;

/// The kind of a record, its first byte.
mod kind {
    pub(super) const STREAM: u8 = 0;
    pub(super) const STREAM_END: u8 = 1;
    pub(super) const ACK: u8 = 2;
    pub(super) const CRYPTO: u8 = 3;
    pub(super) const DATAGRAM: u8 = 4;
    pub(super) const RESET_STREAM: u8 = 5;
    pub(super) const STOP_SENDING: u8 = 6;
    pub(super) const MAX_DATA: u8 = 7;
    pub(super) const MAX_STREAM_DATA: u8 = 8;
    pub(super) const MAX_STREAMS: u8 = 9;
    pub(super) const DATA_BLOCKED: u8 = 10;
    pub(super) const STREAM_DATA_BLOCKED: u8 = 11;
    pub(super) const NEW_TOKEN: u8 = 12;
    pub(super) const PATH_CHALLENGE: u8 = 13;
    pub(super) const PATH_RESPONSE: u8 = 14;
    pub(super) const NEW_CONNECTION_ID: u8 = 15;
    pub(super) const RETIRE_CONNECTION_ID: u8 = 16;
    pub(super) const PATH_ABANDON: u8 = 17;
    pub(super) const PATH_STATUS: u8 = 18;
    pub(super) const MAX_PATH_ID: u8 = 19;
    pub(super) const PATHS_BLOCKED: u8 = 20;
    pub(super) const PATH_CIDS_BLOCKED: u8 = 21;
    pub(super) const HANDSHAKE_DONE: u8 = 22;
    pub(super) const ACK_FREQUENCY: u8 = 23;
    pub(super) const IMMEDIATE_ACK: u8 = 24;
    pub(super) const CLOSE: u8 = 25;
    pub(super) const ACK_ECN: u8 = 26;
}

// ── Writing ──────────────────────────────────────────────────────────────────────────────────────────────────────────

/// Writes packets that were opened in `buffer`. The AEAD's `integrity_limit` is written only if
/// packets have failed to open.
pub(crate) fn put_opened(out: &mut Vec<u8>, opened: &Opened, buffer: &[u8], integrity_limit: u64) {
    put(out, opened.unauthentic_count);
    put(out, opened.dropped_count);
    if opened.unauthentic_count > 0 {
        put_word(out, integrity_limit);
    }
    put(out, opened.epoch);
    out.push(match opened.ecn {
        None => 0,
        Some(Ecn::Ect1) => 1,
        Some(Ecn::Ect0) => 2,
        Some(Ecn::Ce) => 3,
    });
    put(out, opened.packets.len() as u64);
    for packet in &opened.packets {
        put_packet(out, packet, opened, buffer);
    }
}

fn put_packet(out: &mut Vec<u8>, packet: &OpenedPacket, opened: &Opened, buffer: &[u8]) {
    let mut first = packet.space.index() as u8;
    for (is_so, bit) in [
        (packet.eliciting, ELICITING),
        (packet.phase_advanced, PHASE_ADVANCED),
        (packet.error.is_some(), BROKEN),
        (packet.count > 1, RUN),
    ] {
        first |= if is_so { bit } else { 0 };
    }
    out.push(first);
    put(out, u64::from(packet.path.0));
    put(out, packet.number);
    if packet.count > 1 {
        put(out, u64::from(packet.count));
    }
    let records = &opened.records[packet.records.clone()];
    put(out, records.len() as u64);
    for record in records {
        put_record(out, record, opened, buffer);
    }
    if let Some(error) = &packet.error {
        put_error(out, error);
    }
}

/// Writes a protocol violation.
pub(crate) fn put_error(out: &mut Vec<u8>, error: &TransportError) {
    put(out, error.code.0);
    put(out, error.frame_type);
    put_bytes(out, error.reason.as_bytes());
}

pub(crate) fn error(reader: &mut Reader<'_>) -> Parsed<TransportError> {
    let (code, frame_type) = (ErrorCode(reader.varint()?), reader.varint()?);
    Ok(TransportError { code, frame_type, reason: text(reader)?.into() })
}

fn put_numbers(out: &mut Vec<u8>, kind: u8, numbers: &[u64]) {
    out.push(kind);
    numbers.iter().for_each(|number| put(out, *number));
}

fn put_record(out: &mut Vec<u8>, record: &Record, opened: &Opened, buffer: &[u8]) {
    match record {
        Record::Stream { id, offset, fin, data } => {
            let kind = if *fin { kind::STREAM_END } else { kind::STREAM };
            put_numbers(out, kind, &[id.raw(), *offset, data.len as u64]);
        }
        Record::Ack { path, delay, ranges, ecn } => {
            let ranges = &opened.ack_ranges[ranges.clone()];
            let kind = if ecn.is_some() { kind::ACK_ECN } else { kind::ACK };
            put_numbers(out, kind, &[u64::from(path.0), *delay]);
            if let Some(EcnCounts { ect0, ect1, ce }) = *ecn {
                [ect0, ect1, ce].into_iter().for_each(|count| put(out, count));
            }
            put(out, ranges.len() as u64);
            let mut at = 0;
            for (start, end) in ranges {
                put(out, start - at);
                put(out, end - start);
                at = *end;
            }
        }
        Record::Crypto { offset, data } => {
            put_numbers(out, kind::CRYPTO, &[*offset]);
            put_bytes(out, &buffer[data.clone()]);
        }
        Record::Datagram { data } => put_numbers(out, kind::DATAGRAM, &[data.len() as u64]),
        Record::Close { code, frame_type, reason } => {
            put_numbers(out, kind::CLOSE, &[code.0]);
            out.push(u8::from(frame_type.is_some()));
            put(out, frame_type.unwrap_or_default());
            put_bytes(out, &buffer[reason.clone()]);
        }
        control => put_control(out, control),
    }
}

/// Writes a record without bytes.
fn put_control(out: &mut Vec<u8>, record: &Record) {
    match *record {
        Record::Stream { .. }
        | Record::Ack { .. }
        | Record::Crypto { .. }
        | Record::Datagram { .. }
        | Record::Close { .. } => unreachable!("written before"),
        Record::ResetStream { id, code, final_size } => {
            put_numbers(out, kind::RESET_STREAM, &[id.raw(), code, final_size]);
        }
        Record::StopSending { id, code } => put_numbers(out, kind::STOP_SENDING, &[id.raw(), code]),
        Record::MaxData(max) => put_numbers(out, kind::MAX_DATA, &[max]),
        Record::MaxStreamData { id, max } => put_numbers(out, kind::MAX_STREAM_DATA, &[id.raw(), max]),
        Record::MaxStreams { dir, max } => put_numbers(out, kind::MAX_STREAMS, &[dir.index() as u64, max]),
        Record::DataBlocked(limit) => put_numbers(out, kind::DATA_BLOCKED, &[limit]),
        Record::StreamDataBlocked { id, limit } => put_numbers(out, kind::STREAM_DATA_BLOCKED, &[id.raw(), limit]),
        // A client's behaviour does not depend on the token, which is none of the journal's readers'
        // business.
        Record::NewToken { .. } => out.push(kind::NEW_TOKEN),
        Record::PathChallenge(data) => {
            out.push(kind::PATH_CHALLENGE);
            out.extend_from_slice(&data);
        }
        Record::PathResponse(data) => {
            out.push(kind::PATH_RESPONSE);
            out.extend_from_slice(&data);
        }
        Record::NewConnectionId { path, sequence, retire_prior_to, id, reset_token } => {
            put_numbers(out, kind::NEW_CONNECTION_ID, &[u64::from(path.0), sequence, retire_prior_to]);
            put_id(out, &id);
            out.extend_from_slice(&reset_token);
        }
        Record::RetireConnectionId { path, sequence } => {
            put_numbers(out, kind::RETIRE_CONNECTION_ID, &[u64::from(path.0), sequence]);
        }
        Record::Multipath(frame) => put_multipath(out, frame),
        Record::HandshakeDone => out.push(kind::HANDSHAKE_DONE),
        Record::AckFrequency { sequence, threshold, max_delay, reordering } => {
            put_numbers(out, kind::ACK_FREQUENCY, &[sequence, threshold, reordering]);
            put_word(out, max_delay.as_nanos());
        }
        Record::ImmediateAck => out.push(kind::IMMEDIATE_ACK),
    }
}

fn put_multipath(out: &mut Vec<u8>, frame: MultipathFrame) {
    let number = |path: PathId| u64::from(path.0);
    match frame {
        MultipathFrame::Abandon { path, code } => put_numbers(out, kind::PATH_ABANDON, &[number(path), code]),
        MultipathFrame::Status { path, sequence, available } => {
            put_numbers(out, kind::PATH_STATUS, &[number(path), sequence]);
            out.push(u8::from(available));
        }
        MultipathFrame::MaxPathId(path) => put_numbers(out, kind::MAX_PATH_ID, &[number(path)]),
        MultipathFrame::PathsBlocked(path) => put_numbers(out, kind::PATHS_BLOCKED, &[number(path)]),
        MultipathFrame::PathCidsBlocked { path, next_sequence } => {
            put_numbers(out, kind::PATH_CIDS_BLOCKED, &[number(path), next_sequence]);
        }
    }
}

// ── Reading ──────────────────────────────────────────────────────────────────────────────────────────────────────────

/// Opened packets, read from a log.
#[derive(Debug, Default)]
pub(crate) struct ReadRecords {
    pub(crate) opened: Opened,
    pub(crate) integrity_limit: u64,
    /// The bytes of CRYPTO frames and close reasons. Records of streams and datagrams refer to
    /// zeros after them: to the front of [`data_len_max`](Self::data_len_max) bytes.
    bytes: Vec<u8>,
    data_len_max: usize,
}

impl ReadRecords {
    /// Reads packets that [`put_opened`] has written.
    pub(crate) fn read(reader: &mut Reader<'_>) -> Parsed<Self> {
        let mut read = Self::default();
        read.opened.unauthentic_count = reader.varint()?;
        read.opened.dropped_count = reader.varint()?;
        if read.opened.unauthentic_count.max(read.opened.dropped_count) > PACKETS_MAX {
            return Err(Malformed("more packets than can arrive at once"));
        }
        read.integrity_limit = u64::MAX;
        if read.opened.unauthentic_count > 0 {
            read.integrity_limit = word(reader)?;
        }
        read.opened.epoch = reader.varint()?;
        read.opened.ecn = match reader.u8()? {
            0 => None,
            1 => Some(Ecn::Ect1),
            2 => Some(Ecn::Ect0),
            3 => Some(Ecn::Ce),
            _ => return Err(Malformed("an unknown ECN codepoint")),
        };
        let count = reader.varint()?;
        for _ in 0..count {
            let packet = read.packet(reader)?;
            read.opened.packets.push(packet);
        }
        Ok(read)
    }

    /// The memory that records refer to; `zeros` are shared.
    pub(crate) fn buffer(&mut self, zeros: &Bytes) -> Bytes {
        debug_assert!(zeros.len() >= self.data_len_max, "no record has more than {RECORD_DATA_MAX} bytes");
        if self.bytes.is_empty() {
            return zeros.slice(..self.data_len_max);
        }
        let base = self.bytes.len();
        let mut buffer = std::mem::take(&mut self.bytes);
        buffer.resize(base + self.data_len_max, 0);
        for record in &mut self.opened.records {
            match record {
                Record::Stream { data, .. } => data.start += base,
                Record::Datagram { data } => *data = data.start + base..data.end + base,
                _ => {}
            }
        }
        buffer.into()
    }

    /// Bytes that a record refers to, before [`buffer`](Self::buffer) takes them.
    pub(crate) fn bytes_at(&self, range: std::ops::Range<usize>) -> &[u8] {
        self.bytes.get(range).unwrap_or_default()
    }

    fn packet(&mut self, reader: &mut Reader<'_>) -> Parsed<OpenedPacket> {
        let first = reader.u8()?;
        let space = *Space::ALL.get(usize::from(first & 3)).ok_or(Malformed("an unknown packet number space"))?;
        if first & !(3 | ELICITING | PHASE_ADVANCED | BROKEN | RUN) != 0 {
            return Err(Malformed("unknown flags of a packet"));
        }
        let path = PathId(short(reader)?);
        let number = reader.varint()?;
        let count = if first & RUN == 0 { 1 } else { short(reader)? };
        if u64::from(count) > PACKETS_MAX {
            return Err(Malformed("a run of more packets than can arrive at once"));
        }
        if space != Space::Data && path != PathId::ZERO || number.saturating_add(u64::from(count)) > VARINT_MAX {
            return Err(Malformed("an impossible packet number"));
        }
        let records_from = self.opened.records.len();
        for _ in 0..reader.varint()? {
            let record = self.record(reader, count)?;
            self.opened.records.push(record);
        }
        let records = records_from..self.opened.records.len();
        let is_run = matches!(self.opened.records[records.clone()], [Record::Stream { fin: false, .. }]);
        if (first & RUN != 0) && (count < 2 || !is_run) {
            return Err(Malformed("an impossible packet run"));
        }
        let error = if first & BROKEN == 0 { None } else { Some(error(reader)?) };
        let (eliciting, phase_advanced) = (first & ELICITING != 0, first & PHASE_ADVANCED != 0);
        Ok(OpenedPacket { space, path, number, count, records, eliciting, phase_advanced, error })
    }

    /// Reserves zeros for data of `len` bytes.
    fn data(&mut self, len: u64, count: usize) -> Parsed<usize> {
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        let all = len.saturating_mul(count);
        if all > RECORD_DATA_MAX {
            return Err(Malformed("more data in a record than can arrive at once"));
        }
        self.data_len_max = self.data_len_max.max(all);
        Ok(len)
    }

    /// Reads bytes whose values matter.
    fn take_bytes(&mut self, reader: &mut Reader<'_>) -> Parsed<std::ops::Range<usize>> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes(reader)?);
        Ok(start..self.bytes.len())
    }

    fn record(&mut self, reader: &mut Reader<'_>, count: u32) -> Parsed<Record> {
        let kind = reader.u8()?;
        Ok(match kind {
            kind::STREAM | kind::STREAM_END => {
                let (id, offset, len) = (stream(reader)?, reader.varint()?, reader.varint()?);
                let count = count as usize;
                let len = self.data(len, count)?;
                if offset + (len * count) as u64 > VARINT_MAX {
                    return Err(Malformed("stream data beyond the largest offset"));
                }
                Record::Stream {
                    id,
                    offset,
                    fin: kind == kind::STREAM_END,
                    data: Layout { start: 0, step: len, len, count },
                }
            }
            kind::ACK | kind::ACK_ECN => {
                let (path, delay) = (PathId(short(reader)?), reader.varint()?);
                let mut ecn = None;
                if kind == kind::ACK_ECN {
                    let (ect0, ect1, ce) = (reader.varint()?, reader.varint()?, reader.varint()?);
                    ecn = Some(EcnCounts { ect0, ect1, ce });
                }
                Record::Ack { path, delay, ranges: self.ack_ranges(reader)?, ecn }
            }
            kind::CRYPTO => {
                let offset = reader.varint()?;
                Record::Crypto { offset, data: self.take_bytes(reader)? }
            }
            kind::DATAGRAM => {
                let len = reader.varint()?;
                Record::Datagram { data: 0..self.data(len, 1)? }
            }
            kind::CLOSE => {
                let (code, has_type) = (ErrorCode(reader.varint()?), flag(reader)?);
                let frame_type = Some(reader.varint()?).filter(|_| has_type);
                Record::Close { code, frame_type, reason: self.take_bytes(reader)? }
            }
            _ => control(kind, reader)?,
        })
    }

    fn ack_ranges(&mut self, reader: &mut Reader<'_>) -> Parsed<std::ops::Range<usize>> {
        let from = self.opened.ack_ranges.len();
        let mut at = 0_u64;
        for index in 0..reader.varint()? {
            let (gap, len) = (reader.varint()?, reader.varint()?);
            let (start, end) = (at.saturating_add(gap), at.saturating_add(gap).saturating_add(len));
            if end > VARINT_MAX || (index > 0 && gap < 2) {
                return Err(Malformed("impossible acknowledged ranges"));
            }
            self.opened.ack_ranges.push((start, end));
            at = end;
        }
        if self.opened.ack_ranges.len() == from {
            return Err(Malformed("an acknowledgement of nothing"));
        }
        Ok(from..self.opened.ack_ranges.len())
    }
}

/// A stream ID.
pub(crate) fn stream(reader: &mut Reader<'_>) -> Parsed<StreamId> {
    Ok(StreamId::from_raw(reader.varint()?))
}

pub(crate) fn dir(reader: &mut Reader<'_>) -> Parsed<Dir> {
    usize::try_from(reader.varint()?)
        .ok()
        .and_then(|index| Dir::ALL.get(index))
        .copied()
        .ok_or(Malformed("an unknown kind of stream"))
}

fn path(reader: &mut Reader<'_>) -> Parsed<PathId> {
    Ok(PathId(short(reader)?))
}

fn control(kind: u8, reader: &mut Reader<'_>) -> Parsed<Record> {
    Ok(match kind {
        kind::RESET_STREAM => {
            Record::ResetStream { id: stream(reader)?, code: reader.varint()?, final_size: reader.varint()? }
        }
        kind::STOP_SENDING => Record::StopSending { id: stream(reader)?, code: reader.varint()? },
        kind::MAX_DATA => Record::MaxData(reader.varint()?),
        kind::MAX_STREAM_DATA => Record::MaxStreamData { id: stream(reader)?, max: reader.varint()? },
        kind::MAX_STREAMS => {
            let (dir, max) = (dir(reader)?, reader.varint()?);
            if max > StreamId::COUNT_MAX {
                return Err(Malformed("more streams than there can be"));
            }
            Record::MaxStreams { dir, max }
        }
        kind::DATA_BLOCKED => Record::DataBlocked(reader.varint()?),
        kind::STREAM_DATA_BLOCKED => Record::StreamDataBlocked { id: stream(reader)?, limit: reader.varint()? },
        kind::NEW_TOKEN => Record::NewToken { token: 0..0 },
        kind::PATH_CHALLENGE => Record::PathChallenge(reader.array()?),
        kind::PATH_RESPONSE => Record::PathResponse(reader.array()?),
        kind::NEW_CONNECTION_ID => Record::NewConnectionId {
            path: path(reader)?,
            sequence: reader.varint()?,
            retire_prior_to: reader.varint()?,
            id: id(reader)?,
            reset_token: reader.array()?,
        },
        kind::RETIRE_CONNECTION_ID => Record::RetireConnectionId { path: path(reader)?, sequence: reader.varint()? },
        kind::PATH_ABANDON => {
            Record::Multipath(MultipathFrame::Abandon { path: path(reader)?, code: reader.varint()? })
        }
        kind::PATH_STATUS => Record::Multipath(MultipathFrame::Status {
            path: path(reader)?,
            sequence: reader.varint()?,
            available: flag(reader)?,
        }),
        kind::MAX_PATH_ID => Record::Multipath(MultipathFrame::MaxPathId(path(reader)?)),
        kind::PATHS_BLOCKED => Record::Multipath(MultipathFrame::PathsBlocked(path(reader)?)),
        kind::PATH_CIDS_BLOCKED => {
            Record::Multipath(MultipathFrame::PathCidsBlocked { path: path(reader)?, next_sequence: reader.varint()? })
        }
        kind::HANDSHAKE_DONE => Record::HandshakeDone,
        kind::ACK_FREQUENCY => Record::AckFrequency {
            sequence: reader.varint()?,
            threshold: reader.varint()?,
            reordering: reader.varint()?,
            max_delay: Duration::from_nanos(word(reader)?),
        },
        kind::IMMEDIATE_ACK => Record::ImmediateAck,
        _ => return Err(Malformed("an unknown record")),
    })
}

impl ReadRecords {
    /// Bytes of streams and datagrams.
    pub(crate) fn data_bytes(&self) -> usize {
        let of = |record: &Record| match record {
            Record::Stream { data, .. } => data.len_bytes(),
            Record::Datagram { data } => data.len(),
            _ => 0,
        };
        self.opened.records.iter().map(of).sum()
    }
}

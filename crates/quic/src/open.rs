//! The open stage: turns protected packets into [`Opened`] ones, already parsed into records.
//!
//! It needs the keys and the largest number received so far in each space, never older than the
//! last acknowledgement sent (so that numbers decode exactly, RFC 9000, appendix A.3). It opens in
//! place. Payload is not copied; records refer to it by range.

use std::ops::Range;
use std::sync::Arc;

use units::Duration;
use wire::quic::frame::{CloseOrigin, Frame, FrameError};
use wire::quic::{
    ConnectionId, Dir, ErrorCode, PacketType, Parsed, PathId, ProtectedHeader, Reader, SAMPLE_LEN, Space, StreamId,
    decode_number, destination, parse_packet, read_unprotected, sample_offset,
};

use crate::control::ids::LOCAL_ID_LEN;
use crate::error::TransportError;
use crate::exchange::MultipathFrame;
use crate::journal::write::Batch;
use crate::send::path::Addresses;
use crate::session::{DirectionKeys, HeaderKey, PacketKey};
use crate::strided_bytes::Layout;

/// Opened packets of a batch, and the records of their frames. The caller keeps it and has it
/// filled again and again.
#[derive(Debug, Default)]
pub struct Opened {
    pub(crate) packets: Vec<OpenedPacket>,
    pub(crate) records: Vec<Record>,
    /// Acknowledged ranges, ascending within each ACK frame.
    pub(crate) ack_ranges: Vec<(u64, u64)>,
    /// Packets that failed to authenticate.
    pub(crate) unauthentic_count: u64,
    /// Packets dropped before an attempt to open them.
    pub(crate) dropped_count: u64,
    /// The key phase that a packet which advances it begins.
    pub(crate) epoch: u64,
}

/// A batch of datagrams on its way through the open stage. It has copies of keys and shares nothing
/// with its connection, so any processor can run it. The caller keeps it and has it filled again
/// and again: see [`Connection::begin_open`](crate::Connection::begin_open).
#[derive(Default)]
pub struct OpenJob {
    pub(crate) context: Option<OpenContext>,
    pub(crate) opened: Opened,
    pub(crate) addresses: Option<Addresses>,
    pub(crate) stride: usize,
    /// Bytes that arrived.
    pub(crate) len: u64,
}

impl OpenJob {
    /// Opens the datagrams in `data`, in place. Does nothing if there is nothing to open.
    pub fn open(&mut self, data: &mut [u8]) {
        let Some(context) = &mut self.context else { return };
        let opened = &mut self.opened;
        opened.clear();
        let len = data.len();
        let mut datagram_at = 0;
        while datagram_at < len {
            let datagram_end = (datagram_at + self.stride).min(len);
            let mut at = datagram_at;
            while at < datagram_end {
                let step = open_packet(context, &mut data[at..datagram_end], at, opened);
                if matches!(step.outcome, Outcome::NoKeys(_) | Outcome::Special) {
                    opened.dropped_count += 1;
                }
                at += step.len.max(1);
            }
            datagram_at = datagram_end;
        }
    }

    /// Prepares it for `len` bytes of datagrams, all `stride` bytes long but the last.
    pub(crate) fn prepare(&mut self, context: Option<OpenContext>, addresses: Addresses, stride: usize, len: usize) {
        self.clear();
        self.context = context;
        (self.addresses, self.stride, self.len) = (Some(addresses), stride.max(1), len as u64);
    }

    /// Takes its context out, with a description of the batch; none if it was not prepared.
    /// `initial_limit` is the integrity limit of Initial packets.
    pub(crate) fn take_batch(&mut self, initial_limit: u64) -> Option<(OpenContext, Batch)> {
        let (context, addresses) = (self.context.take()?, self.addresses?);
        let integrity_limit = context.integrity_limit(&self.opened, initial_limit);
        let batch = Batch { path: context.path, addresses, len: self.len, integrity_limit };
        Some((context, batch))
    }

    /// The path of the datagrams; none if there is nothing to open.
    pub fn path(&self) -> Option<PathId> {
        self.context.as_ref().map(|context| context.path)
    }

    /// Drops the keys and the opened packets.
    pub fn clear(&mut self) {
        self.context = None;
        self.addresses = None;
        self.opened.clear();
    }
}

impl Opened {
    pub(crate) fn clear(&mut self) {
        self.packets.clear();
        self.records.clear();
        self.ack_ranges.clear();
        self.unauthentic_count = 0;
        self.dropped_count = 0;
        self.epoch = 0;
    }

    /// Whether `packet` is a probing packet (RFC 9000, section 9.1). It does not see a PING beside
    /// probing frames.
    pub(crate) fn only_probes(&self, packet: &OpenedPacket) -> bool {
        let records = &self.records[packet.records.clone()];
        let probes = |record: &Record| {
            matches!(record, Record::PathChallenge(_) | Record::PathResponse(_) | Record::NewConnectionId { .. })
        };
        records.iter().all(probes) && !(records.is_empty() && packet.eliciting)
    }

    /// Adds packet `number` to the last packet run, if it contains only data that continue the run:
    /// bulk data become one record per batch. `payload` lies at `base`.
    fn extend_run(&mut self, path: PathId, number: u64, payload: &[u8], base: usize) -> bool {
        let (Some(run), Some(record)) = (self.packets.last_mut(), self.records.last_mut()) else { return false };
        let Record::Stream { id, offset, fin: false, data } = record else { return false };
        let follows = run.space == Space::Data
            && run.path == path
            && run.number + u64::from(run.count) == number
            && run.records.len() == 1
            && run.error.is_none();
        let mut reader = Reader::new(payload);
        let extends = follows
            && matches!(Frame::parse(&mut reader), Ok(Frame::Stream(stream)) if reader.is_empty()
                && !stream.fin
                && stream.id == *id
                && stream.offset == *offset + data.len_bytes() as u64
                && data.extend(&Layout::single(base + payload.len() - stream.data.len()..base + payload.len())));
        run.count += u32::from(extends);
        extends
    }
}

/// One authentic packet, or a packet run.
#[derive(Debug)]
pub(crate) struct OpenedPacket {
    pub(crate) space: Space,
    pub(crate) path: PathId,
    pub(crate) number: u64,
    /// The packets of the run; 1 for a single packet. Each packet of a run contains one STREAM
    /// frame and nothing else.
    pub(crate) count: u32,
    /// Into [`Opened::records`].
    pub(crate) records: Range<usize>,
    pub(crate) eliciting: bool,
    /// The first packet of the next key phase.
    pub(crate) phase_advanced: bool,
    /// A protocol violation in its content.
    pub(crate) error: Option<TransportError>,
}

/// A parsed frame. Byte ranges lie in the buffer the packet was opened in.
#[derive(Debug)]
pub(crate) enum Record {
    /// One piece of data for each packet of a run.
    Stream {
        id: StreamId,
        offset: u64,
        fin: bool,
        data: Layout,
    },
    Ack {
        path: PathId,
        delay: u64,
        ranges: Range<usize>,
    },
    Crypto {
        offset: u64,
        data: Range<usize>,
    },
    Datagram {
        data: Range<usize>,
    },
    ResetStream {
        id: StreamId,
        code: u64,
        final_size: u64,
    },
    StopSending {
        id: StreamId,
        code: u64,
    },
    MaxData(u64),
    MaxStreamData {
        id: StreamId,
        max: u64,
    },
    MaxStreams {
        dir: Dir,
        max: u64,
    },
    DataBlocked(u64),
    StreamDataBlocked {
        id: StreamId,
        limit: u64,
    },
    NewToken,
    PathChallenge([u8; 8]),
    PathResponse([u8; 8]),
    NewConnectionId {
        path: PathId,
        sequence: u64,
        retire_prior_to: u64,
        id: ConnectionId,
        reset_token: [u8; 16],
    },
    RetireConnectionId {
        path: PathId,
        sequence: u64,
    },
    Multipath(MultipathFrame),
    HandshakeDone,
    AckFrequency {
        sequence: u64,
        threshold: u64,
        max_delay: Duration,
        reordering: u64,
    },
    ImmediateAck,
    /// `frame_type` is none for the application's close.
    Close {
        code: ErrorCode,
        frame_type: Option<u64>,
        reason: Range<usize>,
    },
}

/// The 1-RTT keys that open packets: of the present key phase and its neighbours (RFC 9001, section
/// 6).
#[derive(Clone)]
pub(crate) struct OneRttKeys {
    pub(crate) header: Arc<dyn HeaderKey>,
    pub(crate) current: Arc<dyn PacketKey>,
    /// The number of the phase of `current`; its lowest bit is the phase bit.
    pub(crate) epoch: u64,
    /// The lowest number seen in the current phase on the path whose packets are opened; none
    /// before the first.
    pub(crate) phase_from: Option<u64>,
    pub(crate) previous: Option<Arc<dyn PacketKey>>,
    /// Made in advance, so that a key update takes no longer than any other packet (section 6.3).
    /// None after an update, until control supplies the next key.
    pub(crate) next: Option<Arc<dyn PacketKey>>,
}

/// The input of the open stage.
#[derive(Clone)]
pub(crate) struct OpenContext {
    pub(crate) local_id_len: usize,
    /// Initial and Handshake keys.
    pub(crate) levels: [Option<DirectionKeys>; 2],
    pub(crate) data: Option<OneRttKeys>,
    /// The largest number received, by space; of the data, on `path`.
    pub(crate) largest: [Option<u64>; 3],
    /// The path of the 1-RTT packets: that of the connection ID they are sent to (multipath
    /// draft-21, section 3.1).
    pub(crate) path: PathId,
    /// The highest path ID that the peer may name; none if multipath was not negotiated.
    pub(crate) max_path: Option<PathId>,
    /// Whether we have announced that we ignore the QUIC bit (RFC 9287).
    pub(crate) ignore_fixed_bit: bool,
}

impl OpenContext {
    /// How many packets may fail to authenticate: the negotiated AEAD's limit, once there are 1-RTT
    /// keys. The key is asked only if a packet of `opened` has failed.
    pub(crate) fn integrity_limit(&self, opened: &Opened, initial_limit: u64) -> u64 {
        if opened.unauthentic_count == 0 {
            return u64::MAX;
        }
        self.data.as_ref().map_or(initial_limit, |keys| keys.current.integrity_limit())
    }
}

/// The path of a datagram: that of the connection ID it is sent to. An unknown ID counts as one of
/// the first path.
pub(crate) fn path_of_datagram(datagram: &[u8], path_of_id: impl FnOnce(&[u8]) -> Option<PathId>) -> PathId {
    destination(datagram, LOCAL_ID_LEN).and_then(|destination| path_of_id(destination.dcid)).unwrap_or(PathId::ZERO)
}

/// The result for one packet.
pub(crate) enum Outcome {
    /// It is the last of [`Opened::packets`].
    Opened,
    /// Its keys were discarded, or have not arrived yet.
    NoKeys(Space),
    /// It did not authenticate, or is not for us. It was counted.
    Dropped,
    /// A Version Negotiation or Retry packet, for control.
    Special,
}

/// One step through a datagram.
pub(crate) struct Step {
    /// Bytes of the packet; the next one follows.
    pub(crate) len: usize,
    pub(crate) outcome: Outcome,
}

/// Opens the first packet of `bytes`, which lie at `base` in the buffer that records refer to.
pub(crate) fn open_packet(context: &mut OpenContext, bytes: &mut [u8], base: usize, opened: &mut Opened) -> Step {
    let header = match parse_packet(bytes, context.local_id_len) {
        Ok(Parsed::Protected(header)) => header,
        Ok(Parsed::VersionNegotiation { .. } | Parsed::Retry { .. }) => {
            return Step { len: bytes.len(), outcome: Outcome::Special };
        }
        Ok(Parsed::UnknownVersion { .. }) | Err(_) => {
            opened.dropped_count += 1;
            return Step { len: bytes.len(), outcome: Outcome::Dropped };
        }
    };
    let len = header.end;
    let outcome = open_protected(context, &header, &mut bytes[..len], base, opened);
    Step { len, outcome }
}

fn open_protected(
    context: &mut OpenContext,
    header: &ProtectedHeader,
    bytes: &mut [u8],
    base: usize,
    opened: &mut Opened,
) -> Outcome {
    if header.ty == PacketType::ZeroRtt || (!header.fixed_bit && !context.ignore_fixed_bit) {
        opened.dropped_count += 1;
        return Outcome::Dropped;
    }
    let space = header.ty.space();
    let header_key = match space {
        Space::Data => context.data.as_ref().map(|one_rtt| &one_rtt.header),
        _ => context.levels[space.index()].as_ref().map(|keys| &keys.header),
    };
    let Some(header_key) = header_key else { return Outcome::NoKeys(space) };

    let sample_at = sample_offset(header.number_offset);
    let (head, sample) = bytes.split_at_mut(sample_at);
    let (first, rest) = head.split_at_mut(1);
    header_key.unprotect(&sample[..SAMPLE_LEN], &mut first[0], &mut rest[header.number_offset - 1..]);
    let plain = read_unprotected(bytes[0], &bytes[header.number_offset..sample_at]);
    let number = decode_number(context.largest[space.index()], plain.truncated, plain.number_len);
    let payload_at = header.number_offset + plain.number_len;
    let (header_bytes, payload) = bytes.split_at_mut(payload_at);

    // Path IDs are part of the nonce of 1-RTT packets (multipath draft-21, section 2.4); the first
    // path's is zero.
    let path = if space == Space::Data { context.path } else { PathId::ZERO };
    let opens = open_payload(context, space, path, plain.key_phase, number, header_bytes, payload);
    let Some((plain_len, advances)) = opens else {
        opened.unauthentic_count += 1;
        return Outcome::Dropped;
    };
    let largest = &mut context.largest[space.index()];
    *largest = (*largest).max(Some(number));

    if advances && let Some(one_rtt) = &context.data {
        opened.epoch = one_rtt.epoch;
    }
    let at = base + payload_at;
    if space == Space::Data
        && plain.reserved_ok
        && !advances
        && opened.extend_run(path, number, &payload[..plain_len], at)
    {
        return Outcome::Opened;
    }
    let records_from = opened.records.len();
    let parsed = parse_frames(&payload[..plain_len], header.ty, at, context.max_path, opened);
    let (eliciting, error) = match parsed {
        _ if !plain.reserved_ok => (false, Some(TransportError::violation("reserved header bits are set"))),
        Ok(eliciting) => (eliciting, None),
        Err(error) => (false, Some(error)),
    };
    opened.packets.push(OpenedPacket {
        space,
        path,
        number,
        count: 1,
        records: records_from..opened.records.len(),
        eliciting,
        phase_advanced: advances,
        error,
    });
    Outcome::Opened
}

/// Opens the payload of a packet without header protection. Returns its length, and whether the
/// packet shows that the peer has updated its keys.
fn open_payload(
    context: &mut OpenContext,
    space: Space,
    path: PathId,
    phase: bool,
    number: u64,
    header: &[u8],
    payload: &mut [u8],
) -> Option<(usize, bool)> {
    if space != Space::Data {
        let key = &context.levels[space.index()].as_ref()?.packet;
        return key.open(path, number, header, payload).ok().map(|len| (len, false));
    }
    let one_rtt = context.data.as_mut()?;
    let (len, advances) = one_rtt.open(path, phase, number, header, payload)?;
    one_rtt.note(advances, number, phase);
    Some((len, advances))
}

impl OneRttKeys {
    /// Opens a packet. Returns its length, and whether it shows that the peer has updated its keys.
    fn open(&self, path: PathId, phase: bool, number: u64, header: &[u8], payload: &mut [u8]) -> Option<(usize, bool)> {
        let open = |key: &Arc<dyn PacketKey>, payload: &mut [u8]| key.open(path, number, header, payload).ok();
        if phase == self.phase() {
            return open(&self.current, payload).map(|len| (len, false));
        }
        // The other bit means the previous phase for numbers below the present phase, and the next
        // phase otherwise. Each path has its own numbers. A path without packets of the present
        // phase may be late, or may have been quiet for a whole phase (multipath draft-21, section
        // 2.5, relies on the peer to wait here, but the peer measures other round trips). So a
        // packet that is not of the previous phase is tried with the next key, from a copy, since a
        // failed attempt destroys the payload.
        let (is_older, may_be_newer) = match self.phase_from {
            Some(from) => (number < from, number >= from),
            None => (self.previous.is_some(), true),
        };
        let copy = (is_older && may_be_newer).then(|| payload.to_vec());
        if is_older && let Some(len) = self.previous.as_ref().and_then(|key| open(key, payload)) {
            return Some((len, false));
        }
        if !may_be_newer {
            return None;
        }
        if let Some(copy) = copy {
            payload.copy_from_slice(&copy);
        }
        self.next.as_ref().and_then(|key| open(key, payload)).map(|len| (len, true))
    }

    /// The phase bit that goes with `current`.
    pub(crate) fn phase(&self) -> bool {
        self.epoch % 2 == 1
    }

    fn note(&mut self, advances: bool, number: u64, phase: bool) {
        if advances {
            let next = self.next.take().expect("the packet was opened with it");
            self.previous = Some(std::mem::replace(&mut self.current, next));
            self.epoch += 1;
            self.phase_from = Some(number);
        } else if phase == self.phase() {
            self.phase_from = Some(self.phase_from.map_or(number, |from| from.min(number)));
        }
    }
}

/// Parses the frames of one packet into records. Returns whether the packet is ack-eliciting.
fn parse_frames(
    payload: &[u8],
    ty: PacketType,
    base: usize,
    max_path: Option<PathId>,
    opened: &mut Opened,
) -> Result<bool, TransportError> {
    if payload.is_empty() {
        return Err(TransportError::violation("a packet without frames"));
    }
    let mut reader = Reader::new(payload);
    let mut eliciting = false;
    while !reader.is_empty() {
        let frame = Frame::parse(&mut reader)?;
        if !frame.permitted_in(ty) {
            return Err(FrameError {
                frame_type: frame.frame_type(),
                reason: "a frame that this kind of packet must not hold",
                code: ErrorCode::PROTOCOL_VIOLATION,
            }
            .into());
        }
        eliciting |= frame.is_ack_eliciting();
        // Frames with data have it at their end, so it ends at the position of the reader.
        let end = base + reader.position();
        let record = match frame {
            Frame::Stream(stream) => Record::Stream {
                id: stream.id,
                offset: stream.offset,
                fin: stream.fin,
                data: Layout::single(end - stream.data.len()..end),
            },
            Frame::Ack(ack) => {
                let path = path_of(ack.path, max_path)?;
                let start = opened.ack_ranges.len();
                opened.ack_ranges.extend(ack.ranges().map(|range| (*range.start(), *range.end())));
                opened.ack_ranges[start..].reverse();
                let ranges = start..opened.ack_ranges.len();
                Record::Ack { path, delay: ack.delay, ranges }
            }
            other => match control_record(&other, end, max_path)? {
                Some(record) => record,
                None => continue,
            },
        };
        opened.records.push(record);
    }
    Ok(eliciting)
}

/// The path of a frame; frames of RFC 9000 name none and belong to the first path. Fails for frames
/// that were not negotiated (RFC 9000, section 12.4) and for paths beyond the limit (multipath
/// draft-21, section 4).
fn path_of(named: Option<PathId>, max_path: Option<PathId>) -> Result<PathId, TransportError> {
    let Some(path) = named else { return Ok(PathId::ZERO) };
    match max_path {
        None => {
            let reason = "a frame of an extension that was not negotiated";
            Err(TransportError::new(ErrorCode::FRAME_ENCODING_ERROR, reason))
        }
        Some(max) if path > max => Err(TransportError::violation("a path beyond the limit")),
        Some(_) => Ok(path),
    }
}

/// The content of a frame of the multipath extension, if it is one.
fn multipath_record(frame: &Frame<'_>, max_path: Option<PathId>) -> Result<Option<MultipathFrame>, TransportError> {
    let named = |path: PathId| path_of(Some(path), max_path);
    Ok(Some(match *frame {
        Frame::PathAbandon { path, code } => MultipathFrame::Abandon { path: named(path)?, code },
        Frame::PathStatus { path, sequence, available } => {
            MultipathFrame::Status { path: named(path)?, sequence, available }
        }
        Frame::MaxPathId(path) => {
            path_of(Some(PathId::ZERO), max_path)?;
            MultipathFrame::MaxPathId(path)
        }
        Frame::PathsBlocked(path) => MultipathFrame::PathsBlocked(named(path)?),
        Frame::PathCidsBlocked { path, next_sequence } => {
            MultipathFrame::PathCidsBlocked { path: named(path)?, next_sequence }
        }
        _ => return Ok(None),
    }))
}

/// The record of a less frequent frame; none for frames without effect.
fn control_record(frame: &Frame<'_>, end: usize, max_path: Option<PathId>) -> Result<Option<Record>, TransportError> {
    if let Some(frame) = multipath_record(frame, max_path)? {
        return Ok(Some(Record::Multipath(frame)));
    }
    Ok(Some(match *frame {
        Frame::Crypto { offset, data } => Record::Crypto { offset, data: end - data.len()..end },
        Frame::Datagram { data } => Record::Datagram { data: end - data.len()..end },
        Frame::ResetStream { id, code, final_size } => Record::ResetStream { id, code, final_size },
        Frame::StopSending { id, code } => Record::StopSending { id, code },
        Frame::MaxData(max) => Record::MaxData(max),
        Frame::MaxStreamData { id, max } => Record::MaxStreamData { id, max },
        Frame::MaxStreams { dir, max } => Record::MaxStreams { dir, max },
        Frame::DataBlocked(limit) => Record::DataBlocked(limit),
        Frame::StreamDataBlocked { id, limit } => Record::StreamDataBlocked { id, limit },
        Frame::NewToken { .. } => Record::NewToken,
        Frame::PathChallenge(data) => Record::PathChallenge(data),
        Frame::PathResponse(data) => Record::PathResponse(data),
        Frame::NewConnectionId { path, sequence, retire_prior_to, id, reset_token } => {
            let path = path_of(path, max_path)?;
            Record::NewConnectionId { path, sequence, retire_prior_to, id, reset_token }
        }
        Frame::RetireConnectionId { path, sequence } => {
            Record::RetireConnectionId { path: path_of(path, max_path)?, sequence }
        }
        Frame::HandshakeDone => Record::HandshakeDone,
        Frame::AckFrequency {
            sequence,
            ack_eliciting_threshold: threshold,
            requested_max_ack_delay,
            reordering_threshold: reordering,
        } => {
            let max_delay = Duration::from_micros(requested_max_ack_delay);
            Record::AckFrequency { sequence, threshold, max_delay, reordering }
        }
        Frame::ImmediateAck => Record::ImmediateAck,
        Frame::Close(close) => Record::Close {
            code: ErrorCode(close.code),
            frame_type: match close.origin {
                CloseOrigin::Transport { frame_type } => Some(frame_type),
                CloseOrigin::Application => None,
            },
            reason: end - close.reason.len()..end,
        },
        // The limit on streams grows when streams end, not because of STREAMS_BLOCKED.
        Frame::Padding { .. } | Frame::Ping | Frame::StreamsBlocked { .. } => return Ok(None),
        _ => {
            let reason = "a frame of an extension that was not negotiated";
            return Err(TransportError::new(ErrorCode::FRAME_ENCODING_ERROR, reason));
        }
    }))
}

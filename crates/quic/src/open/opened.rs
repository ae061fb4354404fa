//! Opened packets, and the records of their frames.

use std::ops::Range;

use units::{Duration, Ecn};
use wire::quic::frame::{EcnCounts, Frame};
use wire::quic::{ConnectionId, Dir, ErrorCode, PathId, Reader, Space, StreamId};

use crate::control::ids::ResetToken;
use crate::error::TransportError;
use crate::exchange::MultipathFrame;
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
    /// The last bytes of the last datagram that could not be opened: maybe a stateless reset (RFC
    /// 9000, section 10.3.1).
    pub(crate) trailer: Option<ResetToken>,
    /// The ECN codepoint of the datagrams.
    pub(crate) ecn: Option<Ecn>,
}

impl Opened {
    pub(crate) fn clear(&mut self) {
        self.packets.clear();
        self.records.clear();
        self.ack_ranges.clear();
        self.unauthentic_count = 0;
        self.dropped_count = 0;
        self.epoch = 0;
        self.trailer = None;
        self.ecn = None;
    }

    /// Whether `packet` is a probing packet (RFC 9000, section 9.1). It does not see a PING next to
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
    pub(super) fn extend_run(&mut self, path: PathId, number: u64, payload: &[u8], base: usize) -> bool {
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
        ecn: Option<EcnCounts>,
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
    NewToken {
        token: Range<usize>,
    },
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

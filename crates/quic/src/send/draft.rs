//! One packet that the planner is filling.

use wire::quic::frame::Frame;
use wire::quic::{ConnectionId, LongHeader, PacketType, Version, emit_long, emit_short, long_header_len};

use super::frames::SentFrame;
use crate::control::ids::LOCAL_ID_LEN;
use crate::plan::{Piece, Plan, Planned, PlannedPacket};
use crate::session::TAG_LEN;

/// The connection's values that a packet header needs.
#[derive(Clone, Copy)]
pub(crate) struct HeaderFields<'a> {
    pub(crate) ty: PacketType,
    /// Of a long header.
    pub(crate) version: Version,
    pub(crate) number: u64,
    pub(crate) number_len: usize,
    pub(crate) dcid: ConnectionId,
    pub(crate) scid: ConnectionId,
    pub(crate) token: &'a [u8],
    pub(crate) key_phase: bool,
    /// False greases the QUIC bit (RFC 9287).
    pub(crate) fixed_bit: bool,
}

impl HeaderFields<'_> {
    fn long(&self) -> LongHeader<'_> {
        LongHeader { ty: self.ty, version: self.version, dcid: self.dcid, scid: self.scid, token: self.token }
    }

    /// Bytes of the header, packet number included.
    pub(crate) fn len(&self) -> usize {
        match self.ty {
            PacketType::OneRtt => 1 + self.dcid.len() + self.number_len,
            _ => long_header_len(&self.long(), self.number_len),
        }
    }
}

/// The shortest 1-RTT packet, bytes. RFC 9000, section 10.3, asks for 22 more than the connection
/// IDs that the peer sends to us have.
const ONE_RTT_LEN_MIN: usize = 22 + LOCAL_ID_LEN;

/// A packet under construction: its header, its body so far, and the bytes that still fit.
pub(crate) struct Draft {
    pub(crate) ty: PacketType,
    pub(crate) number: u64,
    number_len: usize,
    header_len: usize,
    pieces_from: usize,
    /// Plaintext bytes written.
    pub(crate) body_len: usize,
    /// Plaintext bytes that still fit.
    pub(crate) bytes_left: usize,
    /// Whether the packet is ack-eliciting.
    pub(crate) eliciting: bool,
}

impl Draft {
    /// Starts a packet of at most `size_max` bytes, or returns `None` if that is too few for a
    /// header and any frame.
    pub(crate) fn begin(plan: &mut Plan, fields: &HeaderFields<'_>, size_max: usize) -> Option<Self> {
        let header_len = fields.len();
        let bytes_left = size_max.checked_sub(header_len + TAG_LEN).filter(|bytes_left| *bytes_left >= 4)?;
        let pieces_from = plan.pieces.len();
        if fields.ty == PacketType::OneRtt {
            let start = plan.head.len();
            emit_short(
                &fields.dcid,
                fields.number,
                fields.number_len,
                fields.key_phase,
                false,
                fields.fixed_bit,
                &mut plan.head,
            );
            plan.push_head_piece(start, true);
        } else {
            // A long header states the packet's length, which is not known yet: reserve its piece.
            plan.pieces.push(Piece { chunk: Piece::HEAD, start: 0, len: 0 });
        }
        Some(Self {
            ty: fields.ty,
            number: fields.number,
            number_len: fields.number_len,
            header_len,
            pieces_from,
            body_len: 0,
            bytes_left,
            eliciting: false,
        })
    }

    /// Adds a frame if it fits.
    pub(crate) fn put(&mut self, plan: &mut Plan, frame: &Frame<'_>) -> bool {
        if frame.encoded_len() > self.bytes_left {
            return false;
        }
        self.put_head(plan, |out| frame.emit(out));
        self.eliciting |= frame.is_ack_eliciting();
        true
    }

    /// Adds the bytes that `write` appends; the caller has checked that they fit.
    pub(crate) fn put_head(&mut self, plan: &mut Plan, write: impl FnOnce(&mut Vec<u8>)) {
        let start = plan.head.len();
        write(&mut plan.head);
        let len = plan.head.len() - start;
        debug_assert!(len <= self.bytes_left, "frames are measured before they are written");
        plan.push_head_piece(start, plan.pieces.len() == self.pieces_from + 1 && self.ty != PacketType::OneRtt);
        self.body_len += len;
        self.bytes_left -= len;
    }

    /// Accounts for payload pieces of `len` bytes that the caller added to the plan.
    pub(crate) fn add_payload(&mut self, len: usize) {
        self.body_len += len;
        self.bytes_left -= len;
    }

    /// The current packet size, header, tag and minimum padding included.
    pub(crate) fn size(&self) -> usize {
        self.header_len + self.body_len + self.least_padding() + TAG_LEN
    }

    /// PADDING that header protection needs: its sample starts four bytes after the start of the
    /// number, and everything sealed counts (RFC 9001, section 5.4.2). A 1-RTT packet is also made so
    /// long that the peer can answer it with a stateless reset that looks like one.
    fn least_padding(&self) -> usize {
        let sample = (4 - self.number_len).saturating_sub(self.body_len);
        if self.ty != PacketType::OneRtt {
            return sample;
        }
        sample.max(ONE_RTT_LEN_MIN.saturating_sub(self.header_len + self.body_len + TAG_LEN))
    }

    /// Removes what `begin` put into the plan: the packet turned out to be empty.
    pub(crate) fn abandon(self, plan: &mut Plan) {
        debug_assert_eq!(self.body_len, 0, "only an empty packet can be abandoned");
        plan.pieces.truncate(self.pieces_from);
    }

    /// Completes the packet with `padding` bytes of PADDING beyond the minimum, and returns its
    /// size.
    pub(crate) fn finish(self, plan: &mut Plan, fields: &HeaderFields<'_>, padding: usize, pieces_to: usize) -> usize {
        let padding = padding + self.least_padding();
        if self.ty != PacketType::OneRtt {
            let start = plan.head.len();
            let payload_len = self.body_len + padding + TAG_LEN;
            emit_long(&fields.long(), self.number, self.number_len, payload_len, fields.fixed_bit, &mut plan.head);
            plan.pieces[self.pieces_from] =
                Piece { chunk: Piece::HEAD, start: start as u32, len: (plan.head.len() - start) as u32 };
        }
        plan.packet_count += 1;
        plan.items.push(Planned::Packet(PlannedPacket {
            space: self.ty.space(),
            number: self.number,
            number_len: self.number_len as u8,
            header_len: self.header_len as u16,
            pieces_from: self.pieces_from as u32,
            pieces_to: pieces_to as u32,
            padding: padding as u16,
        }));
        self.header_len + self.body_len + padding + TAG_LEN
    }
}

/// The STREAM frame if it is the only frame of the packet, so that consecutive packets of this kind
/// can be one run of the log.
pub(crate) fn lone_stream(frames: &[SentFrame]) -> Option<(wire::quic::StreamId, std::ops::Range<u64>)> {
    match frames {
        [SentFrame::Stream { id, range, fin: false }] if !range.is_empty() => Some((*id, range.clone())),
        _ => None,
    }
}

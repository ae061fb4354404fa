//! Opening 0-RTT packets (RFC 9000, section 17.2.3). A server does it during the handshake, packet
//! by packet.

use wire::quic::{
    PacketType, PathId, ProtectedHeader, SAMPLE_LEN, Space, decode_number, read_unprotected, sample_offset,
};

use super::opened::{Opened, OpenedPacket};
use super::parse::parse_frames;
use crate::error::TransportError;
use crate::session::DirectionKeys;

/// Opens a 0-RTT packet in place; false if it is not authentic. `largest` is the largest packet
/// number of the data so far.
pub(crate) fn open_early_packet(
    keys: &DirectionKeys,
    header: &ProtectedHeader,
    largest: Option<u64>,
    bytes: &mut [u8],
    opened: &mut Opened,
) -> bool {
    let sample_at = sample_offset(header.number_offset);
    let (head, sample) = bytes.split_at_mut(sample_at);
    let (first, rest) = head.split_at_mut(1);
    keys.header.unprotect(&sample[..SAMPLE_LEN], &mut first[0], &mut rest[header.number_offset - 1..]);
    let plain = read_unprotected(bytes[0], &bytes[header.number_offset..sample_at]);
    let number = decode_number(largest, plain.truncated, plain.number_len);
    let at = header.number_offset + plain.number_len;
    let (header_bytes, payload) = bytes.split_at_mut(at);
    let Ok(len) = keys.packet.open(PathId::ZERO, number, header_bytes, payload) else {
        opened.unauthentic_count += 1;
        return false;
    };
    let records_from = opened.records.len();
    // Multipath is not negotiated yet (multipath draft-21, section 2.1).
    let parsed = parse_frames(&payload[..len], PacketType::ZeroRtt, at, None, opened);
    let (eliciting, error) = match parsed {
        _ if !plain.reserved_ok => (false, Some(TransportError::violation("reserved header bits are set"))),
        Ok(eliciting) => (eliciting, None),
        Err(error) => (false, Some(error)),
    };
    opened.packets.push(OpenedPacket {
        space: Space::Data,
        path: PathId::ZERO,
        number,
        count: 1,
        records: records_from..opened.records.len(),
        eliciting,
        phase_advanced: false,
        error,
    });
    true
}

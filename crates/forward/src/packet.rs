//! Forwarded UDP packets: the flow, then the payload. The identifier of a flow's stream names the
//! flow.

use wire::quic::{Reader, VARINT_MAX, put_varint, varint_len};

/// Payload length limit of a UDP packet over IPv4 and IPv6 without jumbograms (RFC 768).
pub const PAYLOAD_LEN_MAX: usize = 65_527;

/// Returns the number of bytes before the payload of a packet of this flow.
pub const fn header_len(flow: u64) -> usize {
    varint_len(flow)
}

/// Returns the packet of `flow` with this payload.
///
/// # Panics
/// Panics if the flow is not the identifier of a stream.
pub fn encode(flow: u64, payload: &[u8]) -> Vec<u8> {
    assert!(flow <= VARINT_MAX, "flow {flow}");
    let mut packet = Vec::with_capacity(header_len(flow) + payload.len());
    put_varint(&mut packet, flow);
    packet.extend_from_slice(payload);
    packet
}

/// Returns the flow of a packet, and the offset of its payload; `None` if the packet is invalid.
pub fn decode(packet: &[u8]) -> Option<(u64, usize)> {
    let mut reader = Reader::new(packet);
    let flow = reader.varint().ok()?;
    // Other lengths of the number are valid (RFC 9000, section 16).
    let at = packet.len() - reader.remaining();
    (packet.len() - at <= PAYLOAD_LEN_MAX).then_some((flow, at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_has_its_flow_and_payload() {
        for flow in [0, 63, 64, 16_384, VARINT_MAX] {
            let packet = encode(flow, b"payload");
            let (decoded, at) = decode(&packet).expect("a packet");
            assert_eq!((decoded, &packet[at..]), (flow, b"payload".as_slice()));
            assert_eq!(at, header_len(flow));
        }
        assert_eq!(decode(&encode(4, b"")), Some((4, 1)), "an empty packet is one");
    }

    #[test]
    fn cut_and_too_long_packets_are_none() {
        assert_eq!(decode(&[]), None);
        assert_eq!(decode(&[0xc0, 0, 0]), None);
        assert!(decode(&encode(4, &vec![0; PAYLOAD_LEN_MAX])).is_some());
        assert_eq!(decode(&encode(4, &vec![0; PAYLOAD_LEN_MAX + 1])), None);
    }
}

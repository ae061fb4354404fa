//! Compared with a simple reference: each segment is a complete packet whose checksum is computed
//! from scratch.

use proptest::prelude::*;

use super::super::samples::{Sample, pseudo_header, samples};
use super::*;

/// Checks a packet as a receiver does, and returns its payload.
fn check(packet: &TunPacket, layout: &Sample, index: usize, segments: usize) -> Vec<u8> {
    let ip = packet.ip();
    let at = layout.ip_header_bytes();
    assert_eq!(checksum::sum(&ip[at..], pseudo_header(ip, at)), 0xffff, "the checksum");
    if layout.is_ipv6 {
        assert_eq!(usize::from(get(ip, 4)), ip.len() - 40);
    } else {
        assert_eq!(usize::from(get(ip, 2)), ip.len());
        assert_eq!(checksum::sum(&ip[..20], 0), 0xffff, "the checksum of the IP header");
        assert_eq!(get(ip, 4), layout.identification.wrapping_add(index as u16));
    }
    if layout.is_tcp {
        let expected = layout.sequence.wrapping_add(index as u32 * u32::from(layout.segment_bytes));
        assert_eq!(u32::from_be_bytes(ip[at + 4..at + 8].try_into().unwrap()), expected);
        let mut flags = layout.flags;
        if index > 0 {
            flags &= !TCP_FLAG_OF_FIRST;
        }
        if index + 1 < segments {
            flags &= !TCP_FLAGS_OF_LAST;
        }
        assert_eq!(ip[at + 13], flags);
    } else {
        assert_eq!(usize::from(get(ip, at + 4)), ip.len() - at);
        assert_ne!(get(ip, at + 6), 0, "zero means no checksum");
    }
    ip[layout.header_bytes()..].to_vec()
}

proptest! {
    #[test]
    fn segments_are_complete_packets_with_the_whole_payload(layout in samples()) {
        let bytes = layout.super_packet();
        let segments = Segments::new(&bytes).unwrap();
        prop_assert_eq!(segments.len(), layout.payload.len().div_ceil(usize::from(layout.segment_bytes)));
        let mut payload = Vec::new();
        for index in 0..segments.len() {
            let mut packet = segments.segment(index, vec![9; 3]);
            let unfinished = packet.clone();
            packet.finish_checksum();
            // The checksum is complete, so finishing it again changes nothing.
            prop_assert_eq!(&packet.as_bytes()[..OFFLOAD_HEADER_BYTES], &[0; OFFLOAD_HEADER_BYTES]);
            prop_assert!(packet != unfinished);
            let piece = check(&packet, &layout, index, segments.len());
            prop_assert_eq!(index + 1 == segments.len() || piece.len() == usize::from(layout.segment_bytes), true);
            payload.extend(piece);
        }
        prop_assert_eq!(payload, layout.payload);
    }

    /// For any bytes from the kernel: an error or packets, but no panic.
    #[test]
    fn arbitrary_bytes_are_rejected_or_passed_through(mut bytes in prop::collection::vec(any::<u8>(), 0..200), kind in 0..8_u8, version in 0..4_u8) {
        if bytes.len() > OFFLOAD_HEADER_BYTES + 40 {
            bytes[0] &= 1;
            bytes[1] = kind;
            let words = [(6, 20 + u16::from(version) * 7), (8, if kind == 5 { 6 } else { 16 })];
            words.iter().for_each(|&(at, word)| bytes[at..at + 2].copy_from_slice(&word.to_ne_bytes()));
            bytes[OFFLOAD_HEADER_BYTES] = version << 4 | 5;
        }
        if let Ok(segments) = Segments::new(&bytes) {
            for index in 0..segments.len() {
                let mut packet = segments.segment(index, Vec::new());
                let _marked = packet.mark_ce();
                packet.finish_checksum();
            }
        }
    }
}

#[test]
fn a_packet_that_is_no_super_packet_is_unchanged() {
    let mut bytes = vec![0; OFFLOAD_HEADER_BYTES];
    bytes.extend_from_slice(&[0x45, 0, 0, 21]);
    bytes.resize(OFFLOAD_HEADER_BYTES + 21, 7);
    let segments = Segments::new(&bytes).unwrap();
    assert_eq!(segments.len(), 1);
    let mut packet = segments.segment(0, Vec::new());
    packet.finish_checksum();
    assert_eq!(packet.as_bytes(), bytes);
}

#[test]
fn udp_sends_a_checksum_of_zero_as_all_ones() {
    // The payload is chosen so that the sum is all ones and its complement zero.
    let mut layout = Sample {
        is_ipv6: true,
        is_tcp: false,
        options: 0,
        payload: vec![0; 4],
        segment_bytes: 2,
        sequence: 0,
        identification: 0,
        flags: 0,
    };
    let sum_without = |layout: &Sample| {
        let packet = Segments::new(&layout.super_packet()).unwrap().segment(0, Vec::new());
        checksum::sum(&packet.ip()[40..], 0)
    };
    let missing = !sum_without(&layout);
    layout.payload[..2].copy_from_slice(&missing.to_be_bytes());
    assert_eq!(sum_without(&layout), 0xffff);
    let bytes = layout.super_packet();
    let mut packet = Segments::new(&bytes).unwrap().segment(0, Vec::new());
    packet.finish_checksum();
    assert_eq!(get(packet.ip(), 46), 0xffff);
}

#[test]
fn ecn_capable_packets_are_marked_with_a_valid_header_checksum() {
    for (is_ipv6, ecn, expected) in
        [(false, 0, false), (false, 1, true), (false, 2, true), (false, 3, true), (true, 0, false), (true, 2, true)]
    {
        let mut ip = vec![0_u8; 60];
        ip[0] = if is_ipv6 { 0x60 } else { 0x45 };
        ip[1] = if is_ipv6 { ecn << 4 } else { ecn };
        let mut bytes = vec![0; OFFLOAD_HEADER_BYTES];
        bytes.extend_from_slice(&ip);
        let mut packet = Segments::new(&bytes).unwrap().segment(0, Vec::new());
        assert_eq!(packet.mark_ce(), expected, "{is_ipv6} {ecn}");
        let byte = packet.ip()[1];
        let now = if is_ipv6 { byte >> 4 & 3 } else { byte & 3 };
        assert_eq!(now, if expected { 3 } else { ecn });
        if expected && !is_ipv6 {
            assert_eq!(checksum::sum(&packet.ip()[..20], 0), 0xffff);
        }
    }
}

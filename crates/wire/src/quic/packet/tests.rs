use super::*;
use crate::quic::id::ConnectionId;
use proptest::collection::vec;
use proptest::prelude::*;

/// Length of the tag: the payload of a packet without frames.
const TAG_LEN: usize = 16;

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

fn cid(bytes: &[u8]) -> ConnectionId {
    ConnectionId::new(bytes).unwrap()
}

fn protected(parsed: Parsed<'_>) -> ProtectedHeader {
    match parsed {
        Parsed::Protected(header) => header,
        other => panic!("not a protected packet: {other:?}"),
    }
}

/// The connection ID that the client chose for the server in RFC 9001 appendix A.
const ORIGINAL_DCID: [u8; 8] = [0x83, 0x94, 0xc8, 0xf0, 0x3e, 0x51, 0x57, 0x08];
/// The connection ID of the server in RFC 9001 appendix A.
const SERVER_CID: [u8; 8] = [0xf0, 0x67, 0xa5, 0x50, 0x2a, 0x42, 0x62, 0xb5];

#[test]
fn the_client_initial_of_rfc_9001_a2_matches() {
    let header = LongHeader {
        ty: PacketType::Initial,
        version: Version::V1,
        dcid: cid(&ORIGINAL_DCID),
        scid: cid(&[]),
        token: &[],
    };
    let mut out = Vec::new();
    // 1162 bytes of frames, number 2 in four bytes.
    assert_eq!(emit_long(&header, 2, 4, 1162 + TAG_LEN, true, &mut out), 18);
    assert_eq!(out, hex("c300000001088394c8f03e5157080000449e00000002"));
    assert_eq!(out.len(), long_header_len(&header, 4));
    out.resize(out.len() + 1162 + TAG_LEN, 0);
    assert_eq!(out.len(), MIN_INITIAL_SIZE);

    // The packet as sent: the first byte's low half and the packet number are masked.
    let mut sent = hex("c000000001088394c8f03e5157080000449e7b9aec34d1b1c98dd7689fb8ec11d242b123dc9b");
    sent.resize(MIN_INITIAL_SIZE, 0);
    let read = protected(parse_packet(&sent, 0).unwrap());
    assert_eq!((read.ty, read.version, read.dcid, read.scid), (header.ty, Version::V1, header.dcid, header.scid));
    assert_eq!((read.token, read.number_offset, read.end, read.fixed_bit), (16..16, 18, MIN_INITIAL_SIZE, true));
    let sample = sample_offset(read.number_offset);
    assert_eq!(sent[sample..sample + SAMPLE_LEN], hex("d1b1c98dd7689fb8ec11d242b123dc9b"));
    // Mask 437b9aec36 of the appendix; the first byte takes four bits of it.
    assert_eq!(sent[0] ^ (0x43 & 0x0f), 0xc3);
    let clear = read_unprotected(0xc3, &[0, 0, 0, 2]);
    assert_eq!((clear.number_len, clear.truncated, clear.reserved_ok), (4, 2, true));
}

#[test]
fn the_server_initial_of_rfc_9001_a3_matches() {
    let header = LongHeader {
        ty: PacketType::Initial,
        version: Version::V1,
        dcid: cid(&[]),
        scid: cid(&SERVER_CID),
        token: &[],
    };
    let mut out = Vec::new();
    assert_eq!(emit_long(&header, 1, 2, 99 + TAG_LEN, true, &mut out), 18);
    assert_eq!(out, hex("c1000000010008f067a5502a4262b50040750001"));
}

#[test]
fn the_retry_of_rfc_9001_a4_round_trips() {
    let packet = hex("ff000000010008f067a5502a4262b5746f6b656e04a265ba2eff4d829058fb3f0f2496ba");
    let expected = Parsed::Retry {
        version: Version::V1,
        dcid: ConnectionId::EMPTY,
        scid: cid(&SERVER_CID),
        token: b"token",
        tag: packet[packet.len() - 16..].try_into().unwrap(),
    };
    assert_eq!(parse_packet(&packet, 8), Ok(expected));
    let mut out = Vec::new();
    emit_retry(Version::V1, &ConnectionId::EMPTY, &cid(&SERVER_CID), b"token", 0xff, &mut out);
    assert_eq!(out, packet[..packet.len() - 16]);
    assert_eq!(parse_packet(&[&packet[..15], &[0; 16]].concat(), 8), Err(PacketError::EmptyRetryToken));
    assert_eq!(parse_packet(&packet[..30], 8), Err(PacketError::Truncated));
}

/// From the examples of RFC 9369.
#[test]
fn the_headers_of_rfc_9369_a_match() {
    let header = LongHeader {
        ty: PacketType::Initial,
        version: Version::V2,
        dcid: cid(&ORIGINAL_DCID),
        scid: cid(&[]),
        token: &[],
    };
    let mut out = Vec::new();
    emit_long(&header, 2, 4, 1162 + TAG_LEN, true, &mut out);
    assert_eq!(out, hex("d36b3343cf088394c8f03e5157080000449e00000002"));

    let packet = hex("cf6b3343cf0008f067a5502a4262b5746f6b656ec8646ce8bfe33952d955543665dcc7b6");
    let expected = Parsed::Retry {
        version: Version::V2,
        dcid: ConnectionId::EMPTY,
        scid: cid(&SERVER_CID),
        token: b"token",
        tag: packet[packet.len() - 16..].try_into().unwrap(),
    };
    assert_eq!(parse_packet(&packet, 8), Ok(expected));
    let mut out = Vec::new();
    emit_retry(Version::V2, &ConnectionId::EMPTY, &cid(&SERVER_CID), b"token", 0xff, &mut out);
    assert_eq!(out, packet[..packet.len() - 16]);
}

#[test]
fn the_type_bits_of_each_version_are_those_of_its_specification() {
    // RFC 9000, table 5, and RFC 9369, section 3.2: Initial, 0-RTT, Handshake, Retry.
    for (version, bits) in [(Version::V1, [0, 1, 2, 3]), (Version::V2, [1, 2, 3, 0])] {
        let types = [PacketType::Initial, PacketType::ZeroRtt, PacketType::Handshake];
        assert_eq!(types.map(|ty| version.long_type_bits(ty)), [0, 1, 2].map(|at| Some(bits[at])));
        assert_eq!(version.retry_type_bits(), bits[3]);
        assert_eq!(Version::from_number(version.number()), Some(version));
    }
    assert_eq!(Version::from_number(2), None);
}

#[test]
fn the_short_header_of_rfc_9001_a5_round_trips() {
    let mut out = Vec::new();
    assert_eq!(emit_short(&ConnectionId::EMPTY, 654_360_564, 3, false, false, true, &mut out), 1);
    assert_eq!(out, hex("4200bff4"));
    let packet = hex("4cfe4189655e5cd55c41f69080575d7999c25a5bfb");
    let read = protected(parse_packet(&packet, 0).unwrap());
    assert_eq!((read.ty, read.number_offset, read.end), (PacketType::OneRtt, 1, packet.len()));
    let sample = sample_offset(read.number_offset);
    assert_eq!(packet[sample..sample + SAMPLE_LEN], hex("5e5cd55c41f69080575d7999c25a5bfb"));
    let clear = read_unprotected(0x42, &hex("00bff4"));
    assert_eq!((clear.number_len, clear.truncated, clear.key_phase, clear.spin), (3, 0xbff4, false, false));
    assert_eq!(decode_number(Some(654_360_560), clear.truncated, clear.number_len), 654_360_564);
}

#[test]
fn the_bits_of_a_short_header_are_parsed() {
    for bits in 0..16_u8 {
        let (key_phase, spin, fixed_bit) = (bits & 1 != 0, bits & 2 != 0, bits & 4 != 0);
        let mut out = Vec::new();
        emit_short(&cid(&[7; 5]), 0x1122_3344, 2, key_phase, spin, fixed_bit, &mut out);
        out.extend_from_slice(&[0; 18]);
        let read = protected(parse_packet(&out, 5).unwrap());
        assert_eq!((read.dcid, read.fixed_bit), (cid(&[7; 5]), fixed_bit));
        let clear = read_unprotected(out[0], &out[read.number_offset..]);
        let expected = Unprotected { number_len: 2, truncated: 0x3344, key_phase, spin, reserved_ok: true };
        assert_eq!(clear, expected);
    }
    assert!(!read_unprotected(0x48, &[0; 4]).reserved_ok);
    assert!(!read_unprotected(0xc4, &[0; 4]).reserved_ok);
    // Reserved bits of one form are other fields in the other form.
    assert!(read_unprotected(0x44, &[0; 4]).reserved_ok);
    assert!(read_unprotected(0xd0, &[0; 4]).reserved_ok);
}

#[test]
fn packets_too_short_to_sample_are_dropped() {
    let mut out = Vec::new();
    emit_short(&cid(&[7; 8]), 0, 1, false, false, true, &mut out);
    out.resize(9 + 4 + 16, 0);
    assert!(parse_packet(&out, 8).is_ok());
    assert_eq!(parse_packet(&out[..out.len() - 1], 8), Err(PacketError::TooShortToSample));

    let header =
        LongHeader { ty: PacketType::Handshake, version: Version::V1, dcid: cid(&[1]), scid: cid(&[2]), token: &[] };
    for (payload_len, fits) in [(18, false), (19, true)] {
        let mut out = Vec::new();
        emit_long(&header, 0, 1, payload_len, true, &mut out);
        // Bytes that follow in the datagram are another packet and must not be sampled.
        out.resize(200, 0);
        assert_eq!(parse_packet(&out, 8).is_ok(), fits, "payload of {payload_len}");
    }
}

#[test]
fn coalesced_packets_are_parsed_in_order() {
    let mut datagram = Vec::new();
    for ty in [PacketType::Initial, PacketType::Handshake] {
        let header = LongHeader { ty, version: Version::V1, dcid: cid(&[1; 8]), scid: cid(&[2; 4]), token: b"tok" };
        emit_long(&header, 5, 2, 40, true, &mut datagram);
        datagram.resize(datagram.len() + 40, 0xaa);
    }
    emit_short(&cid(&[1; 8]), 5, 2, false, false, true, &mut datagram);
    datagram.resize(datagram.len() + 30, 0xbb);

    let mut types = Vec::new();
    let mut at = 0;
    while at < datagram.len() {
        let rest = &datagram[at..];
        let header = protected(parse_packet(rest, 8).unwrap());
        let token: &[u8] = if header.ty == PacketType::Initial { b"tok" } else { b"" };
        assert_eq!(&rest[header.token.clone()], token);
        assert_eq!(header.dcid, cid(&[1; 8]));
        types.push(header.ty);
        at += header.end;
    }
    assert_eq!(types, [PacketType::Initial, PacketType::Handshake, PacketType::OneRtt]);
}

#[test]
fn a_length_beyond_the_datagram_is_dropped() {
    let header =
        LongHeader { ty: PacketType::Initial, version: Version::V1, dcid: cid(&[1]), scid: cid(&[]), token: &[9; 70] };
    let mut out = Vec::new();
    emit_long(&header, 0, 4, 50, true, &mut out);
    out.resize(out.len() + 50, 0);
    assert!(parse_packet(&out, 0).is_ok());
    for cut in 0..out.len() {
        assert_eq!(parse_packet(&out[..cut], 0), Err(PacketError::Truncated), "cut at {cut}");
    }
}

#[test]
fn only_known_versions_limit_connection_ids_to_20_bytes() {
    for version in [1_u32, 0x6b33_43cf, 0x0a0a_0a0a] {
        let mut packet = vec![0xc0];
        packet.extend_from_slice(&version.to_be_bytes());
        packet.push(21);
        packet.extend_from_slice(&[5; 21]);
        packet.push(255);
        packet.extend_from_slice(&[6; 255]);
        packet.extend_from_slice(&[0; 60]);
        assert_eq!(destination(&packet, 8), Some(Destination { dcid: &[5; 21], is_long: true }));
        match parse_packet(&packet, 8) {
            Err(error) => {
                assert_eq!((version == 0x0a0a_0a0a, error), (false, PacketError::ConnectionIdTooLong));
            }
            Ok(parsed) => assert_eq!(parsed, Parsed::UnknownVersion { version, dcid: &[5; 21], scid: &[6; 255] }),
        }
    }
}

#[test]
fn version_negotiation_needs_at_least_one_complete_version() {
    let mut out = Vec::new();
    emit_version_negotiation(&[1; 30], &[], &[1, 0x6b33_43cf], 0x15, &mut out);
    assert_eq!(out[0], 0xd5);
    match parse_packet(&out, 8) {
        Ok(Parsed::VersionNegotiation { dcid, scid, versions: list }) => {
            assert_eq!((dcid, scid), (&[1; 30][..], &[][..]));
            assert_eq!(versions(list).collect::<Vec<_>>(), [1, 0x6b33_43cf]);
        }
        other => panic!("not version negotiation: {other:?}"),
    }
    for cut in [1, 2, 3, 5, 6, 7, 8] {
        assert_eq!(parse_packet(&out[..out.len() - cut], 8), Err(PacketError::BadVersionList), "{cut} bytes less");
    }
}

#[test]
fn destination_reads_only_the_destination_connection_id() {
    assert_eq!(destination(&[0x40, 1, 2, 3], 2), Some(Destination { dcid: &[1, 2], is_long: false }));
    assert_eq!(destination(&[0x00], 0), Some(Destination { dcid: &[], is_long: false }));
    assert_eq!(destination(&[0x40, 1], 2), None);
    assert_eq!(destination(&[0xc0, 0, 0, 0, 1, 2, 8, 9], 20), Some(Destination { dcid: &[8, 9], is_long: true }));
    assert_eq!(destination(&[0xc0, 0, 0, 0, 1, 2, 8], 20), None);
    assert_eq!(destination(&[], 0), None);
}

#[test]
fn packet_types_map_to_their_number_space() {
    let spaces = [PacketType::Initial, PacketType::ZeroRtt, PacketType::Handshake, PacketType::OneRtt]
        .map(|ty| ty.space().index());
    assert_eq!(spaces, [0, 2, 1, 2]);
}

#[test]
#[should_panic(expected = "no long header")]
fn a_long_header_for_1_rtt_panics() {
    let header =
        LongHeader { ty: PacketType::OneRtt, version: Version::V1, dcid: cid(&[]), scid: cid(&[]), token: &[] };
    emit_long(&header, 0, 1, 20, true, &mut Vec::new());
}

proptest! {
    #[test]
    fn long_headers_round_trip(
        ty in prop::sample::select(vec![PacketType::Initial, PacketType::ZeroRtt, PacketType::Handshake]),
        version in prop::sample::select(Version::ALL.to_vec()),
        dcid in vec(any::<u8>(), 0..=20),
        scid in vec(any::<u8>(), 0..=20),
        token in vec(any::<u8>(), 0..200),
        number: u32,
        number_len in 1_usize..=4,
        payload_len in 19_usize..2000,
        fixed_bit: bool,
        tail in vec(any::<u8>(), 0..50),
    ) {
        let header = LongHeader { ty, version, dcid: cid(&dcid), scid: cid(&scid), token: &token };
        let mut out = Vec::new();
        let number_offset = emit_long(&header, u64::from(number), number_len, payload_len, fixed_bit, &mut out);
        prop_assert_eq!(out.len(), long_header_len(&header, number_len));
        prop_assert_eq!(number_offset + number_len, out.len());
        let end = out.len() + payload_len;
        out.resize(end, 0x5a);
        out.extend_from_slice(&tail);

        let read = protected(parse_packet(&out, 8).unwrap());
        prop_assert_eq!((read.ty, read.version, read.dcid, read.scid), (ty, version, header.dcid, header.scid));
        let sent_token: &[u8] = if ty == PacketType::Initial { &token } else { &[] };
        prop_assert_eq!(&out[read.token.clone()], sent_token);
        prop_assert_eq!((read.number_offset, read.end, read.fixed_bit), (number_offset, end, fixed_bit));
        let clear = read_unprotected(out[0], &out[read.number_offset..]);
        prop_assert_eq!((clear.number_len, clear.reserved_ok), (number_len, true));
        prop_assert_eq!((clear.key_phase, clear.spin), (false, false));
        prop_assert_eq!(u64::from(clear.truncated), u64::from(number) & ((1 << (8 * number_len)) - 1));
        prop_assert_eq!(destination(&out, 8), Some(Destination { dcid: &dcid, is_long: true }));
    }

    /// Flips bits in a valid header, so that the later fields are reached too.
    #[test]
    fn hostile_packets_never_panic_and_stay_inside_the_datagram(
        mut bytes in vec(any::<u8>(), 0..100),
        from_valid: bool,
        flips in vec((any::<usize>(), any::<u8>()), 0..4),
        local_cid_len in 0_usize..=20,
    ) {
        if from_valid {
            let header =
                LongHeader { ty: PacketType::Initial, version: Version::V1, dcid: cid(&[1; 8]), scid: cid(&[2]), token: &[3; 9] };
            let mut out = Vec::new();
            emit_long(&header, 1, 1, 40, true, &mut out);
            out.append(&mut bytes);
            for (at, mask) in flips {
                let at = at % out.len();
                out[at] ^= mask;
            }
            bytes = out;
        }
        let _ = destination(&bytes, local_cid_len);
        if let Ok(Parsed::Protected(header)) = parse_packet(&bytes, local_cid_len) {
            prop_assert!(header.end <= bytes.len());
            prop_assert!(sample_offset(header.number_offset) + SAMPLE_LEN <= header.end);
            prop_assert!(header.token.start <= header.token.end && header.token.end <= header.number_offset);
            let _ = read_unprotected(bytes[0], &bytes[header.number_offset..]);
        }
    }
}

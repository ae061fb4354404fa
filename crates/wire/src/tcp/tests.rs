use std::net::{IpAddr, Ipv4Addr};

use super::*;
use crate::ip::Protocol;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

fn emitted(header: &Header) -> Vec<u8> {
    let mut out = vec![0xee];
    header.emit(&mut out);
    assert_eq!(out.len() - 1, header.len());
    out.split_off(1)
}

fn parsed(bytes: &[u8]) -> Header {
    let (header, len) = Header::parse(bytes).unwrap();
    assert_eq!(len, bytes.len());
    header
}

/// Returns a SYN with `options`, which must be padded to a multiple of 4.
fn syn(options: &[u8]) -> Vec<u8> {
    let mut bytes = emitted(&Header { flags: Flags::SYN, ..Header::default() });
    bytes.extend_from_slice(options);
    bytes[12] = ((bytes.len() / 4) as u8) << 4;
    bytes
}

fn options_of(options: &[u8]) -> Options {
    parsed(&syn(options)).options
}

/// A SYN sent by Linux.
const SYN: [u8; 40] = *b"\x9c\x40\x00\x50\x11\x22\x33\x44\x00\x00\x00\x00\xa0\x02\xfa\xf0\x00\x00\x00\x00\
    \x02\x04\x05\xb4\x04\x02\x08\x0a\x01\x02\x03\x04\x00\x00\x00\x00\x01\x03\x03\x07";

#[test]
fn a_known_syn_is_parsed() {
    let header = parsed(&SYN);
    assert_eq!((header.source_port, header.destination_port), (40_000, 80));
    assert_eq!((header.seq, header.ack), (Seq32::new(0x1122_3344), Seq32::new(0)));
    assert_eq!((header.flags, header.window, header.urgent), (Flags::SYN, 64_240, 0));
    let options = Options {
        mss: Some(1460),
        window_scale: Some(7),
        sack_permitted: true,
        timestamps: Some(Timestamps { value: 0x0102_0304, echo: 0 }),
        ..Options::default()
    };
    assert_eq!(header.options, options);
}

#[test]
fn a_known_acknowledgement_is_written_and_parsed() {
    let mut options = Options { timestamps: Some(Timestamps { value: 1, echo: 2 }), ..Options::default() };
    options.sack.push(Seq32::new(0x10), Seq32::new(0x20));
    let header = Header {
        source_port: 1,
        destination_port: 2,
        seq: Seq32::new(3),
        ack: Seq32::new(4),
        flags: Flags::ACK | Flags::AE | Flags::FIN,
        window: 5,
        urgent: 6,
        options,
    };
    let bytes = b"\x00\x01\x00\x02\x00\x00\x00\x03\x00\x00\x00\x04\xb1\x11\x00\x05\x00\x00\x00\x06\
        \x01\x01\x08\x0a\x00\x00\x00\x01\x00\x00\x00\x02\x01\x01\x05\x0a\x00\x00\x00\x10\x00\x00\x00\x20";
    assert_eq!(emitted(&header), bytes);
    assert_eq!(parsed(bytes), header);
}

#[test]
fn the_recommended_layout_is_parsed_like_any_other() {
    let timestamps = Some(Timestamps { value: 0x0102_0304, echo: 0x0506_0708 });
    let expected = Options { timestamps, ..Options::default() };
    assert_eq!(options_of(&[1, 1, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8]), expected);
    assert_eq!(options_of(&[8, 10, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0]), expected);
    assert_eq!(options_of(&[1, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8, 1]), expected);
}

#[test]
fn accurate_ecn_counters_come_in_two_orders() {
    let counters = |e0_bytes, ce_bytes, e1_bytes| Some(AccEcn { e0_bytes, ce_bytes, e1_bytes });
    let of = |options: &[u8]| options_of(options).accecn;
    assert_eq!(of(&[172, 11, 0, 0, 1, 0, 1, 0, 1, 0, 0, 1]), counters(Some(1), Some(0x100), Some(0x1_0000)));
    assert_eq!(of(&[174, 11, 0, 0, 1, 0, 1, 0, 1, 0, 0, 1]), counters(Some(0x1_0000), Some(0x100), Some(1)));
    assert_eq!(of(&[174, 8, 0, 0, 1, 0, 0, 2]), counters(None, Some(2), Some(1)));
    assert_eq!(of(&[172, 5, 0, 0, 1, 0, 0, 0]), counters(Some(1), None, None));
    assert_eq!(of(&[172, 2, 0, 0]), counters(None, None, None));
    // Other lengths: complete counters count.
    assert_eq!(of(&[172, 7, 0, 0, 1, 9, 9, 0]), counters(Some(1), None, None));
    assert_eq!(of(&[172, 14, 0, 0, 1, 0, 0, 2, 0, 0, 3, 9, 9, 9, 0, 0]), counters(Some(1), Some(2), Some(3)));
}

#[test]
fn counters_without_their_neighbours_are_left_out() {
    let written = |e0_bytes, ce_bytes, e1_bytes| {
        let accecn = Some(AccEcn { e0_bytes, ce_bytes, e1_bytes });
        let options = Options { accecn, ..Options::default() };
        emitted(&Header { options, ..Header::default() }).split_off(HEADER_LEN)
    };
    assert_eq!(written(None, Some(1), None), [1, 1, 172, 2]);
    assert_eq!(written(Some(1), None, Some(2)), [1, 1, 1, 172, 5, 0, 0, 1]);
    assert_eq!(written(None, None, Some(0xff00_0002)), [1, 1, 1, 174, 5, 0, 0, 2], "counters wrap at 2^24");
}

#[test]
fn options_of_syn_segments_are_ignored_elsewhere() {
    let mut bytes = SYN;
    bytes[13] = 0x10;
    let options = parsed(&bytes).options;
    assert_eq!((options.mss, options.window_scale, options.sack_permitted), (None, None, false));
    assert!(options.timestamps.is_some());
}

#[test]
fn broken_options_end_the_options_and_unknown_ones_are_skipped() {
    let mss = Options { mss: Some(0x0102), ..Options::default() };
    // Unknown, empty, of the wrong length.
    assert_eq!(options_of(&[253, 4, 9, 9, 2, 4, 1, 2]), mss);
    assert_eq!(options_of(&[253, 2, 1, 1, 2, 4, 1, 2]), mss);
    assert_eq!(options_of(&[2, 3, 9, 1, 2, 4, 1, 2]), mss);
    assert_eq!(options_of(&[2, 4, 1, 2, 8, 4, 9, 9]), mss);
    assert_eq!(options_of(&[2, 4, 1, 2, 5, 6, 9, 9, 9, 9, 0, 0]), mss, "half a block");
    // Options after the end, after a length of 0 or 1, beyond the header, and without a length.
    assert_eq!(options_of(&[0, 2, 4, 1, 2, 0, 0, 0]), Options::default());
    assert_eq!(options_of(&[253, 0, 2, 4, 1, 2, 0, 0]), Options::default());
    assert_eq!(options_of(&[253, 1, 2, 4, 1, 2, 0, 0]), Options::default());
    assert_eq!(options_of(&[2, 4, 1, 2, 8, 10, 1, 1]), mss);
    assert_eq!(options_of(&[2, 4, 1, 2, 1, 1, 1, 8]), mss);
}

#[test]
fn the_largest_window_scale_is_14() {
    assert_eq!(options_of(&[3, 3, 14, 0]).window_scale, Some(14));
    assert_eq!(options_of(&[3, 3, 15, 0]).window_scale, Some(14));
}

#[test]
fn the_last_of_equal_options_counts() {
    assert_eq!(options_of(&[2, 4, 1, 2, 2, 4, 3, 4]).mss, Some(0x0304));
}

#[test]
fn impossible_headers_are_errors() {
    for len in 0..SYN.len() {
        assert_eq!(Header::parse(&SYN[..len]), Err(ParseError::Truncated), "{len} bytes");
    }
    for offset in 0..5 {
        let mut bytes = SYN;
        bytes[12] = offset << 4;
        assert_eq!(Header::parse(&bytes), Err(ParseError::DataOffset));
    }
    let mut bytes = SYN;
    bytes[12] = 11 << 4;
    assert_eq!(Header::parse(&bytes), Err(ParseError::Truncated));
}

#[test]
fn data_follows_the_header() {
    let mut bytes = SYN.to_vec();
    bytes.extend_from_slice(b"data");
    let (_, len) = Header::parse(&bytes).unwrap();
    assert_eq!(&bytes[len..], b"data");
}

#[test]
#[should_panic(expected = "a header of 64 bytes")]
fn too_many_options_panic() {
    let mut options = Options { timestamps: Some(Timestamps::default()), ..Options::default() };
    options.md5 = Some([0; 16]);
    options.sack.push(Seq32::new(1), Seq32::new(2));
    emitted(&Header { options, ..Header::default() });
}

#[test]
fn the_checksum_of_a_known_segment_matches() {
    let source = IpAddr::from(Ipv4Addr::new(10, 0, 0, 1));
    let destination = IpAddr::from(Ipv4Addr::new(10, 0, 0, 2));
    let mut segment = SYN;
    let pseudo = checksum::pseudo_header(source, destination, Protocol::TCP, segment.len() as u32);
    fill_checksum(&mut segment, pseudo);
    assert!(is_checksum_valid(&segment, pseudo));
    // Other code computed this value.
    assert_eq!(segment[16..18], [0x54, 0x10]);
    // The partial sum and the rest of the segment give the same checksum.
    let mut offloaded = SYN;
    fill_partial_checksum(&mut offloaded, pseudo);
    assert_eq!(!checksum::sum(&offloaded, 0), u16::from_be_bytes([segment[16], segment[17]]));
    for at in 0..segment.len() {
        let mut damaged = segment;
        damaged[at] ^= 0x10;
        assert!(!is_checksum_valid(&damaged, pseudo), "byte {at}");
    }
}

#[test]
fn flags_are_shown_by_name() {
    assert_eq!(format!("{:?}", Flags::SYN | Flags::ACK), "SYN|ACK");
    assert_eq!(Flags(0x1ff).to_string(), "FIN|SYN|RST|PSH|ACK|URG|ECE|CWR|AE");
    assert_eq!(Flags::default().to_string(), "-");
    assert!((Flags::SYN | Flags::ACK).contains(Flags::ACK));
    assert!(!Flags::SYN.contains(Flags::SYN | Flags::ACK));
    assert!(Flags::SYN.intersects(Flags::SYN | Flags::ACK));
    assert_eq!((Flags::SYN | Flags::ACK).without(Flags::ACK), Flags::SYN);
}

#[test]
fn four_blocks_fit() {
    let mut blocks = SackBlocks::default();
    for index in 0..4 {
        assert_eq!(blocks.len(), index as usize);
        assert!(blocks.push(Seq32::new(index), Seq32::new(index + 1)));
    }
    assert!(!blocks.push(Seq32::new(9), Seq32::new(10)));
    assert_eq!(blocks.iter().last(), Some((Seq32::new(3), Seq32::new(4))));
    assert_eq!(format!("{blocks:?}"), "[0..1, 1..2, 2..3, 3..4]");
}

fn accecn() -> impl Strategy<Value = AccEcn> {
    let counter = 0..1_u32 << 24;
    (counter.clone(), counter.clone(), counter, 0..6_u8).prop_map(|(e0, ce, e1, fields)| {
        let (e0_bytes, ce_bytes, e1_bytes) = match fields {
            0 => (None, None, None),
            1 => (Some(e0), None, None),
            2 => (Some(e0), Some(ce), None),
            3 => (None, None, Some(e1)),
            4 => (None, Some(ce), Some(e1)),
            _ => (Some(e0), Some(ce), Some(e1)),
        };
        AccEcn { e0_bytes, ce_bytes, e1_bytes }
    })
}

/// Options that fit a header.
fn options() -> impl Strategy<Value = Options> {
    let timestamps = any::<(u32, u32)>().prop_map(|(value, echo)| Timestamps { value, echo });
    let blocks = vec(any::<(u32, u32)>(), 0..=4).prop_map(|pairs| {
        let mut blocks = SackBlocks::default();
        for (start, end) in pairs {
            blocks.push(Seq32::new(start), Seq32::new(end));
        }
        blocks
    });
    let syn = (any::<Option<u16>>(), option::of(0..=14_u8), any::<bool>());
    (syn, option::of(timestamps), blocks, any::<Option<[u8; 16]>>(), option::of(accecn()))
        .prop_map(|((mss, window_scale, sack_permitted), timestamps, sack, md5, accecn)| Options {
            mss,
            window_scale,
            sack_permitted,
            timestamps,
            sack,
            md5,
            accecn,
        })
        .prop_map(|mut options| {
            let fits = |options: &Options| Header { options: *options, ..Header::default() }.len() <= HEADER_LEN_MAX;
            if !fits(&options) {
                options.md5 = None;
            }
            if !fits(&options) {
                options.sack = SackBlocks::default();
            }
            options
        })
}

fn headers() -> impl Strategy<Value = Header> {
    (any::<[u16; 4]>(), any::<(u32, u32)>(), 0..0x200_u16, options()).prop_map(|(words, (seq, ack), flags, options)| {
        let has_syn_options = options.mss.is_some() || options.window_scale.is_some() || options.sack_permitted;
        Header {
            source_port: words[0],
            destination_port: words[1],
            seq: Seq32::new(seq),
            ack: Seq32::new(ack),
            flags: if has_syn_options { Flags(flags) | Flags::SYN } else { Flags(flags) },
            window: words[2],
            urgent: words[3],
            options,
        }
    })
}

proptest! {
    #[test]
    fn headers_round_trip(header in headers()) {
        let bytes = emitted(&header);
        prop_assert_eq!(parsed(&bytes), header);
        for len in 0..bytes.len() {
            prop_assert_eq!(Header::parse(&bytes[..len]), Err(ParseError::Truncated));
        }
    }

    #[test]
    fn random_bytes_are_no_danger(mut bytes in vec(any::<u8>(), 0..80), offset in 5..16_u8) {
        let _ = Header::parse(&bytes);
        if let Some(byte) = bytes.get_mut(12) {
            *byte = offset << 4;
        }
        if let Ok((header, len)) = Header::parse(&bytes) {
            prop_assert!(len <= bytes.len());
            // Options that were received together may need more padding than fits.
            if header.len() <= HEADER_LEN_MAX {
                prop_assert_eq!(parsed(&emitted(&header)), header);
            }
        }
    }
}

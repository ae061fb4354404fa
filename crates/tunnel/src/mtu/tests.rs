use wire::ip::Protocol;

use super::*;
use crate::samples::transport_packet;

const MTU: u16 = 1300;

fn at(ms: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(ms)
}

#[test]
fn a_packet_is_too_large_if_its_segments_are_whether_it_may_be_fragmented_or_not() {
    for is_ipv6 in [false, true] {
        for (payload, segment, is_large) in
            [(1200, None, false), (1300, None, true), (30_000, Some(1200), false), (30_000, Some(1300), true)]
        {
            let mut sample = transport_packet(is_ipv6, false, 9, &vec![1; payload], segment);
            assert_eq!(is_too_large(&sample.packet(), MTU), is_large, "{is_ipv6} {payload} {segment:?}");
            if !is_ipv6 {
                sample.ip[6] |= 0x40;
            }
            assert_eq!(is_too_large(&sample.packet(), MTU), is_large, "{is_ipv6} {payload} {segment:?}");
        }
    }
}

#[test]
fn a_packet_that_arrives_is_too_large_if_its_segments_are() {
    let inner = transport_packet(false, false, 9, &[7; 20], None).inner();
    for (headers, parts, segment, is_large) in [
        (0, &[1300][..], None, false),
        (0, &[1301], None, true),
        (0, &[3000], None, true),
        (0, &[700, 700], None, true),
        (28, &[1272, 1272, 900], Some(1272), false),
        (28, &[60_000], Some(1273), true),
        // The last one, or the only one, may be short.
        (28, &[900], Some(9000), false),
    ] {
        let headers = vec![0; headers];
        let parts: Vec<Bytes> = parts.iter().map(|len| Bytes::from(vec![0; *len])).collect();
        let arrived = Arrived { inner, headers: &headers, parts: &parts, is_partial: false, segment, packets: 1 };
        assert_eq!(exceeds(&arrived, MTU), is_large, "{} {segment:?}", parts.len());
    }
}

#[test]
fn the_sender_is_told_the_size_and_gets_its_own_headers_back() {
    for is_ipv6 in [false, true] {
        let sample = transport_packet(is_ipv6, false, 9, &[7; 2000], None);
        let mut out = Vec::new();
        assert!(Reports::default().report(at(1), &sample.packet(), MTU, &mut out));
        let (inner, sent) = (Inner::parse(&out).expect("a packet"), sample.inner());
        assert_eq!((inner.source, inner.destination), (sent.destination, sent.source));
        let body = &out[inner.ip_header_bytes..];
        if is_ipv6 {
            assert_eq!((body[0], body[1], &body[4..8]), (2, 0, &u32::from(MTU).to_be_bytes()[..]));
            let pseudo = checksum::pseudo_header(inner.source, inner.destination, Protocol::ICMPV6, body.len() as u32);
            assert_eq!(checksum::sum(body, pseudo), 0xffff);
            assert!(out.len() <= 1280, "RFC 4443, section 2.4, (c)");
        } else {
            assert_eq!((body[0], body[1], &body[6..8]), (3, 4, &MTU.to_be_bytes()[..]));
            assert_eq!((checksum::sum(&out[..20], 0), checksum::sum(body, 0)), (0xffff, 0xffff));
            assert!(out.len() <= 576, "RFC 1812, section 4.3.2.3");
        }
        let quoted = &body[8..];
        assert_eq!(quoted, &sample.ip[..quoted.len()]);
    }
}

#[test]
fn errors_later_fragments_and_packets_from_no_host_are_not_answered() {
    let plain = transport_packet(false, false, 9, &[7; 2000], None);
    let refused = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut sample = plain.clone();
        change(&mut sample.ip);
        let packet = sample.packet();
        !Reports::default().report(at(1), &packet, MTU, &mut Vec::new())
    };
    assert!(!refused(&|_| ()), "it is reported unchanged");
    assert!(refused(&|ip| (ip[9], ip[20]) = (ICMP, 3)), "an error");
    assert!(!refused(&|ip| (ip[9], ip[20]) = (ICMP, 8)), "an echo request");
    assert!(refused(&|ip| ip[7] = 1), "a later fragment");
    assert!(refused(&|ip| ip[12..16].fill(0)), "no source");
    assert!(refused(&|ip| ip[12] = 224), "a group");
}

#[test]
fn reports_are_limited_and_come_again_with_time() {
    let sample = transport_packet(true, false, 9, &[7; 2000], None);
    let mut reports = Reports::default();
    let mut count = |now, packets: u64| {
        (0..packets).filter(|_| reports.report(now, &sample.packet(), MTU, &mut Vec::new())).count() as u64
    };
    assert_eq!(count(at(1), 1000), REPORTS_MAX);
    assert_eq!(count(at(101), 1000), 10);
    assert_eq!(count(at(100_000), 1000), REPORTS_MAX);
}

/// A SYN with options before the segment size, complete checksum.
fn syn(is_ipv6: bool, options: &[u8]) -> Vec<u8> {
    let mut sample = transport_packet(is_ipv6, true, 9, &[], None);
    let at = sample.inner().ip_header_bytes;
    sample.ip[at + 13] = TCP_SYN;
    sample.ip[at + 20..at + 20 + options.len()].copy_from_slice(options);
    sample.ip[at + 16..at + 18].fill(0);
    let inner = sample.inner();
    let sum = !checksum::sum(&sample.ip[at..], pseudo(&inner, sample.ip.len() - at));
    sample.ip[at + 16..at + 18].copy_from_slice(&sum.to_be_bytes());
    sample.ip
}

fn pseudo(inner: &Inner, bytes: usize) -> u16 {
    checksum::pseudo_header(inner.source, inner.destination, Protocol(inner.protocol), bytes as u32)
}

#[test]
fn the_segment_size_of_a_syn_is_lowered_and_its_checksum_stays_right() {
    for is_ipv6 in [false, true] {
        let most = MTU - if is_ipv6 { 60 } else { 40 };
        // Also after options, at an even and at an odd place.
        for before in [&[][..], &[OPTION_NONE], &[4, 2, OPTION_NONE], &[8, 2]] {
            let ip = syn(is_ipv6, &[before, &[OPTION_SEGMENT_SIZE, 4, 0x23, 0x28]].concat());
            let inner = Inner::parse(&ip).expect("a packet");
            let at = inner.ip_header_bytes;
            let field = at + 20 + before.len() + 2;
            let mut clamped = ip.clone();
            assert!(clamp_segment_size(&mut clamped, &inner, false, MTU));
            assert_eq!(clamped[field..field + 2], most.to_be_bytes());
            assert_eq!(checksum::sum(&clamped[at..], pseudo(&inner, ip.len() - at)), 0xffff, "{is_ipv6} {before:?}");
            assert!(!clamp_segment_size(&mut clamped, &inner, false, MTU), "it fits now");

            let mut partial = ip.clone();
            assert!(clamp_segment_size(&mut partial, &inner, true, MTU));
            assert_eq!(partial[at + 16..at + 18], ip[at + 16..at + 18], "a partial checksum stays");
        }
    }
}

#[test]
fn nothing_but_a_syn_with_the_option_is_changed() {
    let malformed: [&[u8]; 4] =
        [&[0, 2, 4, 9, 9], &[3, 0, 2, 4, 9, 9], &[OPTION_SEGMENT_SIZE, 3, 9, 9], &[3, 200, 2, 4, 9, 9]];
    for options in malformed {
        let ip = syn(false, options);
        let inner = Inner::parse(&ip).expect("a packet");
        assert!(!clamp_segment_size(&mut ip.clone(), &inner, false, MTU), "{options:?}");
    }
    let mut data = syn(false, &[OPTION_SEGMENT_SIZE, 4, 0x23, 0x28]);
    data[33] = 0x10;
    let inner = Inner::parse(&data).expect("a packet");
    assert!(!clamp_segment_size(&mut data, &inner, false, MTU), "no SYN");
}

proptest::proptest! {
    #[test]
    fn no_headers_make_it_panic(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..100)) {
        let mut ip = syn(false, &[]);
        let len = ip.len();
        for (to, from) in ip[13..len].iter_mut().zip(&bytes) {
            *to = *from;
        }
        if let Ok(inner) = Inner::parse(&ip) {
            let _any = clamp_segment_size(&mut ip, &inner, false, MTU);
            let packet = Packet { ip: &ip, inner, is_partial: false, segment: None };
            let _any = Reports::default().report(at(1), &packet, MTU, &mut Vec::new());
        }
    }
}

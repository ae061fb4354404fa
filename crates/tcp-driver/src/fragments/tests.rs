use std::net::IpAddr;

use proptest::prelude::*;
use units::{Duration, Ecn, Instant, Rng};
use wire::ip::{Header, Packet, Protocol};

use super::{BYTES_MAX, FRAGMENTS_MAX, PACKETS_MAX, Reassembler, Stats, TIME_MAX, split};

const ADDRESSES: [[&str; 2]; 2] = [["10.0.0.1", "10.0.0.2"], ["fd00::1", "fd00::2"]];

fn header(family: usize) -> Header {
    let [source, destination] = ADDRESSES[family].map(|ip| ip.parse::<IpAddr>().unwrap());
    Header { source, destination, protocol: Protocol::UDP, hop_limit: 9, dscp: 3, ecn: None, id: 0, may_fragment: true }
}

/// Returns a packet with `len` bytes of payload, without the header that its protocol requires.
fn packet(family: usize, len: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    header(family).emit(len, &mut bytes);
    bytes.extend((0..len).map(|at| (at * 7 / 3) as u8));
    bytes
}

fn fragments(packet: &[u8], mtu: usize, id: u32) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    split(packet, mtu, id, |fragment| all.push(fragment));
    all
}

/// Returns a fragment of an IPv4 packet with this identification.
fn piece(id: u16, offset: usize, more: bool, data: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    Header { id, ..header(0) }.emit(data.len(), &mut bytes);
    bytes[6..8].copy_from_slice(&((offset / 8) as u16 | u16::from(more) << 13).to_be_bytes());
    wire::checksum::fill_ipv4(&mut bytes);
    bytes.extend_from_slice(data);
    bytes
}

fn take(reassembler: &mut Reassembler, now: Instant, fragment: &[u8]) -> Option<Vec<u8>> {
    reassembler.take(now, &Packet::parse(fragment).unwrap(), fragment).map(Vec::from)
}

/// Clears the identification, which means nothing in a whole packet.
fn without_id(mut bytes: Vec<u8>) -> Vec<u8> {
    if bytes[0] >> 4 == 4 {
        bytes[4..6].fill(0);
        wire::checksum::fill_ipv4(&mut bytes[..20]);
    }
    bytes
}

proptest! {
    #[test]
    fn packets_survive_any_order_and_repetition(seed: u64, len in 1400usize..9000, mtu in 576usize..1400) {
        let mut rng = Rng::from_seed(seed);
        let mut reassembler = Reassembler::default();
        let packets: Vec<Vec<u8>> = (0..4).map(|number| packet(number % 2, len + number)).collect();
        let mut all: Vec<Vec<u8>> =
            packets.iter().enumerate().flat_map(|(id, packet)| fragments(packet, mtu.max(if id % 2 == 1 { 1280 } else { 0 }), id as u32)).collect();
        prop_assert!(all.len() >= 4);
        // Each is repeated with a probability of a third, all in any order.
        for index in 0..all.len() {
            if rng.below(3) == 0 {
                all.push(all[index].clone());
            }
        }
        for index in (1..all.len()).rev() {
            all.swap(index, rng.below(index as u64 + 1) as usize);
        }
        let mut whole: Vec<Vec<u8>> = Vec::new();
        for fragment in &all {
            if let Some(packet) = take(&mut reassembler, Instant::ZERO, fragment) {
                whole.push(without_id(packet));
            }
        }
        for packet in packets {
            prop_assert!(whole.contains(&packet));
        }
        prop_assert_eq!(reassembler.stats().refused, 0);
    }
}

#[test]
fn every_overlap_refuses_the_whole_packet_and_what_comes_of_it() {
    let bytes = [7; 64];
    // Three fragments of 16 bytes, and one for each kind of overlap.
    let overlaps: [(usize, usize); 7] = [(0, 8), (8, 16), (8, 32), (0, 48), (16, 8), (24, 16), (40, 16)];
    for (offset, len) in overlaps {
        for position in 0..3 {
            let mut all = vec![piece(5, 0, true, &bytes[..16]), piece(5, 16, true, &bytes[..16])];
            all.insert(position.min(2), piece(5, offset, true, &bytes[..len]));
            all.push(piece(5, 32, false, &bytes[..16]));
            let mut reassembler = Reassembler::default();
            for fragment in &all {
                assert_eq!(take(&mut reassembler, Instant::ZERO, fragment), None, "{offset}+{len} at {position}");
            }
            let Stats { whole, refused, .. } = reassembler.stats();
            assert_eq!((whole, refused), (0, 1), "{offset}+{len} at {position}");
            // Of a refused packet, only the refusal is kept.
            assert_eq!(reassembler.held(), (1, super::OVERHEAD));
        }
    }
}

#[test]
fn a_repetition_with_other_bytes_is_an_overlap() {
    let mut reassembler = Reassembler::default();
    assert_eq!(take(&mut reassembler, Instant::ZERO, &piece(5, 0, true, &[7; 16])), None);
    assert_eq!(take(&mut reassembler, Instant::ZERO, &piece(5, 0, true, &[7; 16])), None);
    assert_eq!(reassembler.stats().refused, 0);
    assert_eq!(take(&mut reassembler, Instant::ZERO, &piece(5, 0, true, &[8; 16])), None);
    assert_eq!(reassembler.stats().refused, 1);
}

#[test]
fn contradictions_about_the_end_refuse_the_packet() {
    let cases: [[(usize, bool); 2]; 4] =
        [[(16, false), (32, true)], [(16, false), (32, false)], [(32, true), (16, false)], [(32, false), (16, false)]];
    for case in cases {
        let mut reassembler = Reassembler::default();
        for (offset, more) in case {
            assert_eq!(take(&mut reassembler, Instant::ZERO, &piece(5, offset, more, &[7; 16])), None);
        }
        assert_eq!(reassembler.stats().refused, 1, "{case:?}");
    }
    // A fragment in the middle without data.
    let mut reassembler = Reassembler::default();
    assert_eq!(take(&mut reassembler, Instant::ZERO, &piece(5, 16, true, &[])), None);
    assert_eq!(reassembler.stats().refused, 1);
}

#[test]
fn halves_of_packets_take_bounded_memory_and_whole_packets_are_served() {
    let mut reassembler = Reassembler::default();
    let large = [7; 8000];
    for id in 0..10_000 {
        assert_eq!(take(&mut reassembler, Instant::ZERO, &piece(id, 8, true, &large)), None);
        let (packets, bytes) = reassembler.held();
        assert!(packets <= PACKETS_MAX && bytes <= BYTES_MAX, "{packets} packets, {bytes} bytes");
    }
    assert!(reassembler.stats().evicted >= 10_000 - PACKETS_MAX as u64);
    assert!(reassembler.order.len() <= 2 * PACKETS_MAX);
    // Sixty tiny ones after each, up to the limit of packets.
    for id in 0..1000_u16 {
        assert_eq!(take(&mut reassembler, Instant::ZERO, &piece(id, 0, true, &[7; 16])), None);
        assert!(reassembler.held().0 <= PACKETS_MAX);
        let end = piece(id, 16, false, b"end");
        assert!(take(&mut reassembler, Instant::ZERO, &end).is_some(), "{id}");
    }
    assert!(reassembler.order.len() <= 2 * PACKETS_MAX, "{}", reassembler.order.len());
}

#[test]
fn a_packet_of_tiny_fragments_is_refused() {
    let mut reassembler = Reassembler::default();
    for number in 0..=FRAGMENTS_MAX {
        // Holes keep it incomplete.
        assert_eq!(take(&mut reassembler, Instant::ZERO, &piece(5, 16 * number, true, &[7; 8])), None);
    }
    assert_eq!((reassembler.stats().refused, reassembler.held()), (1, (1, super::OVERHEAD)));
}

#[test]
fn what_does_not_arrive_in_time_is_given_up_and_its_sender_told() {
    let mut reassembler = Reassembler::default();
    let at = |seconds| Instant::ZERO + Duration::from_secs(seconds);
    let first = piece(1, 0, true, b"first 16 bytes..");
    assert_eq!(take(&mut reassembler, at(0), &first), None);
    assert_eq!(take(&mut reassembler, at(1), &piece(2, 8, true, &[7; 16])), None);
    // A complete packet in between leaves no trace.
    assert_eq!(take(&mut reassembler, at(2), &piece(3, 0, true, &[7; 16])), None);
    assert!(take(&mut reassembler, at(2), &piece(3, 16, false, &[7; 16])).is_some());
    assert_eq!(take(&mut reassembler, at(3), &piece(4, 0, true, &[7; 16])), None);
    assert_eq!(reassembler.poll_timeout(), Some(at(0) + TIME_MAX));
    let mut told = Vec::new();
    reassembler.handle_timeout(at(59), |packet| told.push(packet.to_vec()));
    assert!(told.is_empty() && reassembler.held().0 == 3);
    reassembler.handle_timeout(at(61), |packet| told.push(packet.to_vec()));
    assert_eq!(told, [first], "no first fragment of the second has arrived");
    assert_eq!((reassembler.stats().expired, reassembler.poll_timeout()), (2, Some(at(63))));
    reassembler.handle_timeout(at(63), |_| {});
    assert_eq!((reassembler.held(), reassembler.poll_timeout()), ((0, 0), None));
}

#[test]
fn marks_are_kept_and_never_made_up() {
    let whole = |marks: [Option<Ecn>; 2]| {
        let mut reassembler = Reassembler::default();
        let [one, other] = marks.map(|ecn| {
            let mut bytes = Vec::new();
            Header { ecn, ..header(0) }.emit(16, &mut bytes);
            bytes.extend_from_slice(&[7; 16]);
            bytes
        });
        let mark = |from: &[u8], mut bytes: Vec<u8>| {
            bytes[1] = from[1];
            wire::checksum::fill_ipv4(&mut bytes[..20]);
            bytes
        };
        take(&mut reassembler, Instant::ZERO, &mark(&one, piece(5, 0, true, &[7; 16])));
        let whole = take(&mut reassembler, Instant::ZERO, &mark(&other, piece(5, 16, false, &[7; 16])));
        whole.map(|bytes| Packet::parse(&bytes).unwrap().ecn)
    };
    let (ect, ce) = (Some(Ecn::Ect0), Some(Ecn::Ce));
    assert_eq!(whole([ect, ect]), Some(ect));
    assert_eq!((whole([ect, ce]), whole([ce, ect]), whole([ce, ce])), (Some(ce), Some(ce), Some(ce)));
    assert_eq!((whole([None, ce]), whole([None, None])), (None, Some(None)));
}

#[test]
fn fragments_fit_their_link() {
    for family in 0..2 {
        for mtu in [1280, 1281, 1287, 1288, 1500] {
            let all = fragments(&packet(family, 5000), mtu, 9);
            assert!(all.len() > 3 && all.iter().all(|fragment| fragment.len() <= mtu));
            assert!(all.iter().all(|fragment| Packet::parse(fragment).unwrap().fragment.unwrap().id == 9));
        }
        assert_eq!(fragments(&packet(family, 100), 1280, 9), [packet(family, 100)]);
        assert!(fragments(&packet(family, 100), 50, 9).is_empty() == (family == 1));
    }
}

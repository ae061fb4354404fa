use std::collections::VecDeque;

use proptest::prelude::*;
use units::Duration;

use super::*;
use crate::item::filling;
use crate::packer::Packer;
use crate::samples::{Sample, samples, transport_packet};

/// Collects packets as they are on a link.
#[derive(Default)]
struct Collected {
    packets: Vec<Vec<u8>>,
    writes: usize,
    refuses: bool,
}

impl Sink for Collected {
    fn allows(&self, _inner: &Inner) -> bool {
        !self.refuses
    }

    fn deliver(&mut self, packet: &Arrived<'_>) {
        let ip = [packet.headers, &packet.parts.concat()].concat();
        assert_eq!(Inner::parse(&ip), Ok(packet.inner_of(&ip)), "a whole packet");
        let sample = Sample { ip, is_partial: packet.is_partial, segment: packet.segment };
        self.packets.extend(sample.segments());
        self.writes += 1;
    }
}

impl Arrived<'_> {
    /// The headers of the packet that is written, whose length differs from the super-packet's.
    fn inner_of(&self, ip: &[u8]) -> Inner {
        Inner { traffic_class: Inner::parse(ip).expect("a packet").traffic_class, ..self.inner }
    }
}

fn pack(packets: &[Sample], len_max: usize) -> VecDeque<Bytes> {
    let (mut packer, mut out) = (Packer::new(), VecDeque::new());
    for sample in packets {
        packer.push(sample.inner().flow(7), &sample.packet(), len_max, &mut out);
    }
    packer.flush(&mut out);
    out
}

fn unpack(datagrams: impl IntoIterator<Item = Bytes>, sink: &mut Collected) -> Unpacker {
    unpack_with(Unpacker::new(), datagrams, sink)
}

fn unpack_with(mut unpacker: Unpacker, datagrams: impl IntoIterator<Item = Bytes>, sink: &mut Collected) -> Unpacker {
    for datagram in datagrams {
        unpacker.push(Instant::ZERO + Duration::from_secs(1), 0, datagram, sink);
    }
    unpacker.flush(sink);
    unpacker
}

/// The packets of each flow, in order.
fn by_flow(packets: &[Vec<u8>]) -> Vec<Vec<Vec<u8>>> {
    let mut flows = std::collections::BTreeMap::new();
    for ip in packets {
        let inner = Inner::parse(ip).expect("a packet");
        let key = (inner.source, inner.ports, inner.protocol);
        flows.entry(key).or_insert_with(Vec::new).push(ip.clone());
    }
    flows.into_values().collect()
}

proptest! {
    #[test]
    fn packets_leave_as_they_entered(
        packets in prop::collection::vec(samples(), 1..12), len_max in 1000..9000_usize, joins_udp in any::<bool>(),
    ) {
        let datagrams = pack(&packets, len_max);
        prop_assert!(datagrams.iter().all(|datagram| datagram.len() <= len_max));
        let mut sink = Collected::default();
        let unpacker = unpack_with(Unpacker::with_udp_runs(joins_udp), datagrams, &mut sink);
        let sent: Vec<_> = packets.iter().flat_map(Sample::segments).collect();
        prop_assert_eq!(by_flow(&sink.packets), by_flow(&sent));
        let stats = unpacker.stats();
        prop_assert_eq!((stats.malformed, stats.spoofed, stats.incomplete), (0, 0, 0));
    }

    #[test]
    fn a_lost_datagram_costs_the_segments_in_it_alone(
        is_ipv6 in any::<bool>(), is_tcp in any::<bool>(), segment in 300..1200_u16, len_max in 1300..5000_usize,
        lost in any::<prop::sample::Index>(),
    ) {
        let payload: Vec<u8> = (0..40_000_u32).map(|index| (index / 7) as u8).collect();
        let whole = transport_packet(is_ipv6, is_tcp, 9, &payload, Some(segment));
        let mut datagrams = pack(std::slice::from_ref(&whole), len_max);
        let per_datagram = (len_max - 11 - whole.inner().transport.unwrap().1) / usize::from(segment);
        let lost = lost.index(datagrams.len());
        datagrams.remove(lost);
        let mut sink = Collected::default();
        let mut unpacker = unpack(datagrams, &mut sink);
        unpacker.handle_timeout(Instant::ZERO + Duration::from_secs(9), &mut sink);
        let mut expected = whole.segments();
        expected.drain(lost * per_datagram..((lost + 1) * per_datagram).min(expected.len()));
        prop_assert_eq!(&sink.packets, &expected);
        prop_assert!(sink.writes <= 2, "the parts before and after it");
    }

    #[test]
    fn any_datagram_is_taken_without_a_panic(
        datagrams in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..100), 0..20),
    ) {
        let mut sink = Collected { refuses: true, ..Collected::default() };
        unpack(datagrams.into_iter().map(Bytes::from), &mut sink);
    }

    #[test]
    fn a_changed_datagram_is_taken_without_a_panic(
        packets in prop::collection::vec(samples(), 1..4), which in any::<prop::sample::Index>(),
        at in 0..120_usize, value in any::<u8>(),
    ) {
        struct Counted(usize);
        impl Sink for Counted {
            fn allows(&self, _inner: &Inner) -> bool {
                true
            }
            fn deliver(&mut self, packet: &Arrived<'_>) {
                let ip = [packet.headers, &packet.parts.concat()].concat();
                assert!(Inner::parse(&ip).is_ok(), "only whole packets are delivered");
                self.0 += 1;
            }
        }
        let mut datagrams = pack(&packets, 1400);
        let which = which.index(datagrams.len());
        let mut bytes = datagrams[which].to_vec();
        let at = at % bytes.len();
        bytes[at] = value;
        datagrams[which] = bytes.into();
        let (mut sink, mut unpacker) = (Counted(0), Unpacker::new());
        for datagram in datagrams {
            unpacker.push(Instant::ZERO, 0, datagram, &mut sink);
        }
        unpacker.handle_timeout(Instant::ZERO + Duration::from_secs(9), &mut sink);
    }
}

#[test]
fn a_super_packet_arrives_in_one_piece_and_is_written_once() {
    let payload = vec![5; 60_000];
    let whole = transport_packet(false, true, 9, &payload, Some(1348));
    let datagrams = pack(std::slice::from_ref(&whole), 1440);
    assert_eq!(datagrams.len(), 45, "a segment each");
    let lens: Vec<_> = datagrams.iter().map(Bytes::len).collect();
    assert!(lens[..44].iter().all(|len| *len == lens[0]), "so that they leave with one system call");
    let mut sink = Collected::default();
    unpack(datagrams, &mut sink);
    assert_eq!((sink.writes, sink.packets.len()), (1, 45));
}

#[test]
fn small_packets_share_a_datagram() {
    let packets: Vec<_> = (0..30).map(|port| transport_packet(false, false, port, &[1; 12], None)).collect();
    let datagrams = pack(&packets, 1400);
    // 28 bytes of headers, 12 of payload, and 9 of the item.
    assert_eq!(datagrams.iter().map(Bytes::len).collect::<Vec<_>>(), [28 * 49, 2 * 49]);
    let mut sink = Collected::default();
    unpack(datagrams, &mut sink);
    assert_eq!(sink.packets.len(), 30);
}

#[test]
fn a_packet_larger_than_a_datagram_arrives_whole_or_not_at_all() {
    let large = transport_packet(true, false, 9, &[3; 3000], None);
    let small = transport_packet(true, false, 9, &[4; 700], None);
    let datagrams = pack(&[large.clone(), small.clone(), large.clone()], 1400);
    assert_eq!(datagrams.len(), 7);
    let mut sink = Collected::default();
    unpack(datagrams.clone(), &mut sink);
    assert_eq!(sink.packets, [large.ip.clone(), small.ip.clone(), large.ip]);
    for lost in 0..3 {
        let mut sink = Collected::default();
        let rest = datagrams.iter().enumerate().filter(|(index, _)| *index != lost && *index < 4);
        let mut unpacker = unpack(rest.map(|(_, datagram)| datagram.clone()), &mut sink);
        unpacker.handle_timeout(Instant::ZERO + Duration::from_secs(9), &mut sink);
        assert_eq!(sink.packets, std::slice::from_ref(&small.ip), "without piece {lost}");
        assert!(unpacker.stats().incomplete > 0);
    }
}

#[test]
fn filling_is_passed_over() {
    let packets = [transport_packet(false, false, 1, &[7; 300], None), transport_packet(true, true, 2, &[8; 40], None)];
    let datagrams = pack(&packets, 1200);
    let filled = [filling(1), filling(1200)].into_iter();
    let mut sink = Collected::default();
    let stats = unpack(filled.clone().chain(datagrams).chain(filled), &mut sink).stats();
    assert_eq!((stats.packets, stats.malformed), (2, 0));
}

#[test]
fn packets_that_the_sink_does_not_allow_are_counted() {
    let packets =
        [transport_packet(false, true, 9, &[5; 6000], Some(1000)), transport_packet(false, true, 9, &[5; 100], None)];
    let mut sink = Collected { refuses: true, ..Collected::default() };
    let unpacker = unpack(pack(&packets, 1400), &mut sink);
    assert_eq!((sink.writes, unpacker.stats().spoofed), (0, 2));
}

/// UDP packets of a program that sends `len` bytes each time.
fn udp_packets(is_ipv6: bool, port: u16, len: usize, count: u16) -> Vec<Sample> {
    let one = |index: u16| {
        let mut sample = transport_packet(is_ipv6, false, port, &vec![index as u8; len], None);
        if !is_ipv6 {
            sample.ip[4..6].copy_from_slice(&(0xfffe_u16.wrapping_add(index)).to_be_bytes());
            wire::checksum::fill_ipv4(&mut sample.ip[..20]);
        }
        sample
    };
    (0..count).map(one).collect()
}

#[test]
fn udp_packets_of_one_flow_and_length_leave_as_one() {
    for is_ipv6 in [false, true] {
        for (len, count, writes) in [(1200, 40, 1), (100, 100, 2), (1400, 50, 2), (0, 3, 3)] {
            let packets = udp_packets(is_ipv6, 9, len, count);
            let mut sink = Collected::default();
            let unpacker = unpack_with(Unpacker::with_udp_runs(true), pack(&packets, 1420), &mut sink);
            let sent: Vec<Vec<u8>> = packets.iter().map(|sample| sample.ip.clone()).collect();
            assert!(sink.packets == sent, "{is_ipv6} {len}");
            assert_eq!((sink.writes, unpacker.stats().packets), (writes, count.into()), "{is_ipv6} {len}");

            let mut apart = Collected::default();
            unpack(pack(&packets, 1420), &mut apart);
            assert_eq!(
                (apart.packets == sent, apart.writes),
                (true, count.into()),
                "the device takes no super-packets"
            );
            let mut refused = Collected { refuses: true, ..Collected::default() };
            let unpacker = unpack_with(Unpacker::with_udp_runs(true), pack(&packets, 1420), &mut refused);
            assert_eq!((unpacker.stats().spoofed, refused.writes), (count.into(), 0));
        }
    }
}

#[test]
fn other_packets_of_a_flow_end_a_run_and_keep_their_place() {
    let run = udp_packets(false, 9, 1200, 6);
    let mut gap = run.clone();
    gap.remove(2);
    let mut other_flow = run.clone();
    other_flow.insert(3, udp_packets(false, 10, 1200, 1).remove(0));
    let mut shorter = run.clone();
    shorter[5] = transport_packet(false, false, 9, &[1; 700], None);
    let mut marked = run.clone();
    marked[2].ip[1] = 3;
    wire::checksum::fill_ipv4(&mut marked[2].ip[..20]);
    let mut complete = run;
    complete[3].is_partial = false;
    for (packets, writes) in [(gap, 2), (other_flow, 2), (shorter, 2), (marked, 3), (complete, 3)] {
        let mut sink = Collected::default();
        unpack_with(Unpacker::with_udp_runs(true), pack(&packets, 1420), &mut sink);
        let sent: Vec<Vec<u8>> = packets.iter().map(|sample| sample.ip.clone()).collect();
        assert_eq!(by_flow(&sink.packets), by_flow(&sent));
        assert_eq!(sink.writes, writes);
    }
}

use std::collections::BTreeMap;
use std::net::IpAddr;

use proptest::prelude::*;
use units::{Duration, Instant, Rng};

use super::*;
use crate::item::{ItemHeader, Kind};
use crate::packer::Packer;
use crate::samples::{Sample, completed, partial_sum, transport_packet};
use crate::unpacker::{Unpacker, UnpackerStats};

/// A TCP connection whose segments are sent one by one.
#[derive(Clone, Copy, Debug)]
struct Stream {
    is_ipv6: bool,
    is_partial: bool,
    /// All IPv4 packets have one identification, with DF.
    has_fixed_id: bool,
    /// The source port, and a part of the source address: fragments have no ports.
    port: u16,
    option_words: usize,
    sequence: u32,
}

const STREAM: Stream =
    Stream { is_ipv6: false, is_partial: true, has_fixed_id: false, port: 9, option_words: 3, sequence: 0xffff_f800 };

const ACK: u8 = 0x10;
const PSH: u8 = 0x08;

impl Stream {
    fn at(&self) -> usize {
        if self.is_ipv6 { 40 } else { 20 }
    }

    fn header_bytes(&self) -> usize {
        self.at() + 20 + 4 * self.option_words
    }

    /// Packet `index`, whose payload begins `offset` bytes after the first one's.
    fn packet(&self, index: u16, offset: usize, len: usize, flags: u8) -> Sample {
        let (at, bytes) = (self.at(), self.header_bytes() + len);
        let mut ip = vec![0; self.header_bytes()];
        if self.is_ipv6 {
            (ip[0], ip[3], ip[6], ip[7]) = (0x60, 5, 6, 64);
            ip[4..6].copy_from_slice(&((bytes - 40) as u16).to_be_bytes());
            (8..40).for_each(|index| ip[index] = index as u8);
            ip[10..12].copy_from_slice(&self.port.to_be_bytes());
        } else {
            (ip[0], ip[8], ip[9]) = (0x45, 64, 6);
            ip[2..4].copy_from_slice(&(bytes as u16).to_be_bytes());
            let id = 0xfffe_u16.wrapping_add(if self.has_fixed_id { 0 } else { index });
            ip[4..6].copy_from_slice(&id.to_be_bytes());
            ip[6] = if self.has_fixed_id { 0x40 } else { 0 };
            ip[12..20].copy_from_slice(&[10, 76, 0, 2, 10, 76, 0, 1]);
            ip[14..16].copy_from_slice(&self.port.to_be_bytes());
            checksum::fill_ipv4(&mut ip[..20]);
        }
        ip[at..at + 2].copy_from_slice(&self.port.to_be_bytes());
        ip[at + 4..at + 8].copy_from_slice(&self.sequence.wrapping_add(offset as u32).to_be_bytes());
        (ip[at + 12], ip[at + 13], ip[at + 14]) = (((5 + self.option_words) << 4) as u8, flags, 7);
        ip[at + 20..].fill(1);
        ip.extend((0..len).map(|byte| ((offset + byte) as u8).wrapping_mul(31)));
        let mut sample = Sample { ip, is_partial: self.is_partial, segment: None };
        fill_checksum(&mut sample);
        sample
    }

    /// Full segments.
    fn packets(&self, len: usize, count: u16) -> Vec<Sample> {
        (0..count).map(|index| self.packet(index, usize::from(index) * len, len, ACK)).collect()
    }
}

/// Writes the checksum of TCP anew, partial or complete.
fn fill_checksum(sample: &mut Sample) {
    let inner = sample.inner();
    let (at, bytes) = (inner.ip_header_bytes, sample.ip.len());
    let mut sum = partial_sum(&inner, bytes - at);
    if !sample.is_partial {
        sample.ip[at + 16..at + 18].fill(0);
        sum = !checksum::sum(&sample.ip[at..], sum);
    }
    sample.ip[at + 16..at + 18].copy_from_slice(&sum.to_be_bytes());
}

/// Collects packets as they leave a network card.
#[derive(Default)]
struct Restored {
    packets: Vec<Vec<u8>>,
    writes: usize,
    data_bytes: usize,
    refuses: bool,
}

impl Sink for Restored {
    fn allows(&self, _inner: &Inner) -> bool {
        !self.refuses
    }

    fn deliver(&mut self, packet: &Arrived<'_>) {
        assert!(packet.parts.len() <= PARTS_MAX);
        let ip = [packet.headers, &packet.parts.concat()].concat();
        assert_eq!(Inner::parse(&ip), Ok(packet.inner), "a whole packet");
        let sample = Sample { ip, is_partial: packet.is_partial, segment: packet.segment };
        let segments = sample.segments();
        assert!(packet.packets == 1 || packet.packets == segments.len());
        self.packets.extend(segments.into_iter().map(|ip| completed(ip, packet.is_partial)));
        self.writes += 1;
        self.data_bytes += packet.data_bytes();
    }
}

/// Pushes packets that arrive together, each with its flow.
fn push(packets: &[(u16, Sample)], sink: &mut Restored) -> UnpackerStats {
    let (mut unpacker, mut next) = (Unpacker::with_udp_runs(true), [0; 16]);
    for (flow, sample) in packets {
        let sequence = next[usize::from(*flow)];
        next[usize::from(*flow)] += 1;
        let kind = Kind::Packet { is_partial: sample.is_partial };
        let mut datagram = Vec::new();
        ItemHeader { flow: *flow, sequence, is_pinned: false, kind }.emit(None, &mut datagram);
        datagram.extend_from_slice(&sample.ip);
        unpacker.push(Instant::ZERO + Duration::from_secs(1), 0, datagram.into(), sink);
    }
    unpacker.flush(sink);
    unpacker.stats()
}

/// Pushes packets of one flow; returns how many were delivered after they were joined.
fn writes(packets: &[Sample]) -> usize {
    let all: Vec<_> = packets.iter().map(|sample| (1, sample.clone())).collect();
    let mut sink = Restored::default();
    let stats = push(&all, &mut sink);
    let sent: Vec<_> = packets.iter().map(|sample| completed(sample.ip.clone(), sample.is_partial)).collect();
    let normal = |packets: &[Vec<u8>]| packets.iter().map(|ip| normal(ip)).collect::<Vec<_>>();
    assert!(normal(&sink.packets) == normal(&sent), "the same packets, in order");
    assert_eq!((stats.packets, stats.bytes), (sent.len() as u64, sent.iter().map(Vec::len).sum::<usize>() as u64));
    assert_eq!(sink.data_bytes, packets.iter().map(|sample| sample.packet().data_bytes()).sum::<usize>());
    sink.writes
}

/// What a link or a sender may do to packets.
fn damage(packets: &mut Vec<Sample>, rng: &mut Rng, faults: u64) {
    for _ in 0..faults {
        if packets.is_empty() {
            return;
        }
        let index = rng.below(packets.len() as u64) as usize;
        let other = rng.below(packets.len() as u64) as usize;
        match rng.below(4) {
            0 => drop(packets.remove(index)),
            1 => packets.swap(index, other),
            2 => packets.insert(other, packets[index].clone()),
            _ => {
                let ip = &mut packets[index].ip;
                // Headers are hit as often as payload.
                let bytes = if rng.below(2) == 0 { ip.len().min(72) } else { ip.len() };
                let bit = rng.below(bytes as u64 * 8) as usize;
                ip[bit / 8] ^= 1 << (bit % 8);
            }
        }
    }
}

fn streams() -> impl Strategy<Value = Stream> {
    (any::<[bool; 3]>(), 0..11_usize, any::<u32>()).prop_map(
        |([is_ipv6, is_partial, has_fixed_id], option_words, sequence)| Stream {
            is_ipv6,
            is_partial,
            has_fixed_id,
            option_words,
            sequence,
            ..STREAM
        },
    )
}

/// Packets of a stream: the last of each write of its program is shorter, or has PSH.
fn written(stream: &Stream, writes: &[usize], len: usize) -> Vec<Sample> {
    let (mut packets, mut offset) = (Vec::new(), 0);
    for &bytes in writes {
        for from in (0..bytes).step_by(len) {
            let (part, is_last) = (len.min(bytes - from), from + len >= bytes);
            let flags = if is_last && bytes % 3 == 0 { ACK | PSH } else { ACK };
            packets.push(stream.packet(packets.len() as u16, offset, part, flags));
            offset += part;
        }
    }
    packets
}

/// A packet without the identification that has no meaning, because of DF.
fn normal(ip: &[u8]) -> Vec<u8> {
    let mut ip = ip.to_vec();
    if ip[0] == 0x45 && ip[6] & DO_NOT_FRAGMENT != 0 && has_ipv4_checksum(&ip[..20]) {
        ip[4..6].fill(0);
        checksum::fill_ipv4(&mut ip[..20]);
    }
    ip
}

/// The packets of each address and port, in order.
fn by_ports(packets: &[Vec<u8>]) -> BTreeMap<(IpAddr, [u16; 2]), Vec<Vec<u8>>> {
    let mut flows = BTreeMap::new();
    for ip in packets {
        let inner = Inner::parse(ip).expect("a packet");
        flows.entry((inner.source, inner.ports)).or_insert_with(Vec::new).push(normal(ip));
    }
    flows
}

proptest! {
    #[test]
    fn every_bit_of_every_packet_is_kept(
        streams in prop::collection::vec((streams(), prop::collection::vec(1..9000_usize, 1..6), 100..1500_usize), 1..4),
        seed in any::<u64>(), faults in 0..12_u64,
    ) {
        let mut rng = Rng::from_seed(seed);
        let mut queues = Vec::new();
        for (index, (stream, writes, len)) in streams.iter().enumerate() {
            // No changed bit makes one stream of another.
            let port = index as u16 * 0x5555;
            let mut packets = written(&Stream { port, ..*stream }, writes, *len);
            damage(&mut packets, &mut rng, faults / 2);
            queues.push((index as u16, packets.into_iter().peekable()));
        }
        let mut packets = Vec::new();
        while !queues.is_empty() {
            let at = rng.below(queues.len() as u64) as usize;
            let (flow, queue) = &mut queues[at];
            packets.extend(queue.by_ref().take(rng.between(1, 20) as usize).map(|sample| (*flow, sample)));
            if queue.peek().is_none() {
                drop(queues.remove(at));
            }
        }
        let mut sink = Restored::default();
        let stats = push(&packets, &mut sink);
        let is_whole = |sample: &Sample| {
            Inner::parse(&sample.ip).is_ok_and(|inner| !sample.is_partial || inner.transport.is_some())
        };
        let whole = packets.iter().filter(|(_, sample)| is_whole(sample));
        let sent: Vec<_> = whole.map(|(_, sample)| completed(sample.ip.clone(), sample.is_partial)).collect();
        prop_assert!(by_ports(&sink.packets) == by_ports(&sent));
        prop_assert_eq!(stats.packets, sent.len() as u64);
        prop_assert_eq!(stats.malformed, (packets.len() - sent.len()) as u64);
        let data_bytes = packets.iter().filter(|(_, sample)| is_whole(sample)).map(|(_, sample)| sample.packet().data_bytes());
        prop_assert_eq!(sink.data_bytes, data_bytes.sum::<usize>());
    }

    #[test]
    fn segments_of_a_write_are_joined(stream in streams(), bytes in 1..60_000_usize, len in 600..1500_usize) {
        prop_assert_eq!(writes(&written(&stream, &[bytes], len)), 1);
        // What follows a write that ended with a full segment without PSH continues it.
        let ends = bytes % 3 == 0 || bytes % len != 0;
        let both = written(&stream, &[bytes, 2000], len);
        let fits = stream.header_bytes() + bytes + 2000 <= IP_BYTES_MAX && both.len() <= PARTS_MAX;
        let expected = if ends { 2 } else { 1 };
        prop_assert!(writes(&both) == expected || !ends && !fits);
    }
}

#[test]
fn a_super_packet_has_at_most_64_kib_and_so_many_parts() {
    for (is_ipv6, len, count, expected) in [
        (false, 1348, 48, 1),
        (false, 1348, 49, 2),
        // Exactly 65,535 bytes.
        (false, 5953, 11, 1),
        (false, 5953, 12, 2),
        // One more.
        (false, 16_371, 4, 2),
        (true, 8183, 8, 2),
        (true, 21_821, 3, 1),
        (true, 21_822, 3, 2),
        (false, 100, PARTS_MAX as u16, 1),
        (true, 1, 2 * PARTS_MAX as u16 + 1, 3),
    ] {
        let stream = Stream { is_ipv6, ..STREAM };
        assert_eq!(writes(&stream.packets(len, count)), expected, "{count} of {len} bytes, IPv6: {is_ipv6}");
    }
}

/// Six segments of which one is changed, and its checksums made again.
fn with_change(stream: Stream, index: usize, change: impl Fn(&mut Vec<u8>)) -> Vec<Sample> {
    let mut packets = stream.packets(1000, 6);
    change(&mut packets[index].ip);
    if !stream.is_ipv6 {
        let header_bytes = usize::from(packets[index].ip[0] & 0x0f) * 4;
        checksum::fill_ipv4(&mut packets[index].ip[..header_bytes]);
    }
    fill_checksum(&mut packets[index]);
    packets
}

#[test]
fn a_packet_with_other_fields_is_not_joined() {
    for is_partial in [true, false] {
        let stream = Stream { is_partial, ..STREAM };
        let writes_with = |at: usize, bits: u8| writes(&with_change(stream, 2, |ip| ip[at] ^= bits));
        assert_eq!(writes(&stream.packets(1000, 6)), 1);
        for (at, bits, field) in [
            (1, 0x01, "ECN"),
            (1, 0x20, "DSCP"),
            (5, 0x08, "identification"),
            (6, 0x40, "DF"),
            (8, 0x01, "TTL"),
            (27, 0x01, "sequence"),
            (28, 0x01, "acknowledgement"),
            (33, 0x02, "SYN"),
            (33, 0x04, "RST"),
            (33, 0x10, "ACK"),
            (33, 0x20, "URG"),
            (33, 0x40, "ECE"),
            (33, 0x80, "CWR"),
            (32, 0x01, "reserved"),
            (34, 0x01, "window"),
            (38, 0x01, "urgent pointer"),
            (47, 0x01, "options"),
        ] {
            assert_eq!(writes_with(at, bits), 3, "{field}");
        }
        assert_eq!(writes_with(33, PSH), 2, "PSH ends a super-packet");
        assert_eq!(writes_with(33, 0x01), 2, "FIN, too");
        // Every packet has them.
        let all =
            |flags: u8| (0..6).map(|index| stream.packet(index, usize::from(index) * 1000, 1000, flags)).collect();
        let all: [Vec<Sample>; 4] = [ACK | 0x40, ACK | 0x80, ACK | PSH, ACK | 0x20].map(all);
        assert_eq!(all.map(|packets| writes(&packets)), [1, 6, 6, 6], "ECE, CWR, PSH, URG");
    }
    let ipv6 = Stream { is_ipv6: true, ..STREAM };
    for (at, bits, field) in [(1, 0x10, "ECN"), (3, 0x01, "flow label"), (7, 0x01, "hop limit"), (9, 0x01, "source")] {
        assert_eq!(writes(&with_change(ipv6, 2, |ip| ip[at] ^= bits)), 3, "{field}");
    }
}

#[test]
fn packets_of_other_lengths_and_gaps_end_a_run() {
    let packets = STREAM.packets(1000, 6);
    let mut gap = packets.clone();
    gap.remove(2);
    let mut repeated = packets.clone();
    repeated.insert(2, packets[1].clone());
    let mut acknowledges = packets.clone();
    acknowledges.insert(2, STREAM.packet(2, 2000, 0, ACK));
    let mut shorter = packets.clone();
    shorter[2] = STREAM.packet(2, 2000, 500, ACK);
    (3..6).for_each(|index| shorter[index] = STREAM.packet(index as u16, index * 1000 - 500, 1000, ACK));
    let mut longer = packets;
    longer[2] = STREAM.packet(2, 2000, 1400, ACK);
    (3..6).for_each(|index| longer[index] = STREAM.packet(index as u16, index * 1000 + 400, 1000, ACK));
    for (packets, expected, what) in [
        (gap, 2, "a gap"),
        (repeated, 2, "a packet twice"),
        (acknowledges, 3, "an acknowledgement without data"),
        (shorter, 2, "a shorter segment is the last"),
        (longer, 3, "a longer segment is the first, and what follows it is shorter"),
    ] {
        assert_eq!(writes(&packets), expected, "{what}");
    }
}

#[test]
fn a_wrong_checksum_stays_wrong() {
    let corrupt = |stream: Stream, index: usize, at: usize| {
        let mut packets = stream.packets(1000, 6);
        packets[index].ip[at] ^= 4;
        writes(&packets)
    };
    let complete = Stream { is_partial: false, ..STREAM };
    assert_eq!(corrupt(complete, 2, 700), 3, "the payload");
    assert_eq!(corrupt(complete, 0, 700), 2, "the payload of the first");
    for stream in [STREAM, complete] {
        assert_eq!(corrupt(stream, 2, 36), 3, "the checksum");
        assert_eq!(corrupt(stream, 2, 11), 3, "the checksum of the IP header");
        assert_eq!(corrupt(stream, 0, 11), 2, "the one of the first");
    }
    // The first has a partial sum that fits none of the others.
    assert_eq!(corrupt(STREAM, 0, 36), 2);
    // One packet is from another interface of its host.
    let mut mixed = STREAM.packets(1000, 6);
    mixed[2].is_partial = false;
    fill_checksum(&mut mixed[2]);
    assert_eq!(writes(&mixed), 3);
}

#[test]
fn packets_with_ipv4_options_or_fragments_leave_alone() {
    let with_option = |mut sample: Sample| {
        sample.ip.splice(20..20, [1; 4]);
        sample.ip[0] = 0x46;
        let bytes = sample.ip.len() as u16;
        sample.ip[2..4].copy_from_slice(&bytes.to_be_bytes());
        checksum::fill_ipv4(&mut sample.ip[..24]);
        fill_checksum(&mut sample);
        sample
    };
    let packets: Vec<_> = STREAM.packets(1000, 6).into_iter().map(with_option).collect();
    assert_eq!(writes(&packets), 6);
    let fragment = |mut sample: Sample| {
        sample.ip[6] = 0x20;
        checksum::fill_ipv4(&mut sample.ip[..20]);
        sample
    };
    let complete = Stream { is_partial: false, ..STREAM };
    let packets: Vec<_> = complete.packets(1000, 6).into_iter().map(fragment).collect();
    assert_eq!(writes(&packets), 6);
}

#[test]
fn packets_with_df_may_have_one_identification() {
    let fixed = Stream { has_fixed_id: true, ..STREAM }.packets(1000, 6);
    assert_eq!(writes(&fixed), 1);
    let with_df = |is_set: bool, mut sample: Sample| {
        sample.ip[6] = if is_set { DO_NOT_FRAGMENT } else { 0 };
        checksum::fill_ipv4(&mut sample.ip[..20]);
        sample
    };
    let packets: Vec<_> = fixed.into_iter().map(|sample| with_df(false, sample)).collect();
    assert_eq!(writes(&packets), 6, "a router may fragment them");
    // Segmentation could not restore a mixture of both kinds.
    let mut mixed = Stream { has_fixed_id: true, ..STREAM }.packets(1000, 6);
    let id = u16::from_be_bytes([mixed[2].ip[4], mixed[2].ip[5]]);
    mixed[2].ip[4..6].copy_from_slice(&id.wrapping_add(2).to_be_bytes());
    checksum::fill_ipv4(&mut mixed[2].ip[..20]);
    assert_eq!(writes(&mixed), 3);
    // Those that count are kept.
    let packets = STREAM.packets(1000, 6).into_iter().map(|sample| (1, with_df(true, sample)));
    let packets: Vec<_> = packets.collect();
    let mut sink = Restored::default();
    push(&packets, &mut sink);
    let sent: Vec<_> = packets.iter().map(|(_, sample)| completed(sample.ip.clone(), true)).collect();
    assert!(sink.packets == sent && sink.writes == 1);
    // UDP sockets that are not connected send so.
    let udp: Vec<_> = (0..6).map(|fill| transport_packet(false, false, 9, &[fill; 1000], None)).collect();
    assert_eq!(writes(&udp), 6);
    let udp: Vec<_> = udp.into_iter().map(|sample| with_df(true, sample)).collect();
    assert_eq!(writes(&udp), 1);
}

#[test]
fn flows_that_come_by_turns_are_joined_each() {
    for (flows, expected) in [(8, Some(8)), (9, None)] {
        let stream = |flow: u16| Stream { port: flow, is_ipv6: flow.is_multiple_of(2), ..STREAM };
        let packet = |index: u16, flow: u16| (flow, stream(flow).packet(index, usize::from(index) * 1000, 1000, ACK));
        let packets: Vec<_> = (0..10).flat_map(|index| (0..flows).map(move |flow| packet(index, flow))).collect();
        let mut sink = Restored::default();
        push(&packets, &mut sink);
        let sent: Vec<_> = packets.iter().map(|(_, sample)| completed(sample.ip.clone(), true)).collect();
        assert!(by_ports(&sink.packets) == by_ports(&sent));
        assert!(expected.is_none_or(|expected| sink.writes == expected), "{flows} flows in {} writes", sink.writes);
    }
}

#[test]
fn packets_that_the_sink_does_not_allow_are_counted_each() {
    let packets: Vec<_> = STREAM.packets(1000, 6).into_iter().map(|sample| (1, sample)).collect();
    let mut sink = Restored { refuses: true, ..Restored::default() };
    let stats = push(&packets, &mut sink);
    assert_eq!((stats.spoofed, stats.packets, sink.writes), (6, 0, 0));
}

/// A super-packet as the kernel gives it, and its datagrams.
fn super_packet(stream: Stream, bytes: usize, segment: u16, len_max: usize) -> (Sample, Vec<Bytes>) {
    let whole = Sample { segment: Some(segment), ..stream.packet(0, 0, bytes, ACK | PSH) };
    let mut out = std::collections::VecDeque::new();
    Packer::new().push(1, &whole.packet(), len_max, &mut out);
    (whole, out.into())
}

#[test]
fn segments_that_were_cut_into_pieces_leave_as_the_super_packet_that_they_were() {
    for is_ipv6 in [false, true] {
        let (whole, datagrams) = super_packet(Stream { is_ipv6, ..STREAM }, 60_660, 1348, 1350);
        assert_eq!(datagrams.len(), 90, "two pieces of each segment");
        let (mut unpacker, mut sink) = (Unpacker::new(), Restored::default());
        for datagram in datagrams {
            unpacker.push(Instant::ZERO, 0, datagram, &mut sink);
        }
        // The last has PSH.
        assert_eq!((sink.writes, unpacker.stats().packets), (1, 45));
        let sent: Vec<_> = whole.segments().into_iter().map(|ip| completed(ip, true)).collect();
        assert!(sink.packets == sent);
    }
}

#[test]
fn a_super_packet_and_packets_of_its_flow_keep_their_order_and_others_do_not_split_it() {
    let (whole, datagrams) = super_packet(STREAM, 8000, 1000, 1400);
    let single = |flow: u16, port: u16, sequence: u32, offset: usize| {
        let sample = Stream { port, ..STREAM }.packet(0, offset, 1000, ACK);
        let mut datagram = Vec::new();
        ItemHeader { flow, sequence, is_pinned: false, kind: Kind::Packet { is_partial: true } }
            .emit(None, &mut datagram);
        datagram.extend_from_slice(&sample.ip);
        (sample, Bytes::from(datagram))
    };
    let (after, after_bytes) = single(1, STREAM.port, 8, 8000);
    let others: Vec<_> = (0..8).map(|index| single(2, 77, index, index as usize * 7)).collect();
    let (mut unpacker, mut sink) = (Unpacker::new(), Restored::default());
    for (datagram, (_, other)) in datagrams.into_iter().zip(&others) {
        unpacker.push(Instant::ZERO, 0, datagram, &mut sink);
        unpacker.push(Instant::ZERO, 0, other.clone(), &mut sink);
    }
    unpacker.push(Instant::ZERO, 0, after_bytes, &mut sink);
    unpacker.flush(&mut sink);
    let sent = whole.segments().into_iter().chain([after.ip]).chain(others.into_iter().map(|(sample, _)| sample.ip));
    let sent: Vec<_> = sent.map(|ip| completed(ip, true)).collect();
    assert!(by_ports(&sink.packets) == by_ports(&sent));
    assert_eq!(sink.writes, 1 + 1 + 8);
}

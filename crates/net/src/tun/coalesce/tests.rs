//! Coalesced packets are restored by segmentation.

use proptest::prelude::*;
use units::Rng;

use super::super::samples::{Sample, samples};
use super::super::segment::Segments;
use super::*;

/// Returns all segments of a super-packet.
fn segments(bytes: &[u8]) -> Vec<TunPacket> {
    let segments = Segments::new(bytes).unwrap();
    (0..segments.len()).map(|index| segments.segment(index, Vec::new())).collect()
}

/// Coalesces packets where possible and returns the super-packets to write.
fn coalesced(packets: &[TunPacket]) -> Vec<Vec<u8>> {
    let mut coalescer = Coalescer::new();
    let mut written = Vec::new();
    for packet in packets {
        if !coalescer.push(packet) {
            written.push(coalescer.take().to_vec());
            assert!(coalescer.push(packet), "the first packet is always accepted");
        }
    }
    if coalescer.segments() > 0 {
        written.push(coalescer.take().to_vec());
    }
    written
}

/// Mixes, delays and corrupts packets, as a link does.
fn damaged(packets: &mut Vec<TunPacket>, rng: &mut Rng, faults: u64) {
    for _ in 0..faults.min(packets.len() as u64) {
        let index = rng.below(packets.len() as u64) as usize;
        match rng.below(5) {
            0 => drop(packets.remove(index)),
            1 => packets[index].finish_checksum(),
            2 => _ = packets[index].mark_ce(),
            3 => {
                let bits = packets[index].ip().len() as u64 * 8;
                let bit = rng.below(bits) as usize;
                packets[index].ip_mut()[bit / 8] ^= 1 << (bit % 8);
            }
            _ => {
                let other = rng.below(packets.len() as u64) as usize;
                packets.swap(index, other);
            }
        }
        if packets.is_empty() {
            return;
        }
    }
}

proptest! {
    #[test]
    fn segments_are_coalesced_to_the_original_super_packet(mut sample in samples()) {
        // Flags of a middle segment, and PSH at the end.
        sample.flags &= 0x10 | 0x40 | 0x80 | 0x08;
        let bytes = sample.super_packet();
        let packets = segments(&bytes);
        let written = coalesced(&packets);
        let per_write = if sample.is_tcp { packets.len() } else { packets.len().min(UDP_SEGMENTS_MAX) };
        prop_assert_eq!(written.len(), packets.len().div_ceil(per_write));
        let again: Vec<TunPacket> = written.iter().flat_map(|bytes| segments(bytes)).collect();
        prop_assert_eq!(again, packets);
    }

    #[test]
    fn coalescing_and_segmentation_restore_every_packet(
        flows in prop::collection::vec(samples(), 1..4),
        seed in any::<u64>(),
        faults in 0..20_u64,
    ) {
        let mut rng = Rng::from_seed(seed);
        let mut queues: Vec<_> = flows.iter().map(|flow| segments(&flow.super_packet()).into_iter().peekable()).collect();
        let mut packets = Vec::new();
        while !queues.is_empty() {
            let index = rng.below(queues.len() as u64) as usize;
            let run = rng.between(1, 30) as usize;
            packets.extend(queues[index].by_ref().take(run));
            if queues[index].peek().is_none() {
                drop(queues.remove(index));
            }
        }
        damaged(&mut packets, &mut rng, faults);
        let again: Vec<TunPacket> = coalesced(&packets).iter().flat_map(|bytes| segments(bytes)).collect();
        prop_assert_eq!(again, packets);
    }
}

#[test]
fn segments_of_consecutive_super_packets_are_coalesced() {
    let first = Sample {
        is_ipv6: false,
        is_tcp: true,
        options: 3,
        payload: vec![1; 4000],
        segment_bytes: 1000,
        sequence: u32::MAX - 1500,
        identification: u16::MAX - 1,
        flags: 0x10,
    };
    let second = Sample {
        sequence: first.sequence.wrapping_add(4000),
        identification: first.identification.wrapping_add(4),
        ..first.clone()
    };
    let mut packets = segments(&first.super_packet());
    packets.extend(segments(&second.super_packet()));
    assert_eq!(coalesced(&packets).len(), 1);
    let with_a_gap = Sample { sequence: second.sequence.wrapping_add(1), ..second };
    packets.truncate(4);
    packets.extend(segments(&with_a_gap.super_packet()));
    assert_eq!(coalesced(&packets).len(), 2);
}

#[test]
fn a_pure_acknowledgement_is_not_coalesced() {
    let sample = Sample {
        is_ipv6: false,
        is_tcp: true,
        options: 0,
        payload: vec![1; 10],
        segment_bytes: 10,
        sequence: 0,
        identification: 0,
        flags: 0x10,
    };
    let mut packet = segments(&sample.super_packet()).remove(0).into_buffer();
    packet.truncate(OFFLOAD_HEADER_BYTES + 40);
    put(&mut packet, OFFLOAD_HEADER_BYTES + 2, 40);
    checksum::fill_ipv4(&mut packet[OFFLOAD_HEADER_BYTES..OFFLOAD_HEADER_BYTES + 20]);
    let packet = TunPacket::new(packet);
    assert_eq!(coalesced(&[packet.clone(), packet]).len(), 2);
}

use net::tun::{MemoryTun, OFFLOAD_HEADER_BYTES};
use netem::LinkConfig;
use units::{Duration, Rate, Ratio, Rng};

use super::*;

const SEGMENTS: usize = 10;
const SEGMENT_BYTES: usize = 1000;
/// IPv4 and UDP headers.
const HEADER_BYTES: usize = 28;

/// Returns a UDP super-packet as read from the kernel: [`SEGMENTS`] of [`SEGMENT_BYTES`]. Its
/// checksum field has an arbitrary value, which is only passed on.
fn super_packet() -> Vec<u8> {
    let bytes = HEADER_BYTES + SEGMENTS * SEGMENT_BYTES;
    let mut packet = vec![0; OFFLOAD_HEADER_BYTES];
    packet[0] = 1;
    packet[1] = 5;
    for (at, value) in [(2, HEADER_BYTES), (4, SEGMENT_BYTES), (6, 20), (8, 6)] {
        packet[at..at + 2].copy_from_slice(&(value as u16).to_ne_bytes());
    }
    let mut ip = vec![0_u8; bytes];
    ip[0] = 0x45;
    ip[2..4].copy_from_slice(&(bytes as u16).to_be_bytes());
    // ECT(0).
    ip[1] = 2;
    ip[9] = 17;
    ip[24..26].copy_from_slice(&(bytes as u16 - 20).to_be_bytes());
    ip[26] = 0x12;
    packet.extend(ip);
    packet
}

struct Fixture {
    left: MemoryTun,
    right: MemoryTun,
    direction: TunDirection<MemoryTun>,
}

fn fixture(config: LinkConfig) -> Fixture {
    let (left, right) = (MemoryTun::new(), MemoryTun::new());
    let direction = TunDirection::new(left.clone(), right.clone(), Link::new(config, Rng::from_seed(1)));
    Fixture { left, right, direction }
}

fn at(micros: u64) -> Instant {
    Instant::ZERO + Duration::from_micros(micros)
}

impl Fixture {
    /// Returns the lengths of the written IP packets.
    fn written(&self) -> Vec<usize> {
        std::iter::from_fn(|| self.right.take_written()).map(|packet| packet.len() - OFFLOAD_HEADER_BYTES).collect()
    }
}

#[test]
fn each_segment_is_transmitted_separately() {
    // A thousand bytes and their headers in 1028 µs.
    let mut fixture = fixture(LinkConfig { rate: Some(Rate::from_mbps(8)), ..LinkConfig::default() });
    fixture.left.inject(super_packet());
    assert!(!fixture.direction.take(|| at(0)).unwrap(), "one packet only");
    assert_eq!(fixture.direction.due(), Some(at(1028)));
    fixture.direction.deliver(at(1027));
    assert_eq!(fixture.written(), []);
    for index in 1..=SEGMENTS as u64 {
        fixture.direction.deliver(at(1028 * index));
        assert_eq!(fixture.written(), [HEADER_BYTES + SEGMENT_BYTES], "segment {index}");
    }
    assert_eq!(fixture.direction.due(), None);
    let report = fixture.direction.report();
    assert_eq!((report.link.offered, report.link.delivered), (SEGMENTS as u64, SEGMENTS as u64));
    assert_eq!((report.lateness.count, report.lateness.max), (SEGMENTS as u64, Duration::ZERO));
}

#[test]
fn segments_due_together_are_written_as_one_super_packet() {
    let mut fixture = fixture(LinkConfig { delay: Duration::from_millis(1), ..LinkConfig::default() });
    let sent = super_packet();
    fixture.left.inject(sent.clone());
    assert!(!fixture.direction.take(|| at(0)).unwrap());
    fixture.direction.deliver(at(1500));
    let written = fixture.right.take_written().unwrap();
    assert_eq!(fixture.right.take_written(), None, "one write");
    // The header checksum was not set before; the rest is unchanged.
    let ip = OFFLOAD_HEADER_BYTES;
    assert_eq!((&written[..ip + 10], &written[ip + 12..]), (&sent[..ip + 10], &sent[ip + 12..]));
    assert_eq!(fixture.direction.report().lateness.max, Duration::from_micros(500));
}

#[test]
fn faults_affect_single_segments_and_are_counted() {
    let mut fixture = fixture(LinkConfig { loss: Ratio::new(3, 10), ..LinkConfig::default() });
    for _ in 0..10 {
        fixture.left.inject(super_packet());
    }
    while fixture.direction.take(|| at(0)).unwrap() {}
    fixture.direction.deliver(at(0));
    let stats = fixture.direction.report().link;
    assert!((10..60).contains(&stats.lost), "{} of 100 at 30 %", stats.lost);
    assert_eq!(stats.delivered, 100 - stats.lost);
    let payload: usize = fixture.written().iter().map(|bytes| bytes - HEADER_BYTES).sum();
    assert_eq!(payload, stats.delivered as usize * SEGMENT_BYTES);
}

#[test]
fn a_corrupted_segment_has_one_flipped_bit_and_a_complete_checksum() {
    let clean = |corrupt| {
        let mut fixture = fixture(LinkConfig { corrupt, ..LinkConfig::default() });
        fixture.left.inject(super_packet());
        while fixture.direction.take(|| at(0)).unwrap() {}
        fixture.direction.deliver(at(0));
        std::iter::from_fn(|| fixture.right.take_written()).collect::<Vec<_>>()
    };
    assert_eq!(clean(Ratio::ZERO).len(), 1);
    let corrupted = clean(Ratio::ONE);
    assert_eq!(corrupted.len(), SEGMENTS, "corrupted segments are not coalesced");
    for (index, packet) in corrupted.iter().enumerate() {
        assert_eq!(packet[0], 0, "the checksum is complete");
        let payload_bits: u32 =
            packet[OFFLOAD_HEADER_BYTES + HEADER_BYTES..].iter().map(|byte| byte.count_ones()).sum();
        assert!(payload_bits <= 1, "segment {index}: the payload was zeros");
    }
}

#[test]
fn packets_rejected_by_the_output_are_counted() {
    let mut fixture = fixture(LinkConfig { loss: Ratio::new(1, 2), ..LinkConfig::default() });
    for _ in 0..net::tun::PACKETS_WAITING_MAX {
        fixture.left.inject(super_packet());
    }
    // Losses split the super-packets into more writes than the in-memory device holds.
    while fixture.direction.take(|| at(0)).unwrap() {
        fixture.direction.deliver(at(0));
    }
    (0..100).for_each(|_| fixture.direction.deliver(at(0)));
    let report = fixture.direction.report();
    assert!(report.refused > 0, "{report:?}");
    let written: usize = fixture.written().iter().map(|bytes| (bytes - HEADER_BYTES) / SEGMENT_BYTES).sum();
    assert_eq!(report.link.delivered, written as u64 + report.refused);
}

#[test]
fn malformed_packets_are_ignored_and_counted() {
    let mut fixture = fixture(LinkConfig::default());
    fixture.left.inject(vec![0; 3]);
    fixture.left.inject(super_packet());
    assert!(!fixture.direction.take(|| at(0)).unwrap());
    let report = fixture.direction.report();
    assert_eq!((report.ignored, report.link.offered), (1, SEGMENTS as u64));
}

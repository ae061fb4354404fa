use net::tun::{MemoryTun, OFFLOAD_HEADER_BYTES};
use netem::LinkConfig;
use units::{Duration, Rate, Ratio, Rng};

use super::*;

const SEGMENTS: usize = 10;
const SEGMENT_BYTES: usize = 1000;
/// IPv4 and UDP headers.
const HEADER_BYTES: usize = 28;

/// A UDP super-packet as the kernel hands it out: [`SEGMENTS`] of [`SEGMENT_BYTES`]. Its checksum field is any number: it
/// is only carried on.
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

struct Scene {
    left: MemoryTun,
    right: MemoryTun,
    lane: Lane<MemoryTun>,
}

fn scene(config: LinkConfig) -> Scene {
    let (left, right) = (MemoryTun::new(), MemoryTun::new());
    let lane = Lane::new(left.clone(), right.clone(), Link::new(config, Rng::from_seed(1)));
    Scene { left, right, lane }
}

fn at(micros: u64) -> Instant {
    Instant::ZERO + Duration::from_micros(micros)
}

impl Scene {
    /// Lengths of the IP packets that were written.
    fn written(&self) -> Vec<usize> {
        std::iter::from_fn(|| self.right.take_in_kernel()).map(|packet| packet.len() - OFFLOAD_HEADER_BYTES).collect()
    }
}

#[test]
fn each_segment_takes_its_own_time_on_the_line() {
    // A thousand bytes and their headers in 1028 µs.
    let mut scene = scene(LinkConfig { rate: Some(Rate::from_mbps(8)), ..LinkConfig::default() });
    scene.left.send_from_kernel(super_packet());
    assert!(!scene.lane.take(|| at(0)).unwrap(), "one packet, and no more");
    assert_eq!(scene.lane.due(), Some(at(1028)));
    scene.lane.deliver(at(1027));
    assert_eq!(scene.written(), []);
    for index in 1..=SEGMENTS as u64 {
        scene.lane.deliver(at(1028 * index));
        assert_eq!(scene.written(), [HEADER_BYTES + SEGMENT_BYTES], "segment {index}");
    }
    assert_eq!(scene.lane.due(), None);
    let report = scene.lane.report();
    assert_eq!((report.link.offered, report.link.delivered), (SEGMENTS as u64, SEGMENTS as u64));
    assert_eq!((report.lateness.count, report.lateness.max), (SEGMENTS as u64, Duration::ZERO));
}

#[test]
fn what_is_due_together_leaves_together_and_as_it_came() {
    let mut scene = scene(LinkConfig { delay: Duration::from_millis(1), ..LinkConfig::default() });
    let sent = super_packet();
    scene.left.send_from_kernel(sent.clone());
    assert!(!scene.lane.take(|| at(0)).unwrap());
    scene.lane.deliver(at(1500));
    let written = scene.right.take_in_kernel().unwrap();
    assert_eq!(scene.right.take_in_kernel(), None, "one write");
    // The header checksum was not there before; all else is as it was.
    let ip = OFFLOAD_HEADER_BYTES;
    assert_eq!((&written[..ip + 10], &written[ip + 12..]), (&sent[..ip + 10], &sent[ip + 12..]));
    assert_eq!(scene.lane.report().lateness.max, Duration::from_micros(500));
}

#[test]
fn faults_hit_single_segments_and_are_counted() {
    let mut scene = scene(LinkConfig { loss: Ratio::new(3, 10), ..LinkConfig::default() });
    for _ in 0..10 {
        scene.left.send_from_kernel(super_packet());
    }
    while scene.lane.take(|| at(0)).unwrap() {}
    scene.lane.deliver(at(0));
    let stats = scene.lane.report().link;
    assert!((10..60).contains(&stats.lost), "{} of 100 at 30 %", stats.lost);
    assert_eq!(stats.delivered, 100 - stats.lost);
    let payload: usize = scene.written().iter().map(|bytes| bytes - HEADER_BYTES).sum();
    assert_eq!(payload, stats.delivered as usize * SEGMENT_BYTES);
}

#[test]
fn a_corrupted_segment_is_one_bit_off_and_its_checksum_is_finished() {
    let clean = |corrupt| {
        let mut scene = scene(LinkConfig { corrupt, ..LinkConfig::default() });
        scene.left.send_from_kernel(super_packet());
        while scene.lane.take(|| at(0)).unwrap() {}
        scene.lane.deliver(at(0));
        std::iter::from_fn(|| scene.right.take_in_kernel()).collect::<Vec<_>>()
    };
    assert_eq!(clean(Ratio::ZERO).len(), 1);
    let corrupted = clean(Ratio::ONE);
    assert_eq!(corrupted.len(), SEGMENTS, "none joins another");
    for (index, packet) in corrupted.iter().enumerate() {
        assert_eq!(packet[0], 0, "the kernel must check this one");
        let payload_bits: u32 =
            packet[OFFLOAD_HEADER_BYTES + HEADER_BYTES..].iter().map(|byte| byte.count_ones()).sum();
        assert!(payload_bits <= 1, "segment {index}: the payload was zeros");
    }
}

#[test]
fn a_packet_that_the_other_side_does_not_take_is_counted() {
    let mut scene = scene(LinkConfig { loss: Ratio::new(1, 2), ..LinkConfig::default() });
    for _ in 0..net::tun::PACKETS_WAITING_MAX {
        scene.left.send_from_kernel(super_packet());
    }
    // Losses break the super-packets into more writes than the twin keeps.
    while scene.lane.take(|| at(0)).unwrap() {
        scene.lane.deliver(at(0));
    }
    (0..100).for_each(|_| scene.lane.deliver(at(0)));
    let report = scene.lane.report();
    assert!(report.refused > 0, "{report:?}");
    let written: usize = scene.written().iter().map(|bytes| (bytes - HEADER_BYTES) / SEGMENT_BYTES).sum();
    assert_eq!(report.link.delivered, written as u64 + report.refused);
}

#[test]
fn nonsense_is_ignored_and_counted() {
    let mut scene = scene(LinkConfig::default());
    scene.left.send_from_kernel(vec![0; 3]);
    scene.left.send_from_kernel(super_packet());
    assert!(!scene.lane.take(|| at(0)).unwrap());
    let report = scene.lane.report();
    assert_eq!((report.ignored, report.link.offered), (1, SEGMENTS as u64));
}

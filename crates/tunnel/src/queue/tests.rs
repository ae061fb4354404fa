use proptest::prelude::*;
use units::Duration;

use super::*;
use crate::samples::{Sample, transport_packet};

fn at(us: u64) -> Instant {
    Instant::ZERO + Duration::from_micros(us)
}

fn udp(port: u16, len: usize) -> Sample {
    transport_packet(false, false, port, &vec![1; len], None)
}

#[test]
fn a_flow_that_sends_little_does_not_wait_for_bulk() {
    let mut queues = FlowQueues::new();
    let (bulk, call) = (udp(1, 1200), udp(2, 100));
    for _ in 0..100 {
        queues.push(at(0), 1, &bulk.packet());
    }
    assert_eq!(queues.pop(at(1)).map(|queued| queued.flow()), Some(1));
    assert_eq!(queues.pop(at(1)).map(|queued| queued.flow()), Some(1));
    queues.push(at(2), 2, &call.packet());
    let flows: Vec<_> = (0..4).filter_map(|_| queues.pop(at(3))).map(|queued| queued.flow()).collect();
    assert_eq!(flows[0], 2, "before the bulk: {flows:?}");
}

#[test]
fn a_packet_that_fills_its_memory_is_kept_without_a_copy() {
    let mut queues = FlowQueues::new();
    for (payload, is_kept) in [(60_000, true), (1000, false)] {
        let sample = transport_packet(true, true, 1, &vec![7; payload], Some(500));
        let packet = sample.packet();
        let head = PacketHead { inner: packet.inner, is_partial: true, segment: Some(500) };
        let mut buffer = vec![9; 65_600];
        buffer[10..10 + sample.ip.len()].copy_from_slice(&sample.ip);
        for _ in 0..2 {
            let before = buffer.as_ptr();
            queues.push_from(at(0), 1, &mut buffer, 10..10 + sample.ip.len(), &head);
            assert_eq!((buffer.len(), buffer.as_ptr() != before), (65_600, is_kept), "{payload}");
            buffer[10..10 + sample.ip.len()].copy_from_slice(&sample.ip);
        }
        for _ in 0..2 {
            let queued = queues.pop(at(1)).expect("a packet waits");
            assert!(queued.packet().ip == sample.ip && queued.packet().segment == Some(500));
            queues.recycle(queued);
        }
        assert_eq!((queues.bytes(), queues.is_empty()), (0, true));
    }
}

#[test]
fn flows_get_equal_shares_in_bytes() {
    let mut queues = FlowQueues::new();
    let (large, small) = (transport_packet(false, true, 1, &[1; 30_000], Some(1400)), udp(2, 500));
    for _ in 0..100 {
        queues.push(at(0), 1, &large.packet());
        for _ in 0..60 {
            queues.push(at(0), 2, &small.packet());
        }
    }
    let mut bytes = [0_usize; 3];
    while bytes.iter().sum::<usize>() < 1_500_000 {
        let queued = queues.pop(at(1)).expect("packets wait");
        bytes[usize::from(queued.flow())] += queued.packet().ip.len();
    }
    assert!(bytes[1].abs_diff(bytes[2]) < 40_000, "{bytes:?}");
}

#[test]
fn too_much_costs_the_longest_queue() {
    let mut queues = FlowQueues::new();
    let (large, small) = (transport_packet(false, true, 1, &[1; 60_000], Some(1400)), udp(2, 500));
    queues.push(at(0), 2, &small.packet());
    for _ in 0..1000 {
        queues.push(at(0), 1, &large.packet());
        assert!(queues.bytes() <= QUEUED_BYTES_MAX);
    }
    assert!(queues.stats().overflowed > 800);
    let flows: Vec<_> = std::iter::from_fn(|| queues.pop(at(1))).map(|queued| queued.flow()).collect();
    assert!(flows.contains(&2) && queues.is_empty() && queues.bytes() == 0);
}

#[test]
fn a_number_of_tiny_packets_is_bounded() {
    let mut queues = FlowQueues::new();
    let tiny = udp(2, 1);
    (0..100_000).for_each(|_| queues.push(at(0), 2, &tiny.packet()));
    assert_eq!(std::iter::from_fn(|| queues.pop(at(1))).count(), QUEUED_PACKETS_MAX);
}

/// A standing queue: packets wait 50 ms each. Returns the packets of the first second.
fn stand(sample: &Sample) -> (Vec<Queued>, QueueStats) {
    let mut queues = FlowQueues::new();
    let mut taken = Vec::new();
    for ms in 0..1000 {
        queues.push(at(ms * 1000), 1, &sample.packet());
        if ms >= 50 {
            taken.extend(queues.pop(at(ms * 1000)));
        }
    }
    (taken, queues.stats())
}

#[test]
fn a_standing_queue_marks_flows_that_understand_it_and_drops_from_others() {
    let plain = udp(1, 1200);
    let (taken, stats) = stand(&plain);
    assert!(stats.dropped > 10 && stats.marked == 0, "{stats:?}");
    assert!(taken.iter().all(|queued| queued.packet().ip == plain.ip));
    for is_ipv6 in [false, true] {
        let mut capable = transport_packet(is_ipv6, true, 1, &[1; 1200], None);
        // ECT(0).
        if is_ipv6 {
            capable.ip[1] |= 0x20;
        } else {
            capable.ip[1] |= 2;
            wire::checksum::fill_ipv4(&mut capable.ip[..20]);
        }
        let (taken, stats) = stand(&capable);
        assert!(stats.marked > 10 && stats.dropped == 0, "{stats:?}");
        let marked = taken.iter().filter(|queued| queued.packet().ip != capable.ip);
        for queued in marked {
            let inner = Inner::parse(queued.packet().ip).expect("a packet");
            assert_eq!(inner.traffic_class & 3, 3);
            assert!(is_ipv6 || wire::checksum::sum(&queued.packet().ip[..20], 0) == 0xffff);
        }
    }
}

#[test]
fn a_drop_costs_a_super_packet_its_first_segment_alone() {
    let whole = transport_packet(false, true, 1, &(0..200).collect::<Vec<u8>>().repeat(40), Some(700));
    let (taken, stats) = stand(&whole);
    assert!(stats.dropped > 10, "{stats:?}");
    let cut: Vec<_> = taken.iter().filter(|queued| queued.packet().ip.len() < whole.ip.len()).collect();
    assert!(!cut.is_empty());
    for queued in cut {
        let packet = queued.packet();
        let rest = Sample { ip: packet.ip.to_vec(), is_partial: true, segment: packet.segment };
        assert_eq!(Inner::parse(packet.ip), Ok(rest.inner()));
        let dropped = whole.segments().len() - rest.segments().len();
        assert_eq!(rest.segments(), whole.segments()[dropped..]);
    }
}

proptest! {
    #[test]
    fn every_packet_leaves_or_is_counted(operations in prop::collection::vec((0..8_u16, 0..3_u8, 10..1400_usize), 1..300)) {
        let mut queues = FlowQueues::new();
        let (mut pushed, mut popped) = (0, 0);
        for (step, (flow, kind, len)) in operations.iter().enumerate() {
            let now = at(step as u64 * 3000);
            if *kind == 0 {
                popped += u64::from(queues.pop(now).is_some());
            } else {
                queues.push(now, *flow, &udp(*flow, *len).packet());
                pushed += 1;
            }
        }
        let end = at(operations.len() as u64 * 3000);
        while queues.pop(end).is_some() {
            popped += 1;
        }
        let stats = queues.stats();
        prop_assert_eq!(popped + stats.dropped + stats.overflowed, pushed);
        prop_assert_eq!((queues.bytes(), queues.is_empty()), (0, true));
    }
}

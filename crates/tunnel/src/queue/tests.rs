use proptest::prelude::*;
use units::Duration;

use super::*;
use crate::inner::LOWER_EFFORT;
use crate::samples::{Sample, transport_packet};

fn at(us: u64) -> Instant {
    Instant::ZERO + Duration::from_micros(us)
}

fn udp(port: u16, len: usize) -> Sample {
    transport_packet(false, false, port, &vec![1; len], None)
}

/// A UDP packet of lower effort.
fn lower(port: u16, len: usize) -> Sample {
    let mut sample = udp(port, len);
    sample.ip[1] |= LOWER_EFFORT << 2;
    wire::checksum::fill_ipv4(&mut sample.ip[..20]);
    sample
}

/// The flows of the next packets.
fn next_flows(queues: &mut FlowQueues, count: usize) -> Vec<u16> {
    (0..count).map_while(|_| queues.pop(at(1))).map(|queued| queued.flow()).collect()
}

#[test]
fn lower_effort_leaves_when_nothing_else_waits_and_in_turns() {
    let mut queues = FlowQueues::new();
    for _ in 0..4 {
        queues.push(at(0), 1, &lower(1, 1200).packet());
        queues.push(at(0), 2, &lower(2, 1200).packet());
        queues.push(at(0), 3, &udp(3, 1200).packet());
    }
    assert_eq!(next_flows(&mut queues, 4), [3; 4]);
    let flows = next_flows(&mut queues, 4);
    assert!(flows.contains(&1) && flows.contains(&2) && !flows.contains(&3), "{flows:?}");
    // Others come while the rest waits.
    queues.push(at(0), 3, &udp(3, 1200).packet());
    queues.push(at(0), 4, &udp(4, 1200).packet());
    assert_eq!(next_flows(&mut queues, 2).iter().sum::<u16>(), 7);
    let rest = next_flows(&mut queues, 9);
    assert!(rest.len() == 4 && rest.iter().all(|flow| *flow < 3) && queues.is_empty(), "{rest:?}");
}

#[test]
fn no_packet_of_lower_effort_passes_others_as_one_of_a_sparse_flow() {
    let mut queues = FlowQueues::new();
    queues.push(at(0), 1, &lower(1, 100).packet());
    assert!(queues.pop_sparse(at(1), 1400, |_| true).is_none());
    queues.push(at(0), 2, &udp(2, 100).packet());
    // Nor behind a usual packet of its flow.
    queues.push(at(0), 2, &lower(2, 100).packet());
    assert_eq!(queues.pop_sparse(at(1), 1400, |_| true).map(|queued| queued.flow()), Some(2));
    assert!(queues.pop_sparse(at(1), 1400, |_| true).is_none());
    queues.push(at(0), 3, &udp(3, 1200).packet());
    assert_eq!(next_flows(&mut queues, 1), [3]);
}

#[test]
fn a_flow_whose_class_changes_keeps_its_order() {
    let mut queues = FlowQueues::new();
    // Longer packets come later.
    let lens = |queues: &mut FlowQueues, count: usize| -> Vec<(u16, usize)> {
        let next = |_| queues.pop(at(1)).map(|queued| (queued.flow(), queued.packet().ip.len() - 28));
        (0..count).map_while(next).collect()
    };
    for len in [500, 501] {
        queues.push(at(0), 1, &lower(1, len).packet());
        queues.push(at(0), 2, &lower(2, len).packet());
    }
    // The packets before it leave with it, and do not wait for flow 2.
    queues.push(at(0), 1, &udp(1, 502).packet());
    assert_eq!(lens(&mut queues, 3), [(1, 500), (1, 501), (1, 502)]);
    // And back: what follows waits for others.
    for len in 503..510 {
        queues.push(at(0), 1, &lower(1, len).packet());
    }
    for _ in 0..9 {
        queues.push(at(0), 3, &udp(3, 1200).packet());
    }
    let all = lens(&mut queues, 99);
    let own: Vec<usize> = all.iter().filter(|(flow, _)| *flow == 1).map(|(_, len)| *len).collect();
    assert_eq!(own, (503..510).collect::<Vec<_>>());
    let last_of_others = all.iter().rposition(|(flow, _)| *flow == 3).expect("they left");
    let before = all[..last_of_others].iter().filter(|(flow, _)| *flow == 1).count();
    assert_eq!(before, 0, "of 7 left before others: {all:?}");
}

#[test]
fn too_much_costs_lower_effort_first() {
    let mut queues = FlowQueues::new();
    let (large, small) = (transport_packet(false, true, 1, &[1; 60_000], Some(1400)), lower(2, 500));
    let fits = QUEUED_BYTES_MAX / large.ip.len();
    (0..fits - 1).for_each(|_| queues.push(at(0), 1, &large.packet()));
    (0..200).for_each(|_| queues.push(at(0), 2, &small.packet()));
    assert!(queues.stats().overflowed > 0, "that is too much");
    (0..2).for_each(|_| queues.push(at(0), 1, &large.packet()));
    let flows: Vec<_> = std::iter::from_fn(|| queues.pop(at(1))).map(|queued| queued.flow()).collect();
    // All of the others, but of one only the segments that fit.
    assert_eq!(flows.iter().filter(|flow| **flow == 1).count(), fits + 1);
    assert_eq!((queues.bytes(), queues.is_empty()), (0, true));
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
                let sample = if *kind == 1 { udp(*flow, *len) } else { lower(*flow, *len) };
                queues.push(now, *flow, &sample.packet());
                pushed += 1;
            }
            prop_assert_eq!(queues.waiting_flows(), (0..8).filter(|flow| queues.holds(*flow)).count());
        }
        let end = at(operations.len() as u64 * 3000);
        while queues.pop(end).is_some() {
            popped += 1;
        }
        let stats = queues.stats();
        prop_assert_eq!(popped + stats.dropped + stats.overflowed, pushed);
        prop_assert_eq!((queues.bytes(), queues.waiting_flows(), queues.is_empty()), (0, 0, true));
    }
}

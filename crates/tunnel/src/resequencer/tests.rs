use bytes::Bytes;
use proptest::prelude::*;
use units::Rng;

use super::*;
use crate::item::Body;

fn at(ms: u64) -> Instant {
    // Not zero, so that every path has a time.
    Instant::ZERO + Duration::from_millis(1000 + ms)
}

fn item(flow: u16, sequence: u32) -> Item {
    Item {
        flow,
        sequence,
        is_pinned: false,
        body: Body::Packet { is_partial: false, packet: Bytes::from_static(&[0x45; 40]) },
    }
}

/// A resequencer and what it has delivered.
#[derive(Default)]
struct Bench {
    order: Resequencer,
    delivered: Vec<(u16, u32)>,
}

impl Bench {
    fn push(&mut self, now: Instant, path: usize, flow: u16, sequence: u32) {
        let delivered = &mut self.delivered;
        self.order.push(now, path, item(flow, sequence), &mut |item| delivered.push((item.flow, item.sequence)));
    }

    fn time_out(&mut self, now: Instant) {
        let delivered = &mut self.delivered;
        self.order.handle_timeout(now, &mut |item| delivered.push((item.flow, item.sequence)));
    }

    /// What was delivered since the last call.
    fn take(&mut self) -> Vec<u32> {
        self.delivered.drain(..).map(|(_, sequence)| sequence).collect()
    }
}

#[test]
fn items_of_two_paths_are_delivered_in_order() {
    let mut bench = Bench::default();
    bench.push(at(0), 1, 9, 0);
    bench.take();
    for (path, sequence) in [(0, 0), (0, 1), (0, 4), (1, 2), (0, 5), (1, 3), (0, 6)] {
        bench.push(at(0), path, 3, sequence);
    }
    assert_eq!(bench.take(), [0, 1, 2, 3, 4, 5, 6]);
    let stats = bench.order.stats();
    assert_eq!((stats.held, stats.lost, stats.expired), (2, 0, 0));
    assert_eq!((bench.order.held_items(), bench.order.timeout()), (0, None));
}

#[test]
fn a_missing_item_of_a_flow_that_keeps_to_one_path_is_lost_at_once() {
    let mut bench = Bench::default();
    // Both paths are in use, by other flows.
    [(0, 9), (1, 9)].into_iter().enumerate().for_each(|(sequence, (path, flow))| {
        bench.push(at(0), path, flow, sequence as u32);
    });
    bench.take();
    for (path, sequence) in [(0, 0), (0, 1), (0, 3), (0, 4), (1, 2)] {
        let delivered = &mut bench.delivered;
        let pinned = Item { is_pinned: true, ..item(3, sequence) };
        bench.order.push(at(0), path, pinned, &mut |item| delivered.push((item.flow, item.sequence)));
    }
    // The last one has come on another path, which took over.
    assert_eq!(bench.take(), [0, 1, 3, 4, 2]);
    let stats = bench.order.stats();
    assert_eq!((stats.lost, stats.late, stats.expired), (1, 1, 0));
    assert_eq!((bench.order.held_items(), bench.order.timeout()), (0, None));
}

#[test]
fn what_every_path_has_passed_is_lost_at_once() {
    let mut bench = Bench::default();
    bench.push(at(0), 0, 3, 0);
    bench.push(at(0), 1, 3, 1);
    // 2 is lost on path 0, which shows with 4; 3 arrives on path 1 before.
    bench.push(at(1), 1, 3, 3);
    assert_eq!(bench.take(), [0, 1], "path 0 may still deliver 2");
    bench.push(at(2), 0, 3, 4);
    assert_eq!(bench.take(), [3, 4]);
    assert_eq!(bench.order.stats().lost, 1);
}

#[test]
fn a_loss_on_the_only_path_delays_nothing() {
    let mut bench = Bench::default();
    for sequence in [0, 1, 3, 4, 7] {
        bench.push(at(0), 0, 3, sequence);
    }
    assert_eq!(bench.take(), [0, 1, 3, 4, 7]);
    assert_eq!(bench.order.stats().lost, 3);
}

#[test]
fn the_first_items_of_an_idle_path_are_waited_for() {
    let mut bench = Bench::default();
    let round_trips = [(0, 4), (1, 44)].map(|(path, ms)| (path, Duration::from_millis(ms)));
    // The path was not used yet, and then not for long.
    for (begin, base) in [(0, 0), (10_000, 100)] {
        bench.order.set_open_paths(round_trips.into_iter());
        for (ms, sequence) in [(0, 0), (1, 1), (2, 4), (3, 5)] {
            bench.push(at(begin + ms), 0, 3, base + sequence);
            bench.time_out(at(begin + ms));
        }
        bench.time_out(at(begin + 20));
        assert_eq!(bench.take(), [0, 1].map(|sequence| base + sequence));
        for sequence in [2, 3] {
            bench.push(at(begin + 22), 1, 3, base + sequence);
        }
        assert_eq!(bench.take(), [2, 3, 4, 5].map(|sequence| base + sequence));
        (6..100).for_each(|sequence| bench.push(at(begin + 23), 0, 3, base + sequence));
        assert_eq!(bench.take().len(), 94);
    }
    assert_eq!((bench.order.stats().lost, bench.order.stats().expired), (0, 0));
}

#[test]
fn a_loss_beside_an_idle_path_is_waited_for_as_long_as_the_round_trips_differ() {
    let mut bench = Bench::default();
    let open = |order: &mut Resequencer, paths: &[(usize, u64)]| {
        order.set_open_paths(paths.iter().map(|(path, ms)| (*path, Duration::from_millis(*ms))));
    };
    // Nothing is late, so that no lateness is measured.
    [(0, 0), (1, 1), (0, 2), (0, 3)].into_iter().for_each(|(path, sequence)| bench.push(at(0), path, 3, sequence));
    // Path 17 is taken for path 1.
    open(&mut bench.order, &[(0, 4), (1, 24), (17, 5)]);
    bench.take();
    bench.push(at(5000), 0, 3, 4);
    bench.push(at(5000), 0, 3, 6);
    assert_eq!(bench.take(), [4]);
    assert_eq!(bench.order.timeout(), Some(at(5020)));
    bench.time_out(at(5020));
    assert_eq!(bench.take(), [6]);
    // No less than a batch takes, if the round trips are equal.
    open(&mut bench.order, &[(0, 4), (1, 4)]);
    bench.push(at(5020), 0, 3, 7);
    bench.push(at(5020), 0, 3, 9);
    assert_eq!(bench.take(), [7]);
    assert_eq!(bench.order.timeout(), Some(at(5020) + WAIT_MIN));
    bench.time_out(at(5024));
    assert_eq!(bench.take(), [9]);
    // No longer than before any lateness was measured, and not once the path is closed.
    open(&mut bench.order, &[(0, 4), (1, 900)]);
    bench.push(at(5030), 0, 3, 11);
    assert_eq!(bench.order.timeout(), Some(at(5090)));
    bench.time_out(at(5090));
    open(&mut bench.order, &[(0, 4)]);
    bench.push(at(5090), 0, 3, 13);
    assert_eq!(bench.take(), [11, 13]);
}

#[test]
fn a_path_that_stops_is_waited_for_no_longer_than_the_bound() {
    let mut bench = Bench::default();
    bench.push(at(0), 1, 3, 0);
    bench.push(at(0), 0, 3, 2);
    assert_eq!(bench.take(), [0]);
    let due = bench.order.timeout().expect("an item is held");
    assert_eq!(due, at(0) + bench.order.wait());
    bench.time_out(at(1));
    assert_eq!(bench.take(), [0_u32; 0], "an early call does nothing");
    bench.time_out(due);
    assert_eq!((bench.take(), bench.order.stats().expired), (vec![2], 1));
    // It arrives late, once.
    bench.push(at(100), 1, 3, 1);
    bench.push(at(100), 1, 3, 1);
    assert_eq!((bench.take(), bench.order.stats().late, bench.order.stats().dropped), (vec![1], 1, 1));
}

#[test]
fn the_wait_follows_the_measured_spread() {
    let mut bench = Bench::default();
    bench.push(at(0), 1, 9, 0);
    let mut sequence = 0;
    let mut arrive_with_spread = |bench: &mut Bench, from: u64, spread: u64| {
        for round in 0..100 {
            bench.push(at(from + 30 * round), 0, 3, sequence + 1);
            bench.push(at(from + 30 * round + spread), 1, 3, sequence);
            sequence += 2;
        }
    };
    arrive_with_spread(&mut bench, 0, 20);
    assert_eq!(bench.order.wait(), Duration::from_millis(30));
    arrive_with_spread(&mut bench, 3000, 4);
    arrive_with_spread(&mut bench, 6000, 4);
    assert_eq!(bench.order.wait(), Duration::from_millis(6));
    assert_eq!(bench.order.stats().expired, 0);
}

#[test]
fn only_the_first_item_waits_for_a_path_that_has_stopped() {
    let mut bench = Bench::default();
    bench.push(at(0), 1, 3, 0);
    bench.push(at(0), 0, 3, 2);
    bench.push(at(50), 0, 3, 4);
    assert_eq!(bench.take(), [0]);
    bench.time_out(at(60));
    assert_eq!(bench.take(), [2, 4]);
    bench.push(at(61), 0, 3, 6);
    assert_eq!(bench.take(), [6], "the other path has let a wait run out");
    // It delivers again, so it is waited for.
    bench.push(at(70), 1, 3, 7);
    bench.push(at(70), 0, 3, 9);
    assert_eq!((bench.take(), bench.order.timeout()), (vec![7], Some(at(70) + bench.order.wait())));
}

/// Two paths without a difference of delays, of which one has not delivered items 3 and 4.
fn without_3_and_4() -> Bench {
    let mut bench = Bench::default();
    for (path, sequence) in [(1, 0), (0, 2), (1, 1), (0, 5)] {
        bench.push(at(0), path, 3, sequence);
    }
    bench
}

#[test]
fn the_wait_grows_by_how_late_items_come_after_it() {
    let mut bench = without_3_and_4();
    bench.time_out(at(4));
    assert_eq!(bench.take(), [0, 1, 2, 5], "the spread was nothing, so the wait is the shortest");
    // Two items of one gap: both are as late.
    bench.push(at(20), 1, 3, 3);
    bench.push(at(20), 1, 3, 4);
    assert_eq!((bench.take(), bench.order.wait()), (vec![3, 4], Duration::from_millis(30)));
}

#[test]
fn an_item_that_its_own_path_has_passed_does_not_change_the_wait() {
    let mut bench = without_3_and_4();
    bench.push(at(0), 1, 3, 6);
    assert_eq!(bench.order.stats().lost, 2);
    for sequence in 3..5 {
        bench.push(at(100), 1, 3, sequence);
    }
    assert_eq!(bench.take(), [0, 1, 2, 5, 6, 3, 4]);
    assert_eq!((bench.order.stats().late, bench.order.wait()), (2, WAIT_MIN));
}

#[test]
fn flows_do_not_wait_for_each_other() {
    let mut bench = Bench::default();
    bench.push(at(0), 0, 1, 0);
    bench.push(at(0), 1, 1, 2);
    bench.push(at(0), 1, 2, 0);
    assert_eq!(bench.delivered, [(1, 0), (2, 0)]);
}

#[test]
fn what_is_held_is_bounded() {
    let mut bench = Bench::default();
    // Two paths, so that no gap is known to be lost. Each flow misses its first item.
    for flow in 0..FLOWS_MAX {
        bench.push(at(0), 1, flow, 0);
    }
    bench.take();
    for sequence in 2..100 {
        for flow in 0..FLOWS_MAX {
            bench.push(at(1), 0, flow, sequence);
        }
    }
    assert!(bench.order.held_items() <= HELD_ITEMS_MAX);
    assert!(bench.order.stats().expired > 900, "the oldest gaps are given up");
    bench.time_out(at(1000));
    assert_eq!((bench.order.held_items(), bench.order.held_bytes), (0, 0));
}

#[test]
fn a_sender_that_counts_anew_is_followed() {
    let mut bench = Bench::default();
    for sequence in [0, 1, 3] {
        bench.push(at(0), sequence as usize % 2, 3, sequence);
    }
    bench.take();
    for sequence in [2_000_000, 2_000_001, 2_000_002] {
        bench.push(at(1), 0, 3, sequence);
    }
    assert_eq!(bench.take(), [3, 2_000_000, 2_000_001, 2_000_002][usize::from(bench.order.stats().lost > 0)..]);
    assert_eq!(bench.order.held_items(), 0);
}

#[test]
fn numbers_wrap() {
    let mut bench = Bench::default();
    for sequence in [0x7000_0000, 0xe000_0000, u32::MAX - 2] {
        bench.push(at(0), 0, 3, sequence);
    }
    bench.take();
    for sequence in [u32::MAX, u32::MAX - 1, 1, 0] {
        bench.push(at(0), 1, 3, sequence);
        bench.push(at(0), 0, 9, 0);
    }
    bench.delivered.retain(|(flow, _)| *flow == 3);
    assert_eq!(bench.take(), [u32::MAX - 1, u32::MAX, 0, 1]);
}

proptest! {
    /// Paths that keep their order, with losses: everything that arrives is delivered, in order, unless the
    /// time was over; nothing twice.
    #[test]
    fn arrivals_of_ordered_paths_are_delivered_in_order(seed in any::<u64>(), paths in 1..4_usize, loss in 0..20_u64) {
        let mut rng = Rng::from_seed(seed);
        // For each item the path and when it arrives.
        let mut clocks = vec![0_u64; paths];
        let mut arrivals = Vec::new();
        for sequence in 0..400_u32 {
            let path = rng.below(paths as u64) as usize;
            clocks[path] = clocks[path].max(u64::from(sequence) + 10 * path as u64 + rng.below(8));
            if rng.below(100) >= loss {
                arrivals.push((clocks[path], path, sequence));
            }
        }
        arrivals.sort_by_key(|(time, path, sequence)| (*time, *path, *sequence));
        let mut bench = Bench::default();
        for path in 0..paths {
            // So that all paths are known from the beginning.
            bench.push(at(0), path, 9, path as u32);
        }
        bench.take();
        for (time, path, sequence) in &arrivals {
            while let Some(due) = bench.order.timeout().filter(|due| *due <= at(*time)) {
                bench.time_out(due);
            }
            bench.push(at(*time), *path, 3, *sequence);
        }
        bench.time_out(at(1_000_000));
        let stats = bench.order.stats();
        let delivered = bench.take();
        prop_assert_eq!(delivered.len(), arrivals.len(), "{:?}", stats);
        let mut sorted = delivered.clone();
        sorted.sort_unstable();
        sorted.dedup();
        prop_assert_eq!(sorted.len(), arrivals.len(), "one was delivered twice");
        let reordered = delivered.windows(2).filter(|pair| pair[0] > pair[1]).count() as u64;
        prop_assert!(reordered <= stats.late, "{} out of order, {:?}", reordered, stats);
        prop_assert_eq!(bench.order.held_items(), 0);
    }
}

//! The rules of each strategy, and invariants under random input.

use proptest::prelude::{
    Just, ProptestConfig, any, prop, prop_assert, prop_assert_eq, prop_compose, prop_oneof, proptest,
};
use proptest::strategy::Strategy as Generator;
use units::{Duration, Instant, Rate};

use crate::earliest::MEASURE_DATAGRAMS;
use crate::round_robin::TURN_DATAGRAMS;
use crate::scheduler::{BATCH_DATAGRAMS, Choice, PATHS_MAX};
use crate::strategy::Strategy;
use crate::view::{Demand, PathView, Straggler};

const NOW: Instant = Instant::from_nanos(5_000_000_000);
const MTU: u64 = 1200;
const BULK: Demand = Demand { ready_bytes: 100_000_000, is_last: true };
const MESSAGE: Demand = Demand { ready_bytes: 200, is_last: true };
const BATCH: u64 = BATCH_DATAGRAMS * MTU;

/// Returns an idle path that may send. Its window is two bandwidth-delay products, and not less
/// than the minimum of two datagrams (RFC 9002, section 7.2).
pub(crate) fn path(id: u32, rtt_ms: u64, mbps: u64) -> PathView {
    let rtt = Duration::from_millis(rtt_ms);
    let rate = Rate::from_mbps(mbps);
    PathView {
        id,
        is_backup: false,
        is_suspect: false,
        srtt: rtt,
        rttvar: Duration::from_millis(1),
        min_rtt: rtt,
        window_bytes: (2 * rate.bytes_in(rtt)).max(2 * MTU),
        in_flight_bytes: 0,
        rate,
        release_at: Instant::ZERO,
        accepts_datagrams: true,
        datagram_bytes: MTU,
    }
}

fn full(view: PathView) -> PathView {
    PathView { in_flight_bytes: view.window_bytes, ..view }
}

fn suspect(view: PathView) -> PathView {
    PathView { is_suspect: true, ..view }
}

fn backup(view: PathView) -> PathView {
    PathView { is_backup: true, ..view }
}

fn choose(strategy: Strategy, demand: Demand, paths: &[PathView]) -> Choice {
    strategy.build().choose(NOW, &demand, paths)
}

fn earliest(demand: Demand, paths: &[PathView]) -> Choice {
    choose(Strategy::EarliestDelivery, demand, paths)
}

fn sent_on(choice: Choice) -> Option<usize> {
    match choice {
        Choice::Send { path, .. } => Some(path),
        Choice::Wait { .. } => None,
    }
}

const ALL: [Strategy; 4] =
    [Strategy::EarliestDelivery, Strategy::RoundRobin, Strategy::LowestRtt, Strategy::Redundant { copies: 2 }];

#[test]
fn a_message_takes_the_path_where_it_arrives_first() {
    assert_eq!(sent_on(earliest(MESSAGE, &[path(0, 40, 1000), path(1, 10, 20), path(2, 80, 1000)])), Some(1));
}

#[test]
fn bulk_takes_whole_batches_and_fills_the_slow_path_when_the_fast_one_is_full() {
    let (fast, slow) = (path(0, 10, 100), path(1, 60, 50));
    assert_eq!(earliest(BULK, &[fast, slow]), Choice::Send { path: 0, bytes_max: BATCH, copies: 0 });
    assert_eq!(earliest(BULK, &[full(fast), slow]), Choice::Send { path: 1, bytes_max: BATCH, copies: 0 });
}

#[test]
fn the_tail_waits_for_the_fast_path() {
    let (fast, slow) = (path(0, 10, 100), path(1, 60, 50));
    // The full window of the fast path takes 20 ms, the first byte of the slow one arrives after 30
    // ms: 100 kB more fit before that.
    let tail = |ready_bytes| Demand { ready_bytes, is_last: true };
    assert_eq!(earliest(tail(20_000), &[full(fast), slow]), Choice::Wait { until: None });
    assert_eq!(sent_on(earliest(tail(400_000), &[full(fast), slow])), Some(1));
    let release_at = NOW + Duration::from_micros(300);
    assert_eq!(
        earliest(MESSAGE, &[PathView { release_at, ..fast }, slow]),
        Choice::Wait { until: Some(release_at) },
        "the pacer permits the fast path long before the slow one delivers"
    );
    assert_eq!(earliest(MESSAGE, &[PathView { accepts_datagrams: false, ..fast }, slow]), Choice::Wait { until: None });
}

#[test]
fn near_the_tail_the_slow_path_gets_only_its_share() {
    let (fast, slow) = (full(path(0, 10, 100)), path(1, 60, 100));
    // Both deliver 100 Mb/s: the fast one from 15 ms on (its queue, then half a round trip), the
    // slow one from 30 ms on. Together they need until 34.5 ms for 300 kB; 4.5 ms of that are 56 kB
    // on the slow one.
    let Choice::Send { path: 1, bytes_max, copies: 0 } =
        earliest(Demand { ready_bytes: 300_000, is_last: true }, &[fast, slow])
    else {
        panic!("the slow path must be used")
    };
    assert!((50_000..=57_000).contains(&bytes_max), "{bytes_max}");
    assert_eq!(bytes_max % MTU, 0);
}

#[test]
fn bytes_in_flight_count_as_backlog_if_more_data_follows() {
    let more = |ready_bytes| Demand { ready_bytes, is_last: false };
    let fast = path(0, 10, 100);
    let (near, far) = (path(1, 12, 100), path(1, 300, 100));
    // 250 kB in flight and 10 kB ready are 20.8 ms of the fast path. The near path is acknowledged
    // within 12 ms, the far one is not.
    assert_eq!(sent_on(earliest(more(10_000), &[full(fast), near])), Some(1));
    assert_eq!(earliest(more(10_000), &[full(fast), far]), Choice::Wait { until: None });
    assert_eq!(sent_on(earliest(more(20_000_000), &[full(fast), far])), Some(1));
}

#[test]
fn recently_sent_data_counts_as_queue() {
    // No acknowledgement can show yet that the first path has a queue; the scheduler knows it from
    // its own choices.
    let mut scheduler = Strategy::EarliestDelivery.build();
    let mut paths = [path(0, 10, 10), path(1, 14, 10)];
    paths[0].window_bytes = 1_000_000;
    let tail = Demand { ready_bytes: 60_000, is_last: true };
    let Choice::Send { path: 0, bytes_max, .. } = scheduler.choose(NOW, &tail, &paths) else {
        panic!("the first path must be selected")
    };
    paths[0].in_flight_bytes = bytes_max;
    let rest = Demand { ready_bytes: tail.ready_bytes - bytes_max, is_last: true };
    assert_eq!(sent_on(scheduler.choose(NOW, &rest, &paths)), Some(1));
    // If the caller had sent nothing of it, the first path would be selected again.
    paths[0].in_flight_bytes = 0;
    let mut scheduler = Strategy::EarliestDelivery.build();
    let _ = scheduler.choose(NOW, &tail, &paths);
    assert_eq!(sent_on(scheduler.choose(NOW, &rest, &paths)), Some(0));
}

#[test]
fn an_unmeasured_path_gets_a_few_datagrams_of_bulk_but_no_message() {
    let guess = Duration::from_millis(333);
    let unknown = PathView { srtt: guess, min_rtt: Duration::ZERO, window_bytes: 12_000, ..path(1, 1, 1) };
    let paths = [path(0, 10, 100), unknown];
    let measuring = Choice::Send { path: 1, bytes_max: MEASURE_DATAGRAMS * MTU, copies: 0 };
    assert_eq!(earliest(BULK, &paths), measuring);
    assert_eq!(earliest(Demand { ready_bytes: 50_000, is_last: false }, &paths), measuring);
    assert_eq!(sent_on(earliest(MESSAGE, &paths)), Some(0));
    let asked = PathView { in_flight_bytes: MEASURE_DATAGRAMS * MTU, ..unknown };
    assert_eq!(sent_on(earliest(BULK, &[paths[0], asked])), Some(0));
    assert_eq!(sent_on(earliest(BULK, &[full(paths[0]), asked])), None, "no more before the first acknowledgement");
    assert_eq!(sent_on(earliest(MESSAGE, &[unknown])), Some(0), "the only path");
}

#[test]
fn backup_and_suspect_paths_are_used_only_without_a_better_path() {
    let (slow, fast) = (path(0, 200, 1), path(1, 1, 1000));
    for strategy in ALL {
        let on = |paths: &[PathView]| sent_on(choose(strategy, BULK, paths));
        assert_eq!(on(&[slow, backup(fast)]), Some(0), "{strategy}");
        assert_eq!(on(&[full(slow), backup(fast)]), None, "{strategy}: a full path is still usable");
        assert_eq!(on(&[suspect(slow), backup(fast)]), Some(1), "{strategy}");
        assert_eq!(on(&[slow, suspect(fast)]), Some(0), "{strategy}");
        assert_eq!(
            on(&[suspect(slow), suspect(backup(fast))]),
            Some(1),
            "{strategy}: the lowest srtt of the suspect paths"
        );
        assert_eq!(on(&[suspect(slow)]), Some(0), "{strategy}");
    }
    assert_eq!(sent_on(earliest(MESSAGE, &[backup(slow), backup(fast)])), Some(1));
}

#[test]
fn round_robin_follows_path_ids_when_paths_are_added_and_removed() {
    let mut scheduler = Strategy::RoundRobin.build();
    let paths = [path(2, 10, 100), path(5, 90, 10), path(9, 50, 50)];
    let mut turn = |paths: &[PathView]| scheduler.choose(NOW, &BULK, paths);
    let choices = [turn(&paths), turn(&paths), turn(&paths), turn(&paths)];
    assert_eq!(choices.map(sent_on), [Some(0), Some(1), Some(2), Some(0)]);
    assert_eq!(choices[0], Choice::Send { path: 0, bytes_max: TURN_DATAGRAMS * MTU, copies: 0 });
    assert_eq!(sent_on(turn(&[paths[1], paths[2]])), Some(0), "path 5 follows path 2 regardless of the index");
    assert_eq!(sent_on(turn(&[paths[0], paths[1], full(paths[2])])), Some(0), "path 9 is full and skipped");
}

#[test]
fn lowest_rtt_never_waits_while_a_path_may_send() {
    let (fast, slow) = (path(0, 10, 100), path(1, 500, 1));
    assert_eq!(sent_on(choose(Strategy::LowestRtt, MESSAGE, &[slow, fast])), Some(1));
    assert_eq!(sent_on(choose(Strategy::LowestRtt, MESSAGE, &[full(fast), slow])), Some(1));
    assert_eq!(choose(Strategy::LowestRtt, MESSAGE, &[full(fast), full(slow)]), Choice::Wait { until: None });
}

#[test]
fn redundant_copies_on_the_next_best_paths_that_may_send() {
    let paths = [path(0, 50, 100), path(1, 10, 100), path(2, 30, 100), path(3, 20, 100)];
    let copies_of = |copies, paths: &[PathView]| match choose(Strategy::Redundant { copies }, BULK, paths) {
        Choice::Send { path, copies, .. } => (path, copies),
        Choice::Wait { until } => panic!("waits until {until:?}"),
    };
    assert_eq!(copies_of(1, &paths), (1, 0));
    assert_eq!(copies_of(2, &paths), (1, 0b1000));
    assert_eq!(copies_of(3, &paths), (1, 0b1100));
    assert_eq!(copies_of(32, &paths), (1, 0b1101));
    assert_eq!(copies_of(2, &[paths[0], paths[1], paths[2], full(paths[3])]), (1, 0b0100));
    assert_eq!(copies_of(2, &[paths[0], paths[1], suspect(paths[2]), backup(paths[3])]), (1, 0b0001));
}

#[test]
fn a_straggler_is_reinjected_if_the_copy_arrives_earlier() {
    let (fast, slow) = (path(0, 10, 100), path(1, 200, 10));
    let mut scheduler = Strategy::EarliestDelivery.build();
    let mut reinjects = |age_ms, from, on, paths: &[PathView]| {
        let sent_at = NOW.saturating_sub(Duration::from_millis(age_ms));
        scheduler.reinjects(NOW, &Straggler { path: from, sent_at, bytes: MTU }, on, paths)
    };
    assert!(reinjects(20, 1, 0, &[fast, slow]), "due in 80 ms, a copy takes 5");
    assert!(!reinjects(98, 1, 0, &[fast, slow]), "due in 2 ms");
    assert!(!reinjects(150, 1, 0, &[fast, slow]), "the original arrived; its acknowledgement is in transit");
    assert!(reinjects(205, 1, 0, &[fast, slow]), "overdue");
    assert!(!reinjects(3, 0, 1, &[fast, slow]), "a copy on the slow path arrives later");
    assert!(reinjects(1, 1, 0, &[fast, suspect(slow)]));
    assert!(!reinjects(300, 1, 0, &[suspect(fast), slow]));
    assert!(!reinjects(300, 1, 0, &[full(fast), slow]));
    assert!(!reinjects(300, 1, 0, &[backup(fast), slow]), "backup, while the slow one is usable");
    assert!(!reinjects(300, 1, 1, &[fast, slow]), "the same path");
    assert!(!reinjects(300, 7, 0, &[fast, slow]) && !reinjects(300, 1, usize::MAX, &[fast, slow]));
}

#[test]
fn the_other_strategies_reinject_only_from_suspect_paths() {
    let (fast, slow) = (path(0, 10, 100), path(1, 200, 10));
    let straggler = Straggler { path: 1, sent_at: Instant::ZERO, bytes: MTU };
    for strategy in &ALL[1..] {
        let mut scheduler = strategy.build();
        assert!(!scheduler.reinjects(NOW, &straggler, 0, &[fast, slow]), "{strategy}");
        assert!(scheduler.reinjects(NOW, &straggler, 0, &[fast, suspect(slow)]), "{strategy}");
        assert!(!scheduler.reinjects(NOW, &straggler, 0, &[full(fast), suspect(slow)]), "{strategy}");
    }
}

#[test]
fn strategies_round_trip_through_display_and_parse() {
    for strategy in ALL.into_iter().chain([Strategy::Redundant { copies: 32 }]) {
        assert_eq!(strategy.to_string().parse(), Ok(strategy));
    }
    for wrong in
        ["", "Earliest", "redundant", "redundant:", "redundant:0", "redundant:33", "redundant:+2", "redundant:02"]
    {
        assert!(wrong.parse::<Strategy>().is_err(), "{wrong:?}");
    }
}

#[test]
fn no_paths_and_too_many_paths_are_handled() {
    let many: Vec<PathView> =
        (0..40).map(|id| if id < 32 { full(path(id, 10, 10)) } else { path(id, 1, 10) }).collect();
    for strategy in ALL {
        assert_eq!(choose(strategy, BULK, &[]), Choice::Wait { until: None });
        assert_eq!(choose(strategy, BULK, &many), Choice::Wait { until: None }, "paths past {PATHS_MAX} are not used");
    }
}

/// Mostly plausible numbers, sometimes extreme ones.
fn odd(most: u64) -> impl Generator<Value = u64> {
    prop_oneof![6 => 0..=most, 1 => Just(0), 1 => Just(1), 1 => Just(u64::MAX)]
}

prop_compose! {
    fn any_path()(
        flags in (prop::bool::weighted(0.2), prop::bool::weighted(0.2), prop::bool::weighted(0.8)),
        times in (odd(400_000_000), odd(50_000_000), odd(400_000_000)),
        bytes in (odd(3_000_000), odd(3_000_000), prop_oneof![8 => Just(1200u64), 1 => odd(65_536)]),
        rate in odd(2_000_000_000),
        release_ns in prop_oneof![2 => Just(0), 1 => 4_999_000_000u64..5_002_000_000, 1 => Just(u64::MAX)],
    ) -> PathView {
        PathView {
            id: 0,
            is_backup: flags.0,
            is_suspect: flags.1,
            srtt: Duration::from_nanos(times.0),
            rttvar: Duration::from_nanos(times.1),
            min_rtt: Duration::from_nanos(times.2),
            window_bytes: bytes.0,
            in_flight_bytes: bytes.1,
            rate: Rate::from_bps(rate),
            release_at: Instant::from_nanos(release_ns),
            accepts_datagrams: flags.2,
            datagram_bytes: bytes.2,
        }
    }
}

pub(crate) fn any_paths() -> impl Generator<Value = Vec<PathView>> {
    prop::collection::vec(any_path(), 0..=PATHS_MAX + 1).prop_map(|mut paths| {
        paths.iter_mut().zip(0..).for_each(|(path, id)| path.id = id);
        paths
    })
}

pub(crate) fn any_strategy() -> impl Generator<Value = Strategy> {
    (0..ALL.len(), 0..40u8).prop_map(|(index, copies)| match ALL[index] {
        Strategy::Redundant { .. } => Strategy::Redundant { copies },
        other => other,
    })
}

/// Checks the rules for every strategy and every input.
fn check(strategy: Strategy, now: Instant, paths: &[PathView], choice: Choice) {
    let known = &paths[..paths.len().min(PATHS_MAX)];
    let are_all_suspect = known.iter().all(|path| path.is_suspect);
    let has_available = known.iter().any(|path| !path.is_suspect && !path.is_backup);
    match choice {
        Choice::Send { path, bytes_max, copies } => {
            assert_eq!(copies >> path & 1, 0, "a copy on the selected path");
            let others = (0..32).filter(|index| copies >> index & 1 == 1);
            for index in others.chain([path]) {
                let view = known[index];
                assert!(view.permits_datagram(now) && (are_all_suspect || view.may_send(now)), "{view:?}");
                assert!(
                    !view.is_backup || !has_available || are_all_suspect,
                    "a backup path although another is usable"
                );
            }
            assert!(bytes_max >= known[path].datagram_bytes && bytes_max > 0);
            assert!(
                bytes_max <= known[path].available_window().max(1)
                    && bytes_max <= BATCH_DATAGRAMS.saturating_mul(known[path].datagram_bytes).max(1)
            );
        }
        Choice::Wait { until } => {
            assert!(until.is_none_or(|until| until > now), "the wait must end in the future");
            let could = |path: &&PathView| path.may_send(now) && (!path.is_backup || !has_available);
            let may_wait_for_better = strategy == Strategy::EarliestDelivery;
            assert!(may_wait_for_better || known.iter().find(could).is_none(), "waits although a path may send");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn every_choice_is_executable(
        strategy in any_strategy(),
        calls in prop::collection::vec((any_paths(), odd(10_000_000), any::<bool>(), 0..2_000_000u64), 1..6),
        straggler in (0..PATHS_MAX + 2, odd(6_000_000_000), odd(65_536), 0..PATHS_MAX + 2),
    ) {
        let mut scheduler = strategy.build();
        let mut now = NOW;
        for (paths, ready_bytes, is_last, step) in calls {
            now += Duration::from_nanos(step);
            check(strategy, now, &paths, scheduler.choose(now, &Demand { ready_bytes, is_last }, &paths));
            let (path, sent_ns, bytes, on) = straggler;
            let straggler = Straggler { path, sent_at: Instant::from_nanos(sent_ns), bytes };
            if scheduler.reinjects(now, &straggler, on, &paths) {
                prop_assert!(on != path && paths[on].may_send(now) && path < paths.len());
            }
        }
    }

    /// Earliest delivery waits only for a better path: with endless bulk data it sends whenever an
    /// eligible path may.
    #[test]
    fn endless_bulk_never_waits_while_a_path_may_send(
        rtts_and_rates in prop::collection::vec((1u64..400, 1u64..2_000, any::<bool>()), 1..8),
    ) {
        let paths: Vec<PathView> = rtts_and_rates.iter().zip(0..).map(|(&(rtt_ms, mbps, is_full), id)| {
            let view = path(id, rtt_ms, mbps);
            if is_full { full(view) } else { view }
        }).collect();
        let could = paths.iter().any(|path| path.may_send(NOW));
        for is_last in [true, false] {
            let choice = earliest(Demand { ready_bytes: u64::MAX, is_last }, &paths);
            prop_assert_eq!(sent_on(choice).is_some(), could);
        }
    }

    /// A path is skipped only for one on which the datagram arrives earlier, including the wait.
    #[test]
    fn a_message_waits_only_for_an_earlier_arrival(
        idle_rtt_ms in 1u64..400, full_rtt_ms in 1u64..400, mbps in 1u64..1000,
    ) {
        let (idle, busy) = (path(0, idle_rtt_ms, mbps), full(path(1, full_rtt_ms, mbps)));
        // The message on the busy path waits until one datagram has left the window, or behind the
        // bytes in excess of the bandwidth-delay product; half a round trip follows. With a window
        // of two bandwidth-delay products that is one and a half round trips.
        let nanos = |bytes: u64| bytes * 8_000 / mbps;
        let busy_queue_ns = nanos(busy.in_flight_bytes).saturating_sub(busy.min_rtt.as_nanos());
        let busy_ns = nanos(MTU).max(busy_queue_ns) + busy.min_rtt.as_nanos() / 2;
        let idle_ns = idle.min_rtt.as_nanos() / 2;
        let margin_ns = 10_000;
        let is_worth_it = busy_ns + margin_ns < idle_ns;
        let is_worth_nothing = idle_ns + margin_ns < busy_ns;
        let choice = earliest(MESSAGE, &[idle, busy]);
        prop_assert!(!is_worth_it || choice == Choice::Wait { until: None }, "{choice:?}");
        prop_assert!(!is_worth_nothing || sent_on(choice) == Some(0), "{choice:?}");
    }
}

/// Prints the nanoseconds per call: `cargo test --release -p litz-scheduler -- --ignored
/// --nocapture cost`.
#[test]
#[ignore = "a measurement; needs a release build and a quiet machine"]
#[expect(clippy::disallowed_methods, reason = "measures real time")]
#[expect(clippy::disallowed_types, reason = "measures real time")]
#[expect(clippy::print_stdout, reason = "prints what it measured")]
fn cost_of_a_choice() {
    for (name, count, demand) in [("bulk", 1, BULK), ("bulk", 4, BULK), ("tail", 4, MESSAGE), ("bulk", 32, BULK)] {
        for strategy in ALL {
            let mut scheduler = strategy.build();
            let mut paths: Vec<PathView> =
                (0..count).map(|id| path(id, 10 + u64::from(id * 7) % 40, 100 + u64::from(id) * 30)).collect();
            let rounds = 1_000_000u64;
            let begun = std::time::Instant::now();
            for round in 0..rounds {
                let index = round as usize % paths.len();
                paths[index].in_flight_bytes = (round * 7919) % paths[index].window_bytes;
                let now = NOW + Duration::from_micros(round);
                std::hint::black_box(scheduler.choose(now, &demand, std::hint::black_box(&paths)));
            }
            let nanos = begun.elapsed().as_nanos() as u64 / rounds;
            println!("{strategy}, {count} paths, {name}: {nanos} ns");
        }
    }
}

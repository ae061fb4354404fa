//! The choice over time, with flows that take what their paths give them.

use super::*;

const MS: Duration = Duration::from_millis(1);

fn view(id: u32, mbps: Option<u64>, round_trip_ms: u64) -> PathView {
    let rate = mbps.map(Rate::from_mbps);
    PathView { id, round_trip: MS * round_trip_ms, rate, at_least: Rate::from_mbps(1), packets: (1000, 0) }
}

/// A controller finds the capacity of a path that is full for so long.
const FOUND_ROUND_TRIPS: u64 = 8;

/// Paths, and flows that always have more to send.
struct Bench {
    choice: PathChoice,
    now: Instant,
    views: Vec<PathView>,
    /// The most that a flow gets on each path with its losses, in Mb/s.
    limits: Vec<f64>,
    /// How long each path has been full, as far as a controller must know to find its capacity.
    full: Vec<Duration>,
    /// Megabits that each flow has had.
    had: Vec<f64>,
    moves: usize,
}

impl Bench {
    fn new(views: &[PathView]) -> Self {
        Self::with(PathChoice::new(false, true), views)
    }

    fn with(mut choice: PathChoice, views: &[PathView]) -> Self {
        let now = Instant::ZERO + Duration::from_secs(10);
        choice.follow(now, views);
        let (limits, full) = (vec![f64::INFINITY; views.len()], vec![Duration::ZERO; views.len()]);
        Self { choice, now, views: views.to_vec(), limits, full, had: Vec::new(), moves: 0 }
    }

    /// Mb/s that a path really carries: its view may not know it.
    fn run(&mut self, seconds: u64, flows: u16, carries: &[f64]) -> Vec<f64> {
        self.had = vec![0.0; flows.into()];
        for _ in 0..seconds * 100 {
            self.now += MS * 10;
            let path_of = |choice: &PathChoice, flow| {
                choice.path_of(flow).and_then(|id| self.views.iter().position(|view| view.id == id))
            };
            let on: Vec<_> = (0..flows).map(|flow| path_of(&self.choice, flow)).collect();
            for flow in 0..flows {
                let at = on[usize::from(flow)];
                let users = on.iter().filter(|other| **other == at).count() as f64;
                // All paths if it keeps to none.
                let mbps =
                    at.map_or_else(|| carries.iter().sum::<f64>(), |at| (carries[at] / users).min(self.limits[at]));
                let bytes = (mbps * 1e6 / 8.0 * 0.01) as usize;
                self.had[usize::from(flow)] += mbps * 0.01;
                for _ in 0..bytes.div_ceil(1400) {
                    self.moves += usize::from(self.choice.note(flow, 1400).is_some());
                }
            }
            for (view, limit) in self.views.iter_mut().zip(&self.limits) {
                let lost = if limit.is_finite() { 10 } else { 0 };
                view.packets = (view.packets.0 + 1000, view.packets.1 + lost);
            }
            let filled = self.choice.to_fill().map(|(id, _)| id);
            filled.into_iter().for_each(|id| self.choice.on_filled(id, 1000));
            for (at, full) in self.full.iter_mut().enumerate() {
                let view = &mut self.views[at];
                *full += MS * if on.contains(&Some(at)) || filled == Some(view.id) { 10 } else { 0 };
                if *full > view.round_trip * FOUND_ROUND_TRIPS {
                    view.rate = view.rate.or(Some(Rate::from_bps((carries[at] * 1e6) as u64)));
                }
            }
            let moves = self.choice.follow(self.now, &self.views);
            self.moves += moves.iter().filter(|flow_move| flow_move.from != flow_move.to).count();
        }
        self.had.iter().map(|had| had / seconds as f64).collect()
    }

    fn counts(&self) -> Vec<u32> {
        self.views
            .iter()
            .map(|view| self.choice.uses().iter().find(|of| of.id == view.id).map_or(0, |of| of.flows))
            .collect()
    }
}

#[test]
fn flows_use_all_paths_while_delays_are_alike() {
    let mut bench = Bench::new(&[view(0, Some(50), 20), view(1, Some(20), 35)]);
    bench.run(3, 8, &[50.0, 20.0]);
    assert!((0..8).all(|flow| bench.choice.path_of(flow).is_none()));
    assert_eq!((bench.choice.uses(), bench.moves), (Vec::new(), 0));
}

#[test]
fn several_flows_share_unlike_paths_by_their_rates_and_stay() {
    for (views, carries, expected) in [
        (vec![view(3, Some(50), 20), view(5, Some(20), 120)], vec![50.0, 20.0], vec![6, 2]),
        (vec![view(3, Some(100), 200), view(5, Some(100), 4)], vec![100.0, 100.0], vec![4, 4]),
        // An eighth of the fast path is more than the slow one has, but the sum counts.
        (
            vec![view(3, Some(100), 10), view(5, Some(12), 60), view(9, Some(12), 90)],
            vec![100.0, 12.0, 12.0],
            vec![6, 1, 1],
        ),
        (vec![view(3, Some(100), 10), view(5, Some(2), 60)], vec![100.0, 2.0], vec![8, 0]),
    ] {
        let mut bench = Bench::new(&views);
        bench.run(20, 8, &carries);
        let counts = bench.counts();
        assert!(
            counts.iter().zip(&expected).all(|(has, wanted)| has.abs_diff(*wanted) <= 1),
            "{counts:?}, {expected:?}"
        );
        let (before, seconds) = (bench.moves, 30);
        bench.run(seconds, 8, &carries);
        assert!(bench.moves - before <= 2, "{} moves in {seconds} s: {views:?}", bench.moves - before);
    }
}

#[test]
fn a_flow_alone_takes_the_path_that_gives_it_most() {
    for (views, carries, wanted) in [
        (vec![view(3, Some(50), 20), view(5, Some(20), 120)], vec![50.0, 20.0], 3),
        (vec![view(3, Some(5), 4), view(5, Some(100), 300)], vec![5.0, 100.0], 5),
        // Nothing is known of the slow path, which is faster.
        (vec![view(3, Some(5), 4), view(5, None, 300)], vec![5.0, 100.0], 5),
        (vec![view(3, Some(100), 4), view(5, Some(100), 300)], vec![100.0, 100.0], 3),
    ] {
        let mut bench = Bench::new(&views);
        bench.run(10, 1, &carries);
        assert_eq!(bench.choice.path_of(0), Some(wanted), "{views:?}");
        let out = bench.choice.uses().into_iter().find(|path| path.id != wanted).expect("two");
        assert!(matches!(out.left_out, Some(LeftOut::FewFlows(_))), "{out:?}");
    }
}

#[test]
fn a_path_on_which_losses_limit_a_flow_is_left_and_tried_seldom() {
    let mut bench = Bench::new(&[view(3, Some(5), 4), view(5, Some(100), 300)]);
    bench.limits[1] = 0.5;
    let had = bench.run(300, 1, &[5.0, 100.0]);
    assert!(had[0] > 4.4, "{had:?}");
    // And the other way round: the first path is the lossy one.
    let mut bench = Bench::new(&[view(3, Some(50), 10), view(5, Some(20), 80)]);
    bench.limits[0] = 10.0;
    let had = bench.run(60, 1, &[50.0, 20.0]);
    assert!(had[0] > 18.0, "{had:?}");
}

#[test]
fn a_flow_with_little_to_send_takes_the_shortest_round_trip_and_acknowledgements_do() {
    let mut bench = Bench::new(&[view(3, Some(50), 120), view(5, Some(20), 10)]);
    for _ in 0..100 {
        bench.now += MS * 20;
        // 80 kB a second of acknowledgements.
        (0..20).for_each(|_| assert_eq!(bench.choice.note(1, 80).and_then(|flow| flow.from), None));
        bench.choice.note(2, 1400);
        bench.choice.follow(bench.now, &bench.views);
    }
    assert_eq!((bench.choice.path_of(1), bench.choice.path_of(2)), (Some(5), Some(5)));
    assert_eq!(bench.choice.uses(), []);
}

#[test]
fn flows_leave_a_path_that_fails_at_once_and_share_it_again_when_it_is_back() {
    let views = [view(3, Some(50), 20), view(5, Some(50), 120)];
    let mut bench = Bench::new(&views);
    bench.run(5, 4, &[50.0, 50.0]);
    assert_eq!(bench.counts(), [2, 2]);
    bench.now += MS;
    let moves = bench.choice.follow(bench.now, &views[..1]);
    assert!((0..4).all(|flow| bench.choice.path_of(flow) != Some(5)) && moves.len() >= 2, "{moves:?}");
    bench.run(20, 4, &[50.0, 50.0]);
    assert_eq!(bench.counts(), [2, 2]);
}

#[test]
fn a_flow_that_has_moved_says_so_for_a_second() {
    let mut bench = Bench::new(&[view(3, Some(50), 20), view(5, Some(50), 120)]);
    bench.run(5, 4, &[50.0, 50.0]);
    let mut moved = bench.choice.follow(bench.now, &[view(3, Some(50), 20)]);
    moved.retain(|flow_move| flow_move.from == Some(5));
    assert!(!moved.is_empty() && moved.iter().all(|flow_move| !flow_move.is_settled), "{moved:?}");
}

#[test]
fn the_first_flow_measures_the_far_path_and_filling_the_near_one() {
    for (carries, wanted) in [([5.0, 50.0], 5), ([50.0, 5.0], 3)] {
        let mut bench = Bench::new(&[view(3, None, 4), view(5, None, 160)]);
        bench.run(1, 1, &carries);
        assert_eq!((bench.choice.path_of(0), bench.views[0].rate.is_some()), (Some(5), true));
        // The far one is known, and the flow takes the better one at once.
        bench.run(1, 1, &carries);
        assert_eq!(bench.choice.path_of(0), Some(wanted), "{carries:?}");
        let moves = bench.moves;
        bench.run(60, 1, &carries);
        assert_eq!((bench.choice.path_of(0), bench.moves - moves), (Some(wanted), 0), "{carries:?}");
    }
}

#[test]
fn flows_that_began_before_paths_were_known_are_divided_anew_together() {
    for (carries, wanted) in [([5.0, 50.0], [1, 7]), ([50.0, 5.0], [7, 1]), ([20.0, 20.0], [4, 4])] {
        let mut bench = Bench::new(&[view(3, None, 4), view(5, None, 160)]);
        bench.run(3, 8, &carries);
        let counts = bench.counts();
        assert!(counts.iter().zip(wanted).all(|(has, wanted)| has.abs_diff(wanted) <= 1), "{counts:?}, {carries:?}");
    }
}

#[test]
fn a_path_is_filled_only_while_a_flow_could_use_it_and_for_a_while() {
    let views = [view(3, Some(50), 20), view(5, None, 60), view(7, None, 120)];
    let mut bench = Bench::new(&views);
    bench.choice.note(1, 100);
    bench.now += TICK;
    bench.choice.follow(bench.now, &views);
    assert_eq!(bench.choice.to_fill(), None);
    let mut filled = [0, 0];
    for _ in 0..100 {
        bench.now += TICK;
        (0..440).for_each(|_| {
            bench.choice.note(0, 1400);
        });
        bench.choice.follow(bench.now, &views);
        // The controllers never find anything.
        match bench.choice.to_fill().map(|(id, _)| id) {
            Some(5) => filled[0] += 1,
            Some(_) => filled[1] += 1,
            None => {}
        }
    }
    // Three times each, in turns, for eight ticks and for twelve round trips.
    assert!((18..=30).contains(&filled[0]) && (36..=48).contains(&filled[1]), "{filled:?}");
    assert_eq!(bench.choice.path_of(0), Some(3), "nothing better was found");
}

#[test]
fn a_path_that_takes_much_filling_carries_at_least_what_was_seen() {
    let mut views = [view(3, None, 4), view(5, None, 160)];
    views[0].at_least = Rate::from_mbps(900);
    let mut bench = Bench::new(&views);
    let mut offered = 0;
    for _ in 0..50 {
        bench.now += TICK;
        (0..440).for_each(|_| {
            bench.choice.note(0, 1400);
        });
        bench.choice.follow(bench.now, &views);
        while bench.choice.to_fill().is_some_and(|(id, _)| id == 3) {
            bench.choice.on_filled(3, 64 << 10);
            offered += 64 << 10;
        }
    }
    assert_eq!((offered, bench.choice.path_of(0)), (4 << 20, Some(3)));
}

#[test]
fn a_flow_that_ends_before_a_path_is_known_costs_later_ones_nothing() {
    let carries = [20.0, 100.0];
    let mut bench = Bench::new(&[view(3, None, 20), view(5, None, 160)]);
    // A page, on the far path, and its reader.
    (0..80).for_each(|_| {
        bench.choice.note(7, 1400);
    });
    assert_eq!(bench.choice.path_of(7), Some(5));
    bench.run(5, 0, &carries);
    assert_eq!((bench.choice.to_fill(), bench.choice.uses()), (None, vec![]));
    bench.run(6, 1, &carries);
    assert_eq!(bench.choice.path_of(0), Some(5));
    bench.run(60, 1, &carries);
    assert_eq!(bench.choice.path_of(0), Some(5));
}

#[test]
fn a_path_is_not_filled_once_flows_have_ended_or_delays_are_alike() {
    for are_alike in [false, true] {
        let mut bench = Bench::new(&[view(3, None, 20), view(5, None, 160)]);
        while bench.choice.to_fill().is_none() {
            bench.now += MS * 10;
            bench.choice.note(0, 1400 * 20);
            bench.choice.follow(bench.now, &bench.views);
        }
        if are_alike {
            bench.views[1].round_trip = MS * 25;
            // The longest of two periods is forgotten after a third one.
            for _ in 0..3 {
                bench.now += PERIOD;
                bench.choice.note(0, 1400 * 20);
                bench.choice.follow(bench.now, &bench.views);
            }
        } else {
            bench.now += TICK * u64::from(TICKS_MAX);
            bench.choice.follow(bench.now, &bench.views);
            bench.now += TICK * u64::from(TICKS_MAX);
            bench.choice.follow(bench.now, &bench.views);
        }
        assert_eq!(bench.choice.to_fill(), None, "alike: {are_alike}");
    }
}

#[test]
fn what_a_path_carries_is_remembered_while_it_does_not_work() {
    let carries = [50.0, 20.0];
    let mut bench = Bench::new(&[view(3, None, 20), view(5, None, 160)]);
    bench.run(6, 1, &carries);
    assert!(bench.views.iter().all(|view| view.rate.is_some()));
    // Its controller begins again each time.
    bench.views[1].rate = None;
    bench.full[1] = Duration::ZERO;
    let filled_before: u64 = bench.choice.paths.iter().map(|path| path.filled).sum();
    for _ in 0..5 {
        bench.now += TICK;
        bench.choice.follow(bench.now, &bench.views[..1]);
        bench.run(2, 1, &carries);
        assert_eq!(bench.choice.path_of(0), Some(3));
    }
    assert_eq!(bench.choice.paths.iter().map(|path| path.filled).sum::<u64>(), filled_before);
}

#[test]
fn without_filling_a_flow_tries_the_path_that_is_not_known() {
    for (carries, wanted) in [([50.0, 20.0], 3), ([5.0, 50.0], 5)] {
        let mut bench = Bench::with(PathChoice::new(false, false), &[view(3, None, 20), view(5, None, 160)]);
        bench.run(30, 1, &carries);
        assert_eq!((bench.choice.path_of(0), bench.choice.to_fill()), (Some(wanted), None), "{carries:?}");
    }
}

//! Against a slow oracle: every pass of every station is a step, and the standard's timers are counters that run.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use proptest::prelude::*;
use units::{Duration, Instant, Rate};

use super::*;
use crate::kernel::Simulation;

/// What somebody wants to send, and when.
#[derive(Clone, Copy, Debug)]
struct Wish {
    at_ns: u64,
    from: usize,
    to: usize,
    bytes: u64,
    class: Class,
}

/// (number of the wish, when its first bit left, when its last bit was there)
type Sent = (usize, u64, u64);

/// A ring whose times are all even, so that wishes at odd times meet nothing.
fn small_ring() -> RingConfig {
    RingConfig {
        positions_m: vec![0, 400, 2_000, 2_400, 5_200],
        ttrt: Duration::from_micros(700),
        synchronous: vec![(1, Duration::from_micros(60)), (3, Duration::from_micros(25))],
        queue_frames: 1000,
        ..RingConfig::even(5, 8_000)
    }
}

/// The rules of the standard, one pass at a time, and one nanosecond of each timer at a time in effect: the rotation timer counts
/// down, late counts are counts.
///
/// `others_ns` is when the background's frames come. Its frames are sent, but arrive nowhere.
fn oracle(config: &RingConfig, wishes: &[Wish], others_ns: &[u64], until_ns: u64) -> (Vec<Sent>, Vec<u64>) {
    struct Timers {
        set_at: u64,
        value: u64,
        last: u64,
        rotation: u64,
    }
    let count = config.positions_m.len();
    let ttrt = config.ttrt.as_nanos();
    let mut timers: Vec<_> = (0..count).map(|_| Timers { set_at: 0, value: ttrt, last: 0, rotation: 0 }).collect();
    let mut queues = vec![[VecDeque::new(), VecDeque::new()]; count];
    let mut to_come: VecDeque<(usize, Wish)> = wishes.iter().copied().enumerate().collect();
    let others = config.background.as_ref().map(|others| (others.station, others.frame_bytes));
    let mut others_to_come: VecDeque<u64> = others_ns.iter().copied().collect();
    let mut admit = |now: u64, queues: &mut Vec<[VecDeque<(usize, Wish)>; 2]>| {
        while to_come.front().is_some_and(|(_, wish)| wish.at_ns <= now) {
            let wish = to_come.pop_front().unwrap();
            queues[wish.1.from][wish.1.class as usize].push_back(wish);
        }
        while let Some((from, bytes)) = others.filter(|_| others_to_come.front().is_some_and(|&at_ns| at_ns <= now)) {
            let at_ns = others_to_come.pop_front().unwrap();
            let wish = Wish { at_ns, from, to: from, bytes, class: Class::Asynchronous };
            queues[from][Class::Asynchronous as usize].push_back((usize::MAX, wish));
        }
    };
    let light = |metres: u64| metres * 5_085 / 1000;
    let place = |station: usize| light(config.positions_m[station]) + 600 * station as u64;
    let around = light(config.length_m) + 600 * count as u64;
    let frame_ns = |bytes: u64| (bytes + 28) * 80;
    let (mut sent, mut now, mut station) = (Vec::new(), 0, count - 1);
    loop {
        let next = (station + 1) % count;
        now += if next > station { place(next) - place(station) } else { around - place(station) + place(next) };
        station = next;
        if now > until_ns {
            return (sent, timers.iter().map(|timer| timer.rotation).collect());
        }
        let timer = &mut timers[station];
        timer.rotation = now - timer.last;
        timer.last = now;
        let gone = now - timer.set_at;
        let mut holding = 0;
        if gone < timer.value {
            holding = timer.value - gone;
            (timer.set_at, timer.value) = (now, ttrt);
        } else {
            // It ran out, was set to the target again, and runs: late count 1 goes to 0.
            let over = gone - timer.value;
            assert!(over < ttrt, "late count 2");
            (timer.set_at, timer.value) = (now, ttrt - over);
        }
        let allowance = config.synchronous.iter().find(|of| of.0 == station).map_or(0, |of| of.1.as_nanos());
        let (mut used, arrived) = (0, now);
        for class in [Class::Synchronous, Class::Asynchronous] {
            loop {
                admit(now, &mut queues);
                // A synchronous frame that comes while others of its class are sent may follow them; later it may not.
                let Some(&(number, wish)) = queues[station][class as usize].front() else { break };
                let time = frame_ns(wish.bytes);
                let may = match class {
                    Class::Synchronous => used + time <= allowance,
                    Class::Asynchronous => holding > 0,
                };
                if !may {
                    break;
                }
                queues[station][class as usize].pop_front();
                match class {
                    Class::Synchronous => used += time,
                    Class::Asynchronous => holding = holding.saturating_sub(time),
                }
                let from = place(wish.from);
                let to = place(wish.to);
                let way = if to > from { to - from } else { around + to - from };
                if number != usize::MAX {
                    sent.push((number, now, now + time + way));
                }
                now += time;
            }
        }
        if now > arrived {
            now += 11 * 80;
        }
    }
}

fn simulate(config: &RingConfig, wishes: &[Wish], until_ns: u64) -> (Vec<Sent>, Vec<u64>, u64) {
    let mut simulation = Simulation::new(1, 0);
    let sim = simulation.sim();
    let ring = Ring::new(&sim, "ring", config.clone()).unwrap();
    let sent = Rc::new(RefCell::new(Vec::new()));
    for station in 0..config.positions_m.len() {
        let (sim, sent) = (sim.clone(), Rc::clone(&sent));
        ring.on_delivery(station, move |frame: Frame<usize>| {
            assert_eq!(frame.to, station);
            sent.borrow_mut().push((frame.item, frame.began.as_nanos(), sim.now().as_nanos()));
        });
    }
    let (clock, sender, wishes) = (sim, ring.clone(), wishes.to_vec());
    simulation.spawn(async move {
        for (number, wish) in wishes.into_iter().enumerate() {
            clock.sleep_until(Instant::from_nanos(wish.at_ns)).await;
            sender.enqueue_as(wish.class, wish.from, wish.to, wish.bytes, number).unwrap();
        }
    });
    simulation.run_until(Instant::from_nanos(until_ns));
    let rotations = (0..config.positions_m.len()).map(|station| ring.last_rotation(station).as_nanos()).collect();
    let mut sent = sent.borrow().clone();
    sent.sort_unstable_by_key(|&(_, began, _)| began);
    (sent, rotations, simulation.events())
}

fn wishes(bytes_max: u64, gap_ns_max: u64) -> impl Strategy<Value = Vec<Wish>> {
    let wish = (0..gap_ns_max / 2, 0_usize..5, 1_usize..5, 1..bytes_max, any::<bool>());
    prop::collection::vec(wish, 0..120).prop_map(|drawn| {
        let mut at_ns = 1;
        let wish = |(gap, from, step, bytes, is_synchronous): (u64, usize, usize, u64, bool)| {
            at_ns += 2 * gap;
            let fits_ns = if from == 1 { 60_000 } else { 25_000 };
            let is_synchronous = is_synchronous && (from == 1 || from == 3) && (bytes + 28) * 80 <= fits_ns;
            let class = if is_synchronous { Class::Synchronous } else { Class::Asynchronous };
            Wish { at_ns, from, to: (from + step) % 5, bytes, class }
        };
        drawn.into_iter().map(wish).collect()
    })
}

/// All times of the ring are even, or odd times could meet its own.
#[test]
fn the_ring_of_the_comparison_has_even_times() {
    let config = small_ring();
    assert!(config.positions_m.iter().all(|metres| metres % 400 == 0), "400 m are 2034 ns");
    assert_eq!(config.latency().as_nanos() % 2, 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn every_frame_leaves_and_arrives_when_a_walk_of_every_pass_says(
        wishes in prop_oneof![wishes(4_500, 40_000), wishes(4_500, 400_000), wishes(300, 3_000), wishes(2_000, 40_000_000)],
    ) {
        let config = small_ring();
        let until_ns = wishes.last().map_or(0, |wish| wish.at_ns) + 100_000_001;
        let (expected, expected_rotations) = oracle(&config, &wishes, &[], until_ns);
        let (found, rotations, _) = simulate(&config, &wishes, until_ns);
        prop_assert_eq!(expected.len(), wishes.len());
        prop_assert_eq!(found, expected);
        prop_assert_eq!(rotations, expected_rotations);
    }
}

/// When the background's frames come: the same draws as the ring's own.
fn background_ns(config: &RingConfig, until_ns: u64) -> Vec<u64> {
    let background = config.background.as_ref().unwrap();
    let mut stream = crate::Stream::new(1, 0, "ring background");
    let interval_ns =
        config.frame_time(background.frame_bytes).as_nanos() as f64 * background.batch as f64 / background.share;
    let interval = Duration::from_nanos(interval_ns.round() as u64);
    let mut at_ns = 0;
    let mut come = Vec::new();
    while at_ns <= until_ns {
        at_ns += stream.exponential(interval).as_nanos().max(1);
        come.extend((0..background.batch).map(|_| at_ns));
    }
    come
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn frames_beside_a_background_leave_when_the_walk_says(
        wishes in prop_oneof![wishes(4_500, 400_000), wishes(4_500, 40_000_000)],
        share in prop_oneof![Just(0.1), Just(0.5), Just(0.95), Just(3.0)],
        frame_bytes in prop_oneof![Just(100_u64), Just(4_500)],
        batch in 1_u64..4,
    ) {
        // Whatever station 4 wishes to send, another one does.
        let wishes: Vec<_> =
            wishes.into_iter().map(|wish| Wish { from: wish.from % 4, to: 4, class: Class::Asynchronous, ..wish }).collect();
        let until_ns = wishes.last().map_or(0, |wish| wish.at_ns) + 100_000_001;
        // None is dropped: the walk has no bound.
        let queue_frames = 10_000_000;
        let background =
            Background { station: 4, share, frame_bytes, arrivals: Arrivals::Exponential, batch, queue_frames };
        let config = RingConfig { background: Some(background), ..small_ring() };
        let (mut expected, expected_rotations) = oracle(&config, &wishes, &background_ns(&config, until_ns), until_ns);
        let (found, rotations, _) = simulate(&config, &wishes, until_ns);
        // The walk tells of frames that begin before the end, the simulation of those that have arrived.
        expected.retain(|&(_, _, arrives)| arrives <= until_ns);
        prop_assert_eq!(found, expected);
        prop_assert_eq!(rotations, expected_rotations);
    }
}

#[test]
fn a_frame_that_comes_in_the_nanosecond_of_a_token_takes_it() {
    // A token passes each of two stations every 2 ns, so half of the phases of the background meet it.
    let background = Background {
        station: 1,
        share: 0.001,
        frame_bytes: 100,
        arrivals: Arrivals::Regular,
        batch: 1,
        queue_frames: 10,
    };
    let config = RingConfig {
        length_m: 0,
        positions_m: vec![0, 0],
        station_latency: Duration::from_nanos(1),
        background: Some(background),
        ..small_ring()
    };
    let config = RingConfig { synchronous: Vec::new(), ..config };
    let waits_ns: Vec<f64> = (0..20)
        .map(|run| {
            let mut simulation = Simulation::new(1, run);
            let ring: Ring<()> = Ring::new(&simulation.sim(), "ring", config.clone()).unwrap();
            simulation.run_until(Instant::from_nanos(200_000_000));
            assert!(ring.ring_report().background.sent > 10);
            ring.ring_report().background.mean_wait_ns
        })
        .collect();
    assert!(waits_ns.iter().all(|&wait| wait == 0.0 || wait == 1.0), "{waits_ns:?}");
    assert!(waits_ns.contains(&0.0) && waits_ns.contains(&1.0), "{waits_ns:?}");
}

#[test]
fn an_idle_ring_costs_no_event_and_an_hour_of_it_no_time() {
    let late = Wish { at_ns: 3_600_000_000_001, from: 2, to: 4, bytes: 1000, class: Class::Asynchronous };
    let (sent, rotations, events) = simulate(&small_ring(), &[late], late.at_ns + 10_000_000);
    assert_eq!(sent.len(), 1);
    assert!(sent[0].1 - late.at_ns <= small_ring().latency().as_nanos());
    assert_eq!(rotations, [small_ring().latency().as_nanos(); 5]);
    assert!(events < 10, "{events} events");
}

#[test]
fn the_standards_way_round_is_reproduced() {
    // The largest ring: 1000 stations, 200 km, 1617 us.
    assert_eq!(RingConfig::even(1000, 200_000).latency(), Duration::from_micros(1617));
    assert_eq!(RingConfig::even(20, 20_000).latency(), Duration::from_nanos(113_700));
}

#[test]
fn a_station_that_always_has_frames_gets_what_the_formula_says_and_no_rotation_takes_twice_the_target() {
    // Two stations with asynchronous frames for ever: rotations are TTRT long but for what the last frames run over.
    let config = RingConfig { ttrt: Duration::from_millis(2), ..RingConfig::even(4, 20_000) };
    let mut simulation = Simulation::new(1, 0);
    let sim = simulation.sim();
    let ring = Ring::new(&sim, "ring", config.clone()).unwrap();
    // Eight processes a station: whenever a frame of one has left, those of seven others wait.
    for station in [0, 2].into_iter().flat_map(|station| [station; 8]) {
        let ring = ring.clone();
        simulation.spawn(async move {
            loop {
                ring.send(station, 3, 1000, ()).await;
            }
        });
    }
    simulation.run_until(Instant::from_nanos(1_000_000_000));
    let report = ring.report();
    let (details, ttrt) = (ring.ring_report(), config.ttrt);
    assert!(details.rotation_max < ttrt + ttrt, "{details:?}");
    // Jain's efficiency n (T - D) / (n T + D) for asynchronous traffic, D the way round with the tokens.
    let overhead = (config.latency() + config.token_time() * 2).as_nanos() as f64;
    let target = ttrt.as_nanos() as f64;
    let efficiency = 2.0 * (target - overhead) / (2.0 * target + overhead);
    assert!((report.utilisation / efficiency - 1.0).abs() < 0.02, "{} not {efficiency}", report.utilisation);
}

fn with_background(share: f64, arrivals: Arrivals) -> RingConfig {
    let background = Background { station: 9, share, frame_bytes: 1000, arrivals, batch: 1, queue_frames: 100 };
    RingConfig { background: Some(background), ..RingConfig::even(20, 20_000) }
}

#[test]
fn the_background_takes_its_share_without_an_event() {
    for arrivals in [Arrivals::Exponential, Arrivals::Regular] {
        let mut simulation = Simulation::new(1, 0);
        let sim = simulation.sim();
        let ring: Ring<()> = Ring::new(&sim, "ring", with_background(0.3, arrivals)).unwrap();
        simulation.run_until(Instant::from_nanos(1_000_000_000));
        simulation.reset_statistics();
        simulation.run_until(Instant::from_nanos(5_000_000_000));
        let report = ring.report();
        assert!((report.utilisation - 0.3).abs() < 0.01, "{report:?}");
        let others = ring.ring_report().background;
        assert_eq!(others.dropped, 0);
        assert!(others.offered.abs_diff(others.sent) < 20, "{others:?}");
        assert!(others.mean_wait_ns > 40_000.0, "half a rotation at least: {others:?}");
        assert!(simulation.events() <= 1);
        ring.set_background(0.0);
        simulation.reset_statistics();
        simulation.run_until(Instant::from_nanos(6_000_000_000));
        assert!(ring.report().utilisation < 0.001);
        ring.set_background(2.0);
        simulation.run_until(Instant::from_nanos(10_000_000_000));
        let others = ring.ring_report().background;
        assert!(others.dropped > others.sent / 2, "twice the ring cannot be sent: {others:?}");
    }
}

#[test]
fn looking_at_a_ring_changes_nothing_of_what_happens_there() {
    let trace = |looks: bool| {
        let mut simulation = Simulation::new(7, 3);
        let sim = simulation.sim();
        let ring = Ring::new(&sim, "ring", with_background(0.5, Arrivals::Exponential)).unwrap();
        let log = Rc::new(RefCell::new(Vec::new()));
        let (seen, clock, sender) = (Rc::clone(&log), sim.clone(), ring.clone());
        ring.on_delivery(3, move |frame: Frame<u64>| seen.borrow_mut().push((frame.item, frame.began, clock.now())));
        let clock = sim.clone();
        simulation.spawn(async move {
            let mut gaps = clock.stream("gaps");
            for number in 0..2_000 {
                clock.sleep(gaps.exponential(Duration::from_micros(700))).await;
                sender.send(0, 3, 4_500, number).await;
            }
        });
        if looks {
            let watched = ring.clone();
            simulation.spawn(async move {
                let mut times = sim.stream("looks");
                for _ in 0..20_000 {
                    sim.sleep(times.exponential(Duration::from_micros(50))).await;
                    let _now = (watched.report(), watched.last_rotation(0), watched.ring_report());
                }
            });
        }
        simulation.run();
        assert_eq!(ring.report().served, 2_000);
        log.take()
    };
    let quiet = trace(false);
    assert_eq!(quiet.len(), 2_000);
    assert_eq!(quiet, trace(true));
}

#[test]
fn a_full_queue_refuses_and_who_sends_waits_for_room() {
    let config = RingConfig { queue_frames: 2, ..RingConfig::even(4, 1_000) };
    let mut simulation = Simulation::new(1, 0);
    let sim = simulation.sim();
    let ring = Ring::new(&sim, "ring", config).unwrap();
    let store = Store::new(&sim, "receiver", 4);
    ring.deliver_into(2, store.clone());
    let left = Rc::new(RefCell::new(Vec::new()));
    for item in 0..6_u32 {
        let (ring, left, sim) = (ring.clone(), Rc::clone(&left), sim.clone());
        simulation.spawn(async move {
            ring.send(1, 2, 1_000, item).await;
            left.borrow_mut().push((item, sim.now().as_nanos() / 1_000));
        });
    }
    simulation.run_until(Instant::from_nanos(10));
    assert_eq!((ring.queue_frames(1), ring.queue_bytes(1)), (6, 6_000));
    assert_eq!(ring.enqueue(1, 2, 10, 99), Err(99));
    simulation.run();
    // 82.24 us a frame, all with one token that came early.
    let times: Vec<u64> = left.borrow().iter().map(|&(_, at)| at).collect();
    assert!(times.windows(2).all(|pair| (82..=83).contains(&(pair[1] - pair[0]))), "{times:?}");
    assert_eq!((store.len(), ring.refused(), ring.report().served), (4, 2, 6));
}

#[test]
fn a_ring_that_cannot_be_is_refused_by_the_name_of_its_key() {
    let good = RingConfig::even(20, 20_000);
    let others = with_background(0.3, Arrivals::Regular).background.unwrap();
    let cases = [
        (RingConfig::even(1, 1_000), "positions_m"),
        (RingConfig { positions_m: vec![0, 30_000], ..good.clone() }, "positions_m"),
        (RingConfig { positions_m: vec![10, 5], ..good.clone() }, "positions_m"),
        (RingConfig { rate: Rate::from_bps(0), ..good.clone() }, "rate"),
        (RingConfig { queue_frames: 0, ..good.clone() }, "queue_frames"),
        (RingConfig { ttrt: Duration::from_micros(400), ..good.clone() }, "ttrt"),
        (RingConfig { synchronous: vec![(3, Duration::from_millis(8))], ..good.clone() }, "ttrt"),
        (RingConfig { synchronous: vec![(20, Duration::from_millis(1))], ..good.clone() }, "synchronous"),
        (
            RingConfig { background: Some(Background { share: f64::NAN, ..others.clone() }), ..good.clone() },
            "background.share",
        ),
        (
            RingConfig { background: Some(Background { station: 20, ..others.clone() }), ..good.clone() },
            "background.station",
        ),
        (
            RingConfig { background: Some(Background { batch: 101, ..others.clone() }), ..good.clone() },
            "background.queue_frames",
        ),
    ];
    assert_eq!(good.validate(), Ok(()));
    for (config, key) in cases {
        assert_eq!(config.validate().unwrap_err().key, key, "{config:?}");
    }
}

#[test]
fn a_run_that_is_dropped_drops_its_rings() {
    let alive = Rc::new(());
    let simulation = Simulation::new(1, 0);
    let ring: Ring<()> = Ring::new(&simulation.sim(), "ring", RingConfig::even(4, 1_000)).unwrap();
    let (inside, held) = (ring.clone(), Rc::clone(&alive));
    ring.on_delivery(2, move |_| {
        let _both = (&inside, &held);
    });
    drop(ring);
    assert_eq!(Rc::strong_count(&alive), 2);
    drop(simulation);
    assert_eq!(Rc::strong_count(&alive), 1);
}

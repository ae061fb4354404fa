//! Compares the ring with a slow oracle that steps through every token pass and implements the
//! standard's timers as counters.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use proptest::prelude::*;
use units::{Duration, Instant, Rate};

use super::*;
use crate::kernel::Simulation;

/// A frame to send.
#[derive(Clone, Copy, Debug)]
struct Request {
    at_ns: u64,
    from: usize,
    to: usize,
    bytes: u64,
    class: Class,
}

/// (index of the request, when the first bit was sent, when the last bit arrived)
type Sent = (usize, u64, u64);

/// A ring whose times are all even, so that requests at odd times never coincide with its own
/// events.
fn small_ring() -> RingConfig {
    RingConfig {
        positions_m: vec![0, 400, 2_000, 2_400, 5_200],
        ttrt: Duration::from_micros(700),
        synchronous: vec![(1, Duration::from_micros(60)), (3, Duration::from_micros(25))],
        queue_frames: 1000,
        ..RingConfig::even(5, 8_000)
    }
}

/// The timers of one station, in nanoseconds.
struct Timers {
    set_at: u64,
    value: u64,
    last: u64,
    rotation: u64,
}

impl Timers {
    /// Processes the arrival of the token; returns how long the station may send asynchronous
    /// frames.
    fn token_arrives(&mut self, now: u64, ttrt: u64) -> u64 {
        self.rotation = now - self.last;
        self.last = now;
        let gone = now - self.set_at;
        if gone < self.value {
            let holding = self.value - gone;
            (self.set_at, self.value) = (now, ttrt);
            return holding;
        }
        // The timer expired, was set to the target again and is running: the late count goes from
        // 1 to 0.
        let over = gone - self.value;
        assert!(over < ttrt, "late count 2");
        (self.set_at, self.value) = (now, ttrt - over);
        0
    }
}

/// Runs the standard's rules, one token pass at a time, with a rotation timer that counts down and
/// late counts that are counters. `background_ns` are the arrivals of the background's frames,
/// which are sent and have no receiver.
fn oracle(config: &RingConfig, requests: &[Request], background_ns: &[u64], until_ns: u64) -> (Vec<Sent>, Vec<u64>) {
    let count = config.positions_m.len();
    let ttrt = config.ttrt.as_nanos();
    let mut timers: Vec<_> = (0..count).map(|_| Timers { set_at: 0, value: ttrt, last: 0, rotation: 0 }).collect();
    let mut queues = vec![[VecDeque::new(), VecDeque::new()]; count];
    let mut to_come: VecDeque<(usize, Request)> = requests.iter().copied().enumerate().collect();
    let background = config.background.as_ref().map(|background| (background.station, background.frame_bytes));
    let mut background_arrivals: VecDeque<u64> = background_ns.iter().copied().collect();
    let mut admit = |now: u64, queues: &mut Vec<[VecDeque<(usize, Request)>; 2]>| {
        while to_come.front().is_some_and(|(_, request)| request.at_ns <= now) {
            let request = to_come.pop_front().unwrap();
            queues[request.1.from][request.1.class as usize].push_back(request);
        }
        while let Some((from, bytes)) =
            background.filter(|_| background_arrivals.front().is_some_and(|&at_ns| at_ns <= now))
        {
            let at_ns = background_arrivals.pop_front().unwrap();
            let request = Request { at_ns, from, to: from, bytes, class: Class::Asynchronous };
            queues[from][Class::Asynchronous as usize].push_back((usize::MAX, request));
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
        let mut holding = timers[station].token_arrives(now, ttrt);
        let allowance = config.synchronous.iter().find(|of| of.0 == station).map_or(0, |of| of.1.as_nanos());
        let (mut used, arrived) = (0, now);
        for class in [Class::Synchronous, Class::Asynchronous] {
            loop {
                admit(now, &mut queues);
                // A synchronous frame that arrives while frames of its class are being sent may
                // follow them; later it may not.
                let Some(&(number, request)) = queues[station][class as usize].front() else { break };
                let time = frame_ns(request.bytes);
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
                let from = place(request.from);
                let to = place(request.to);
                let propagation = if to > from { to - from } else { around + to - from };
                if number != usize::MAX {
                    sent.push((number, now, now + time + propagation));
                }
                now += time;
            }
        }
        if now > arrived {
            now += 11 * 80;
        }
    }
}

fn simulate(config: &RingConfig, requests: &[Request], until_ns: u64) -> (Vec<Sent>, Vec<u64>, u64) {
    let mut simulation = Simulation::new(1, 0);
    let sim = simulation.sim();
    let ring = Ring::new(&sim, "ring", config.clone()).unwrap();
    let sent = Rc::new(RefCell::new(Vec::new()));
    for station in 0..config.positions_m.len() {
        let (sim, sent) = (sim.clone(), Rc::clone(&sent));
        ring.on_delivery(station, move |frame: FddiFrame<usize>| {
            assert_eq!(frame.to, station);
            sent.borrow_mut().push((frame.item, frame.began.as_nanos(), sim.now().as_nanos()));
        });
    }
    let (clock, sender, requests) = (sim, ring.clone(), requests.to_vec());
    simulation.spawn(async move {
        for (number, request) in requests.into_iter().enumerate() {
            clock.sleep_until(Instant::from_nanos(request.at_ns)).await;
            sender.enqueue_as(request.class, request.from, request.to, request.bytes, number).unwrap();
        }
    });
    simulation.run_until(Instant::from_nanos(until_ns));
    let rotations = (0..config.positions_m.len()).map(|station| ring.last_rotation(station).as_nanos()).collect();
    let mut sent = sent.borrow().clone();
    sent.sort_unstable_by_key(|&(_, began, _)| began);
    (sent, rotations, simulation.events())
}

fn requests(bytes_max: u64, gap_ns_max: u64) -> impl Strategy<Value = Vec<Request>> {
    let request = (0..gap_ns_max / 2, 0_usize..5, 1_usize..5, 1..bytes_max, any::<bool>());
    prop::collection::vec(request, 0..120).prop_map(|drawn| {
        let mut at_ns = 1;
        let request = |(gap, from, step, bytes, is_synchronous): (u64, usize, usize, u64, bool)| {
            at_ns += 2 * gap;
            let fits_ns = if from == 1 { 60_000 } else { 25_000 };
            let is_synchronous = is_synchronous && (from == 1 || from == 3) && (bytes + 28) * 80 <= fits_ns;
            let class = if is_synchronous { Class::Synchronous } else { Class::Asynchronous };
            Request { at_ns, from, to: (from + step) % 5, bytes, class }
        };
        drawn.into_iter().map(request).collect()
    })
}

/// Checks that all times of the ring are even; otherwise requests at odd times could coincide with
/// its events.
#[test]
fn the_ring_of_the_comparison_has_even_times() {
    let config = small_ring();
    assert!(config.positions_m.iter().all(|metres| metres % 400 == 0), "400 m are 2034 ns");
    assert_eq!(config.latency().as_nanos() % 2, 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn frame_times_match_a_simulation_of_every_pass(
        requests in prop_oneof![
            requests(4_500, 40_000), requests(4_500, 400_000), requests(300, 3_000), requests(2_000, 40_000_000)],
    ) {
        let config = small_ring();
        let until_ns = requests.last().map_or(0, |request| request.at_ns) + 100_000_001;
        let (expected, expected_rotations) = oracle(&config, &requests, &[], until_ns);
        let (found, rotations, _) = simulate(&config, &requests, until_ns);
        prop_assert_eq!(expected.len(), requests.len());
        prop_assert_eq!(found, expected);
        prop_assert_eq!(rotations, expected_rotations);
    }
}

/// Returns the arrivals of the background's frames: the same draws as in the ring.
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
    fn frame_times_beside_a_background_match_the_oracle(
        requests in prop_oneof![requests(4_500, 400_000), requests(4_500, 40_000_000)],
        share in prop_oneof![Just(0.1), Just(0.5), Just(0.95), Just(3.0)],
        frame_bytes in prop_oneof![Just(100_u64), Just(4_500)],
        batch in 1_u64..4,
    ) {
        // Station 4 is the background; requests of it move to another station.
        let requests: Vec<_> = requests
            .into_iter()
            .map(|request| Request { from: request.from % 4, to: 4, class: Class::Asynchronous, ..request })
            .collect();
        let until_ns = requests.last().map_or(0, |request| request.at_ns) + 100_000_001;
        // No frame is dropped: the oracle has no queue limit.
        let queue_frames = 10_000_000;
        let background =
            Background { station: 4, share, frame_bytes, arrivals: Arrivals::Exponential, batch, queue_frames };
        let config = RingConfig { background: Some(background), ..small_ring() };
        let (mut expected, expected_rotations) =
            oracle(&config, &requests, &background_ns(&config, until_ns), until_ns);
        let (found, rotations, _) = simulate(&config, &requests, until_ns);
        // The oracle reports frames that start before the end, the simulation those that have
        // arrived.
        expected.retain(|&(_, _, arrives)| arrives <= until_ns);
        prop_assert_eq!(found, expected);
        prop_assert_eq!(rotations, expected_rotations);
    }
}

#[test]
fn a_frame_that_arrives_in_the_same_nanosecond_as_the_token_uses_it() {
    // A token passes each of two stations every 2 ns, so half of the background's phases coincide
    // with it.
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
fn an_idle_ring_costs_no_events() {
    let late = Request { at_ns: 3_600_000_000_001, from: 2, to: 4, bytes: 1000, class: Class::Asynchronous };
    let (sent, rotations, events) = simulate(&small_ring(), &[late], late.at_ns + 10_000_000);
    assert_eq!(sent.len(), 1);
    assert!(sent[0].1 - late.at_ns <= small_ring().latency().as_nanos());
    assert_eq!(rotations, [small_ring().latency().as_nanos(); 5]);
    assert!(events < 10, "{events} events");
}

#[test]
fn the_maximum_latency_of_the_standard_is_reproduced() {
    // The largest ring: 1000 stations, 200 km, 1617 us.
    assert_eq!(RingConfig::even(1000, 200_000).latency(), Duration::from_micros(1617));
    assert_eq!(RingConfig::even(20, 20_000).latency(), Duration::from_nanos(113_700));
}

#[test]
fn saturated_stations_reach_the_formulas_efficiency_within_twice_the_target() {
    // Two stations that always have asynchronous frames: rotations take TTRT plus the overrun of
    // the last frames.
    let config = RingConfig { ttrt: Duration::from_millis(2), ..RingConfig::even(4, 20_000) };
    let mut simulation = Simulation::new(1, 0);
    let sim = simulation.sim();
    let ring = Ring::new(&sim, "ring", config.clone()).unwrap();
    // Eight processes per station: whenever a frame has been sent, those of seven others wait.
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
    // Jain's efficiency n (T - D) / (n T + D) for asynchronous traffic, where D is the ring latency
    // including tokens.
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
fn background_load_costs_no_events() {
    for arrivals in [Arrivals::Exponential, Arrivals::Regular] {
        let mut simulation = Simulation::new(1, 0);
        let sim = simulation.sim();
        let ring: Ring<()> = Ring::new(&sim, "ring", with_background(0.3, arrivals)).unwrap();
        simulation.run_until(Instant::from_nanos(1_000_000_000));
        simulation.reset_statistics();
        simulation.run_until(Instant::from_nanos(5_000_000_000));
        let report = ring.report();
        assert!((report.utilisation - 0.3).abs() < 0.01, "{report:?}");
        let background = ring.ring_report().background;
        assert_eq!(background.dropped, 0);
        assert!(background.offered.abs_diff(background.sent) < 20, "{background:?}");
        assert!(background.mean_wait_ns > 40_000.0, "at least half a rotation: {background:?}");
        assert!(simulation.events() <= 1);
        ring.set_background(0.0);
        simulation.reset_statistics();
        simulation.run_until(Instant::from_nanos(6_000_000_000));
        assert!(ring.report().utilisation < 0.001);
        ring.set_background(2.0);
        simulation.run_until(Instant::from_nanos(10_000_000_000));
        let background = ring.ring_report().background;
        assert!(background.dropped > background.sent / 2, "twice the capacity cannot be sent: {background:?}");
    }
}

#[test]
fn reading_the_state_of_a_ring_does_not_change_the_run() {
    let trace = |looks: bool| {
        let mut simulation = Simulation::new(7, 3);
        let sim = simulation.sim();
        let ring = Ring::new(&sim, "ring", with_background(0.5, Arrivals::Exponential)).unwrap();
        let log = Rc::new(RefCell::new(Vec::new()));
        let (seen, clock, sender) = (Rc::clone(&log), sim.clone(), ring.clone());
        ring.on_delivery(3, move |frame: FddiFrame<u64>| {
            seen.borrow_mut().push((frame.item, frame.began, clock.now()))
        });
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
fn a_full_queue_refuses_frames_and_senders_wait_for_space() {
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
    // 82.24 us per frame, all with one token that was early.
    let times: Vec<u64> = left.borrow().iter().map(|&(_, at)| at).collect();
    assert!(times.windows(2).all(|pair| (82..=83).contains(&(pair[1] - pair[0]))), "{times:?}");
    assert_eq!((store.len(), ring.refused(), ring.report().served), (4, 2, 6));
}

#[test]
fn an_invalid_ring_is_rejected_by_key() {
    let good = RingConfig::even(20, 20_000);
    let background = with_background(0.3, Arrivals::Regular).background.unwrap();
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
            RingConfig { background: Some(Background { share: f64::NAN, ..background.clone() }), ..good.clone() },
            "background.share",
        ),
        (
            RingConfig { background: Some(Background { station: 20, ..background.clone() }), ..good.clone() },
            "background.station",
        ),
        (
            RingConfig { background: Some(Background { batch: 101, ..background.clone() }), ..good.clone() },
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

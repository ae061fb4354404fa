//! Compares simulated systems with exact theoretical results.
//!
//! Each figure has a confidence interval from independent runs. The formula must lie within it, and
//! the interval must be narrow enough to exclude a similar but wrong model. Seeds are fixed, so the
//! results are reproducible.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use measure::Estimate;
use netem::LinkConfig;
use sim::hardware::atm::{AtmConfig, AtmLine};
use sim::hardware::fddi::{FddiFrame, Ring, RingConfig};
use sim::hardware::line::Line;
use sim::hardware::{
    Bus, BusConfig, Forwarding, Memory, MemoryConfig, Mesh, MeshConfig, Priority, Topology, Transactions, Transputer,
};
use sim::{ComponentReport, Facility, Replications, Sim, Simulation, Stopwatch, Store};
use units::{Duration, Rate};

/// Confidence level: a correct formula lies outside one interval in a thousand.
const CONFIDENCE: f64 = 0.999;
const SEED: u64 = 1994;
/// Mean service time of the queues here.
const SERVICE: Duration = Duration::from_micros(10);

fn assert_holds(name: &str, estimate: Estimate, formula: f64, wrong: f64) {
    let (low, high) = estimate.range();
    assert!(low <= formula && formula <= high, "{name}: {formula} is not in {low}..{high}");
    assert!(wrong < low || high < wrong, "{name}: {low}..{high} does not distinguish {formula} from {wrong}");
}

#[derive(Clone, Copy)]
enum Law {
    Exponential,
    Fixed,
}

/// A single-server queue with Poisson arrivals and service times of distribution `law`.
fn single_queue(seed: u64, run: u64, load: f64, law: Law) -> ComponentReport {
    let mut simulation = Simulation::new(seed, run);
    let sim = simulation.sim();
    let server = Facility::new(&sim, "server", 1);
    let queue = server.clone();
    let gap = Duration::from_nanos((SERVICE.as_nanos() as f64 / load) as u64);
    simulation.spawn(async move {
        let (mut gaps, mut services) = (sim.stream("gaps"), sim.stream("services"));
        loop {
            sim.sleep(gaps.exponential(gap)).await;
            let service = match law {
                Law::Exponential => services.exponential(SERVICE),
                Law::Fixed => SERVICE,
            };
            let queue = queue.clone();
            sim.spawn(async move {
                queue.serve(service).await;
            });
        }
    });
    simulation.run_measured(Duration::from_millis(20), Duration::from_millis(600));
    server.report()
}

fn figures(report: &ComponentReport) -> Vec<f64> {
    let in_services = |time: Duration| time.as_nanos() as f64 / SERVICE.as_nanos() as f64;
    vec![report.utilisation, in_services(report.mean_wait), in_services(report.mean_sojourn), report.mean_number]
}

fn estimates(law: Law, load: f64) -> Vec<Estimate> {
    let plan = Replications { confidence: CONFIDENCE, ..Replications::new(SEED, 24) };
    plan.estimate(|seed, run| single_queue(seed, run, load, law), figures).estimates
}

#[test]
fn exponential_service_matches_m_m_1() {
    let load = 0.7;
    let found = estimates(Law::Exponential, load);
    let wait = load / (1.0 - load);
    // Wrong: the waits of fixed service times, or another load.
    assert_holds("utilisation", found[0], load, load * 1.03);
    assert_holds("wait", found[1], wait, wait / 2.0);
    assert_holds("sojourn", found[2], wait + 1.0, wait * 1.1 + 1.0);
    assert_holds("number", found[3], load / (1.0 - load), load / (1.0 - load) * 1.1);
}

#[test]
fn fixed_service_matches_m_d_1() {
    let load = 0.7;
    let found = estimates(Law::Fixed, load);
    let wait = load / (2.0 * (1.0 - load));
    assert_holds("utilisation", found[0], load, load * 1.03);
    assert_holds("wait", found[1], wait, wait * 1.1);
    assert_holds("sojourn", found[2], wait + 1.0, wait * 2.0 + 1.0);
    assert_holds("number", found[3], load * (wait + 1.0), load * (wait * 1.1 + 1.0));
}

/// Routing probabilities from each of the three queues to queues 0, 1 and 2; otherwise the customer
/// leaves.
const ROUTES: [[f64; 3]; 3] = [[0.0, 0.5, 0.3], [0.4, 0.0, 0.2], [0.3, 0.3, 0.0]];
/// Mean interarrival times from outside, and mean service times, in microseconds.
const COMING_US: [u64; 3] = [40, 0, 100];
const SERVING_US: [u64; 3] = [14, 22, 25];

/// Returns the arrivals per microsecond at each queue, from outside and from other queues, by
/// iteration.
fn traffic() -> [f64; 3] {
    let mut rates = [0.0; 3];
    for _ in 0..200 {
        let before = rates;
        for (queue, rate) in rates.iter_mut().enumerate() {
            let outside = if COMING_US[queue] == 0 { 0.0 } else { 1.0 / COMING_US[queue] as f64 };
            *rate = outside + (0..3).map(|from| before[from] * ROUTES[from][queue]).sum::<f64>();
        }
    }
    rates
}

async fn visit_queues(sim: Sim, queues: [Facility; 3], first: usize, streams: Rc<RefCell<[sim::Stream; 2]>>) {
    let mut at = Some(first);
    while let Some(queue) = at {
        let service = streams.borrow_mut()[0].exponential(Duration::from_micros(SERVING_US[queue]));
        queues[queue].serve(service).await;
        let mut choice = streams.borrow_mut()[1].unit();
        at = (0..3).find(|&to| {
            choice -= ROUTES[queue][to];
            choice < 0.0
        });
    }
    // The customer leaves the network.
    let _end = sim.now();
}

fn network(seed: u64, run: u64) -> Vec<f64> {
    let mut simulation = Simulation::new(seed, run);
    let sim = simulation.sim();
    let queues = [0, 1, 2].map(|index| Facility::new(&sim, &format!("queue {index}"), 1));
    let streams = Rc::new(RefCell::new([sim.stream("services"), sim.stream("routes")]));
    for (queue, mean) in COMING_US.into_iter().enumerate().filter(|&(_, mean)| mean > 0) {
        let (sim, queues, streams) = (sim.clone(), queues.clone(), Rc::clone(&streams));
        simulation.spawn(async move {
            let mut gaps = sim.stream(&format!("gaps {queue}"));
            loop {
                sim.sleep(gaps.exponential(Duration::from_micros(mean))).await;
                sim.spawn(visit_queues(sim.clone(), queues.clone(), queue, Rc::clone(&streams)));
            }
        });
    }
    simulation.run_measured(Duration::from_millis(20), Duration::from_millis(700));
    queues.iter().flat_map(|queue| [queue.report().utilisation, queue.report().mean_number]).collect()
}

#[test]
fn three_queues_with_feedback_match_jackson() {
    let plan = Replications { confidence: CONFIDENCE, ..Replications::new(SEED, 24) };
    let found = plan.estimate(network, Clone::clone).estimates;
    for (queue, rate) in traffic().into_iter().enumerate() {
        let load = rate * SERVING_US[queue] as f64;
        assert!((0.5..0.9).contains(&load), "queue {queue} has load {load}");
        let number = load / (1.0 - load);
        // Wrong: almost no feedback, or service times that are not exponential (M/D/1).
        assert_holds(&format!("utilisation {queue}"), found[2 * queue], load, load * 0.95);
        assert_holds(
            &format!("number {queue}"),
            found[2 * queue + 1],
            number,
            load + load * load / (2.0 * (1.0 - load)),
        );
    }
}

/// A ring on which all `senders` stations always have frames: its utilisation, and the longest time
/// of a station from the end of its use of a token to the next one.
fn saturated_ring(config: RingConfig, senders: usize, bytes: u64) -> (f64, Duration) {
    let mut simulation = Simulation::new(SEED, 0);
    let sim = simulation.sim();
    let frame_time = config.frame_time(bytes);
    let ring = Ring::new(&sim, "ring", config).unwrap();
    let longest = Rc::new(Cell::new(Duration::ZERO));
    let last_end = Rc::new(RefCell::new(vec![None; senders]));
    let (seen, ends) = (Rc::clone(&longest), Rc::clone(&last_end));
    ring.on_delivery(senders, move |frame: FddiFrame<()>| {
        if let Some(end) = ends.borrow()[frame.from] {
            seen.set(seen.get().max(frame.began.saturating_since(end)));
        }
        ends.borrow_mut()[frame.from] = Some(frame.began + frame_time);
    });
    // Eight processes per station: whenever a frame has been sent, those of seven others wait.
    for station in (0..senders).flat_map(|station| [station; 8]) {
        let ring = ring.clone();
        simulation.spawn(async move {
            loop {
                ring.send(station, senders, bytes, ()).await;
            }
        });
    }
    simulation.run_measured(Duration::from_millis(500), Duration::from_millis(1_500));
    (ring.report().utilisation, longest.get())
}

/// Jain, "Performance analysis of FDDI token ring networks" (1991): n saturated stations, target T,
/// ring latency D.
#[test]
fn a_saturated_ring_matches_the_formulas_of_efficiency_and_access_delay() {
    for (senders, target_ms, length_m) in [(1, 4, 100_000), (4, 4, 50_000), (16, 3, 100_000)] {
        let target = Duration::from_millis(target_ms);
        let config = RingConfig { ttrt: target, ..RingConfig::even(senders + 1, length_m) };
        // Short frames, since the formulas ignore overrun.
        let bytes = 97;
        let (n, t) = (senders as f64, target.as_nanos() as f64);
        let d = config.latency().as_nanos() as f64;
        // Beyond the formulas, a rotation includes up to one overrunning frame and one token
        // transmission per sending station.
        let grain = (config.frame_time(bytes) + config.token_time() * senders as u64).as_nanos() as f64;
        let (efficiency, access) = saturated_ring(config, senders, bytes);
        let formula = n * (t - d) / (n * t + d);
        assert!((efficiency - formula).abs() < grain / t, "{senders} stations: {efficiency}, not {formula}");
        // This occurs when all stations start together; later, overruns distribute the token uses
        // differently.
        let worst = (n - 1.0) * t + 2.0 * d;
        let found = access.as_nanos() as f64;
        assert!((found - worst).abs() < (n + 1.0) * grain, "{senders} stations: {found} ns, not {worst}");
        // A ring that passes the token after each frame, or holds it for TTRT, is far from the
        // formulas.
        let held = n * t / (n * t + d);
        assert!((held - formula).abs() > 3.0 * grain / t);
    }
}

/// A single frame on an idle ring waits for half a rotation on average.
#[test]
fn a_single_frame_waits_for_half_a_rotation_of_an_idle_ring() {
    let config = RingConfig::even(20, 20_000);
    let rotation = config.latency();
    let mut simulation = Simulation::new(SEED, 0);
    let sim = simulation.sim();
    let ring = Ring::new(&sim, "ring", config).unwrap();
    let sender = ring.clone();
    simulation.spawn(async move {
        let mut gaps = sim.stream("gaps");
        for _ in 0..20_000 {
            // Arrivals are so rare that no two frames meet.
            sim.sleep(Duration::from_millis(1) + gaps.exponential(Duration::from_millis(1))).await;
            sender.enqueue(3, 9, 100, ()).unwrap();
        }
    });
    simulation.run();
    let wait = ring.report().mean_wait.as_nanos() as f64;
    let half = rotation.as_nanos() as f64 / 2.0;
    assert!((wait / half - 1.0).abs() < 0.02, "{wait} ns, not {half}");
}

/// Calls `work` with a number at the times of a Poisson process, on average every 100 us, whether
/// or not earlier calls have completed.
fn at_random<F: Future<Output = ()> + 'static>(simulation: &Simulation, name: &str, work: impl Fn(u64) -> F + 'static) {
    let (clock, mut gaps) = (simulation.sim(), simulation.sim().stream(name));
    simulation.spawn(async move {
        for number in 0_u64.. {
            clock.sleep(gaps.exponential(Duration::from_micros(100))).await;
            clock.spawn(work(number));
        }
    });
}

/// A facility, a store behind it and a ring behind that.
fn facility_store_and_ring(simulation: &Simulation) {
    let sim = simulation.sim();
    let (server, store) = (Facility::new(&sim, "desk", 3), Store::new(&sim, "store", 16));
    let ring = Ring::new(&sim, "ring", RingConfig::even(4, 1_000)).unwrap();
    ring.on_delivery(2, |_: FddiFrame<u64>| {});
    let (source, queue, clock) = (server.clone(), store.clone(), sim.clone());
    simulation.spawn(async move {
        let mut gaps = clock.stream("gaps");
        for number in 0_u64.. {
            clock.sleep(gaps.exponential(Duration::from_micros(100))).await;
            let (server, queue, service) =
                (source.clone(), queue.clone(), gaps.exponential(Duration::from_micros(200)));
            clock.spawn(async move {
                server.serve(service).await;
                queue.put(number).await;
            });
        }
    });
    let (queue, sender) = (store, ring);
    simulation.spawn(async move {
        loop {
            let number = queue.take().await;
            sender.send(0, 2, 500 + number % 500, number).await;
        }
    });
}

/// A lossless packet line and an ATM line.
fn lines(simulation: &Simulation) {
    let sim = simulation.sim();
    let config = LinkConfig {
        rate: Some(Rate::from_mbps(100)),
        delay: Duration::from_millis(3),
        queue_bytes: 1 << 30,
        ..LinkConfig::default()
    };
    let line = Line::new(&sim, "line", config).unwrap();
    line.on_delivery(|_| {});
    at_random(simulation, "packets", move |number| {
        line.send(500 + number as usize % 500, ());
        std::future::ready(())
    });
    let cells = AtmLine::new(&sim, "cells", AtmConfig::oc3(2, Duration::from_micros(50))).unwrap();
    (0..2).for_each(|circuit| cells.on_delivery(circuit, |_| {}));
    at_random(simulation, "frames", move |number| {
        let cells = cells.clone();
        async move { cells.send(number as usize % 2, 500 + number % 800, ()).await }
    });
}

/// A mesh, a transputer, and a bus that is held while a memory works.
fn machines(simulation: &Simulation) {
    let sim = simulation.sim();
    let torus = MeshConfig {
        topology: Topology::Mesh { columns: 3, rows: 3, wraps: true },
        forwarding: Forwarding::Wormhole,
        rate: Rate::from_mbps(100),
        startup: Duration::from_micros(5),
        hop: Duration::from_micros(1),
    };
    let mesh = Mesh::new(&sim, "mesh", torus).unwrap();
    at_random(simulation, "messages", move |number| {
        let mesh = mesh.clone();
        // Never to itself: that takes no time and is not counted.
        let (from, to) = (number as usize % 9, (number as usize % 9 + 1 + number as usize % 8) % 9);
        async move { mesh.transfer(from, to, 500 + number % 500).await }
    });
    let transputer = Transputer::new(&sim, "transputer", Duration::from_micros(1));
    let processes = [Priority::Low, Priority::High].map(|priority| transputer.process(priority));
    at_random(simulation, "work", move |number| {
        let process = processes[number as usize % 2].clone();
        async move { process.run(Duration::from_micros(20 + number % 50)).await }
    });
    let (rate, transactions) = (Rate::from_mbps(800), Transactions::Held);
    let bus = Bus::new(&sim, "bus", BusConfig { rate, width_bits: 32, transactions, single_cycles: 1 }).unwrap();
    let config = MemoryConfig { word_ns: 80, word_bits: 32, burst_words: 500, ports: 1 };
    let memory = Memory::new(&sim, "memory", config).unwrap();
    let accesses = Stopwatch::new(&sim, "accesses");
    at_random(simulation, "accesses", move |number| {
        let (bus, memory, accesses) = (bus.clone(), memory.clone(), accesses.clone());
        async move {
            accesses.time(bus.access(&memory, 300 + number % 400)).await;
        }
    });
}

/// Little's law as in textbooks, number = rate times time, for every kind of component over a long
/// run, independently of the exact internal check.
#[test]
fn littles_law_holds_for_every_component() {
    let mut simulation = Simulation::new(SEED, 1);
    facility_store_and_ring(&simulation);
    lines(&simulation);
    machines(&simulation);
    let span = Duration::from_secs(20);
    simulation.run_measured(Duration::from_secs(1), span);
    let reports = simulation.reports();
    let names: Vec<_> = reports.iter().map(|report| report.name.as_str()).collect();
    let all = ["accesses", "bus", "cells", "desk", "line", "memory", "mesh", "ring", "store", "transputer"];
    assert_eq!(names, all);
    for report in reports {
        assert!(report.served > 100_000, "{report:?}");
        let rate = report.served as f64 / span.as_nanos() as f64;
        let product = rate * report.mean_sojourn.as_nanos() as f64;
        // The differences are customers present at either end and sojourn times rounded to a
        // nanosecond.
        assert!((product / report.mean_number - 1.0).abs() < 0.001, "{product}: {report:?}");
    }
}

/// No packet is lost or duplicated between ring, queues and servers: what was sent equals what came
/// out plus what is present.
#[test]
fn packets_are_conserved_at_all_times() {
    let mut simulation = Simulation::new(SEED, 2);
    let sim = simulation.sim();
    let config = RingConfig { queue_frames: 8, ..RingConfig::even(6, 10_000) };
    let ring = Ring::new(&sim, "ring", config).unwrap();
    let store = Store::new(&sim, "store", 4);
    let (offered, turned_away, taken) = (Rc::new(Cell::new(0_u64)), Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    let add = |counter: &Cell<u64>| counter.set(counter.get() + 1);
    ring.deliver_into(5, store.clone());
    for station in 0..4 {
        let (ring, sim) = (ring.clone(), sim.clone());
        let (offered, turned_away) = (Rc::clone(&offered), Rc::clone(&turned_away));
        simulation.spawn(async move {
            let mut gaps = sim.stream(&format!("gaps {station}"));
            loop {
                sim.sleep(gaps.exponential(Duration::from_micros(250))).await;
                add(&offered);
                if ring.enqueue(station, 5, 800, station).is_err() {
                    add(&turned_away);
                }
            }
        });
    }
    let (queue, consumed, clock) = (store.clone(), Rc::clone(&taken), sim);
    simulation.spawn(async move {
        let mut pauses = clock.stream("meals");
        loop {
            queue.take().await;
            add(&consumed);
            clock.sleep(pauses.exponential(Duration::from_micros(90))).await;
        }
    });
    for _ in 0..2_000 {
        let next = simulation.sim().now() + Duration::from_nanos(737_373);
        simulation.run_until(next);
        let queued: usize = (0..4).map(|station| ring.queue_frames(station)).sum();
        let there =
            taken.get() + turned_away.get() + ring.refused() + (queued + store.len() + ring.frames_in_flight()) as u64;
        assert_eq!(there, offered.get());
    }
    assert!(turned_away.get() > 100 && ring.refused() > 100 && taken.get() > 10_000, "every outcome occurred");
}

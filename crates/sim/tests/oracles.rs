//! Simulated systems against what theory says of them exactly.
//!
//! Each figure comes with its interval from independent runs; the formula must lie in it, and the interval must be so narrow that
//! a nearby wrong model lies outside. Seeds are fixed, so a test that holds once holds always.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use measure::Estimate;
use netem::LinkConfig;
use sim::hardware::atm::{AtmConfig, AtmLine};
use sim::hardware::fddi::{Frame, Ring, RingConfig};
use sim::hardware::line::Line;
use sim::hardware::{
    Bus, BusConfig, Forwarding, Memory, MemoryConfig, Mesh, MeshConfig, Priority, Topology, Transactions, Transputer,
};
use sim::{Facility, Replications, Report, Sim, Simulation, Store, Watch};
use units::{Duration, Rate};

/// How sure the intervals are: a right formula lies outside of one in a thousand.
const CONFIDENCE: f64 = 0.999;
const SEED: u64 = 1994;
/// Mean service time of the queues here.
const SERVICE: Duration = Duration::from_micros(10);

fn assert_holds(name: &str, estimate: Estimate, formula: f64, wrong: f64) {
    let (low, high) = estimate.range();
    assert!(low <= formula && formula <= high, "{name}: {formula} is not in {low}..{high}");
    assert!(wrong < low || high < wrong, "{name}: {low}..{high} does not tell {formula} from {wrong}");
}

#[derive(Clone, Copy)]
enum Law {
    Exponential,
    Fixed,
}

/// Customers that come to one server without knowing of each other, and keep it for times of `law`.
fn single_queue(seed: u64, run: u64, load: f64, law: Law) -> Report {
    let mut simulation = Simulation::new(seed, run);
    let sim = simulation.sim();
    let server = Facility::new(&sim, "server", 1);
    let desk = server.clone();
    let gap = Duration::from_nanos((SERVICE.as_nanos() as f64 / load) as u64);
    simulation.spawn(async move {
        let (mut gaps, mut services) = (sim.stream("gaps"), sim.stream("services"));
        loop {
            sim.sleep(gaps.exponential(gap)).await;
            let service = match law {
                Law::Exponential => services.exponential(SERVICE),
                Law::Fixed => SERVICE,
            };
            let desk = desk.clone();
            sim.spawn(async move {
                desk.serve(service).await;
            });
        }
    });
    simulation.run_measured(Duration::from_millis(20), Duration::from_millis(600));
    server.report()
}

fn figures(report: &Report) -> Vec<f64> {
    let in_services = |time: Duration| time.as_nanos() as f64 / SERVICE.as_nanos() as f64;
    vec![report.utilisation, in_services(report.mean_wait), in_services(report.mean_sojourn), report.mean_number]
}

fn estimates(law: Law, load: f64) -> Vec<Estimate> {
    let plan = Replications { confidence: CONFIDENCE, ..Replications::new(SEED, 24) };
    plan.estimate(|seed, run| single_queue(seed, run, load, law), figures).estimates
}

#[test]
fn a_queue_of_exponential_services_is_the_m_m_1_of_the_books() {
    let load = 0.7;
    let found = estimates(Law::Exponential, load);
    let wait = load / (1.0 - load);
    // Wrong: the waits of fixed services, or another load.
    assert_holds("utilisation", found[0], load, load * 1.03);
    assert_holds("wait", found[1], wait, wait / 2.0);
    assert_holds("sojourn", found[2], wait + 1.0, wait * 1.1 + 1.0);
    assert_holds("number", found[3], load / (1.0 - load), load / (1.0 - load) * 1.1);
}

#[test]
fn a_queue_of_fixed_services_is_the_m_d_1_of_the_books() {
    let load = 0.7;
    let found = estimates(Law::Fixed, load);
    let wait = load / (2.0 * (1.0 - load));
    assert_holds("utilisation", found[0], load, load * 1.03);
    assert_holds("wait", found[1], wait, wait * 1.1);
    assert_holds("sojourn", found[2], wait + 1.0, wait * 2.0 + 1.0);
    assert_holds("number", found[3], load * (wait + 1.0), load * (wait * 1.1 + 1.0));
}

/// Where customers go from each of the three queues: to queue 0, 1, 2, or else out.
const ROUTES: [[f64; 3]; 3] = [[0.0, 0.5, 0.3], [0.4, 0.0, 0.2], [0.3, 0.3, 0.0]];
/// Mean times between arrivals from outside, and of service, in microseconds.
const COMING_US: [u64; 3] = [40, 0, 100];
const SERVING_US: [u64; 3] = [14, 22, 25];

/// Arrivals a microsecond at each queue: what comes from outside and from the others, by iteration.
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

async fn wander(sim: Sim, queues: [Facility; 3], first: usize, streams: Rc<RefCell<[sim::Stream; 2]>>) {
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
    // It leaves the network.
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
                sim.spawn(wander(sim.clone(), queues.clone(), queue, Rc::clone(&streams)));
            }
        });
    }
    simulation.run_measured(Duration::from_millis(20), Duration::from_millis(700));
    queues.iter().flat_map(|queue| [queue.report().utilisation, queue.report().mean_number]).collect()
}

#[test]
fn a_network_of_three_queues_with_feedback_is_jacksons() {
    let plan = Replications { confidence: CONFIDENCE, ..Replications::new(SEED, 24) };
    let found = plan.estimate(network, Clone::clone).estimates;
    for (queue, rate) in traffic().into_iter().enumerate() {
        let load = rate * SERVING_US[queue] as f64;
        assert!((0.5..0.9).contains(&load), "queue {queue} has load {load}");
        let number = load / (1.0 - load);
        // Wrong: no feedback to speak of, or services that are not exponential (M/D/1).
        assert_holds(&format!("utilisation {queue}"), found[2 * queue], load, load * 0.95);
        assert_holds(
            &format!("number {queue}"),
            found[2 * queue + 1],
            number,
            load + load * load / (2.0 * (1.0 - load)),
        );
    }
}

/// A ring on which all `senders` stations always have frames: its utilisation, and the longest time that one of them waited from
/// the end of its use of a token to the next one.
fn saturated_ring(config: RingConfig, senders: usize, bytes: u64) -> (f64, Duration) {
    let mut simulation = Simulation::new(SEED, 0);
    let sim = simulation.sim();
    let frame_time = config.frame_time(bytes);
    let ring = Ring::new(&sim, "ring", config).unwrap();
    let longest = Rc::new(Cell::new(Duration::ZERO));
    let last_end = Rc::new(RefCell::new(vec![None; senders]));
    let (seen, ends) = (Rc::clone(&longest), Rc::clone(&last_end));
    ring.on_delivery(senders, move |frame: Frame<()>| {
        if let Some(end) = ends.borrow()[frame.from] {
            seen.set(seen.get().max(frame.began.saturating_since(end)));
        }
        ends.borrow_mut()[frame.from] = Some(frame.began + frame_time);
    });
    // Eight processes a station: whenever a frame of one has left, those of seven others wait.
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

/// Jain, "Performance analysis of FDDI token ring networks" (1991): n stations that always have frames, target T, way round D.
#[test]
fn a_saturated_token_ring_has_the_efficiency_and_the_access_delay_of_the_formulas() {
    for (senders, target_ms, length_m) in [(1, 4, 100_000), (4, 4, 50_000), (16, 3, 100_000)] {
        let target = Duration::from_millis(target_ms);
        let config = RingConfig { ttrt: target, ..RingConfig::even(senders + 1, length_m) };
        // Short frames, since the formulas know nothing of frames that run over.
        let bytes = 97;
        let (n, t) = (senders as f64, target.as_nanos() as f64);
        let d = config.latency().as_nanos() as f64;
        // Beyond the formulas, a rotation has up to a frame that runs over, and a token issued anew for each station that sends.
        let grain = (config.frame_time(bytes) + config.token_time() * senders as u64).as_nanos() as f64;
        let (efficiency, access) = saturated_ring(config, senders, bytes);
        let formula = n * (t - d) / (n * t + d);
        assert!((efficiency - formula).abs() < grain / t, "{senders} stations: {efficiency}, not {formula}");
        // It comes to pass when all begin at once; later, what frames run over divides the uses of the tokens differently.
        let worst = (n - 1.0) * t + 2.0 * d;
        let found = access.as_nanos() as f64;
        assert!((found - worst).abs() < (n + 1.0) * grain, "{senders} stations: {found} ns, not {worst}");
        // Neither a ring that hands the token on after each frame nor one that holds it for TTRT comes near.
        let held = n * t / (n * t + d);
        assert!((held - formula).abs() > 3.0 * grain / t);
    }
}

/// A token that is never held but for one frame: each waits for the way round and for those who have frames.
#[test]
fn a_lone_frame_waits_for_half_a_rotation_of_an_idle_ring() {
    let config = RingConfig::even(20, 20_000);
    let rotation = config.latency();
    let mut simulation = Simulation::new(SEED, 0);
    let sim = simulation.sim();
    let ring = Ring::new(&sim, "ring", config).unwrap();
    let sender = ring.clone();
    simulation.spawn(async move {
        let mut gaps = sim.stream("gaps");
        for _ in 0..20_000 {
            // So rare that no two meet.
            sim.sleep(Duration::from_millis(1) + gaps.exponential(Duration::from_millis(1))).await;
            sender.enqueue(3, 9, 100, ()).unwrap();
        }
    });
    simulation.run();
    let wait = ring.report().mean_wait.as_nanos() as f64;
    let half = rotation.as_nanos() as f64 / 2.0;
    assert!((wait / half - 1.0).abs() < 0.02, "{wait} ns, not {half}");
}

/// Calls `work` with a number at times that know nothing of each other, on average every 100 us, whether or not it is done with those
/// before.
fn at_random<F: Future<Output = ()> + 'static>(simulation: &Simulation, name: &str, work: impl Fn(u64) -> F + 'static) {
    let (clock, mut gaps) = (simulation.sim(), simulation.sim().stream(name));
    simulation.spawn(async move {
        for number in 0_u64.. {
            clock.sleep(gaps.exponential(Duration::from_micros(100))).await;
            clock.spawn(work(number));
        }
    });
}

/// A desk, a queue behind it and a ring behind that.
fn desk_store_and_ring(simulation: &Simulation) {
    let sim = simulation.sim();
    let (desk, store) = (Facility::new(&sim, "desk", 3), Store::new(&sim, "store", 16));
    let ring = Ring::new(&sim, "ring", RingConfig::even(4, 1_000)).unwrap();
    ring.on_delivery(2, |_: Frame<u64>| {});
    let (source, queue, clock) = (desk.clone(), store.clone(), sim.clone());
    simulation.spawn(async move {
        let mut gaps = clock.stream("gaps");
        for number in 0_u64.. {
            clock.sleep(gaps.exponential(Duration::from_micros(100))).await;
            let (desk, queue, service) = (source.clone(), queue.clone(), gaps.exponential(Duration::from_micros(200)));
            clock.spawn(async move {
                desk.serve(service).await;
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

/// A line that loses nothing, and one of cells.
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

/// Joined processors, one of two priorities, and a bus that is held while a memory works.
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
        // Never to itself: that takes no time and counts for nothing.
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
    let accesses = Watch::new(&sim, "accesses");
    at_random(simulation, "accesses", move |number| {
        let (bus, memory, accesses) = (bus.clone(), memory.clone(), accesses.clone());
        async move {
            accesses.time(bus.access(&memory, 300 + number % 400)).await;
        }
    });
}

/// Little's law as the books have it, number = rate times time: of every kind of component, over a long run, the books' own check (which
/// is exact at each moment) left aside.
#[test]
fn number_is_rate_times_time_in_every_component() {
    let mut simulation = Simulation::new(SEED, 1);
    desk_store_and_ring(&simulation);
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
        // Those present at either end, and sojourns rounded to a nanosecond.
        assert!((product / report.mean_number - 1.0).abs() < 0.001, "{product}: {report:?}");
    }
}

/// Nothing is lost and nothing invented between ring, queues and servers: what was put in is what came out and what is still there.
#[test]
fn every_packet_is_somewhere_at_any_time() {
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
    let (queue, eaten, clock) = (store.clone(), Rc::clone(&taken), sim);
    simulation.spawn(async move {
        let mut meals = clock.stream("meals");
        loop {
            queue.take().await;
            add(&eaten);
            clock.sleep(meals.exponential(Duration::from_micros(90))).await;
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
    assert!(turned_away.get() > 100 && ring.refused() > 100 && taken.get() > 10_000, "all ways were taken");
}

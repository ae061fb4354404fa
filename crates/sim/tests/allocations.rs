//! Events allocate no memory once queues have grown to their size. The allocator counts per thread,
//! so that tests may run in parallel.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use netem::LinkConfig;
use sim::hardware::atm::{AtmConfig, AtmLine};
use sim::hardware::fddi::{Ring, RingConfig};
use sim::hardware::line::Line;
use sim::hardware::{
    Bus, BusConfig, Forwarding, Memory, MemoryConfig, Mesh, MeshConfig, Priority, Topology, Transactions, Transputer,
};
use sim::{Calendar, Facility, Sim, Simulation, Store, Stream};
use units::{Duration, Instant, Rate};

/// The system allocator with a count of the allocations of this thread.
struct Counting;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

fn count() -> u64 {
    COUNT.with(Cell::get)
}

fn note() {
    // A thread that is ending may allocate after its counter is destroyed; that count is not read.
    let _counted = COUNT.try_with(|count| count.set(count.get() + 1));
}

// SAFETY: every call is passed to the system allocator unchanged; the counter does not touch the
// memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note();
        // SAFETY: the caller upholds the contract of `alloc`, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note();
        // SAFETY: `pointer` came from the system allocator with this layout, and the caller upholds
        // the contract of `realloc`.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: `pointer` came from `alloc` or `realloc` above with this layout, and thus from
        // the system allocator.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Returns the numbers of allocations and events of `simulation` until `until`.
fn cost(simulation: &mut Simulation, until: Duration) -> (u64, u64) {
    let (allocations, events) = (count(), simulation.events());
    simulation.run_until(Instant::ZERO + until);
    (count() - allocations, simulation.events() - events)
}

#[test]
fn a_warm_calendar_does_not_allocate() {
    let mut calendar = Calendar::new();
    let mut gaps = Stream::new(1, 0, "gaps");
    let before = count();
    for number in 0..1000_u64 {
        calendar.schedule(Instant::from_nanos(number), number);
    }
    assert!(count() > before, "growth allocates and is counted");
    let before = count();
    for _ in 0..100_000 {
        let (at, number) = calendar.pop().expect("one event is taken for each one added");
        calendar.schedule(at + gaps.exponential(Duration::from_nanos(500)), number);
    }
    assert_eq!((count() - before, calendar.len()), (0, 1000));
}

#[test]
fn warm_processes_queues_and_facilities_do_not_allocate() {
    let mut simulation = Simulation::new(1, 0);
    let sim = simulation.sim();
    let server = Facility::new(&sim, "desk", 2);
    let store: Store<u64> = Store::new(&sim, "store", 8);
    for number in 0..32_u64 {
        let (sim, server, store) = (sim.clone(), server.clone(), store.clone());
        simulation.spawn(async move {
            let mut gaps = sim.stream(&format!("gaps {number}"));
            loop {
                sim.sleep(gaps.exponential(Duration::from_nanos(1000))).await;
                server.serve(gaps.exponential(Duration::from_nanos(100))).await;
                if number % 2 == 0 {
                    store.put(number).await;
                } else {
                    let _item = store.take().await;
                }
                sim.yield_now().await;
            }
        });
    }
    let (warming, _) = cost(&mut simulation, Duration::from_millis(2));
    assert!(warming > 0, "queues grow at first, which is counted");
    let (allocations, events) = cost(&mut simulation, Duration::from_millis(20));
    assert!(events > 500_000, "{events} events");
    assert_eq!(allocations, 0, "for {events} events");
}

/// Sixteen processes that send over a ring, an ATM line and a packet line, whose receivers drop
/// everything.
fn send_over_rings_and_lines(simulation: &Simulation, sim: &Sim) {
    let ring = Ring::new(sim, "ring", RingConfig::even(8, 1_000)).unwrap();
    let cells = AtmLine::new(sim, "cells", AtmConfig::oc3(4, Duration::from_micros(50))).unwrap();
    let config =
        LinkConfig { rate: Some(Rate::from_mbps(1_000)), delay: Duration::from_micros(50), ..LinkConfig::default() };
    let line = Line::new(sim, "line", config).unwrap();
    ring.on_delivery(7, |_| {});
    (0..4).for_each(|circuit| cells.on_delivery(circuit, |_| {}));
    line.on_delivery(|_| {});
    for number in 0..16_usize {
        let (sim, ring, cells, line) = (sim.clone(), ring.clone(), cells.clone(), line.clone());
        simulation.spawn(async move {
            let mut gaps = sim.stream(&format!("senders {number}"));
            loop {
                sim.sleep(gaps.exponential(Duration::from_micros(100))).await;
                line.send(100 + number, number);
                ring.send(number % 7, 7, 500, number).await;
                cells.send(number % 4, 500, number).await;
            }
        });
    }
}

/// Sixteen processes that send messages through both kinds of networks, work on a transputer and
/// read a memory over both kinds of bus.
fn work_in_machines(simulation: &Simulation, sim: &Sim) {
    let mesh = |name: &str, forwarding| {
        let topology = Topology::Mesh { columns: 4, rows: 4, wraps: true };
        let (startup, hop) = (Duration::from_nanos(100), Duration::from_nanos(10));
        Mesh::new(sim, name, MeshConfig { topology, forwarding, rate: Rate::from_mbps(1_000), startup, hop }).unwrap()
    };
    let meshes = [mesh("stored", Forwarding::StoreAndForward), mesh("worms", Forwarding::Wormhole)];
    let bus = |name: &str, transactions| {
        let config = BusConfig { rate: Rate::from_mbps(800), width_bits: 32, transactions, single_cycles: 1 };
        Bus::new(sim, name, config).unwrap()
    };
    let buses = [bus("held", Transactions::Held), bus("split", Transactions::Split)];
    let config = MemoryConfig { word_ns: 10, word_bits: 32, burst_words: 100, ports: 1 };
    let memory = Memory::new(sim, "memory", config).unwrap();
    let transputer = Transputer::new(sim, "transputer", Duration::from_nanos(100));
    for number in 0..16_usize {
        let (sim, meshes, buses, memory) = (sim.clone(), meshes.clone(), buses.clone(), memory.clone());
        let process = transputer.process(if number % 2 == 0 { Priority::Low } else { Priority::High });
        simulation.spawn(async move {
            let mut gaps = sim.stream(&format!("workers {number}"));
            loop {
                sim.sleep(gaps.exponential(Duration::from_micros(20))).await;
                let to = gaps.below(16) as usize;
                for mesh in &meshes {
                    mesh.transfer(number, to, 100).await;
                }
                for bus in &buses {
                    bus.access(&memory, 200).await;
                }
                process.run(Duration::from_nanos(500)).await;
            }
        });
    }
}

#[test]
fn warm_hardware_models_do_not_allocate() {
    for (name, start) in
        [("rings and lines", send_over_rings_and_lines as fn(&Simulation, &Sim)), ("machines", work_in_machines)]
    {
        let mut simulation = Simulation::new(1, 0);
        let sim = simulation.sim();
        start(&simulation, &sim);
        let (warming, _) = cost(&mut simulation, Duration::from_millis(500));
        assert!(warming > 0, "{name}: queues grow at first, which is counted");
        let (allocations, events) = cost(&mut simulation, Duration::from_secs(1));
        assert!(events > 20_000, "{name}: {events} events");
        assert_eq!(allocations, 0, "{name}: for {events} events");
    }
}

#[test]
fn spawning_a_process_costs_one_allocation_and_slots_are_reused() {
    const BEGUN: u64 = 10_000;
    let mut simulation = Simulation::new(1, 0);
    let sim = simulation.sim();
    simulation.spawn(async move {
        for _ in 0..2 * BEGUN {
            let child = sim.clone();
            sim.spawn(async move { child.sleep(Duration::from_nanos(15)).await });
            sim.sleep(Duration::from_nanos(10)).await;
        }
    });
    let half = Duration::from_nanos(10 * BEGUN - 5);
    let _warming = cost(&mut simulation, half);
    let (allocations, events) = cost(&mut simulation, half + Duration::from_nanos(10 * BEGUN));
    assert!(events >= 3 * BEGUN, "{events} events");
    assert_eq!(allocations, BEGUN, "one per process");
}

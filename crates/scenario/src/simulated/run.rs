//! One run on simulated machines.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use sim::{Facility, Simulation};
use units::{Duration, Instant};

use super::alarm::Alarm;
use super::host::{Host, Shared};
use super::machine::Machine;
use super::processors::Threads;
use crate::components::Component;
use crate::memory::run::Run;
use crate::model::Scenario;
use crate::outcome::Outcome;
use crate::tape::{Recording, Tape};
use crate::world::{Order, Stages, Watch, WorldError};

/// Virtual time between two looks of whoever watches.
const WATCH_EVERY: Duration = Duration::from_millis(20);

/// What came of it.
#[derive(Clone, Debug)]
pub struct Simulated {
    /// As of any world.
    pub outcome: Outcome,
    /// Processor time of each thread of each host: the application's first.
    pub busy: [Vec<Duration>; 2],
    /// Datagrams that found the socket of each host full.
    pub overflowed: [u64; 2],
    /// How often a process of the simulation was resumed.
    pub events: u64,
}

/// Runs `scenario` on `machine`. The same arguments give the same result.
///
/// # Errors
/// As of any world.
pub fn simulate(
    scenario: &Scenario,
    order: &Order,
    machine: &Machine,
    watch: Watch<'_>,
) -> Result<Simulated, WorldError> {
    simulate_recorded(scenario, order, machine, None, watch)
}

/// The same, written down while it goes on, which changes nothing of it.
///
/// # Errors
/// As of any world, and if it cannot be written.
pub fn simulate_recorded(
    scenario: &Scenario,
    order: &Order,
    machine: &Machine,
    recording: Option<Recording>,
    watch: Watch<'_>,
) -> Result<Simulated, WorldError> {
    machine.validate().map_err(WorldError::Unsuitable)?;
    let mut run = Run::new(scenario, order, Stages::Lengths)?;
    let mut simulation = Simulation::new(order.seed, 0);
    if let Some(recording) = recording {
        run.record(Box::new(Tape::new(recording, scenario, &order.paths, &simulation)?));
    }
    run.begin()?;
    let end = run.end;
    let (shared, processors) = set_up(&simulation, run, scenario, machine);
    let mut until = Instant::ZERO;
    while !shared.run.borrow().is_over() && until < end {
        until = (until + WATCH_EVERY).min(end);
        simulation.run_until(until);
        if let Some(at) = shared.spins.get() {
            return Err(WorldError::Spins { at });
        }
        shared.run_now().show(watch)?;
    }
    let tape = shared.run_now().take_tape();
    tape.map_or(Ok(()), |tape| tape.finish(shared.sim.now(), &simulation))?;
    Ok(result(simulation, shared, &processors, scenario))
}

/// The hosts and their processes, and their processors.
fn set_up(simulation: &Simulation, run: Run, scenario: &Scenario, machine: &Machine) -> (Rc<Shared>, Vec<Facility>) {
    let sim = simulation.sim();
    let paths = run.path_count();
    let names = scenario.hosts.each_ref().map(|host| host.name.as_str());
    let processors = match machine.processors {
        [count, _] if machine.is_shared => vec![Facility::new(&sim, "processors", count)],
        [first, second] => {
            let of = |host: usize, count| Facility::new(&sim, &format!("processors of {}", names[host]), count);
            vec![of(0, first), of(1, second)]
        }
    };
    let host = |number: usize| {
        let (name, placement) = (names[number], machine.placements[number]);
        let processors = processors[number.min(processors.len() - 1)].clone();
        let threads = Threads::new(&sim, name, placement.thread_count(), processors, machine.costs.hand_over_ns);
        Host::new(&sim, name, placement, threads, paths, scenario.hosts[number].coalesce)
    };
    let shared = Rc::new(Shared {
        sim: sim.clone(),
        run: RefCell::new(run),
        machine: machine.clone(),
        hosts: [host(0), host(1)],
        wire: Alarm::default(),
        spins: Cell::new(None),
    });
    simulation.spawn(Rc::clone(&shared).carry());
    for number in 0..2 {
        for path in 0..paths {
            simulation.spawn(Rc::clone(&shared).receive(number, path));
        }
        simulation.spawn(Rc::clone(&shared).send(number));
    }
    (shared, processors)
}

/// What came of it.
fn result(simulation: Simulation, shared: Rc<Shared>, processors: &[Facility], scenario: &Scenario) -> Simulated {
    // The last moment, for which the run's books are closed.
    drop(shared.run_now());
    let now = shared.sim.now();
    // Little's law in every component, to the nanosecond, or it panics.
    drop(simulation.reports());
    let mut components: Vec<_> =
        processors.iter().map(|processors| Component::processors(&processors.report())).collect();
    components.extend(shared.hosts.iter().flat_map(|host| host.components(now)));
    let events = simulation.events();
    // Processes hold the shared state: they go first.
    drop(simulation);
    let shared = Rc::into_inner(shared).expect("all processes are gone");
    let inside = shared.hosts.each_ref().map(Host::inside);
    let busy = shared.hosts.each_ref().map(|host| host.threads.busy());
    let overflowed = shared.hosts.each_ref().map(Host::overflowed);
    let mut outcome = Outcome { world: "sim", ..shared.run.into_inner().into_outcome(inside) };
    outcome.components.extend(components);
    for (host, lost) in scenario.hosts.iter().zip(overflowed).filter(|(_, lost)| *lost > 0) {
        outcome.notes.push(format!("host {} was too slow: its sockets were full for {lost} datagrams", host.name));
    }
    Simulated { outcome, busy, overflowed, events }
}

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
use crate::placement::PROCESSORS_MAX;
use crate::tape::{Recording, Tape};
use crate::world::{Order, Watch, WorldError};

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
    /// How often a process of the simulation was resumed; of several connections, of all of them.
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
    let mut run = super::new_run(scenario, order, Some(&machine.costs))?;
    let simulation = Simulation::new(order.seed, 0);
    if let Some(recording) = recording {
        run.record(Box::new(Tape::new(recording, scenario, &order.paths, &simulation)?));
    }
    let mut simulated = run_all(simulation, vec![run], scenario, machine, watch)?;
    Ok(simulated.remove(0))
}

/// Runs `count` connections beside each other, which do the work of `scenario` each, over links of their own, with seeds that follow
/// each other. They share the processors of both hosts and nothing else: each has threads of its own, as under `connection(count)`. Ends
/// with the first that is done. What the processors did stands with the first. `watch` hears of one after the other.
///
/// # Errors
/// As of any world, and if it is another number than 1 to [`PROCESSORS_MAX`].
pub fn simulate_several(
    scenario: &Scenario,
    order: &Order,
    machine: &Machine,
    count: usize,
    watch: Watch<'_>,
) -> Result<Vec<Simulated>, WorldError> {
    machine.validate().map_err(WorldError::Unsuitable)?;
    if !(1..=PROCESSORS_MAX).contains(&count) {
        return Err(WorldError::Unsuitable(format!("{count} connections: from 1 to {PROCESSORS_MAX}")));
    }
    let run = |number: usize| {
        let order = Order { seed: order.seed.wrapping_add(number as u64), ..order.clone() };
        super::new_run(scenario, &order, Some(&machine.costs))
    };
    let runs = (0..count).map(run).collect::<Result<Vec<_>, _>>()?;
    run_all(Simulation::new(order.seed, 0), runs, scenario, machine, watch)
}

/// Runs them at the same time, on the same processors.
fn run_all(
    mut simulation: Simulation,
    mut runs: Vec<Run>,
    scenario: &Scenario,
    machine: &Machine,
    watch: Watch<'_>,
) -> Result<Vec<Simulated>, WorldError> {
    runs.iter_mut().try_for_each(Run::begin)?;
    let end = runs.iter().map(|run| run.end).max().expect("there is one");
    let (all, processors) = set_up(&simulation, runs, scenario, machine);
    let mut until = Instant::ZERO;
    while all.iter().all(|shared| !shared.run.borrow().is_over()) && until < end {
        until = (until + WATCH_EVERY).min(end);
        simulation.run_until(until);
        if let Some(at) = all.iter().find_map(|shared| shared.spins.get()) {
            return Err(WorldError::Spins { at });
        }
        all.iter().try_for_each(|shared| shared.run_now().show(watch))?;
    }
    for shared in &all {
        let tape = shared.run_now().take_tape();
        tape.map_or(Ok(()), |tape| tape.finish(shared.sim.now(), &simulation))?;
    }
    Ok(results(simulation, all, &processors, scenario))
}

/// The hosts of each run and their processes, and the processors of all.
fn set_up(
    simulation: &Simulation,
    runs: Vec<Run>,
    scenario: &Scenario,
    machine: &Machine,
) -> (Vec<Rc<Shared>>, Vec<Facility>) {
    let sim = simulation.sim();
    let names = scenario.hosts.each_ref().map(|host| host.name.as_str());
    let processors = match machine.processors {
        [count, _] if machine.is_shared => vec![Facility::new(&sim, "processors", count)],
        [first, second] => {
            let of = |host: usize, count| Facility::new(&sim, &format!("processors of {}", names[host]), count);
            vec![of(0, first), of(1, second)]
        }
    };
    let count = runs.len();
    let host = |connection: usize, number: usize, paths: usize| {
        let (name, placement) = (names[number], machine.placements[number]);
        let name = if count > 1 { format!("{name}, connection {connection}") } else { name.to_owned() };
        let processors = processors[number.min(processors.len() - 1)].clone();
        let threads = Threads::new(&sim, &name, placement.thread_count(), processors, machine.costs.hand_over_ns);
        Host::new(&sim, &name, placement, threads, paths, scenario.hosts[number].coalesce)
    };
    let begin = |(connection, run): (usize, Run)| {
        let paths = run.path_count();
        let shared = Rc::new(Shared {
            sim: sim.clone(),
            run: RefCell::new(run),
            machine: machine.clone(),
            hosts: [host(connection, 0, paths), host(connection, 1, paths)],
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
        shared
    };
    (runs.into_iter().enumerate().map(begin).collect(), processors)
}

/// What came of them.
fn results(
    simulation: Simulation,
    all: Vec<Rc<Shared>>,
    processors: &[Facility],
    scenario: &Scenario,
) -> Vec<Simulated> {
    // The last moment, for which the runs' books are closed.
    for shared in &all {
        let mut run = shared.run_now();
        let now = run.now;
        run.network.catch_up(now);
    }
    // Little's law in every component, to the nanosecond, or it panics.
    drop(simulation.reports());
    let mut shown: Vec<_> = processors.iter().map(|processors| Component::processors(&processors.report())).collect();
    let components = |shared: &Rc<Shared>| {
        let hosts = shared.hosts.iter().flat_map(|host| host.components(shared.sim.now()));
        shown.drain(..).chain(hosts).collect()
    };
    let components: Vec<Vec<_>> = all.iter().map(components).collect();
    let events = simulation.events();
    // Processes hold the shared state: they go first.
    drop(simulation);
    let result = |(shared, components)| result(shared, components, events, scenario);
    all.into_iter().zip(components).map(result).collect()
}

fn result(shared: Rc<Shared>, components: Vec<Component>, events: u64, scenario: &Scenario) -> Simulated {
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

//! One run on simulated machines.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use sim::{Facility, Report, Simulation, Trace};
use units::{Duration, Instant};

use super::host::{Alarm, Host, Shared};
use super::machine::Machine;
use super::processors::Threads;
use crate::memory::run::Run;
use crate::model::Scenario;
use crate::outcome::Outcome;
use crate::packets::Sink;
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
    /// What processors, threads and queues of the hosts say of themselves: use, numbers and times, each held against Little's law.
    pub reports: Vec<Report>,
}

/// What is written down of a run beside its result. The run is the same.
#[derive(Default)]
pub struct Recording {
    /// Hears of each datagram that leaves a host.
    pub sink: Option<Sink>,
    /// Entries of the trace at most, of what each component did when; `None` for no trace.
    pub trace_entries_max: Option<usize>,
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
    simulate_recorded(scenario, order, machine, Recording::default(), watch).map(|(simulated, _)| simulated)
}

/// As [`simulate`], and writes down what `recording` wants: the trace comes back.
///
/// # Errors
/// As of any world.
pub fn simulate_recorded(
    scenario: &Scenario,
    order: &Order,
    machine: &Machine,
    recording: Recording,
    watch: Watch<'_>,
) -> Result<(Simulated, Option<Trace>), WorldError> {
    machine.validate().map_err(WorldError::Unsuitable)?;
    let mut run = Run::new(scenario, order, Stages::Lengths)?;
    run.begin()?;
    let end = run.end;
    if let Some(sink) = recording.sink {
        run.network.listen(sink);
    }
    let mut simulation = Simulation::new(order.seed, 0);
    if let Some(entries_max) = recording.trace_entries_max {
        simulation.record(entries_max);
    }
    let shared = set_up(&simulation, run, order, machine);
    let mut until = Instant::ZERO;
    while !shared.run.borrow().is_over() && until < end {
        until = (until + WATCH_EVERY).min(end);
        simulation.run_until(until);
        if let Some(at) = shared.spins.get() {
            return Err(WorldError::Spins { at });
        }
        shared.run_now().show(watch)?;
    }
    shared.run_now();
    let trace = simulation.recorded();
    Ok((result(simulation, shared), trace))
}

/// The hosts and their processes.
fn set_up(simulation: &Simulation, run: Run, order: &Order, machine: &Machine) -> Rc<Shared> {
    let sim = simulation.sim();
    let first = Facility::new(&sim, "processors", machine.processors);
    let second =
        if machine.is_shared { first.clone() } else { Facility::new(&sim, "processors of b", machine.processors) };
    let host = |number: usize, name, processors| {
        let placement = machine.placements[number];
        let threads = Threads::new(&sim, name, placement.thread_count(), processors, machine.costs.hand_over_ns);
        Host::new(&sim, name, placement, threads, order.paths.len())
    };
    let shared = Rc::new(Shared {
        sim: sim.clone(),
        run: RefCell::new(run),
        machine: machine.clone(),
        hosts: [host(0, "a", first), host(1, "b", second)],
        wire: Alarm::default(),
        spins: Cell::new(None),
    });
    simulation.spawn(Rc::clone(&shared).carry());
    for number in 0..2 {
        simulation.spawn(Rc::clone(&shared).receive(number));
        simulation.spawn(Rc::clone(&shared).send(number));
    }
    shared
}

/// What came of it.
fn result(simulation: Simulation, shared: Rc<Shared>) -> Simulated {
    // Little's law in every component, to the nanosecond, or it panics.
    let reports = simulation.reports();
    // Processes hold the shared state: they go first.
    drop(simulation);
    let shared = Rc::into_inner(shared).expect("all processes are gone");
    let inside = shared.hosts.each_ref().map(Host::inside);
    let busy = shared.hosts.each_ref().map(|host| host.threads.busy());
    let overflowed = shared.hosts.each_ref().map(|host| host.overflowed.get());
    let mut outcome = Outcome { world: "sim", ..shared.run.into_inner().into_outcome(inside) };
    for (host, lost) in ["a", "b"].into_iter().zip(overflowed).filter(|(_, lost)| *lost > 0) {
        outcome.notes.push(format!("host {host} was too slow: its socket was full for {lost} datagrams"));
    }
    Simulated { outcome, busy, overflowed, reports }
}

//! Runs on simulated machines.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use quic::JournalSource;
use sim::{Facility, ProcessWaker, Simulation};
use units::{Duration, Instant};

use super::host::{Host, Shared};
use super::machine::Machine;
use super::processors::Threads;
use crate::components::Component;
use crate::memory::env::VirtualClock;
use crate::memory::run::Run;
use crate::memory::runtime::VirtualRuntime;
use crate::memory::setup::HostSetup;
use crate::model::Scenario;
use crate::outcome::Outcome;
use driver::placement::PROCESSORS_MAX;

use crate::placement::ThreadCounts as _;
use crate::recording::{Recording, RecordingWriter};
use crate::world::{OnProgress, PayloadMode, RunPlan, WorldError};
use crate::zero_time::check_time;

/// Virtual time between two progress reports.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(20);

/// The result of a run on simulated machines.
#[derive(Clone, Debug)]
pub struct SimulatedRun {
    /// Outcome, as in any world.
    pub outcome: Outcome,
    /// Processor time of each thread of each host, the application's first.
    pub busy: [Vec<Duration>; 2],
    /// Datagrams dropped because a socket of the host was full.
    pub overflowed: [u64; 2],
    /// The number of resumed processes of the simulation, over all connections.
    pub events: u64,
}

/// Runs `scenario` on `machine`. Equal arguments give equal results.
///
/// # Errors
/// Same errors as [`World::run`](crate::world::World::run).
pub fn simulate(
    scenario: &Scenario,
    plan: &RunPlan,
    machine: &Machine,
    on_progress: OnProgress<'_>,
) -> Result<SimulatedRun, WorldError> {
    simulate_recorded(scenario, plan, machine, None, on_progress)
}

/// Does the same as [`simulate`], with a recording, which does not change the run.
///
/// # Errors
/// Same errors as [`World::run`](crate::world::World::run); also fails if the recording cannot be
/// written.
pub fn simulate_recorded(
    scenario: &Scenario,
    plan: &RunPlan,
    machine: &Machine,
    recording: Option<Recording>,
    on_progress: OnProgress<'_>,
) -> Result<SimulatedRun, WorldError> {
    machine.validate().map_err(WorldError::Unsuitable)?;
    let journals = recording.as_ref().and_then(|recording| recording.journals.as_ref());
    let mut prepared = Prepared::new(scenario, plan, machine, journals)?;
    let simulation = Simulation::new(plan.seed, 0);
    if let Some(recording) = recording {
        prepared.run.record(Box::new(RecordingWriter::new(recording, scenario, &plan.paths, &simulation)?));
    }
    let mut simulated = run_all(simulation, vec![prepared], scenario, machine, on_progress)?;
    Ok(simulated.remove(0))
}

/// Runs `count` connections concurrently. Each does the work of `scenario` over its own links, with
/// consecutive seeds, and has its own threads, as under `connection(count)`. They share only the
/// processors of both hosts. The run ends when the first connection is complete. The statistics of
/// the processors are in the first result. `on_progress` receives the progress of each connection
/// in turn.
///
/// # Errors
/// Same errors as [`World::run`](crate::world::World::run); also fails if `count` is not between 1
/// and [`PROCESSORS_MAX`].
pub fn simulate_several(
    scenario: &Scenario,
    plan: &RunPlan,
    machine: &Machine,
    count: usize,
    on_progress: OnProgress<'_>,
) -> Result<Vec<SimulatedRun>, WorldError> {
    machine.validate().map_err(WorldError::Unsuitable)?;
    if !(1..=PROCESSORS_MAX).contains(&count) {
        return Err(WorldError::Unsuitable(format!("{count} connections: must be between 1 and {PROCESSORS_MAX}")));
    }
    let run = |number: usize| {
        let plan = RunPlan { seed: plan.seed.wrapping_add(number as u64), ..plan.clone() };
        Prepared::new(scenario, &plan, machine, None)
    };
    let runs = (0..count).map(run).collect::<Result<Vec<_>, _>>()?;
    run_all(Simulation::new(plan.seed, 0), runs, scenario, machine, on_progress)
}

/// A run whose hosts have no processors yet.
struct Prepared {
    run: Run,
    setups: [HostSetup; 2],
}

impl Prepared {
    fn new(
        scenario: &Scenario,
        plan: &RunPlan,
        machine: &Machine,
        journals: Option<&JournalSource>,
    ) -> Result<Self, WorldError> {
        plan.validate(scenario)?;
        check_time(scenario, &plan.paths, Some(&machine.costs)).map_err(WorldError::Unsuitable)?;
        let (clock, path_count) = (VirtualClock::default(), plan.paths.len());
        // Under `connection(n)`, the first of several drivers owns the connection. The others have
        // nothing to do.
        let setup = |host| HostSetup::new(scenario, host, path_count, plan.seed, 1, &clock, journals);
        let setups = [setup(0), setup(1)];
        let runtimes = setups.each_ref().map(|setup| VirtualRuntime { inline: None, local_addrs: setup.local_addrs() });
        let mut run = Run::new(scenario, plan, PayloadMode::Lengths, &setups, runtimes);
        run.begin(&setups)?;
        Ok(Self { run, setups })
    }
}

/// Runs the connections concurrently on the same processors.
fn run_all(
    mut simulation: Simulation,
    runs: Vec<Prepared>,
    scenario: &Scenario,
    machine: &Machine,
    on_progress: OnProgress<'_>,
) -> Result<Vec<SimulatedRun>, WorldError> {
    let end = runs.iter().map(|prepared| prepared.run.end).max().expect("at least one run");
    let (all, processors) = set_up(&simulation, runs, scenario, machine)?;
    let mut until = Instant::ZERO;
    while all.iter().all(|shared| !shared.run.borrow().is_over()) && until < end {
        until = (until + PROGRESS_INTERVAL).min(end);
        simulation.run_until(until);
        if let Some(at) = all.iter().find_map(|shared| shared.livelock_at.get()) {
            return Err(WorldError::Livelock { at });
        }
        all.iter().try_for_each(|shared| shared.run_now().report_progress(on_progress))?;
    }
    for shared in &all {
        let recording = shared.run_now().take_recording();
        recording.map_or(Ok(()), |recording| recording.finish(shared.sim.now(), &simulation))?;
    }
    Ok(results(simulation, all, &processors, scenario))
}

/// Spawns the hosts' processes of each run, and creates the shared processors.
fn set_up(
    simulation: &Simulation,
    runs: Vec<Prepared>,
    scenario: &Scenario,
    machine: &Machine,
) -> Result<(Vec<Rc<Shared>>, Vec<Facility>), WorldError> {
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
    let host = |connection: usize, number: usize, setup: HostSetup| {
        let (name, placement) = (names[number], machine.placements[number]);
        let name = if count > 1 { format!("{name}, connection {connection}") } else { name.to_owned() };
        let processors = processors[number.min(processors.len() - 1)].clone();
        let threads = Threads::new(&sim, &name, placement.host_thread_count(), processors, machine.costs.wake_ns);
        Host::new(&sim, &name, placement, threads, setup, scenario.hosts[number].coalesce)
    };
    let begin = |(connection, Prepared { run, setups: [sending, receiving] }): (usize, Prepared)| {
        let paths = sending.path_count;
        let shared = Rc::new(Shared {
            sim: sim.clone(),
            run: RefCell::new(run),
            machine: machine.clone(),
            hosts: [host(connection, 0, sending)?, host(connection, 1, receiving)?],
            wire: ProcessWaker::default(),
            livelock_at: Cell::new(None),
        });
        simulation.spawn(Rc::clone(&shared).carry());
        for number in 0..2 {
            for path in 0..paths {
                simulation.spawn(Rc::clone(&shared).receive(number, path));
            }
            simulation.spawn(Rc::clone(&shared).send(number));
        }
        Ok(shared)
    };
    Ok((runs.into_iter().enumerate().map(begin).collect::<Result<_, _>>()?, processors))
}

/// Returns the results of all runs.
fn results(
    simulation: Simulation,
    all: Vec<Rc<Shared>>,
    processors: &[Facility],
    scenario: &Scenario,
) -> Vec<SimulatedRun> {
    // Advance the links to the end time, at which conservation is checked.
    for shared in &all {
        let mut run = shared.run_now();
        let now = run.now();
        run.network.catch_up(now);
    }
    // Checks Little's law in every component to the nanosecond, and panics on a violation.
    drop(simulation.reports());
    let mut shown: Vec<_> = processors.iter().map(|processors| Component::processors(&processors.report())).collect();
    let components = |shared: &Rc<Shared>| {
        let hosts = shared.hosts.iter().flat_map(|host| host.components(shared.sim.now()));
        shown.drain(..).chain(hosts).collect()
    };
    let components: Vec<Vec<_>> = all.iter().map(components).collect();
    let events = simulation.events();
    // Processes hold references to the shared state, so drop them first.
    drop(simulation);
    let result = |(shared, components)| result(shared, components, events, scenario);
    all.into_iter().zip(components).map(result).collect()
}

fn result(shared: Rc<Shared>, components: Vec<Component>, events: u64, scenario: &Scenario) -> SimulatedRun {
    let shared = Rc::into_inner(shared).expect("all processes were dropped");
    let run = shared.run.into_inner();
    let counts = [0, 1].map(|number: usize| {
        let host = &shared.hosts[number];
        (host.counts(&run, number), host.backlog())
    });
    let busy = shared.hosts.each_ref().map(|host| host.threads.busy());
    let overflowed = shared.hosts.each_ref().map(Host::overflowed);
    let mut outcome = Outcome { world: "sim", ..run.into_outcome(counts) };
    outcome.components.extend(components);
    for (host, lost) in scenario.hosts.iter().zip(overflowed).filter(|(_, lost)| *lost > 0) {
        outcome.notes.push(format!("host {} was too slow: its full sockets dropped {lost} datagrams", host.name));
    }
    SimulatedRun { outcome, busy, overflowed, events }
}

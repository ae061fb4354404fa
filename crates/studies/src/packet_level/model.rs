//! Processors that take packets, one at a time each, through the steps of a stack.
//!
//! Steps without a lock run on all processors in parallel. A step of a connection is executed by
//! one processor at a time, in order of arrival at the lock; a waiting processor does nothing else.
//! This is the parallel x-kernel of Nahum et al. 1996 with one processor per packet.

use std::cell::RefCell;
use std::rc::Rc;

use measure::Estimate;
use sim::hardware::ConfigError;
use sim::{Facility, Sim, Simulation, Stream};
use units::{Duration, Instant};

use crate::conserved::{assert_conserved, check_accounting};
use crate::replicate as replications;
use crate::study::{Effort, Options};
use crate::warm_up::Series;

/// A step of a stack.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Step {
    pub(super) mean_us: f64,
    pub(super) lock: Lock,
}

/// The lock that a step needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Lock {
    /// None: any number of processors in parallel.
    None,
    /// The state of its connection. Outgoing packets are numbered here, and incoming packets are
    /// expected in order.
    Connection,
    /// The application of its connection.
    Application,
}

/// Direction of packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Direction {
    /// Numbered at the connection's lock; their order is checked when they leave the processor.
    Out,
    /// Numbered when a processor takes them; their order is checked at the connection's lock.
    In,
}

/// Assignment of packets to processors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Share {
    /// The next packet belongs to any connection with equal probability.
    AtRandom,
    /// A processor is assigned to one connection.
    Bound,
}

/// An experiment.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Setup {
    pub(super) steps: Vec<Step>,
    pub(super) direction: Direction,
    pub(super) processors: usize,
    pub(super) connections: usize,
    pub(super) share: Share,
    /// Steps without a lock take their mean time plus or minus this fraction, uniformly
    /// distributed.
    pub(super) spread: f64,
    /// Microseconds added to a step when its lock is passed to a waiting processor.
    pub(super) handoff_us: f64,
    /// Warm-up until the queues at the locks are in steady state.
    pub(super) warm_up: Duration,
    pub(super) measured: Duration,
}

/// Counts of one run.
#[derive(Clone, Copy, Default, Debug, PartialEq)]
pub(super) struct Counts {
    /// Number of packets taken since the start of the run.
    taken: u64,
    pub(super) packets: u64,
    /// Packets overtaken by a later one of their connection at the point where order is checked.
    pub(super) overtaken: u64,
    /// Mean share of time that a connection's lock was held.
    pub(super) lock_utilisation: f64,
}

/// A connection: its locks and the numbering of its packets.
struct Connection {
    state: Facility,
    application: Facility,
    order: RefCell<Numbering>,
}

#[derive(Default)]
struct Numbering {
    next: u64,
    /// One more than the highest number seen where order is checked.
    seen: u64,
}

impl Numbering {
    const fn number(&mut self) -> u64 {
        let number = self.next;
        self.next += 1;
        number
    }

    /// Returns whether a later packet was seen before.
    fn observe(&mut self, number: u64) -> bool {
        let overtaken = number < self.seen;
        self.seen = self.seen.max(number + 1);
        overtaken
    }
}

struct Processor {
    sim: Sim,
    setup: Rc<Setup>,
    connections: Rc<Vec<Connection>>,
    counts: Rc<RefCell<Counts>>,
    index: usize,
    stream: Stream,
    /// If set, records the completion times of packets and the time since the previous one.
    log: Option<Rc<RefCell<Series>>>,
}

impl Processor {
    async fn work(mut self) {
        loop {
            let index = self.choose();
            let connections = Rc::clone(&self.connections);
            self.packet(&connections[index]).await;
        }
    }

    fn choose(&mut self) -> usize {
        match self.setup.share {
            Share::Bound => self.index % self.setup.connections,
            Share::AtRandom => self.stream.below(self.setup.connections as u64) as usize,
        }
    }

    async fn packet(&mut self, connection: &Connection) {
        let setup = Rc::clone(&self.setup);
        self.counts.borrow_mut().taken += 1;
        let mut number = match setup.direction {
            Direction::In => connection.order.borrow_mut().number(),
            Direction::Out => 0,
        };
        let mut overtaken = false;
        for step in &setup.steps {
            match step.lock {
                Lock::None => {
                    let factor = 1.0 + setup.spread * 2.0f64.mul_add(self.stream.unit(), -1.0);
                    self.sim.sleep(micros(step.mean_us * factor)).await;
                }
                Lock::Application => self.hold(&connection.application, step).await,
                Lock::Connection => {
                    if setup.direction == Direction::In {
                        // The lock is granted in order of arrival.
                        overtaken = connection.order.borrow_mut().observe(number);
                    }
                    self.hold(&connection.state, step).await;
                    if setup.direction == Direction::Out {
                        number = connection.order.borrow_mut().number();
                    }
                }
            }
        }
        if setup.direction == Direction::Out {
            overtaken = connection.order.borrow_mut().observe(number);
        }
        if let Some(log) = &self.log {
            let (now, mut log) = (self.sim.now(), log.borrow_mut());
            let before = log.last().map_or(Instant::ZERO, |&(at, _)| at);
            log.push((now, now.saturating_since(before).as_nanos() as f64));
        }
        let mut counts = self.counts.borrow_mut();
        counts.packets += 1;
        counts.overtaken += u64::from(overtaken);
    }

    async fn hold(&self, lock: &Facility, step: &Step) {
        let passed_on = lock.present() > 0;
        let extra = if passed_on { self.setup.handoff_us } else { 0.0 };
        lock.serve(micros(step.mean_us + extra)).await;
    }
}

fn micros(us: f64) -> Duration {
    Duration::from_nanos((us * 1000.0).round() as u64)
}

impl Setup {
    /// Checks the configuration.
    ///
    /// # Errors
    /// Returns an error that names the invalid key.
    pub(super) fn validate(&self) -> Result<(), ConfigError> {
        ConfigError::require(self.processors > 0, "processors", || "must not be zero".to_owned())?;
        ConfigError::require(self.connections > 0, "connections", || "must not be zero".to_owned())?;
        ConfigError::require(self.share != Share::Bound || self.connections <= self.processors, "connections", || {
            format!("{} connections cannot each be assigned one of {} processors", self.connections, self.processors)
        })?;
        let is_time = |us: f64| us.is_finite() && us >= 0.0;
        ConfigError::require(self.steps.iter().all(|step| is_time(step.mean_us)), "steps", || {
            format!("{:?} has an invalid time", self.steps)
        })?;
        ConfigError::require(self.steps.iter().any(|step| step.mean_us > 0.0), "steps", || {
            "at least one step must take time".to_owned()
        })?;
        ConfigError::require((0.0..=1.0).contains(&self.spread), "spread", || {
            format!("{} is not between 0 and 1", self.spread)
        })?;
        ConfigError::require(is_time(self.handoff_us), "handoff_us", || {
            format!("{} is not a valid time", self.handoff_us)
        })?;
        ConfigError::require(!self.measured.is_zero(), "measured", || "must not be zero".to_owned())
    }
}

/// Performs one run.
///
/// # Panics
/// Panics if the setup is invalid. Studies use valid ones.
pub(super) fn run(setup: &Setup, seed: u64, number: u64) -> Counts {
    simulate(setup, seed, number).unwrap_or_else(|error| panic!("invalid setup of a study: {error}"))
}

/// Performs one run.
///
/// # Errors
/// Returns an error that names the invalid key of `setup`.
pub(super) fn simulate(setup: &Setup, seed: u64, number: u64) -> Result<Counts, ConfigError> {
    setup.validate()?;
    let mut simulation = Simulation::new(seed, number);
    let (connections, counts) = start(&simulation, setup, None);
    simulation.run_until(Instant::ZERO + setup.warm_up);
    simulation.reset_statistics();
    let before = *counts.borrow();
    simulation.run_until(Instant::ZERO + setup.warm_up + setup.measured);
    check_accounting(&simulation);
    let locks: f64 = connections.iter().map(|connection| connection.state.report().utilisation).sum();
    let after = *counts.borrow();
    check_conservation(&after, &connections, setup);
    Ok(Counts {
        packets: after.packets - before.packets,
        overtaken: after.overtaken - before.overtaken,
        lock_utilisation: locks / setup.connections as f64,
        ..after
    })
}

/// Returns the completion times of packets in a run without a warm-up, with the nanoseconds since
/// the previous one. The run is as long as one with a warm-up.
pub(super) fn completions(setup: &Setup, seed: u64, number: u64) -> Series {
    let mut simulation = Simulation::new(seed, number);
    let log = Rc::new(RefCell::new(Series::new()));
    let (connections, counts) = start(&simulation, setup, Some(&log));
    simulation.run_until(Instant::ZERO + setup.warm_up + setup.measured);
    check_accounting(&simulation);
    check_conservation(&counts.borrow(), &connections, setup);
    log.take()
}

/// Starts the processors of `setup`.
fn start(
    simulation: &Simulation,
    setup: &Setup,
    log: Option<&Rc<RefCell<Series>>>,
) -> (Rc<Vec<Connection>>, Rc<RefCell<Counts>>) {
    let sim = simulation.sim();
    let connection = |index| Connection {
        state: Facility::new(&sim, &format!("connection {index}"), 1),
        application: Facility::new(&sim, &format!("application {index}"), 1),
        order: RefCell::default(),
    };
    let connections: Rc<Vec<_>> = Rc::new((0..setup.connections).map(connection).collect());
    let (shared, counts) = (Rc::new(setup.clone()), Rc::new(RefCell::new(Counts::default())));
    for index in 0..setup.processors {
        let processor = Processor {
            sim: sim.clone(),
            setup: Rc::clone(&shared),
            connections: Rc::clone(&connections),
            counts: Rc::clone(&counts),
            index,
            stream: sim.stream(&format!("processor {index}")),
            log: log.cloned(),
        };
        simulation.spawn(processor.work());
    }
    (connections, counts)
}

/// Checks that each packet taken is done or being processed, and that each was numbered once or is
/// still to be numbered.
///
/// # Panics
/// Panics if this does not hold: the model loses or duplicates packets.
fn check_conservation(counts: &Counts, connections: &[Connection], setup: &Setup) {
    let places = [("done", counts.packets), ("processors have", setup.processors as u64)];
    assert_conserved("packets", counts.taken, &places);
    let numbered: u64 = connections.iter().map(|connection| connection.order.borrow().next).sum();
    let is_numbered = match setup.direction {
        Direction::In => numbered == counts.taken,
        Direction::Out => (counts.packets..=counts.taken).contains(&numbered),
    };
    assert!(is_numbered, "numbers are not conserved: {numbered} were given to {counts:?}");
}

/// Estimates over independent runs.
#[derive(Clone, Debug)]
pub(super) struct Measured {
    /// Packets per second.
    pub(super) rate: Estimate,
    /// Overtaken packets, as a fraction of all.
    pub(super) overtaken: Estimate,
    pub(super) lock_utilisation: Estimate,
}

/// Performs independent runs as specified by `options`.
pub(super) fn replicate(setup: &Setup, options: &Options) -> Measured {
    let one = |seed, number| run(setup, seed, number);
    let runs = replications::replicate(options, one, |counts| vec![counts.packets as f64]);
    let estimate =
        |value: &dyn Fn(&Counts) -> f64| Estimate::of(&runs.iter().map(value).collect::<Vec<_>>(), options.confidence);
    let seconds = setup.measured.as_secs_f64();
    Measured {
        rate: estimate(&|counts| counts.packets as f64 / seconds),
        overtaken: estimate(&|counts| counts.overtaken as f64 / counts.packets.max(1) as f64),
        lock_utilisation: estimate(&|counts| counts.lock_utilisation),
    }
}

/// Returns `estimate` multiplied by `factor`.
pub(super) fn scaled(estimate: Estimate, factor: f64) -> Estimate {
    Estimate { mean: estimate.mean * factor, plus_minus: estimate.plus_minus.map(|half| half * factor) }
}

/// Returns the warm-up and measured time for packets of `packet_us` microseconds, close to the
/// paper's where affordable: its thirty seconds with packets of 237 us are about 126,000 packets on
/// one processor.
pub(super) fn spans(packet_us: f64, effort: Effort) -> (Duration, Duration) {
    let packets = match effort {
        Effort::Quick => 300.0,
        Effort::Full => 10_000.0,
    };
    (micros(packet_us * packets * 0.1), micros(packet_us * packets))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setup() -> Setup {
        Setup {
            steps: vec![Step { mean_us: 10.0, lock: Lock::Connection }],
            direction: Direction::Out,
            processors: 3,
            connections: 1,
            share: Share::AtRandom,
            spread: 0.0,
            handoff_us: 0.0,
            warm_up: Duration::ZERO,
            measured: Duration::from_millis(1),
        }
    }

    #[test]
    fn invalid_machines_are_rejected_by_key() {
        let key = |change: fn(&mut Setup)| {
            let mut setup = setup();
            change(&mut setup);
            simulate(&setup, 1, 0).unwrap_err().key
        };
        assert_eq!(key(|setup| setup.processors = 0), "processors");
        assert_eq!(key(|setup| setup.connections = 0), "connections");
        assert_eq!(key(|setup| (setup.connections, setup.share) = (4, Share::Bound)), "connections");
        assert_eq!(key(|setup| setup.steps[0].mean_us = f64::NAN), "steps");
        assert_eq!(key(|setup| setup.steps[0].mean_us = 0.0), "steps");
        assert_eq!(key(|setup| setup.spread = 1.5), "spread");
        assert_eq!(key(|setup| setup.handoff_us = -1.0), "handoff_us");
        assert_eq!(key(|setup| setup.measured = Duration::ZERO), "measured");
        simulate(&setup(), 1, 0).unwrap();
    }

    #[test]
    #[should_panic(expected = "packets are not conserved")]
    fn a_lost_packet_fails_the_run() {
        let counts = simulate(&setup(), 1, 0).unwrap();
        check_conservation(&Counts { taken: counts.taken + 1, ..counts }, &[], &setup());
    }

    #[test]
    #[should_panic(expected = "numbers are not conserved")]
    fn a_packet_without_a_number_fails_the_run() {
        let counts = simulate(&setup(), 1, 0).unwrap();
        check_conservation(&counts, &[], &setup());
    }
}

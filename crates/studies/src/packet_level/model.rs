//! Processors that take packets, one each at a time, through the steps of a stack.
//!
//! Steps without a lock run on all processors at once. A step of a connection is done by one processor at a time, in the order in
//! which they came to the lock; who waits does nothing else. That is the parallel x-kernel of document 000, one processor a packet.

use std::cell::RefCell;
use std::rc::Rc;

use measure::Estimate;
use sim::replicate::Replications;
use sim::{Facility, Sim, Simulation, Stream};
use units::Duration;

use crate::study::{Effort, Options};

/// A step of a stack.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Step {
    pub(super) mean_us: f64,
    pub(super) lock: Lock,
}

/// What a step must hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Lock {
    /// Nothing: any number of processors at once.
    None,
    /// Its connection's state. Here packets get their numbers on the way out, and are expected in order on the way in.
    Connection,
    /// Its connection's application.
    Application,
}

/// Which way packets go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Way {
    /// Numbered at the connection's lock; looked at when they leave the processor.
    Out,
    /// Numbered when a processor takes them; looked at at the connection's lock.
    In,
}

/// How packets are shared out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Share {
    /// The next packet is of any connection, all alike.
    AtRandom,
    /// A processor stays with its connection.
    Bound,
}

/// An experiment.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Setup {
    pub(super) steps: Vec<Step>,
    pub(super) way: Way,
    pub(super) processors: usize,
    pub(super) connections: usize,
    pub(super) share: Share,
    /// Steps without a lock take their mean time, give or take so much of it, uniformly.
    pub(super) spread: f64,
    /// What passing a lock to who waits for it adds to the step, in microseconds.
    pub(super) hand_over_us: f64,
    /// Until queues at the locks are as they stay.
    pub(super) warm_up: Duration,
    pub(super) measured: Duration,
}

/// What came of one run.
#[derive(Clone, Copy, Default, Debug, PartialEq)]
pub(super) struct Counts {
    pub(super) packets: u64,
    /// Packets that a later one of their connection had overtaken where order is looked at.
    pub(super) overtaken: u64,
    /// Mean share of time that a connection's lock was held.
    pub(super) lock_utilisation: f64,
}

/// One connection: its locks, and where its packets are.
struct Connection {
    state: Facility,
    application: Facility,
    order: RefCell<Order>,
}

#[derive(Default)]
struct Order {
    next: u64,
    /// One more than the highest number seen where order is looked at.
    seen: u64,
}

impl Order {
    const fn number(&mut self) -> u64 {
        let number = self.next;
        self.next += 1;
        number
    }

    /// Whether a later one was here before.
    fn look_at(&mut self, number: u64) -> bool {
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
        let mut number = match setup.way {
            Way::In => connection.order.borrow_mut().number(),
            Way::Out => 0,
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
                    if setup.way == Way::In {
                        // The lock is given in the order of coming.
                        overtaken = connection.order.borrow_mut().look_at(number);
                    }
                    self.hold(&connection.state, step).await;
                    if setup.way == Way::Out {
                        number = connection.order.borrow_mut().number();
                    }
                }
            }
        }
        if setup.way == Way::Out {
            overtaken = connection.order.borrow_mut().look_at(number);
        }
        let mut counts = self.counts.borrow_mut();
        counts.packets += 1;
        counts.overtaken += u64::from(overtaken);
    }

    async fn hold(&self, lock: &Facility, step: &Step) {
        let passed_on = lock.present() > 0;
        let extra = if passed_on { self.setup.hand_over_us } else { 0.0 };
        lock.serve(micros(step.mean_us + extra)).await;
    }
}

fn micros(us: f64) -> Duration {
    Duration::from_nanos((us * 1000.0).round() as u64)
}

/// One run.
pub(super) fn run(setup: &Setup, seed: u64, number: u64) -> Counts {
    let mut simulation = Simulation::new(seed, number);
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
        };
        simulation.spawn(processor.work());
    }
    simulation.run_until(units::Instant::ZERO + setup.warm_up);
    simulation.reset_statistics();
    let before = *counts.borrow();
    simulation.run_until(units::Instant::ZERO + setup.warm_up + setup.measured);
    let locks: f64 = connections.iter().map(|connection| connection.state.report().utilisation).sum();
    let after = *counts.borrow();
    Counts {
        packets: after.packets - before.packets,
        overtaken: after.overtaken - before.overtaken,
        lock_utilisation: locks / setup.connections as f64,
    }
}

/// What independent runs say.
#[derive(Clone, Debug)]
pub(super) struct Measured {
    /// Packets a second.
    pub(super) rate: Estimate,
    /// Overtaken packets, as a share of all.
    pub(super) overtaken: Estimate,
    pub(super) lock_utilisation: Estimate,
}

/// Independent runs, as many as `options` says.
pub(super) fn replicate(setup: &Setup, options: &Options) -> Measured {
    let count = u64::from(options.replications);
    let replications = Replications { threads: options.threads, ..Replications::new(options.seed, count) };
    let runs = replications.run(|seed, number| run(setup, seed, number));
    let estimate =
        |value: &dyn Fn(&Counts) -> f64| Estimate::of(&runs.iter().map(value).collect::<Vec<_>>(), options.confidence);
    let seconds = setup.measured.as_secs_f64();
    Measured {
        rate: estimate(&|counts| counts.packets as f64 / seconds),
        overtaken: estimate(&|counts| counts.overtaken as f64 / counts.packets.max(1) as f64),
        lock_utilisation: estimate(&|counts| counts.lock_utilisation),
    }
}

/// `estimate` times `factor`.
pub(super) fn scaled(estimate: Estimate, factor: f64) -> Estimate {
    Estimate { mean: estimate.mean * factor, plus_minus: estimate.plus_minus.map(|half| half * factor) }
}

/// Warm-up and measured time for packets of so many microseconds, as long as the paper's where that is affordable: its thirty seconds
/// of 237 us are some 126,000 packets on one processor.
pub(super) fn spans(packet_us: f64, effort: Effort) -> (Duration, Duration) {
    let packets = match effort {
        Effort::Quick => 300.0,
        Effort::Full => 10_000.0,
    };
    (micros(packet_us * packets * 0.1), micros(packet_us * packets))
}

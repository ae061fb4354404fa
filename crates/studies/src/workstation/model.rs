//! Two machines and the rings between them, run once.
//!
//! ```text
//! application → segments → connection: window → processor → network scheduler → interface → ring
//!      ← segment acknowledged ←──────────────────── acknowledgement ← processor ← interface ←┘
//! ```

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use sim::hardware::fddi::{Frame, Ring};
use sim::hardware::{ConfigError, Outlet};
use sim::{Report, Sim, Simulation, Store, Tally};
use units::{Duration, Instant};

use super::config::{Config, Load};
use super::machine::Machine;
use super::network::{self, Data, Packet, part_of};
use super::paper::paper;
use super::receiver::{self, HostOrder, Inboxes, Order};
use super::sender::{self, Connection, Supply};
use crate::conserved::assert_conserved;

/// What came of a run.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    /// Acknowledged bulk data.
    pub(crate) throughput_mbps: f64,
    /// Mean time of a segment from the beginning of its making until it is fully acknowledged.
    pub(crate) delay_us: f64,
    /// The same of small messages.
    pub(crate) small_delay_us: f64,
    /// Mean time of a read or write of memory, with the way over the bus, on both machines.
    pub(crate) access_us: f64,
    /// Round trips of packets, by connection, in the order of their ends.
    pub(crate) round_trips_us: Vec<Vec<f64>>,
    /// Delays of segments of the bulk, in the order of their ends, with these.
    pub(crate) delays_us: Vec<(Instant, f64)>,
    /// Packets sent again.
    pub(crate) resent: u64,
    /// Packets that waited at the receiving host for earlier ones: mean over arrivals, and most.
    pub(crate) waiting_for_order: (f64, f64),
    /// Messages between processors for each packet.
    pub(crate) messages: f64,
    /// Every component.
    pub(crate) reports: Vec<Report>,
}

/// What is counted from the end of the warm-up on.
#[derive(Default)]
pub(super) struct Tallies {
    acknowledged_bits: u64,
    packets: u64,
    delays: Tally,
    delays_us: Vec<(Instant, f64)>,
    small_delays: Tally,
    round_trips_us: Vec<Vec<f64>>,
    pub(super) resent: u64,
    waiting: Tally,
}

impl Tallies {
    pub(super) fn acknowledged(&mut self, connection: usize, data: Data, round_trip: Duration) {
        if data.place.is_none() {
            return;
        }
        self.acknowledged_bits += data.bits;
        self.packets += 1;
        self.round_trips_us.resize(self.round_trips_us.len().max(connection + 1), Vec::new());
        self.round_trips_us[connection].push(micros(round_trip));
    }

    pub(super) fn segment(&mut self, is_small: bool, delay: Duration, now: Instant) {
        if is_small {
            self.small_delays.add(micros(delay));
        } else {
            self.delays.add(micros(delay));
            self.delays_us.push((now, micros(delay)));
        }
    }

    pub(super) fn waiting_for_order(&mut self, packets: u64) {
        self.waiting.add(packets as f64);
    }
}

/// Where segments are that are in no queue, from the beginning of the run on.
#[derive(Default)]
pub(super) struct Segments {
    /// The application has begun to make them.
    pub(super) made: Cell<u64>,
    /// Somebody has them who makes, fetches or gives them back.
    pub(super) in_hand: Cell<u64>,
    /// All their packets are acknowledged.
    pub(super) done: Cell<u64>,
}

/// What went over a ring, from the beginning of the run on.
#[derive(Default)]
pub(super) struct Frames {
    pub(super) offered: Cell<u64>,
    pub(super) taken: Cell<u64>,
    /// What the ring has brought and nobody has taken.
    pub(super) inboxes: RefCell<Vec<Store<Frame<Packet>>>>,
}

/// One more.
pub(super) fn up(count: &Cell<u64>) {
    count.set(count.get() + 1);
}

/// One less.
pub(super) fn down(count: &Cell<u64>) {
    count.set(count.get() - 1);
}

/// All that takes part.
pub(super) struct World {
    pub(super) sim: Sim,
    pub(super) config: Config,
    pub(super) sender: Machine,
    pub(super) receiver: Machine,
    pub(super) rings: Vec<Ring<Packet>>,
    pub(super) supply: Supply,
    pub(super) connections: Vec<Connection>,
    pub(super) inboxes: Inboxes,
    /// By connection: what its receiver acknowledges, and what it has handed up.
    pub(super) orders: Vec<Order>,
    pub(super) handed: Vec<Order>,
    pub(super) host_order: HostOrder,
    pub(super) tallies: RefCell<Tallies>,
    /// Between processors of one machine.
    pub(super) messages: Cell<u64>,
    pub(super) segments: Segments,
    pub(super) frames: Vec<Frames>,
    /// What the schedulers of the sender and of the receiver know, if that is not the present.
    seen: [RefCell<Vec<Outlet>>; 2],
    alive: Vec<Cell<bool>>,
    turn: Cell<usize>,
}

impl World {
    pub(super) fn new(sim: &Sim, config: &Config) -> Result<Self, ConfigError> {
        config.validate()?;
        let stations = paper().common.stations;
        let processors = config.protocol_processors;
        let (connections, window) = if config.scheme.central_sender {
            (1, config.window_packets() * processors as u64)
        } else {
            (processors, config.window_packets())
        };
        Ok(Self {
            sim: sim.clone(),
            config: config.clone(),
            sender: Machine::new(sim, config, "sender", 0)?,
            receiver: Machine::new(sim, config, "receiver", config.choices.receiver_station)?,
            rings: (0..config.interfaces)
                .map(|index| network::ring(sim, config, stations, index))
                .collect::<Result<_, _>>()?,
            supply: Supply::new(sim, config),
            connections: (0..connections).map(|index| Connection::new(sim, index, window)).collect(),
            inboxes: Inboxes::new(sim, config),
            orders: (0..connections).map(|_| Order::default()).collect(),
            handed: (0..connections).map(|_| Order::default()).collect(),
            host_order: HostOrder::default(),
            tallies: RefCell::default(),
            messages: Cell::new(0),
            segments: Segments::default(),
            frames: (0..config.interfaces).map(|_| Frames::default()).collect(),
            seen: [RefCell::default(), RefCell::default()],
            alive: vec![Cell::new(true); config.interfaces],
            turn: Cell::new(0),
        })
    }

    pub(super) const fn machine(&self, is_sender: bool) -> &Machine {
        if is_sender { &self.sender } else { &self.receiver }
    }

    pub(super) fn is_alive(&self, interface: usize) -> bool {
        self.alive[interface].get()
    }

    pub(super) fn seen(&self, is_sender: bool) -> Vec<Outlet> {
        self.seen[usize::from(is_sender)].borrow().clone()
    }

    pub(super) fn set_seen(&self, is_sender: bool, outlets: Vec<Outlet>) {
        *self.seen[usize::from(is_sender)].borrow_mut() = outlets;
    }

    /// A processor, each in turn.
    pub(super) fn any_processor(&self) -> usize {
        self.turn.set((self.turn.get() + 1) % self.config.protocol_processors);
        self.turn.get()
    }

    /// Who works on the packets of `connection` at the sender.
    pub(super) fn sending_processor(&self, connection: usize) -> usize {
        if self.config.scheme.central_sender { self.any_processor() } else { connection }
    }

    /// Who works on the packets of `connection` at the receiver.
    pub(super) fn receiving_processor(&self, connection: usize) -> usize {
        let scheme = self.config.scheme;
        if scheme.central_sender || scheme.central_receiver { self.any_processor() } else { connection }
    }

    /// Processors and interfaces that are to fail do.
    fn fail(self: &Rc<Self>) {
        for index in 0..self.config.failure.processors {
            sender::fail(self, index);
        }
        for index in 0..self.config.failure.interfaces {
            self.alive[index].set(false);
        }
    }

    /// Segments, frames and places in windows: none is lost, and none comes from nowhere.
    ///
    /// # Panics
    /// If one is or does.
    pub(super) fn check_conservation(&self) {
        let segments = &self.segments;
        let [waiting, small] = self.supply.waiting();
        let under_way = self.connections.iter().map(Connection::segments_under_way).sum();
        let places = [
            ("waiting", waiting),
            ("small ones waiting", small),
            ("in hand", segments.in_hand.get()),
            ("under way", under_way),
            ("acknowledged", segments.done.get()),
        ];
        assert_conserved("segments", segments.made.get(), &places);
        for (ring, frames) in self.rings.iter().zip(&self.frames) {
            let queued = [&self.sender, &self.receiver].map(|machine| ring.queue_frames(machine.station) as u64);
            let places = [
                ("queued at the sender", queued[0]),
                ("queued at the receiver", queued[1]),
                ("on the ring", ring.frames_in_flight() as u64),
                ("refused", ring.refused()),
                ("brought", frames.inboxes.borrow().iter().map(|inbox| inbox.len() as u64).sum()),
                ("taken", frames.taken.get()),
            ];
            assert_conserved("frames of a ring", frames.offered.get(), &places);
        }
        self.connections.iter().for_each(Connection::check_window);
    }

    fn measured(&self, reports: Vec<Report>) -> Measured {
        let tallies = self.tallies.borrow();
        let accesses = || reports.iter().filter(|report| report.name.ends_with(" accesses"));
        let count: u64 = accesses().map(|report| report.served).sum();
        let sum_us: f64 = accesses().map(|report| micros(report.mean_sojourn) * report.served as f64).sum();
        Measured {
            throughput_mbps: tallies.acknowledged_bits as f64 / self.config.measured.as_secs_f64() / 1e6,
            delay_us: tallies.delays.mean(),
            small_delay_us: tallies.small_delays.mean(),
            access_us: sum_us / count.max(1) as f64,
            round_trips_us: tallies.round_trips_us.clone(),
            delays_us: tallies.delays_us.clone(),
            resent: tallies.resent,
            waiting_for_order: (tallies.waiting.mean(), tallies.waiting.max()),
            messages: self.messages.get() as f64 / tallies.packets.max(1) as f64,
            reports,
        }
    }
}

impl Measured {
    /// The mean share of time that components whose names begin and end so were busy; `None` if there is none.
    pub(crate) fn utilisation(&self, begin: &str, part: &str) -> Option<f64> {
        let matching =
            self.reports.iter().filter(|report| report.name.starts_with(begin) && report.name.contains(part));
        let shares: Vec<f64> = matching.map(|report| report.utilisation).collect();
        (!shares.is_empty()).then(|| shares.iter().sum::<f64>() / shares.len() as f64)
    }
}

/// Runs `config` once.
///
/// # Errors
/// Names the key of `config` that cannot be.
pub(crate) fn run(config: &Config, seed: u64, run: u64) -> Result<Measured, ConfigError> {
    let mut simulation = Simulation::new(seed, run);
    let world = Rc::new(World::new(&simulation.sim(), config)?);
    network::start(&world);
    sender::start(&world);
    receiver::start(&world);
    simulation.run_until(Instant::ZERO + config.warm_up);
    simulation.reset_statistics();
    *world.tallies.borrow_mut() = Tallies::default();
    world.messages.set(0);
    world.fail();
    let steps: &[f64] = if let Load::Steps(steps) = &config.load { steps } else { &[] };
    for step in 0..steps.len() {
        world.set_step(steps, step);
        simulation.run_until(Instant::ZERO + config.warm_up + part_of(config.measured, step + 1, steps.len()));
    }
    simulation.run_until(Instant::ZERO + config.warm_up + config.measured);
    world.check_conservation();
    Ok(world.measured(simulation.reports()))
}

fn micros(span: Duration) -> f64 {
    span.as_nanos() as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workstation::paper::Kind;

    fn world() -> Rc<World> {
        let mut simulation = Simulation::new(1, 0);
        let world = Rc::new(World::new(&simulation.sim(), &Config::new(Kind::TwoBus)).unwrap());
        network::start(&world);
        sender::start(&world);
        receiver::start(&world);
        simulation.run_until(Instant::ZERO + Duration::from_millis(5));
        world.check_conservation();
        world
    }

    #[test]
    #[should_panic(expected = "segments are not conserved")]
    fn a_segment_that_nobody_has_ends_the_run() {
        let world = world();
        up(&world.segments.made);
        world.check_conservation();
    }

    #[test]
    #[should_panic(expected = "frames of a ring are not conserved")]
    fn a_frame_that_is_taken_twice_ends_the_run() {
        let world = world();
        up(&world.frames[3].taken);
        world.check_conservation();
    }

    #[test]
    #[should_panic(expected = "places in the window are not conserved")]
    fn a_place_in_a_window_that_nobody_gives_back_ends_the_run() {
        let world = world();
        world.connections[2].lose_a_place();
        world.check_conservation();
    }
}

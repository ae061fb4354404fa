//! Two machines and the rings between them.
//!
//! ```text
//! application → segments → connection: window → processor → network scheduler → interface → ring
//!      ← segment acknowledged ←──────────────────── acknowledgement ← processor ← interface ←┘
//! ```

use std::cell::{Cell, RefCell};

use sim::hardware::fddi::{FddiFrame, Ring};
use sim::hardware::{ConfigError, Outlet};
use sim::{ComponentReport, Sim, Store, Tally};
use units::{Duration, Instant};

use super::config::Config;
use super::connection::{Connection, Supply};
use super::machine::Machine;
use super::packet::{Data, Packet};
use super::paper::paper;
use super::resequencer::{HostResequencer, Inboxes, Resequencer};
use super::rings;
use crate::conserved::assert_conserved;

/// Results of a run.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    /// Throughput of acknowledged bulk data.
    pub(crate) throughput_mbps: f64,
    /// Mean time of a segment from the start of its generation until it is fully acknowledged.
    pub(crate) delay_us: f64,
    /// The same for small messages.
    pub(crate) small_delay_us: f64,
    /// Mean time of a memory access including its bus transfer, on both machines.
    pub(crate) access_us: f64,
    /// Round trips of packets by connection, in order of completion.
    pub(crate) round_trips_us: Vec<Vec<f64>>,
    /// Delays of bulk segments with their completion times, in order.
    pub(crate) delays_us: Vec<(Instant, f64)>,
    /// Retransmitted packets.
    pub(crate) resent: u64,
    /// Packets waiting at the receiving host for earlier ones: mean over arrivals, and maximum.
    pub(crate) waiting_for_order: (f64, f64),
    /// Messages between processors per packet.
    pub(crate) messages: f64,
    /// Statistics of every component.
    pub(crate) reports: Vec<ComponentReport>,
}

/// Counters since the end of the warm-up.
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

/// Segments that are in no queue, since the start of the run.
#[derive(Default)]
pub(super) struct Segments {
    /// Segments whose generation has started.
    pub(super) made: Cell<u64>,
    /// Segments being generated, fetched or returned.
    pub(super) in_progress: Cell<u64>,
    /// Segments whose packets are all acknowledged.
    pub(super) done: Cell<u64>,
}

/// Frames of a ring, since the start of the run.
#[derive(Default)]
pub(super) struct Frames {
    pub(super) offered: Cell<u64>,
    pub(super) taken: Cell<u64>,
    /// Frames delivered by the ring and not yet taken.
    pub(super) inboxes: RefCell<Vec<Store<FddiFrame<Packet>>>>,
}

/// Increments a counter.
pub(super) fn up(count: &Cell<u64>) {
    count.set(count.get() + 1);
}

/// Decrements a counter.
pub(super) fn down(count: &Cell<u64>) {
    count.set(count.get() - 1);
}

/// Everything that takes part in a run.
pub(super) struct Model {
    pub(super) sim: Sim,
    pub(super) config: Config,
    pub(super) sender: Machine,
    pub(super) receiver: Machine,
    pub(super) rings: Vec<Ring<Packet>>,
    pub(super) supply: Supply,
    pub(super) connections: Vec<Connection>,
    pub(super) inboxes: Inboxes,
    /// By connection: packets that its receiver acknowledges, and packets that it has delivered.
    pub(super) resequencers: Vec<Resequencer>,
    pub(super) delivered: Vec<Resequencer>,
    pub(super) host_resequencer: HostResequencer,
    pub(super) tallies: RefCell<Tallies>,
    /// Messages between processors of one machine.
    pub(super) messages: Cell<u64>,
    pub(super) segments: Segments,
    pub(super) frames: Vec<Frames>,
    /// The state that the schedulers of the sender and of the receiver know, if it may be outdated.
    known_outlets: [RefCell<Vec<Outlet>>; 2],
    working: Vec<Cell<bool>>,
    turn: Cell<usize>,
}

impl Model {
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
                .map(|index| rings::ring(sim, config, stations, index))
                .collect::<Result<_, _>>()?,
            supply: Supply::new(sim, config),
            connections: (0..connections).map(|index| Connection::new(sim, index, window)).collect(),
            inboxes: Inboxes::new(sim, config),
            resequencers: (0..connections).map(|_| Resequencer::default()).collect(),
            delivered: (0..connections).map(|_| Resequencer::default()).collect(),
            host_resequencer: HostResequencer::default(),
            tallies: RefCell::default(),
            messages: Cell::new(0),
            segments: Segments::default(),
            frames: (0..config.interfaces).map(|_| Frames::default()).collect(),
            known_outlets: [RefCell::default(), RefCell::default()],
            working: vec![Cell::new(true); config.interfaces],
            turn: Cell::new(0),
        })
    }

    pub(super) const fn machine(&self, is_sender: bool) -> &Machine {
        if is_sender { &self.sender } else { &self.receiver }
    }

    pub(super) fn is_working(&self, interface: usize) -> bool {
        self.working[interface].get()
    }

    pub(super) fn known_outlets(&self, is_sender: bool) -> Vec<Outlet> {
        self.known_outlets[usize::from(is_sender)].borrow().clone()
    }

    pub(super) fn set_known_outlets(&self, is_sender: bool, outlets: Vec<Outlet>) {
        *self.known_outlets[usize::from(is_sender)].borrow_mut() = outlets;
    }

    /// Returns a processor, in round-robin order.
    pub(super) fn any_processor(&self) -> usize {
        self.turn.set((self.turn.get() + 1) % self.config.protocol_processors);
        self.turn.get()
    }

    /// Returns the processor that works on packets of `connection` at the sender.
    pub(super) fn sending_processor(&self, connection: usize) -> usize {
        if self.config.scheme.central_sender { self.any_processor() } else { connection }
    }

    /// Returns the processor that works on packets of `connection` at the receiver.
    pub(super) fn receiving_processor(&self, connection: usize) -> usize {
        let scheme = self.config.scheme;
        if scheme.central_sender || scheme.central_receiver { self.any_processor() } else { connection }
    }

    /// Lets an interface fail.
    pub(super) fn fail_interface(&self, index: usize) {
        self.working[index].set(false);
    }

    /// Checks that segments, frames and window slots are neither lost nor duplicated.
    ///
    /// # Panics
    /// Panics if this does not hold.
    pub(super) fn check_conservation(&self) {
        let segments = &self.segments;
        let [waiting, small] = self.supply.waiting();
        let under_way = self.connections.iter().map(Connection::segments_in_flight).sum();
        let places = [
            ("waiting", waiting),
            ("small ones waiting", small),
            ("in progress", segments.in_progress.get()),
            ("in flight", under_way),
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
                ("delivered", frames.inboxes.borrow().iter().map(|inbox| inbox.len() as u64).sum()),
                ("taken", frames.taken.get()),
            ];
            assert_conserved("frames of a ring", frames.offered.get(), &places);
        }
        self.connections.iter().for_each(Connection::check_window);
    }

    /// Returns the results since the end of the warm-up.
    pub(super) fn measured(&self, reports: Vec<ComponentReport>) -> Measured {
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
    /// Returns the mean utilisation of components whose names begin with `begin` and contain
    /// `part`; `None` if there is none.
    pub(crate) fn utilisation(&self, begin: &str, part: &str) -> Option<f64> {
        let matching =
            self.reports.iter().filter(|report| report.name.starts_with(begin) && report.name.contains(part));
        let shares: Vec<f64> = matching.map(|report| report.utilisation).collect();
        (!shares.is_empty()).then(|| shares.iter().sum::<f64>() / shares.len() as f64)
    }
}

fn micros(span: Duration) -> f64 {
    span.as_nanos() as f64 / 1e3
}

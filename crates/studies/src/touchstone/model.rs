//! The machine: generators, gateways in a closed linear array, one ring each, and peers that
//! receive the data.
//!
//! ```text
//!   generator     generator          messages, cut into segments
//!       ▼             ▼
//!   application   application  ──▶   adaptive: to the right if the queue is full; the last one keeps it, and all stop
//!       ▼             ▼
//!      TCP           TCP             a window of packets, acknowledged cumulatively
//!       ▼             ▼
//!    network       network     ──▶   adaptive: to the better network unit in reach
//!       ▼             ▼
//!     ring          ring             acknowledgements come back on the ring of their packet
//! ```

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::poll_fn;
use std::ops::Range;
use std::rc::Rc;
use std::task::Poll;

use sim::hardware::ConfigError;
use sim::hardware::Mesh;
use sim::hardware::fddi::{FddiFrame, Ring};
use sim::kernel::TaskId;
use sim::{Facility, Sim, Simulation, Stream, Tally};
use units::{Duration, Instant};

use super::flow::Flow;
use super::setup::{Acknowledgements, Application, Counted, Interconnect, Network, Rest, Rule, SENDER, Setup};
use crate::conserved::{assert_conserved, check_accounting};

/// Limit of segments of one generator in transit to a queue; the generator waits when it is
/// reached.
const CARRIED_MAX: usize = 16;

/// Results of a run after its warm-up.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Measured {
    /// Acknowledged data of all gateways.
    pub(super) mbps: f64,
    /// Mean latency of all segments from the generator to the acknowledgement.
    pub(super) latency_us: f64,
    /// Frames waiting or in transmission at the network units of a ring, averaged over time and
    /// rings.
    pub(super) interface_frames: f64,
    /// Packets sent by another gateway's network unit, as a fraction of all.
    pub(super) moved: f64,
    /// Share of the time in which generators were stopped, averaged over them.
    pub(super) stopped: f64,
    /// Acknowledged data of each gateway, in Mb/s.
    pub(super) gateway_mbps: Vec<f64>,
    /// Latencies from the generator to the acknowledgement, with the time of the acknowledgement,
    /// in order of time.
    pub(super) latencies_us: Vec<(Instant, f64)>,
}

/// Payload of a frame.
#[derive(Clone, Copy)]
enum Unit {
    /// A packet of this gateway's connection.
    Data { gateway: usize, sequence: u64 },
    /// The receiver has packets `first` to before `end` of this gateway's connection.
    Acknowledgement { gateway: usize, first: u64, end: u64 },
}

struct Gateway {
    /// Generation times of segments that wait for TCP. At most HIGH, plus the segments in transit
    /// when the generators were stopped: `CARRIED_MAX` of each.
    queue: RefCell<VecDeque<Instant>>,
    transport: Cell<Option<TaskId>>,
    processor: Facility,
    /// Generation times of unacknowledged segments by number. At most a window.
    in_flight: RefCell<BTreeMap<u64, Instant>>,
    /// Receiver state: the next expected packet, and the later ones that arrived before it. At most
    /// a window.
    expected: Cell<u64>,
    early: RefCell<BTreeSet<u64>>,
    peer: Facility,
    /// Packets in transit from other gateways to this one's network unit.
    in_transit: Cell<u64>,
    stats: RefCell<GatewayStats>,
}

/// Statistics of a gateway since the end of the warm-up.
#[derive(Default)]
struct GatewayStats {
    latency_us: Tally,
    sent: u64,
    moved: u64,
}

impl Gateway {
    /// Takes packet `sequence` at the peer. Returns the range that it acknowledges.
    fn take(&self, sequence: u64, acknowledgements: Acknowledgements) -> Range<u64> {
        if acknowledgements == Acknowledgements::Each {
            return sequence..sequence + 1;
        }
        let mut early = self.early.borrow_mut();
        early.insert(sequence);
        while early.remove(&self.expected.get()) {
            self.expected.set(self.expected.get() + 1);
        }
        0..self.expected.get()
    }
}

/// Counts of segments and frames since the start of the run.
#[derive(Default)]
struct Counts {
    generated: Cell<u64>,
    /// Segments held by application schedulers.
    carried: Cell<u64>,
    acknowledged: Cell<u64>,
    /// By ring: frames given to it, and frames delivered by it.
    offered: Vec<Cell<u64>>,
    delivered: Vec<Cell<u64>>,
}

fn up(count: &Cell<u64>) {
    count.set(count.get() + 1);
}

struct Model {
    sim: Sim,
    setup: Setup,
    gateways: Vec<Gateway>,
    rings: Vec<Ring<Unit>>,
    mesh: Mesh,
    flow: Flow,
    latencies_us: RefCell<Vec<(Instant, f64)>>,
    counts: Counts,
    /// Bit errors of packets, by ring.
    errors: Vec<RefCell<Stream>>,
}

/// Performs run number `run` under `seed`: `warm_up`, then `span`.
///
/// # Errors
/// Returns an error that names the invalid key of `setup`.
pub(super) fn run(
    setup: &Setup,
    seed: u64,
    run: u64,
    warm_up: Duration,
    span: Duration,
) -> Result<Measured, ConfigError> {
    let mut simulation = Simulation::new(seed, run);
    let model = Rc::new(Model::new(&simulation.sim(), setup)?);
    model.start(&simulation);
    simulation.run_until(Instant::ZERO + warm_up);
    simulation.reset_statistics();
    model.flow.reset();
    model.latencies_us.borrow_mut().clear();
    for gateway in &model.gateways {
        *gateway.stats.borrow_mut() = GatewayStats::default();
    }
    simulation.run_until(Instant::ZERO + warm_up + span);
    check_accounting(&simulation);
    model.check_conservation();
    Ok(model.measured(span))
}

impl Model {
    fn new(sim: &Sim, setup: &Setup) -> Result<Self, ConfigError> {
        setup.validate()?;
        let gateway = |index: usize| Gateway {
            queue: RefCell::default(),
            transport: Cell::new(None),
            processor: Facility::new(sim, &format!("processor {index}"), 1),
            in_flight: RefCell::default(),
            expected: Cell::new(0),
            early: RefCell::default(),
            peer: Facility::new(sim, &format!("peer {index}"), 1),
            in_transit: Cell::new(0),
            stats: RefCell::default(),
        };
        let ring = |index| Ring::new(sim, &format!("ring {index}"), setup.ring(index));
        let zeros = || vec![Cell::new(0); setup.gateways];
        Ok(Self {
            sim: sim.clone(),
            setup: setup.clone(),
            gateways: (0..setup.gateways).map(gateway).collect(),
            rings: (0..setup.gateways).map(ring).collect::<Result<_, _>>()?,
            mesh: Mesh::new(sim, "array", setup.mesh())?,
            flow: Flow::new(sim, setup.gateways, setup.low(), setup.assumed.stops),
            latencies_us: RefCell::default(),
            counts: Counts { offered: zeros(), delivered: zeros(), ..Counts::default() },
            errors: (0..setup.gateways).map(|index| RefCell::new(sim.stream(&format!("errors {index}")))).collect(),
        })
    }

    /// Checks that segments and frames are neither lost nor duplicated.
    ///
    /// # Panics
    /// Panics if this does not hold.
    fn check_conservation(&self) {
        let queued = self.gateways.iter().map(|gateway| gateway.queue.borrow().len() as u64).sum();
        let in_flight = self.gateways.iter().map(|gateway| gateway.in_flight.borrow().len() as u64).sum();
        let places = [
            ("at application schedulers", self.counts.carried.get()),
            ("queued", queued),
            ("in flight", in_flight),
            ("acknowledged", self.counts.acknowledged.get()),
        ];
        assert_conserved("segments", self.counts.generated.get(), &places);
        for (index, ring) in self.rings.iter().enumerate() {
            let places = [
                ("queued", ring.queue_frames(SENDER) as u64),
                ("queued at the peer", ring.queue_frames(self.setup.receiver()) as u64),
                ("on the ring", ring.frames_in_flight() as u64),
                ("refused", ring.refused()),
                ("delivered", self.counts.delivered[index].get()),
            ];
            assert_conserved("frames of a ring", self.counts.offered[index].get(), &places);
        }
    }

    fn start(self: &Rc<Self>, simulation: &Simulation) {
        for (index, share) in self.setup.shares().into_iter().enumerate() {
            let (at_peer, at_gateway) = (Rc::clone(self), Rc::clone(self));
            self.rings[index].on_delivery(self.setup.receiver(), move |frame| {
                up(&at_peer.counts.delivered[index]);
                at_peer.sim.spawn(Rc::clone(&at_peer).take_packet(index, frame));
            });
            self.rings[index].on_delivery(SENDER, move |frame| {
                up(&at_gateway.counts.delivered[index]);
                at_gateway.sim.spawn(Rc::clone(&at_gateway).take_acknowledgement(index, frame));
            });
            simulation.spawn(Rc::clone(self).transport(index));
            simulation.spawn(Rc::clone(self).generator(index, share));
        }
    }

    /// Generates messages of random length at random times, at `share` of the total load, at the
    /// rate of the generator's link.
    async fn generator(self: Rc<Self>, index: usize, share: f64) {
        let setup = &self.setup;
        let mut stream = self.sim.stream(&format!("generator {index}"));
        let mean = setup.message_segments();
        let gap = setup.assumed.generator_rate.time_for(setup.assumed.packet_bytes);
        let segment_us = (setup.assumed.packet_bytes * 8) as f64 / (setup.offered_mbps * share);
        // The intervals are shortened by the time that messages take.
        let pause_us = (mean * (segment_us - gap.as_secs_f64() * 1e6)).max(0.0);
        let pause = Duration::from_nanos((pause_us * 1e3).round() as u64);
        let carried = Rc::new(Cell::new(0_usize));
        loop {
            self.flow.wait_until_running(index).await;
            self.sim.sleep(stream.exponential(pause)).await;
            let mut segments = 1_u64;
            while !stream.chance(1.0 / mean) {
                segments += 1;
            }
            for _ in 0..segments {
                if self.flow.is_stopped(index) {
                    match setup.assumed.rest {
                        Rest::Discarded => break,
                        Rest::Continues => self.flow.wait_until_running(index).await,
                    }
                }
                carried.set(carried.get() + 1);
                up(&self.counts.generated);
                up(&self.counts.carried);
                let (model, counter) = (Rc::clone(&self), Rc::clone(&carried));
                let generated = self.sim.now();
                self.sim.spawn(async move {
                    model.schedule(index, generated).await;
                    counter.set(counter.get() - 1);
                });
                self.sim.sleep(gap).await;
                while carried.get() >= CARRIED_MAX {
                    self.sim.sleep(gap).await;
                }
            }
        }
    }

    /// Passes a segment through the application schedulers: adaptive ones put it into the first
    /// queue with space. The last one keeps it.
    async fn schedule(self: &Rc<Self>, from: usize, generated: Instant) {
        let count = self.setup.gateways;
        let is_fixed = self.setup.application == Application::Fixed;
        let mut at = from;
        // The count byte that is sent with the segment.
        for handed_on in 1..=count {
            let is_full = self.gateways[at].queue.borrow().len() >= self.setup.high();
            if !is_full || is_fixed || handed_on == count {
                if is_full {
                    self.signal(move |flow| flow.stop(at, is_fixed));
                }
                self.gateways[at].queue.borrow_mut().push_back(generated);
                self.counts.carried.set(self.counts.carried.get() - 1);
                self.wake(at);
                return;
            }
            let next = (at + 1) % count;
            self.mesh.transfer(at, next, self.setup.assumed.packet_bytes).await;
            at = next;
        }
    }

    /// Applies `change` to all generators after the delay of the signal.
    fn signal(self: &Rc<Self>, change: impl FnOnce(&Flow) + 'static) {
        let time = self.setup.assumed.signal;
        if time.is_zero() {
            return change(&self.flow);
        }
        let model = Rc::clone(self);
        self.sim.spawn(async move {
            model.sim.sleep(time).await;
            change(&model.flow);
        });
    }

    /// Runs TCP of a gateway: each segment is a packet, sent when the window has space.
    async fn transport(self: Rc<Self>, index: usize) {
        let gateway = &self.gateways[index];
        gateway.transport.set(Some(self.sim.current_task()));
        let window = self.setup.window_packets();
        for sequence in 0.. {
            let generated = poll_fn(|_| {
                let may_send = (gateway.in_flight.borrow().len() as u64) < window;
                let next = if may_send { gateway.queue.borrow_mut().pop_front() } else { None };
                next.map_or(Poll::Pending, Poll::Ready)
            })
            .await;
            let waiting = gateway.queue.borrow().len();
            self.signal(move |flow| flow.drained(index, waiting));
            gateway.in_flight.borrow_mut().insert(sequence, generated);
            gateway.processor.serve(self.setup.assumed.packet_work).await;
            let unit = self.choose(index);
            let mut stats = gateway.stats.borrow_mut();
            stats.sent += 1;
            stats.moved += u64::from(unit != index);
            drop(stats);
            if unit == index {
                self.send(index, unit, sequence);
            } else {
                // The link moves the packet while the processor continues.
                let model = Rc::clone(&self);
                let in_transit = &self.gateways[unit].in_transit;
                in_transit.set(in_transit.get() + 1);
                self.sim.spawn(async move {
                    model.mesh.transfer(index, unit, model.setup.assumed.packet_bytes).await;
                    let in_transit = &model.gateways[unit].in_transit;
                    in_transit.set(in_transit.get() - 1);
                    model.send(index, unit, sequence);
                });
            }
        }
    }

    /// Runs the network scheduler of gateway `index`: selects the network unit of the next packet,
    /// its own unless another is better.
    fn choose(&self, index: usize) -> usize {
        let count = self.setup.gateways;
        let reach = match (self.setup.network, self.setup.interconnect) {
            (Network::Fixed, _) => return index,
            (Network::Adaptive, Interconnect::Array) => 2.min(count),
            (Network::Adaptive, Interconnect::Crossbar) => count,
        };
        let queue = |unit: usize| {
            let in_transit = match self.setup.assumed.counted {
                Counted::AtUnit => 0,
                Counted::WithTransit => self.gateways[unit].in_transit.get(),
            };
            self.rings[unit].queue_frames(SENDER) as u64 + in_transit
        };
        let rotation = |unit: usize| self.rings[unit].last_rotation(SENDER);
        let cost = |unit: usize| match self.setup.assumed.rule {
            Rule::Product => rotation(unit) * (queue(unit) + 1),
            Rule::Sum => self.setup.ring_rate.time_for(self.setup.assumed.packet_bytes) * queue(unit) + rotation(unit),
            Rule::OwnQueue(limit) if queue(index) < limit as u64 => Duration::from_nanos(u64::from(unit != index)),
            // The other units come before its own, and the shortest queue comes first.
            Rule::OwnQueue(_) if unit == index => Duration::MAX,
            Rule::OwnQueue(_) => Duration::from_nanos(queue(unit)),
        };
        (0..reach).map(|step| (index + step) % count).min_by_key(|&unit| cost(unit)).expect("its own is in reach")
    }

    fn send(&self, gateway: usize, unit: usize, sequence: u64) {
        let item = Unit::Data { gateway, sequence };
        let bytes = self.setup.assumed.packet_bytes;
        up(&self.counts.offered[unit]);
        let sent = self.rings[unit].enqueue(SENDER, self.setup.receiver(), bytes, item);
        assert!(sent.is_ok(), "a network unit can hold all windows");
    }

    /// Takes a packet at the peer of a ring, passes it to the peer of its connection and
    /// acknowledges it on the same ring.
    async fn take_packet(self: Rc<Self>, ring: usize, frame: FddiFrame<Unit>) {
        let Unit::Data { gateway, sequence } = frame.item else { return };
        self.gateways[ring].peer.serve(self.setup.assumed.packet_work).await;
        let errors = self.setup.assumed.error_rate * (frame.bytes * 8) as f64;
        if self.errors[ring].borrow_mut().chance(errors) {
            // Go-back-N with one packet on the ring: it is retransmitted, and packets received over
            // other rings wait for it.
            return self.send(gateway, ring, sequence);
        }
        let came = self.gateways[gateway].take(sequence, self.setup.assumed.acknowledgements);
        let item = Unit::Acknowledgement { gateway, first: came.start, end: came.end };
        up(&self.counts.offered[ring]);
        self.rings[ring].send(self.setup.receiver(), SENDER, self.setup.assumed.ack_bytes, item).await;
    }

    /// Passes an acknowledgement from the network scheduler of the gateway at a ring to the TCP
    /// that sent the packet.
    async fn take_acknowledgement(self: Rc<Self>, ring: usize, frame: FddiFrame<Unit>) {
        let Unit::Acknowledgement { gateway, first, end } = frame.item else { return };
        self.mesh.transfer(ring, gateway, self.setup.assumed.ack_bytes).await;
        let owner = &self.gateways[gateway];
        owner.processor.serve(self.setup.assumed.ack_work).await;
        let now = self.sim.now();
        let mut in_flight = owner.in_flight.borrow_mut();
        while let Some((&sequence, &generated)) = in_flight.range(first..end).next() {
            in_flight.remove(&sequence);
            up(&self.counts.acknowledged);
            let latency_us = now.saturating_since(generated).as_secs_f64() * 1e6;
            owner.stats.borrow_mut().latency_us.add(latency_us);
            self.latencies_us.borrow_mut().push((now, latency_us));
        }
        drop(in_flight);
        self.wake(gateway);
    }

    fn wake(&self, index: usize) {
        if let Some(transport) = self.gateways[index].transport.get() {
            self.sim.wake(transport);
        }
    }

    fn measured(&self, span: Duration) -> Measured {
        let segment_bits = (self.setup.assumed.packet_bytes * 8) as f64;
        let stats: Vec<_> = self.gateways.iter().map(|gateway| gateway.stats.borrow()).collect();
        let gateway_mbps: Vec<f64> = stats
            .iter()
            .map(|stats| stats.latency_us.count() as f64 * segment_bits / (span.as_secs_f64() * 1e6))
            .collect();
        let acknowledged: f64 = stats.iter().map(|stats| stats.latency_us.count() as f64).sum();
        let latency: f64 = stats.iter().map(|stats| stats.latency_us.mean() * stats.latency_us.count() as f64).sum();
        let sent: u64 = stats.iter().map(|stats| stats.sent).sum();
        let moved: u64 = stats.iter().map(|stats| stats.moved).sum();
        let frames: f64 = self.rings.iter().map(|ring| ring.report().mean_number).sum();
        Measured {
            mbps: gateway_mbps.iter().sum(),
            latency_us: latency / acknowledged.max(1.0),
            interface_frames: frames / self.rings.len() as f64,
            moved: moved as f64 / sent.max(1) as f64,
            stopped: self.flow.stopped_share(),
            gateway_mbps,
            latencies_us: self.latencies_us.take(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::touchstone::paper::Case;

    fn model() -> Rc<Model> {
        let mut simulation = Simulation::new(1, 0);
        let setup = Setup::new(87.0, Case::Uniform).with(Application::Adaptive, Network::Adaptive);
        let model = Rc::new(Model::new(&simulation.sim(), &setup).unwrap());
        model.start(&simulation);
        simulation.run_until(Instant::ZERO + Duration::from_millis(20));
        model.check_conservation();
        model
    }

    #[test]
    #[should_panic(expected = "segments are not conserved")]
    fn a_spurious_segment_fails_the_run() {
        let model = model();
        model.gateways[2].queue.borrow_mut().push_back(Instant::ZERO);
        model.check_conservation();
    }

    #[test]
    #[should_panic(expected = "frames of a ring are not conserved")]
    fn a_lost_frame_fails_the_run() {
        let model = model();
        up(&model.counts.offered[1]);
        model.check_conservation();
    }
}

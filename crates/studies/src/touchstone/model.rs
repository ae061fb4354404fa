//! The machine: generators, gateways in a closed line, a ring each, and peers that take the data.
//!
//! ```text
//!   generator     generator          messages, cut into segments
//!       ▼             ▼
//!   application   application  ──▶   adaptive: what finds the queue full goes to the right; the last one keeps it, and all stop
//!       ▼             ▼
//!      TCP           TCP             a window of packets, acknowledged one after the other
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
use sim::hardware::fddi::{Frame, Ring};
use sim::kernel::TaskId;
use sim::{Facility, Sim, Simulation, Stream, Tally};
use units::{Duration, Instant};

use super::flow::Flow;
use super::setup::{Acknowledgements, Application, Counted, Joined, Judgement, Network, Rest, SENDER, Setup};
use crate::conserved::{assert_conserved, check_books};

/// Segments of one generator on their way to a queue at most; the generator waits for them then.
const CARRIED_MAX: usize = 16;

/// What a run gave after its warm-up.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Measured {
    /// Acknowledged data of all gateways.
    pub(super) mbps: f64,
    /// From the generator to the acknowledgement, mean over all segments.
    pub(super) latency_us: f64,
    /// Frames that wait at the network units of a ring or are being sent, mean over time and rings.
    pub(super) interface_frames: f64,
    /// Packets that went to another gateway's network unit, as a share of all.
    pub(super) moved: f64,
    /// The share of time in which generators were stopped, mean over them.
    pub(super) stopped: f64,
    /// Acknowledged data of each gateway, in Mb/s.
    pub(super) gateway_mbps: Vec<f64>,
    /// From the generator to the acknowledgement, with the time of that, in its order.
    pub(super) latencies_us: Vec<(Instant, f64)>,
}

/// What frames carry.
#[derive(Clone, Copy)]
enum Unit {
    /// A packet of this gateway's connection.
    Data { gateway: usize, sequence: u64 },
    /// Packets from `first` to before `end` of this gateway's connection have come.
    Acknowledgement { gateway: usize, first: u64, end: u64 },
}

struct Gateway {
    /// Times of generation of segments that wait for TCP. At most HIGH, and while generators are stopped what was carried then:
    /// `CARRIED_MAX` of each.
    queue: RefCell<VecDeque<Instant>>,
    transport: Cell<Option<TaskId>>,
    processor: Facility,
    /// When the segments were generated that are sent and not acknowledged, by their numbers. At most a window.
    flying: RefCell<BTreeMap<u64, Instant>>,
    /// Of the receiver: the packet it waits for, and those that came before it. At most a window.
    expected: Cell<u64>,
    early: RefCell<BTreeSet<u64>>,
    peer: Facility,
    /// Packets on their way from other gateways to this one's network unit.
    coming: Cell<u64>,
    books: RefCell<Books>,
}

/// What a gateway did since the warm-up.
#[derive(Default)]
struct Books {
    latency_us: Tally,
    sent: u64,
    moved: u64,
}

impl Gateway {
    /// The peer takes packet `sequence`. Returns what it acknowledges.
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

/// What was made and what became of it, from the beginning of the run on.
#[derive(Default)]
struct Counts {
    generated: Cell<u64>,
    /// Application schedulers have them.
    carried: Cell<u64>,
    acknowledged: Cell<u64>,
    /// By ring: frames given to it, and frames that it brought.
    offered: Vec<Cell<u64>>,
    brought: Vec<Cell<u64>>,
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
    /// What decides whether a packet comes with an error, by ring.
    errors: Vec<RefCell<Stream>>,
}

/// Run number `run` under `seed`: `warm_up`, then `span`.
///
/// # Errors
/// Names the key of `setup` that cannot be.
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
        *gateway.books.borrow_mut() = Books::default();
    }
    simulation.run_until(Instant::ZERO + warm_up + span);
    check_books(&simulation);
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
            flying: RefCell::default(),
            expected: Cell::new(0),
            early: RefCell::default(),
            peer: Facility::new(sim, &format!("peer {index}"), 1),
            coming: Cell::new(0),
            books: RefCell::default(),
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
            counts: Counts { offered: zeros(), brought: zeros(), ..Counts::default() },
            errors: (0..setup.gateways).map(|index| RefCell::new(sim.stream(&format!("errors {index}")))).collect(),
        })
    }

    /// Segments and frames: none is lost, and none comes from nowhere.
    ///
    /// # Panics
    /// If one is or does.
    fn check_conservation(&self) {
        let queued = self.gateways.iter().map(|gateway| gateway.queue.borrow().len() as u64).sum();
        let flying = self.gateways.iter().map(|gateway| gateway.flying.borrow().len() as u64).sum();
        let places = [
            ("at application schedulers", self.counts.carried.get()),
            ("queued", queued),
            ("under way", flying),
            ("acknowledged", self.counts.acknowledged.get()),
        ];
        assert_conserved("segments", self.counts.generated.get(), &places);
        for (index, ring) in self.rings.iter().enumerate() {
            let places = [
                ("queued", ring.queue_frames(SENDER) as u64),
                ("queued at the peer", ring.queue_frames(self.setup.receiver()) as u64),
                ("on the ring", ring.frames_in_flight() as u64),
                ("refused", ring.refused()),
                ("brought", self.counts.brought[index].get()),
            ];
            assert_conserved("frames of a ring", self.counts.offered[index].get(), &places);
        }
    }

    fn start(self: &Rc<Self>, simulation: &Simulation) {
        for (index, share) in self.setup.shares().into_iter().enumerate() {
            let (at_peer, at_gateway) = (Rc::clone(self), Rc::clone(self));
            self.rings[index].on_delivery(self.setup.receiver(), move |frame| {
                up(&at_peer.counts.brought[index]);
                at_peer.sim.spawn(Rc::clone(&at_peer).take_packet(index, frame));
            });
            self.rings[index].on_delivery(SENDER, move |frame| {
                up(&at_gateway.counts.brought[index]);
                at_gateway.sim.spawn(Rc::clone(&at_gateway).take_acknowledgement(index, frame));
            });
            simulation.spawn(Rc::clone(self).transport(index));
            simulation.spawn(Rc::clone(self).generator(index, share));
        }
    }

    /// Messages of random length at random times, at `share` of what all offer. They come as fast as the generator's link carries them.
    async fn generator(self: Rc<Self>, index: usize, share: f64) {
        let setup = &self.setup;
        let mut stream = self.sim.stream(&format!("generator {index}"));
        let mean = setup.message_segments();
        let gap = setup.assumed.generator_rate.time_for(setup.assumed.packet_bytes);
        let segment_us = (setup.assumed.packet_bytes * 8) as f64 / (setup.offered_mbps * share);
        // The pauses make up for the time that messages take.
        let pause_us = (mean * (segment_us - gap.as_secs_f64() * 1e6)).max(0.0);
        let pause = Duration::from_nanos((pause_us * 1e3).round() as u64);
        let carried = Rc::new(Cell::new(0_usize));
        loop {
            self.flow.go(index).await;
            self.sim.sleep(stream.exponential(pause)).await;
            let mut segments = 1_u64;
            while !stream.chance(1.0 / mean) {
                segments += 1;
            }
            for _ in 0..segments {
                if self.flow.is_stopped(index) {
                    match setup.assumed.rest {
                        Rest::GivenUp => break,
                        Rest::GoesOn => self.flow.go(index).await,
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

    /// The application schedulers on the segment's way: into the first queue with room, if they are adaptive. The last one keeps it.
    async fn schedule(self: &Rc<Self>, from: usize, generated: Instant) {
        let count = self.setup.gateways;
        let is_fixed = self.setup.application == Application::Fixed;
        let mut at = from;
        // The count byte that travels with the segment.
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

    /// Tells all generators, when the signal has reached them.
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

    /// TCP of a gateway: a segment is a packet, and goes when the window has room.
    async fn transport(self: Rc<Self>, index: usize) {
        let gateway = &self.gateways[index];
        gateway.transport.set(Some(self.sim.current_task()));
        let window = self.setup.window_packets();
        for sequence in 0.. {
            let generated = poll_fn(|_| {
                let has_room = (gateway.flying.borrow().len() as u64) < window;
                let next = if has_room { gateway.queue.borrow_mut().pop_front() } else { None };
                next.map_or(Poll::Pending, Poll::Ready)
            })
            .await;
            let waiting = gateway.queue.borrow().len();
            self.signal(move |flow| flow.drained(index, waiting));
            gateway.flying.borrow_mut().insert(sequence, generated);
            gateway.processor.serve(self.setup.assumed.packet_work).await;
            let unit = self.choose(index);
            let mut books = gateway.books.borrow_mut();
            books.sent += 1;
            books.moved += u64::from(unit != index);
            drop(books);
            if unit == index {
                self.send(index, unit, sequence);
            } else {
                // The link moves it, the processor goes on.
                let model = Rc::clone(&self);
                let coming = &self.gateways[unit].coming;
                coming.set(coming.get() + 1);
                self.sim.spawn(async move {
                    model.mesh.transfer(index, unit, model.setup.assumed.packet_bytes).await;
                    let coming = &model.gateways[unit].coming;
                    coming.set(coming.get() - 1);
                    model.send(index, unit, sequence);
                });
            }
        }
    }

    /// The network scheduler of gateway `index`: whose network unit gets the next packet. Its own, if others are no better.
    fn choose(&self, index: usize) -> usize {
        let count = self.setup.gateways;
        let reach = match (self.setup.network, self.setup.joined) {
            (Network::Fixed, _) => return index,
            (Network::Adaptive, Joined::Array) => 2.min(count),
            (Network::Adaptive, Joined::Crossbar) => count,
        };
        let queue = |unit: usize| {
            let coming = match self.setup.assumed.counted {
                Counted::There => 0,
                Counted::Coming => self.gateways[unit].coming.get(),
            };
            self.rings[unit].queue_frames(SENDER) as u64 + coming
        };
        let rotation = |unit: usize| self.rings[unit].last_rotation(SENDER);
        let cost = |unit: usize| match self.setup.assumed.judgement {
            Judgement::Product => rotation(unit) * (queue(unit) + 1),
            Judgement::Sum => {
                self.setup.ring_rate.time_for(self.setup.assumed.packet_bytes) * queue(unit) + rotation(unit)
            }
            Judgement::OwnQueue(limit) if queue(index) < limit as u64 => Duration::from_nanos(u64::from(unit != index)),
            // All others are before the own one, and the shortest queue before all.
            Judgement::OwnQueue(_) if unit == index => Duration::MAX,
            Judgement::OwnQueue(_) => Duration::from_nanos(queue(unit)),
        };
        (0..reach).map(|step| (index + step) % count).min_by_key(|&unit| cost(unit)).expect("its own is in reach")
    }

    fn send(&self, gateway: usize, unit: usize, sequence: u64) {
        let item = Unit::Data { gateway, sequence };
        let bytes = self.setup.assumed.packet_bytes;
        up(&self.counts.offered[unit]);
        let sent = self.rings[unit].enqueue(SENDER, self.setup.receiver(), bytes, item);
        assert!(sent.is_ok(), "a network unit has room for all windows");
    }

    /// The peer at a ring takes a packet, gives it to the peer of its connection and acknowledges on the same ring.
    async fn take_packet(self: Rc<Self>, ring: usize, frame: Frame<Unit>) {
        let Unit::Data { gateway, sequence } = frame.item else { return };
        self.gateways[ring].peer.serve(self.setup.assumed.packet_work).await;
        let errors = self.setup.assumed.error_rate * (frame.bytes * 8) as f64;
        if self.errors[ring].borrow_mut().chance(errors) {
            // Go-back-N with one packet of the ring: it goes again, and what came over other rings waits for it.
            return self.send(gateway, ring, sequence);
        }
        let came = self.gateways[gateway].take(sequence, self.setup.assumed.acknowledgements);
        let item = Unit::Acknowledgement { gateway, first: came.start, end: came.end };
        up(&self.counts.offered[ring]);
        self.rings[ring].send(self.setup.receiver(), SENDER, self.setup.assumed.ack_bytes, item).await;
    }

    /// The network scheduler of the gateway at a ring gives an acknowledgement to the TCP that made the packet.
    async fn take_acknowledgement(self: Rc<Self>, ring: usize, frame: Frame<Unit>) {
        let Unit::Acknowledgement { gateway, first, end } = frame.item else { return };
        self.mesh.transfer(ring, gateway, self.setup.assumed.ack_bytes).await;
        let owner = &self.gateways[gateway];
        owner.processor.serve(self.setup.assumed.ack_work).await;
        let now = self.sim.now();
        let mut flying = owner.flying.borrow_mut();
        while let Some((&sequence, &generated)) = flying.range(first..end).next() {
            flying.remove(&sequence);
            up(&self.counts.acknowledged);
            let latency_us = now.saturating_since(generated).as_secs_f64() * 1e6;
            owner.books.borrow_mut().latency_us.add(latency_us);
            self.latencies_us.borrow_mut().push((now, latency_us));
        }
        drop(flying);
        self.wake(gateway);
    }

    fn wake(&self, index: usize) {
        if let Some(transport) = self.gateways[index].transport.get() {
            self.sim.wake(transport);
        }
    }

    fn measured(&self, span: Duration) -> Measured {
        let segment_bits = (self.setup.assumed.packet_bytes * 8) as f64;
        let books: Vec<_> = self.gateways.iter().map(|gateway| gateway.books.borrow()).collect();
        let gateway_mbps: Vec<f64> = books
            .iter()
            .map(|books| books.latency_us.count() as f64 * segment_bits / (span.as_secs_f64() * 1e6))
            .collect();
        let acknowledged: f64 = books.iter().map(|books| books.latency_us.count() as f64).sum();
        let latency: f64 = books.iter().map(|books| books.latency_us.mean() * books.latency_us.count() as f64).sum();
        let sent: u64 = books.iter().map(|books| books.sent).sum();
        let moved: u64 = books.iter().map(|books| books.moved).sum();
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
    fn a_segment_from_nowhere_ends_the_run() {
        let model = model();
        model.gateways[2].queue.borrow_mut().push_back(Instant::ZERO);
        model.check_conservation();
    }

    #[test]
    #[should_panic(expected = "frames of a ring are not conserved")]
    fn a_frame_that_no_ring_brings_ends_the_run() {
        let model = model();
        up(&model.counts.offered[1]);
        model.check_conservation();
    }
}

//! The sending machine: an application, a scheduler of segments, connections with windows, go-back-N.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use sim::{Sim, Store};
use units::Instant;

use super::config::Config;
use super::model::{World, down, up};
use super::network::{Ack, Data, Packet, Parcel, transmit};
use super::paper::Kind;
use super::timer::{self, RoundTrip};
use crate::conserved::assert_conserved;

/// A segment of the application.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    /// When the application began to make it.
    born: Instant,
    packets: u64,
    /// Bits of each of its packets.
    packet_bits: u64,
    /// Place of its first packet among all of the application's; `None` for a small message.
    place: Option<u64>,
    /// Whether a processor that died gave it back: its place ahead was left when that one took it.
    is_returned: bool,
}

/// What the application has made and nobody has taken.
pub(super) struct Supply {
    /// A place for each segment that may be ahead.
    room: Store<()>,
    segments: Store<Segment>,
    /// Small messages, if they have a processor to themselves.
    small: Store<Segment>,
}

/// Small messages that wait for a processor of their own at most; more are not made meanwhile.
const SMALL_WAITING: usize = 64;

/// The sending end of a connection.
pub(super) struct Connection {
    /// A token for each packet that may be sent.
    window: Store<()>,
    /// Packets that the window holds, and tokens of them that were taken for packets not sent yet.
    window_packets: u64,
    in_hand: Cell<u64>,
    next: Cell<u64>,
    /// All before this are acknowledged.
    acked: Cell<u64>,
    /// Packets that are sent and not acknowledged.
    in_flight: RefCell<BTreeMap<u64, Sent>>,
    /// Segments not fully acknowledged, by the sequence number after their last packet: with packets that are missing.
    segments: RefCell<BTreeMap<u64, (Segment, u64)>>,
    is_dead: Cell<bool>,
    pub(super) round_trip: RoundTrip,
}

#[derive(Clone, Copy)]
struct Sent {
    /// When it was sent first.
    at: Instant,
    /// When it is to be sent again; never without a timer.
    deadline: Option<Instant>,
    data: Data,
}

impl Connection {
    pub(super) fn new(sim: &Sim, index: usize, window_packets: u64) -> Self {
        let window = Store::new(sim, &format!("window {index}"), window_packets as usize);
        for _ in 0..window_packets {
            window.try_put(()).expect("it has room for the whole window");
        }
        Self {
            window,
            window_packets,
            in_hand: Cell::new(0),
            next: Cell::new(0),
            acked: Cell::new(0),
            in_flight: RefCell::default(),
            segments: RefCell::default(),
            is_dead: Cell::new(false),
            round_trip: RoundTrip::default(),
        }
    }

    /// When packet `sequence` is to be sent again; `None` if it is acknowledged, never is, or nobody is left to do it.
    pub(super) fn deadline_of(&self, sequence: u64) -> Option<Instant> {
        if self.is_dead.get() {
            return None;
        }
        self.in_flight.borrow().get(&sequence)?.deadline
    }

    /// The timers of all that is under way from packet `sequence` on end at `deadline`.
    pub(super) fn postpone(&self, sequence: u64, deadline: Option<Instant>) {
        for sent in self.in_flight.borrow_mut().range_mut(sequence..).map(|(_, sent)| sent) {
            sent.deadline = deadline;
        }
    }

    /// Segments that are not fully acknowledged.
    pub(super) fn segments_under_way(&self) -> u64 {
        self.segments.borrow().len() as u64
    }

    async fn take_place(&self) {
        self.window.take().await;
        up(&self.in_hand);
    }

    /// Each place in the window is free, somebody's who is about to send, or a packet's.
    ///
    /// # Panics
    /// If one is not. What a processor had that has failed is lost with it.
    pub(super) fn check_window(&self) {
        if self.is_dead.get() {
            return;
        }
        let flying = self.in_flight.borrow().len() as u64;
        let places = [("free", self.window.len() as u64), ("in hand", self.in_hand.get()), ("of packets", flying)];
        assert_conserved("places in the window", self.window_packets, &places);
    }

    #[cfg(test)]
    pub(super) fn lose_a_place(&self) {
        let lost = self.window.try_take().is_some() || self.in_flight.borrow_mut().pop_first().is_some();
        assert!(lost, "a window has a place");
    }
}

impl Supply {
    /// Segments that nobody has taken, and small messages.
    pub(super) fn waiting(&self) -> [u64; 2] {
        [&self.segments, &self.small].map(|store| store.len() as u64)
    }

    pub(super) fn new(sim: &Sim, config: &Config) -> Self {
        let ahead = config.choices.segments_ahead;
        // Segments of a processor that fails come back beside those that are ahead.
        let returned = (config.window_packets() as usize + 1) * config.protocol_processors;
        Self {
            room: Store::new(sim, "places ahead", ahead),
            segments: Store::new(sim, "segments", ahead + returned),
            small: Store::new(sim, "small messages", SMALL_WAITING),
        }
    }
}

/// Starts the application and the connections.
pub(super) fn start(world: &Rc<World>) {
    world.sim.spawn(make_segments(Rc::clone(world)));
    if world.config.small.is_some() {
        world.sim.spawn(make_small_messages(Rc::clone(world)));
    }
    for connection in 0..world.connections.len() {
        world.sim.spawn(send_segments(Rc::clone(world), connection));
    }
}

/// A saturated source: as soon as there is room ahead, the next segment is made.
async fn make_segments(world: Rc<World>) {
    let config = &world.config;
    let packets = config.segment_bits / config.packet_bits;
    let mut place = 0;
    loop {
        world.supply.room.put(()).await;
        up(&world.segments.made);
        up(&world.segments.in_hand);
        let born = world.sim.now();
        for _ in 0..packets {
            world.sender.application.run(config.work(config.choices.costs.generate, config.packet_bits)).await;
        }
        let segment =
            Segment { born, packets, packet_bits: config.packet_bits, place: Some(place), is_returned: false };
        world.supply.segments.put(segment).await;
        down(&world.segments.in_hand);
        place += packets;
    }
}

async fn make_small_messages(world: Rc<World>) {
    let config = &world.config;
    let small = config.small.expect("started only if there are any");
    let mut stream = world.sim.stream("small messages");
    let mut at = world.sim.now();
    loop {
        at += stream.exponential(small.interval);
        world.sim.sleep_until(at).await;
        up(&world.segments.made);
        up(&world.segments.in_hand);
        let segment = Segment { born: at, packets: 1, packet_bits: small.bits, place: None, is_returned: false };
        world.sender.application.run(config.work(config.choices.costs.generate, small.bits)).await;
        if small.dedicated {
            world.supply.small.put(segment).await;
        } else {
            world.supply.room.put(()).await;
            world.supply.segments.put(segment).await;
        }
        down(&world.segments.in_hand);
    }
}

/// A processor (or, under central retransmission, processor 0 for all) takes segments while its window is open.
async fn send_segments(world: Rc<World>, connection: usize) {
    let config = &world.config;
    let state = &world.connections[connection];
    let has_small = config.small.is_some_and(|small| small.dedicated) && connection + 1 == world.connections.len();
    loop {
        state.take_place().await;
        let segment = if has_small { world.supply.small.take().await } else { world.supply.segments.take().await };
        up(&world.segments.in_hand);
        if !has_small && !segment.is_returned {
            world.supply.room.try_take().expect("a segment that is ahead has a place there");
        }
        if state.is_dead.get() {
            give_back(&world, segment).await;
            return;
        }
        let worker = world.sending_processor(connection);
        if config.kind == Kind::TwoBus {
            let bits = segment.packet_bits * segment.packets;
            fetch(&world, worker, bits).await;
            if state.is_dead.get() {
                give_back(&world, segment).await;
                return;
            }
        }
        let end = state.next.get() + segment.packets;
        state.segments.borrow_mut().insert(end, (segment, segment.packets));
        down(&world.segments.in_hand);
        for index in 0..segment.packets {
            if index > 0 {
                state.take_place().await;
            }
            if state.is_dead.get() {
                return;
            }
            let sequence = state.next.get();
            state.next.set(sequence + 1);
            let place = segment.place.map(|place| place + index);
            send_packet(&world, worker, Data { connection, sequence, place, bits: segment.packet_bits }).await;
        }
    }
}

/// A segment that a dead processor has goes to the others, without a place ahead: the application had its place again when the
/// segment was first taken.
async fn give_back(world: &World, segment: Segment) {
    world.supply.segments.put(Segment { is_returned: true, ..segment }).await;
    down(&world.segments.in_hand);
}

/// The application's processor copies a segment over the application bus.
async fn fetch(world: &World, worker: usize, bits: u64) {
    let machine = &world.sender;
    let _held = machine.application.acquire().await;
    let (from, to) = (&machine.application_home.memory, &machine.homes[worker].memory);
    machine.abus.copy(from, to, world.config.words(bits)).await;
}

/// `worker` works on a packet and leaves it to the network scheduler.
async fn send_packet(world: &Rc<World>, worker: usize, data: Data) {
    let config = &world.config;
    let costs = &config.choices.costs;
    let state = &world.connections[data.connection];
    if config.scheme.central_sender && worker != 0 {
        world.messages.set(world.messages.get() + 1);
        world.sender.processors[0].run(config.work(costs.message, 0)).await;
        let (world, work) = (Rc::clone(world), config.work(costs.message, 0));
        // The centre goes on; the worker is told.
        world.sim.clone().spawn(async move {
            world.sender.processors[worker].interrupt(work).await;
            work_on(&world, worker, data).await;
        });
    } else if config.scheme.central_sender {
        let world = Rc::clone(world);
        world.sim.clone().spawn(async move { work_on(&world, worker, data).await });
    } else {
        work_on(world, worker, data).await;
    }
    down(&state.in_hand);
    let deadline = timer::deadline(world, data.connection);
    state.in_flight.borrow_mut().entry(data.sequence).or_insert(Sent { at: world.sim.now(), deadline, data });
    if let Some(timer) = config.choices.timer {
        world.sim.spawn(timer::watch(Rc::clone(world), data, timer));
    }
}

async fn work_on(world: &Rc<World>, worker: usize, data: Data) {
    let work = world.config.work(world.config.choices.costs.send, data.bits);
    world.sender.processors[worker].run(work).await;
    let parcel = Parcel { processor: worker, packet: Packet::Data(data), bytes: data.bits / 8 };
    world.sim.spawn(transmit(Rc::clone(world), true, parcel));
}

/// An acknowledgement has come into memory.
pub(super) async fn take_acknowledgement(world: &Rc<World>, ack: Ack) {
    let config = &world.config;
    let state = &world.connections[ack.connection];
    if state.is_dead.get() {
        return;
    }
    let message = config.work(config.choices.costs.message, 0);
    if config.scheme.central_sender || config.scheme.central_receiver {
        // It comes to any processor, which tells the one that waits for it.
        let any = world.any_processor();
        let owner = if config.scheme.central_sender { 0 } else { ack.connection };
        if any != owner {
            world.messages.set(world.messages.get() + 1);
            world.sender.processors[any].interrupt(message).await;
        }
        world.sender.processors[owner].interrupt(message).await;
    }
    acknowledge_until(world, ack.connection, ack.next);
    if let Some(only) = ack.only {
        acknowledge_one(world, ack.connection, only);
    }
    if let Some(bad) = ack.bad {
        send_again(world, ack.connection, bad..u64::MAX).await;
    }
}

fn acknowledge_until(world: &Rc<World>, connection: usize, next: u64) {
    let state = &world.connections[connection];
    while state.acked.get() < next {
        let sequence = state.acked.get();
        state.acked.set(sequence + 1);
        acknowledge_one(world, connection, sequence);
    }
}

fn acknowledge_one(world: &Rc<World>, connection: usize, sequence: u64) {
    let state = &world.connections[connection];
    let Some(sent) = state.in_flight.borrow_mut().remove(&sequence) else { return };
    let now = world.sim.now();
    let round_trip = now.saturating_since(sent.at);
    if let Some(timer) = world.config.choices.timer {
        state.round_trip.measure(round_trip.as_nanos() as f64 / 1e3, timer.alpha);
    }
    world.tallies.borrow_mut().acknowledged(connection, sent.data, round_trip);
    state.window.try_put(()).expect("no more tokens than the window has");
    let mut segments = state.segments.borrow_mut();
    let Some((&end, (segment, missing))) = segments.range_mut(sequence + 1..).next() else { return };
    *missing -= 1;
    if *missing == 0 {
        if world.config.choices.confirms {
            world.sim.spawn(confirm(Rc::clone(world), *segment));
        } else {
            end_delay(world, *segment);
        }
        segments.remove(&end);
        up(&world.segments.done);
    }
}

fn end_delay(world: &World, segment: Segment) {
    let now = world.sim.now();
    world.tallies.borrow_mut().segment(segment.place.is_none(), now.saturating_since(segment.born), now);
}

/// The application's scheduler is told that a segment is acknowledged, on its processor and in turn.
async fn confirm(world: Rc<World>, segment: Segment) {
    let work = world.config.work(world.config.choices.costs.message, 0);
    world.sender.application.run(work).await;
    end_delay(&world, segment);
}

/// Go-back-N: what is under way of `range`, in order. Timers begin anew, each as its packet's turn comes.
pub(super) async fn send_again(world: &Rc<World>, connection: usize, range: Range<u64>) {
    let state = &world.connections[connection];
    let again: Vec<Data> = state.in_flight.borrow().range(range).map(|(_, sent)| sent.data).collect();
    for data in again {
        if let Some(deadline) = timer::deadline(world, connection) {
            let mut in_flight = state.in_flight.borrow_mut();
            // It may have been acknowledged while others were sent.
            let Some(sent) = in_flight.get_mut(&data.sequence) else { continue };
            sent.deadline = Some(deadline);
        }
        world.tallies.borrow_mut().resent += 1;
        work_on(world, world.sending_processor(connection), data).await;
    }
}

/// Processor `index` stops: its segments go back to the application's scheduler.
pub(super) fn fail(world: &Rc<World>, index: usize) {
    let state = &world.connections[index];
    state.is_dead.set(true);
    state.in_flight.borrow_mut().clear();
    let segments = std::mem::take(&mut *state.segments.borrow_mut());
    for (_, (segment, _)) in segments {
        up(&world.segments.in_hand);
        let world = Rc::clone(world);
        world.sim.clone().spawn(async move { give_back(&world, segment).await });
    }
}

//! From a machine's memory to a ring and back.

use std::rc::Rc;

use sim::hardware::ConfigError;
use sim::hardware::Outlet;
use sim::hardware::fddi::{Background, Frame, Ring, RingConfig};
use sim::{Sim, Store, Stream};
use units::{Duration, Rate};

use super::config::{Config, Load};
use super::model::{World, up};
use super::{receiver, sender};

/// Frames that wait on either side of a ring at most. Windows bound them much lower.
const RING_FRAMES: usize = 4096;
/// Frames that the others on a ring have waiting at most; more are dropped. A tenth of a second of a full ring of small frames.
const BACKGROUND_FRAMES: u64 = 10_000;

/// What goes over a ring.
#[derive(Clone, Copy, Debug)]
pub(super) enum Packet {
    Data(Data),
    Ack(Ack),
}

/// A packet of data.
#[derive(Clone, Copy, Debug)]
pub(super) struct Data {
    pub(super) connection: usize,
    /// Within its connection.
    pub(super) sequence: u64,
    /// Among all of the application's, in the order of their making. `None`: a small message, in no order with others.
    pub(super) place: Option<u64>,
    pub(super) bits: u64,
}

/// An acknowledgement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ack {
    pub(super) connection: usize,
    /// What it acknowledges: all before this sequence number, or nothing new.
    pub(super) next: u64,
    /// ... and this one.
    pub(super) only: Option<u64>,
    /// This one came with an error: it and all after it are to be sent again.
    pub(super) bad: Option<u64>,
}

/// A packet in a machine's memory, on its way out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parcel {
    /// In whose memory.
    pub(super) processor: usize,
    pub(super) packet: Packet,
    pub(super) bytes: u64,
}

/// The ring of interface `index`.
pub(super) fn ring(sim: &Sim, config: &Config, stations: usize, index: usize) -> Result<Ring<Packet>, ConfigError> {
    let choices = &config.choices;
    let share = match &config.load {
        Load::Uniform(share) => *share,
        // Validated: there is a first one.
        Load::Steps(steps) => steps[0],
    };
    let background = Background {
        station: choices.background_station,
        share,
        frame_bytes: choices.background_frame_bytes,
        arrivals: choices.background_arrivals,
        batch: 1,
        queue_frames: BACKGROUND_FRAMES,
    };
    let ring = RingConfig {
        rate: Rate::from_mbps(config.ring_mbps),
        ttrt: choices.ttrt,
        queue_frames: RING_FRAMES,
        background: Some(background),
        ..RingConfig::even(stations, config.ring_m)
    };
    Ring::new(sim, &format!("ring {index}"), ring)
}

/// Starts what moves packets between memories and rings, on both machines.
pub(super) fn start(world: &Rc<World>) {
    for index in 0..world.config.interfaces {
        for _ in 0..world.config.choices.interface_frames {
            world.sim.spawn(send_frames(Rc::clone(world), true, index));
            world.sim.spawn(send_frames(Rc::clone(world), false, index));
        }
        for is_sender in [true, false] {
            let machine = world.machine(is_sender);
            let side = if is_sender { "sender" } else { "receiver" };
            let inbox = Store::new(&world.sim, &format!("{side} inbox {index}"), RING_FRAMES);
            world.rings[index].deliver_into(machine.station, inbox.clone());
            world.frames[index].inboxes.borrow_mut().push(inbox.clone());
            let errors = world.sim.stream(&format!("{side} errors {index}"));
            world.sim.spawn(take_frames(Rc::clone(world), is_sender, index, inbox, errors));
        }
    }
    if !world.config.choices.stale.is_zero() {
        world.sim.spawn(look_now_and_then(Rc::clone(world)));
    }
}

/// Has the network scheduler choose an interface, and leaves the parcel to that.
pub(super) async fn transmit(world: Rc<World>, from_sender: bool, parcel: Parcel) {
    if let Packet::Ack(ack) = parcel.packet
        && !world.config.choices.acks_on_rings
    {
        sender::take_acknowledgement(&world, ack).await;
        return;
    }
    let machine = world.machine(from_sender);
    if let Some(mux) = &machine.mux {
        mux.pass().await;
    }
    let outlets = if world.config.choices.stale.is_zero() { world.look(from_sender) } else { world.seen(from_sender) };
    let index = machine.choose(parcel.processor, &outlets);
    machine.pending[index].set(machine.pending[index].get() + 1);
    machine.outboxes[index].put(parcel).await;
}

/// An interface fetches a packet, waits until it has left, and fetches the next.
async fn send_frames(world: Rc<World>, from_sender: bool, index: usize) {
    let machine = world.machine(from_sender);
    let peer = world.machine(!from_sender).station;
    loop {
        let parcel = machine.outboxes[index].take().await;
        if world.is_alive(index) {
            let words = world.config.words(parcel.bytes * 8);
            machine.fetchers[index].transfer(&machine.interface_homes[parcel.processor], words).await;
            up(&world.frames[index].offered);
            world.rings[index].send(machine.station, peer, parcel.bytes, parcel.packet).await;
        } else {
            // It has failed with this in its queue: the scheduler is asked again.
            world.sim.spawn(transmit(Rc::clone(&world), from_sender, parcel));
        }
        machine.pending[index].set(machine.pending[index].get() - 1);
    }
}

/// An interface puts what comes into memory.
async fn take_frames(world: Rc<World>, is_sender: bool, index: usize, inbox: Store<Frame<Packet>>, mut errors: Stream) {
    let machine = world.machine(is_sender);
    loop {
        let frame = inbox.take().await;
        up(&world.frames[index].taken);
        // The device that spreads what leaves over the interfaces brings together what comes.
        if let Some(mux) = &machine.mux {
            mux.pass().await;
        }
        let words = world.config.words(frame.bytes * 8);
        match frame.item {
            Packet::Data(data) => {
                let processor = world.receiving_processor(data.connection);
                machine.storers[index].transfer(&machine.interface_homes[processor], words).await;
                let is_bad = errors.chance(world.config.error_rate * frame.bytes as f64 * 8.0);
                receiver::arrive(&world, processor, data, is_bad).await;
            }
            Packet::Ack(ack) => {
                let processor = ack.connection % machine.interface_homes.len();
                machine.storers[index].transfer(&machine.interface_homes[processor], words).await;
                let world = Rc::clone(&world);
                world.sim.clone().spawn(async move { sender::take_acknowledgement(&world, ack).await });
            }
        }
    }
}

/// Where schedulers do not always know the present: what they know is renewed at intervals.
async fn look_now_and_then(world: Rc<World>) {
    loop {
        for is_sender in [true, false] {
            let seen = world.look(is_sender);
            world.set_seen(is_sender, seen);
        }
        world.sim.sleep(world.config.choices.stale).await;
    }
}

impl World {
    /// What the schedulers of a machine would see now.
    fn look(&self, of_sender: bool) -> Vec<Outlet> {
        let machine = self.machine(of_sender);
        let outlet = |index: usize| Outlet {
            works: self.is_alive(index),
            queue: machine.pending[index].get(),
            last_rotation: self.rings[index].last_rotation(machine.station),
        };
        (0..self.rings.len()).map(outlet).collect()
    }

    /// Changes the shares of the others to step `step`.
    pub(super) fn set_step(&self, steps: &[f64], step: usize) {
        let (share, first) = (steps[step], steps[0]);
        let half = self.rings.len().div_ceil(2);
        for (index, ring) in self.rings.iter().enumerate() {
            ring.set_background(if index < half { share } else { 2.0 * first - share });
        }
    }
}

/// The first `part` of `parts` equal parts of `span`.
pub(super) const fn part_of(span: Duration, part: usize, parts: usize) -> Duration {
    span.mul_ratio(part as u64, parts as u64)
}

//! The receiving machine: packets are put in order, acknowledged and handed up.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use sim::{Sim, Store};

use super::config::Config;
use super::model::World;
use super::network::{Ack, Data, Packet, Parcel, transmit};
use super::paper::Kind;

/// Packets that wait for a processor at most. Windows bound them much lower.
const INBOX_PACKETS: usize = 4096;

/// The receiving end of a connection.
#[derive(Default)]
pub(super) struct Order {
    expected: Cell<u64>,
    ahead: RefCell<BTreeSet<u64>>,
}

/// What waits for each processor: a packet and whether it has an error.
pub(super) struct Inboxes(Vec<Store<(Data, bool)>>);

/// The host's order over all connections: what it has and may not give to the application yet.
#[derive(Default)]
pub(super) struct HostOrder {
    expected: Cell<u64>,
    ahead: RefCell<BTreeSet<u64>>,
}

impl Inboxes {
    pub(super) fn new(sim: &Sim, config: &Config) -> Self {
        let inbox = |index| Store::new(sim, &format!("packets for processor {index}"), INBOX_PACKETS);
        Self((0..config.protocol_processors).map(inbox).collect())
    }
}

impl Order {
    /// Packet `sequence` has come. False if it had come before.
    fn take_in(&self, sequence: u64) -> bool {
        let is_new = sequence >= self.expected.get() && self.ahead.borrow_mut().insert(sequence);
        advance(&self.expected, &mut self.ahead.borrow_mut());
        is_new
    }
}

/// Starts the receiving processors.
pub(super) fn start(world: &Rc<World>) {
    for processor in 0..world.config.protocol_processors {
        world.sim.spawn(receive_packets(Rc::clone(world), processor));
    }
}

/// A packet has come into the memory of `processor`.
pub(super) async fn arrive(world: &World, processor: usize, data: Data, is_bad: bool) {
    world.inboxes.0[processor].put((data, is_bad)).await;
}

async fn receive_packets(world: Rc<World>, processor: usize) {
    let config = &world.config;
    let costs = &config.choices.costs;
    let machine = &world.receiver;
    loop {
        let (data, is_bad) = world.inboxes.0[processor].take().await;
        machine.processors[processor].run(config.work(costs.receive, data.bits)).await;
        if config.scheme.central_receiver && processor != 0 {
            // The centre is told, and acknowledges.
            world.messages.set(world.messages.get() + 1);
            machine.processors[processor].run(config.work(costs.message, 0)).await;
            let (world, work) = (Rc::clone(&world), config.work(costs.message, 0));
            world.sim.clone().spawn(async move {
                world.receiver.processors[0].interrupt(work).await;
                acknowledge(&world, 0, data, is_bad);
            });
        } else {
            acknowledge(&world, processor, data, is_bad);
        }
        if !is_bad && is_to_hand_up(&world, data) {
            hand_up(&world, processor, data).await;
        }
    }
}

/// What a timer has sent again by mistake is acknowledged again, and the application gets it once. Without a timer there is little of it:
/// what follows a packet with an error is sent again, and the processor does not look whether it had it.
fn is_to_hand_up(world: &World, data: Data) -> bool {
    world.config.choices.timer.is_none() || world.handed[data.connection].take_in(data.sequence)
}

/// Decides what is acknowledged, and sends it from `processor`.
fn acknowledge(world: &Rc<World>, processor: usize, data: Data, is_bad: bool) {
    let Data { connection, sequence, .. } = data;
    let order = &world.orders[connection];
    let scheme = world.config.scheme;
    let ack = if scheme.central_sender && !scheme.central_receiver {
        // Each receiving processor knows its own packets only.
        let (only, bad) = if is_bad { (None, Some(sequence)) } else { (Some(sequence), None) };
        Ack { connection, next: 0, only, bad }
    } else {
        if !is_bad {
            order.take_in(sequence);
        }
        Ack { connection, next: order.expected.get(), only: None, bad: is_bad.then_some(sequence) }
    };
    let parcel = Parcel { processor, packet: Packet::Ack(ack), bytes: world.config.choices.ack_bytes };
    world.sim.spawn(transmit(Rc::clone(world), false, parcel));
}

/// Copies a packet upwards: to the application's memory if that is another one.
async fn hand_up(world: &Rc<World>, processor: usize, data: Data) {
    let config = &world.config;
    let costs = &config.choices.costs;
    let machine = &world.receiver;
    machine.processors[processor].run(config.work(costs.deliver, data.bits)).await;
    if let Some(place) = data.place {
        put_in_order(world, place);
    }
    let world = Rc::clone(world);
    world.sim.clone().spawn(async move {
        let config = &world.config;
        let machine = &world.receiver;
        if config.kind == Kind::TwoBus {
            let (from, to) = (&machine.homes[processor].memory, &machine.application_home.memory);
            machine.abus.copy(from, to, config.words(data.bits)).await;
        }
        machine.application.run(config.work(config.choices.costs.consume, data.bits)).await;
    });
}

/// The application gets all in the order of their making; what is ahead waits.
fn put_in_order(world: &World, place: u64) {
    let order = &world.host_order;
    if place >= order.expected.get() {
        order.ahead.borrow_mut().insert(place);
    }
    advance(&order.expected, &mut order.ahead.borrow_mut());
    world.tallies.borrow_mut().waiting_for_order(order.ahead.borrow().len() as u64);
}

fn advance(expected: &Cell<u64>, ahead: &mut BTreeSet<u64>) {
    while ahead.remove(&expected.get()) {
        expected.set(expected.get() + 1);
    }
}

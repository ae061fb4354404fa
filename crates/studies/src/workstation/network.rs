//! The path between a machine's memory and a ring.

use std::rc::Rc;

use sim::hardware::Outlet;
use sim::hardware::fddi::FddiFrame;
use sim::{Store, Stream};

use super::model::{Model, up};
use super::packet::{OutgoingPacket, Packet};
use super::rings::RING_FRAMES;
use super::sender;

/// Starts the processes that move packets between memories and rings, on both machines.
pub(super) fn start(model: &Rc<Model>) {
    for index in 0..model.config.interfaces {
        for _ in 0..model.config.choices.interface_frames {
            model.sim.spawn(send_frames(Rc::clone(model), true, index));
            model.sim.spawn(send_frames(Rc::clone(model), false, index));
        }
        for is_sender in [true, false] {
            let machine = model.machine(is_sender);
            let side = if is_sender { "sender" } else { "receiver" };
            let inbox = Store::new(&model.sim, &format!("{side} inbox {index}"), RING_FRAMES);
            model.rings[index].deliver_into(machine.station, inbox.clone());
            model.frames[index].inboxes.borrow_mut().push(inbox.clone());
            let errors = model.sim.stream(&format!("{side} errors {index}"));
            model.sim.spawn(take_frames(Rc::clone(model), is_sender, index, inbox, errors));
        }
    }
    if !model.config.choices.stale.is_zero() {
        model.sim.spawn(update_outlets(Rc::clone(model)));
    }
}

/// Passes an outgoing packet to the interface that the network scheduler selects.
pub(super) async fn transmit(model: Rc<Model>, from_sender: bool, outgoing: OutgoingPacket) {
    if let Packet::Ack(ack) = outgoing.packet
        && !model.config.choices.acks_on_rings
    {
        sender::take_acknowledgement(&model, ack).await;
        return;
    }
    let machine = model.machine(from_sender);
    if let Some(mux) = &machine.mux {
        mux.pass().await;
    }
    let outlets = if model.config.choices.stale.is_zero() {
        model.current_outlets(from_sender)
    } else {
        model.known_outlets(from_sender)
    };
    let index = machine.choose(outgoing.processor, &outlets);
    machine.pending[index].set(machine.pending[index].get() + 1);
    machine.outboxes[index].put(outgoing).await;
}

/// Runs an interface that fetches a packet, waits until it has been sent, and fetches the next one.
async fn send_frames(model: Rc<Model>, from_sender: bool, index: usize) {
    let machine = model.machine(from_sender);
    let peer = model.machine(!from_sender).station;
    loop {
        let outgoing = machine.outboxes[index].take().await;
        if model.is_working(index) {
            let words = model.config.words(outgoing.bytes * 8);
            machine.fetchers[index].transfer(&machine.interface_memories[outgoing.processor], words).await;
            up(&model.frames[index].offered);
            model.rings[index].send(machine.station, peer, outgoing.bytes, outgoing.packet).await;
        } else {
            // The interface has failed with this packet in its queue: select another one.
            model.sim.spawn(transmit(Rc::clone(&model), from_sender, outgoing));
        }
        machine.pending[index].set(machine.pending[index].get() - 1);
    }
}

/// Runs an interface that stores incoming packets in memory.
async fn take_frames(
    model: Rc<Model>,
    is_sender: bool,
    index: usize,
    inbox: Store<FddiFrame<Packet>>,
    mut errors: Stream,
) {
    let machine = model.machine(is_sender);
    loop {
        let frame = inbox.take().await;
        up(&model.frames[index].taken);
        // The device that distributes outgoing packets to the interfaces also receives the incoming
        // ones.
        if let Some(mux) = &machine.mux {
            mux.pass().await;
        }
        let words = model.config.words(frame.bytes * 8);
        match frame.item {
            Packet::Data(data) => {
                let processor = model.receiving_processor(data.connection);
                machine.storers[index].transfer(&machine.interface_memories[processor], words).await;
                let is_bad = errors.chance(model.config.error_rate * frame.bytes as f64 * 8.0);
                model.inboxes.put(processor, data, is_bad).await;
            }
            Packet::Ack(ack) => {
                let processor = ack.connection % machine.interface_memories.len();
                machine.storers[index].transfer(&machine.interface_memories[processor], words).await;
                let model = Rc::clone(&model);
                model.sim.clone().spawn(async move { sender::take_acknowledgement(&model, ack).await });
            }
        }
    }
}

/// Updates the information of the schedulers at intervals, if it may be outdated.
async fn update_outlets(model: Rc<Model>) {
    loop {
        for is_sender in [true, false] {
            let known_outlets = model.current_outlets(is_sender);
            model.set_known_outlets(is_sender, known_outlets);
        }
        model.sim.sleep(model.config.choices.stale).await;
    }
}

impl Model {
    /// Returns the current state as known to the schedulers of a machine.
    fn current_outlets(&self, of_sender: bool) -> Vec<Outlet> {
        let machine = self.machine(of_sender);
        let outlet = |index: usize| Outlet {
            works: self.is_working(index),
            queue: machine.pending[index].get(),
            last_rotation: self.rings[index].last_rotation(machine.station),
        };
        (0..self.rings.len()).map(outlet).collect()
    }

    /// Sets the background loads to step `step`.
    pub(super) fn set_step(&self, steps: &[f64], step: usize) {
        let (share, first) = (steps[step], steps[0]);
        let half = self.rings.len().div_ceil(2);
        for (index, ring) in self.rings.iter().enumerate() {
            ring.set_background(if index < half { share } else { 2.0 * first - share });
        }
    }
}

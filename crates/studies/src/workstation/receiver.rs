//! The receiving machine: packets are ordered, acknowledged and delivered.

use std::rc::Rc;

use super::model::Model;
use super::network::transmit;
use super::packet::{Ack, Data, OutgoingPacket, Packet};
use super::paper::Kind;
use super::resequencer::advance;

/// Starts the receiving processors.
pub(super) fn start(model: &Rc<Model>) {
    for processor in 0..model.config.protocol_processors {
        model.sim.spawn(receive_packets(Rc::clone(model), processor));
    }
}

async fn receive_packets(model: Rc<Model>, processor: usize) {
    let config = &model.config;
    let costs = &config.choices.costs;
    let machine = &model.receiver;
    loop {
        let (data, is_bad) = model.inboxes.take(processor).await;
        machine.processors[processor].run(config.work(costs.receive, data.bits)).await;
        if config.scheme.central_receiver && processor != 0 {
            // The central processor is notified, and acknowledges.
            model.messages.set(model.messages.get() + 1);
            machine.processors[processor].run(config.work(costs.message, 0)).await;
            let (model, work) = (Rc::clone(&model), config.work(costs.message, 0));
            model.sim.clone().spawn(async move {
                model.receiver.processors[0].interrupt(work).await;
                acknowledge(&model, 0, data, is_bad);
            });
        } else {
            acknowledge(&model, processor, data, is_bad);
        }
        if !is_bad && is_to_be_delivered(&model, data) {
            deliver(&model, processor, data).await;
        }
    }
}

/// Returns whether a packet should be delivered. Packets that a timer retransmitted unnecessarily
/// are acknowledged again and delivered once. Without a timer such packets are rare: those that
/// follow a packet with an error are retransmitted, and the processor does not check whether it had
/// them.
fn is_to_be_delivered(model: &Model, data: Data) -> bool {
    model.config.choices.timer.is_none() || model.delivered[data.connection].record(data.sequence)
}

/// Decides which packets to acknowledge and sends the acknowledgement from `processor`.
fn acknowledge(model: &Rc<Model>, processor: usize, data: Data, is_bad: bool) {
    let Data { connection, sequence, .. } = data;
    let order = &model.resequencers[connection];
    let scheme = model.config.scheme;
    let ack = if scheme.central_sender && !scheme.central_receiver {
        // Each receiving processor knows only its own packets.
        let (only, bad) = if is_bad { (None, Some(sequence)) } else { (Some(sequence), None) };
        Ack { connection, next: 0, only, bad }
    } else {
        if !is_bad {
            order.record(sequence);
        }
        Ack { connection, next: order.expected.get(), only: None, bad: is_bad.then_some(sequence) }
    };
    let outgoing = OutgoingPacket { processor, packet: Packet::Ack(ack), bytes: model.config.choices.ack_bytes };
    model.sim.spawn(transmit(Rc::clone(model), false, outgoing));
}

/// Delivers a packet: copies it to the application's memory if that is a separate one.
async fn deliver(model: &Rc<Model>, processor: usize, data: Data) {
    let config = &model.config;
    let costs = &config.choices.costs;
    let machine = &model.receiver;
    machine.processors[processor].run(config.work(costs.deliver, data.bits)).await;
    if let Some(place) = data.place {
        resequence(model, place);
    }
    let model = Rc::clone(model);
    model.sim.clone().spawn(async move {
        let config = &model.config;
        let machine = &model.receiver;
        if config.kind == Kind::TwoBus {
            let (from, to) = (&machine.memories[processor].memory, &machine.application_memory.memory);
            machine.abus.copy(from, to, config.words(data.bits)).await;
        }
        machine.application.run(config.work(config.choices.costs.consume, data.bits)).await;
    });
}

/// Delivers packets to the application in order of generation; later ones wait.
fn resequence(model: &Model, place: u64) {
    let order = &model.host_resequencer;
    if place >= order.expected.get() {
        order.ahead.borrow_mut().insert(place);
    }
    advance(&order.expected, &mut order.ahead.borrow_mut());
    model.tallies.borrow_mut().waiting_for_order(order.ahead.borrow().len() as u64);
}

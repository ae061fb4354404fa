//! The sending machine: an application, a segment scheduler, connections with windows, go-back-N.

use std::ops::Range;
use std::rc::Rc;

use super::connection::{Segment, Sent};
use super::model::{Model, down, up};
use super::network::transmit;
use super::packet::{Ack, Data, OutgoingPacket, Packet};
use super::paper::Kind;
use super::timer;

/// Starts the application and the connections.
pub(super) fn start(model: &Rc<Model>) {
    model.sim.spawn(make_segments(Rc::clone(model)));
    if model.config.small.is_some() {
        model.sim.spawn(make_small_messages(Rc::clone(model)));
    }
    for connection in 0..model.connections.len() {
        model.sim.spawn(send_segments(Rc::clone(model), connection));
    }
}

/// Runs a saturated source: the next segment is generated as soon as there is space.
async fn make_segments(model: Rc<Model>) {
    let config = &model.config;
    let packets = config.segment_bits / config.packet_bits;
    let mut place = 0;
    loop {
        model.supply.slots_ahead.put(()).await;
        up(&model.segments.made);
        up(&model.segments.in_progress);
        let generated_at = model.sim.now();
        for _ in 0..packets {
            model.sender.application.run(config.work(config.choices.costs.generate, config.packet_bits)).await;
        }
        let segment =
            Segment { generated_at, packets, packet_bits: config.packet_bits, place: Some(place), is_returned: false };
        model.supply.segments.put(segment).await;
        down(&model.segments.in_progress);
        place += packets;
    }
}

async fn make_small_messages(model: Rc<Model>) {
    let config = &model.config;
    let small = config.small.expect("started only with small messages");
    let mut stream = model.sim.stream("small messages");
    let mut at = model.sim.now();
    loop {
        at += stream.exponential(small.interval);
        model.sim.sleep_until(at).await;
        up(&model.segments.made);
        up(&model.segments.in_progress);
        let segment =
            Segment { generated_at: at, packets: 1, packet_bits: small.bits, place: None, is_returned: false };
        model.sender.application.run(config.work(config.choices.costs.generate, small.bits)).await;
        if small.dedicated {
            model.supply.small.put(segment).await;
        } else {
            model.supply.slots_ahead.put(()).await;
            model.supply.segments.put(segment).await;
        }
        down(&model.segments.in_progress);
    }
}

/// Runs a processor, or processor 0 for all under central retransmission, which takes segments
/// while its window is open.
async fn send_segments(model: Rc<Model>, connection: usize) {
    let config = &model.config;
    let state = &model.connections[connection];
    let has_small = config.small.is_some_and(|small| small.dedicated) && connection + 1 == model.connections.len();
    loop {
        state.take_slot().await;
        let segment = if has_small { model.supply.small.take().await } else { model.supply.segments.take().await };
        up(&model.segments.in_progress);
        if !has_small && !segment.is_returned {
            model.supply.slots_ahead.try_take().expect("a segment generated ahead holds a slot");
        }
        if state.has_failed.get() {
            return_segment(&model, segment).await;
            return;
        }
        let worker = model.sending_processor(connection);
        if config.kind == Kind::TwoBus {
            let bits = segment.packet_bits * segment.packets;
            fetch(&model, worker, bits).await;
            if state.has_failed.get() {
                return_segment(&model, segment).await;
                return;
            }
        }
        let end = state.next.get() + segment.packets;
        state.segments.borrow_mut().insert(end, (segment, segment.packets));
        down(&model.segments.in_progress);
        for index in 0..segment.packets {
            if index > 0 {
                state.take_slot().await;
            }
            if state.has_failed.get() {
                return;
            }
            let sequence = state.next.get();
            state.next.set(sequence + 1);
            let place = segment.place.map(|place| place + index);
            send_packet(&model, worker, Data { connection, sequence, place, bits: segment.packet_bits }).await;
        }
    }
}

/// Returns a segment of a failed processor to the others. It holds no slot of the segments
/// generated ahead, because the slot was released when the segment was first taken.
async fn return_segment(model: &Model, segment: Segment) {
    model.supply.segments.put(Segment { is_returned: true, ..segment }).await;
    down(&model.segments.in_progress);
}

/// Copies a segment over the application bus on the application's processor.
async fn fetch(model: &Model, worker: usize, bits: u64) {
    let machine = &model.sender;
    let _held = machine.application.acquire().await;
    let (from, to) = (&machine.application_memory.memory, &machine.memories[worker].memory);
    machine.abus.copy(from, to, model.config.words(bits)).await;
}

/// Processes a packet on `worker` and passes it to the network scheduler.
async fn send_packet(model: &Rc<Model>, worker: usize, data: Data) {
    let config = &model.config;
    let costs = &config.choices.costs;
    let state = &model.connections[data.connection];
    if config.scheme.central_sender && worker != 0 {
        model.messages.set(model.messages.get() + 1);
        model.sender.processors[0].run(config.work(costs.message, 0)).await;
        let (model, work) = (Rc::clone(model), config.work(costs.message, 0));
        // The central processor continues; the worker is notified.
        model.sim.clone().spawn(async move {
            model.sender.processors[worker].interrupt(work).await;
            work_on(&model, worker, data).await;
        });
    } else if config.scheme.central_sender {
        let model = Rc::clone(model);
        model.sim.clone().spawn(async move { work_on(&model, worker, data).await });
    } else {
        work_on(model, worker, data).await;
    }
    down(&state.in_progress);
    let deadline = timer::deadline(model, data.connection);
    state.in_flight.borrow_mut().entry(data.sequence).or_insert(Sent { at: model.sim.now(), deadline, data });
    if let Some(timer) = config.choices.timer {
        model.sim.spawn(timer::retransmit_late(Rc::clone(model), data, timer));
    }
}

async fn work_on(model: &Rc<Model>, worker: usize, data: Data) {
    let work = model.config.work(model.config.choices.costs.send, data.bits);
    model.sender.processors[worker].run(work).await;
    let outgoing = OutgoingPacket { processor: worker, packet: Packet::Data(data), bytes: data.bits / 8 };
    model.sim.spawn(transmit(Rc::clone(model), true, outgoing));
}

/// Processes an acknowledgement stored in memory.
pub(super) async fn take_acknowledgement(model: &Rc<Model>, ack: Ack) {
    let config = &model.config;
    let state = &model.connections[ack.connection];
    if state.has_failed.get() {
        return;
    }
    let message = config.work(config.choices.costs.message, 0);
    if config.scheme.central_sender || config.scheme.central_receiver {
        // It arrives at any processor, which notifies the one that waits for it.
        let any = model.any_processor();
        let owner = if config.scheme.central_sender { 0 } else { ack.connection };
        if any != owner {
            model.messages.set(model.messages.get() + 1);
            model.sender.processors[any].interrupt(message).await;
        }
        model.sender.processors[owner].interrupt(message).await;
    }
    acknowledge_until(model, ack.connection, ack.next);
    if let Some(only) = ack.only {
        acknowledge_one(model, ack.connection, only);
    }
    if let Some(bad) = ack.bad {
        retransmit(model, ack.connection, bad..u64::MAX).await;
    }
}

fn acknowledge_until(model: &Rc<Model>, connection: usize, next: u64) {
    let state = &model.connections[connection];
    while state.acked.get() < next {
        let sequence = state.acked.get();
        state.acked.set(sequence + 1);
        acknowledge_one(model, connection, sequence);
    }
}

fn acknowledge_one(model: &Rc<Model>, connection: usize, sequence: u64) {
    let state = &model.connections[connection];
    let Some(sent) = state.in_flight.borrow_mut().remove(&sequence) else { return };
    let now = model.sim.now();
    let round_trip = now.saturating_since(sent.at);
    if let Some(timer) = model.config.choices.timer {
        state.round_trip.measure(round_trip.as_nanos() as f64 / 1e3, timer.alpha);
    }
    model.tallies.borrow_mut().acknowledged(connection, sent.data, round_trip);
    state.window.try_put(()).expect("at most as many tokens as the window has slots");
    let mut segments = state.segments.borrow_mut();
    let Some((&end, (segment, missing))) = segments.range_mut(sequence + 1..).next() else { return };
    *missing -= 1;
    if *missing == 0 {
        if model.config.choices.confirms {
            model.sim.spawn(confirm(Rc::clone(model), *segment));
        } else {
            end_delay(model, *segment);
        }
        segments.remove(&end);
        up(&model.segments.done);
    }
}

fn end_delay(model: &Model, segment: Segment) {
    let now = model.sim.now();
    model.tallies.borrow_mut().segment(segment.place.is_none(), now.saturating_since(segment.generated_at), now);
}

/// Notifies the application's scheduler of an acknowledged segment, on its processor and in turn.
async fn confirm(model: Rc<Model>, segment: Segment) {
    let work = model.config.work(model.config.choices.costs.message, 0);
    model.sender.application.run(work).await;
    end_delay(&model, segment);
}

/// Retransmits the packets in flight of `range` in order (go-back-N). Each timer restarts at its
/// packet's turn.
pub(super) async fn retransmit(model: &Rc<Model>, connection: usize, range: Range<u64>) {
    let state = &model.connections[connection];
    let retransmit: Vec<Data> = state.in_flight.borrow().range(range).map(|(_, sent)| sent.data).collect();
    for data in retransmit {
        if let Some(deadline) = timer::deadline(model, connection) {
            let mut in_flight = state.in_flight.borrow_mut();
            // It may have been acknowledged while others were retransmitted.
            let Some(sent) = in_flight.get_mut(&data.sequence) else { continue };
            sent.deadline = Some(deadline);
        }
        model.tallies.borrow_mut().resent += 1;
        work_on(model, model.sending_processor(connection), data).await;
    }
}

/// Lets processor `index` fail: its segments return to the application's scheduler.
pub(super) fn fail(model: &Rc<Model>, index: usize) {
    let state = &model.connections[index];
    state.has_failed.set(true);
    state.in_flight.borrow_mut().clear();
    let segments = std::mem::take(&mut *state.segments.borrow_mut());
    for (_, (segment, _)) in segments {
        up(&model.segments.in_progress);
        let model = Rc::clone(model);
        model.sim.clone().spawn(async move { return_segment(&model, segment).await });
    }
}

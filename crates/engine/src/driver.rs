//! The duty cycle: take what the application asks for, receive, fire timers, say what happened, send.
//!
//! Every part of a turn is bounded, connections take turns, and nothing is looked at that has nothing to do: the cost of a
//! turn follows the work, not the number of connections.

mod admit;
mod courtesy;
mod far;
mod halves;
mod parallel;
mod run_queue;
mod survive;
mod transmit;

use std::io;
use std::sync::Arc;

use crate::clock::Clock;
use bytes::BytesMut;
use net::RecvMeta;
use quic::{ConnectionKey, Endpoint, Plan, Route};
use units::{Duration, Instant};

use self::courtesy::Courtesy;
use self::run_queue::RunQueue;
use crate::arrival::{arrived_at, belongs_with, run_of_id};
use crate::cells::ConnectionCell;
use crate::error::Closed;
use crate::halves::Receiver;
use crate::meter::Stage;
use crate::port::{NearPort, Port, PortPlace};
use crate::processor::PathProcessor;
use crate::receive::{Arrived, Buffers, RECV_BUFFERS};
use crate::shared::{Shared, Stray};
use crate::slab::Slab;
use crate::sleep::Sleeper;
use crate::slot::Slot;
use crate::socket::Readiness;
use crate::stage::{Figures, Stage as ParallelStage};
use crate::timers::Timers;

/// Calls to one socket in one turn: with [`RECV_BUFFERS`] buffers each at most 2 MiB, well under a millisecond of work.
const RECV_CALLS_PER_TURN: usize = 2;

/// Batches taken from other drivers in one turn.
const STRAYS_PER_TURN: usize = 32;

/// Connections visited in one turn.
const VISITS_PER_TURN: usize = 64;

/// Timers fired in one turn.
const TIMERS_PER_TURN: usize = 256;

/// Connections begun for the application in one turn: each costs a key exchange.
const CONNECTS_PER_TURN: usize = 16;

/// What a turn does with data that does not fill a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tails {
    /// It leaves like everything else.
    Sent,
    /// If a full batch of the connection has just left, the tail after it waits for the next call into the engine, which
    /// brings more data as a rule: a writer that drives the engine itself would pay a system call for every tail.
    Held,
}

/// What a turn did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Work {
    /// Connections whose application asked for something.
    pub(crate) asked: usize,
    /// Batches received.
    pub(crate) received: usize,
    /// Timers fired.
    pub(crate) fired: usize,
    /// Batches sent.
    pub(crate) sent: usize,
    /// Connections wait for their next turn: with more to send than they may send in one, or with a [held](Tails::Held)
    /// tail.
    pub(crate) has_more: bool,
}

/// Runs the protocol of all connections over all sockets of one engine.
pub(crate) struct Driver {
    shared: Arc<Shared>,
    clock: Clock,
    endpoint: Endpoint,
    ports: Vec<Port>,
    slots: Slab<Slot>,
    timers: Timers,
    /// Connections with something to say or to send, each once.
    run: RunQueue,
    courtesy: Courtesy,
    sleeper: Sleeper,
    buffers: Buffers,
    limits: DriverLimits,
    /// Other processors that seal and open; none under the placements of one processor.
    stage: Option<ParallelStage>,
    /// Those that serve the paths of sockets that are not the driver's own.
    processors: Vec<PathProcessor>,
    /// Who receives; none if that is the driver, or processors of paths.
    receiver: Option<Receiver>,
    /// Connections with more to tell the receiver than it takes.
    await_receiver: Vec<ConnectionKey>,
    /// Connections whose receive half is to depart once the receiver pauses.
    departing: Vec<ConnectionKey>,
    /// The connection that something is asked of now: whose fault a panic is.
    attended: Option<ConnectionKey>,
    /// Connections with more to send than the stage takes.
    await_stage: Vec<ConnectionKey>,
    /// Connections of clients whose handshake goes on.
    goodbyes_said: bool,
    // Kept from turn to turn, so that nothing is allocated in steady state.
    dirty: Vec<Arc<ConnectionCell>>,
    arrived: Vec<(RecvMeta, Arrived)>,
    /// More batches have arrived at its socket than the one that is looked at.
    others_may_open: bool,
    plan: Plan,
    sealed: Vec<u8>,
}

/// The processors beside the driver's own.
#[derive(Default)]
pub(crate) struct Others {
    pub(crate) stage: Option<ParallelStage>,
    pub(crate) processors: Vec<PathProcessor>,
    pub(crate) receiver: Option<Receiver>,
    /// What they do, counted.
    pub(crate) figures: Option<Arc<Figures>>,
}

/// The bounds the driver applies.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DriverLimits {
    pub(crate) half_open_max: usize,
    pub(crate) connections_max: usize,
    pub(crate) handshake_timeout: Duration,
}

impl Driver {
    pub(crate) fn new(
        shared: Arc<Shared>,
        endpoint: Endpoint,
        ports: Vec<Port>,
        sleeper: Sleeper,
        others: Others,
        limits: DriverLimits,
    ) -> io::Result<Self> {
        for (index, port) in ports.iter().enumerate() {
            if let Some(port) = port.as_near()
                && port.receives
                && let Readiness::Descriptor(descriptor) = port.readiness
            {
                sleeper.add(index, descriptor)?;
            }
        }
        Ok(Self {
            clock: shared.clock.clone(),
            shared,
            endpoint,
            ports,
            slots: Slab::new(limits.connections_max),
            timers: Timers::default(),
            run: RunQueue::default(),
            courtesy: Courtesy::default(),
            sleeper,
            buffers: Buffers::new(),
            limits,
            stage: others.stage,
            processors: others.processors,
            receiver: others.receiver,
            await_receiver: Vec::new(),
            departing: Vec::new(),
            attended: None,
            await_stage: Vec::new(),
            goodbyes_said: false,
            dirty: Vec::new(),
            arrived: Vec::with_capacity(RECV_BUFFERS),
            others_may_open: false,
            plan: Plan::new(),
            sealed: Vec::new(),
        })
    }

    pub(crate) fn now(&self) -> Instant {
        self.clock.now()
    }

    /// The owner wants the engine to end.
    pub(crate) fn is_stopping(&self) -> bool {
        self.shared.is_stopping()
    }

    fn do_turn(&mut self, tails: Tails) -> Work {
        self.shared.lap(Stage::Application);
        let asked = self.take_todo();
        self.shared.lap(Stage::Serve);
        let sent = self.transmit_at_once(tails);
        let received = self.receive();
        self.shared.lap(Stage::Route);
        let fired = self.fire_timers();
        self.shared.lap(Stage::Timers);
        self.carry_on();
        let sent = sent + self.transmit(tails);
        Work { asked, received, fired, sent, has_more: !self.run.is_empty() }
    }

    /// Sleeps until something is to be done, or until `deadline`; only looks around if something is to be done already.
    pub(crate) fn wait(&mut self, deadline: Option<Instant>) {
        self.shared.lap(Stage::Application);
        self.give_way();
        self.shared.waker.announce_sleep();
        let now = self.clock.now();
        let busy = self.is_busy();
        let until = if busy { Some(now) } else { self.next_deadline().into_iter().chain(deadline).min() };
        let ready = self.sleeper.wait(now, until);
        self.shared.waker.announce_awake();
        self.shared.lap(if busy { Stage::Poll } else { Stage::Waiting });
        match ready {
            Ok(ready) => {
                for ready in ready {
                    let port = self.ports.get_mut(ready.socket).and_then(Port::as_near_mut);
                    let Some(port) = port else { continue };
                    port.readable |= ready.readable && port.receives;
                    port.became_writable |= ready.writable;
                }
            }
            // Only a broken poll descriptor fails. Going on slowly beats spinning or giving up.
            Err(error) => tracing::error!(%error, "cannot wait for sockets"),
        }
    }

    /// When something is to be done; `now` if something is already.
    pub(crate) fn due_at(&self, now: Instant) -> Option<Instant> {
        if self.is_busy() { Some(now) } else { self.next_deadline().map(|at| at.max(now)) }
    }

    /// Something is to be done already.
    fn is_busy(&self) -> bool {
        let takes = self.takes_more();
        !self.run.is_empty()
            || !self.dirty.is_empty()
            || (takes && self.near_ports().any(|port| port.readable || port.arrivals.has_some()))
            || self.stage.as_ref().is_some_and(ParallelStage::has_news)
            || self.has_news()
            || self.receiver.as_ref().is_some_and(Receiver::has_news)
            || (!self.await_receiver.is_empty() && self.receiver.as_ref().is_some_and(Receiver::has_room))
            || self.shared.has_todo()
            || (self.shared.is_stopping() && !self.goodbyes_said)
    }

    /// When something is to be done that nobody wakes the driver for.
    fn next_deadline(&self) -> Option<Instant> {
        let retries = self.near_ports().filter_map(NearPort::retry_at);
        let late = self.stage.as_ref().and_then(ParallelStage::deadline);
        let hangs = self.processors.iter().filter_map(PathProcessor::deadline);
        let hangs = hangs.chain(self.receiver.as_ref().and_then(Receiver::deadline));
        self.timers.next().into_iter().chain(retries).chain(late).chain(hangs).min()
    }

    /// The sockets that the driver serves.
    fn near_ports(&self) -> impl Iterator<Item = &NearPort> {
        self.ports.iter().filter_map(Port::as_near)
    }

    /// Whether a socket takes something now.
    fn port_has_room(&self, index: usize) -> bool {
        match &self.ports[index].place {
            PortPlace::Near(port) => port.has_room(),
            PortPlace::Far { processor, .. } => self.processors[*processor].has_room(),
        }
    }

    // ── What the application asks for ────────────────────────────────────────────────────────────────────────────────

    fn take_todo(&mut self) -> usize {
        // What is left of a turn that was cut short goes first.
        let stopping =
            if self.dirty.is_empty() { self.shared.take_dirty(&mut self.dirty) } else { self.shared.is_stopping() };
        let mut asked = 0;
        while let Some(cell) = self.dirty.pop() {
            let Some(place) = cell.place.get() else { continue };
            let now = self.clock.now();
            let Some(slot) = self.slots.get_mut(place.key.0) else { continue };
            // The key may have passed on to another connection.
            if Arc::ptr_eq(&slot.cell, &cell) {
                self.attended = Some(place.key);
                slot.serve_todo(now);
                self.attended = None;
                if slot.connection.has_little_next(courtesy::LITTLE_MAX) {
                    self.courtesy.note_little(now, place.key);
                }
                self.schedule(place.key);
                asked += 1;
            }
        }
        if stopping {
            self.say_goodbyes();
        }
        for _ in 0..CONNECTS_PER_TURN {
            let Some(request) = self.shared.pop_connect() else { break };
            self.connect(request);
            asked += 1;
        }
        asked
    }

    /// Closes every connection, once.
    fn say_goodbyes(&mut self) {
        if std::mem::replace(&mut self.goodbyes_said, true) {
            return;
        }
        let now = self.clock.now();
        let keys: Vec<u32> = self.slots.keys().collect();
        for key in keys {
            if let Some(slot) = self.slots.get_mut(key) {
                slot.end_override.get_or_insert(Closed::EndpointClosed);
                slot.connection.close(now, 0, "");
            }
            self.schedule(ConnectionKey(key));
        }
    }

    /// Every goodbye has left: the sockets have them.
    pub(crate) fn has_left(&mut self) -> bool {
        let is_under_way = self.stage.as_ref().is_some_and(|stage| !stage.is_empty());
        let has_held = self.near_ports().any(|port| !port.has_room());
        let keys: Vec<u32> = self.slots.keys().collect();
        let is_away = keys.iter().any(|key| self.slots.get_mut(*key).is_some_and(|slot| slot.away.is_some()));
        if !self.goodbyes_said || !self.run.is_empty() || is_under_way || has_held || is_away {
            return false;
        }
        // A goodbye that the system refused leaves after a wait.
        let keys: Vec<u32> = self.slots.keys().collect();
        if keys.into_iter().any(|key| self.slots.get_mut(key).is_some_and(|slot| slot.refused_until.is_some())) {
            return false;
        }
        // Last, since they are asked: a batch that waits in a processor for room has not left.
        let now = self.clock.now();
        // All of them, so that they finish at the same time.
        self.processors.iter_mut().map(|processor| processor.has_finished(now)).filter(|finished| !finished).count()
            == 0
    }

    // ── Receiving ────────────────────────────────────────────────────────────────────────────────────────────────────

    fn receive(&mut self) -> usize {
        let mut received = 0;
        if !self.takes_more() {
            return received;
        }
        for index in 0..self.ports.len() {
            let Some(port) = self.ports[index].as_near_mut() else { continue };
            port.readable |= port.arrivals.take();
            for _ in 0..RECV_CALLS_PER_TURN {
                if !self.ports[index].as_near().is_some_and(|port| port.readable) {
                    break;
                }
                received += self.receive_from(index);
            }
        }
        for _ in 0..STRAYS_PER_TURN {
            let Some((Stray { port, meta, batch }, has_more)) = self.shared.pop_stray() else { break };
            self.others_may_open = has_more;
            received += 1;
            self.deliver(port, &meta, batch);
        }
        received + self.take_news() + self.take_from_receiver()
    }

    /// One call to a socket.
    fn receive_from(&mut self, index: usize) -> usize {
        let Some(port) = self.ports[index].as_near_mut() else { return 0 };
        self.shared.lap(Stage::Route);
        let count = port.receive(&mut self.buffers);
        self.shared.lap(Stage::RecvCall);
        if let Some(meter) = &self.shared.meter {
            meter.count_received(&self.buffers.metas[..count]);
        }
        if count > 0 {
            // An acknowledgement may come here of what another processor has sent.
            self.take_all_reports();
        }
        let mut arrived = std::mem::take(&mut self.arrived);
        arrived.extend((0..count).map(|batch| (self.buffers.metas[batch], self.buffers.take(batch))));
        // The last of them the driver opens itself, so that what comes alone is not handed over.
        let mut left = count;
        for (meta, batch) in arrived.drain(..) {
            left -= 1;
            self.others_may_open = left > 0;
            self.deliver(index, &meta, batch);
        }
        self.arrived = arrived;
        count
    }

    /// Gives the datagrams of a batch to their connections.
    fn deliver(&mut self, port: usize, meta: &RecvMeta, batch: Arrived) {
        let stride = meta.stride.max(1);
        let mut data = batch.bytes();
        if data.is_empty() {
            // Anybody may send an empty datagram.
            return;
        }
        let first = &data[..stride.min(data.len())];
        match self.endpoint.route(first) {
            Route::Known(key) if self.run_of(key, data, stride) == data.len() => {
                self.hand_over(port, key, meta, batch);
                return;
            }
            Route::Unknown if run_of_id(data, stride) == data.len() => {
                self.pass_on(port, meta, batch);
                return;
            }
            _ => {}
        }
        // Several connections share the batch, or one begins: each gets a copy of its part.
        while !data.is_empty() {
            let first = &data[..stride.min(data.len())];
            let mut len = first.len();
            match self.endpoint.route(first) {
                Route::Known(key) => {
                    len = self.run_of(key, data, stride);
                    self.hand_over(port, key, meta, Arrived::Copied(BytesMut::from(&data[..len])));
                }
                Route::First => self.admit(port, meta, first.into()),
                Route::UnknownVersion => self.negotiate(port, meta, first),
                Route::Unknown => {
                    len = run_of_id(data, stride);
                    self.pass_on(port, meta, Arrived::Copied(BytesMut::from(&data[..len])));
                }
            }
            data = &data[len..];
        }
    }

    /// Datagrams of no connection of this driver may be another driver's.
    pub(super) fn pass_on(&self, port: usize, meta: &RecvMeta, batch: Arrived) {
        let count = self.shared.driver_count();
        if count == 1 {
            return;
        }
        let data = batch.bytes();
        let first = &data[..meta.stride.min(data.len())];
        if let Some(index) = Endpoint::shard_of(first, count).filter(|index| *index != self.shared.index) {
            self.shared.pass_on(index, Stray { port, meta: *meta, batch });
        }
    }

    fn hand_over(&mut self, port: usize, key: ConnectionKey, meta: &RecvMeta, batch: Arrived) {
        if self.stage.is_some() && self.processors.is_empty() {
            self.open_by_stage(port, key, meta, batch);
            return;
        }
        if let Some(processor) = self.ports[port].processor() {
            // It asks the application's session for keys.
            self.attended = Some(key);
            self.lend_there(key, processor, batch.bytes());
            self.attended = None;
        }
        let now = self.clock.now();
        let len = batch.bytes().len();
        self.note_bulk(key, len);
        if let Some(slot) = self.slots.get_mut(key.0) {
            if slot.away.is_some() {
                return self.keep_for_the_whole(port, key, meta, batch);
            }
            self.shared.lap(Stage::Route);
            self.attended = Some(key);
            slot.connection.handle_datagrams(now, arrived_at(port, meta), batch, meta.stride);
            self.attended = None;
            self.shared.lap(Stage::OpenAbsorb);
            self.schedule(key);
            self.tell_of_little(key, len);
        }
    }

    /// How many bytes from the front of `data` belong to connection `key`, the first datagram of which does. Receive offload
    /// joins what comes from one address, and two connections may share one.
    fn run_of(&self, key: ConnectionKey, data: &[u8], stride: usize) -> usize {
        let mut datagrams = data.chunks(stride);
        let Some(first) = datagrams.next() else { return 0 };
        let mut len = first.len();
        for datagram in datagrams {
            if !belongs_with(first, datagram, || self.endpoint.route(datagram) == Route::Known(key)) {
                break;
            }
            len += datagram.len();
        }
        len
    }

    // ── Timers ───────────────────────────────────────────────────────────────────────────────────────────────────────

    fn fire_timers(&mut self) -> usize {
        let now = self.clock.now();
        for index in 0..self.ports.len() {
            let Some(port) = self.ports[index].as_near_mut() else { continue };
            let writable = std::mem::take(&mut port.became_writable) && port.awaits_writable();
            if writable || port.retry_at().is_some_and(|at| at <= now) {
                self.retry_port(now, index);
            }
        }
        let mut fired = 0;
        while fired < TIMERS_PER_TURN
            && let Some(key) = self.timers.pop_due(now)
        {
            fired += 1;
            let Some(slot) = self.slots.get_mut(key) else { continue };
            slot.deadline = None;
            self.attended = Some(ConnectionKey(key));
            if slot.handshake_until.is_some_and(|until| until <= now) {
                slot.handshake_until = None;
                let last_send_error = slot.last_send_error.clone();
                slot.end_override.get_or_insert(Closed::HandshakeTimedOut { last_send_error });
                slot.connection.close(now, 0, "the handshake took too long");
            } else {
                slot.connection.handle_timeout(now);
            }
            self.attended = None;
            self.schedule(ConnectionKey(key));
        }
        fired
    }

    /// Queues a connection to be visited, unless it is queued.
    fn schedule(&mut self, key: ConnectionKey) {
        if let Some(slot) = self.slots.get_mut(key.0)
            && !std::mem::replace(&mut slot.scheduled, true)
        {
            self.run.push(slot.priority, key);
        }
    }

    /// Forgets a connection.
    fn forget(&mut self, key: ConnectionKey) {
        let Some(mut slot) = self.slots.remove(key.0) else { return };
        self.timers.replace(key.0, slot.deadline, None);
        while let Some(change) = slot.connection.poll_route() {
            self.endpoint.apply(key, change);
        }
        let now = self.clock.now();
        slot.lose_part(now, Closed::EndpointClosed);
        // Does nothing if the end was told already.
        slot.on_closed(now, Closed::EndpointClosed);
    }
}

/// Nobody may wait for a driver that is gone, whatever the reason.
impl Drop for Driver {
    fn drop(&mut self) {
        let keys: Vec<u32> = self.slots.keys().collect();
        for key in keys {
            if !std::thread::panicking() {
                self.forget(ConnectionKey(key));
            } else if let Some(mut slot) = self.slots.remove(key) {
                // Where there are other drivers the endpoint lives on.
                let is_last = self.shared.driver_count() == 1;
                slot.abandon(if is_last { Closed::EndpointClosed } else { Closed::ProcessorGone });
            }
        }
        let rest = self.shared.mark_stopped();
        for request in rest.connects {
            request.cell.close(Closed::EndpointClosed, None);
        }
    }
}

//! Visiting connections: routes, events, plans, timers.

use std::cell::Cell;
use std::sync::Arc;

use net::{SendError, Transmit};
use quic::{ConnectionKey, Event, PLAN_DATAGRAMS_MAX, PathId, Plan, Side, seal};
use units::Instant;

use super::{Driver, Tails, VISITS_PER_TURN};
use crate::meter::Stage;
use crate::port::{Parcel, PortPlace, Sent};
use crate::sleep::Sleeper;
use crate::slot::Slot;
use crate::socket::Readiness;

/// Batches a connection may send before the next one has its turn: at most 256 datagrams.
pub(super) const PLANS_PER_VISIT: usize = 4;

/// What a visit left.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// Nothing to send.
    Nothing,
    /// More to send than its turn allowed, or a tail that is [held](Tails::Held).
    More,
    /// More to send than the socket takes.
    NoRoom,
}

impl Driver {
    /// Visits the connections that have something to say or to send, in turn. Returns the batches sent.
    pub(super) fn transmit(&mut self, tails: Tails) -> usize {
        let mut sent = 0;
        self.wake_awaiting_receiver();
        for _ in 0..self.run.len().min(VISITS_PER_TURN) {
            // What is to be acknowledged, and what was, is known before a plan is made.
            self.take_findings();
            let Some(key) = self.run.pop() else { break };
            if let Some(slot) = self.slots.get_mut(key.0) {
                slot.scheduled = false;
            }
            sent += self.visit(key, tails, PLANS_PER_VISIT);
        }
        if let Some(receiver) = &mut self.receiver {
            receiver.wake();
        }
        self.shared.lap(Stage::HandOver);
        let now = self.clock.now();
        for index in 0..self.ports.len() {
            if let Some(port) = self.ports[index].as_near_mut() {
                port.flush(now);
                self.watch_room(index);
            }
        }
        self.shared.lap(Stage::SendCall);
        sent
    }

    /// Lets a connection say what it has to say, and send so many batches.
    pub(super) fn visit(&mut self, key: ConnectionKey, tails: Tails, plans_max: usize) -> usize {
        self.attended = Some(key);
        let sent = self.attend(key, tails, plans_max);
        self.attended = None;
        sent
    }

    fn attend(&mut self, key: ConnectionKey, tails: Tails, plans_max: usize) -> usize {
        self.apply_routes(key);
        self.tell(key);
        self.want_to_depart(key);
        if let Some(slot) = self.slots.get_mut(key.0) {
            // Events may have woken the application, and brought in what it wrote since.
            slot.serve_rate();
        }
        self.shared.lap(Stage::HandOver);
        if !self.tell_receiver(key) {
            return 0;
        }
        let (sent, left) = self.send_plans(key, tails, plans_max);
        // Planning may have ended streams or changed routes.
        self.apply_routes(key);
        self.tell(key);
        self.tell_receiver(key);
        let Some(slot) = self.slots.get_mut(key.0) else { return sent };
        if slot.connection.is_closed() && slot.away.is_none() {
            self.forget(key);
            return sent;
        }
        let timeout =
            slot.connection.poll_timeout().into_iter().chain(slot.handshake_until).chain(slot.refused_until).min();
        self.timers.replace(key.0, slot.deadline, timeout);
        slot.deadline = timeout;
        match left {
            Left::Nothing => {}
            Left::More => self.schedule(key),
            Left::NoRoom => {
                // Visited all the same when something arrives: only sending has to wait.
                let full = (0..self.ports.len()).filter(|index| !self.port_has_room(*index));
                // One whose processor is gone never has room again.
                let is_served = |index: &usize| {
                    self.ports[*index].processor().is_none_or(|processor| !self.processors[processor].is_gone())
                };
                let full = full.filter(is_served);
                let full = full.fold(0, |full, index| full | 1 << index);
                self.await_room(key, full);
            }
        }
        sent
    }

    /// Puts a connection into the queues of these sockets, bit by bit.
    fn await_room(&mut self, key: ConnectionKey, full: u64) {
        let Some(slot) = self.slots.get_mut(key.0) else { return };
        for (index, port) in self.ports.iter_mut().enumerate() {
            if full & !slot.awaits_room & 1 << index != 0 {
                slot.awaits_room |= 1 << index;
                port.waiting.push_back(key);
            }
        }
    }

    /// Tells the application what happened.
    pub(super) fn tell(&mut self, key: ConnectionKey) {
        let Some(slot) = self.slots.get_mut(key.0) else { return };
        while let Some(event) = slot.connection.poll_event() {
            let now = self.clock.now();
            let connected = event == Event::Connected;
            let ended = connected || matches!(event, Event::Closed(_));
            slot.on_event(now, event);
            if ended {
                slot.half_open = None;
            }
            if connected && slot.connection.side() == Side::Server {
                self.shared.push_accepted(slot.cell.clone());
            }
        }
    }

    fn send_plans(&mut self, key: ConnectionKey, tails: Tails, plans_max: usize) -> (usize, Left) {
        let Some(slot) = self.slots.get_mut(key.0) else { return (0, Left::Nothing) };
        if slot.refused_until.is_some_and(|until| until > self.clock.now()) {
            return (0, Left::Nothing);
        }
        // The wait is over, whether there is something to send or not: a deadline in the past would fire for ever.
        slot.refused_until = None;
        if self.stage.is_some() {
            return self.send_by_stage(key, plans_max);
        }
        let mut sent = 0;
        // What the socket used last takes at a time.
        let mut datagrams_max = PLAN_DATAGRAMS_MAX;
        for _ in 0..plans_max {
            if sent > 0 && tails == Tails::Held && self.has_only_a_tail(key, datagrams_max) {
                return (sent, Left::More);
            }
            if let Err(left) = self.plan(key) {
                return (sent, left);
            }
            sent += 1;
            if let Some(addresses) = self.plan.addresses {
                let port = &self.ports[usize::from(addresses.socket)];
                datagrams_max = port.batch_max();
                if let Some(processor) = port.processor() {
                    self.send_there(key, processor);
                    continue;
                }
            }
            seal(&self.plan, &mut self.sealed);
            let (plan, sealed) = (std::mem::take(&mut self.plan), std::mem::take(&mut self.sealed));
            let goes_on = self.emit(key, &plan, &sealed);
            (self.plan, self.sealed) = (plan, sealed);
            if !goes_on {
                return (sent, Left::Nothing);
            }
            if self.plan.is_background() && self.courtesy.wants_pause(self.clock.now()) {
                break;
            }
        }
        (sent, Left::More)
    }

    fn has_only_a_tail(&mut self, key: ConnectionKey, datagrams_max: usize) -> bool {
        let Some(slot) = self.slots.get_mut(key.0) else { return false };
        self.plan.is_full(datagrams_max) && slot.connection.has_only_a_tail(datagrams_max)
    }

    /// Fills the plan with what a connection may send now.
    ///
    /// # Errors
    /// If that is nothing, what it waits for.
    pub(super) fn plan(&mut self, key: ConnectionKey) -> Result<(), Left> {
        let Some(slot) = self.slots.get_mut(key.0) else { return Err(Left::Nothing) };
        let is_full = Cell::new(false);
        let (ports, processors) = (&self.ports, &self.processors);
        let room = |socket: u16| {
            let (has_room, batch_max) = match &ports[usize::from(socket)].place {
                PortPlace::Near(port) => (port.has_room(), port.socket.max_gso_segments().max(1)),
                PortPlace::Far { processor, batch_max } => (processors[*processor].has_room(), *batch_max),
            };
            is_full.set(is_full.get() || !has_room);
            if has_room { batch_max } else { 0 }
        };
        let planned = slot.connection.poll_plan_where(self.clock.now(), &room, &mut self.plan);
        // Before it leaves, since the peer goes by what we tell it.
        slot.lender.tell(&slot.connection);
        self.shared.lap(Stage::Plan);
        match planned {
            true => Ok(()),
            false if is_full.get() => Err(Left::NoRoom),
            false => Err(Left::Nothing),
        }
    }

    /// A sealed batch leaves. False if the connection may send no more for now.
    pub(super) fn emit(&mut self, key: ConnectionKey, plan: &Plan, sealed: &[u8]) -> bool {
        let Some(slot) = self.slots.get_mut(key.0) else { return false };
        let now = self.clock.now();
        if let Some(meter) = &self.shared.meter {
            meter.lap_at(Stage::Seal, now);
            meter.count_sent(plan.datagram_count(), sealed.len());
        }
        // Before the system call, so that no acknowledgement can overtake the report.
        slot.connection.handle_emitted(now, &plan.receipt());
        let Some(addresses) = plan.addresses else { return true };
        let transmit = Transmit {
            destination: addresses.remote,
            source_ip: addresses.local_ip,
            ecn: None,
            contents: sealed,
            segment_size: (plan.datagram_count() > 1).then_some(plan.segment_size),
        };
        self.shared.lap(Stage::Report);
        let Some(port) = self.ports[usize::from(addresses.socket)].as_near_mut() else { return true };
        let parcel = || Some(Parcel { key, cell: Arc::clone(&slot.cell), receipt: plan.receipt() });
        // Not the connection's fault if this breaks.
        let attended = self.attended.take();
        let outcome = port.send(now, &transmit, parcel);
        self.attended = attended;
        self.shared.lap(Stage::SendCall);
        match outcome {
            Sent::Taken => {
                slot.on_taken();
                true
            }
            Sent::Lost(error) => on_lost(slot, now, plan, &error),
        }
    }

    /// A socket may have room again.
    pub(super) fn retry_port(&mut self, now: Instant, index: usize) {
        // It leaves now, not when it was planned: round trips are measured from here.
        let held = self.ports[index].as_near().and_then(|port| port.held().cloned());
        if let Some(parcel) = &held
            && let Some(slot) = self.owner(parcel)
        {
            slot.connection.handle_emitted(now, &parcel.receipt);
        }
        let refused = self.ports[index].as_near_mut().and_then(|port| port.retry(now));
        if let Some((Some(parcel), error)) = refused {
            self.on_late_refusal(now, &parcel, &error);
        }
        self.watch_room(index);
        if self.port_has_room(index) {
            self.schedule_waiting(index);
        }
    }

    /// Those that waited for a socket go first, in their order.
    pub(super) fn schedule_waiting(&mut self, index: usize) {
        while let Some(key) = self.ports[index].waiting.pop_front() {
            // The key may have passed on to another connection, whose visit does no harm.
            if let Some(slot) = self.slots.get_mut(key.0) {
                slot.awaits_room &= !(1 << index);
                self.schedule(key);
            }
        }
    }

    /// The connection a batch belongs to, if it is there still.
    pub(super) fn owner(&mut self, parcel: &Parcel) -> Option<&mut Slot> {
        self.slots.get_mut(parcel.key.0).filter(|slot| Arc::ptr_eq(&slot.cell, &parcel.cell))
    }

    /// Watches a socket for room exactly while it has none.
    fn watch_room(&mut self, index: usize) {
        let Some(port) = self.ports[index].as_near_mut() else { return };
        let wanted = port.awaits_writable();
        if wanted == port.watched {
            return;
        }
        if let Readiness::Descriptor(descriptor) = port.readiness {
            let watch = if port.receives { Sleeper::watch_writable } else { Sleeper::watch_only_writable };
            match watch(&self.sleeper, index, descriptor, wanted) {
                Ok(()) => port.watched = wanted,
                Err(error) => tracing::error!(%error, "cannot watch a socket for room"),
            }
        }
    }
}

/// The system took a batch that did not leave, which is not the network's doing and so no loss: the same content is planned
/// again. True if that may be now.
pub(super) fn on_lost(slot: &mut Slot, now: Instant, plan: &Plan, error: &SendError) -> bool {
    slot.connection.handle_not_emitted(&plan.receipt());
    goes_on(slot, now, plan.path, error)
}

/// The system refuses what a path was to carry. Smaller datagrams may do, or another path; otherwise there is a wait, and false.
pub(super) fn goes_on(slot: &mut Slot, now: Instant, path: PathId, error: &SendError) -> bool {
    if matches!(error, SendError::TooLarge) && slot.connection.handle_too_large(now, path) {
        tracing::info!(%path, "the route takes no datagrams of this size: they have 1200 bytes from now on");
        return true;
    }
    if slot.connection.handle_refused(now, path) {
        tracing::debug!(%path, %error, "a path is refused");
        slot.last_send_error = Some(error.to_string());
        return true;
    }
    tracing::debug!(%path, %error, "a batch was lost");
    slot.on_refused(now, error.to_string());
    false
}

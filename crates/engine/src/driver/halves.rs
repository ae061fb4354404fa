//! The driver with a receiver: which connections' receive halves go there, what is told to them, what they tell.

use std::sync::Arc;

use quic::ConnectionKey;
use units::Instant;

use super::{Driver, RECV_CALLS_PER_TURN};
use crate::error::Closed;
use crate::halves::{ARRIVALS_MAX, Arrival, Guest, NEWS_MAX, News};
use crate::meter::Stage;
use crate::receive::{Arrived, RECV_BUFFERS};
use crate::slot::STRANGE_MAX;

/// A batch of so many bytes means that much arrives.
const BULK_FROM: usize = 8 << 10;

/// Arrivals looked at in one turn: as many as a driver that receives itself takes from one socket.
const ARRIVALS_PER_TURN: usize = RECV_CALLS_PER_TURN * RECV_BUFFERS;

impl Driver {
    /// What the receiver has to tell, and what it leaves to us; how many batches that were.
    pub(super) fn take_from_receiver(&mut self) -> usize {
        if self.receiver.is_none() {
            return 0;
        }
        let received = self.take_findings() + self.take_arrivals(ARRIVALS_PER_TURN);
        let now = self.clock.now();
        if self.receiver.as_mut().is_some_and(|receiver| receiver.look(now)) {
            self.on_receiver_lost(now);
        }
        received
    }

    /// What the receiver leaves to us, so many batches at most.
    fn take_arrivals(&mut self, max: usize) -> usize {
        for taken in 0..max {
            let arrival = self.receiver.as_mut().and_then(|receiver| receiver.take_arrival());
            let Some(Arrival { port, meta, batch }) = arrival else { return taken };
            // The half that this batch is for may have come back before it.
            self.take_findings();
            self.others_may_open = self.receiver.as_ref().is_some_and(|receiver| receiver.has_more_of(port));
            self.deliver(port, &meta, batch);
        }
        max
    }

    /// What receive halves have found out: to be known before a plan is made. How many reports that were.
    pub(super) fn take_findings(&mut self) -> usize {
        let mut taken = 0;
        for _ in 0..NEWS_MAX {
            let Some(news) = self.receiver.as_mut().and_then(|receiver| receiver.take_news()) else { break };
            let now = self.clock.now();
            match news {
                News::Report { key, cell, mut report } => {
                    taken += 1;
                    if let Some(slot) = self.slots.get_mut(key.0).filter(|slot| Arc::ptr_eq(&slot.cell, &cell)) {
                        self.attended = Some(key);
                        slot.connection.handle_findings(now, &mut report.findings);
                        slot.hand_out(std::mem::take(&mut report.accepted));
                        self.attended = None;
                        self.schedule(key);
                        if let Some(receiver) = &mut self.receiver {
                            receiver.keep_report(report);
                        }
                    }
                }
                News::Paused => self.let_all_depart(),
                News::Quiet { key, cell } => {
                    let slot = self.slots.get_mut(key.0).filter(|slot| Arc::ptr_eq(&slot.cell, &cell));
                    if let Some(away) = slot.and_then(|slot| slot.away.as_mut()) {
                        away.is_quiet = true;
                        self.schedule(key);
                    }
                }
                News::Returned { key, guest } => self.welcome(now, key, guest),
                News::Broken { key, cell } => {
                    if let Some(slot) = self.slots.get_mut(key.0).filter(|slot| Arc::ptr_eq(&slot.cell, &cell)) {
                        slot.lose_part(now, Closed::ProcessorGone);
                        self.schedule(key);
                    }
                }
            }
            self.shared.lap(Stage::OpenAbsorb);
        }
        taken
    }

    /// A receive half is back.
    fn welcome(&mut self, now: Instant, key: ConnectionKey, guest: Box<Guest>) {
        let slot = self.slots.get_mut(key.0);
        // Its connection may have broken meanwhile, and the key may be another's.
        let slot = slot.filter(|slot| guest.cell().is_some_and(|cell| Arc::ptr_eq(&slot.cell, cell)));
        let Some(slot) = slot else { return };
        let Some((part, inbound)) = guest.into_halves() else { return };
        self.attended = Some(key);
        let strangers = slot.come_back(now, part, inbound);
        self.attended = None;
        self.schedule(key);
        for (port, meta, batch) in strangers {
            self.deliver(port, &meta, batch);
        }
    }

    /// Something arrived for a connection whose receive half is away, which is for the whole of it.
    pub(super) fn keep_for_the_whole(&mut self, port: usize, key: ConnectionKey, meta: &net::RecvMeta, batch: Arrived) {
        let Some(away) = self.slots.get_mut(key.0).and_then(|slot| slot.away.as_mut()) else { return };
        if away.strangers.len() < STRANGE_MAX {
            away.strangers.push((port, *meta, batch));
        }
        self.schedule(key);
    }

    /// Much arrives for a connection that is whole: a reason to part.
    pub(super) fn note_bulk(&mut self, key: ConnectionKey, bytes: usize) {
        if bytes >= BULK_FROM
            && self.receiver.is_some()
            && let Some(slot) = self.slots.get_mut(key.0)
        {
            slot.bulk_arrives = true;
        }
    }

    /// Lets the receive half of a connection go to the receiver, if that is where it belongs. Not at once: batches of it are
    /// on their way here, so the receiver pauses until they have come.
    pub(super) fn want_to_depart(&mut self, key: ConnectionKey) {
        let Some(receiver) = self.receiver.as_mut().filter(|receiver| receiver.takes_guests()) else { return };
        let Some(slot) = self.slots.get_mut(key.0).filter(|slot| slot.bulk_arrives && slot.away.is_none()) else {
            return;
        };
        let now = self.clock.now();
        if slot.whole_until > now || !slot.connection.can_part() {
            return;
        }
        slot.bulk_arrives = false;
        if self.departing.is_empty() {
            receiver.pause(now);
        }
        self.departing.push(key);
    }

    /// The receiver pauses: what it had received is taken, and whoever wanted to depart does.
    fn let_all_depart(&mut self) {
        self.take_arrivals(ARRIVALS_MAX);
        let now = self.clock.now();
        for key in std::mem::take(&mut self.departing) {
            // What is to be said about what has arrived is said while that is here.
            self.attended = Some(key);
            self.tell(key);
            self.attended = None;
            let Some(receiver) = self.receiver.as_mut().filter(|receiver| receiver.takes_guests()) else { continue };
            let slot = self.slots.get_mut(key.0).filter(|slot| slot.away.is_none());
            if let Some((part, inbound)) = slot.and_then(|slot| slot.depart()) {
                receiver.take(now, key, Box::new(Guest::new(now, part, inbound)));
            }
        }
        if let Some(receiver) = &mut self.receiver {
            receiver.resume(now);
            receiver.wake();
        }
    }

    /// Tells a receive half that is away what there is for it. False if that found no room: nothing may be sent then that the
    /// peer may answer.
    pub(super) fn tell_receiver(&mut self, key: ConnectionKey) -> bool {
        let Some(slot) = self.slots.get_mut(key.0) else { return true };
        let (Some(receiver), Some(away)) = (&mut self.receiver, &mut slot.away) else { return true };
        if away.is_recalled {
            // It takes what there is with it when it is back.
            return true;
        }
        if !receiver.has_room() {
            if !self.await_receiver.contains(&key) {
                self.await_receiver.push(key);
            }
            return false;
        }
        let now = self.clock.now();
        let mut word = receiver.spare_word();
        let has_orders = slot.connection.poll_orders(&mut word.orders);
        if has_orders || away.has_news() {
            std::mem::swap(&mut word.readers, &mut away.readers);
            std::mem::swap(&mut word.tasks, &mut away.tasks);
            word.inbound = std::mem::take(&mut away.inbound);
            receiver.tell(now, key, word);
        } else {
            receiver.keep_word(word);
        }
        if away.is_wanted() {
            away.is_recalled = true;
            receiver.recall(now, key);
        }
        true
    }

    /// Those that found no room are visited again, once there is some.
    pub(super) fn wake_awaiting_receiver(&mut self) {
        if self.receiver.as_ref().is_some_and(|receiver| receiver.has_room()) {
            for key in std::mem::take(&mut self.await_receiver) {
                self.schedule(key);
            }
        }
    }

    /// The receiver has died: connections whose receive half it had end, the others go on here.
    fn on_receiver_lost(&mut self, now: Instant) {
        tracing::error!("the receiver does not answer: connections whose receive half it has end");
        for index in 0..self.ports.len() {
            let Some(port) = self.ports[index].as_near_mut() else { continue };
            if let Err(error) = port.receive_here(index, &self.sleeper) {
                tracing::error!(%error, "cannot receive from a socket");
            }
        }
        let keys: Vec<u32> = self.slots.keys().collect();
        for key in keys {
            if let Some(slot) = self.slots.get_mut(key).filter(|slot| slot.away.is_some()) {
                slot.lose_part(now, Closed::ProcessorGone);
                self.schedule(ConnectionKey(key));
            }
        }
    }
}

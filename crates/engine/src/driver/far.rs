//! The driver with processors of paths: what it gives them, what it makes of their news, and what if one dies.

use std::sync::Arc;

use net::{RecvMeta, SendError};
use quic::{ConnectionKey, PathId, ReceiveBuffer, Route};
use units::Instant;

use super::Driver;
use super::transmit::goes_on;
use crate::error::Closed;
use crate::meter::Stage;
use crate::port::Parcel;
use crate::processor::{ARRIVALS_MAX, Arrival, News, OpenedThere, Turn};
use crate::receive::Arrived;

/// A batch of so many bytes makes the driver lend what opens those that follow: to open a small one takes no longer, and of many
/// connections few are busy.
const LEND_FROM: usize = 8 << 10;

/// Arrivals of one processor looked at in one turn: all that its ring holds, so that one that has opened much does not wait for
/// what the driver opens itself.
const ARRIVALS_PER_TURN: usize = ARRIVALS_MAX;

impl Driver {
    /// Whether a processor has something to tell.
    pub(super) fn has_news(&self) -> bool {
        self.processors.iter().any(|processor| processor.has_news())
    }

    /// Takes what the processors have to tell; how many batches have arrived.
    pub(super) fn take_news(&mut self) -> usize {
        let mut received = 0;
        for index in 0..self.processors.len() {
            self.take_reports(index);
            for _ in 0..ARRIVALS_PER_TURN {
                let Some(Arrival { port, meta, batch, opened }) = self.processors[index].take_arrival() else { break };
                // Reports first, of all processors: an acknowledgement may come on another path than what it is about.
                self.take_all_reports();
                received += 1;
                self.others_may_open = self.processors[index].has_more_of(port);
                match opened {
                    Some(opened) => self.absorb_opened(index, &meta, batch, opened),
                    None => self.deliver(port, &meta, batch),
                }
            }
            let now = self.clock.now();
            match self.processors[index].look(now) {
                Turn::None => {}
                Turn::Lost => self.on_processor_lost(now, index),
                Turn::Back => self.wake_waiting(index),
            }
        }
        received
    }

    pub(super) fn take_all_reports(&mut self) {
        (0..self.processors.len()).for_each(|index| self.take_reports(index));
    }

    /// Takes what a processor says about what it was given.
    fn take_reports(&mut self, index: usize) {
        while let Some(news) = self.processors[index].take_news() {
            match news {
                News::Leaves { parcel, plan, at, .. } => {
                    let was_refused = self.processors[index].note_refused(false);
                    self.on_emitted(at, &parcel);
                    if let Some(slot) = self.owner(&parcel).filter(|_| !was_refused) {
                        slot.on_taken();
                    }
                    self.processors[index].keep_plan(plan);
                    self.wake_waiting(index);
                }
                News::Late { parcel, at } => self.on_emitted(at, &parcel),
                News::Refused { parcel, at, error } => {
                    self.processors[index].note_refused(true);
                    self.on_late_refusal(at, &parcel, &error);
                }
                // It is in the books of the processor.
                News::Finished { .. } => {}
            }
        }
    }

    /// A batch that was opened where it arrived.
    fn absorb_opened(&mut self, processor: usize, meta: &RecvMeta, batch: Arrived, opened: OpenedThere) {
        let OpenedThere { key, cell, mut open } = opened;
        let now = self.clock.now();
        self.shared.lap(Stage::Route);
        let first = &batch.bytes()[..meta.stride.min(batch.bytes().len())];
        // The ID may have been retired meanwhile, and the connection forgotten.
        let is_routed = self.endpoint.route(first) == Route::Known(key);
        let slot = self.slots.get_mut(key.0).filter(|slot| is_routed && Arc::ptr_eq(&slot.cell, &cell));
        let len = batch.bytes().len();
        if let Some(slot) = slot {
            self.attended = Some(key);
            slot.connection.handle_opened_there(now, &mut open, &batch.freeze());
            self.attended = None;
            self.schedule(key);
            self.tell_of_little(key, len);
        }
        self.processors[processor].keep_open(open);
        self.shared.lap(Stage::OpenAbsorb);
    }

    /// A batch that begins like this came unopened from a processor: from now on it opens them itself.
    pub(super) fn lend_there(&mut self, key: ConnectionKey, processor: usize, batch: &[u8]) {
        let Some(slot) = self.slots.get_mut(key.0).filter(|_| batch.len() >= LEND_FROM) else { return };
        if let Some(lent) = slot.lender.lend(&mut slot.connection, (key, &slot.cell), processor, batch) {
            self.processors[processor].lend(lent);
        }
    }

    fn on_emitted(&mut self, at: Instant, parcel: &Parcel) {
        if let Some(slot) = self.owner(parcel) {
            slot.connection.handle_emitted(at, &parcel.receipt);
            self.schedule(parcel.key);
        }
    }

    /// A batch that waited for room will never leave.
    pub(super) fn on_late_refusal(&mut self, now: Instant, parcel: &Parcel, error: &SendError) {
        if let Some(slot) = self.owner(parcel) {
            tracing::debug!(%error, "a batch that waited for room was lost");
            slot.connection.handle_not_emitted(&parcel.receipt);
            goes_on(slot, now, parcel.receipt.path(), error);
            self.schedule(parcel.key);
        }
    }

    /// A processor has room again: those that waited for its sockets go first, in their order.
    fn wake_waiting(&mut self, processor: usize) {
        for index in 0..self.ports.len() {
            if self.ports[index].processor() == Some(processor) && self.port_has_room(index) {
                self.schedule_waiting(index);
            }
        }
    }

    /// The plan goes to the processor of its path.
    pub(super) fn send_there(&mut self, key: ConnectionKey, processor: usize) {
        let Some(slot) = self.slots.get_mut(key.0) else { return };
        let now = self.clock.now();
        if let Some(meter) = &self.shared.meter {
            meter.count_sent(self.plan.datagram_count(), self.plan.size_bytes());
        }
        let processor = &mut self.processors[processor];
        let plan = Arc::new(std::mem::replace(&mut self.plan, processor.spare_plan()));
        processor.send(now, key, Arc::clone(&slot.cell), plan);
        self.shared.lap(Stage::Route);
    }

    // ── A processor dies ─────────────────────────────────────────────────────────────────────────────────────────────

    /// Its paths are as good as dead: others carry what they were given. A connection without another path ends.
    fn on_processor_lost(&mut self, now: Instant, index: usize) {
        let is_gone = self.processors[index].is_gone();
        tracing::error!(
            processor = index + 1,
            is_gone,
            "a processor of paths does not answer: its paths count as dead"
        );
        if is_gone {
            let gone = self.ports.iter_mut().filter(|port| port.processor() == Some(index));
            gone.for_each(|port| port.waiting.clear());
            while let Some((key, cell, plan)) = self.processors[index].take_unsent() {
                let parcel = Parcel { key, cell, receipt: plan.receipt() };
                if let Some(slot) = self.owner(&parcel) {
                    slot.connection.handle_not_emitted(&parcel.receipt);
                    self.schedule(parcel.key);
                }
            }
        }
        let keys: Vec<u32> = self.slots.keys().collect();
        for key in keys {
            self.leave_processor(now, ConnectionKey(key), index, is_gone);
        }
    }

    fn leave_processor(&mut self, now: Instant, key: ConnectionKey, index: usize, is_gone: bool) {
        let Some(slot) = self.slots.get_mut(key.0) else { return };
        let ports = &self.ports;
        let is_there = |socket: u16| ports[usize::from(socket)].processor() == Some(index);
        let paths = slot.connection.path_stats();
        let there: Vec<PathId> =
            paths.iter().filter(|path| is_there(path.addresses.socket)).map(|path| path.id).collect();
        if there.is_empty() {
            return;
        }
        let lives = |socket: u16| {
            let processor = ports[usize::from(socket)].processor();
            processor.is_none_or(|other| other != index && !self.processors[other].is_gone())
        };
        let has_other = paths.iter().any(|path| lives(path.addresses.socket));
        for path in there {
            // The scheduler learns that there are others, or there is nothing to learn.
            let _has_open = slot.connection.handle_refused(now, path);
        }
        if !has_other && is_gone {
            slot.end_override.get_or_insert(Closed::ProcessorGone);
            slot.connection.close(now, 0, "");
            // Nothing can leave any more, so nobody is to wait for that.
            slot.on_closed(now, Closed::ProcessorGone);
        }
        self.schedule(key);
    }
}

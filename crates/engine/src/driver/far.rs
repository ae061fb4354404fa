//! The driver with processors of paths: what it gives them, what it makes of their news, and what if one dies.

use std::sync::Arc;

use net::{RecvMeta, SendError};
use quic::{ConnectionKey, PathId};
use units::Instant;

use super::transmit::{goes_on, on_lost};
use super::{Driver, arrived_at};
use crate::error::Closed;
use crate::meter::Stage;
use crate::port::Parcel;
use crate::processor::{Arrival, News, Turn};
use crate::receive::Arrived;

/// Received batches smaller than this are opened by the driver, if nothing of their path is being opened: handing them over
/// takes as long as opening them.
const OPEN_THERE_FROM: usize = 8 << 10;

/// Arrivals of one processor looked at in one turn.
const ARRIVALS_PER_TURN: usize = 16;

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
                let Some(Arrival { port, meta, batch }) = self.processors[index].take_arrival() else { break };
                // Reports first, of all processors: an acknowledgement may come on another path than what it is about.
                self.take_all_reports();
                received += 1;
                self.deliver(port, &meta, batch);
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
                News::Emitted { parcel, at, .. } => self.on_emitted(at, &parcel),
                News::Sent { parcel, plan, error, .. } => {
                    let now = self.clock.now();
                    self.wake_waiting(index);
                    if let Some(slot) = self.owner(&parcel) {
                        match error {
                            None => slot.on_taken(),
                            Some(error) => drop(on_lost(slot, now, &plan, &error)),
                        }
                        self.schedule(parcel.key);
                    }
                    self.processors[index].keep_plan(plan);
                }
                News::Late { parcel, at, error: None } => self.on_emitted(at, &parcel),
                News::Late { parcel, at, error: Some(error) } => self.on_late_refusal(at, &parcel, &error),
                News::Opened { key, cell, mut open, batch } => {
                    let now = self.clock.now();
                    let slot = self.slots.get_mut(key.0).filter(|slot| Arc::ptr_eq(&slot.cell, &cell));
                    if let Some(slot) = slot {
                        self.attended = Some(key);
                        slot.connection.handle_opened(now, &mut open, &quic::ReceiveBuffer::freeze(batch));
                        self.attended = None;
                        self.schedule(key);
                    }
                    self.processors[index].keep_open(open);
                    self.shared.lap(Stage::OpenAbsorb);
                }
            }
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

    /// What arrived at a processor of paths goes back there to be opened, if that is worth it.
    pub(super) fn open_there(
        &mut self,
        port: usize,
        processor: usize,
        key: ConnectionKey,
        meta: &RecvMeta,
        batch: Arrived,
    ) {
        let Some(slot) = self.slots.get_mut(key.0) else { return };
        let now = self.clock.now();
        self.shared.lap(Stage::Route);
        let addresses = arrived_at(port, meta);
        let processor = &mut self.processors[processor];
        self.attended = Some(key);
        if batch.bytes().len() >= OPEN_THERE_FROM || processor.is_opening() {
            let mut open = processor.spare_open();
            if slot.connection.begin_open(now, addresses, batch.bytes(), meta.stride, &mut open) {
                self.attended = None;
                processor.open(now, key, Arc::clone(&slot.cell), open, batch);
                self.shared.lap(Stage::Route);
                self.schedule(key);
                return;
            }
            processor.keep_open(open);
        }
        slot.connection.handle_datagrams(now, addresses, batch, meta.stride);
        self.attended = None;
        self.shared.lap(Stage::OpenAbsorb);
        self.schedule(key);
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

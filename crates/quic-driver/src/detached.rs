//! [`DetachedReceiveHalf`]: the receive half of a connection on another processor, with its
//! delivery to the application, and the values that it exchanges with its connection.

use std::sync::Arc;

use driver::protocol::{HalfReport, HalfUpdate, ReceiveHalf};
use quic::{Event, ReceiveCommands};
use units::Instant;

use crate::cells::connection::ConnectionCell;
use crate::cells::recv::RecvCell;
use crate::cells::stream::StreamCells;
use crate::delivery::Delivery;
use crate::error::Closed;
use crate::packets::Packets;
use crate::quic_protocol::Quic;
use crate::routing::LocalId;

/// Number of unreported values that triggers a report even if none is urgent.
const UNREPORTED_MAX: usize = 256;

/// Update sent from a connection to its detached receive half.
#[derive(Default)]
pub struct ReceiveUpdate {
    pub(crate) commands: ReceiveCommands,
    /// New bidirectional streams that were opened locally.
    pub(crate) new_readers: Vec<Arc<RecvCell>>,
    /// Streams whose readers have taken data, or have stopped reading.
    pub(crate) reader_requests: Vec<Arc<RecvCell>>,
    /// Whether the application has taken streams, messages or datagrams, so that more can be
    /// delivered.
    pub(crate) wants_delivery: bool,
    /// A report for reuse.
    spare: Option<Box<ReceiveReport>>,
}

/// Report sent from a detached receive half to its connection.
#[derive(Default)]
pub struct ReceiveReport {
    pub(crate) quic: quic::ReceiveReport,
    /// New streams of the peer.
    pub(crate) accepted: Vec<StreamCells>,
    /// An update for reuse.
    spare: Option<Box<ReceiveUpdate>>,
}

/// A receive half that is detached from its connection.
pub struct DetachedReceiveHalf {
    /// The receive half and its delivery; `None` once they were attached again.
    parts: Option<(quic::DetachedReceiveHalf, Delivery)>,
    /// Whether there may be values to report.
    may_have_report: bool,
    spare: Option<Box<ReceiveReport>>,
    spent: Option<Box<ReceiveUpdate>>,
}

impl DetachedReceiveHalf {
    pub(crate) fn new(part: quic::DetachedReceiveHalf, delivery: Delivery) -> Self {
        Self { parts: Some((part, delivery)), may_have_report: false, spare: None, spent: None }
    }

    /// Takes both parts, to attach them again.
    pub(crate) fn into_parts(mut self) -> Option<(quic::DetachedReceiveHalf, Delivery)> {
        self.parts.take()
    }

    /// Returns the cell of its connection. `None` once it was attached again.
    pub(crate) fn cell(&self) -> Option<&Arc<ConnectionCell>> {
        self.parts.as_ref().map(|(_, delivery)| &delivery.cell)
    }

    fn part(&self) -> Option<&quic::DetachedReceiveHalf> {
        self.parts.as_ref().map(|(part, _)| part)
    }

    /// Delivers received data to the application.
    fn deliver(&mut self, now: Instant) {
        let Some((part, delivery)) = &mut self.parts else { return };
        while let Some(event) = part.poll_event() {
            match event {
                Event::Opened(dir) => delivery.on_opened(now, dir, part),
                Event::Readable(id) => delivery.on_readable(now, id, part),
                Event::DatagramReceived => delivery.serve_datagrams(part),
                // A receive half reports no other events.
                _ => {}
            }
        }
        self.may_have_report = true;
    }
}

impl<K: Packets> ReceiveHalf<Quic<K>> for Box<DetachedReceiveHalf> {
    fn cell(&self) -> Option<Arc<ConnectionCell>> {
        DetachedReceiveHalf::cell(self).cloned()
    }

    fn for_each_route(&self, each: &mut dyn FnMut(LocalId)) {
        let ids = self.part().into_iter().flat_map(quic::DetachedReceiveHalf::ids);
        ids.filter_map(|id| LocalId::try_from(id.as_slice()).ok()).for_each(each);
    }

    fn absorb(&mut self, now: Instant, socket: usize, batch: K::Batch) -> Result<(), K::Batch> {
        let Some((part, _)) = &mut self.parts else { return Err(batch) };
        K::absorb_detached(part, now, K::addresses(socket, &batch), batch)?;
        self.deliver(now);
        Ok(())
    }

    fn handle_update(&mut self, now: Instant, mut update: Box<ReceiveUpdate>) -> bool {
        let Some((part, delivery)) = &mut self.parts else { return false };
        let has_ids = part.handle_commands(now, &mut update.commands);
        update.new_readers.drain(..).for_each(|cell| delivery.add_reader(cell));
        for cell in update.reader_requests.drain(..) {
            delivery.serve_reader(now, &cell, part);
        }
        if std::mem::take(&mut update.wants_delivery) {
            delivery.serve(now, part);
        }
        self.spare = update.spare.take().or_else(|| self.spare.take());
        self.spent = Some(update);
        self.deliver(now);
        has_ids
    }

    fn wake_readers(&mut self) {
        if let Some((_, delivery)) = &mut self.parts {
            delivery.wake_readers();
        }
    }

    fn has_report(&self) -> bool {
        self.may_have_report
    }

    fn is_urgent(&self, now: Instant) -> bool {
        self.parts.as_ref().is_some_and(|(part, delivery)| {
            part.is_urgent(now) || delivery.has_accepted() || part.unreported() >= UNREPORTED_MAX
        })
    }

    fn unreported(&self) -> usize {
        self.part().map_or(0, quic::DetachedReceiveHalf::unreported)
    }

    fn report(&mut self) -> Option<Box<ReceiveReport>> {
        self.may_have_report = false;
        let Some((part, delivery)) = &mut self.parts else { return None };
        let mut report = self.spare.take().unwrap_or_default();
        let has_values = part.poll_report(&mut report.quic);
        report.accepted = delivery.take_accepted();
        report.spare = self.spent.take();
        if has_values || !report.accepted.is_empty() {
            return Some(report);
        }
        self.spare = Some(report);
        None
    }
}

impl HalfUpdate for Box<ReceiveUpdate> {
    type Report = Box<ReceiveReport>;

    fn set_spare(&mut self, report: Box<ReceiveReport>) {
        self.spare = Some(report);
    }
}

impl HalfReport for Box<ReceiveReport> {
    type Update = Box<ReceiveUpdate>;

    fn take_spare(&mut self) -> Option<Box<ReceiveUpdate>> {
        self.spare.take()
    }
}

/// Ends the readers if the receive half is dropped without being attached again.
impl Drop for DetachedReceiveHalf {
    fn drop(&mut self) {
        if let Some((_, delivery)) = &mut self.parts {
            delivery.end(&Closed::ProcessorGone);
        }
    }
}

//! A receive half on its own processor, with what it brings to the application.

use std::sync::Arc;

use quic::{Addresses, Event, ReceivePart, Strange};
use units::Instant;

use super::values::{Report, Word};
use crate::cells::ConnectionCell;
use crate::error::Closed;
use crate::inbound::Inbound;
use crate::receive::Arrived;

/// So many values are told even if none is urgent.
const UNTOLD_CALM: usize = 256;

/// One of them.
pub(crate) struct Guest {
    /// Taken out when it goes home.
    halves: Option<(ReceivePart, Inbound)>,
    /// When a batch last came for it.
    pub(super) busy_at: Instant,
    /// The driver was told that nothing comes for it.
    pub(super) is_quiet: bool,
    /// Something was found out that was not told.
    pub(super) has_findings: bool,
    spare: Option<Box<Report>>,
    spent: Option<Box<Word>>,
}

impl Guest {
    pub(crate) fn new(now: Instant, part: ReceivePart, inbound: Inbound) -> Self {
        Self {
            halves: Some((part, inbound)),
            busy_at: now,
            is_quiet: false,
            has_findings: false,
            spare: None,
            spent: None,
        }
    }

    /// Takes both apart again.
    pub(crate) fn into_halves(mut self) -> Option<(ReceivePart, Inbound)> {
        self.halves.take()
    }

    /// Its connection; none if it has gone home.
    pub(crate) fn cell(&self) -> Option<&Arc<ConnectionCell>> {
        self.halves.as_ref().map(|(_, inbound)| &inbound.cell)
    }

    pub(super) fn part(&self) -> Option<&ReceivePart> {
        self.halves.as_ref().map(|(part, _)| part)
    }

    /// Datagrams have arrived for it.
    pub(super) fn take(
        &mut self,
        now: Instant,
        addresses: Addresses,
        batch: Arrived,
        stride: usize,
    ) -> Result<(), Strange<Arrived>> {
        let Some((part, _)) = &mut self.halves else { return Err(Strange(batch)) };
        part.handle_datagrams(now, addresses, batch, stride)?;
        self.busy_at = now;
        self.bring(now);
        Ok(())
    }

    /// The rest of its connection has something for it. True if its connection IDs may be others now.
    pub(super) fn hear(&mut self, now: Instant, mut word: Box<Word>) -> bool {
        let Some((part, inbound)) = &mut self.halves else { return false };
        let has_ids = part.handle_orders(now, &mut word.orders);
        word.readers.drain(..).for_each(|cell| inbound.add_reader(cell));
        for cell in word.tasks.drain(..) {
            inbound.serve_reader(now, &cell, part);
        }
        if std::mem::take(&mut word.inbound) {
            inbound.serve(now, part);
        }
        self.spare = word.spent.take().or_else(|| self.spare.take());
        self.spent = Some(word);
        self.bring(now);
        has_ids
    }

    /// Wakes those who read what was brought.
    pub(super) fn wake_readers(&mut self) {
        if let Some((_, inbound)) = &mut self.halves {
            inbound.wake_readers();
        }
    }

    /// Brings the application what has arrived for it.
    fn bring(&mut self, now: Instant) {
        let Some((part, inbound)) = &mut self.halves else { return };
        while let Some(event) = part.poll_event() {
            match event {
                Event::Opened(dir) => inbound.on_opened(now, dir, part),
                Event::Readable(id) => inbound.on_readable(now, id, part),
                Event::DatagramReceived => inbound.serve_datagrams(part),
                // A receive half says no more than that.
                _ => {}
            }
        }
        self.has_findings = true;
    }

    /// What it has found out since the last time, if anything.
    pub(super) fn report(&mut self) -> Option<Box<Report>> {
        self.has_findings = false;
        let (part, inbound) = self.halves.as_mut()?;
        let mut report = self.spare.take().unwrap_or_default();
        let has_findings = part.poll_findings(&mut report.findings);
        report.accepted = inbound.take_accepted();
        report.spent = self.spent.take();
        if has_findings || !report.accepted.is_empty() {
            return Some(report);
        }
        self.spare = Some(report);
        None
    }

    /// What it has found out is to be told at once.
    pub(super) fn is_urgent(&self) -> bool {
        self.halves
            .as_ref()
            .is_some_and(|(part, inbound)| part.is_urgent() || inbound.has_accepted() || part.untold() >= UNTOLD_CALM)
    }

    /// Values that were found and not told.
    pub(super) fn untold(&self) -> usize {
        self.part().map_or(0, ReceivePart::untold)
    }
}

/// Whoever reads from a connection whose receive half is gone must not wait for ever.
impl Drop for Guest {
    fn drop(&mut self) {
        if let Some((_, inbound)) = &mut self.halves {
            inbound.end(&Closed::ProcessorGone);
        }
    }
}

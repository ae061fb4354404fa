//! The part of a connection that stays while its receive half is [detached](crate::detached).

use ::journal::format::tag;
use units::Instant;

use super::Connection;
use crate::detached::{DetachedReceiveHalf, ReceiveCommands, ReceiveReport};

impl Connection {
    /// Detaches the receive half, to run on another processor until it is [attached](Self::attach)
    /// again. Returns `None` unless [`can_detach`](Self::can_detach).
    ///
    /// While detached, pass every segment to the detached half and read data from it; these calls
    /// have no effect here.
    #[must_use]
    pub fn detach(&mut self) -> Option<DetachedReceiveHalf> {
        if !self.can_detach() {
            return None;
        }
        self.record(|journal| journal.writer.detached());
        let journal = self.journal.as_mut().map(|journal| journal.detach());
        let receive = self.receive.as_mut()?;
        receive.set_sent_end(self.send.sent_end());
        let stand_in = receive.stand_in();
        self.detached = Some(Box::new(receive.commands(0, self.send.sent_end())));
        Some(DetachedReceiveHalf::new(std::mem::replace(receive, stand_in), journal))
    }

    /// Returns whether [`detach`](Self::detach) would detach the receive half: the peer may send
    /// more, and its FIN has not arrived.
    pub fn can_detach(&self) -> bool {
        let may_receive = self.state.may_receive() && !self.is_orphan && self.detached.is_none();
        may_receive && self.receive.as_ref().is_some_and(|receive| !receive.has_fin())
    }

    /// Returns whether the receive half is detached.
    pub const fn is_detached(&self) -> bool {
        self.detached.is_some()
    }

    /// Returns whether the detached half needs an update before the planned segments leave.
    pub fn has_commands(&self) -> bool {
        let end = self.send.sent_end();
        let receive = self.receive.as_ref().zip(self.detached.as_ref());
        receive.is_some_and(|(receive, given)| receive.commands(given.number, end) != **given)
    }

    /// Returns the update for the detached half; `None` if it is up to date.
    #[must_use]
    pub fn poll_commands(&mut self) -> Option<ReceiveCommands> {
        let given = self.detached.as_mut()?;
        let mut commands = self.receive.as_ref()?.commands(given.number, self.send.sent_end());
        if commands == **given {
            return None;
        }
        commands.number += 1;
        **given = commands;
        if self.journal.is_some() {
            self.record_and_flush(|journal| journal.writer.gave(tag::GAVE_COMMANDS, commands.number));
        }
        Some(commands)
    }

    /// Processes a report of the detached half. Call it before polling for a plan and before timers
    /// fire, in the order of the reports.
    pub fn handle_report(&mut self, now: Instant, report: &mut ReceiveReport) {
        self.record(|journal| journal.writer.took(tag::TOOK_REPORT, now, report.number));
        self.take_report(now, report);
    }

    fn take_report(&mut self, now: Instant, report: &mut ReceiveReport) {
        if let Some(receive) = &mut self.receive
            && let Some(received) = &report.received
        {
            let was_dropped = receive.stats().dropped_by_paws;
            receive.refresh(received, report.stats, report.old_segments);
            if report.stats.dropped_by_paws > was_dropped {
                self.note_old_timestamps();
            }
        }
        if let Some(at) = report.heard_at.take().filter(|_| self.close_reason.is_none()) {
            self.timers.on_heard(at);
        }
        for info in report.acks.drain(..) {
            if self.close_reason.is_none() {
                self.take_ack(now, &info);
            }
        }
        self.settle(now);
    }

    /// Reattaches the receive half and processes its unreported state.
    pub fn attach(&mut self, now: Instant, mut other: DetachedReceiveHalf) {
        // Flushes its entries before any later entry of the connection.
        other.journal = None;
        self.record(|journal| journal.writer.attached(now));
        if let Some(journal) = &mut self.journal {
            journal.writer.attach();
        }
        let mut report = ReceiveReport::default();
        if other.poll_report(&mut report) {
            self.take_report(now, &mut report);
        }
        self.detached = None;
        if let Some(receive) = &mut self.receive {
            let stand_in = std::mem::replace(receive, other.half);
            receive.take_announced(stand_in);
        }
    }
}

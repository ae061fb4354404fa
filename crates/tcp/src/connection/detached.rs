//! The rest of a connection while its receive half is [detached](crate::detached).

use ::journal::format::tag;
use units::Instant;

use super::Connection;
use crate::detached::{DetachedReceiveHalf, ReceiveCommands, ReceiveReport};

impl Connection {
    /// Detaches the receive half, to be run on another processor until it is
    /// [attached](Self::attach) again. `None` unless [`can_detach`](Self::can_detach).
    ///
    /// Meanwhile every segment is to be passed to the detached half, and data are read there: these
    /// calls find nothing here.
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

    /// Whether [`detach`](Self::detach) would detach the receive half: the peer may send more, and its
    /// end has not arrived.
    pub fn can_detach(&self) -> bool {
        let may_receive = self.state.may_receive() && !self.is_orphan && self.detached.is_none();
        may_receive && self.receive.as_ref().is_some_and(|receive| !receive.has_fin())
    }

    /// Whether the receive half is detached.
    pub const fn is_detached(&self) -> bool {
        self.detached.is_some()
    }

    /// Whether the detached half must learn something before what was planned leaves.
    pub fn has_commands(&self) -> bool {
        let end = self.send.sent_end();
        let receive = self.receive.as_ref().zip(self.detached.as_ref());
        receive.is_some_and(|(receive, given)| receive.commands(given.number, end) != **given)
    }

    /// What the detached half must learn; `None` if it knows everything.
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

    /// Takes a report of the detached half. To be called before a plan is asked for and before timers
    /// fire, in the order in which the reports were made.
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

    /// Takes the receive half back, with what it has not reported.
    pub fn attach(&mut self, now: Instant, mut other: DetachedReceiveHalf) {
        // Its entries come before all that the connection writes from now on.
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

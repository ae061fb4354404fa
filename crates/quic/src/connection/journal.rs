//! The entries of a connection's [journal](crate::journal). Without a journal each costs a branch.

use std::cell::RefCell;

use units::Instant;
use wire::quic::StreamId;

use super::Connection;
use crate::journal::outcome::{Answer, PlanEntry, Planned};
use crate::journal::recording::Journal;
use crate::journal::session::ReplayedSession;
use crate::observed::LostPackets;
use crate::plan::Plan;
use crate::receive::streams::{Chunk, ReadError};
use crate::receive_core::ReceiveCore;

impl Connection {
    /// Records an input, before it takes effect.
    #[inline]
    pub(super) fn record(&mut self, write: impl FnOnce(&mut Journal)) {
        if self.receive.journal.is_some() {
            self.with_journal(|receive| receive.record(write));
        }
    }

    /// Records the answer to a call of the application.
    #[inline]
    pub(super) fn record_answer(&mut self, answer: impl FnOnce() -> Answer) {
        if self.receive.journal.is_some() {
            self.with_journal(|receive| receive.write_entry(false, |journal| journal.answer(answer())));
        }
    }

    /// Records that commands pass to the detached receive half: see
    /// [`ReceiveCore::record_and_flush`].
    pub(super) fn record_and_flush(&mut self, write: impl FnOnce(&mut Journal)) {
        if self.receive.journal.is_some() {
            self.with_journal(|receive| receive.record_and_flush(write));
        }
    }

    /// Makes a call that writes an entry at once. The output of TLS since the last entry comes
    /// before it.
    #[cold]
    pub(super) fn with_journal<T>(&mut self, call: impl FnOnce(&mut ReceiveCore) -> T) -> T {
        if let Some(journal) = &mut self.receive.journal {
            self.control.take_session_entries(journal.session_entries());
        }
        let result = call(&mut self.receive);
        if self.receive.journal.is_none() {
            self.control.stop_session_recording();
        }
        result
    }

    /// [`read`](Self::read) with a journal. A separate function, because it looks at its result,
    /// which is therefore put together in memory and copied. Without a journal that would cost
    /// something with every packet.
    #[cold]
    pub(super) fn read_recorded(&mut self, now: Instant, id: StreamId, len: usize) -> Result<Chunk, ReadError> {
        let chunk = self.with_journal(|receive| receive.read(now, id, len));
        self.settle(now);
        chunk
    }

    /// [`poll_plan_where`](Self::poll_plan_where) with a journal. It asks once how many
    /// datagrams each socket accepts: another processor may be emptying the socket's buffer while
    /// the plan is made, and a replay must get the same answers.
    #[cold]
    pub(super) fn plan_recorded(
        &mut self,
        now: Instant,
        socket_budget: &dyn Fn(u16) -> usize,
        plan: &mut Plan,
    ) -> bool {
        let socket_budgets = self.with_journal(|receive| receive.write_entry(true, |journal| journal.plan_asked(now)));
        let socket_budgets = RefCell::new(socket_budgets.unwrap_or_default());
        let recorded_budget = |socket: u16| {
            let known = socket_budgets.borrow().iter().find(|(known, _)| *known == socket).map(|(_, budget)| *budget);
            known.unwrap_or_else(|| {
                let budget = socket_budget(socket);
                socket_budgets.borrow_mut().push((socket, budget));
                budget
            })
        };
        let is_planned = self.make_plan(now, &recorded_budget, plan);
        let planned = Planned { plan: is_planned.then(|| PlanEntry::of(plan)), timeout: self.poll_timeout() };
        self.with_journal(|receive| {
            receive.write_entry(false, |journal| journal.planned(socket_budgets.into_inner(), &planned));
        });
        is_planned
    }
}

/// For a replay.
impl Connection {
    /// The session that repeats the recorded output of TLS.
    pub(crate) fn replayed_session(&mut self) -> Option<&mut ReplayedSession> {
        self.control.replayed_session()
    }

    /// A call of TLS that differs from the recorded one.
    pub(crate) fn replay_mismatch(&mut self) -> Option<&'static str> {
        self.replayed_session()?.take_mismatch()
    }

    /// Keeps the losses from now on, for [`take_losses`](Self::take_losses).
    pub(crate) fn observe_losses(&mut self) {
        self.send.observed_losses = Some(Box::default());
    }

    /// The packets that were declared lost since the last call.
    pub(crate) fn take_losses(&mut self) -> Vec<LostPackets> {
        // Mutable access to the send half clears the answers that are kept of it, so it is avoided.
        match &self.send.observed_losses {
            Some(losses) if !losses.0.is_empty() => {}
            _ => return Vec::new(),
        }
        self.send.observed_losses.as_mut().map(|losses| std::mem::take(&mut losses.0)).unwrap_or_default()
    }

    /// Discards the journal: its first packet was not authentic, so there is no connection.
    pub(crate) fn forget_journal(&mut self) {
        if let Some(journal) = &mut self.receive.journal {
            journal.writer.forget();
        }
    }
}

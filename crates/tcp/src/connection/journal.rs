//! The entries of a connection's [journal](crate::journal). Without a journal each costs one
//! branch.

use std::sync::Arc;

use bytes::Bytes;
use units::Instant;

use super::Connection;
use crate::arrival::Arrival;
use crate::budget::{BufferBudget, Grant};
use crate::config::TcpConfig;
use crate::event::Event;
use crate::journal::begin::Seed;
use crate::journal::outcome::{Answer, PlanEntry, Planned};
use crate::journal::recording::Journal;
use crate::plan::Plan;
use crate::results::WriteError;

impl Seed {
    /// Begins the journal, if the configuration requests one. `syn` is the peer's, if the
    /// connection answers one.
    #[inline]
    pub(super) fn begin_journal(&mut self, now: Instant, syn: Option<&Arrival>) -> Option<Box<Journal>> {
        let journal = if self.config.journal.is_some() { Journal::begin(now, self, syn) } else { None };
        if journal.is_some() {
            let budget = Arc::new(BufferBudget::recorded(&self.config.budget));
            self.config = Arc::new(TcpConfig { budget, ..TcpConfig::clone(&self.config) });
        }
        journal
    }
}

impl Connection {
    /// Discards the journal, because there is no connection.
    pub(super) fn forget_journal(&mut self) {
        if let Some(journal) = &mut self.journal {
            journal.writer.forget();
        }
    }

    /// Records an input, before it takes effect.
    #[inline]
    pub(super) fn record(&mut self, write: impl FnOnce(&mut Journal)) {
        if self.journal.is_some() {
            self.write_entry(true, write);
        }
    }

    /// Records the result of the last call.
    #[cold]
    pub(super) fn record_answer(&mut self, answer: Answer) {
        self.write_entry(false, |journal| journal.answer(answer));
    }

    /// Records that commands pass to the detached receive half. Flushes everything recorded before
    /// to the log.
    #[cold]
    pub(super) fn record_and_flush(&mut self, write: impl FnOnce(&mut Journal)) {
        self.write_entry(true, write);
        if self.journal.as_mut().is_some_and(|journal| !journal.writer.flush()) {
            self.end_journal();
        }
    }

    /// Writes an entry; `begins` is false for the result of the preceding entry.
    #[cold]
    fn write_entry(&mut self, begins: bool, write: impl FnOnce(&mut Journal)) {
        self.write_grants();
        if self.journal.as_mut().is_some_and(|journal| !journal.write(begins, write)) {
            self.end_journal();
        }
    }

    /// Writes the budget's grants since the last entry.
    fn write_grants(&mut self) {
        let Some(journal) = &mut self.journal else { return };
        std::iter::from_fn(|| self.config.budget.pop_grant()).for_each(|grant| journal.grant(grant));
    }

    /// Ends the recording.
    fn end_journal(&mut self) {
        self.journal = None;
        self.config.budget.forget_grants();
    }

    /// Makes a call that is part of a recorded one without recording it.
    pub(super) fn without_journal<T>(&mut self, call: impl FnOnce(&mut Self) -> T) -> T {
        let journal = self.journal.take();
        let result = call(self);
        self.journal = journal;
        result
    }

    // Calls with a result follow. Each wraps the call without a journal, so that its code exists
    // only once: a larger function would not be inlined where there is no journal.

    /// [`write`](Self::write) with a journal.
    #[cold]
    pub(super) fn write_recorded(&mut self, bytes: &mut Bytes) -> Result<(), WriteError> {
        let len = bytes.len();
        self.write_entry(true, |journal| journal.written(len));
        let result = self.without_journal(|connection| connection.write(bytes));
        self.record_answer(Answer::written(result, len - bytes.len()));
        result
    }

    /// [`poll_event`](Self::poll_event) with a journal.
    #[cold]
    pub(super) fn event_recorded(&mut self) -> Option<Event> {
        let event = self.without_journal(Self::poll_event);
        if let Some(event) = event {
            self.write_entry(true, |journal| journal.event(event));
        }
        event
    }

    /// [`poll_plan`](Self::poll_plan) with a journal.
    #[cold]
    pub(super) fn plan_recorded(&mut self, now: Instant, segments_max: usize, plan: &mut Plan) -> bool {
        self.write_entry(true, |journal| journal.plan_asked(now, segments_max));
        let is_planned = self.without_journal(|connection| connection.poll_plan(now, segments_max, plan));
        let planned = Planned { plan: is_planned.then(|| PlanEntry::of(plan)), timeout: self.poll_timeout() };
        self.write_entry(false, |journal| journal.planned(&planned));
        is_planned
    }
}

/// Support for a replay.
impl Connection {
    /// Sets the grant for the next call.
    pub(crate) fn expect_grant(&self, grant: Grant) {
        self.config.budget.push_grant(grant);
    }

    /// Returns whether the requests of the last call to the budget were exactly those of the log.
    pub(crate) fn take_grants_match(&self) -> bool {
        self.config.budget.take_grants_match()
    }
}

//! A connection's hooks for its [journal](crate::journal): where there is none, each costs a branch.

use std::cell::RefCell;

use units::Instant;
use wire::quic::StreamId;

use super::Connection;
use crate::event::Event;
use crate::journal::Journal;
use crate::journal::format::tag;
use crate::journal::outcome::{Answer, PlanNote, Planned};
use crate::journal::session::ReplayedSession;
use crate::plan::Plan;
use crate::receive::streams::{Chunk, ReadError};

impl Connection {
    /// Writes down an input, before it takes effect.
    #[inline]
    pub(super) fn note(&mut self, write: impl FnOnce(&mut Journal)) {
        if self.journal.is_some() {
            self.write_entry(true, write);
        }
    }

    /// Writes down what the application's call was answered.
    #[inline]
    pub(super) fn note_answer(&mut self, answer: impl FnOnce() -> Answer) {
        if self.journal.is_some() {
            self.write_entry(false, |journal| journal.answer(answer()));
        }
    }

    /// Writes down that something is given to the receive half: what was done before stands in the log before anything that comes
    /// of it.
    pub(super) fn note_given(&mut self, write: impl FnOnce(&mut Journal)) {
        self.note(write);
        if self.journal.as_mut().is_some_and(|journal| !journal.hand_over()) {
            self.end_journal();
        }
    }

    fn end_journal(&mut self) {
        self.journal = None;
        self.control.end_session_notes();
    }

    #[cold]
    fn write_entry<T>(&mut self, begins: bool, write: impl FnOnce(&mut Journal) -> T) -> Option<T> {
        let journal = self.journal.as_mut()?;
        let (written, goes_on) = journal.write(begins, |out| self.control.take_session_notes(out), write);
        if !goes_on {
            self.end_journal();
        }
        Some(written)
    }

    /// [`poll_event`](Self::poll_event) with a journal. It looks at what it returns, which is then put together in memory and copied
    /// from there: no matter here, but without a journal that is asked after every packet.
    #[cold]
    pub(super) fn event_noted(&mut self) -> Option<Event> {
        let event = self.events.pop();
        if let Some(event) = &event {
            self.note(|journal| journal.event(event));
        }
        event
    }

    /// [`read`](Self::read) with a journal, by itself for the same reason.
    #[cold]
    pub(super) fn read_noted(&mut self, now: Instant, id: StreamId, len: usize) -> Result<Chunk, ReadError> {
        self.note(|journal| journal.of_stream_at(tag::READ, now, id, len as u64));
        let chunk = self.receive.streams.read(now, id, len, &mut self.exchange);
        self.settle(now);
        self.note_answer(|| Answer::read(&chunk));
        chunk
    }

    /// [`poll_plan_where`](Self::poll_plan_where) with a journal. What room a socket has is asked once: another processor may be
    /// making some while the plan is made, and a replay must hear the same.
    #[cold]
    pub(super) fn plan_noted(&mut self, now: Instant, room: &dyn Fn(u16) -> usize, plan: &mut Plan) -> bool {
        let rooms = self.write_entry(true, |journal| journal.plan_asked(now)).unwrap_or_default();
        let rooms = RefCell::new(rooms);
        let room = |socket: u16| {
            let known = rooms.borrow().iter().find(|(known, _)| *known == socket).map(|(_, room)| *room);
            known.unwrap_or_else(|| {
                let room = room(socket);
                rooms.borrow_mut().push((socket, room));
                room
            })
        };
        let is_planned = self.make_plan(now, &room, plan);
        let planned = Planned { plan: is_planned.then(|| PlanNote::of(plan)), timeout: self.poll_timeout() };
        self.write_entry(false, |journal| journal.planned(rooms.into_inner(), &planned));
        is_planned
    }
}

/// For a replay.
impl Connection {
    /// Who says again what TLS has said.
    pub(crate) fn replayed_session(&mut self) -> Option<&mut ReplayedSession> {
        self.control.replayed_session()
    }

    /// What TLS was asked that it was not asked when it was written down.
    pub(crate) fn replay_trouble(&mut self) -> Option<&'static str> {
        self.replayed_session()?.take_trouble()
    }

    /// Nobody wants to know what happened to this connection, which was none.
    pub(crate) fn forget_journal(&mut self) {
        if let Some(journal) = &mut self.journal {
            journal.forget();
        }
    }
}

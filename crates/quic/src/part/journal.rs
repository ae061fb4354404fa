//! A receive half's hooks for the [journal](crate::journal) of its connection, as those of
//! [the connection itself](crate::Connection).

use super::ReceivePart;
use crate::journal::Journal;
use crate::journal::outcome::Answer;

impl ReceivePart {
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

    #[cold]
    fn write_entry(&mut self, begins: bool, write: impl FnOnce(&mut Journal)) {
        let Some(journal) = &mut self.journal else { return };
        let ((), goes_on) = journal.write(begins, |_| {}, write);
        if !goes_on {
            self.journal = None;
        }
    }

    /// Writes down that something is given to the rest of the connection: what was done before stands in the log before anything
    /// that comes of it.
    pub(super) fn note_given(&mut self, write: impl FnOnce(&mut Journal)) {
        self.note(write);
        if self.journal.as_mut().is_some_and(|journal| !journal.hand_over()) {
            self.journal = None;
        }
    }
}

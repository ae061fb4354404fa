//! A CONNECTION_CLOSE that is sent instead of everything else.

use crate::error::TransportError;

/// Why the connection is closed.
#[derive(Debug, Clone)]
pub(crate) struct CloseValue {
    pub(crate) error: TransportError,
    /// Closed by the application: code and reason are the application's.
    pub(crate) application: bool,
}

/// The close, if there is one.
#[derive(Debug, Default)]
pub(super) struct Closing {
    /// Sent each time it is due.
    pub(super) value: Option<Box<CloseValue>>,
    /// The paths on which it is due: one bit per path index. Paths whose index exceeds the bit mask are
    /// skipped: there are never that many open at a time.
    due: u64,
}

impl Closing {
    /// From now on plans carry this and nothing else, one on each of the paths at these indices.
    pub(super) fn begin(&mut self, close: CloseValue, best: usize, others: impl Iterator<Item = usize>) {
        self.value = Some(Box::new(close));
        self.due = others.filter(|at| *at < 64).fold(1 << best.min(63), |due, at| due | 1 << at);
    }

    pub(super) fn is_begun(&self) -> bool {
        self.value.is_some()
    }

    /// Whether it is due on the path at this index.
    pub(super) fn is_due_on(&self, at: usize) -> bool {
        at < 64 && self.due & 1 << at != 0
    }

    /// It is planned for the path at this index.
    pub(super) fn on_planned(&mut self, at: usize) {
        self.due &= !(1 << at);
    }

    /// A plan did not leave. A CONNECTION_CLOSE is in no log, so it is due again, on the path at this
    /// index.
    pub(super) fn on_not_emitted(&mut self, best: usize) {
        if self.is_begun() && self.due == 0 {
            self.due = 1 << best.min(63);
        }
    }
}

//! A trace of every decision with its inputs, one line each, and its replay.
//!
//! A scheduler depends only on its arguments, so equal calls in the same order give equal answers.
//! [`Traced`] records calls and answers; [`replay()`] repeats the calls and compares. The format is
//! specified in `docs/spec/scheduler-trace.md`; [`Record`] is one line.

mod format;
mod record;
mod replay;
#[cfg(test)]
mod tests;

use core::fmt;

use units::Instant;

use crate::scheduler::{Choice, PATHS_MAX, Scheduler};
use crate::strategy::Strategy;
use crate::view::{Demand, PathView, Straggler};

pub use format::{LINE_BYTES_MAX, VERSION_LINE};
pub use record::Record;
pub use replay::{DIFFERENCES_KEPT_MAX, Difference, Replay, TraceError, TraceErrorKind, replay};

/// Receiver of the lines of a trace, without line feeds.
pub type Sink = Box<dyn FnMut(&str) + Send>;

/// A scheduler that records every decision before it is executed. Its decisions equal those of the
/// strategy alone.
pub struct Traced {
    inner: Box<dyn Scheduler>,
    sink: Sink,
    /// Buffer of a line, reused so that tracing does not allocate per decision.
    line: String,
}

impl Traced {
    /// Creates a new scheduler of `strategy` whose decisions are recorded in `sink`, after the two
    /// header lines.
    pub fn new(strategy: Strategy, mut sink: Sink) -> Self {
        sink(VERSION_LINE);
        let mut line = String::with_capacity(LINE_BYTES_MAX);
        format::write_strategy(&mut line, strategy);
        sink(&line);
        Self { inner: strategy.build(), sink, line }
    }
}

impl Scheduler for Traced {
    fn choose(&mut self, now: Instant, demand: &Demand, paths: &[PathView]) -> Choice {
        // Paths that a scheduler ignores are omitted as well, so that a line has a bounded length.
        let paths = &paths[..paths.len().min(PATHS_MAX)];
        let choice = self.inner.choose(now, demand, paths);
        self.line.clear();
        format::write_choose(&mut self.line, now, demand, paths, choice);
        (self.sink)(&self.line);
        choice
    }

    fn reinjects(&mut self, now: Instant, straggler: &Straggler, on: usize, paths: &[PathView]) -> bool {
        let paths = &paths[..paths.len().min(PATHS_MAX)];
        let reinjects = self.inner.reinjects(now, straggler, on, paths);
        self.line.clear();
        format::write_reinject(&mut self.line, now, straggler, on, paths, reinjects);
        (self.sink)(&self.line);
        reinjects
    }
}

impl fmt::Debug for Traced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Traced").finish_non_exhaustive()
    }
}

//! Every decision with its inputs, one line each, and the replay of such a trace.
//!
//! A scheduler sees nothing but its arguments, so the same calls in the same order give the same answers: [`Traced`]
//! writes calls and answers down, [`replay`] makes the calls again and compares. The format is
//! `docs/spec/scheduler-trace.md`; [`Record`] is one of its lines.

mod format;
mod record;
mod replay;
#[cfg(test)]
mod tests;

use core::fmt;

use units::Instant;

use crate::{Choice, Demand, PATHS_MAX, PathView, Scheduler, Straggler, Strategy};

pub use format::{LINE_BYTES_MAX, VERSION_LINE};
pub use record::Record;
pub use replay::{DIFFERENCES_KEPT_MAX, Difference, Replay, TraceError, TraceErrorKind, replay};

/// Takes the lines of a trace, without their line feeds.
pub type Sink = Box<dyn FnMut(&str) + Send>;

/// A scheduler that writes down every decision before it is carried out. Decides exactly as the strategy alone would.
pub struct Traced {
    inner: Box<dyn Scheduler>,
    sink: Sink,
    /// Reused for every line, so that tracing allocates nothing once it is warm.
    line: String,
}

impl Traced {
    /// A fresh scheduler of `strategy` whose decisions go to `sink`, after the two lines of the header.
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
        // What a scheduler does not look at is not written either: a line has a bound.
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

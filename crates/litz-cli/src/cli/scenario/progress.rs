//! The progress of the runs on standard error: a bar on a terminal, a line now and then elsewhere.

use std::io::{self, IsTerminal};
use std::sync::{Mutex, PoisonError};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use net::MonotonicClock;
use units::{Duration, Instant};

use crate::cli::out;

/// Interval of the lines. The first one is printed at once.
const LINE_INTERVAL: Duration = Duration::from_secs(5);

/// The progress of the runs of one scenario, shared by the threads that make them.
pub(super) struct RunProgress {
    bar: ProgressBar,
    lines: Option<Lines>,
}

/// Lines for a log or a pipe.
struct Lines {
    name: String,
    clock: MonotonicClock,
    state: Mutex<LineState>,
}

struct LineState {
    next_at: Instant,
    ended: usize,
    count: usize,
}

impl RunProgress {
    /// Shows that none of `count` runs has ended; with `quiet` shows nothing.
    pub(super) fn new(name: &str, count: usize, quiet: bool) -> Self {
        let is_terminal = io::stderr().is_terminal();
        let clock = MonotonicClock::start();
        let state = Mutex::new(LineState { next_at: Instant::ZERO, ended: 0, count });
        let lines = (!quiet && !is_terminal).then(|| Lines { name: name.to_owned(), clock, state });
        if quiet || !is_terminal {
            let shown = Self { bar: ProgressBar::hidden(), lines };
            shown.say("");
            return shown;
        }
        let bar = ProgressBar::with_draw_target(Some(count as u64), ProgressDrawTarget::stderr());
        if let Ok(style) = ProgressStyle::with_template("[{bar:30}] {pos} of {len} runs  {wide_msg}") {
            bar.set_style(style.progress_chars("━╸─"));
        }
        Self { bar, lines: None }
    }

    /// Shows `what` a run does.
    pub(super) fn say(&self, what: &str) {
        if !self.bar.is_hidden() {
            self.bar.set_message(what.to_owned());
        }
        if let Some(line) = self.lines.as_ref().and_then(|lines| lines.due(what)) {
            out::note(&line);
        }
    }

    /// A run has ended.
    pub(super) fn end(&self) {
        self.bar.inc(1);
        if let Some(lines) = &self.lines {
            lines.state().ended += 1;
        }
    }

    /// Removes the bar.
    pub(super) fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

impl Lines {
    /// The next line, if it is due.
    fn due(&self, what: &str) -> Option<String> {
        let now = self.clock.now();
        let mut state = self.state();
        if now < state.next_at {
            return None;
        }
        state.next_at = now + LINE_INTERVAL;
        let (ended, count) = (state.ended, state.count);
        let what = if what.is_empty() { String::new() } else { format!("; {what}") };
        Some(format!("{}: {ended} of {count} runs{what}", self.name))
    }

    fn state(&self) -> std::sync::MutexGuard<'_, LineState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_printed_at_once_and_then_at_intervals() {
        let state = Mutex::new(LineState { next_at: Instant::ZERO, ended: 0, count: 3 });
        let lines = Lines { name: "x".to_owned(), clock: MonotonicClock::start(), state };
        assert_eq!(lines.due("").as_deref(), Some("x: 0 of 3 runs"));
        assert_eq!(lines.due("a"), None);
        lines.state().ended = 2;
        lines.state().next_at = Instant::ZERO;
        assert_eq!(lines.due("a seed 3").as_deref(), Some("x: 2 of 3 runs; a seed 3"));
    }
}

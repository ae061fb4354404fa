//! The progress display of a transfer: a bar on a terminal, plain lines elsewhere, JSON lines with
//! `--json`.

use std::io::IsTerminal;
use std::sync::Mutex;
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use net::MonotonicClock;
use transfer::{Events, Summary, TransferEvent};
use units::{ByteSize, Instant, Rate};

use super::lines::Lines;
use super::out;
use super::path_report::PathLine;
use super::warning::Warning;

/// Interval of plain lines.
const LINE_INTERVAL: units::Duration = units::Duration::from_secs(2);
/// Interval of JSON progress events.
const JSON_INTERVAL: units::Duration = units::Duration::from_millis(100);

/// Whether this host sends or receives.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Sending,
    Receiving,
}

/// The bar of the transfer, and below it one line per path.
struct Bars {
    all: MultiProgress,
    main: ProgressBar,
    paths: Mutex<Lines>,
}

impl Bars {
    fn new(direction: Direction) -> Self {
        let all = MultiProgress::with_draw_target(ProgressDrawTarget::hidden());
        let main = all.add(bar(direction));
        let bars = Self { paths: Mutex::new(Lines::new(all.clone(), 2)), all, main };
        // A receiver shows the bar of a transfer that starts: any host can connect.
        if direction == Direction::Sending {
            bars.draw();
        }
        bars
    }

    /// Makes the bar visible.
    fn draw(&self) {
        self.all.set_draw_target(ProgressDrawTarget::stderr_with_hz(10));
        self.main.enable_steady_tick(Duration::from_millis(250));
    }

    /// Shows a line for each open path if there are several.
    fn show_paths(&self, paths: &[PathLine]) {
        let texts = if paths.len() > 1 { paths.iter().map(PathLine::text).collect() } else { Vec::new() };
        if let Ok(mut lines) = self.paths.lock() {
            lines.show(&texts);
        }
    }

    fn clear(&self) {
        self.main.finish_and_clear();
        if let Ok(mut lines) = self.paths.lock() {
            lines.clear();
        }
    }
}

enum Mode {
    Bar(Bars),
    Lines,
    Json,
    Quiet,
}

/// Shows the events of a transfer.
pub(crate) struct Progress {
    direction: Direction,
    mode: Mode,
    clock: MonotonicClock,
    state: Mutex<ProgressState>,
}

#[derive(Default)]
struct ProgressState {
    is_started: bool,
    total: u64,
    done: u64,
    /// Bytes received before this attempt. They do not count as speed.
    resumed: u64,
    shown_at: Option<Instant>,
    paths_shown_at: Option<Instant>,
    progressed_at: Instant,
}

impl Progress {
    pub(crate) fn new(direction: Direction, json: bool, quiet: bool) -> Self {
        let mode = match (json, quiet) {
            (true, _) => Mode::Json,
            (_, true) => Mode::Quiet,
            _ if std::io::stderr().is_terminal() => Mode::Bar(Bars::new(direction)),
            _ => Mode::Lines,
        };
        Self { direction, mode, clock: MonotonicClock::start(), state: Mutex::default() }
    }

    /// Prints a line that is not an event of the transfer.
    pub(crate) fn note(&self, text: &str) {
        match &self.mode {
            Mode::Bar(bars) if !bars.main.is_hidden() => bars.main.println(text),
            Mode::Bar(_) | Mode::Lines => out::note(text),
            Mode::Json | Mode::Quiet => {}
        }
    }

    /// Says that the files to send are being listed.
    pub(crate) fn scanning(&self) {
        match &self.mode {
            Mode::Bar(bars) => bars.main.set_message("listing the files"),
            Mode::Lines => out::note("connected; listing the files"),
            Mode::Json => out::json(&serde_json::json!({ "event": "scanning" })),
            Mode::Quiet => {}
        }
    }

    /// Prints a warning; the transfer continues.
    pub(crate) fn warn(&self, warning: Warning, message: &str) {
        match &self.mode {
            Mode::Json => out::json(&warning.json(message)),
            Mode::Quiet if warning.is_advice() => {}
            Mode::Bar(_) | Mode::Lines | Mode::Quiet => self.problem(&format!("warning: {message}")),
        }
    }

    /// Prints an event of the command as a JSON line; does nothing in the other modes.
    pub(crate) fn json(&self, value: &serde_json::Value) {
        if matches!(self.mode, Mode::Json) {
            out::json(value);
        }
    }

    /// Whether the statistics of single paths are shown.
    pub(crate) fn wants_paths(&self) -> bool {
        !matches!(self.mode, Mode::Quiet)
    }

    /// Shows the statistics of each path, if there are several. A receiver shows none before the
    /// transfer starts: until then any host can cause them.
    pub(crate) fn paths(&self, paths: &[PathLine]) {
        if self.direction == Direction::Receiving && !self.state.lock().is_ok_and(|state| state.is_started) {
            return;
        }
        match &self.mode {
            Mode::Bar(bars) => bars.show_paths(paths),
            Mode::Lines if paths.len() > 1 && self.is_time_for_paths() => {
                paths.iter().for_each(|path| out::note(&format!("  {}", path.text())));
            }
            Mode::Json => {
                let paths: Vec<_> = paths.iter().map(PathLine::json).collect();
                out::json(&serde_json::json!({ "event": "paths", "paths": paths }));
            }
            Mode::Lines | Mode::Quiet => {}
        }
    }

    fn is_time_for_paths(&self) -> bool {
        let now = self.clock.now();
        let Ok(mut state) = self.state.lock() else { return false };
        if state.paths_shown_at.is_some_and(|at| now.saturating_since(at) < LINE_INTERVAL) {
            return false;
        }
        state.paths_shown_at = Some(now);
        true
    }

    /// When bytes were last transferred or verified. `--retry-for` counts from this time.
    pub(crate) fn progressed_at(&self) -> Instant {
        self.state.lock().map_or(Instant::ZERO, |state| state.progressed_at)
    }

    pub(crate) fn now(&self) -> Instant {
        self.clock.now()
    }

    /// Removes the bar; further output is plain text.
    pub(crate) fn clear(&self) {
        if let Mode::Bar(bars) = &self.mode {
            bars.clear();
        }
    }

    /// Prints the last line of a transfer that finished.
    pub(crate) fn finish(&self, summary: &Summary, span: units::Duration) {
        self.clear();
        if matches!(self.mode, Mode::Json) {
            return;
        }
        out::note(&conclusion(self.direction, summary, span));
    }

    fn show(&self, event: &TransferEvent<'_>) {
        match event {
            TransferEvent::FileFailed { path, error } => self.problem(&format!("{path}: {error}")),
            TransferEvent::Skipped { path, error } => self.problem(&format!("{path}: {error}")),
            TransferEvent::FileStarted { path, bytes_resumed, .. } if *bytes_resumed > 0 => {
                self.note(&format!("{path}: already received ({})", ByteSize::from_bytes(*bytes_resumed)));
            }
            _ => {}
        }
        if let Mode::Bar(bars) = &self.mode {
            if self.direction == Direction::Receiving && matches!(event, TransferEvent::Started { .. }) {
                bars.draw();
            }
            let bar = &bars.main;
            match event {
                TransferEvent::Started { bytes, .. } => bar.set_length(*bytes),
                TransferEvent::Progress { bytes_done, .. } => bar.set_position(*bytes_done),
                TransferEvent::FileStarted { path, .. } => bar.set_message(path.to_string()),
                TransferEvent::Verifying { path, .. } => bar.set_message(format!("verifying {path}")),
                _ => {}
            }
        } else if let (Mode::Lines, TransferEvent::Progress { bytes_done, bytes_total }) = (&self.mode, event)
            && self.is_time(LINE_INTERVAL)
        {
            let percent = bytes_done.saturating_mul(100).checked_div(*bytes_total).unwrap_or(100);
            let (done, total) = (ByteSize::from_bytes(*bytes_done), ByteSize::from_bytes(*bytes_total));
            out::note(&format!("{done} of {total} ({percent} %)"));
        }
    }

    /// Prints a problem, even with `--quiet`.
    fn problem(&self, text: &str) {
        match &self.mode {
            Mode::Bar(bars) if !bars.main.is_hidden() => bars.main.println(text),
            Mode::Bar(_) | Mode::Lines | Mode::Quiet => out::note(text),
            Mode::Json => {}
        }
    }

    /// Returns true at most once per interval.
    fn is_time(&self, interval: units::Duration) -> bool {
        let now = self.clock.now();
        let Ok(mut state) = self.state.lock() else { return false };
        if state.shown_at.is_some_and(|at| now.saturating_since(at) < interval) {
            return false;
        }
        state.shown_at = Some(now);
        true
    }
}

impl Events for Progress {
    fn event(&self, event: TransferEvent<'_>) {
        if let Ok(mut state) = self.state.lock() {
            match &event {
                TransferEvent::Started { bytes, .. } => (state.is_started, state.total) = (true, *bytes),
                TransferEvent::FileStarted { bytes_resumed, .. } => state.resumed += bytes_resumed,
                TransferEvent::Progress { bytes_done, .. } if *bytes_done > state.done => {
                    state.done = *bytes_done;
                    state.progressed_at = self.clock.now();
                }
                // Hashing the existing part of a large file takes long, and no bytes are
                // transferred meanwhile.
                TransferEvent::Verifying { .. } => state.progressed_at = self.clock.now(),
                _ => {}
            }
        }
        if !matches!(self.mode, Mode::Json) {
            self.show(&event);
            return;
        }
        let is_frequent = matches!(event, TransferEvent::Progress { .. } | TransferEvent::Verifying { .. });
        if (!is_frequent || self.is_time(JSON_INTERVAL))
            && let Ok(value) = serde_json::to_value(&event)
        {
            out::json(&value);
        }
    }
}

/// Summarizes a finished transfer in one line.
fn conclusion(direction: Direction, summary: &Summary, span: units::Duration) -> String {
    let verb = if direction == Direction::Sending { "sent" } else { "received" };
    let rate = Rate::from_transfer(summary.bytes_moved, span).unwrap_or_default();
    let moved = ByteSize::from_bytes(summary.bytes_moved);
    let mut line =
        format!("{verb} and verified {} of {} files, {moved} in {span} ({rate})", summary.files_done, summary.files);
    if summary.bytes_resumed > 0 {
        line += &format!("; {} already received", ByteSize::from_bytes(summary.bytes_resumed));
    }
    if summary.failed > 0 {
        line += &format!("; {} failed", summary.failed);
    }
    if summary.skipped > 0 {
        line += &format!("; {} skipped", summary.skipped);
    }
    line
}

fn bar(direction: Direction) -> ProgressBar {
    let verb = if direction == Direction::Sending { "sending" } else { "receiving" };
    let template = format!(
        "{verb} [{{bar:32}}] {{percent:>3}} %  {{decimal_bytes}} of {{decimal_total_bytes}}  \
         {{decimal_bytes_per_sec}}  {{eta}} left  {{wide_msg}}"
    );
    let bar = ProgressBar::new(0);
    if let Ok(style) = ProgressStyle::with_template(&template) {
        bar.set_style(style.progress_chars("━╸─"));
    }
    bar
}

#[cfg(test)]
mod tests {
    use transfer::RelativePath;

    use super::*;

    #[test]
    fn verifying_existing_bytes_counts_as_progress() {
        let progress = Progress::new(Direction::Sending, false, true);
        assert_eq!(progress.progressed_at(), Instant::ZERO);
        let path = RelativePath::from_components([b"file".as_slice()]).unwrap();
        progress.event(TransferEvent::Verifying { path: &path, bytes_done: 1, bytes_total: 2 });
        let verified_at = progress.progressed_at();
        assert!(verified_at > Instant::ZERO);
        progress.event(TransferEvent::Progress { bytes_done: 1, bytes_total: 2 });
        assert!(progress.progressed_at() > verified_at);
        let moved_at = progress.progressed_at();
        progress.event(TransferEvent::Progress { bytes_done: 1, bytes_total: 2 });
        assert_eq!(progress.progressed_at(), moved_at, "no bytes were transferred");
    }

    #[test]
    fn failed_files_are_not_reported_as_verified() {
        let mut summary = Summary::default();
        (summary.files, summary.files_done, summary.failed, summary.bytes_moved) = (5, 3, 2, 1_000_000);
        let line = conclusion(Direction::Sending, &summary, units::Duration::from_secs(1));
        assert!(line.starts_with("sent and verified 3 of 5 files, "), "{line}");
        assert!(line.ends_with("; 2 failed"), "{line}");
    }
}

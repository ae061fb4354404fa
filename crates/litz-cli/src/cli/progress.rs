//! The progress display of a transfer: a bar on a terminal, plain lines elsewhere, JSON lines with
//! `--json`.

use std::io::IsTerminal;
use std::sync::Mutex;
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use litz::paths::shown::ShownState;
use net::MonotonicClock;
use transfer::{Events, FileError, LeftOutReason, NothingDeletedReason, SkippedCounts, Summary, TransferEvent};
use units::{ByteSize, Instant};

use super::colour::{self, Colour, paint};
use super::lines::Lines;
use super::out;
use super::path_report::PathLine;
use super::problems::Problems;
use super::status::{SilenceChange, Status, grouped, seconds};
use super::transport_options::TransportOptions;
use super::warning::Warning;

/// The terminal's width if it is not known.
const WIDTH_DEFAULT: usize = 80;

/// Width of the bar itself, if the terminal is wide enough, and the least useful one.
const BAR_WIDTH: usize = 20;
const BAR_WIDTH_MIN: usize = 6;

/// Columns that the figures may take before the bar becomes shorter: sizes, a rate and the time left,
/// as in `999.9 MB of 2.00 TB  999.9 MB/s  59 min 59 s left`.
const FIGURES_WIDTH: usize = 50;

/// Interval of plain lines.
const LINE_INTERVAL: units::Duration = units::Duration::from_secs(2);
/// Interval of updates of the bar.
const BAR_INTERVAL: units::Duration = units::Duration::from_millis(100);
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
    verb: &'static str,
    is_coloured: bool,
    main: ProgressBar,
    /// What `main` looks like now.
    look: Mutex<Look>,
    paths: Mutex<Lines>,
}

impl Bars {
    fn new(direction: Direction, is_coloured: bool) -> Self {
        let all = MultiProgress::with_draw_target(ProgressDrawTarget::hidden());
        let verb = if direction == Direction::Sending { "sending" } else { "receiving" };
        let main = all.add(ProgressBar::new(0));
        let (look, paths) = (Look::Text, Mutex::new(Lines::new(all.clone(), 2)));
        main.set_style(look.style(verb, is_coloured));
        main.set_message("connecting");
        let bars = Self { paths, all, verb, is_coloured, main, look: Mutex::new(look) };
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
        let texts = path_texts(paths);
        if let Ok(mut lines) = self.paths.lock() {
            lines.show(&texts);
        }
    }

    fn show_status(&self, now: Instant, status: &Status) {
        let columns = terminal_size::terminal_size_of(std::io::stderr()).map(|(width, _)| usize::from(width.0));
        let columns = columns.unwrap_or(WIDTH_DEFAULT);
        let look = Look::of(status, columns, self.verb);
        let text = status.line(now, columns.saturating_sub(look.prefix_width(self.verb)));
        let (done, total) = status.sizes();
        self.main.set_length(total);
        self.main.set_position(done);
        self.main.set_message(paint(Colour::Warning, &text, self.is_coloured && status.silence().is_some()));
        if let Ok(mut shown) = self.look.lock()
            && std::mem::replace(&mut *shown, look) != look
        {
            self.main.set_style(look.style(self.verb, self.is_coloured));
        }
    }

    fn clear(&self) {
        self.main.finish_and_clear();
        if let Ok(mut lines) = self.paths.lock() {
            lines.clear();
        }
    }
}

/// A line for each path that is not abandoned, if there are several.
fn path_texts(paths: &[PathLine]) -> Vec<String> {
    let open: Vec<&PathLine> = paths.iter().filter(|path| path.state != ShownState::Abandoned).collect();
    if open.len() > 1 { open.into_iter().map(PathLine::text).collect() } else { Vec::new() }
}

/// What stands before the figures.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Look {
    /// Only the verb: the share is not known, before the transfer starts and for streams.
    Text,
    /// The percentage, in a narrow terminal.
    Percent,
    /// A bar of this width, and the percentage.
    Bar(usize),
}

impl Look {
    /// What fits beside the figures into so many columns.
    fn of(status: &Status, columns: usize, verb: &str) -> Self {
        if !status.has_length() {
            return Self::Text;
        }
        match columns.saturating_sub(Self::Bar(0).prefix_width(verb) + FIGURES_WIDTH).min(BAR_WIDTH) {
            ..BAR_WIDTH_MIN => Self::Percent,
            width => Self::Bar(width),
        }
    }

    /// Columns before the figures.
    fn prefix_width(self, verb: &str) -> usize {
        verb.len()
            + match self {
                Self::Text => "  ".len(),
                Self::Percent => " 100 %  ".len(),
                Self::Bar(width) => width + " [] 100 %  ".len(),
            }
    }

    fn style(self, verb: &str, is_coloured: bool) -> ProgressStyle {
        let colour = if is_coloured { ".cyan" } else { "" };
        let template = match self {
            Self::Text => format!("{verb}  {{wide_msg}}"),
            Self::Percent => format!("{verb} {{percent:>3}} %  {{wide_msg}}"),
            Self::Bar(width) => format!("{verb} [{{bar:{width}{colour}}}] {{percent:>3}} %  {{wide_msg}}"),
        };
        let style = ProgressStyle::with_template(&template).unwrap_or_else(|_| ProgressStyle::default_bar());
        style.progress_chars("━╸─")
    }
}

/// The sender of a transfer that is one of several, for the user of a standing receiver.
pub(crate) struct Sender {
    pub(crate) name: String,
    pub(crate) peer: String,
    pub(crate) key: String,
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
    sender: Option<Sender>,
    mode: Mode,
    /// Whether single files are reported.
    is_verbose: bool,
    is_coloured: bool,
    clock: MonotonicClock,
    state: Mutex<ProgressState>,
}

#[derive(Default)]
struct ProgressState {
    is_started: bool,
    status: Status,
    done: u64,
    shown_at: Option<Instant>,
    paths_shown_at: Option<Instant>,
    progressed_at: Instant,
    problems: Problems,
}

impl Progress {
    pub(crate) fn new(direction: Direction, options: &TransportOptions) -> Self {
        let is_coloured = colour::is_wanted();
        let mode = match (options.json, options.quiet) {
            (true, _) => Mode::Json,
            (_, true) => Mode::Quiet,
            _ if std::io::stderr().is_terminal() => Mode::Bar(Bars::new(direction, is_coloured)),
            _ => Mode::Lines,
        };
        let (clock, state) = (MonotonicClock::start(), Mutex::default());
        Self { direction, sender: None, mode, is_verbose: options.verbose, is_coloured, clock, state }
    }

    /// The same for one of several senders: lines and events say which.
    pub(crate) fn of_sender(self, sender: Option<Sender>) -> Self {
        Self { sender, ..self }
    }

    /// The text, with the name of the sender if there are several.
    fn named(&self, text: String) -> String {
        match &self.sender {
            Some(sender) => format!("{}: {text}", sender.name),
            None => text,
        }
    }

    /// Prints a JSON line, with the sender if there are several.
    fn print_json(&self, mut value: serde_json::Value) {
        if let Some(sender) = &self.sender {
            value["peer"] = sender.peer.as_str().into();
            value["key"] = sender.key.as_str().into();
        }
        out::json(&value);
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
        let now = self.clock.now();
        let Ok(mut state) = self.state.lock() else { return };
        state.status.on_listing();
        match &self.mode {
            Mode::Bar(bars) => bars.show_status(now, &state.status),
            Mode::Lines => out::note("connected; listing the files"),
            Mode::Json => out::json(&serde_json::json!({ "event": "scanning" })),
            Mode::Quiet => {}
        }
    }

    /// The connection was lost, and another one is being made: its paths and its silence are over.
    pub(crate) fn lost(&self) {
        let now = self.clock.now();
        let Ok(mut state) = self.state.lock() else { return };
        state.status.on_lost();
        if let Mode::Bar(bars) = &self.mode {
            bars.show_status(now, &state.status);
            bars.show_paths(&[]);
        }
    }

    /// Prints a warning; the transfer continues.
    pub(crate) fn warn(&self, warning: Warning, message: &str) {
        match &self.mode {
            Mode::Json => out::json(&warning.json(message)),
            Mode::Quiet if warning.is_advice() => {}
            Mode::Bar(_) | Mode::Lines | Mode::Quiet => self.problem(Colour::Warning, &format!("warning: {message}")),
        }
    }

    /// Prints an event of the command as a JSON line; does nothing in the other modes.
    pub(crate) fn json(&self, value: &serde_json::Value) {
        if matches!(self.mode, Mode::Json) {
            self.print_json(value.clone());
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
        self.sample(paths);
        match &self.mode {
            Mode::Bar(bars) => bars.show_paths(paths),
            Mode::Lines if paths.len() > 1 && self.is_time_for_paths() => {
                path_texts(paths).iter().for_each(|path| out::note(&format!("  {path}")));
            }
            Mode::Json if !out::is_ready() => {}
            Mode::Json => {
                let paths: Vec<_> = paths.iter().map(PathLine::json).collect();
                self.print_json(serde_json::json!({ "event": "paths", "paths": paths }));
            }
            Mode::Lines | Mode::Quiet => {}
        }
    }

    /// Updates the rates, and says that packets stopped to arrive.
    fn sample(&self, paths: &[PathLine]) {
        let change = {
            let Ok(mut state) = self.state.lock() else { return };
            let now = self.clock.now();
            let change = state.status.on_sample(now, paths);
            if let Mode::Bar(bars) = &self.mode {
                bars.show_status(now, &state.status);
            }
            change
        };
        match change {
            Some(SilenceChange::Silent(quiet_for)) => {
                self.json(&serde_json::json!({ "event": "silent", "silent_us": quiet_for.as_micros() }));
                if matches!(self.mode, Mode::Lines) {
                    out::note(&format!("no packets for {}; waiting", seconds(quiet_for)));
                }
            }
            Some(SilenceChange::Ended) => {
                self.json(&serde_json::json!({ "event": "silence_ended" }));
                if matches!(self.mode, Mode::Lines) {
                    out::note("packets arrive again");
                }
            }
            None => {}
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

    /// Removes the bar; further output is plain text. Prints how many problems were not shown.
    pub(crate) fn clear(&self) {
        if let Mode::Bar(bars) = &self.mode {
            bars.clear();
        }
        let hidden = self.state.lock().map(|mut state| state.problems.take_hidden()).unwrap_or_default();
        for (count, kind) in hidden {
            self.problem(Colour::Bad, &format!("{} more: {kind}", grouped(count)));
        }
    }

    /// Prints the last line of a transfer that finished.
    pub(crate) fn finish(&self, summary: &Summary, span: units::Duration) {
        self.clear();
        if matches!(self.mode, Mode::Json) {
            return;
        }
        let Ok(state) = self.state.lock() else { return };
        let line = self.named(state.status.conclusion(self.direction, summary, span));
        let colour = if summary.exit_code() == 0 { Colour::Good } else { Colour::Warning };
        out::note(&paint(colour, &line, self.is_coloured));
    }

    fn show(&self, event: &TransferEvent<'_>) {
        match event {
            TransferEvent::FileFailed { path, error } if self.is_shown(error) => {
                self.problem(Colour::Bad, &format!("{path}: {error}"));
            }
            TransferEvent::Skipped { path, error } if self.is_shown(error) => {
                self.problem(Colour::Warning, &format!("{path}: skipped: {error}"));
            }
            TransferEvent::NotSent { skipped } => self.problem(Colour::Warning, &not_sent(skipped)),
            TransferEvent::LeftOut { .. } | TransferEvent::Deleted { .. } => self.show_choice(event),
            TransferEvent::NotDeleted { path, error } if self.is_shown(error) => {
                self.problem(Colour::Bad, &format!("{path}: not deleted: {}", error.detail));
            }
            TransferEvent::NothingDeleted { reason } => self.problem(Colour::Warning, nothing_deleted(*reason)),
            TransferEvent::FileStarted { path, bytes_resumed, .. } if *bytes_resumed > 0 && self.is_verbose => {
                self.note(&format!("{path}: already received ({})", ByteSize::from_bytes(*bytes_resumed)));
            }
            _ => {}
        }
        if let Mode::Bar(bars) = &self.mode {
            if self.direction == Direction::Receiving && matches!(event, TransferEvent::Started { .. }) {
                bars.draw();
            }
            if self.is_time(BAR_INTERVAL)
                && let Ok(state) = self.state.lock()
            {
                bars.show_status(self.clock.now(), &state.status);
            }
        } else if let (Mode::Lines, TransferEvent::Progress { .. }) = (&self.mode, event)
            && self.is_time(LINE_INTERVAL)
            && let Ok(state) = self.state.lock()
        {
            out::note(&self.named(state.status.plain_line(self.clock.now())));
        }
    }

    /// Says what is left out or deleted: all that a dry run would do, the rest if single files are reported.
    fn show_choice(&self, event: &TransferEvent<'_>) {
        let verb = if self.direction == Direction::Sending { "send" } else { "receive" };
        let text = match event {
            TransferEvent::LeftOut { path, bytes: 0, reason: LeftOutReason::WouldReceive } => {
                format!("would {verb} {path}")
            }
            TransferEvent::LeftOut { path, bytes, reason: LeftOutReason::WouldReceive } => {
                format!("would {verb} {path} ({})", ByteSize::from_bytes(*bytes))
            }
            TransferEvent::Deleted { path, dry_run: true } => format!("would delete {path}"),
            TransferEvent::Deleted { path, .. } if self.is_verbose => format!("deleted {path}"),
            TransferEvent::LeftOut { path, reason: LeftOutReason::Newer, .. } if self.is_verbose => {
                format!("{path}: kept, the receiver's is newer")
            }
            _ => return,
        };
        self.note(&self.named(text));
    }

    /// Whether the problem is one of the first of its kind.
    fn is_shown(&self, error: &FileError) -> bool {
        self.state.lock().is_ok_and(|mut state| state.problems.is_shown(error))
    }

    /// Prints a problem, even with `--quiet`.
    fn problem(&self, colour: Colour, text: &str) {
        let text = paint(colour, &self.named(text.to_owned()), self.is_coloured);
        match &self.mode {
            Mode::Bar(bars) if !bars.main.is_hidden() => bars.main.println(text),
            Mode::Bar(_) | Mode::Lines | Mode::Quiet => out::note(&text),
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

/// What the user of a receiver reads of entries that the sender has skipped.
fn not_sent(skipped: &SkippedCounts) -> String {
    let kinds = [
        (skipped.links, "symbolic link", "symbolic links"),
        (skipped.special, "device, pipe or socket", "devices, pipes or sockets"),
        (skipped.unreadable, "unreadable or badly named entry", "unreadable or badly named entries"),
    ];
    let kinds = kinds.into_iter().filter(|(count, _, _)| *count > 0);
    let kinds: Vec<_> = kinds
        .map(|(count, one, many)| format!("{} {}", grouped(count.into()), if count == 1 { one } else { many }))
        .collect();
    format!("the sender has skipped {}", kinds.join(", "))
}

/// Why nothing is deleted, and what to do.
fn nothing_deleted(reason: NothingDeletedReason) -> &'static str {
    match reason {
        NothingDeletedReason::Skipped => {
            "nothing is deleted, because the sender has skipped something, so that what it has is not known: make that \
             readable, or leave it out with --exclude"
        }
        _ => "nothing is deleted, because something failed: remove the cause and run the same command again",
    }
}

impl Events for Progress {
    fn event(&self, event: TransferEvent<'_>) {
        if let Ok(mut state) = self.state.lock() {
            state.status.on_event(self.clock.now(), &event);
            match &event {
                TransferEvent::Started { .. } => state.is_started = true,
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
        // A slow reader gets fewer of them, and does not slow the transfer down.
        if (!is_frequent || self.is_time(JSON_INTERVAL) && out::is_ready())
            && let Ok(value) = serde_json::to_value(&event)
        {
            self.print_json(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use transfer::RelativePath;

    use super::super::args::{Arguments, Command};
    use super::*;

    #[test]
    fn verifying_existing_bytes_counts_as_progress() {
        let line = ["litz", "send", "path", "ticket", "--quiet"];
        let Command::Send(options) = Arguments::try_parse_from(line).unwrap().command else { panic!("send") };
        let progress = Progress::new(Direction::Sending, &options.transport);
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
}

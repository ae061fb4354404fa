//! The demo's progress display: a bar and one line per link on a terminal, plain lines elsewhere.

use std::io::IsTerminal;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use units::{Duration, Instant};

use crate::cli::lines::Lines;
use crate::cli::out;

/// Interval of plain lines.
const LINE_INTERVAL: Duration = Duration::from_secs(1);

/// The output of the demo, or no output with `--json`.
pub(super) enum Show {
    Bars,
    Lines,
    Quiet,
}

/// The display of one transfer. Dropping it clears the bars.
pub(super) struct Screen {
    title: String,
    bytes: u64,
    bars: Option<Bars>,
    says_lines: bool,
    line_at: Instant,
    percent: u64,
}

struct Bars {
    all: MultiProgress,
    main: ProgressBar,
    links: Lines,
}

impl Show {
    pub(super) fn new(json: bool) -> Self {
        match json {
            true => Self::Quiet,
            false if std::io::stderr().is_terminal() => Self::Bars,
            false => Self::Lines,
        }
    }

    pub(super) fn say(&self, text: &str) {
        if !matches!(self, Self::Quiet) {
            out::note(text);
        }
    }

    /// Begins the display of a transfer of `bytes`.
    pub(super) fn transfer(&self, title: &str, bytes: u64) -> Screen {
        let (bars, says_lines) = match self {
            Self::Bars => (Some(Bars::new(title, bytes)), false),
            Self::Lines => (None, true),
            Self::Quiet => (None, false),
        };
        if says_lines {
            out::note(&format!("  {title}"));
        }
        Screen { title: title.to_owned(), bytes, bars, says_lines, line_at: Instant::ZERO, percent: 0 }
    }
}

impl Screen {
    /// Shows how many bytes have been received.
    pub(super) fn progress(&mut self, bytes_done: u64) {
        self.percent = bytes_done.saturating_mul(100).checked_div(self.bytes).unwrap_or(100);
        if let Some(bars) = &self.bars {
            bars.main.set_position(bytes_done);
        }
    }

    /// Shows a line for each link, as of `now`.
    pub(super) fn links(&mut self, now: Instant, lines: &[String]) {
        if let Some(bars) = &mut self.bars {
            bars.links.show(lines);
        } else if self.says_lines && now >= self.line_at {
            out::note(&format!("  {}: {} %", self.title, self.percent));
            lines.iter().for_each(|line| out::note(&format!("    {line}")));
            self.line_at = now + LINE_INTERVAL;
        }
    }

    /// Prints an event.
    pub(super) fn say(&self, text: &str) {
        match &self.bars {
            // If the terminal cannot be written to, the transfer continues without a display.
            Some(bars) => drop(bars.all.println(text)),
            None if self.says_lines => out::note(text),
            None => {}
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if let Some(bars) = &mut self.bars {
            bars.links.clear();
            bars.main.finish_and_clear();
        }
    }
}

impl Bars {
    fn new(title: &str, bytes: u64) -> Self {
        let all = MultiProgress::with_draw_target(ProgressDrawTarget::stderr_with_hz(10));
        let main = all.add(ProgressBar::new(bytes));
        let template = "  {prefix:<14} [{bar:32}] {percent:>3} %  {decimal_bytes} of {decimal_total_bytes}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            main.set_style(style.progress_chars("━╸─"));
        }
        main.set_prefix(title.to_owned());
        Self { links: Lines::new(all.clone(), 4), all, main }
    }
}

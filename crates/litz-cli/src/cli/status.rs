//! The state of a transfer as the user sees it: sizes, rates, the files under way, silence. It reads
//! no clock and prints nothing: times and samples are arguments.

use std::collections::{BTreeMap, HashMap, VecDeque};

use litz::paths::shown::SILENCE_MIN;
use transfer::{Summary, TransferEvent};
use units::{ByteSize, Duration, Instant, Rate};

use super::path_report::PathLine;
use super::progress::Direction;

/// The rates are those over this time: long enough to be readable, short enough to show a change.
const RATE_SPAN: Duration = Duration::from_secs(3);

/// Interval of further reports of the same silence.
const SILENCE_INTERVAL: Duration = Duration::from_secs(10);

/// A shorter time gives no rate: results come in steps of a megabyte.
const RATE_SPAN_MIN: Duration = Duration::from_millis(500);

/// A name is not cut to fewer characters.
const NAME_MIN: usize = 12;

/// The state of one transfer.
#[derive(Default)]
pub(crate) struct Status {
    stage: Stage,
    total: u64,
    done: u64,
    /// Bytes received before this attempt, and in how many files. They do not count as speed.
    resumed: u64,
    resumed_files: u64,
    /// Files that began and have not ended, in this order, and one that is being verified.
    open: OpenNames,
    verifying: Option<String>,
    samples: VecDeque<Sample>,
    /// Bytes on all paths since the transfer began.
    wire: u64,
    wire_of_paths: Vec<(u32, u64)>,
    quiet_for: Duration,
    silence: Silence,
}

/// How far the transfer is.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum Stage {
    #[default]
    Connecting,
    Listing,
    Moving,
}

/// Which rates are shown.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rates {
    Both,
    Verified,
    /// That of verified bytes, without a word.
    Bare,
}

/// Names in the order in which they were added. There may be thousands, of small files.
#[derive(Default)]
struct OpenNames {
    by_number: BTreeMap<u64, String>,
    numbers: HashMap<String, u64>,
    next: u64,
}

/// The silence that the user knows of.
#[derive(Default)]
struct Silence {
    reported: Option<Duration>,
}

/// What to tell of a silence.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum SilenceChange {
    /// No packet has arrived for this time.
    Silent(Duration),
    /// Packets arrive again.
    Ended,
}

#[derive(Clone, Copy)]
struct Sample {
    at: Instant,
    moved: u64,
    wire: u64,
}

impl OpenNames {
    fn insert(&mut self, name: String) {
        self.next += 1;
        self.by_number.insert(self.next, name.clone());
        if let Some(before) = self.numbers.insert(name, self.next) {
            self.by_number.remove(&before);
        }
    }

    fn remove(&mut self, name: &str) {
        if let Some(number) = self.numbers.remove(name) {
            self.by_number.remove(&number);
        }
    }

    fn last(&self) -> Option<&String> {
        self.by_number.last_key_value().map(|(_, name)| name)
    }
}

impl Status {
    /// The sender lists its files.
    pub(crate) fn on_listing(&mut self) {
        self.stage = Stage::Listing;
    }

    /// The connection was lost, and another one is being made.
    pub(crate) fn on_lost(&mut self) {
        (self.stage, self.quiet_for, self.silence) = (Stage::Connecting, Duration::ZERO, Silence::default());
        self.samples.clear();
        self.wire_of_paths.clear();
    }

    pub(crate) fn on_event(&mut self, now: Instant, event: &TransferEvent<'_>) {
        match event {
            TransferEvent::Started { bytes, .. } => {
                // Another attempt starts its files again.
                let silence = std::mem::take(&mut self.silence);
                let (stage, samples) = (Stage::Moving, VecDeque::from([Sample { at: now, moved: 0, wire: self.wire }]));
                let (total, done, wire) = (*bytes, self.done, self.wire);
                *self = Self { stage, total, done, wire, samples, silence, ..Self::default() };
            }
            TransferEvent::FileStarted { path, bytes_resumed, .. } => {
                self.resumed += bytes_resumed;
                self.resumed_files += u64::from(*bytes_resumed > 0);
                self.open.insert(path.to_string());
                self.verifying = None;
            }
            TransferEvent::FileDone { path, .. } | TransferEvent::FileFailed { path, .. } => {
                let name = path.to_string();
                self.open.remove(&name);
                self.verifying = self.verifying.take().filter(|verifying| *verifying != name);
            }
            TransferEvent::Verifying { path, .. } => self.verifying = Some(path.to_string()),
            TransferEvent::Progress { bytes_done, .. } => self.done = self.done.max(*bytes_done),
            _ => {}
        }
    }

    /// Takes a sample of the paths; returns what to tell of silence.
    pub(crate) fn on_sample(&mut self, now: Instant, paths: &[PathLine]) -> Option<SilenceChange> {
        for path in paths {
            let before = self.wire_of_paths.iter().find(|(id, _)| *id == path.id.0).map_or(0, |(_, bytes)| *bytes);
            self.wire += path.bytes.saturating_sub(before);
        }
        self.wire_of_paths = paths.iter().map(|path| (path.id.0, path.bytes)).collect();
        self.samples.push_back(Sample { at: now, moved: self.moved(), wire: self.wire });
        while self.samples.len() > 2 && now.saturating_since(self.samples[1].at) >= RATE_SPAN {
            self.samples.pop_front();
        }
        self.quiet_for = paths.iter().map(|path| path.quiet_for).min().unwrap_or_default();
        self.silence.change(self.quiet_for)
    }

    /// Bytes that this attempt has transferred.
    fn moved(&self) -> u64 {
        self.done.saturating_sub(self.resumed)
    }

    /// Verified bytes per second; none before it is known.
    fn goodput(&self, now: Instant) -> Option<Rate> {
        let first = self.samples.front().filter(|_| self.stage == Stage::Moving)?;
        rate(self.moved().saturating_sub(first.moved), now.saturating_since(first.at))
    }

    /// Bytes per second on all paths, with headers and repeated data; none before it is known.
    fn wire_rate(&self) -> Option<Rate> {
        let (first, last) = (self.samples.front()?, self.samples.back()?);
        rate(last.wire.saturating_sub(first.wire), last.at.saturating_since(first.at))
    }

    /// How long no packet has arrived, if that is long enough to be reported.
    pub(crate) fn silence(&self) -> Option<Duration> {
        Some(self.quiet_for).filter(|quiet_for| is_silence(*quiet_for))
    }

    /// Sizes and rates in words, without the file.
    pub(crate) fn figures(&self, now: Instant) -> String {
        self.figures_with(now, Rates::Both)
    }

    fn figures_with(&self, now: Instant, rates: Rates) -> String {
        let stage = match self.stage {
            Stage::Connecting => "connecting",
            Stage::Listing => "listing the files",
            Stage::Moving => "",
        };
        let done = ByteSize::from_bytes(self.done);
        let sizes = match self.total {
            _ if self.stage != Stage::Moving => stage.to_owned(),
            // The length of a stream is known at its end.
            0 => done.to_string(),
            total => format!("{done} of {}", ByteSize::from_bytes(total)),
        };
        if let Some(silence) = self.silence() {
            return format!("{sizes}  no packets for {}", seconds(silence));
        }
        let Some(goodput) = self.goodput(now) else { return sizes };
        let wire = self.wire_rate().filter(|_| rates == Rates::Both);
        // No bytes on the wire: the samples are older than the progress.
        let wire = wire.filter(|rate| !rate.is_zero() || goodput.is_zero());
        let wire = wire.map_or_else(String::new, |rate| format!(", {} on the wire", per_second(rate)));
        let word = if rates == Rates::Bare { "" } else { " verified" };
        let left = self.total.saturating_sub(self.done);
        let left = if goodput.is_zero() || left == 0 {
            String::new()
        } else {
            format!("  {} left", clock(goodput.time_for(left)))
        };
        format!("{sizes}  {}{word}{wire}{left}", per_second(goodput))
    }

    /// The figures and the current file, in `width` columns. What does not fit is left out: first the
    /// middle of the file's name, then the rate on the wire, then the file.
    pub(crate) fn line(&self, now: Instant, width: usize) -> String {
        if let Some(file) = self.file() {
            for rates in [Rates::Both, Rates::Verified] {
                let figures = self.figures_with(now, rates);
                let space = width.saturating_sub(figures.chars().count() + 2);
                if space >= NAME_MIN.min(file.chars().count()) {
                    return format!("{figures}  {}", shorten(&file, space));
                }
            }
        }
        let all = [Rates::Both, Rates::Verified, Rates::Bare].map(|rates| self.figures_with(now, rates));
        let fitting = all.iter().find(|figures| figures.chars().count() <= width);
        fitting.unwrap_or(&all[2]).chars().take(width).collect()
    }

    /// Whether the number of all bytes is known, so that their share can be shown.
    pub(crate) fn has_length(&self) -> bool {
        self.total > 0
    }

    /// The file that began last of those under way.
    fn file(&self) -> Option<String> {
        match (&self.verifying, self.open.last()) {
            (Some(name), _) => Some(format!("verifying {name}")),
            (None, Some(name)) => Some(name.clone()),
            (None, None) => None,
        }
    }

    /// The progress in one line: without a percentage for a stream, whose length is not known.
    pub(crate) fn plain_line(&self, now: Instant) -> String {
        if !self.has_length() {
            return format!("received: {}", self.figures(now));
        }
        format!("{} % received: {}", self.percent(), self.figures(now))
    }

    /// Percentage of the bytes that are done.
    pub(crate) fn percent(&self) -> u64 {
        self.done.saturating_mul(100).checked_div(self.total).unwrap_or(100)
    }

    /// Bytes that are done, and all.
    pub(crate) const fn sizes(&self) -> (u64, u64) {
        (self.done, self.total)
    }

    /// One line about a finished transfer.
    pub(crate) fn conclusion(&self, direction: Direction, summary: &Summary, span: Duration) -> String {
        if summary.dry_run {
            return with_rest(dry_run_conclusion(direction, summary), summary);
        }
        let verb = if direction == Direction::Sending { "sent" } else { "received" };
        let rate = per_second(Rate::from_transfer(summary.bytes_moved, span).unwrap_or_default());
        let moved = ByteSize::from_bytes(summary.bytes_moved);
        let files = if summary.files_done == summary.files {
            count(summary.files)
        } else {
            format!("{} of {}", grouped(summary.files_done), count(summary.files))
        };
        let mut line = format!("{verb} and verified {files}, {moved} in {span} ({rate})");
        if summary.bytes_resumed > 0 {
            let (files, bytes) = (count(self.resumed_files), ByteSize::from_bytes(summary.bytes_resumed));
            line += &format!("; {bytes} of {files} had been received before");
        }
        if summary.deleted > 0 {
            line += &format!("; {} deleted", grouped(summary.deleted));
        }
        with_rest(line, summary)
    }
}

/// What a dry run has found.
fn dry_run_conclusion(direction: Direction, summary: &Summary) -> String {
    let verb = if direction == Direction::Sending { "send" } else { "receive" };
    let (files, bytes) = (count(summary.would_receive), ByteSize::from_bytes(summary.would_receive_bytes));
    let mut line = format!("dry run, nothing was written: would {verb} {files}, {bytes}");
    if summary.deleted > 0 {
        line += &format!("; would delete {}", grouped(summary.deleted));
    }
    if summary.unchanged > 0 {
        line += &format!("; {} unchanged", grouped(summary.unchanged));
    }
    line
}

/// The line with what was left out, and what went wrong.
fn with_rest(mut line: String, summary: &Summary) -> String {
    for (number, what) in [
        (summary.newer, "newer at the receiver"),
        (summary.failed, "failed"),
        (summary.skipped, "skipped"),
        (summary.not_deleted, "not deleted"),
    ] {
        if number > 0 {
            line += &format!("; {} {what}", grouped(number));
        }
    }
    line
}

impl Silence {
    fn change(&mut self, quiet_for: Duration) -> Option<SilenceChange> {
        if !is_silence(quiet_for) {
            return self.reported.take().map(|_| SilenceChange::Ended);
        }
        let is_news = self.reported.is_none_or(|reported| quiet_for >= reported + SILENCE_INTERVAL);
        is_news.then(|| {
            self.reported = Some(quiet_for);
            SilenceChange::Silent(quiet_for)
        })
    }
}

/// Whether a time without a packet is long enough to be reported.
pub(crate) fn is_silence(quiet_for: Duration) -> bool {
    quiet_for >= SILENCE_MIN
}

/// The rate of these bytes, unless the time is too short for one.
fn rate(bytes: u64, span: Duration) -> Option<Rate> {
    if span < RATE_SPAN_MIN { None } else { Rate::from_transfer(bytes, span) }
}

/// A rate of data in bytes, as sizes are.
pub(crate) fn per_second(rate: Rate) -> String {
    format!("{}/s", ByteSize::from_bytes(rate.as_bps() / 8))
}

/// A time in whole seconds.
pub(crate) fn seconds(time: Duration) -> String {
    format!("{} s", time.as_millis() / 1000)
}

/// A remaining time in its two largest units.
fn clock(time: Duration) -> String {
    let seconds = time.as_millis().div_ceil(1000);
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds} s"),
        (0, minutes, seconds) => format!("{minutes} min {seconds:02} s"),
        (hours, minutes, _) => format!("{hours} h {minutes:02} min"),
    }
}

fn count(files: u64) -> String {
    if files == 1 { "1 file".to_owned() } else { format!("{} files", grouped(files)) }
}

/// A number with commas between groups of three digits.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// The name in at most `width` characters, cut in its middle: its folder and its end tell most.
fn shorten(name: &str, width: usize) -> String {
    let letters: Vec<char> = name.chars().collect();
    if letters.len() <= width {
        return name.to_owned();
    }
    let kept = width.saturating_sub(1);
    let (head, tail) = (kept / 3, kept - kept / 3);
    let head: String = letters[..head].iter().collect();
    let tail: String = letters[letters.len() - tail..].iter().collect();
    format!("{head}…{tail}")
}

#[cfg(test)]
mod tests;

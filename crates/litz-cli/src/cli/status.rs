//! The state of a transfer as the user sees it: sizes, rates, the files under way, silence. It reads
//! no clock and prints nothing: times and samples are arguments.

use std::collections::{BTreeMap, HashMap, VecDeque};

use transfer::{Summary, TransferEvent};
use units::{ByteSize, Duration, Instant, Rate};

use super::path_report::PathLine;
use super::progress::Direction;

/// The rates are those over this time: long enough to be readable, short enough to show a change.
const RATE_SPAN: Duration = Duration::from_secs(3);

/// After this time without a packet the connection is reported as silent.
const SILENCE_MIN: Duration = Duration::from_secs(3);

/// Interval of further reports of the same silence.
const SILENCE_INTERVAL: Duration = Duration::from_secs(10);

/// A name is not cut to fewer characters.
const NAME_MIN: usize = 12;

/// The state of one transfer.
#[derive(Default)]
pub(crate) struct Status {
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
    pub(crate) fn on_event(&mut self, event: &TransferEvent<'_>) {
        match event {
            TransferEvent::Started { bytes, .. } => {
                // Another attempt starts its files again.
                let silence = std::mem::take(&mut self.silence);
                *self = Self { total: *bytes, done: self.done, wire: self.wire, silence, ..Self::default() };
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
        self.samples.push_back(Sample { at: now, moved: self.done.saturating_sub(self.resumed), wire: self.wire });
        while self.samples.len() > 2 && now.saturating_since(self.samples[1].at) >= RATE_SPAN {
            self.samples.pop_front();
        }
        self.quiet_for = paths.iter().map(|path| path.quiet_for).min().unwrap_or_default();
        self.silence.change(self.quiet_for)
    }

    /// Verified bytes per second.
    fn goodput(&self) -> Rate {
        self.rate(|sample| sample.moved)
    }

    /// Bytes per second on all paths, with headers and repeated data.
    fn wire_rate(&self) -> Rate {
        self.rate(|sample| sample.wire)
    }

    fn rate(&self, bytes: impl Fn(&Sample) -> u64) -> Rate {
        let (Some(first), Some(last)) = (self.samples.front(), self.samples.back()) else { return Rate::ZERO };
        let span = last.at.saturating_since(first.at);
        Rate::from_transfer(bytes(last).saturating_sub(bytes(first)), span).unwrap_or_default()
    }

    /// How long no packet has arrived, if that is long enough to be reported.
    pub(crate) fn silence(&self) -> Option<Duration> {
        Some(self.quiet_for).filter(|quiet_for| is_silence(*quiet_for))
    }

    /// Sizes and rates in words, without the file.
    pub(crate) fn figures(&self) -> String {
        let done = ByteSize::from_bytes(self.done);
        // The length of a stream is known at its end.
        let is_open = self.total == 0;
        let sizes = if is_open { done.to_string() } else { format!("{done} of {}", ByteSize::from_bytes(self.total)) };
        if let Some(silence) = self.silence() {
            return format!("{sizes}  no packets for {}", seconds(silence));
        }
        let (goodput, wire) = (per_second(self.goodput()), per_second(self.wire_rate()));
        let left = self.total.saturating_sub(self.done);
        let left = if self.goodput().is_zero() || left == 0 {
            String::new()
        } else {
            format!("  {} left", clock(self.goodput().time_for(left)))
        };
        format!("{sizes}  {goodput} verified, {wire} on the wire{left}")
    }

    /// The figures and the current file, in `width` columns: what does not fit is cut from the
    /// file's name, in its middle.
    pub(crate) fn line(&self, width: usize) -> String {
        let figures = self.figures();
        let space = width.saturating_sub(figures.chars().count() + 2);
        match self.file() {
            Some(file) if space >= NAME_MIN => format!("{figures}  {}", shorten(&file, space)),
            _ => figures.chars().take(width).collect(),
        }
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
    pub(crate) fn plain_line(&self) -> String {
        if self.total == 0 {
            return format!("received: {}", self.figures());
        }
        format!("{} % received: {}", self.percent(), self.figures())
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
        if summary.failed > 0 {
            line += &format!("; {} failed", grouped(summary.failed));
        }
        if summary.skipped > 0 {
            line += &format!("; {} skipped", grouped(summary.skipped));
        }
        line
    }
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
